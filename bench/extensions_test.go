// SPDX-License-Identifier: Apache-2.0

//go:build bench

package bench

import (
	"context"
	"fmt"
	"os"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/patchbay-sdn/patchbay/lab"
	"github.com/patchbay-sdn/patchbay/lab/sim"
)

// others is how many other hosts have distributed routers.
const others = 50

// variant is an agent with extensions or without.
type variant struct {
	name      string
	overrides []string
	used      bool // their objects are there: a policy, routers
}

func variants() []variant {
	on := []string{"agent.extensions=qos", "agent.enable_distributed_routing=True", "agent.l2_population=True", "ovs.trunk_enabled=True"}
	off := []string{"agent.l2_population=True", "ovs.trunk_enabled=False"}
	return []variant{{"off", off, false}, {"on", on, false}, {"on and used", on, true}}
}

// extensionFigures are those of one variant.
type extensionFigures struct{ cpu, push, all []time.Duration }

// TestExtensions compares the agent with extensions and without, in turns: CPU time, memory, the cost of a foreign push. When they
// are used every port has a policy with a mark, a limit of bandwidth and one of packets, and is routed for; and fifty other hosts
// have distributed routers.
func TestExtensions(t *testing.T) {
	b := &bench{many: number("PATCHBAY_BENCH_PORTS", 100)}
	t.Setenv(lab.EnvServer, string(lab.NoServer))
	b.lab = lab.New(t, 2)
	b.host = b.lab.Host(1)
	s, err := sim.Start(t.Context(), sim.Config{URL: b.lab.TransportURL(), API: b.lab.APIAddr(), Log: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	b.overrides = variants()[0].overrides
	began, before := time.Now(), loadAverage()
	b.prepare(t)
	policy, err := s.CreatePolicy(t.Context(), "gold",
		sim.PolicyRule{Kind: "QosDscpMarkingRule", Fields: map[string]any{"dscp_mark": 26}},
		sim.PolicyRule{Kind: "QosBandwidthLimitRule", Fields: map[string]any{"max_kbps": 100000, "max_burst_kbps": 80000, "direction": "egress"}},
		sim.PolicyRule{Kind: "QosPacketRateLimitRule", Fields: map[string]any{"max_kpps": 100, "max_burst_kpps": 10, "direction": "ingress"}})
	if err != nil {
		t.Fatal(err)
	}
	router, err := b.lab.CreatePorts(t.Context(), b.host, lab.Port{
		NetworkID: b.net.ID, Name: "router", Extra: map[string]any{"device_owner": "network:router_interface_distributed"},
	}, 1)
	if err != nil {
		t.Fatal(err)
	}
	found, memory := map[string]*extensionFigures{}, map[string]int64{}
	send, _ := b.pusher(t)
	for range runs(3) {
		for _, v := range variants() {
			if found[v.name] == nil {
				found[v.name] = &extensionFigures{}
			}
			b.turn(t, v, found[v.name], memory, send, func(on bool) {
				to := policy
				if !on {
					to = ""
				}
				if err := s.SetNetworkPolicy(t.Context(), b.net.ID, to); err != nil {
					t.Fatal(err)
				}
				if !on {
					b.unplug(t, router)
					return
				}
				if err := s.AddRouters(t.Context(), others); err != nil {
					t.Fatal(err)
				}
				if err := b.host.PlugMany(t.Context(), router); err != nil {
					t.Fatal(err)
				}
				b.wait(t, "ACTIVE", router)
			})
		}
	}
	fmt.Printf("\nthe simulated server; load average before %s, after %s; took %s\n\n", before, loadAverage(), time.Since(began).Round(time.Second))
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 1, ' ', 0)
	fmt.Fprintf(out, "| extensions\t| CPU, %d ports at once\t| all ACTIVE after\t| RSS with %d ports\t| CPU of a foreign push\t|\n| ---\t| ---\t| ---\t| ---\t| ---\t|\n", b.many, b.many)
	for _, v := range variants() {
		f := found[v.name]
		fmt.Fprintf(out, "| %s\t| %s\t| %s\t| %.1f MiB\t| %.1f µs\t|\n", v.name, ms(median(f.cpu)), ms(median(f.all)),
			float64(memory[v.name])/(1<<20), float64(median(f.push))/1e3/replayed)
		mib := float64(memory[v.name]) / (1 << 20)
		if asserting() && (mib > 30 || median(f.push)/replayed > 50*time.Microsecond) {
			t.Errorf("%s: RSS %.1f MiB, limit 30; push %v, limit 50 µs", v.name, mib, median(f.push)/replayed)
		}
	}
	_ = out.Flush()
}

// turn measures one variant once.
func (b *bench) turn(t *testing.T, v variant, f *extensionFigures, memory map[string]int64, send func() error, use func(on bool)) {
	t.Helper()
	if err := b.host.StopAgent(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := b.host.StartAgent(t.Context(), lab.Patchbay, v.overrides...); err != nil {
		t.Fatal(err)
	}
	b.plug(t, b.fill(t, 1)) // in sync when it answers to this
	if v.used {
		use(true)
	}
	list := b.fill(t, b.many)
	used, began := cpu(t, b.host), time.Now()
	if err := b.host.PlugMany(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	_, last := b.wait(t, "ACTIVE", list)
	b.settle(t)
	f.cpu, f.all = append(f.cpu, cpu(t, b.host)-used), append(f.all, last.Sub(began))
	b.replay(t, send)
	f.push = append(f.push, b.replay(t, send))
	memory[v.name] = max(memory[v.name], rss(t, b.host))
	t.Logf("%s: CPU %v, all after %v, push %v, RSS %d", v.name, f.cpu, f.all, f.push, memory[v.name])
	b.unplug(t, list)
	if v.used {
		use(false)
	}
}
