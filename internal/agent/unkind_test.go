// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/dvr"
	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/observe"
	"github.com/patchbay-sdn/patchbay/internal/qos"
	"github.com/patchbay-sdn/patchbay/internal/trunk"
	"github.com/patchbay-sdn/patchbay/internal/world"
	sim "github.com/patchbay-sdn/patchbay/lab/sim/region"
	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

var (
	unkindHistories = flag.Int("unkind", 40, "random histories of an agent and an unkind server")
	unkindSeed      = flag.Uint64("unkindseed", 1, "seed of these histories; 0: new ones")
)

// TestUnkindServer lets an agent live while the cloud changes at random and the server is unkind: what it tells and answers is
// late, crosses, comes twice, fails or is lost, its release is any, and ports wait for a DHCP agent as well. When that ends,
// all flows, meters and rows, and the status of every port, are those of a fresh agent that asks a kind server. On some hosts VMs are behind Linux
// bridges, and iptables filters them; see bridged.
func TestUnkindServer(t *testing.T) {
	playHistories(t, seedOf(t, *unkindSeed), *unkindHistories, func(t *testing.T, rnd *rand.Rand, n int) {
		newUnkindHistory(t, rnd, n%4 == hybridEvery, false).play()
	})
}

// unkindHistory is a host and the cloud around it.
type unkindHistory struct {
	t    *testing.T
	rnd  *rand.Rand
	cfg  world.Config
	more []extension.New
	ovs  *fakeOVS
	dir  string

	cloud    *sim.Region
	how      sim.Unkind
	networks []*sim.Network
	local    []string // ports of VMs, some of which do not exist yet
	vms      []string // these, and those that were deleted
	groups   []string
	rules    []string
	lists    []string
	policies []string
	away     map[string]bool // ports of other hosts
	address  map[string]int  // of tunnel endpoints: the last number
	subs     map[string]bool // of the trunk
	number   int

	life    *life
	link    *sim.Link
	agent   *Agent
	session *ovsSession
	stop    func()
	story   []string
	log     *logBuffer // of the agents

	bridged *bridged // nil: VMs are plugged in directly
	taped   bool
	tapes   []*keptTape // of each life, if they are kept
}

var unkindHosts = []string{"hv2", "hv3"}

func newUnkindHistory(t *testing.T, rnd *rand.Rand, hybrid, taped bool) *unkindHistory {
	filter := rnd.IntN(3) > 0
	h := &unkindHistory{
		t: t, rnd: rnd, ovs: newFakeOVS(), dir: t.TempDir(), log: &logBuffer{}, away: map[string]bool{}, address: map[string]int{}, subs: map[string]bool{}, local: []string{"A", "B", "C", "D", "E"},
		cfg: world.Config{
			Host: "hv1", IntegrationBridge: "br-int", TunnelBridge: "br-tun", IntPatch: "patch-tun", TunPatch: "patch-int",
			Physical: map[string]string{"physnet1": "br-ex"}, LocalIP: netip.MustParseAddr("10.0.0.1"), TunnelTypes: []string{"vxlan", "gre"},
			L2Population: rnd.IntN(2) == 0, Filter: filter, FilterTables: filter, FailClosed: filter, AntiSpoof: !filter,
		},
	}
	h.cfg.ARPResponder = h.cfg.L2Population
	h.taped = taped
	if hybrid {
		h.bridged = newBridged(h)
		filter = true
	} else if rnd.IntN(2) == 0 {
		h.more = []extension.New{dvr.New, trunk.New, qos.New}
	}
	h.ovs.rows["Bridge"][rowID("br-ex")] = map[string]any{"_uuid": rowID("br-ex"), "name": "br-ex"} // the operator's
	h.ovs.mu.Lock()
	h.ovs.run()
	h.ovs.mu.Unlock()
	h.how = sim.Unkind{
		Seed: rnd.Uint64(), Delay: pick(rnd, time.Second, 3*time.Second), Reorder: rnd.IntN(4) > 0, Duplicate: 0.2,
		Fail: pick(rnd, 0, 0.1, 0.2), Lose: pick(rnd, 0, 0, 0.05), Devices: pick(rnd, 0, 0.3, 0.6),
	}
	h.cloud = sim.New(sim.Config{
		Release: pick(rnd, 17, 18, 19, 20, 21, 21, 21, 23, 26, 26, 29, 29), Seed: rnd.Uint64() | 1,
		DHCP: time.Duration(rnd.IntN(2)) * 3 * time.Second,
	})
	t.Cleanup(h.cloud.Close)
	h.note("release %d, l2population %v, filters %v, %d extensions", h.cloud.Release(), h.cfg.L2Population, filter, len(h.more))
	h.vms = slices.Clone(h.local)
	h.begin()
	return h
}

// begin makes the cloud before any agent starts.
func (h *unkindHistory) begin() {
	h.cloud.AddAgent("hv1", netip.MustParseAddr("10.0.0.1"))
	for i, host := range unkindHosts {
		h.address[host] = 2 + i
		h.endpoint(host)
	}
	for i, s := range regionSegments() {
		n, err := h.cloud.CreateNetwork(h.ctx(), sim.NetworkSpec{Segment: sim.Segment{
			NetworkType: s.kind, PhysicalNetwork: s.physnet, SegmentationID: max(s.id, 0),
		}})
		h.must(err)
		_, err = h.cloud.CreateSubnet(h.ctx(), sim.SubnetSpec{NetworkID: n.ID, CIDR: netip.MustParsePrefix(fmt.Sprintf("10.%d.0.0/24", i))})
		h.must(err)
		h.networks = append(h.networks, n)
	}
	for range 3 {
		g, err := h.cloud.CreateGroup(h.ctx(), sim.GroupSpec{})
		h.must(err)
		h.groups = append(h.groups, g.ID)
	}
	for range 2 {
		g, err := h.cloud.CreateAddressGroup(h.ctx(), "", "")
		h.must(err)
		h.lists = append(h.lists, g.ID)
		id, err := h.cloud.CreatePolicy(h.ctx(), "", h.drawPolicy()...)
		h.must(err)
		h.policies = append(h.policies, id)
	}
	for range 4 {
		h.addRule()
	}
	for _, id := range []string{h.local[0], h.local[1], trunkParent, "7", "8"} {
		h.createPort(id, "hv1")
	}
	h.createPort("", pick(h.rnd, unkindHosts...))
	// Somebody else is always there: a server that has no entries to send sends no message, and what was known stays in force.
	h.address["hv9"] = 9
	h.endpoint("hv9")
	for _, n := range h.networks {
		on, owner, host, none := true, "compute:nova", "hv9", []string{}
		p, err := h.cloud.CreatePort(h.ctx(), sim.PortSpec{NetworkID: &n.ID, Host: &host, AdminUp: &on, DeviceOwner: &owner, Groups: &none})
		h.must(err)
		h.wire(p.ID, host)
	}
	h.must(h.cloud.CreateTrunk(h.ctx(), trunkID, trunkParent))
	early := h.rnd.IntN(3) == 0
	if early {
		h.cloud.Be(h.how)
	}
	h.live()
	wait(time.Second) // for the bridges
	h.plug(h.local[0])
	h.plug(h.local[1])
	if !early { // so that there is something to spoil
		wait(5 * time.Second)
		h.cloud.Be(h.how)
	}
}

func (h *unkindHistory) ctx() context.Context { return h.t.Context() }

func (h *unkindHistory) must(err error) {
	h.t.Helper()
	if err != nil {
		h.fail("%v", err)
	}
}

func (h *unkindHistory) note(format string, args ...any) {
	h.story = append(h.story, time.Since(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)).String()+" "+fmt.Sprintf(format, args...))
}

// fail ends the test with the history that led there.
func (h *unkindHistory) fail(format string, args ...any) {
	h.t.Helper()
	h.t.Fatalf("%s\nafter: %s\n%s", fmt.Sprintf(format, args...), strings.Join(h.story, "\n       "), h.log)
}

// live starts an agent.
func (h *unkindHistory) live() {
	h.life = newLife(0, func() {})
	if h.taped {
		kept := &keptTape{}
		h.life.tape = kept
		h.tapes = append(h.tapes, kept)
	}
	if h.bridged != nil {
		h.bridged.live(h)
	}
	h.agent, h.session, h.stop = h.start(h.ovs, h.life, filepath.Join(h.dir, "snapshot"), &h.link)
}

func (h *unkindHistory) start(ovs *fakeOVS, l *life, file string, link **sim.Link) (*Agent, *ovsSession, func()) {
	a, session, cancel, done := startAgent(h.t, h.cfg, ovs, l, func(onEvent func(messaging.Event)) Broker {
		*link = h.cloud.Join("hv1", onEvent)
		return *link
	}, func(a *Agent) { watchGate(h.t, a) }, file, observe.NewLogger(h.log, slog.LevelInfo), h.more...)
	return a, session, func() {
		l.crash()
		_ = (*link).Close(context.Background())
		cancel()
		if err := <-done; err != nil {
			h.fail("the agent ended with %v", err)
		}
		ovs.leave(session)
	}
}

// ofAgent is what an agent says of itself, without which the server binds no port to its host.
func ofAgent(cfg world.Config) neutron.Configurations {
	c := neutron.Configurations{BridgeMappings: cfg.Physical, TunnelTypes: cfg.TunnelTypes, IntegrationBridge: cfg.IntegrationBridge, L2Population: cfg.L2Population}
	if ip := cfg.LocalIP.String(); cfg.LocalIP.IsValid() {
		c.TunnelingIP = &ip
	}
	return c
}

// play is one history: changes while the server is unkind, then rest.
func (h *unkindHistory) play() {
	for range 6 + h.rnd.IntN(12) {
		h.burst()
		wait(time.Duration(h.rnd.IntN(4000)) * time.Millisecond)
	}
	h.finale()
	h.bindBack()
	h.note("rest")
	h.bridged.rest()
	h.cloud.Be(sim.Unkind{})
	h.link.Back()
	wait(5 * time.Minute)
	got, status := unlimited(described(h.ovs, vlansOf(h.agent))), h.status()
	h.stop()
	ovs := h.ovs.clone()
	ovs.strip()
	var link *sim.Link
	alone, empty := newLife(0, func() {}), newKernel()
	if h.bridged != nil {
		alone.rules = empty
	}
	fresh, _, stop := h.start(ovs, alone, "", &link)
	wait(5 * time.Minute)
	want, right := unlimited(described(ovs, vlansOf(fresh))), h.status()
	stop()
	if diff := difference(got, want); diff != "" {
		h.fail("flows, meters and rows are not those of a fresh agent:\n%s", diff)
	}
	if h.bridged != nil && h.cfg.Hybrid {
		if diff := difference(h.bridged.kernel.described(empty), empty.described(empty)); diff != "" {
			h.fail("rules of iptables are not those of a fresh agent:\n%s", diff)
		}
	}
	if !maps.Equal(status, right) {
		h.fail("the server has %v; after a fresh agent has reported, %v", status, right)
	}
}

// A port that comes under filters waits for them in no network, and the forwarding entries of a network go with its last port.
// When the port is back the server, for which nothing has happened, is asked for them again.
func TestForwardingEntriesOfAPortThatComesUnderFilters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newUnkindHistory(t, rand.New(rand.NewPCG(1, 1)), false, false)
		h.cloud.Be(sim.Unkind{})
		h.stop()
		h.cfg.L2Population, h.cfg.Filter, h.cfg.FilterTables, h.cfg.FailClosed, h.cfg.AntiSpoof = true, true, true, true, false
		h.live()
		on, owner, host, id, mac, secure := true, "compute:nova", "hv1", "C", macOf("C"), false
		h.ovs.unplug("A")
		h.ovs.unplug("B")
		_, err := h.cloud.CreatePort(h.ctx(), sim.PortSpec{
			ID: &id, MAC: &mac, NetworkID: &h.networks[0].ID, AdminUp: &on, DeviceOwner: &owner, Host: &host, PortSecurity: &secure,
		})
		h.must(err)
		h.plug(id)
		wait(time.Minute)
		tunnelled := func() (n int) {
			for line := range described(h.ovs, vlansOf(h.agent)) {
				if strings.Contains(line, "output:vxlan-0a000009") {
					n++
				}
			}
			return n
		}
		before := tunnelled()
		secure = true
		_, err = h.cloud.UpdatePort(h.ctx(), id, sim.PortSpec{PortSecurity: &secure, Groups: &h.groups})
		h.must(err)
		wait(time.Minute)
		if after := tunnelled(); before < 2 || after != before {
			t.Errorf("%d flows lead to the other host, %d before\n%s", after, before, h.log)
		}
		h.stop()
	})
}

// unlimited leaves out the limits of ports that are in no network: they stay until the port is unplugged, and nothing passes it.
func unlimited(lines map[string]bool) map[string]bool {
	maps.DeleteFunc(lines, func(line string, _ bool) bool {
		f := strings.Fields(line)
		return lines["Port "+f[1]+" tag=dead"] && (strings.Contains(line, " ingress_policing=") || limitNoted.MatchString(line))
	})
	return lines
}

var limitNoted = regexp.MustCompile(`^Port \S+ (other_config:\S+_[ei][ng]+ress=|qos=)`)

// status is that of all local ports, and of the trunk.
func (h *unkindHistory) status() map[string]string {
	all := map[string]string{"trunk": h.cloud.TrunkStatus(trunkID)}
	for _, id := range slices.Concat(h.vms, []string{trunkParent, "7", "8"}) {
		all[id] = h.cloud.Status(id)
	}
	return all
}

// endpoint has another host's agent report, with its tunnel endpoint, as the real one does after a restart.
func (h *unkindHistory) endpoint(host string) {
	ip := fmt.Sprintf("10.0.0.%d", h.address[host])
	h.cloud.AddAgent(host, netip.MustParseAddr(ip))
	for _, kind := range h.cfg.TunnelTypes {
		h.call(host, "1.4", "tunnel_sync", map[string]any{"tunnel_ip": ip, "tunnel_type": kind, "host": host})
	}
}

// call is one of another host's agent, which does it again until it succeeds.
func (h *unkindHistory) call(host, version, method string, args map[string]any) {
	body, err := json.Marshal(args)
	h.must(err)
	for range 100 {
		_, err = h.cloud.Handle(h.ctx(), &messaging.Message{Topic: "q-plugin", Version: version, Method: method, Args: body})
		if err == nil {
			return
		}
	}
	h.fail("%s of %s: %v", method, host, err)
}

func (h *unkindHistory) plug(id string) {
	h.number++
	h.ovs.plug(id, h.number, pick(h.rnd, 10, 20, 30)+int(strings.ToUpper(id)[0]-'A'))
}

func (h *unkindHistory) specs() sim.PortSpec {
	on, owner := h.rnd.IntN(8) > 0, pick(h.rnd, "compute:nova", "compute:nova", "compute:nova", "network:dhcp")
	secure := h.rnd.IntN(5) > 0 && owner != "network:dhcp"
	groups, pairs := []string{}, []sim.AddressPair{}
	if secure {
		groups = some(h.rnd, h.groups...)
		if h.rnd.IntN(4) == 0 {
			pairs = append(pairs, sim.AddressPair{MAC: "00:00:5e:00:01:01", IP: pick(h.rnd, "10.9.0.0/16", "0.0.0.0/0")})
		}
	}
	policy := pick(h.rnd, append(slices.Clone(h.policies), "")...)
	return sim.PortSpec{AdminUp: &on, DeviceOwner: &owner, PortSecurity: &secure, Groups: &groups, Pairs: &pairs, Policy: &policy}
}

// createPort makes a port on a host; one without a name is another host's, which wires it.
func (h *unkindHistory) createPort(id, host string) {
	spec := h.specs()
	if id == trunkParent || id == "7" || id == "8" {
		owner := "compute:nova"
		spec.DeviceOwner = &owner
	}
	if id != "" {
		mac := macOf(id)
		spec.ID, spec.MAC = &id, &mac
	} else {
		on := true
		spec.AdminUp = &on
	}
	h.bridged.keep(id, &spec)
	network := pick(h.rnd, h.networks...).ID
	spec.NetworkID, spec.Host = &network, &host
	h.keepOn(&spec, network)
	p, err := h.cloud.CreatePort(h.ctx(), spec)
	h.must(err)
	h.note("create port %s on %s in %s, on: %v, owner %s", p.ID, host, network, *spec.AdminUp, *spec.DeviceOwner)
	if id == "" {
		h.away[p.ID] = true
		h.wire(p.ID, host)
	}
}

// keepOn leaves a port of a network with tunnels switched on: what becomes of the tunnels of a network whose only port is off
// depends on whether it ever was on, here as with Python.
func (h *unkindHistory) keepOn(spec *sim.PortSpec, network string) {
	if on := true; network == h.networks[0].ID || network == h.networks[1].ID {
		spec.AdminUp = &on
	}
}

// wire has another host report a port, until it is taken.
func (h *unkindHistory) wire(id, host string) {
	h.call(host, "1.8", "update_device_up", map[string]any{"device": id, "agent_id": host, "host": host, "refresh_tunnels": true})
}

// addRule gives a group a rule, and says which.
func (h *unkindHistory) addRule() string {
	// Mostly a group that is in force here.
	groups := h.groups
	for _, id := range h.local {
		groups = slices.Concat(groups, h.cloud.GroupsOf(id), h.cloud.GroupsOf(id))
	}
	spec := sim.RuleSpec{GroupID: pick(h.rnd, groups...), Direction: pick(h.rnd, "ingress", "ingress", "egress")}
	switch h.rnd.IntN(4) {
	case 0:
		spec.RemoteGroup = pick(h.rnd, h.groups...)
	case 1:
		if h.knowsAddressGroups() {
			spec.RemoteAddressGroup = pick(h.rnd, h.lists...)
		}
	case 2:
		spec.RemotePrefix = "10.0.0.0/8"
	}
	if low, high := 80+h.rnd.IntN(5), 85+h.rnd.IntN(9); h.rnd.IntN(2) == 0 {
		spec.Protocol, spec.PortMin, spec.PortMax = "tcp", &low, &high
	}
	r, err := h.cloud.CreateRule(h.ctx(), spec)
	h.must(err)
	h.rules = append(h.rules, r.ID)
	h.note("add rule %.4s to %.4s: %s from %.4s%.4s%s", r.ID, r.GroupID, r.Direction, r.RemoteGroup, r.RemoteAddressGroup, r.RemotePrefix)
	return r.ID
}

func (h *unkindHistory) drawPolicy() []sim.PolicyRule {
	return some(h.rnd,
		sim.PolicyRule{Kind: "QosDscpMarkingRule", Fields: map[string]any{"dscp_mark": 2 * h.rnd.IntN(4)}},
		sim.PolicyRule{Kind: "QosBandwidthLimitRule", Fields: map[string]any{"max_kbps": 1000 * (1 + h.rnd.IntN(2)), "max_burst_kbps": 100, "direction": "egress"}},
		sim.PolicyRule{Kind: "QosPacketRateLimitRule", Fields: map[string]any{"max_kpps": 1 + h.rnd.IntN(2), "max_burst_kpps": 0, "direction": "ingress"}})
}
