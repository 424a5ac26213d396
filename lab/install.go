// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Packages are the Debian packages the lab is made of. CI installs through this list too.
func Packages() []string {
	return []string{
		"neutron-server", "python3-pymysql", "neutron-openvswitch-agent",
		"rabbitmq-server", "mariadb-server", "openvswitch-switch",
		"iproute2", "ethtool", "iputils-ping", "conntrack", "procps",
		"neutron-dhcp-agent", "dnsmasq-base", "isc-dhcp-client", "udhcpc", "dhcpcd-base", "systemd",
		"neutron-l3-agent", "iptables", "ipset", "keepalived",
	}
}

const (
	policyFile = "/usr/sbin/policy-rc.d"
	// policyBackup keeps the machine's own policy while ours is in place, also over a crash.
	policyBackup = policyFile + ".before-patchbay-lab"
	// policy answers "forbidden" to every start of a service by a package's scripts.
	policy         = "#!/bin/sh\nexit 101\n"
	installTimeout = 30 * time.Minute
)

// Install installs the lab's packages and more, as far as they are missing, without letting any of them start a service, and
// returns their names.
func Install(ctx context.Context, more ...string) ([]string, error) {
	missing, err := missingPackages(ctx, more...)
	if err != nil {
		return nil, err
	}
	if len(missing) == 0 {
		// An earlier run may have been killed between the last package and the restoring.
		return nil, restorePolicy()
	}
	ctx, cancel := context.WithTimeout(ctx, installTimeout)
	defer cancel()
	if err := placePolicy(); err != nil {
		return nil, err
	}
	err = install(ctx, missing)
	return missing, errors.Join(err, restorePolicy())
}

func install(ctx context.Context, names []string) error {
	args := append([]string{
		"install", "-y", "-qq", "--no-install-recommends",
		"-o", "Dpkg::Options::=--force-confold", "-o", "DPkg::Lock::Timeout=300",
	}, names...)
	if lists, err := filepath.Glob("/var/lib/apt/lists/*_Packages*"); err == nil && len(lists) > 0 {
		if apt(ctx, args...) == nil {
			return nil
		}
		// Lists that are there may be too old to name files that still exist.
	}
	if err := apt(ctx, "update", "-qq"); err != nil {
		return err
	}
	return apt(ctx, args...)
}

func apt(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, "apt-get", args...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		lines = lines[max(0, len(lines)-15):]
		return fmt.Errorf("apt-get %s: %w:\n  %s", args[0], err, strings.Join(lines, "\n  "))
	}
	return nil
}

// missingPackages asks dpkg which of the packages are not installed.
func missingPackages(ctx context.Context, more ...string) ([]string, error) {
	want := append(Packages(), more...)
	// dpkg-query fails when it knows nothing of one of them; what it prints is right all the same.
	out, err := run(ctx, "", "dpkg-query", append([]string{"-W", "-f", "${Package} ${db:Status-Status}\n"}, want...)...)
	if err != nil && errors.Is(err, exec.ErrNotFound) {
		return nil, fmt.Errorf("looking for packages (the lab needs Debian): %w", err)
	}
	return subtract(want, installed(out)), nil
}

func installed(dpkg string) []string {
	var names []string
	for line := range strings.Lines(dpkg) {
		if name, status, _ := strings.Cut(strings.TrimSpace(line), " "); status == "installed" {
			names = append(names, name)
		}
	}
	return names
}

func subtract(all, some []string) []string {
	known := make(map[string]bool, len(some))
	for _, s := range some {
		known[s] = true
	}
	var rest []string
	for _, s := range all {
		if !known[s] {
			rest = append(rest, s)
		}
	}
	return rest
}

// placePolicy forbids service starts. The machine's own policy, if any, is kept beside it; an empty file stands for none.
func placePolicy() error {
	if _, err := os.Stat(policyBackup); err == nil {
		return nil // still in place from a run that was killed
	}
	own, err := os.ReadFile(policyFile)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("keeping the service policy: %w", err)
	}
	mode := os.FileMode(0o755)
	if info, err := os.Stat(policyFile); err == nil {
		mode = info.Mode().Perm()
	}
	if err := os.WriteFile(policyBackup, own, mode); err != nil {
		return fmt.Errorf("keeping the service policy: %w", err)
	}
	if err := os.WriteFile(policyFile, []byte(policy), 0o755); err != nil {
		return fmt.Errorf("placing the service policy: %w", err)
	}
	// WriteFile keeps the mode of a file that was there.
	if err := os.Chmod(policyFile, 0o755); err != nil {
		return fmt.Errorf("placing the service policy: %w", err)
	}
	return nil
}

// restorePolicy puts back what placePolicy found. Without a backup there is nothing to do.
func restorePolicy() error {
	info, err := os.Stat(policyBackup)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("restoring the service policy: %w", err)
	}
	if info.Size() > 0 {
		err = os.Rename(policyBackup, policyFile)
	} else {
		err = errors.Join(os.Remove(policyFile), os.Remove(policyBackup))
	}
	if err != nil {
		return fmt.Errorf("restoring the service policy: %w", err)
	}
	return nil
}
