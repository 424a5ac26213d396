// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/core"
	"github.com/patchbay-sdn/patchbay/internal/effect"
	"github.com/patchbay-sdn/patchbay/internal/fake"
	"github.com/patchbay-sdn/patchbay/internal/observe"
	"github.com/patchbay-sdn/patchbay/internal/pace"
	"github.com/patchbay-sdn/patchbay/internal/pipeline"
	"github.com/patchbay-sdn/patchbay/internal/world"
	"github.com/patchbay-sdn/patchbay/openflow"
	"github.com/patchbay-sdn/patchbay/openflow/openflowtest"
)

// driftHost is a host at rest with one port, whose flows somebody else changes.
type driftHost struct {
	t      *testing.T
	ovs    *fakeOVS
	sw     *openflowtest.Switch // of the integration bridge
	log    *logBuffer
	agent  *Agent
	region *region
	stop   func()
	flows  map[openflow.Key]openflow.Entry // as they should be
	read   int                             // of the log, at rest
}

// told is what the agent has logged since it was at rest.
func (h *driftHost) told() string { return h.log.String()[h.read:] }

// inDriftHost runs a test inside a bubble. Before changes the switch before the agent meets it.
func inDriftHost(t *testing.T, before func(*openflowtest.Switch), test func(h *driftHost)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := &driftHost{t: t, ovs: newFakeOVS(), region: &region{truth: newTruth()}}
		h.sw = h.ovs.Bridge("br-int")
		if before != nil {
			before(h.sw)
		}
		h.region.truth.ports["A"] = fake.PluggedPort("A1", 1, "DOWN")
		h.region.truth.ports["A"]["id"] = "A"
		h.start()
		wait(time.Second) // for the bridges
		h.ovs.plug("A", 0, 7)
		wait(10 * time.Second)
		h.flows, h.read = h.sw.Flows(), h.log.Len()
		if len(h.flows) < 10 || h.port() == (openflow.Entry{}) {
			t.Fatalf("%d flows, none of the port: %v\n%s", len(h.flows), slices.Collect(maps.Values(h.flows)), h.log)
		}
		test(h)
		h.stop()
	})
}

func (h *driftHost) start() {
	h.t.Helper()
	h.log = &logBuffer{}
	l := newLife(0, func() {})
	h.region.life = l
	cfg := world.Config{
		Host: "hv1", IntegrationBridge: "br-int", TunnelBridge: "br-tun", IntPatch: "patch-tun", TunPatch: "patch-int",
		LocalIP: netip.MustParseAddr("10.0.0.1"), TunnelTypes: []string{"vxlan"}, AntiSpoof: true,
	}
	a, sw, cancel, done := startLogged(h.t, cfg, h.ovs, h.region, "", observe.NewLogger(h.log, slog.LevelInfo))
	h.agent = a
	h.stop = func() {
		l.end(h.t, cancel, done)
		h.ovs.leave(sw)
	}
}

// port is a flow of the port.
func (h *driftHost) port() openflow.Entry {
	for _, k := range slices.SortedFunc(maps.Keys(h.flows), openflow.Key.Compare) {
		if e := h.flows[k]; k.Table() != 0 && strings.Contains(e.String(), "in_port=7") {
			return e
		}
	}
	return openflow.Entry{}
}

func (h *driftHost) apply(mods ...openflow.FlowMod) {
	h.t.Helper()
	if err := h.sw.Apply(mods...); err != nil {
		h.t.Fatal(err)
	}
}

// repairs are the flows that were repaired so far.
func (h *driftHost) repairs() (n uint64) {
	h.t.Helper()
	if err := h.agent.ask(h.t.Context(), func(v core.View) { n = v.Dataplane.Bridge("br-int").Repaired }); err != nil {
		h.t.Fatal(err)
	}
	return n
}

// repaired waits and checks that all flows are as they should be, and how many repairs were counted and told so far.
func (h *driftHost) repaired(after time.Duration, counted uint64, told int) {
	h.t.Helper()
	wait(after)
	for _, line := range h.differs() {
		h.t.Errorf("after %v: %s", after, line)
	}
	if got := h.repairs(); got != counted {
		h.t.Errorf("%d repairs are counted, want %d", got, counted)
	}
	if got := strings.Count(h.told(), " WARNING "); got != told {
		h.t.Errorf("%d warnings, want %d:\n%s", got, told, h.told())
	}
}

// differs says which flows are not as they should be.
func (h *driftHost) differs() []string {
	var out []string
	now := h.sw.Flows()
	for k, e := range h.flows {
		if now[k] != e {
			out = append(out, fmt.Sprintf("%s is %q", e, now[k]))
		}
	}
	for k, e := range now {
		if h.flows[k].IsZero() {
			out = append(out, fmt.Sprintf("%s is left", e))
		}
	}
	return out
}

// otherActions is a flow of ours with actions that are not.
func otherActions(t *testing.T, e openflow.Entry) openflow.Entry {
	t.Helper()
	f, err := e.Flow()
	if err != nil {
		t.Fatal(err)
	}
	f.Actions = []openflow.Action{openflow.Output(99)}
	if e, err = f.Entry(); err != nil {
		t.Fatal(err)
	}
	return e
}

// soon is enough for a repair of what the switch reports, and far less than until the next comparison.
const soon = 100 * time.Millisecond

// Whatever somebody does to a flow of ours, or to one with our mark, is undone at once, and said and counted once.
func TestDriftIsRepairedAsItIsReported(t *testing.T) {
	stray := fmt.Sprintf("table=0,priority=77,cookie=%#x,in_port=55,actions=drop", pipeline.Cookie)
	for name, c := range map[string]struct {
		mod func(h *driftHost) openflow.FlowMod
		was string
	}{
		"deleted":  {func(h *driftHost) openflow.FlowMod { return openflow.DeleteFlow(h.port().Key()) }, "was=deleted"},
		"replaced": {func(h *driftHost) openflow.FlowMod { return openflow.AddFlow(otherActions(h.t, h.port())) }, "was=added"},
		"modified": {func(h *driftHost) openflow.FlowMod {
			return openflow.FlowMod{Command: openflow.ModifyStrict, Entry: otherActions(h.t, h.port())}
		}, "was=modified"},
		"our mark": {func(h *driftHost) openflow.FlowMod { return openflow.AddFlow(openflowtest.Entry(h.t, stray)) }, "was=added"},
	} {
		t.Run(name, func(t *testing.T) {
			inDriftHost(t, nil, func(h *driftHost) {
				m := c.mod(h)
				h.apply(m)
				h.repaired(soon, 1, 1)
				line := h.told()
				for _, want := range []string{"repairing a flow changed by another program", "bridge=br-int", c.was, fmt.Sprintf("flow=%q", m.Entry.Key().String())} {
					if !strings.Contains(line, want) {
						t.Errorf("the log does not say %s:\n%s", want, line)
					}
				}
				if owned := strings.Contains(line, `owner="port A"`) || strings.Contains(line, "owner=port"); owned == (name == "our mark") {
					t.Errorf("the owner is not named:\n%s", line)
				}
				h.repaired(10*time.Minute, 1, 1)
			})
		})
	}
}

// Flows of others come and go as they like, and are neither repaired nor told about.
func TestFlowsOfOthersAreLeftAlone(t *testing.T) {
	inDriftHost(t, nil, func(h *driftHost) {
		for _, text := range []string{
			"table=0,priority=77,cookie=0x5,in_port=55,actions=drop",
			fmt.Sprintf("table=0,priority=78,cookie=%#x,idle_timeout=60,in_port=55,actions=drop", pipeline.Cookie), // learned
		} {
			e := openflowtest.Entry(t, text)
			h.apply(openflow.AddFlow(e))
			h.flows[e.Key()] = e
			h.repaired(5*time.Minute, 0, 0)
			h.apply(openflow.DeleteFlow(e.Key()))
			delete(h.flows, e.Key())
			h.repaired(5*time.Minute, 0, 0)
		}
		// Another cookie on a flow of ours does not change what it does: the Python agent's flows are taken over this way.
		e := h.port().WithCookie(1)
		h.apply(openflow.AddFlow(e))
		h.flows[e.Key()] = e
		h.repaired(5*time.Minute, 0, 0)
	})
}

// All flows deleted at once come back at once; ten are told about one by one, the rest as a number.
func TestEverythingDeleted(t *testing.T) {
	inDriftHost(t, nil, func(h *driftHost) {
		all, err := openflow.DeleteFlows(openflow.Filter{Table: openflow.AllTables})
		if err != nil {
			t.Fatal(err)
		}
		h.apply(all)
		h.repaired(soon, uint64(len(h.flows)), 10+1)
		if want := fmt.Sprintf("repairing flows changed by another program bridge=br-int flows=%d", len(h.flows)); !strings.Contains(h.log.String(), want) {
			t.Errorf("the log does not say %s:\n%s", want, h.log)
		}
	})
}

// Somebody who keeps deleting a flow is met ever more slowly, down to a bound, and found to have stopped a minute after.
func TestAFightOverAFlow(t *testing.T) {
	inDriftHost(t, nil, func(h *driftHost) {
		e := h.port()
		var repairs []time.Time
		began := time.Now()
		for time.Since(began) < 10*time.Minute {
			if h.sw.Flows()[e.Key()] == e {
				repairs = append(repairs, time.Now())
				h.apply(openflow.DeleteFlow(e.Key()))
			}
			wait(25 * time.Millisecond)
		}
		if n := len(repairs); n < 20 || n > 60 {
			t.Errorf("%d repairs in ten minutes of fighting", n)
		}
		if first := repairs[1].Sub(repairs[0]); first > 50*time.Millisecond {
			t.Errorf("the first repair took %v", first)
		}
		for i := 1; i < 8; i++ {
			if pause := repairs[i+1].Sub(repairs[i]); pause > pace.Shortest<<(i-1)+50*time.Millisecond || pause < pace.Shortest<<(i-1)/2 {
				t.Errorf("repair %d took %v", i, pause)
			}
		}
		if last := repairs[len(repairs)-1].Sub(repairs[len(repairs)-2]); last < pace.Longest/2 || last > pace.Longest+time.Second {
			t.Errorf("the last repair took %v", last)
		}
		if n := strings.Count(h.log.String(), "flow changed repeatedly by another program"); n != 1 {
			t.Errorf("%d lines about the fight, want 1:\n%s", n, h.log)
		}
		wait(2 * time.Minute)
		h.apply(openflow.DeleteFlow(h.port().Key()))
		wait(soon)
		if d := h.differs(); len(d) > 0 {
			t.Errorf("after the fight a repair is still slow: %v", d)
		}
	})
}

// A switch that does not report changes is read again every minute.
func TestDriftWithoutReports(t *testing.T) {
	inDriftHost(t, func(sw *openflowtest.Switch) { sw.WithoutMonitor = true }, func(h *driftHost) {
		if n := strings.Count(h.log.String(), "ovs-vswitchd has no flow monitor"); n != 1 {
			t.Errorf("%d lines about a switch without reports:\n%s", n, h.log)
		}
		h.apply(openflow.DeleteFlow(h.port().Key()), openflow.AddFlow(openflowtest.Entry(t, fmt.Sprintf("table=0,priority=77,cookie=%#x,in_port=55,actions=drop", pipeline.Cookie))))
		wait(soon)
		if len(h.differs()) != 2 {
			t.Errorf("repaired before it can be known: %v", h.differs())
		}
		h.repaired(time.Minute, 2, 1)
		h.apply(openflow.DeleteFlow(h.port().Key()))
		h.repaired(time.Minute, 3, 2)
	})
}

// Reports that the switch holds back, because we are slow, come later; our own changes among them are no drift.
func TestDriftWhileReportsAreHeldBack(t *testing.T) {
	inDriftHost(t, nil, func(h *driftHost) {
		h.sw.Pause()
		h.apply(openflow.FlowMod{Command: openflow.ModifyStrict, Entry: otherActions(t, h.port())})
		h.region.truth.ports["B"] = fake.PluggedPort("A2", 1, "DOWN")
		h.region.truth.ports["B"]["id"] = "B"
		h.ovs.plug("B", 0, 8)
		wait(time.Minute)
		changed := h.sw.Flows()
		changed[h.port().Key()] = h.port()
		if len(changed) <= len(h.flows) {
			t.Error("another port has no flows")
		}
		h.flows = changed
		h.sw.Resume()
		h.repaired(soon, 1, 1)
	})
}

// Reports that were lost on our side are made up for by reading the bridge again.
func TestLostReports(t *testing.T) {
	inDriftHost(t, nil, func(h *driftHost) {
		h.sw.Pause() // of what follows nothing is reported
		h.apply(openflow.FlowMod{Command: openflow.ModifyStrict, Entry: otherActions(t, h.port())})
		wait(time.Minute)
		if len(h.differs()) != 1 {
			t.Errorf("repaired before it can be known: %v", h.differs())
		}
		if err := h.agent.ask(h.t.Context(), func(v core.View) { v.Dataplane.EventsLost("br-int") }); err != nil {
			t.Fatal(err)
		}
		h.agent.inbox.put(effect.FlowsChanged{Bridge: "br-int"}) // of no connection: it only wakes the loop
		h.repaired(soon, 1, 1)
	})
}

// What is changed while the bridge is read is found, on whichever side of the answer its report comes.
func TestDriftDuringADump(t *testing.T) {
	for name, c := range map[string]struct{ collected, answered int }{
		"before the flows are collected": {1, 1}, "after that, before the answer": {0, 1}, "after the answer": {0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			inDriftHost(t, nil, func(h *driftHost) {
				h.stop()
				var changed int
				deleted := openflow.DeleteFlow(h.port().Key())
				change := func(now int) {
					for ; changed < now; changed++ {
						h.apply(deleted)
					}
				}
				h.sw.Inject(func(conn *openflowtest.Conn, m openflowtest.Message) bool {
					if m.Type != openflowtest.TypeMultipart || m.Kind() != openflowtest.MultipartFlows || changed > 0 {
						return false
					}
					change(c.collected)
					answer := []byte{0, openflowtest.MultipartFlows, 0, 0, 0, 0, 0, 0}
					for _, e := range h.sw.Flows() {
						answer = append(answer, openflowtest.EncodeStat(e)...)
					}
					change(c.answered)
					time.Sleep(time.Millisecond) // a report that comes before the answer is taken before it
					conn.Send(openflowtest.TypeMultipartReply, m.XID, answer...)
					change(1)
					return true
				})
				h.start()
				wait(10 * time.Second)
				if changed != 1 || len(h.differs()) != 0 {
					t.Errorf("changed %d times, %v\n%s", changed, h.differs(), h.log)
				}
			})
		})
	}
}

// A connection that is lost with the switch leaves no reports behind: those of a former connection do not count.
func TestReportsOfAFormerConnection(t *testing.T) {
	inDriftHost(t, nil, func(h *driftHost) {
		h.sw.Drop()
		wait(10 * time.Second)
		h.agent.inbox.put(effect.FlowsChanged{Bridge: "br-int", Conn: &hung{}, Updates: []openflow.FlowUpdate{{Event: openflow.FlowDeleted, Entry: h.port()}}})
		wait(soon)
		if got := h.repairs(); got != 0 {
			t.Errorf("%d repairs for a report of a connection that is gone", got)
		}
	})
}
