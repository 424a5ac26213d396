// SPDX-License-Identifier: Apache-2.0

//go:build integration

package forwarding

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/netlink/netlinktest"
	"github.com/patchbay-sdn/patchbay/openflow"
)

// What the kernel has is read, changed entry by entry, and is what bridge(8) shows. Multicast entries and those of others stay.
func TestTables(t *testing.T) {
	ns := netlinktest.Namespace(t, "fdb")
	netlinktest.Run(t, "ip", "-n", ns, "link", "add", "pf0", "type", "veth", "peer", "name", "pf1")
	netlinktest.Run(t, "ip", "-n", ns, "link", "set", "pf0", "up")
	bridge := func(args ...string) string {
		return netlinktest.Run(t, "bridge", append([]string{"-n", ns}, args...)...)
	}
	bridge("fdb", "add", "02:00:00:00:00:99", "dev", "pf0", "self", "permanent")
	bridge("fdb", "add", "01:00:5e:00:00:05", "dev", "pf0", "self", "permanent")
	shown := func(device string) (out []string) {
		for line := range strings.Lines(bridge("fdb", "show", "dev", device)) {
			out = append(out, strings.TrimSpace(line))
		}
		slices.Sort(out)
		return out
	}
	one, two, other := openflow.MAC{0xfa, 0x16, 0x3e, 0, 0, 1}, openflow.MAC{0xfa, 0x16, 0x3e, 0, 0, 2}, openflow.MAC{2, 0, 0, 0, 0, 0x99}
	foreign := shown("pf0")
	if err := netlinktest.In(ns, func() {
		ctx, host := t.Context(), Host{}
		tables, err := host.Read(ctx, []string{"pf0", "pf1", "none"})
		if err != nil || len(tables) != 2 || !slices.Equal(tables["pf0"], []openflow.MAC{other}) || len(tables["pf1"]) != 0 {
			t.Errorf("at first: %v, %v", tables, err)
		}
		add := Changes{Add: []Entry{{"pf0", one}, {"pf0", two}, {"pf1", one}}}
		for range 2 { // what is there already is no failure
			if err := host.Change(ctx, add); err != nil {
				t.Errorf("adding: %v", err)
			}
		}
		if tables, err = host.Read(ctx, []string{"pf0"}); err != nil || !tables.Has(Entry{"pf0", one}) || !tables.Has(Entry{"pf0", two}) || len(tables["pf0"]) != 3 {
			t.Errorf("after adding: %v, %v", tables, err)
		}
		for range 2 {
			if err := host.Change(ctx, Changes{Delete: []Entry{{"pf0", two}, {"none", two}}}); err != nil {
				t.Errorf("deleting: %v", err)
			}
		}
		if err := host.Change(ctx, Changes{Add: []Entry{{"none", one}, {"pf1", two}}}); err == nil || !strings.Contains(err.Error(), "device none does not exist") {
			t.Errorf("adding to a device that does not exist: %v", err)
		}
	}); err != nil {
		t.Fatal(err)
	}
	if got := shown("pf0"); !slices.Equal(got, slices.Sorted(slices.Values(append(foreign, "fa:16:3e:00:00:01 self permanent")))) {
		t.Errorf("pf0 has %q, had %q", got, foreign)
	}
	if got := shown("pf1"); !slices.Contains(got, "fa:16:3e:00:00:01 self permanent") || !slices.Contains(got, "fa:16:3e:00:00:02 self permanent") {
		t.Errorf("pf1 has %q", got)
	}
}

// A device that comes, changes or goes is told by its name; others are not.
func TestWatch(t *testing.T) {
	ns := netlinktest.Namespace(t, "fdbw")
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	told, ended := make(chan string, 1000), make(chan error, 1)
	go func() {
		if err := netlinktest.In(ns, func() { ended <- Host{}.Watch(ctx, []string{"pf0"}, func(device string) { told <- device }) }); err != nil {
			ended <- err
		}
	}()
	next := func(want string) {
		t.Helper()
		for {
			select {
			case got := <-told:
				if got != want {
					t.Errorf("told of %q, want %q", got, want)
				}
			case err := <-ended:
				t.Fatalf("ended: %v", err)
			case <-ctx.Done():
				t.Fatal("not told")
			}
			if len(told) == 0 {
				return
			}
		}
	}
	next("") // what happened before
	netlinktest.Run(t, "ip", "-n", ns, "link", "add", "pf0", "type", "veth", "peer", "name", "pf1")
	next("pf0")
	netlinktest.Run(t, "ip", "-n", ns, "link", "set", "pf0", "up")
	next("pf0")
	netlinktest.Run(t, "ip", "-n", ns, "link", "del", "pf1")
	next("pf0")
	cancel()
	if err := <-ended; err == nil {
		t.Error("ended without a reason")
	}
}
