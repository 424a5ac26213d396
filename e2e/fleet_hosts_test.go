// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/lab"
	"github.com/patchbay-sdn/patchbay/lab/daemon"
)

// program is the absolute path of a program in bin, or of the one that a variable names.
func program(t *testing.T, variable, name string) string {
	t.Helper()
	path := os.Getenv(variable)
	if path == "" {
		path = filepath.Join("..", "bin", name)
	}
	path, err := filepath.Abs(path)
	if err == nil {
		_, err = os.Stat(path)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// sshServer is the configuration of a host's ssh server.
const sshServer = `ListenAddress %s
HostKey %s
AuthorizedKeysFile %s
PermitRootLogin prohibit-password
PasswordAuthentication no
UsePAM no
StrictModes no
PidFile none
SetEnv PATCHBAY_SOCKET=%s OVS_RUNDIR=%s
`

// sshView is run before the server: it gives the host files of its own in /usr and /etc/neutron, which nobody else sees.
const sshView = `set -e
for d in usr etc/neutron; do
	mkdir -p "root/$d" "work/$d"
	mount -t overlay overlay -o "lowerdir=/$d,upperdir=$PWD/root/$d,workdir=$PWD/work/$d" "/$d"
done
exec /usr/sbin/sshd -D -e -f "$PWD/sshd_config"
`

// labAgent does on a host what a package manager and systemd do elsewhere: it starts one agent in the place of the other.
const labAgent = `#!/bin/sh
# lab-agent python|patchbay [section.option=value]
set -e
kind=$1
shift
[ "$kind" = python ] || ln -sf %[2]s /usr/bin/patchbay
export PATCHBAY_LAB_DIR=%[1]s PATCHBAY_BIN=%[2]s
%[3]s agent stop %[4]s
%[3]s agent start %[4]s "$kind" --no-wait --set %[5]s ${1:+--set "$1"}
`

// sshRuns installs ssh, without starting it, and makes the directory that its server wants.
func sshRuns(t *testing.T) {
	t.Helper()
	if _, err := lab.Install(t.Context(), "openssh-server", "openssh-client"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat("/run/sshd"); errors.Is(err, fs.ErrNotExist) {
		if err := os.Mkdir("/run/sshd", 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Remove("/run/sshd") })
	}
}

// serveSSH gives each host an ssh server, and the operator a key and the list of hosts. Nobody listens on the last host.
func (x *region) serveSSH(t *testing.T) {
	key, config, hosts := filepath.Join(x.dir, "key"), "", ""
	if out, err := exec.CommandContext(x.ctx, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key).CombinedOutput(); err != nil {
		t.Fatalf("ssh-keygen: %v: %s", err, out)
	}
	for _, h := range x.l.Hosts() {
		config += fmt.Sprintf("Host %s\n  HostName %s\n", h.Name(), h.MgmtIP())
		hosts += h.Name() + "\n"
	}
	config += fmt.Sprintf("Host *\n  User root\n  IdentityFile %s\n  UserKnownHostsFile %s/known\n  StrictHostKeyChecking no\n  LogLevel ERROR\n", key, x.dir)
	write(t, filepath.Join(x.dir, "ssh_config"), config, 0o600)
	write(t, filepath.Join(x.dir, "hosts.txt"), hosts, 0o644)
	write(t, filepath.Join(x.dir, "bin", "ssh"), "#!/bin/sh\nexec /usr/bin/ssh -F "+x.dir+"/ssh_config \"$@\"\n", 0o755)
	link(t, x.ours, filepath.Join(x.dir, "bin", "patchbay"))
	for _, h := range x.l.Hosts() {
		root := filepath.Join(sshDir(h), "root")
		args, err := os.ReadFile("../deploy/package/agent-args")
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(root, "usr/lib/patchbay/agent-args"), string(args), 0o755)
		write(t, filepath.Join(root, "usr/local/bin/lab-agent"), fmt.Sprintf(labAgent, x.l.Dir(), x.ours, program(t, "PATCHBAY_LAB_BIN", "lab"), h.Name(), filtering), 0o755)
		installed := x.ours
		if h.Name() == "hv3" {
			installed = x.old
		}
		link(t, installed, filepath.Join(root, "usr/bin/patchbay"))
		link(t, filepath.Join(h.Dir(), "agent", "neutron.conf"), filepath.Join(root, "etc/neutron/neutron.conf"))
		link(t, filepath.Join(h.Dir(), "agent", "ovs.ini"), filepath.Join(root, "etc/neutron/plugins/ml2/openvswitch_agent.ini"))
		if h.Name() != "hv6" {
			x.listen(t, h)
		}
	}
}

func sshDir(h *lab.Host) string { return filepath.Join(h.Dir(), "ssh") }

// listen starts the ssh server of a host.
func (x *region) listen(t *testing.T, h *lab.Host) {
	t.Helper()
	dir := sshDir(h)
	state := filepath.Join(h.Dir(), "agent", "state", "patchbay.sock")
	write(t, filepath.Join(dir, "sshd_config"), fmt.Sprintf(sshServer, h.MgmtIP(), filepath.Join(x.dir, "key"), filepath.Join(x.dir, "key.pub"), state, h.Switch().Dir()), 0o600)
	d, err := daemon.Start(x.ctx, daemon.Spec{
		Name: "sshd", Dir: dir, Netns: h.Netns(), Argv: []string{"unshare", "--mount", "/bin/sh", "-c", sshView},
	})
	if err != nil {
		t.Fatal(err)
	}
	x.servers = append(x.servers, d)
	if !x.eventually(wired, func() bool {
		c, err := (&net.Dialer{Timeout: time.Second}).DialContext(x.ctx, "tcp", net.JoinHostPort(h.MgmtIP(), "22"))
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	}) {
		t.Fatalf("the ssh server of %s does not listen\n%s", h.Name(), d.LogTail(10))
	}
}

// endSSH ends the servers. The lab does not find them: they write their title over their environment.
func (x *region) endSSH() {
	for _, d := range x.servers {
		_ = d.Kill()
	}
}

func write(t *testing.T, path, text string, mode fs.FileMode) {
	t.Helper()
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.WriteFile(path, []byte(text), mode)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func link(t *testing.T, to, path string) {
	t.Helper()
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.Symlink(to, path)
	}
	if err != nil {
		t.Fatal(err)
	}
}
