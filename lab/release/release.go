// SPDX-License-Identifier: Apache-2.0

// Package release has other releases of OpenStack beside the packages of the machine: each is a Debian suite, installed into a
// root directory of its own, from which the lab starts Neutron, RabbitMQ and Open vSwitch.
//
//	store, err := release.Open("")                       // in the user's cache directory
//	root, err := store.Root(ctx, "sid")                  // made by debootstrap the first time, which takes minutes
//	argv := release.Command(root, []string{dir}, "neutron-db-manage", "upgrade", "head")
//
// A root directory is never written to once it is complete. Each command sees it as the lower layer of an overlay, in a mount
// namespace of its own, with the directories it names at the same paths. The mounts end with the command, so there is nothing to
// unmount, and any number of labs share one root directory.
package release

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// Release is a release of Neutron and the Debian suite that has it. The same suite has a broker and a switch of that time.
type Release struct {
	Number int
	Suite  string
}

// All are the releases that Debian has, oldest first.
func All() []Release {
	return []Release{{17, "bullseye"}, {21, "bookworm"}, {26, "trixie"}, {28, "forky"}, {29, "sid"}}
}

// Find returns the release of a number or a suite.
func Find(name string) (Release, error) {
	var known []string
	for _, r := range All() {
		if name == r.Suite || name == strconv.Itoa(r.Number) {
			return r, nil
		}
		known = append(known, fmt.Sprintf("%d (%s)", r.Number, r.Suite))
	}
	return Release{}, fmt.Errorf("there is no release %q: there are %s", name, strings.Join(known, ", "))
}

// MachineSuite is the Debian suite of the machine itself.
func MachineSuite() (string, error) {
	text, err := os.ReadFile("/etc/os-release")
	if err != nil {
		return "", fmt.Errorf("looking for the machine's suite: %w", err)
	}
	return codename(string(text))
}

func codename(osRelease string) (string, error) {
	for line := range strings.Lines(osRelease) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), "VERSION_CODENAME="); ok {
			return strings.Trim(value, `"`), nil
		}
	}
	return "", fmt.Errorf("os-release names no suite (VERSION_CODENAME)")
}

// parts are the packages whose versions are told, by the names they have outside Debian.
var parts = []struct{ name, pkg string }{
	{"neutron", "neutron-common"}, {"openvswitch", "openvswitch-switch"}, {"rabbitmq", "rabbitmq-server"}, {"erlang", "erlang-base"},
	{"oslo.messaging", "python3-oslo.messaging"}, {"neutron-lib", "python3-neutron-lib"}, {"os-ken", "python3-os-ken"}, {"python", "python3"},
}

// Versions asks dpkg which versions of the parts a root directory has; empty means the machine itself. What is not installed is left out.
func Versions(ctx context.Context, root string) (map[string]string, error) {
	argv := []string{"dpkg-query", "-W", "-f", "${Package} ${Version}\n"}
	for _, p := range parts {
		argv = append(argv, p.pkg)
	}
	if root != "" {
		argv = append([]string{"chroot", root}, argv...)
	}
	// It fails when it knows nothing of one of them; what it prints is right all the same.
	out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).Output()
	if err != nil && len(out) == 0 {
		return nil, fmt.Errorf("asking dpkg for versions in %q: %w", root, err)
	}
	return parseVersions(string(out)), nil
}

func parseVersions(dpkg string) map[string]string {
	versions := map[string]string{}
	for line := range strings.Lines(dpkg) {
		pkg, version, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok || version == "" {
			continue
		}
		for _, p := range parts {
			if p.pkg == pkg {
				versions[p.name] = version
			}
		}
	}
	return versions
}

// Upstream is a Debian version without epoch and revision: 2:29.0.0-2 is 29.0.0.
func Upstream(version string) string {
	if _, rest, ok := strings.Cut(version, ":"); ok {
		version = rest
	}
	version, _, _ = strings.Cut(version, "-")
	version, _, _ = strings.Cut(version, "+")
	return version
}

// Has tells whether a root directory has a file; an empty root is the machine's.
func Has(root, path string) bool {
	_, err := os.Lstat(filepath.Join("/", root, path))
	return err == nil
}
