// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/agent"
	"github.com/patchbay-sdn/patchbay/lab/sim"
	"github.com/patchbay-sdn/patchbay/lab/sim/region"
	"github.com/patchbay-sdn/patchbay/openflow"
	"github.com/patchbay-sdn/patchbay/openflow/openflowtest"
	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// small is a fleet without a broker whose switches have the flows that agents make.
func small(t *testing.T, network string, agents, span int) *Fleet {
	t.Helper()
	f := &Fleet{cfg: Config{Agents: agents, Span: span, Ports: 2, Network: network}, times: newTimes(), rnd: rand.New(rand.NewPCG(1, 1))}
	if err := f.cfg.fill(); err != nil {
		t.Fatal(err)
	}
	f.server = &sim.Server{Region: region.New(region.Config{Seed: 1, Workers: true})}
	if err := f.server.Quietly(func() error { return f.populate(t.Context()) }); err != nil {
		t.Fatal(err)
	}
	for _, h := range f.hosts {
		if err := h.fresh(t.Context(), f.server.Region, h.ovs, 5*time.Second); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

// differences are the wrong flows of all hosts.
func differences(t *testing.T, f *Fleet) Flows {
	t.Helper()
	out, err := compare(t.Context(), f.server.Region, f.hosts, func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	if out.Hosts != len(f.hosts) || out.Flows < 40*len(f.hosts) {
		t.Errorf("%d flows on %d hosts were compared", out.Flows, out.Hosts)
	}
	return out
}

func TestComparison(t *testing.T) {
	for _, network := range []string{vxlan, vlan} {
		t.Run(network, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := small(t, network, 4, 2)
				if out := differences(t, f); out.Wrong != 0 {
					t.Fatalf("%d wrong flows where nothing happened:\n%s", out.Wrong, strings.Join(out.Samples, "\n"))
				}
				// A flow is lost.
				sw := f.hosts[0].ovs.Bridge(integration)
				var lost openflow.Entry
				for _, e := range sw.Flows() {
					if hasField(e.Key().String(), "nw_src="+f.hosts[0].vms[0].ip.String()) {
						lost = e
					}
				}
				if lost.IsZero() {
					t.Fatal("no flow of the first port")
				}
				if err := sw.Apply(openflow.DeleteFlow(lost.Key())); err != nil {
					t.Fatal(err)
				}
				if out := differences(t, f); out.Wrong != 1 || out.Where != 1 || !strings.HasPrefix(out.Samples[0], "hv00000 has not") {
					t.Errorf("a flow that is missing: %+v", out)
				}
				if err := sw.Apply(openflow.AddFlow(lost)); err != nil {
					t.Fatal(err)
				}
				// A message is lost: the server knows a rule that no agent has heard of.
				port, p := 77, f.hosts[0].of
				err := f.server.Quietly(func() error {
					_, err := f.server.CreateRule(t.Context(), region.RuleSpec{GroupID: p.group, Direction: "ingress", EtherType: "IPv4", Protocol: "tcp", PortMin: &port, PortMax: &port})
					return err
				})
				if err != nil {
					t.Fatal(err)
				}
				if out := differences(t, f); out.Where != 2 || !strings.Contains(strings.Join(out.Samples, "\n"), "tcp_dst=77") && !strings.Contains(strings.Join(out.Samples, "\n"), "tp_dst=77") {
					t.Errorf("a rule that two hosts have not heard of: %+v", out)
				}
			})
		})
	}
}

// Agents of one network that restart at the same time hear of each other before the server has sent them who else is there. They must not take the
// first for the second, and delete flows that are needed.
func TestNeighboursRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := small(t, vxlan, 8, 8)
		var wg sync.WaitGroup
		for _, h := range f.hosts[:4] { // nobody but the server tells them of the others
			h.ovs.Committed = func(bridge string, mods []openflowtest.Mod, _ bool, _ map[openflow.Key]openflow.Entry) {
				for _, m := range mods {
					if m.Entry.IsZero() {
						t.Errorf("the restart of %s deletes a flow of %s: %s", h.name, bridge, m.Key)
					}
				}
			}
			r, err := run(t.Context(), h.config(h.ovs, slog.New(slog.DiscardHandler)), h.ovs, func(onEvent func(messaging.Event)) (agent.Broker, error) {
				onEvent(messaging.Connected{Addr: "region"})
				return late{f.server.Join(h.name, onEvent)}, nil
			})
			if err != nil {
				t.Fatal(err)
			}
			wg.Go(func() {
				time.Sleep(time.Minute)
				r.cancel()
				<-r.done
				h.ovs.Close()
			})
		}
		wg.Wait()
	})
}

// late is a broker on which messages to one host come after the answers to the calls that led to them.
type late struct{ *region.Link }

func (l late) Serve(ctx context.Context, s messaging.Service) error {
	handler := s.Handler
	s.Handler = func(ctx context.Context, m *messaging.Message) (any, error) {
		if m.Directed {
			go func() {
				time.Sleep(time.Second)
				_, _ = handler(context.WithoutCancel(ctx), m)
			}()
			return nil, nil
		}
		return handler(ctx, m)
	}
	return l.Link.Serve(ctx, s)
}

func TestWatch(t *testing.T) {
	f := newTimes()
	h := newHost(1, &project{}, vxlan)
	h.running = &running{}
	now := time.Now()
	h.watch(watch{kind: "plug", since: now, field: "in_port=7", times: f})
	h.watch(watch{kind: "unplug", since: now, field: "in_port=7", gone: true, times: f})
	entry := func(port uint32) openflow.Entry {
		e, err := (&openflow.Flow{Table: 60, Match: openflow.Match{openflow.FromPort(port)}}).Entry()
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	h.committed(tunnels, []openflowtest.Mod{{Key: entry(7).Key(), Entry: entry(7)}}, false, nil)
	h.committed(integration, []openflowtest.Mod{{Key: entry(77).Key(), Entry: entry(77)}}, false, nil)
	if h.unseen() != 2 {
		t.Fatal("another bridge, or another port, is taken for it")
	}
	h.committed(integration, []openflowtest.Mod{{Key: entry(7).Key(), Entry: entry(7)}}, false, nil)
	if h.unseen() != 1 || len(f.calm["plug"]) != 1 {
		t.Errorf("the flow has come: %v", f.calm)
	}
	h.disturb()
	h.committed(integration, []openflowtest.Mod{{Key: entry(7).Key()}}, false, nil)
	if h.unseen() != 0 || len(f.calm["unplug"]) != 0 || len(f.disturbed) != 1 {
		t.Errorf("the flow has gone beside a fault: %v, %v", f.calm, f.disturbed)
	}
}

func TestPercentiles(t *testing.T) {
	var list []time.Duration
	for i := range 200 {
		list = append(list, time.Duration(200-i)*time.Millisecond)
	}
	if p := percentiles(list); p != (Percentiles{200, 100, 180, 198, 200}) {
		t.Errorf("percentiles of 1 to 200: %+v", p)
	}
	if p := percentiles(nil); p.N != 0 || p.String() != "none" {
		t.Errorf("percentiles of nothing: %+v", p)
	}
}

func TestConfig(t *testing.T) {
	for text, c := range map[string]Config{"event": {Events: []string{"x"}}, "storm": {Storms: []string{"x"}}, "layout": {Layout: "x"}, "networks": {Network: "x"}} {
		if err := c.fill(); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	drawn := func(seed uint64) (list []string) {
		f := &Fleet{cfg: Config{Events: DefaultEvents()}, rnd: rand.New(rand.NewPCG(seed, 1)), hosts: make([]*host, 9)}
		for i := range f.hosts {
			f.hosts[i] = &host{name: string(rune('a' + i))}
		}
		for range 50 {
			name, h := f.draw()
			list = append(list, name+" "+h.name)
		}
		return list
	}
	if !slices.Equal(drawn(1), drawn(1)) || slices.Equal(drawn(1), drawn(2)) {
		t.Error("the seed does not decide what is drawn")
	}
}
