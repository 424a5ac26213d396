// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/core"
	"github.com/patchbay-sdn/patchbay/internal/fake"
	"github.com/patchbay-sdn/patchbay/internal/inspect"
	"github.com/patchbay-sdn/patchbay/internal/iptables"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/observe"
	"github.com/patchbay-sdn/patchbay/internal/world"
)

// kernel is the iptables of a host in memory.
type kernel struct {
	mu     sync.Mutex
	state  iptables.State
	broken error
	// refuses is a part of rules that it does not take.
	refuses string
	held    chan struct{} // writing waits for it, if it is not nil
	// before is called before something is written.
	before func(c *iptables.Changes)
	wrote  []string
	ended  []iptables.Connections
}

func newKernel() *kernel {
	k := &kernel{state: iptables.State{Sets: map[string]iptables.Set{}}}
	for i := range k.state.Rules {
		k.state.Rules[i] = iptables.Ruleset{
			"filter": {"INPUT": nil, "FORWARD": nil, "OUTPUT": nil}, "raw": {"PREROUTING": nil, "OUTPUT": nil},
			"nat": {"PREROUTING": nil, "INPUT": nil, "OUTPUT": nil, "POSTROUTING": nil},
		}
	}
	return k
}

func (k *kernel) Read(context.Context) (iptables.State, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.state, k.broken
}

func (k *kernel) Apply(_ context.Context, c *iptables.Changes) error {
	k.mu.Lock()
	held := k.held
	k.mu.Unlock()
	if held != nil {
		<-held
	}
	if k.before != nil {
		k.before(c)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.broken != nil {
		return k.broken
	}
	if k.refuses != "" {
		for line := range strings.Lines(c.Rules[0]) {
			if strings.Contains(line, k.refuses) {
				return &iptables.RefusedError{Err: errors.New("no such match"), Line: line}
			}
		}
	}
	after, err := k.state.After(c)
	if err == nil {
		k.state = after
		k.wrote = append(k.wrote, c.Sets+c.Rules[0]+c.Rules[1]+c.Unused)
	}
	return err
}

func (k *kernel) Other(context.Context) (string, error) { return "", nil }

func (k *kernel) End(_ context.Context, all []iptables.Connections) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ended = append(k.ended, all...)
	return len(all), nil
}

// change does something to it by hand.
func (k *kernel) change(what func(*iptables.State)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	after, _ := k.state.After(&iptables.Changes{}) // a copy
	what(&after)
	k.state = after
}

// took returns what was written since it was last asked.
func (k *kernel) took() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := strings.Join(k.wrote, "")
	k.wrote = nil
	return out
}

// rulesConfig is what rules depend on; nil: there are none.
func rulesConfig(r Rules) *iptables.Config {
	if r == nil {
		return nil
	}
	return &iptables.Config{}
}

// chain returns the rules of a chain of the table filter, for IPv4.
func (k *kernel) chain(name string) []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.state.Rules[0]["filter"][name]
}

// Ports of these tests have ids as in Neutron, since chains are known by them.
const (
	hybridA = "aaaaaaaa-0000-4000-8000-000000000001"
	hybridB = "bbbbbbbb-0000-4000-8000-000000000002"
	chainA  = "neutron-openvswi-iaaaaaaaa-0"
)

// hybridHost is a host with a kernel, a switch and a server, on which agents run one after the other.
type hybridHost struct {
	t      *testing.T
	ovs    *fakeOVS
	kernel *kernel
	region *region
	cfg    world.Config
	file   string
	log    *logBuffer
	agent  *Agent
	stop   func()
}

func inHybridHost(t *testing.T, test func(h *hybridHost)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := &hybridHost{t: t, ovs: newFakeOVS(), kernel: newKernel(), region: &region{truth: newTruth()}, cfg: world.Config{
			Host: "hv1", IntegrationBridge: "br-int", AntiSpoof: true, Filter: true, Hybrid: true, BridgedOnly: true,
		}}
		h.put(hybridA, 5)
		h.rule("r1", map[string]any{"direction": "ingress", "protocol": "tcp", "port_range_min": 22, "port_range_max": 22})
		h.rule("r2", map[string]any{"direction": "ingress", "remote_group_id": "g2"})
		test(h)
		if h.stop != nil {
			h.stop()
		}
	})
}

// put has the server know a port.
func (h *hybridHost) put(id string, last int) map[string]any {
	p := fake.PluggedPort("p1", 1, "DOWN")
	p["id"], p["mac_address"], p["security_group_ids"] = id, macOf("A"), []string{"g1"}
	p["fixed_ips"] = []any{fake.Wrapped(map[string]any{"ip_address": fmt.Sprintf("10.0.5.%d", last)})}
	h.region.truth.ports[id] = p
	return p
}

func (h *hybridHost) rule(id string, more map[string]any) map[string]any {
	r := map[string]any{"id": id, "security_group_id": "g1", "ethertype": "IPv4", "revision_number": 1}
	maps.Copy(r, more)
	h.region.truth.rules[id] = r
	return r
}

func (h *hybridHost) start() {
	h.t.Helper()
	h.log = &logBuffer{}
	l := newLife(0, func() {})
	l.rules = h.kernel
	h.region.life, h.region.link = l, nil
	a, sw, cancel, done := startLogged(h.t, h.cfg, h.ovs, h.region, h.file, observe.NewLogger(h.log, slog.LevelInfo))
	h.agent = a
	h.stop = func() {
		l.end(h.t, cancel, done)
		h.ovs.leave(sw)
		h.stop = nil
	}
	wait(time.Second)
}

// plug plugs a port in through a Linux bridge, or without one.
func (h *hybridHost) plug(prefix, id string, number int) {
	h.ovs.mu.Lock()
	defer h.ovs.mu.Unlock()
	h.ovs.DeletePort((prefix + id)[:14])
	h.ovs.AddPort("br-int", (prefix + id)[:14], 0, number, map[string]string{"iface-id": id, "attached-mac": macOf("A"), "vm-uuid": "vm"})
	h.ovs.run()
}

// tag returns the VLAN of a port's row; 0 without one.
func (h *hybridHost) tag(id string) int {
	v := h.ovs.view()
	for _, prefix := range []string{"qvo", "tap"} {
		if p := v.PortByName((prefix + id)[:14]); p != nil && p.Tag != nil {
			return *p.Tag
		}
	}
	return 0
}

func (h *hybridHost) status() (s inspect.Status) {
	h.t.Helper()
	if err := h.agent.ask(h.t.Context(), func(v core.View) { s = v.AgentStatus() }); err != nil {
		h.t.Fatal(err)
	}
	return s
}

func (h *hybridHost) port(id string) (p inspect.Port) {
	h.t.Helper()
	if err := h.agent.ask(h.t.Context(), func(v core.View) {
		if found := v.World.Port(id); found != nil {
			c := v.CopyPort(found)
			p = c.Document()
		}
	}); err != nil {
		h.t.Fatal(err)
	}
	return p
}

// wired waits for a port and checks that it is filtered and in its network.
func (h *hybridHost) wired(id string) {
	h.t.Helper()
	wait(10 * time.Second)
	if tag := h.tag(id); tag == 0 || tag == world.DeadVLAN || h.port(id).Reported != "up" || !h.status().InSync {
		h.t.Fatalf("VLAN %d, %+v, %q\n%s", tag, h.port(id), h.status().Reasons, h.log)
	}
}

// startWithA starts an agent, plugs port A in through a Linux bridge, and waits until it is filtered and in its network.
func (h *hybridHost) startWithA() {
	h.t.Helper()
	h.start()
	h.plug("qvo", hybridA, 7)
	h.wired(hybridA)
}

// startWithAB does the same with ports A and B.
func (h *hybridHost) startWithAB() {
	h.t.Helper()
	h.put(hybridB, 6)
	h.start()
	h.plug("qvo", hybridA, 7)
	h.plug("qvo", hybridB, 8)
	h.wired(hybridB)
}

func TestHybridPortWaitsForItsRules(t *testing.T) {
	inHybridHost(t, func(h *hybridHost) {
		h.kernel.held = make(chan struct{})
		h.start()
		h.plug("qvo", hybridA, 7)
		wait(50 * time.Second)
		if p := h.port(hybridA); h.tag(hybridA) != world.DeadVLAN || p.Reported == "up" || p.State != "wired" {
			t.Errorf("in VLAN %d before its rules: %+v", h.tag(hybridA), p)
		}
		close(h.kernel.held)
		h.wired(hybridA)
		if rules := h.kernel.chain(chainA); !slices.Contains(rules, "-p tcp -m tcp --dport 22 -j RETURN") || h.status().Firewall != "iptables_hybrid" {
			t.Errorf("%q", rules)
		}
		for k := range h.ovs.Bridge("br-int").Flows() {
			if k.Table() >= 71 && k.Table() <= 94 {
				t.Errorf("a flow of table %d filters too", k.Table())
			}
		}
	})
}

func TestHybridRestartWritesNothing(t *testing.T) {
	inHybridHost(t, func(h *hybridHost) {
		h.startWithAB()
		flows := h.ovs.Bridge("br-int").Flows()
		for _, away := range []bool{false, true} {
			h.stop()
			h.kernel.took()
			h.kernel.before = func(*iptables.Changes) { // whatever it were, the ports would have to be in their networks
				t.Errorf("written after a restart, broker away %v", away)
			}
			if away {
				h.region.leave()
			}
			h.start()
			wait(5 * time.Minute)
			if h.kernel.took() != "" || h.tag(hybridA) != 1 || h.tag(hybridB) != 1 || !maps.Equal(flows, h.ovs.Bridge("br-int").Flows()) {
				t.Errorf("broker away %v: VLANs %d and %d", away, h.tag(hybridA), h.tag(hybridB))
			}
		}
	})
}

func TestHybridMemberIsOneLine(t *testing.T) {
	inHybridHost(t, func(h *hybridHost) {
		h.startWithA()
		h.kernel.took()
		member := fake.PluggedPort("p3", 1, "ACTIVE")
		member["id"], member["security_group_ids"] = "m", []string{"g2"}
		h.region.truth.ports["m"] = member
		h.region.push(neutron.KindPort, neutron.Created, member)
		wait(time.Second)
		if got := h.kernel.took(); got != "add NIPv4g2 10.0.5.3\n" {
			t.Errorf("%q", got)
		}
		h.region.push(neutron.KindPort, neutron.Deleted, member)
		wait(time.Second)
		if got := h.kernel.took(); got != "del NIPv4g2 10.0.5.3\n" || len(h.kernel.ended) == 0 {
			t.Errorf("%q, connections ended: %v", got, h.kernel.ended)
		}
	})
}

func TestHybridRuleClosed(t *testing.T) {
	inHybridHost(t, func(h *hybridHost) {
		h.startWithA()
		h.kernel.took()
		rule := h.region.truth.rules["r1"]
		delete(h.region.truth.rules, "r1")
		h.region.push(neutron.KindSecurityGroupRule, neutron.Deleted, rule)
		wait(time.Second)
		if got := h.kernel.took(); strings.Count(got, "\n") != 3 || !strings.Contains(got, "-D "+chainA+" ") {
			t.Errorf("%q", got)
		}
		if len(h.kernel.ended) != 1 || h.kernel.ended[0].Ports != [2]uint16{22, 22} || h.kernel.ended[0].Zone < 4097 {
			t.Errorf("%+v", h.kernel.ended)
		}
		if tag := h.tag(hybridA); tag != 1 {
			t.Errorf("VLAN %d", tag)
		}
	})
}

func TestHybridDriftIsRepaired(t *testing.T) {
	inHybridHost(t, func(h *hybridHost) {
		h.startWithA()
		want := h.kernel.chain(chainA)
		h.kernel.change(func(s *iptables.State) { s.Rules[0]["filter"][chainA] = nil })
		wait(4 * time.Minute)
		if !slices.Equal(h.kernel.chain(chainA), want) || strings.Count(h.log.String(), "changed by another program") != 1 {
			t.Errorf("%q\n%s", h.kernel.chain(chainA), h.log)
		}
		// Idle: nothing is written, nothing is logged.
		h.kernel.took()
		read := h.log.Len()
		if wait(time.Hour); h.kernel.took() != "" || h.log.Len() != read {
			t.Errorf("%s", h.log)
		}
	})
}

// A port that leaves its network loses its VLAN before its rules go.
func TestHybridPortLeaves(t *testing.T) {
	for name, leave := range map[string]func(h *hybridHost){
		"admin down": func(h *hybridHost) {
			p := maps.Clone(h.region.truth.ports[hybridA])
			p["admin_state_up"], p["revision_number"] = false, 9
			h.region.truth.ports[hybridA] = p
			h.region.push(neutron.KindPort, neutron.Updated, p)
		},
		"deleted": func(h *hybridHost) {
			p := h.region.truth.ports[hybridA]
			delete(h.region.truth.ports, hybridA)
			h.region.push(neutron.KindPort, neutron.Deleted, p)
		},
		"unplugged": func(h *hybridHost) {
			h.ovs.mu.Lock()
			defer h.ovs.mu.Unlock()
			h.ovs.DeletePort(("qvo" + hybridA)[:14])
			h.ovs.run()
		},
	} {
		inHybridHost(t, func(h *hybridHost) {
			h.startWithA()
			h.kernel.before = func(*iptables.Changes) {
				if tag := h.tag(hybridA); tag != 0 && tag != world.DeadVLAN {
					t.Errorf("%s: rules go while the port is in VLAN %d", name, tag)
				}
			}
			leave(h)
			wait(10 * time.Second)
			if _, left := h.kernel.state.Rules[0]["filter"][chainA]; left || len(h.kernel.ended) != 1 || !h.kernel.ended[0].Whole {
				t.Errorf("%s: chain left: %v, connections: %+v\n%s", name, left, h.kernel.ended, h.log)
			}
		})
	}
}

// A host that was started anew has no rules. They come back from the snapshot, without a broker, and the port is in no network before.
func TestHybridRulesFromTheSnapshot(t *testing.T) {
	for _, remembered := range []bool{true, false} {
		inHybridHost(t, func(h *hybridHost) {
			h.file = filepath.Join(t.TempDir(), "snapshot")
			h.startWithA()
			wait(time.Minute)
			want := h.kernel.chain(chainA)
			h.stop()
			h.kernel.state = newKernel().state
			h.region.leave()
			if !remembered {
				h.file += "2"
			}
			h.kernel.held = make(chan struct{})
			h.start()
			if tag := h.tag(hybridA); tag != world.DeadVLAN {
				t.Errorf("in VLAN %d without rules", tag)
			}
			close(h.kernel.held)
			wait(5 * time.Minute)
			if !remembered {
				if h.tag(hybridA) != world.DeadVLAN {
					t.Errorf("nothing is known of it, and it is in VLAN %d", h.tag(hybridA))
				}
				return
			}
			if h.tag(hybridA) != 1 || !slices.Equal(h.kernel.chain(chainA), want) {
				t.Errorf("VLAN %d, %q\n%s", h.tag(hybridA), h.kernel.chain(chainA), h.log)
			}
		})
	}
}

// Rules of ports that nobody knows stay until everything is known, and a port in its network that stays unknown is taken out of it first.
func TestHybridUnknownPorts(t *testing.T) {
	inHybridHost(t, func(h *hybridHost) {
		h.startWithA()
		h.stop()
		h.region.truth.ports[hybridA]["security_group_ids"] = []string{"nobody's"} // which the server does not know
		h.region.leave()
		h.start()
		wait(5 * time.Minute)
		if h.tag(hybridA) != 1 || len(h.kernel.chain(chainA)) == 0 {
			t.Fatalf("VLAN %d, %q", h.tag(hybridA), h.kernel.chain(chainA))
		}
		h.kernel.before = func(*iptables.Changes) {
			if tag := h.tag(hybridA); tag != world.DeadVLAN {
				t.Errorf("rules go while the port is in VLAN %d", tag)
			}
		}
		h.region.back()
		wait(5 * time.Minute)
		if h.tag(hybridA) != world.DeadVLAN || len(h.kernel.chain(chainA)) != 0 {
			t.Errorf("VLAN %d, %q, %+v %v", h.tag(hybridA), h.kernel.chain(chainA), h.port(hybridA), h.status().Reasons)
		}
	})
}

func TestHybridConditions(t *testing.T) {
	const off = "sysctl net.bridge.bridge-nf-call-iptables is 0: set it to 1"
	inHybridHost(t, func(h *hybridHost) {
		h.kernel.state.Unbridged = []string{off}
		h.start()
		h.plug("qvo", hybridA, 7)
		wait(time.Minute)
		s := h.status()
		if h.tag(hybridA) != world.DeadVLAN || s.InSync || s.Ready || !slices.Contains(s.Reasons, off) || strings.Count(h.log.String(), off) != 1 {
			t.Errorf("VLAN %d, %+v\n%s", h.tag(hybridA), s, h.log)
		}
		h.kernel.change(func(s *iptables.State) { s.Unbridged = nil })
		h.wired(hybridA)
		// Those that are in their networks stay there: their rules may be asked again at any time.
		h.kernel.change(func(s *iptables.State) { s.Unbridged = []string{off} })
		if wait(5 * time.Minute); h.tag(hybridA) != 1 || h.status().InSync {
			t.Errorf("VLAN %d", h.tag(hybridA))
		}
	})
	inHybridHost(t, func(h *hybridHost) {
		h.kernel.broken = errors.New("exec: iptables-save: not found")
		h.start()
		h.plug("qvo", hybridA, 7)
		if wait(time.Minute); h.tag(hybridA) != world.DeadVLAN || !slices.Contains(h.status().Reasons, "iptables: exec: iptables-save: not found") {
			t.Errorf("VLAN %d, %q", h.tag(hybridA), h.status().Reasons)
		}
		h.kernel.mu.Lock()
		h.kernel.broken = nil
		h.kernel.mu.Unlock()
		wait(time.Minute)
		h.wired(hybridA)
	})
}

// A port without a Linux bridge cannot be filtered. It is not wired, unless the operator wants it so.
func TestHybridPlainPort(t *testing.T) {
	for _, only := range []bool{true, false} {
		inHybridHost(t, func(h *hybridHost) {
			h.cfg.BridgedOnly = only
			h.start()
			h.plug("tap", hybridA, 7)
			wait(10 * time.Second)
			p := h.port(hybridA)
			if tag := h.tag(hybridA); (tag == world.DeadVLAN) != only || (p.Reported == "up") == only || only != strings.Contains(p.Reason, "iptables cannot filter it") {
				t.Errorf("only %v: VLAN %d, %+v", only, tag, p)
			}
		})
	}
}

// From iptables_hybrid to openvswitch and back: flows come first, then the rules of that port go, at last what ports share, and the mark tells.
func TestHybridToOpenvswitchAndBack(t *testing.T) {
	inHybridHost(t, func(h *hybridHost) {
		h.startWithAB()
		h.stop()
		h.kernel.took()
		mark := func() string { return h.ovs.view().BridgeByName("br-int").OtherConfig["iptables_cleaned"] }
		h.kernel.before = func(c *iptables.Changes) {
			for id, number := range map[string]string{hybridA: "in_port=7", hybridB: "in_port=8"} {
				gone := strings.Contains(c.Rules[0], "-X neutron-openvswi-i"+id[:10])
				filtered := false
				for _, e := range h.ovs.Bridge("br-int").Flows() {
					filtered = filtered || e.Table() == 71 && strings.Contains(e.String(), "reg5=0x"+number[len("in_port="):])
				}
				if gone && !filtered {
					t.Errorf("rules of %s go before its flows come", id)
				}
			}
		}
		hybrid := h.cfg
		h.cfg.Hybrid, h.cfg.BridgedOnly, h.cfg.AntiSpoof, h.cfg.FilterTables, h.cfg.FailClosed = false, false, false, true, true
		h.start()
		wait(2 * time.Minute)
		if left := h.kernel.state; left.Ours() || len(left.Sets) > 0 || mark() != "true" || h.tag(hybridA) != 1 || !h.status().InSync {
			t.Errorf("mark %q, VLAN %d, left: %v, %q\n%s", mark(), h.tag(hybridA), left.Rules[0]["filter"], h.status().Reasons, h.log)
		}
		// With the mark nothing is read or written.
		h.stop()
		h.kernel.took()
		h.kernel.broken = errors.New("iptables is not asked")
		h.start()
		if wait(5 * time.Minute); !h.status().InSync {
			t.Errorf("%q", h.status().Reasons)
		}
		h.stop()
		h.kernel.broken, h.kernel.before, h.cfg = nil, nil, hybrid
		h.kernel.held = make(chan struct{})
		h.start()
		wait(time.Minute)
		led := 0
		for k := range h.ovs.Bridge("br-int").Flows() {
			if k.Table() == 60 && k.Priority() == 100 {
				led++
			}
		}
		if h.tag(hybridA) != 1 || led < 2 {
			t.Errorf("before its rules: VLAN %d, flows lead %d ports to filters", h.tag(hybridA), led)
		}
		close(h.kernel.held)
		h.wired(hybridA)
		wait(time.Minute)
		for k := range h.ovs.Bridge("br-int").Flows() {
			if k.Table() >= 71 && k.Table() <= 94 {
				t.Errorf("a flow of table %d is left", k.Table())
			}
		}
		if mark() != "" || len(h.kernel.chain(chainA)) == 0 {
			t.Errorf("back: mark %q, %q", mark(), h.kernel.chain(chainA))
		}
	})
}

// A rule that the host refuses costs its port, and nobody else.
func TestHybridRuleRefused(t *testing.T) {
	inHybridHost(t, func(h *hybridHost) {
		b := h.put(hybridB, 6)
		b["security_group_ids"] = []string{"g3"}
		h.region.truth.rules["r3"] = map[string]any{"id": "r3", "security_group_id": "g3", "ethertype": "IPv4", "direction": "ingress", "protocol": "sctp", "revision_number": 1}
		h.kernel.refuses = "-p sctp "
		h.start()
		h.plug("qvo", hybridB, 8)
		h.plug("qvo", hybridA, 7)
		wait(10 * time.Second)
		if h.tag(hybridA) != 1 || h.tag(hybridB) != world.DeadVLAN {
			t.Fatalf("VLANs %d and %d\n%s", h.tag(hybridA), h.tag(hybridB), h.log)
		}
		if s := h.status(); s.InSync || !strings.Contains(strings.Join(s.Reasons, ""), "port "+hybridB+" does not have the iptables rules") {
			t.Errorf("%q", s.Reasons)
		}
		// A port that has rules keeps them, and others are changed meanwhile.
		rule := h.rule("r9", map[string]any{"direction": "ingress", "protocol": "sctp"})
		h.region.push(neutron.KindSecurityGroupRule, neutron.Created, rule)
		wait(10 * time.Second)
		if rules := h.kernel.chain(chainA); h.tag(hybridA) != 1 || !slices.Contains(rules, "-p tcp -m tcp --dport 22 -j RETURN") {
			t.Errorf("VLAN %d, %q", h.tag(hybridA), rules)
		}
		// A restart does not know what the port had, and leaves it.
		h.stop()
		h.start()
		wait(time.Minute)
		if rules := h.kernel.chain(chainA); h.tag(hybridA) != 1 || !slices.Contains(rules, "-p tcp -m tcp --dport 22 -j RETURN") {
			t.Errorf("after a restart: VLAN %d, %q", h.tag(hybridA), rules)
		}
		h.kernel.mu.Lock()
		h.kernel.refuses = ""
		h.kernel.mu.Unlock()
		wait(5 * time.Minute)
		h.wired(hybridA)
		h.wired(hybridB)
	})
}

// explain names the security group rule of each rule.
func TestHybridRulesAreExplained(t *testing.T) {
	inHybridHost(t, func(h *hybridHost) {
		h.startWithA()
		if rules := h.port(hybridA).Rules; !slices.Contains(rules, "iptables -A "+chainA+" -p tcp -m tcp --dport 22 -j RETURN  # security group rule r1") || len(rules) < 20 {
			t.Errorf("%q", rules)
		}
	})
}

// An address that leaves an address group leaves the set, and its connections end.
func TestHybridAddressGroup(t *testing.T) {
	inHybridHost(t, func(h *hybridHost) {
		list := func(revision int, addresses ...string) map[string]any {
			all := []any{}
			for _, a := range addresses {
				all = append(all, fake.Wrapped(map[string]any{"address": a, "address_group_id": "a1"}))
			}
			return map[string]any{"id": "a1", "revision_number": revision, "addresses": all}
		}
		h.region.truth.addresses["a1"] = list(1, "10.0.7.0/24", "10.0.8.8/32")
		h.rule("r4", map[string]any{"direction": "ingress", "remote_address_group_id": "a1"})
		h.startWithA()
		h.kernel.took()
		h.region.truth.addresses["a1"] = list(2, "10.0.8.8/32")
		h.region.push(neutron.KindAddressGroup, neutron.Updated, h.region.truth.addresses["a1"])
		wait(time.Second)
		if got := h.kernel.took(); got != "del NIPv4a1 10.0.7.0/24\n" || len(h.kernel.ended) == 0 {
			t.Errorf("%q, %v", got, h.kernel.ended)
		}
		h.region.truth.addresses["a1"] = list(3)
		h.region.push(neutron.KindAddressGroup, neutron.Updated, h.region.truth.addresses["a1"])
		wait(time.Second)
		if got := h.kernel.took(); got != "del NIPv4a1 10.0.8.8\n" {
			t.Errorf("%q", got)
		}
	})
}
