// SPDX-License-Identifier: Apache-2.0

package ovsdb_test

import (
	"context"
	"fmt"
	"reflect"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// follower reads a client's stream like the agent's loop would, and checks on the way that every change is delivered
// exactly once and in order: a row comes once, each change starts from the row as it was delivered last, a row goes once.
type follower struct {
	t      testing.TB
	client *ovsdb.Client
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu      sync.Mutex
	view    *ovsdb.View
	rows    map[ovsdb.UUID]any
	batches []*ovsdb.Batch
	errs    []error
	moved   chan struct{}
}

func follow(t testing.TB, cfg ovsdb.Config) *follower {
	t.Helper()
	c, err := ovsdb.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return followClient(t, c)
}

func followClient(t testing.TB, c *ovsdb.Client) *follower {
	ctx, cancel := context.WithCancel(context.Background())
	f := &follower{
		t: t, client: c, cancel: cancel, view: ovsdb.NewView(), rows: map[ovsdb.UUID]any{}, moved: make(chan struct{}),
	}
	f.wg.Go(func() { c.Run(ctx) })
	f.wg.Go(f.read)
	t.Cleanup(f.stop)
	return f
}

func (f *follower) stop() {
	f.cancel()
	f.wg.Wait()
	for _, err := range f.errs {
		f.t.Errorf("stream: %v", err)
	}
}

func (f *follower) read() {
	for b := range f.client.Changes() {
		f.mu.Lock()
		if want := f.view.Seq() + 1; b.Seq != want {
			f.errs = append(f.errs, fmt.Errorf("batch %d, want %d", b.Seq, want))
		}
		if (b.Kind == ovsdb.Initial) != (len(f.rows) == 0 && b.Kind != ovsdb.Disconnected) {
			f.errs = append(f.errs, fmt.Errorf("batch %d is %v with %d rows known", b.Seq, b.Kind, len(f.rows)))
		}
		check(f, b.OpenVSwitch, func(r *ovsdb.OpenVSwitch) ovsdb.UUID { return r.UUID })
		check(f, b.Bridges, func(r *ovsdb.Bridge) ovsdb.UUID { return r.UUID })
		check(f, b.Ports, func(r *ovsdb.Port) ovsdb.UUID { return r.UUID })
		check(f, b.Interfaces, func(r *ovsdb.Interface) ovsdb.UUID { return r.UUID })
		check(f, b.Controllers, func(r *ovsdb.Controller) ovsdb.UUID { return r.UUID })
		check(f, b.Managers, func(r *ovsdb.Manager) ovsdb.UUID { return r.UUID })
		check(f, b.QoS, func(r *ovsdb.QoS) ovsdb.UUID { return r.UUID })
		check(f, b.Queues, func(r *ovsdb.Queue) ovsdb.UUID { return r.UUID })
		check(f, b.Mirrors, func(r *ovsdb.Mirror) ovsdb.UUID { return r.UUID })
		f.view.Apply(b)
		f.batches = append(f.batches, b)
		close(f.moved)
		f.moved = make(chan struct{})
		f.mu.Unlock()
	}
}

func check[T any](f *follower, diffs []ovsdb.Diff[T], id func(*T) ovsdb.UUID) {
	fail := func(format string, args ...any) { f.errs = append(f.errs, fmt.Errorf(format, args...)) }
	seenNew := false
	for _, d := range diffs {
		switch {
		case d.Old == nil && d.New == nil:
			fail("empty change")
		case d.Old == nil:
			if f.rows[id(d.New)] != nil {
				fail("%T %s inserted twice", d.New, id(d.New))
			}
			f.rows[id(d.New)] = d.New
			seenNew = true
		case d.New == nil:
			if f.rows[id(d.Old)] != any(d.Old) {
				fail("%T %s deleted from a row that was not delivered", d.Old, id(d.Old))
			}
			delete(f.rows, id(d.Old))
			if seenNew {
				fail("%T %s deleted after an insert of the same batch", d.Old, id(d.Old))
			}
		default:
			if f.rows[id(d.Old)] != any(d.Old) {
				fail("%T %s modified from a row that was not delivered", d.Old, id(d.Old))
			}
			if reflect.DeepEqual(d.Old, d.New) {
				fail("%T %s modified without a change: %+v", d.Old, id(d.Old), d.New)
			}
			f.rows[id(d.New)] = d.New
			seenNew = true
		}
	}
}

// wait waits until the condition holds on the view.
func (f *follower) wait(what string, condition func(*ovsdb.View) bool) {
	f.t.Helper()
	deadline := time.NewTimer(30 * time.Second)
	defer deadline.Stop()
	for {
		f.mu.Lock()
		ok, moved := condition(f.view), f.moved
		f.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-moved:
		case <-deadline.C:
			f.t.Fatalf("waiting for %s: timed out", what)
		}
	}
}

// tx builds a transaction on the view of now.
func (f *follower) tx(build func(*ovsdb.View, *ovsdb.Tx)) *ovsdb.Tx {
	f.mu.Lock()
	defer f.mu.Unlock()
	tx := ovsdb.NewTx(f.view)
	build(f.view, tx)
	return tx
}

// commit commits and waits until the view contains the result.
func (f *follower) commit(build func(*ovsdb.View, *ovsdb.Tx)) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	r, err := f.client.Commit(ctx, f.tx(build))
	if err != nil {
		f.t.Fatal(err)
	}
	f.wait("own changes", func(v *ovsdb.View) bool { return v.Seq() >= r.Seq })
}

// since returns the batches after seq.
func (f *follower) since(seq uint64) []*ovsdb.Batch {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]*ovsdb.Batch(nil), f.batches[seq:]...)
}

// forget lets go of the batches delivered so far, so that they do not count as memory in use.
func (f *follower) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.batches)
}

func (f *follower) seq() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.view.Seq()
}
