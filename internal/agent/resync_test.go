// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/effect"
	"github.com/patchbay-sdn/patchbay/internal/fake"
	"github.com/patchbay-sdn/patchbay/internal/gate"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/observe"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/pace"
	"github.com/patchbay-sdn/patchbay/internal/pipeline"
	"github.com/patchbay-sdn/patchbay/internal/runner"
	"github.com/patchbay-sdn/patchbay/internal/world"
	"github.com/patchbay-sdn/patchbay/openflow"
	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// tally counts calls by what they ask and by the tenth of a second in which they come.
type tally struct {
	mu    sync.Mutex
	began time.Time
	kinds map[string]int
	at    map[int]int
	now   int // on their way
	most  int
}

func (t *tally) reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.began, t.kinds, t.at, t.most = time.Now(), map[string]int{}, map[int]int{}, 0
}

// total is the number of calls, busiest that of the tenth of a second with the most.
func (t *tally) total() (total, busiest int) {
	for _, n := range t.at {
		total += n
		busiest = max(busiest, n)
	}
	return total, busiest
}

// counted is a server that takes its time for each call.
type counted struct {
	*cloud
	tally *tally
	took  time.Duration
}

func (c *counted) Call(ctx context.Context, t messaging.Target, method string, args, result any) error {
	all, _ := args.(map[string]any)
	filter, _ := all["filter_kwargs"].(map[string]any)
	what := method
	if method == "bulk_pull" {
		what = fmt.Sprint(all["resource_type"])
		if filter["security_group_ids"] != nil {
			what = "members"
		}
	}
	if method == "report_state" {
		return c.cloud.Call(ctx, t, method, args, result)
	}
	c.tally.mu.Lock()
	c.tally.kinds[what]++
	c.tally.at[int(time.Since(c.tally.began)/(100*time.Millisecond))]++
	c.tally.now++
	c.tally.most = max(c.tally.most, c.tally.now)
	c.tally.mu.Unlock()
	defer func() {
		c.tally.mu.Lock()
		c.tally.now--
		c.tally.mu.Unlock()
	}()
	if err := sleep(ctx, c.took); err != nil {
		return err
	}
	return c.cloud.Call(ctx, t, method, args, result)
}

// A gap on a host with 250 ports: a handful of questions, none of them about what was never heard of, in little more than
// the time over which hosts spread.
func TestOneHostAfterAGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		count := &tally{kinds: map[string]int{}, at: map[int]int{}, began: time.Now()}
		c := &counted{cloud: &cloud{}, tally: count, took: 50 * time.Millisecond}
		a, sw, batch := filtering(t, c.cloud, nil, 250, c)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- a.Run(ctx) }()
		sw.changes <- batch
		wait(time.Minute)
		for what, gap := range map[string]func(){
			"one gap": func() { a.inbox.put(effect.Broker{Event: messaging.Gap{Queue: "q"}}) },
			"three gaps": func() {
				a.inbox.put(effect.Broker{Event: messaging.Gap{}})
				a.inbox.put(effect.Broker{Event: messaging.Gap{}})
				a.inbox.put(effect.Broker{Event: messaging.Gap{}})
			},
		} {
			count.reset()
			gap()
			wait(5 * time.Second)
			if !answeredAll(a) {
				t.Errorf("%s: not checked after five seconds", what)
			}
			total, busiest := count.total()
			t.Logf("%s: %d calls, at most %d in a tenth of a second, %d on their way: %v", what, total, busiest, count.most, count.kinds)
			// 250 ports and 250 groups in hundreds, the members of 250 groups in tens.
			if want := map[string]int{"Port": 3, "SecurityGroup": 3, "members": 25}; !maps.Equal(count.kinds, want) {
				t.Errorf("%s: %v, want %v", what, count.kinds, want)
			}
			if busiest > pace.BucketSize || count.most > 2 {
				t.Errorf("%s: %d calls in a tenth of a second, %d on their way", what, busiest, count.most)
			}
		}
		// A server that is slow does not make a new port wait: the check has one question about ports on its way.
		c.took = 20 * time.Second
		a.inbox.put(effect.Broker{Event: messaging.Gap{}})
		wait(3 * time.Second)
		c.took = 0
		count.reset()
		sw.changes <- plugOne(a, 250)
		wait(100 * time.Millisecond)
		if p := a.world().Port("p250"); p == nil || p.Details == nil {
			t.Errorf("the new port has to wait for the check; asked meanwhile: %v", count.kinds)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// plugOne plugs port p<n> into a switch that filtering made.
func plugOne(a *Agent, n int) *ovsdb.Batch {
	id, number := fmt.Sprint("p", n), n+1
	old := a.world().View.BridgeByName("br-int")
	br := *old
	br.Ports = append(slices.Clone(br.Ports), ovsdb.UUID("r"+id))
	slices.Sort(br.Ports)
	return &ovsdb.Batch{
		Seq: a.world().View.Seq() + 1, Kind: ovsdb.Update, Bridges: []ovsdb.Diff[ovsdb.Bridge]{{Old: old, New: &br}},
		Ports: []ovsdb.Diff[ovsdb.Port]{{New: &ovsdb.Port{UUID: ovsdb.UUID("r" + id), Name: id, Interfaces: []ovsdb.UUID{ovsdb.UUID("i" + id)}}}},
		Interfaces: []ovsdb.Diff[ovsdb.Interface]{{New: &ovsdb.Interface{
			UUID: ovsdb.UUID("i" + id), Name: id, OFPort: &number, ExternalIDs: map[string]string{"iface-id": id, "attached-mac": "fa:16:3e:00:01:00"},
		}}},
	}
}

var gapHosts = flag.Int("gaphosts", 500, "hosts that miss something at the same moment")

// Hosts that miss something at the same moment do not ask at the same moment.
func TestManyHostsAfterAGap(t *testing.T) {
	const ports = 2
	hosts := *gapHosts
	synctest.Test(t, func(t *testing.T) {
		count := &tally{kinds: map[string]int{}, at: map[int]int{}, began: time.Now()}
		ctx, cancel := context.WithCancel(t.Context())
		var agents []*Agent
		var running sync.WaitGroup
		for range hosts {
			c := &counted{cloud: &cloud{}, tally: count, took: 50 * time.Millisecond}
			a, sw, batch := filtering(t, c.cloud, nil, ports, c)
			agents = append(agents, a)
			running.Go(func() { _ = a.Run(ctx) })
			sw.changes <- batch
		}
		wait(time.Minute)
		count.reset()
		for _, a := range agents {
			a.inbox.put(effect.Broker{Event: messaging.Gap{}})
		}
		wait(5 * time.Second)
		total, busiest := count.total()
		var seconds []int
		for s := range 5 {
			n := 0
			for i := range 10 {
				n += count.at[10*s+i]
			}
			seconds = append(seconds, n)
		}
		t.Logf("%d hosts: %d calls, by second %v, at most %d in a tenth of a second, %d on their way: %v", hosts, total, seconds, busiest, count.most, count.kinds)
		for _, a := range agents {
			if !answeredAll(a) {
				t.Fatal("a host is not checked after five seconds")
			}
		}
		if total != 3*hosts { // ports, groups, members
			t.Errorf("%d calls of %d hosts", total, hosts)
		}
		// At once it would be all of them in the first tenths of a second. Spread evenly it is one twentieth in each; of so many hosts chance
		// does not bring twice that together.
		if busiest > 2*total/20 {
			t.Errorf("%d of %d calls in a tenth of a second", busiest, total)
		}
		cancel()
		running.Wait()
	})
}

// With l2population one port a network is reported again after a gap, not all of them: a report is told to every other host.
func TestForwardingEntriesAreAskedForOnceANetwork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &reports{}
		a, ovs, stop := tunnelled(t, func(below *region) Broker { r.region = below; return r })
		defer stop()
		wait(time.Second)
		for i := range 9 {
			ovs.plug(string(rune('1'+i)), 0, 10+i)
		}
		wait(time.Minute)
		r.said()
		a.inbox.put(effect.Broker{Event: messaging.Gap{}})
		wait(time.Minute)
		if got, want := r.said(), []string{"refresh [1 2]"}; !slices.Equal(got, want) {
			t.Errorf("after a gap %v, want %v", got, want)
		}
		r.said()
		a.inbox.put(effect.StateReported{Status: neutron.StatusRevived})
		wait(time.Minute)
		if got, want := r.said(), []string{"refresh [1 2]"}; !slices.Equal(got, want) || !a.open(gate.Complete) {
			t.Errorf("revived: %v, want %v; in sync %v", got, want, a.open(gate.Complete))
		}
	})
}

// A server that takes long to send forwarding entries again does not make a new port wait for its report. One of the ports whose
// networks it is about does wait: the server must not hear of its end before that.
func TestANewPortDoesNotWaitForForwardingEntries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &reports{}
		a, ovs, stop := tunnelled(t, func(below *region) Broker { r.region = below; return r })
		defer stop()
		wait(time.Second)
		ovs.plug("1", 0, 10)
		ovs.plug("2", 0, 11)
		wait(time.Minute)
		r.said()
		r.took = 20 * time.Second
		a.inbox.put(effect.Broker{Event: messaging.Gap{}})
		wait(3 * time.Second)
		ovs.plug("4", 0, 12)
		wait(time.Second)
		if got, want := r.said(), []string{"refresh [1 2]", "[4]"}; !slices.Equal(got, want) {
			t.Errorf("while the server is busy %v, want %v", got, want)
		}
		ovs.unplug("2")
		wait(time.Second)
		if got := r.said(); len(got) > 0 {
			t.Errorf("reported beside a report about the same port: %v", got)
		}
		wait(20 * time.Second)
		if got, want := r.said(), []string{"[] down [2]"}; !slices.Equal(got, want) {
			t.Errorf("afterwards %v, want %v", got, want)
		}
	})
}

// tunnelled runs an agent with l2population on a switch and before a server that knows nine ports, "1" to "9", on two
// networks with tunnels and one without. None is plugged in. It must be called inside a synctest bubble.
func tunnelled(t *testing.T, before func(*region) Broker) (*Agent, *fakeOVS, func()) {
	t.Helper()
	ovs, known := newFakeOVS(), newTruth()
	for i := range 9 {
		s := regionSegments()[i%3]
		id := string(rune('1' + i))
		known.ports[id] = map[string]any{
			"id": id, "network_id": s.network, "mac_address": macOf(id), "admin_state_up": true, "device_owner": "compute:nova", "revision_number": 1,
			"bindings": []any{fake.Wrapped(map[string]any{"host": "hv1", "status": "ACTIVE"})},
			"binding_levels": []any{fake.Wrapped(map[string]any{"segment": fake.Wrapped(map[string]any{
				"network_type": s.kind, "physical_network": s.physnet, "segmentation_id": s.id,
			})})},
		}
	}
	l := newLife(0, func() {})
	a, err := New(Config{
		Host: "hv1", ReportInterval: 30 * time.Second, PortsPerReport: 20, Log: slog.New(slog.DiscardHandler),
		World: world.Config{
			Host: "hv1", IntegrationBridge: "br-int", TunnelBridge: "br-tun", IntPatch: "patch-tun", TunPatch: "patch-int",
			LocalIP: netip.MustParseAddr("10.0.0.1"), TunnelTypes: []string{"vxlan", "gre"}, L2Population: true,
		},
		Settings: pipeline.Settings{}, Notifier: observe.NewNotifier(func(string) string { return "" }, 1),
		Link: runner.Supervised(func(ctx context.Context, bridge string) (*openflow.Conn, error) { return ovs.dial(ctx, l, bridge) }),
	}, ovs.session(l), func(func(messaging.Event)) (Broker, error) { return before(&region{life: l, truth: known}), nil })
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	return a, ovs, func() {
		l.crash()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// reports notes which ports are reported. It may take its time for those that have it send forwarding entries.
type reports struct {
	*region
	mu   sync.Mutex
	up   []string
	took time.Duration
}

// said are the reports since it was called last.
func (r *reports) said() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.up
	r.up = nil
	return out
}

func (r *reports) Call(ctx context.Context, t messaging.Target, method string, args, result any) error {
	if all, _ := args.(map[string]any); method == "update_device_list" {
		text := fmt.Sprint(all["devices_up"])
		if gone := fmt.Sprint(all["devices_down"]); gone != "[]" {
			text += " down " + gone
		}
		refresh := all["refresh_tunnels"] == true
		if refresh {
			text = "refresh " + text
		}
		r.mu.Lock()
		r.up = append(r.up, text)
		r.mu.Unlock()
		if refresh {
			if err := sleep(ctx, r.took); err != nil {
				return err
			}
		}
	}
	return r.region.Call(ctx, t, method, args, result)
}
