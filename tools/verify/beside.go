// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
)

// countable are the items whose figures are counts, whatever else the machine does: they may run side by side. The others measure times or rates, or use what a
// machine has once: podman's store, systemd, /etc, /var/lib/patchbay-lab. e2e-groups-hybrid is among them: it leaves out frames that
// waited in a socket of the switch for half a second at most, which is a time.
var countable = regexp.MustCompile(`^(parity-|smoke-|queues-|handover-|e2e-(wiring|groups|isolation|hybrid|hybrid-drivers|routers|trunk|kept)$|` +
	`(lab|record|config-oracle|options|corpus|messaging|openflow-golden|openflow-live|ovsdb|conntrack|firewall-peer|rule-mutations|ctlimit|hostile-generator)$|` +
	`(unkind|decisions|histories|crashes|fuzz|mutants|explain|on-call|secrets)$)`)

// apart gives a command namespaces of its own: its hosts' names, addresses and temporary files are nobody else's.
const apart = `unshare --net --mount --propagation private bash -c 'ip link set lo up && mkdir -p /run/netns && mount -t tmpfs tmpfs /run/netns && exec bash -o pipefail -c "$1"' beside "$COMMAND"`

// room is what sockets in namespaces of their own take from the machine; they cannot set it themselves.
const room = "/proc/sys/net/core/rmem_default"

// prepare fetches the modules that tests import, because namespaces of their own reach no proxy, and has sockets hold as much as the tests that count packets
// set where they can.
func prepare(dir string) (restore func(), err error) {
	cmd := exec.Command("go", "mod", "download")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("go mod download: %w\n%s", err, out)
	}
	had, err := os.ReadFile(room)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(room, []byte("134217728"), 0o644); err != nil {
		return nil, err
	}
	return func() { _ = os.WriteFile(room, had, 0o644) }, nil
}

// sideBySide has so many of the list at a time run, and returns the first error. Then nothing more begins.
func sideBySide(list []item, at int, run func(item) error) error {
	var workers sync.WaitGroup
	var mu sync.Mutex
	var first error
	next := func() (it item, ok bool) {
		mu.Lock()
		defer mu.Unlock()
		if first != nil || len(list) == 0 {
			return it, false
		}
		it, list = list[0], list[1:]
		return it, true
	}
	for range at {
		workers.Go(func() {
			for it, ok := next(); ok; it, ok = next() {
				if err := run(it); err != nil {
					mu.Lock()
					if first == nil {
						first = err
					}
					mu.Unlock()
				}
			}
		})
	}
	workers.Wait()
	return first
}

// within says which environment a command has that runs apart.
func within(command, dir string) []string {
	env := os.Environ()
	return append(env[:len(env):len(env)], "COMMAND="+strings.TrimSpace(command), "TMPDIR="+dir)
}
