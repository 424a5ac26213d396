// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/patchbay-sdn/patchbay/lab"
	"github.com/patchbay-sdn/patchbay/lab/hostile"
)

const (
	envFrames = "FRAMES" // how many frames of each round: 20000
	envSeed   = "SEED"   // of the generator; 0 is a new one

	// permitted is an Ethernet type that an operator lets pass.
	permitted = 0x4008
	// egressDirect sends frames straight to their port by MAC and VLAN.
	egressDirect = "agent.explicitly_egress_direct=true"
	// dropFragments: the switch may let fragments out into other networks otherwise.
	dropFragments = "patchbay.drop_fragments=true"
	// inFlight is how many frames are sent before something must have arrived: fewer than any queue on the way holds.
	inFlight = 48
)

// TestHostile has a VM send frames of every kind, with forged fields, as fast as the switch takes them. Its group allows all
// that it may send. Whatever anybody receives must be from an address that the sender owns, no other tenant receives anything, and
// no switch ever has a MAC on a port that does not own it. Every so many frames one is sent that must arrive, and nothing more is
// sent before it has: so all the others were looked at.
func TestHostile(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	start := time.Now()
	seed := uint64(setting(t, envSeed, 1))
	if seed == 0 {
		seed = uint64(start.UnixNano())
	}
	frames := setting(t, envFrames, 20_000)
	agent := agentUnderTest(t)
	x := &hostileVM{seed: seed, frames: frames}
	x.filtered = &filtered{agent: agent, cloud: &cloud{l: lab.New(t, 2), ctx: ctx, round: round{name: string(agent)}}}
	fmt.Printf("SEED=%d FRAMES=%d\n", seed, frames)
	t.Cleanup(x.close)
	t.Cleanup(func() { x.print(); x.table.print(time.Since(start)) })
	for i, r := range []hostileRound{
		{name: "openvswitch", overrides: []string{filtering, dropFragments}, filtered: true},
		{name: "openvswitch, permitted type, address pairs", overrides: []string{filtering, dropFragments, fmt.Sprintf("securitygroup.permitted_ethertypes=0x%x", permitted)}, filtered: true, pairs: true},
		{name: "openvswitch, egress direct", overrides: []string{filtering, dropFragments, egressDirect}, filtered: true},
		{name: "noop"},
		{name: "noop, egress direct", overrides: []string{egressDirect}},
	} {
		x.round.name = r.name
		if !x.run(t, "agents start", "2", func(t *testing.T) { x.restart(t, r) }) {
			return
		}
		if i == 0 && !x.run(t, "VMs are wired", "2", x.prepare) {
			return
		}
		x.run(t, "address pairs are as they should be", "2", func(t *testing.T) { x.pair(t, r) })
		x.run(t, "an advertisement of its own address under another MAC", "2", x.forgedAdvertisement)
		x.run(t, "ARP frames under the VLAN of another network", "2", x.otherVLANs)
		if r.pairs {
			x.run(t, "a permitted type under another MAC", "2", x.forgedType)
		}
		x.run(t, "generated frames", "2", func(t *testing.T) { x.storm(t, r) })
		if i == 0 {
			x.run(t, "two networks whose VLANs have the same number, and VMs the same MAC", "2", x.sameVLAN)
			x.run(t, "an address pair with a neighbour's MAC", "2", x.pairedMAC)
		}
	}
}

type hostileRound struct {
	name      string
	overrides []string
	filtered  bool
	pairs     bool
}

// hostileVM is a cloud with a VM that means harm.
type hostileVM struct {
	*filtered
	seed   uint64
	frames int
	self   *vm
	pairs  []pair
	// friend is a filtered VM of the same network and host.
	friend  *vm
	results []*hostileResult
}

// pair is an address pair of the VM's port.
type pair struct {
	MAC string `json:"mac_address"`
	IP  string `json:"ip_address"`
}

// hostileResult is what a round has counted.
type hostileResult struct {
	round    string
	sent     map[string]int
	arrived  map[string]int
	stray    int
	polls    int
	entries  int
	controls int
	lost     int
	missed   int
	drops    int
	took     time.Duration
	wrong    int
	heard    map[string]int
}

func (x *hostileVM) restart(t *testing.T, r hostileRound) {
	x.eachHost(t, func(h *lab.Host) error {
		if err := h.StopAgent(x.ctx); err != nil {
			return err
		}
		return h.StartAgent(x.ctx, x.agent, r.overrides...)
	})
}

// prepare wires the VM, its neighbours, who hear everything or are filtered, and those of another tenant; and opens the operator's tap.
func (x *hostileVM) prepare(t *testing.T) {
	x.networks(t)
	x.open = x.group(t, "open")
	x.allow(t, x.open, everything()...)
	open, bare := attributes{"security_groups": []string{x.open}}, attributes{"port_security_enabled": false}
	x.rogues = map[int]*vm{}
	add := func(n *network, number, host int, extra attributes) *vm {
		v := n.add(number, host)
		v.extra = extra
		return v
	}
	x.rogues[1], x.rogues[2] = add(x.blue, 1, 1, bare), add(x.blue, 2, 2, bare)
	x.friend, x.self = add(x.blue, 3, 1, open), add(x.blue, 4, 1, open)
	add(x.red, 1, 1, bare)
	add(x.red, 2, 2, bare)
	add(x.red, 5, 1, open)
	x.plugPlanned(t)
	for _, v := range x.vms() { // the host's end of the VM's link would speak to it
		if out, err := x.l.Host(v.host).Command(x.ctx, "sysctl", "-qw", "net.ipv6.conf."+v.Tap+".disable_ipv6=1").CombinedOutput(); err != nil {
			t.Fatalf("silencing %s: %v: %s", v.Tap, err, out)
		}
	}
	for _, to := range []*vm{x.rogues[1], x.rogues[2], x.friend} {
		x.mustPass(t, x.self, to)
	}
	x.mustPass(t, x.red.vms[0], x.red.vms[1])
	h := x.l.Host(1)
	for _, cmd := range [][]string{
		{"ip", "link", "add", "own0", "type", "veth", "peer", "name", "own0p"},
		{"sysctl", "-qw", "net.ipv6.conf.own0.disable_ipv6=1", "net.ipv6.conf.own0p.disable_ipv6=1"},
		{"ip", "link", "set", "own0", "up"}, {"ip", "link", "set", "own0p", "up"},
		{"ovs-vsctl", "add-port", "br-int", "own0"},
	} {
		if out, err := h.Command(x.ctx, cmd[0], cmd[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", cmd, err, out)
		}
	}
}

// mustPass sends what the rules of both allow, until it arrives.
func (x *hostileVM) mustPass(t *testing.T, from, to *vm) {
	t.Helper()
	if !x.eventually(wired, func() bool {
		k := x.token()
		if err := from.probe.send(bare(to, from.MAC, from.v4, from.v6, 4, k)); err != nil {
			t.Fatal(err)
		}
		return x.eventually(silence, func() bool { return to.probe.saw(k) > 0 })
	}) {
		t.Fatalf("no packet of %s arrives at %s", from.name, to.name)
	}
}

// pair gives the VM's port address pairs, or takes them away, and waits until they count.
func (x *hostileVM) pair(t *testing.T, r hostileRound) {
	x.pairs = []pair{}
	if r.pairs {
		x.pairs = []pair{{"02:0b:ad:00:00:01", "192.168.100.64/28"}, {x.self.MAC, "fd00:e2e::4000/116"}}
	}
	x.update(t, x.self, attributes{"allowed_address_pairs": x.pairs})
	for _, to := range []*vm{x.rogues[1], x.friend} {
		x.mustPass(t, x.self, to)
	}
	if r.pairs {
		x.mustPass(t, &vm{VM: &lab.VM{MAC: x.pairs[0].MAC}, name: "the pair", v4: "192.168.100.65", v6: x.self.v6, probe: x.self.probe}, x.rogues[1])
	}
}

// macs are those that a VM may send under.
func (x *hostileVM) macs(v *vm) []string {
	list := []string{v.MAC}
	if v == x.self {
		for _, p := range x.pairs {
			list = append(list, p.MAC)
		}
	}
	return list
}

// rules are what the VM may say.
func (x *hostileVM) rules(filtered bool) hostile.Rules {
	r := hostile.Rules{Filtered: filtered}
	prefix := func(s string) {
		if p, err := netip.ParsePrefix(s); err == nil {
			r.IPs = append(r.IPs, p)
			return
		}
		a := netip.MustParseAddr(s)
		r.IPs = append(r.IPs, netip.PrefixFrom(a, a.BitLen()))
	}
	for _, mac := range x.macs(x.self) {
		r.MACs = append(r.MACs, hw(mac))
		prefix(hostile.LinkLocal(hw(mac)).String())
	}
	prefix(x.self.v4)
	prefix(x.self.v6)
	for _, p := range x.pairs {
		prefix(p.IP)
	}
	return r
}

func (x *hostileVM) party(v *vm) hostile.Party {
	return hostile.Party{MAC: hw(v.MAC), V4: netip.MustParseAddr(v.v4), V6: netip.MustParseAddr(v.v6)}
}

func (x *hostileVM) cast(t *testing.T) hostile.Cast {
	c := hostile.Cast{Own: x.party(x.self), EtherTypes: []uint16{permitted}}
	for _, v := range x.blue.vms {
		if v != x.self {
			c.Neighbours = append(c.Neighbours, x.party(v))
		}
	}
	for _, v := range x.red.vms {
		c.Strangers = append(c.Strangers, x.party(v))
	}
	// Nobody has the gateway's MAC here: whoever gets the switch to take it for the gateway is found by that.
	c.Gateway = hostile.Party{MAC: hw("fa:16:3e:00:00:fe"), V4: netip.MustParseAddr("192.168.100.1"), V6: netip.MustParseAddr("fd00:e2e::1")}
	for _, v := range []*vm{x.self, x.red.vms[0]} {
		c.VLANs = append(c.VLANs, x.localVLAN(t, v))
	}
	return c
}

// storm sends the generated frames.
func (x *hostileVM) storm(t *testing.T, r hostileRound) {
	cast := x.cast(t)
	x.wait(time.Second) // for what others have said before
	s := &storm{hostileVM: x, rules: x.rules(r.filtered), cast: cast, result: &hostileResult{
		round: r.name, sent: map[string]int{}, arrived: map[string]int{}, heard: map[string]int{},
	}, numbers: map[uint64]bool{}, kindOf: map[uint64]string{}, sorts: map[string]int{}}
	x.results = append(x.results, s.result)
	s.listen(t)
	defer s.close()
	before := x.socketDrops(t)
	ended := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() { s.watchTables(ended) })
	began := time.Now()
	s.send(t)
	x.wait(silence)
	close(ended)
	watch.Wait()
	s.look() // once more, after all of it
	s.result.took = time.Since(began)
	s.result.drops = x.socketDrops(t) - before
	s.mu.Lock()
	defer s.mu.Unlock()
	for n := range s.numbers {
		s.result.arrived[s.kindOf[n]]++
	}
	for _, p := range s.ears {
		s.result.missed += p.missed()
	}
	s.verdict(t)
}

// storm is one round of generated frames.
type storm struct {
	*hostileVM
	rules  hostile.Rules
	cast   hostile.Cast
	ears   []*probe
	result *hostileResult

	mu      sync.Mutex
	numbers map[uint64]bool
	kindOf  map[uint64]string // by number
	sorts   map[string]int
	wrong   []string
	control atomic.Uint64 // the last control frame that has arrived
}

// heard judges a frame that somebody has received. Anything in it is said by the VM: nobody else sends, but the other tenant's
// control frames.
func (s *storm) heard(at string, frame []byte, vlan uint16, rules func(frame []byte, vlan uint16) string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.result.heard[at]++
	if k, ok := tokenIn(frame); ok && uint64(k) > s.control.Load() && !strings.HasPrefix(at, "operator") {
		s.control.Store(uint64(k))
	}
	if n, ok := hostile.NumberIn(frame); ok {
		s.numbers[n] = true
	}
	if wrong := rules(frame, vlan); wrong != "" {
		kind := "a frame without a number"
		if n, ok := hostile.NumberIn(frame); ok {
			kind = s.kindOf[n]
		}
		sort, _, _ := strings.Cut(wrong, ":")
		if f := strings.Fields(sort); len(f) > 2 {
			sort = strings.Join(f[:2], " ")
		}
		s.fault(kind+", "+sort, fmt.Sprintf("%s received: %s: VLAN %d, %x", at, wrong, vlan, frame[:min(len(frame), 120)]))
	}
}

// fault notes what is wrong, by its sort with one example; s.mu is held.
func (s *storm) fault(sort, example string) {
	s.result.wrong++
	if s.sorts[sort]++; s.sorts[sort] == 1 {
		s.wrong = append(s.wrong, sort+": "+example)
	}
}

func (s *storm) listen(t *testing.T) {
	ear := func(name, netns, link string, rules func(frame []byte, vlan uint16) string) {
		p, err := openWatch(netns, link, func(frame []byte, vlan uint16) { s.heard(name, frame, vlan, rules) })
		if err != nil {
			t.Fatal(err)
		}
		s.ears = append(s.ears, p)
	}
	neighbour := func(frame []byte, vlan uint16) string {
		if vlan != 0 { // a tag of the VM's own, inside its network
			return hostile.Rules{MACs: s.rules.MACs}.Wrong(append(slices.Clone(frame[:12]), 0x88, 0xb5))
		}
		return s.rules.Wrong(frame)
	}
	stranger := func(frame []byte, _ uint16) string {
		if _, ok := tokenIn(frame); ok && slices.Equal(net.HardwareAddr(frame[6:12]), hw(s.red.vms[0].MAC)) {
			return ""
		}
		return "anything"
	}
	for _, v := range s.blue.vms {
		if v != s.self {
			ear(fmt.Sprintf("%s on hv%d", v.name, v.host), v.Netns, "eth0", neighbour)
		}
	}
	for _, v := range s.red.vms {
		ear(fmt.Sprintf("%s on hv%d", v.name, v.host), v.Netns, "eth0", stranger)
	}
	ear("operator's tap on hv1", s.l.Host(1).Netns(), "own0p", func(frame []byte, vlan uint16) string {
		switch vlan {
		case s.cast.VLANs[0]:
			return s.rules.Wrong(frame)
		case s.cast.VLANs[1]:
			return stranger(frame, vlan)
		}
		return "a VLAN of nobody's"
	})
}

func (s *storm) close() {
	for _, p := range s.ears {
		p.close()
	}
}

// send sends all frames, and a control frame after every few of them, whose arrival it waits for.
func (s *storm) send(t *testing.T) {
	g := hostile.New(s.seed, s.cast)
	targets := []*vm{s.rogues[1], s.friend, s.rogues[2], s.red.vms[1]}
	for i := 0; i < s.frames && s.ctx.Err() == nil; {
		for range min(inFlight, s.frames-i) {
			f := g.Next()
			s.mu.Lock()
			s.kindOf[g.Number()] = f.Kind
			s.mu.Unlock()
			if err := s.self.probe.send(f.Bytes); err != nil {
				t.Fatalf("%s of %d bytes: %v", f.Kind, len(f.Bytes), err)
			}
			s.result.sent[f.Kind]++
			i++
		}
		to := targets[s.result.controls%len(targets)]
		from := s.self
		if to.net == s.red {
			from = s.red.vms[0]
		}
		k := s.token()
		s.result.controls++
		if err := from.probe.send(bare(to, from.MAC, from.v4, from.v6, 4, k)); err != nil {
			t.Fatal(err)
		}
		for limit := time.Now().Add(time.Second); s.control.Load() < uint64(k); time.Sleep(200 * time.Microsecond) {
			if time.Now().After(limit) {
				s.result.lost++
				break
			}
		}
		if s.result.lost > 20 {
			t.Errorf("after %d frames %d of %d control frames are lost: nothing is sent any more", i, s.result.lost, s.result.controls)
			break
		}
	}
}

// watchTables looks at what the switches learn, all the time.
func (s *storm) watchTables(ended chan struct{}) {
	for {
		s.look()
		select {
		case <-ended:
			return
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func (s *storm) look() {
	for _, h := range s.l.Hosts() {
		list, err := s.macTable(h)
		s.mu.Lock()
		if err != nil {
			s.fault("fdb/show", err.Error())
		}
		s.result.entries = max(s.result.entries, len(list))
		for _, e := range list {
			if wrong := s.strayMAC(h, e, s.macs); wrong != "" {
				s.result.stray++
				s.fault("fdb", wrong)
			}
		}
		s.mu.Unlock()
	}
	s.result.polls++
}

// verdict fails with what was wrong; s.mu is held.
func (s *storm) verdict(t *testing.T) {
	t.Helper()
	say := t.Errorf
	if s.agent != lab.Patchbay {
		say = t.Logf
	}
	if s.result.wrong > 0 {
		say("%d times something was wrong: %v; an example of each:\n%s", s.result.wrong, s.sorts, strings.Join(s.wrong, "\n"))
	}
	sent := 0
	for _, n := range s.result.sent {
		sent += n
	}
	arrived := 0
	for _, n := range s.result.arrived {
		arrived += n
	}
	if sent < s.frames || arrived < s.frames/100 {
		t.Errorf("%d frames of %d were sent, and %d of them arrived somewhere", sent, s.frames, arrived)
	}
	if s.result.lost > s.result.controls/200 || s.result.missed > 0 || s.result.drops > sent/1000 {
		t.Errorf("%d of %d control frames were lost, listeners had no room for %d, sockets of the host dropped %d: too much to trust the rest", s.result.lost, s.result.controls, s.result.missed, s.result.drops)
	}
	for _, v := range append(slices.Clone(s.blue.vms), s.red.vms[1]) {
		if v != s.self && s.result.heard[fmt.Sprintf("%s on hv%d", v.name, v.host)] == 0 {
			t.Errorf("%s has heard nothing at all", v.name)
		}
	}
}

// print shows how many frames of each kind were sent and how many arrived at somebody.
func (x *hostileVM) print() {
	if len(x.results) == 0 {
		return
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "\nframes that arrived / sent")
	for _, r := range x.results {
		fmt.Fprint(w, "\t"+r.round)
	}
	for _, kind := range hostile.Kinds() {
		fmt.Fprint(w, "\n"+kind)
		for _, r := range x.results {
			fmt.Fprintf(w, "\t%d / %d", r.arrived[kind], r.sent[kind])
		}
	}
	fmt.Fprintln(w)
	_ = w.Flush()
	for _, r := range x.results {
		sent := 0
		for _, n := range r.sent {
			sent += n
		}
		fmt.Printf("%s: %s, SEED=%d: %d frames in %.0f s, %d of %d control frames lost, %d wrong; fdb/show of both hosts %d times, %d entries at most, %d on a port that does not own them; received: %v\n",
			x.agent, r.round, x.seed, sent, r.took.Seconds(), r.lost, r.controls, r.wrong, r.polls, r.entries, r.stray, r.heard)
	}
}
