// SPDX-License-Identifier: Apache-2.0

//go:build integration

package ovsdb_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/lab/vswitch"
)

func dummy(c *vswitch.Config) { c.DummyDatapath = true }

func unix(sw *vswitch.Switch) ovsdb.Config { return ovsdb.Config{Endpoint: "unix:" + sw.DBSocket()} }

func vsctl(t testing.TB, sw *vswitch.Switch, args ...string) string {
	t.Helper()
	out, err := sw.Vsctl(context.Background(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

func portName(i int) string { return fmt.Sprintf("tap%d", i) }

func addPorts(n int) func(*ovsdb.View, *ovsdb.Tx) {
	return func(_ *ovsdb.View, tx *ovsdb.Tx) {
		for i := range n {
			tx.EnsurePort(ovsdb.PortSpec{Bridge: "br-int", Name: portName(i), Type: "internal", ExternalIDs: map[string]string{
				"iface-id": fmt.Sprintf("7d6b3c1e-0000-4000-8000-%012d", i), "attached-mac": fmt.Sprintf("fa:16:3e:00:%02x:%02x", i>>8, i&255),
			}})
		}
	}
}

func deletePorts(n int) func(*ovsdb.View, *ovsdb.Tx) {
	return func(v *ovsdb.View, tx *ovsdb.Tx) {
		for i := range n {
			if p := v.PortByName(portName(i)); p != nil {
				tx.DeletePort(p.UUID)
			}
		}
	}
}

func withBridge(t testing.TB, f *follower) {
	t.Helper()
	f.wait("the initial batch", func(v *ovsdb.View) bool { return v.Root() != nil })
	f.commit(func(_ *ovsdb.View, tx *ovsdb.Tx) {
		tx.EnsureBridge(ovsdb.BridgeSpec{
			Name: "br-int", DatapathType: "netdev", FailMode: "secure", Protocols: []string{"OpenFlow13", "OpenFlow14"},
			OtherConfig: map[string]string{"mac-table-size": "50000"},
		})
		tx.WaitApplied()
	})
}

func countPorts(v *ovsdb.View) (ports, interfaces, wired int) {
	for p := range v.Ports() {
		if strings.HasPrefix(p.Name, "tap") && v.BridgeOf(p.UUID) != nil {
			ports++
		}
	}
	for i := range v.Interfaces() {
		if strings.HasPrefix(i.Name, "tap") && v.PortOf(i.UUID) != nil {
			interfaces++
			if i.OFPort != nil && *i.OFPort > 0 {
				wired++
			}
		}
	}
	return ports, interfaces, wired
}

func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func heap() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc) / (1 << 20)
}

// 1,000 ports in one transaction and out again: each row comes once, gets its ofport, and goes once (see follower).
func TestThousandPorts(t *testing.T) {
	const n = 1000
	sw := vswitch.New(t, dummy)
	before := heap()
	f := follow(t, unix(sw))
	withBridge(t, f)

	start, cpu0, seq0 := time.Now(), cpu(), f.seq()
	f.commit(addPorts(n))
	t.Logf("%d ports in one transaction: seen after %v", n, time.Since(start).Round(time.Millisecond))
	f.wait("1,000 ofports", func(v *ovsdb.View) bool { _, _, wired := countPorts(v); return wired == n })
	batches := f.since(seq0)
	inserted := map[string]int{}
	for _, b := range batches {
		for _, d := range b.Interfaces {
			if d.Old == nil {
				inserted[d.New.Name]++
			}
		}
	}
	if len(inserted) != n {
		t.Fatalf("%d of %d interfaces inserted", len(inserted), n)
	}
	if first := batches[0]; len(first.Ports) != n || len(first.Interfaces) != n || len(first.Bridges) != 1 {
		t.Fatalf("the transaction came in parts: first batch has %d ports, %d interfaces, %d bridges",
			len(first.Ports), len(first.Interfaces), len(first.Bridges))
	}
	t.Logf("all wired after %v in %d batches, our CPU %v (building, commit, decode, checks of the test)",
		time.Since(start).Round(time.Millisecond), len(batches), (cpu() - cpu0).Round(time.Millisecond))
	f.forget()
	t.Logf("heap with %d ports: %.1f MiB more than before (client's view and reader's view)", n, heap()-before)

	start, cpu0, seq0 = time.Now(), cpu(), f.seq()
	f.commit(deletePorts(n))
	f.wait("no ports", func(v *ovsdb.View) bool { p, i, _ := countPorts(v); return p == 0 && i == 0 })
	t.Logf("removed after %v, our CPU %v", time.Since(start).Round(time.Millisecond), (cpu() - cpu0).Round(time.Millisecond))
	if first := f.since(seq0)[0]; len(first.Ports) != n || len(first.Interfaces) != n {
		t.Fatalf("the removal came in parts: %d ports, %d interfaces", len(first.Ports), len(first.Interfaces))
	}
	if out := vsctl(t, sw, "list-ports", "br-int"); out != "" {
		t.Fatalf("ports left: %.100s", out)
	}
}

// The same while the database is restarted, killed and compacted again and again. What is checked on the way is in
// follower; at the end the view must equal the database.
func TestThousandPortsWithFaults(t *testing.T) {
	const n = 1000
	sw := vswitch.New(t, dummy)
	f := follow(t, unix(sw))
	withBridge(t, f)

	// Short pauses hit transactions in the middle; at the last one the database is left alone until one came through.
	pauses := []time.Duration{50 * time.Millisecond, 300 * time.Millisecond, 800 * time.Millisecond, 10 * time.Second}
	stop, progress := make(chan struct{}), make(chan struct{})
	faults := map[string]int{}
	var wg sync.WaitGroup
	end := sync.OnceFunc(func() { close(stop); wg.Wait() })
	defer end() // also when the test fails: a fault after the switch was removed would start it again
	wg.Go(func() {
		ctx := context.Background()
		for i := 0; ; i++ {
			var err error
			switch i % 3 {
			case 0:
				faults["compact"]++
				err = sw.CompactDB(ctx)
			case 1:
				faults["restart"]++
				err = errors.Join(sw.StopDB(ctx), sw.StartDB(ctx))
			case 2:
				faults["kill"]++
				err = errors.Join(sw.KillDB(ctx), sw.StartDB(ctx))
			}
			if err != nil {
				t.Errorf("fault %d: %v", i, err)
			}
			through := progress
			if i%len(pauses) != len(pauses)-1 {
				through = nil
			}
			select {
			case <-stop:
				return
			case <-through:
			case <-time.After(pauses[i%len(pauses)]):
			}
		}
	})
	outcomes := map[string]int{}
	attempt := func(want int, build func(*ovsdb.View, *ovsdb.Tx)) {
		t.Helper()
		last := ""
		for deadline := time.Now().Add(60 * time.Second); ; {
			f.mu.Lock()
			have, _, _ := countPorts(f.view)
			f.mu.Unlock()
			if have == want {
				if last == "disconnected" {
					outcomes["committed, answer lost"]++
				}
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%d ports, want %d: %v", have, want, outcomes)
			}
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			r, err := f.client.Commit(ctx, f.tx(build))
			cancel()
			switch {
			case err == nil:
				last = "ok"
				f.wait("own changes", func(v *ovsdb.View) bool { return v.Seq() >= r.Seq })
			case errors.Is(err, ovsdb.ErrDisconnected):
				last = "disconnected"
			case errors.Is(err, ovsdb.ErrConflict):
				last = "conflict" // decided on the view of before the reconnect
			default:
				t.Fatalf("commit: %v", err)
			}
			outcomes[last]++
			if last == "ok" {
				select {
				case progress <- struct{}{}:
				default:
				}
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	for range 2 {
		attempt(n, addPorts(n))
		attempt(0, deletePorts(n))
	}
	attempt(n, addPorts(n))
	end()
	f.wait("all wired", func(v *ovsdb.View) bool { _, _, wired := countPorts(v); return wired == n })
	kinds := map[string]int{}
	for _, b := range f.since(0) {
		kinds[b.Kind.String()]++
	}
	t.Logf("faults %v, commits %v, batches %v", faults, outcomes, kinds)
	if kinds["reconnected"] == 0 {
		t.Error("no reconnect was seen")
	}
	sameAsFresh(t, f, sw)
}

// sameAsFresh compares the view with that of a client that just connected.
func sameAsFresh(t *testing.T, f *follower, sw *vswitch.Switch) {
	t.Helper()
	g := follow(t, unix(sw))
	g.wait("the initial batch", func(v *ovsdb.View) bool { return v.Root() != nil })
	deadline := time.Now().Add(10 * time.Second)
	for {
		f.mu.Lock()
		g.mu.Lock()
		diff := compareRows(f.rows, g.rows)
		g.mu.Unlock()
		f.mu.Unlock()
		if diff == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the view differs from the database: %s", diff)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func compareRows(a, b map[ovsdb.UUID]any) string {
	for id := range maps.Keys(a) {
		if b[id] == nil {
			return fmt.Sprintf("only in the first: %+v", a[id])
		}
		if fmt.Sprintf("%+v", deref(a[id])) != fmt.Sprintf("%+v", deref(b[id])) {
			return fmt.Sprintf("%+v and %+v", a[id], b[id])
		}
	}
	if len(a) != len(b) {
		return fmt.Sprintf("%d and %d rows", len(a), len(b))
	}
	return ""
}

func deref(row any) any {
	number := func(n *int) int {
		if n == nil {
			return -1
		}
		return *n
	}
	switch r := row.(type) {
	case *ovsdb.Interface:
		c := *r
		c.OFPort, c.MTU = nil, nil
		return fmt.Sprintf("%+v %d %d", c, number(r.OFPort), number(r.MTU))
	case *ovsdb.Port:
		c := *r
		c.Tag = nil
		return fmt.Sprintf("%+v %d", c, number(r.Tag))
	}
	return row
}
