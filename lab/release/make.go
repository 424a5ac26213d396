// SPDX-License-Identifier: Apache-2.0

package release

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Packages are those that a root directory has. The machine's own MariaDB, ping and VMs serve all releases.
func Packages() []string {
	return []string{
		"neutron-server", "neutron-plugin-ml2", "python3-pymysql", "neutron-openvswitch-agent",
		"openvswitch-switch", "rabbitmq-server", "iproute2", "ethtool", "procps", "conntrack",
		"neutron-dhcp-agent", "neutron-l3-agent", "dnsmasq-base", "iptables", "ipset", "keepalived",
	}
}

// Tools are the packages that the machine needs to make a root directory.
func Tools() []string { return []string{"debootstrap", "zstd"} }

// makeTimeout bounds one suite: 3 to 9 minutes were seen.
const makeTimeout = 45 * time.Minute

// scripts is where debootstrap has one script a suite.
const scripts = "/usr/share/debootstrap/scripts"

// files are put into a root directory before packages are installed: no service is started, the index of a suite may be old, and
// what nobody reads here is left away.
var files = []struct {
	path, text string
	mode       os.FileMode
}{
	{"usr/sbin/policy-rc.d", "#!/bin/sh\nexit 101\n", 0o755},
	{"etc/apt/apt.conf.d/99lab", "Acquire::Check-Valid-Until \"false\";\nAcquire::Languages \"none\";\nAcquire::Retries \"3\";\n", 0o644},
	{"etc/dpkg/dpkg.cfg.d/lab", "force-unsafe-io\npath-exclude=/usr/share/doc/*\npath-exclude=/usr/share/man/*\npath-exclude=/usr/share/locale/*\n", 0o644},
}

// install is run by a shell in a mount namespace of its own: $1 is the root directory, the rest are packages.
const install = `root=$1; shift
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
chroot "$root" apt-get update
DEBIAN_FRONTEND=noninteractive chroot "$root" apt-get install -y --no-install-recommends "$@"
chroot "$root" apt-get clean
rm -rf "$root"/var/lib/apt/lists/*`

// make installs a suite under another name first: a root directory that has its name is complete.
func (s *Store) make(ctx context.Context, r Release) (Entry, error) {
	ctx, cancel := context.WithTimeout(ctx, makeTimeout)
	defer cancel()
	mirror, err := mirrorOf(ctx)
	if err != nil {
		return Entry{}, err
	}
	e := Entry{Release: r, Packages: Packages(), name: key(r.Suite, Packages()), Current: true}
	fresh := s.root(e.name) + ".new"
	if err := os.RemoveAll(fresh); err != nil {
		return e, fmt.Errorf("clearing a half-made release: %w", err)
	}
	s.say("debootstrap of %s …", r.Suite)
	began := time.Now()
	if err := s.isolated(ctx, bootstrap(r.Suite, fresh, mirror, Has("", filepath.Join(scripts, r.Suite)))...); err != nil {
		return e, fmt.Errorf("debootstrap of %s: %w", r.Suite, err)
	}
	e.Bootstrap = time.Since(began).Round(time.Second).Seconds()
	for _, f := range files {
		path := filepath.Join(fresh, f.path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return e, fmt.Errorf("preparing %s: %w", r.Suite, err)
		}
		if err := os.WriteFile(path, []byte(f.text), f.mode); err != nil {
			return e, fmt.Errorf("preparing %s: %w", r.Suite, err)
		}
	}
	s.say("apt-get install of %d packages in %s, after %.0f s of debootstrap …", len(e.Packages), r.Suite, e.Bootstrap)
	began = time.Now()
	if err := s.isolated(ctx, append([]string{"/bin/sh", "-ec", install, "sh", fresh}, e.Packages...)...); err != nil {
		return e, fmt.Errorf("installing the packages of %s: %w", r.Suite, err)
	}
	e.Install, e.Made = time.Since(began).Round(time.Second).Seconds(), time.Now().UTC().Truncate(time.Second)
	return s.keep(ctx, e, fresh)
}

// keep gives a complete root directory its name, its record and its archive.
func (s *Store) keep(ctx context.Context, e Entry, fresh string) (Entry, error) {
	var err error
	if e.Versions, err = Versions(ctx, fresh); err != nil {
		return e, err
	}
	if !s.Plain {
		s.say("packing %s, after %.0f s of apt-get …", e.Suite, e.Install)
		tmp := s.archive(e.name) + ".new"
		if err := s.isolated(ctx, "/bin/bash", "-o", "pipefail", "-ec", `tar --numeric-owner --xattrs -C "$1" -cf - . | zstd -q -3 -T0 -f -o "$2"`, "bash", fresh, tmp); err != nil {
			return e, fmt.Errorf("packing %s: %w", e.Suite, err)
		}
		if err := os.Rename(tmp, s.archive(e.name)); err != nil {
			return e, fmt.Errorf("keeping the archive of %s: %w", e.Suite, err)
		}
	}
	text, err := json.MarshalIndent(e, "", "  ")
	if err != nil {
		return e, fmt.Errorf("recording %s: %w", e.Suite, err)
	}
	if err := os.RemoveAll(s.root(e.name)); err != nil {
		return e, fmt.Errorf("removing the root directory that was there: %w", err)
	}
	if err := os.WriteFile(s.record(e.name), append(text, '\n'), 0o644); err != nil {
		return e, fmt.Errorf("recording %s: %w", e.Suite, err)
	}
	if err := os.Rename(fresh, s.root(e.name)); err != nil {
		return e, fmt.Errorf("putting the root directory of %s in place: %w", e.Suite, err)
	}
	return s.entry(e.name)
}

// unpack makes a root directory from its archive.
func (s *Store) unpack(ctx context.Context, name string) error {
	s.say("unpacking %s …", filepath.Base(s.archive(name)))
	fresh := s.root(name) + ".new"
	if err := os.RemoveAll(fresh); err != nil {
		return fmt.Errorf("clearing a half-made release: %w", err)
	}
	if err := os.MkdirAll(fresh, 0o755); err != nil {
		return fmt.Errorf("unpacking a release: %w", err)
	}
	if err := s.isolated(ctx, "/bin/bash", "-o", "pipefail", "-ec", `zstd -q -d -c "$1" | tar --numeric-owner --xattrs -C "$2" -xpf -`, "bash", s.archive(name), fresh); err != nil {
		return fmt.Errorf("unpacking %s: %w", s.archive(name), err)
	}
	if err := os.Rename(fresh, s.root(name)); err != nil {
		return fmt.Errorf("unpacking a release: %w", err)
	}
	return nil
}

// bootstrap is the command that makes a minimal Debian. A suite that is younger than the machine's debootstrap has no script there;
// that of sid fits.
func bootstrap(suite, dir, mirror string, script bool) []string {
	argv := []string{"debootstrap", "--variant=minbase", suite, dir, mirror}
	if !script {
		argv = append(argv, filepath.Join(scripts, "sid"))
	}
	return argv
}

// isolated runs a command in a mount namespace of its own, so that no mount outlives it, and ends all of it with ctx.
func (s *Store) isolated(ctx context.Context, argv ...string) error {
	cmd := exec.CommandContext(ctx, "unshare", append([]string{"--mount", "--propagation", "private"}, argv...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		return fmt.Errorf("%w:\n  %s", err, strings.Join(lines[max(0, len(lines)-15):], "\n  "))
	}
	return nil
}

// mirrorOf asks apt where the machine's own packages come from: other suites are at the same place.
func mirrorOf(ctx context.Context) (string, error) {
	suite, err := MachineSuite()
	if err != nil {
		return "", err
	}
	out, err := exec.CommandContext(ctx, "apt-get", "indextargets", "--format", "$(RELEASE) $(COMPONENT) $(REPO_URI)", "Identifier: Packages").Output()
	if err != nil {
		return "", fmt.Errorf("asking apt for its sources: %w", err)
	}
	return mirrorIn(string(out), suite)
}

// mirrorIn finds the repository of a suite's main component in lines of suite, component and repository.
func mirrorIn(targets, suite string) (string, error) {
	for line := range strings.Lines(targets) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == suite && f[1] == "main" {
			return f[2], nil
		}
	}
	return "", fmt.Errorf("apt has no source with the component main of %s: other suites are looked for at the same place", suite)
}
