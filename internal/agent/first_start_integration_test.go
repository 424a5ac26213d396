// SPDX-License-Identifier: Apache-2.0

//go:build integration

package agent

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/observe"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/pipeline"
	"github.com/patchbay-sdn/patchbay/internal/runner"
	"github.com/patchbay-sdn/patchbay/internal/world"
	"github.com/patchbay-sdn/patchbay/lab/vswitch"
	"github.com/patchbay-sdn/patchbay/openflow"
	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// slowDump is a connection over which flows are read so slowly that a break of it finds them being read.
type slowDump struct {
	*openflow.Conn
	began func()
}

// dumpTime is longer than a call of ovs-vsctl takes on a busy machine.
const dumpTime = 2 * time.Second

func (c *slowDump) Flows(ctx context.Context, fl openflow.Filter) ([]openflow.Entry, error) {
	c.began()
	select {
	case <-c.Done(): // what follows says why
	case <-time.After(dumpTime):
	}
	return c.Conn.Flows(ctx, fl)
}

// lateRows writes rows only when the flows of all bridges that exist are being read, so that a reset finds them being read.
type lateRows struct {
	*ovsdb.Client
	ready func() bool
}

func (l *lateRows) CommitAll(ctx context.Context, txs []*ovsdb.Tx) (ovsdb.Result, []error) {
	for end := time.Now().Add(10 * time.Second); !l.ready() && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	return l.Client.CommitAll(ctx, txs)
}

// firstStart runs an agent on a real switch, with a server in memory and nothing plugged in.
type firstStart struct {
	*testing.T
	sw    *vswitch.Switch
	mu    sync.Mutex
	dumps map[string]int // that began, by bridge
	lines []slog.Record
	state Progress
}

func (f *firstStart) Enabled(context.Context, slog.Level) bool { return true }
func (f *firstStart) WithAttrs([]slog.Attr) slog.Handler       { return f }
func (f *firstStart) WithGroup(string) slog.Handler            { return f }
func (f *firstStart) Handle(_ context.Context, r slog.Record) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lines = append(f.lines, r)
	return nil
}

// warnings are the lines of level WARN and above.
func (f *firstStart) warnings() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []string
	for _, r := range f.lines {
		if r.Level >= slog.LevelWarn {
			text := r.Message
			r.Attrs(func(a slog.Attr) bool { text += fmt.Sprintf(" %s=%v", a.Key, a.Value); return true })
			out = append(out, text)
		}
	}
	return out
}

// begun counts the dumps of a bridge that began.
func (f *firstStart) begun(bridge string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.dumps[bridge]
}

func (f *firstStart) complete() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state.Complete
}

func (f *firstStart) vsctl(args ...string) {
	f.Helper()
	if out, err := f.sw.Vsctl(f.Context(), args...); err != nil {
		f.Fatalf("%v: %s", err, out)
	}
}

func (f *firstStart) wait(what string, ok func() bool) {
	f.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			f.Fatalf("waited for %s; warnings: %q", what, f.warnings())
		}
	}
}

func (f *firstStart) link(ctx context.Context, bridge string) <-chan Link {
	from, to := runner.Supervised(func(ctx context.Context, bridge string) (*openflow.Conn, error) {
		return openflow.Dial(ctx, "unix:"+f.sw.MgmtSocket(bridge), openflow.Config{})
	})(ctx, bridge), make(chan Link)
	go func() {
		defer close(to)
		for l := range from {
			if c, ok := l.Conn.(*openflow.Conn); ok {
				l.Conn = &slowDump{c, func() {
					f.mu.Lock()
					defer f.mu.Unlock()
					f.dumps[bridge]++
				}}
			}
			to <- l
		}
	}()
	return to
}

func (f *firstStart) run(there []string) {
	f.Helper()
	life := newLife(0, func() {})
	database, err := ovsdb.New(ovsdb.Config{Endpoint: "unix:" + f.sw.DBSocket()})
	if err != nil {
		f.Fatal(err)
	}
	a, err := New(Config{
		Host: "hv1", ReportInterval: 30 * time.Second, PortsPerReport: 20, Log: slog.New(f), Link: f.link,
		World: world.Config{
			Host: "hv1", IntegrationBridge: "br-int", TunnelBridge: "br-tun", IntPatch: "patch-tun", TunPatch: "patch-int", Physical: map[string]string{"physnet1": "br-ex"},
			LocalIP: netip.MustParseAddr("10.0.0.1"), TunnelTypes: []string{"vxlan"}, L2Population: true,
		},
		Settings: pipeline.Settings{DatapathType: "netdev", MACTableSize: 50000, Controller: "tcp:127.0.0.1:6633", InactivityProbe: 10000, VXLANPort: 4789},
		Notifier: observe.NewNotifier(func(string) string { return "" }, 1),
		Progress: func(p Progress) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.state = p
		},
	}, &lateRows{database, func() bool {
		return !slices.ContainsFunc(there, func(name string) bool { return f.begun(name) == 0 })
	}}, func(func(messaging.Event)) (Broker, error) {
		return &region{life: life, truth: newTruth()}, nil
	})
	if err != nil {
		f.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	f.Cleanup(func() {
		life.crash()
		cancel()
		if err := <-done; err != nil {
			f.Error(err)
		}
	})
}

// On a fresh host ovs-vswitchd closes the connections of a bridge as soon as the agent gives the bridge its protocols, while the
// flows are read for the first time. That is how it should be, and no reason for a warning. When somebody else does the same, it is.
func TestFirstStartWithoutWarnings(t *testing.T) {
	for _, tt := range []struct {
		name  string
		there []string // bridges that somebody has made before
		reset []string // those of which the agent changes protocols
	}{
		{"the bridges of an installation guide", []string{"br-int", "br-ex"}, []string{"br-int", "br-ex"}},
		{"only what has to be there", []string{"br-ex"}, []string{"br-ex"}},
		{"bridges of an agent before", []string{"br-int", "br-ex", "br-tun"}, []string{"br-int", "br-ex", "br-tun"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := &firstStart{T: t, sw: vswitch.New(t, func(c *vswitch.Config) { c.DummyDatapath = true }), dumps: map[string]int{}}
			for _, name := range tt.there {
				f.vsctl("add-br", name, "--", "set", "Bridge", name, "datapath_type=netdev")
			}
			f.run(tt.there)
			f.wait("the agent to be done", f.complete)
			for _, name := range tt.reset {
				if f.begun(name) < 2 {
					t.Errorf("the flows of %s were read once: its connection was not reset, and nothing is shown", name)
				}
			}
			if got := f.warnings(); len(got) > 0 {
				t.Errorf("a clean first start warns: %q", got)
			}

			// Somebody adds protocols that the agent leaves alone. The first time no flows are being read; the second time they are,
			// over the new connection.
			before := f.begun("br-ex")
			f.vsctl("add", "Bridge", "br-ex", "protocols", "OpenFlow15")
			f.wait("br-ex to be read again", func() bool { return f.begun("br-ex") > before })
			f.vsctl("add", "Bridge", "br-ex", "protocols", "OpenFlow12")
			f.wait("br-ex to be read once more", func() bool { return f.begun("br-ex") > before+1 })
			if got := f.warnings(); len(got) != 1 || !strings.HasPrefix(got[0], "flow dump failed, retrying bridge=br-ex") {
				t.Errorf("somebody else has br-ex reset while it is read: %q", got)
			}
			f.wait("the agent to be done again", f.complete)
			if got := slices.DeleteFunc(f.warnings(), func(w string) bool { return strings.HasPrefix(w, "flow dump failed, retrying bridge=br-ex") }); len(got) > 0 {
				t.Errorf("afterwards: %q", got)
			}
		})
	}
}
