// SPDX-License-Identifier: Apache-2.0

package openflow_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/patchbay-sdn/patchbay/openflow"
	"github.com/patchbay-sdn/patchbay/openflow/openflowtest"
)

// fakeSwitch is the switch in memory, at a socket.
type fakeSwitch struct {
	*openflowtest.Switch
	target string
}

func newFake(t *testing.T, options ...func(*openflowtest.Switch)) *fakeSwitch {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	f := &fakeSwitch{openflowtest.New(), "unix:" + l.Addr().String()}
	for _, o := range options {
		o(f.Switch)
	}
	accepted := make(chan struct{})
	go func() { defer close(accepted); f.Accept(l) }()
	t.Cleanup(func() {
		_ = l.Close()
		<-accepted
		f.Drop()
		f.Wait()
	})
	return f
}

func dialFake(t *testing.T, f *fakeSwitch, cfg Config) *Conn {
	t.Helper()
	c, err := Dial(t.Context(), f.target, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestHandshake(t *testing.T) {
	for _, tc := range []struct {
		name   string
		bitmap uint32
		ours   []Version
		want   Version
	}{
		{"both", 1<<4 | 1<<5, nil, OpenFlow14},
		{"switch has 1.3", 1<<1 | 1<<4, nil, OpenFlow13},
		{"we want 1.3", 1<<4 | 1<<5, []Version{OpenFlow13}, OpenFlow13},
		{"no bitmap", 0, nil, OpenFlow14}, // the fake's header says 1.4
		{"none", 1 << 1, nil, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFake(t, func(s *openflowtest.Switch) { s.Hello = tc.bitmap })
			c, err := Dial(t.Context(), f.target, Config{Versions: tc.ours})
			if tc.want == 0 {
				if err == nil || !strings.Contains(err.Error(), "speaks none of") {
					t.Fatal(err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if c.Version() != tc.want || c.Features().DatapathID != 7 {
				t.Errorf("%v %+v", c.Version(), c.Features())
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
			if !errors.Is(c.Err(), ErrClosed) {
				t.Error(c.Err())
			}
			wantClosed := &ConnError{}
			if err := c.Barrier(t.Context()); !errors.As(err, &wantClosed) || !errors.Is(err, ErrClosed) {
				t.Error(err)
			}
		})
	}
}

// A peer that is no switch, or a silent one, does not hold us.
func TestHandshakeFails(t *testing.T) {
	for name, peer := range map[string]func(net.Conn){
		"closes":  func(c net.Conn) { _ = c.Close() },
		"silent":  func(net.Conn) {},
		"garbage": func(c net.Conn) { _, _ = c.Write([]byte("HTTP/1.1 400 Bad Request\r\n")) },
		"short":   func(c net.Conn) { _, _ = c.Write([]byte{5, 0, 0, 1, 0, 0, 0, 0}) },
		"error":   func(c net.Conn) { _, _ = c.Write([]byte{5, 1, 0, 12, 0, 0, 0, 0, 0, 0, 0, 0}) },
	} {
		t.Run(name, func(t *testing.T) {
			ours, theirs := net.Pipe()
			defer func() { _ = theirs.Close() }()
			go func() {
				_, _ = theirs.Read(make([]byte, 100)) // our hello
				peer(theirs)
			}()
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			if c, err := NewConn(ctx, ours, Config{}); err == nil {
				t.Errorf("connected: %v", c.Version())
			}
		})
	}
	for _, target := range []string{"", "udp:127.0.0.1:1", "unix:", "unix:/does/not/exist", "tcp:"} {
		if _, err := Dial(t.Context(), target, Config{}); err == nil {
			t.Errorf("connected to %q", target)
		}
	}
}

func TestMgmtSocket(t *testing.T) {
	t.Setenv("OVS_RUNDIR", "/somewhere")
	if got := MgmtSocket("br-int"); got != "unix:/somewhere/br-int.mgmt" {
		t.Error(got)
	}
	t.Setenv("OVS_RUNDIR", "")
	if got := MgmtSocket("br-int"); got != "unix:/var/run/openvswitch/br-int.mgmt" {
		t.Error(got)
	}
}

func testEntries(t *testing.T, n int) []Entry {
	t.Helper()
	list := make([]Entry, n)
	for i := range list {
		f := Flow{Table: 1, Priority: uint16(i), Match: Match{Num(Reg0, uint64(i))}, Actions: []Action{Output(i + 1)}}
		var err error
		if list[i], err = f.Entry(); err != nil {
			t.Fatal(err)
		}
	}
	return list
}

func TestCommit(t *testing.T) {
	f := newFake(t)
	c := dialFake(t, f, Config{})
	entries := testEntries(t, 95)
	if err := c.Commit(t.Context(), Adds(entries)); err != nil {
		t.Fatal(err)
	}
	if err := c.Commit(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	got, err := c.Flows(t.Context(), Filter{Table: AllTables})
	if err != nil || len(got) != 95 {
		t.Fatalf("%d flows: %v", len(got), err)
	}
	badTable, err := (&Flow{Table: 254, Match: Match{FromPort(7)}}).Entry()
	if err != nil {
		t.Fatal(err)
	}
	badMeter, err := (&Flow{Table: 9, Actions: []Action{Meter(1)}}).Entry()
	if err != nil {
		t.Fatal(err)
	}
	for name, bad := range map[string]Entry{"OFPFMFC_BAD_TABLE_ID": badTable, "OFPMMFC_INVALID_METER": badMeter} {
		err = c.Commit(t.Context(), append(Adds(entries[:3]), AddFlow(bad), DeleteFlow(entries[0].Key())))
		be := &BundleError{}
		if !errors.As(err, &be) || !IsError(err, name) || len(be.Failures) != 1 || be.Failures[0].Index != 3 || be.Applied != 0 {
			t.Fatalf("%v", err)
		}
		if len(f.Flows()) != 95 {
			t.Fatalf("%d flows", len(f.Flows()))
		}
	}
	// Something that cannot be encoded.
	err = c.Commit(t.Context(), []Message{AddFlow(entries[0]), GroupMod{Group: GroupDesc{Buckets: []Bucket{{Actions: []Action{Meter(1)}}}}}})
	if err == nil || !strings.Contains(err.Error(), "cannot stand inside") {
		t.Error(err)
	}
	if err := c.Commit(t.Context(), []Message{AddFlow(Entry{})}); !errors.Is(err, ErrMalformed) {
		t.Error(err)
	}
	if err := c.Send(t.Context(), []Message{AddFlow(badMeter), DeleteFlow(entries[0].Key())}); !IsError(err, "OFPMMFC_INVALID_METER") {
		t.Error(err)
	}
	if len(f.Flows()) != 94 {
		t.Errorf("%d flows", len(f.Flows()))
	}
}

// Errors about a bundle itself are no *ConnError and blame no message.
func TestCommitRefused(t *testing.T) {
	f := newFake(t)
	c := dialFake(t, f, Config{})
	f.Inject(func(k *openflowtest.Conn, m openflowtest.Message) bool {
		if m.Type == openflowtest.TypeBundleControl || m.Type == openflowtest.TypeBundleAdd {
			k.SendError(m.XID, &Error{Type: 1, Code: 1})
			return true
		}
		return false
	})
	err := c.Commit(t.Context(), Adds(testEntries(t, 3)))
	be := &BundleError{}
	if !errors.As(err, &be) || !IsError(err, "OFPBRC_BAD_TYPE") || len(be.Failures) != 0 {
		t.Errorf("%v", err)
	}
}

func TestDump(t *testing.T) {
	f := newFake(t)
	c := dialFake(t, f, Config{})
	if err := c.Commit(t.Context(), Adds(testEntries(t, 105))); err != nil {
		t.Fatal(err)
	}
	// The callback may use the connection, and may end the dump.
	stop := errors.New("enough")
	n := 0
	err := c.DumpFlows(t.Context(), Filter{Table: AllTables}, func(*FlowStat) error {
		if n++; n == 15 {
			return stop
		}
		return c.Barrier(t.Context())
	})
	if !errors.Is(err, stop) || n != 15 {
		t.Fatalf("%d: %v", n, err)
	}
	a, err := c.Aggregate(t.Context(), Filter{Table: AllTables})
	if err != nil || a.Flows != 105 {
		t.Fatalf("%+v %v", a, err)
	}
	// A dump that never ends does with its context.
	f.Inject(func(k *openflowtest.Conn, m openflowtest.Message) bool {
		if m.Type != openflowtest.TypeMultipart {
			return false
		}
		k.Send(openflowtest.TypeMultipartReply, m.XID, append([]byte{m.Body[0], m.Body[1], 0, 1, 0, 0, 0, 0}, openflowtest.EncodeStat(testEntries(t, 1)[0])...)...)
		return true
	})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := c.Flows(ctx, Filter{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	// Another answer than the one asked for.
	f.Inject(func(k *openflowtest.Conn, m openflowtest.Message) bool {
		if m.Type == openflowtest.TypeMultipart {
			k.Send(openflowtest.TypeMultipartReply, m.XID, 0, 99, 0, 0, 0, 0, 0, 0)
			return true
		}
		return false
	})
	if _, err := c.Flows(t.Context(), Filter{}); !errors.Is(err, ErrMalformed) {
		t.Error(err)
	}
	f.Inject(nil)
	if err := c.Barrier(t.Context()); err != nil {
		t.Errorf("the connection did not survive: %v", err)
	}
}

// A connection that breaks, or brings nonsense, fails who waits and tells why.
func TestConnectionEnds(t *testing.T) {
	for name, act := range map[string]func(k *openflowtest.Conn){
		"closed":   func(k *openflowtest.Conn) { k.Close() },
		"length 3": func(k *openflowtest.Conn) { k.Write([]byte{5, 21, 0, 3, 0, 0, 0, 0}) },
		"bad packet-in": func(k *openflowtest.Conn) {
			k.Send(openflowtest.TypePacketIn, 0, 1)
		},
		"half a message": func(k *openflowtest.Conn) {
			k.Write([]byte{5, 21, 0, 99, 0, 0, 0, 0, 1, 2, 3})
			k.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			c := dialFake(t, f, Config{})
			f.Inject(func(k *openflowtest.Conn, m openflowtest.Message) bool {
				if m.Type == openflowtest.TypeBarrierRequest {
					act(k)
					return true
				}
				return false
			})
			lost := &ConnError{}
			if err := c.Barrier(t.Context()); !errors.As(err, &lost) {
				t.Fatal(err)
			}
			<-c.Done()
			if c.Err() == nil {
				t.Error("no reason")
			}
			if _, ok := <-c.PacketIns(); ok {
				t.Error("packet-ins go on")
			}
			if _, ok := <-c.Events(); ok {
				t.Error("events go on")
			}
		})
	}
}

// Echo requests are answered while a bundle is being written to a switch that
// does not read.
func TestEchoWhileWriting(t *testing.T) {
	f := newFake(t)
	c := dialFake(t, f, Config{})
	release, echoed := make(chan struct{}), make(chan struct{}, 1)
	var stopped atomic.Bool
	f.Inject(func(k *openflowtest.Conn, m openflowtest.Message) bool {
		switch {
		case m.Type == openflowtest.TypeBundleAdd && stopped.CompareAndSwap(false, true):
			for range 3 {
				k.Send(openflowtest.TypeEchoRequest, 77, []byte("are you there")...)
			}
			<-release
		case m.Type == openflowtest.TypeEchoReply && m.XID == 77:
			select {
			case echoed <- struct{}{}:
			default:
			}
		}
		return false
	})
	done := make(chan error, 1)
	go func() { done <- c.Commit(context.Background(), Adds(testEntries(t, 20000))) }()
	time.Sleep(50 * time.Millisecond)
	close(release)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	select {
	case <-echoed:
	case <-time.After(5 * time.Second):
		t.Error("no answer to the echo request")
	}
	if len(f.Flows()) != 20000 {
		t.Errorf("%d flows", len(f.Flows()))
	}
}

// Many goroutines share a connection.
func TestConcurrentUse(t *testing.T) {
	f := newFake(t)
	c := dialFake(t, f, Config{})
	errs := make(chan error, 16)
	for i := range 16 {
		go func() {
			for j := range 20 {
				e, err := (&Flow{Table: uint8(i), Priority: uint16(j)}).Entry()
				if err == nil {
					err = c.Commit(t.Context(), []Message{AddFlow(e)})
				}
				if err == nil {
					_, err = c.Flows(t.Context(), Filter{Table: AllTables})
				}
				if err == nil {
					err = c.Echo(t.Context())
				}
				if err != nil {
					errs <- err
					return
				}
			}
			errs <- nil
		}()
	}
	for range 16 {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	if len(f.Flows()) != 320 {
		t.Errorf("%d flows", len(f.Flows()))
	}
}

func TestSupervisor(t *testing.T) {
	f := newFake(t)
	ctx, cancel := context.WithCancel(t.Context())
	refuse := atomic.Bool{}
	refuse.Store(true)
	var attempts atomic.Int32
	s := &Supervisor{MinPause: time.Millisecond, MaxPause: 5 * time.Millisecond, Dial: func(ctx context.Context) (*Conn, error) {
		if attempts.Add(1); refuse.Load() {
			return nil, fmt.Errorf("attempt %d", attempts.Load())
		}
		return Dial(ctx, f.target, Config{})
	}}
	links := s.Start(ctx)
	l := <-links
	if l.Conn != nil || l.Err == nil {
		t.Fatalf("%+v", l)
	}
	// Further failures are not told again.
	for attempts.Load() < 5 {
		time.Sleep(time.Millisecond)
	}
	if len(links) != 0 {
		t.Fatalf("%+v", <-links)
	}
	refuse.Store(false)
	first := <-links
	if first.Conn == nil {
		t.Fatalf("%+v", first)
	}
	// Break and reconnection while nobody reads are one event.
	for range 3 {
		f.Drop()
		time.Sleep(30 * time.Millisecond)
	}
	var last Link
	deadline := time.After(10 * time.Second)
	for last.Conn == nil {
		select {
		case last = <-links:
		case <-deadline:
			t.Fatal("no connection")
		}
	}
	if last.Conn == first.Conn || first.Conn.Err() == nil {
		t.Error("the same connection")
	}
	if err := last.Conn.Barrier(ctx); err != nil {
		t.Error(err)
	}
	cancel()
	for range links {
	}
	if last.Conn.Err() == nil {
		t.Error("the connection outlived its supervisor")
	}
}

// Reports that nobody reads in time are dropped, and that is told once, in their place; those that follow come again.
func TestEventsLost(t *testing.T) {
	f := newFake(t)
	c := dialFake(t, f, Config{Events: 3})
	if err := c.Monitor(t.Context(), 1, Filter{Table: AllTables}, false); err != nil {
		t.Fatal(err)
	}
	change := func(entries []Entry) {
		t.Helper()
		for _, e := range entries {
			if err := f.Apply(AddFlow(e)); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.Barrier(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	next := func() Event {
		select {
		case e := <-c.Events():
			return e
		case <-time.After(5 * time.Second):
			return nil
		}
	}
	entries := testEntries(t, 20)
	change(entries)
	for round := range 2 {
		for i := range 3 {
			u, ok := next().(*MonitorUpdate)
			if want := entries[i]; !ok || len(u.Updates) != 1 || u.Updates[0].Entry != want {
				t.Fatalf("round %d: event %d is %+v, want %s", round, i, u, want)
			}
		}
		if e := next(); e != (EventsLost{}) {
			t.Fatalf("round %d: %+v, want that some were lost", round, e)
		}
		if n := len(c.Events()); n != 0 {
			t.Errorf("round %d: %d events more", round, n)
		}
		entries = entries[5:]
		change(entries)
	}
}
