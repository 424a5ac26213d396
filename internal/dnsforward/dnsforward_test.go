// SPDX-License-Identifier: Apache-2.0

package dnsforward

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/patchbay-sdn/patchbay/internal/datagram"
	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/resolver"
	"github.com/patchbay-sdn/patchbay/internal/world"
	of "github.com/patchbay-sdn/patchbay/openflow"
)

const bridge = "br-int"

var gateway = neutron.MAC{0xfa, 0x16, 0x3e, 9, 9, 9}

// mac is that of port n, whose ofport is n, too.
func mac(n int) neutron.MAC { return neutron.MAC{0xfa, 0x16, 0x3e, 0, 0, byte(n)} }

// guests returns a forwarder with ports "1" and "2", of guests that have the same addresses.
func guests(t testing.TB) *Forwarder {
	t.Helper()
	w := world.New(world.Config{Host: "hv1", IntegrationBridge: bridge})
	root := &ovsdb.Batch{
		Seq: 1, Kind: ovsdb.Initial, OpenVSwitch: []ovsdb.Diff[ovsdb.OpenVSwitch]{{New: &ovsdb.OpenVSwitch{UUID: "root", Bridges: []ovsdb.UUID{bridge}}}},
		Bridges: []ovsdb.Diff[ovsdb.Bridge]{{New: &ovsdb.Bridge{UUID: bridge, Name: bridge, Ports: []ovsdb.UUID{"p1", "p2"}}}},
	}
	for n := 1; n <= 2; n++ {
		id, ofport, mtu := fmt.Sprint(n), n, 1450
		root.Ports = append(root.Ports, ovsdb.Diff[ovsdb.Port]{New: &ovsdb.Port{UUID: ovsdb.UUID("p" + id), Name: "tap" + id, Interfaces: []ovsdb.UUID{ovsdb.UUID("i" + id)}}})
		root.Interfaces = append(root.Interfaces, ovsdb.Diff[ovsdb.Interface]{New: &ovsdb.Interface{
			UUID: ovsdb.UUID("i" + id), Name: "tap" + id, OFPort: &ofport, MTU: &mtu, ExternalIDs: map[string]string{"iface-id": id, "attached-mac": of.MAC(mac(n)).String()},
		}})
	}
	w.Switch(root)
	local := neutron.Maybe[neutron.Segment]{Value: &neutron.Segment{NetworkType: "local"}}
	var ports []neutron.Port
	for n := 1; n <= 2; n++ {
		ports = append(ports, neutron.Port{
			ID: fmt.Sprint(n), NetworkID: fmt.Sprint("net", n), MAC: mac(n), AdminStateUp: true, DeviceOwner: "compute:nova",
			FixedIPs:            neutron.List[neutron.FixedIP]{{IP: netip.MustParseAddr("10.0.0.5")}, {IP: netip.MustParseAddr("2001:db8::5")}},
			AllowedAddressPairs: neutron.List[neutron.AddressPair]{{IP: neutron.Prefix{Prefix: netip.MustParsePrefix("10.0.7.0/24")}}},
			Bindings:            neutron.List[neutron.Binding]{{Host: "hv1", Status: "ACTIVE"}},
			BindingLevels:       neutron.List[neutron.BindingLevel]{{Host: "hv1", Segment: local}},
		})
	}
	w.Resolve()
	w.Ports([]string{"1", "2"}, ports)
	d := New(config())(w).(*Forwarder)
	d.Resolve(w.Resolve())
	for id := range map[string]bool{"1": true, "2": true} {
		if _, served := d.ports[id]; !served {
			t.Fatalf("port %s is not served: %+v", id, w.Port(id))
		}
	}
	return d
}

// sent is a query in a frame, as a guest sends it.
type sent struct {
	datagram.Frame
	m *dns.Msg
}

func query(n int, change ...func(*sent)) extension.Packet {
	m := new(dns.Msg)
	m.SetQuestion("www.example.org.", dns.TypeA)
	m.Id = 77
	s := sent{datagram.Frame{
		SrcMAC: mac(n), DstMAC: gateway, Src: netip.MustParseAddr("10.0.0.5"), Dst: netip.MustParseAddr("169.254.169.254"), SrcPort: 4000, DstPort: 53,
	}, m}
	for _, f := range change {
		f(&s)
	}
	if s.Payload == nil {
		s.Payload, _ = s.m.Pack()
	}
	return packet(n, s.Bytes())
}

func packet(n int, b []byte) extension.Packet {
	return extension.Packet{
		PacketIn: &of.PacketIn{Packet: b, Metadata: of.Match{of.FromPort(uint32(n))}}, Bridge: bridge, Key: fmt.Sprint(n), //nolint:gosec // a port
	}
}

// answerOf returns what a resolver says: an address.
func answerOf(t testing.TB, a resolver.Ask, ip string) resolver.Answer {
	t.Helper()
	m := new(dns.Msg)
	m.SetQuestion(a.Query.Name, a.Query.Type)
	m.Response = true
	if rr, err := dns.NewRR(a.Query.Name + " 60 A " + ip); err == nil {
		m.Answer = []dns.RR{rr}
	}
	b, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return resolver.Answer{Number: a.Number, Message: b, From: config().Upstream[0]}
}

// got reads what a guest was sent.
func got(t testing.TB, messages []of.Message) (datagram.Frame, *dns.Msg, uint32) {
	t.Helper()
	if len(messages) != 1 {
		t.Fatalf("sent %v", messages)
	}
	out := messages[0].(of.PacketOut)
	f, err := datagram.Read(out.Packet)
	if err != nil {
		t.Fatal(err)
	}
	m := new(dns.Msg)
	if err := m.Unpack(f.Payload); err != nil {
		t.Fatal(err)
	}
	for port := range uint32(4) {
		if fmt.Sprint(out.Actions) == fmt.Sprint([]of.Action{of.Output(port)}) {
			return f, m, port
		}
	}
	t.Fatalf("sent by %v", out.Actions)
	return f, m, 0
}

// TestTwoTenants: the same query of two tenants at the same time, under the same id, address and port: each gets the answer to its own, whichever comes first.
func TestTwoTenants(t *testing.T) {
	d := guests(t)
	var asks []resolver.Ask
	for n := 1; n <= 2; n++ {
		if answer, outcome := d.OnPacket(query(n)); answer != nil || outcome != extension.Asked {
			t.Fatalf("%v, %s", answer, outcome)
		}
		asks = append(asks, d.Asks()...)
	}
	if len(asks) != 2 || asks[0].Number == asks[1].Number || len(d.Asks()) != 0 {
		t.Fatalf("%v", asks)
	}
	for i, n := range []int{2, 1} {
		a := asks[n-1]
		if a.Most != 512 || !slices.Equal(a.Servers, config().Upstream) || a.Timeout != 5*time.Second || a.Query.Name != "www.example.org." {
			t.Errorf("%+v", a)
		}
		messages, outcome := d.OnAnswer(answerOf(t, a, fmt.Sprintf("192.0.2.%d", n)), nil)
		f, m, port := got(t, messages)
		if outcome != extension.Answered || port != uint32(n) || f.DstMAC != mac(n) || f.SrcMAC != gateway || f.Src.String() != "169.254.169.254" || f.SrcPort != 53 ||
			f.Dst.String() != "10.0.0.5" || f.DstPort != 4000 || m.Id != 77 || len(m.Answer) != 1 || !strings.HasSuffix(m.Answer[0].String(), fmt.Sprintf("192.0.2.%d", n)) {
			t.Errorf("%s by %d: %+v %v", outcome, port, f, m)
		}
		if again, outcome := d.OnAnswer(answerOf(t, a, "192.0.2.9"), nil); again != nil || outcome != extension.Refused {
			t.Errorf("a second answer to a question is passed on: %s", outcome)
		}
		if len(d.waiting) != 1-i || len(d.asked) != 1-i {
			t.Errorf("%d wait after %d answers", len(d.waiting), i+1)
		}
	}
}

// TestWhoMayAsk: the port says who asks. What comes under another's name gets nothing, and asks nobody.
func TestWhoMayAsk(t *testing.T) {
	for name, c := range map[string]struct {
		p    extension.Packet
		want extension.Outcome
	}{
		"its own address":              {query(1), extension.Asked},
		"an address of a pair":         {query(1, func(s *sent) { s.Src = netip.MustParseAddr("10.0.7.9") }), extension.Asked},
		"IPv6":                         {query(1, v6("2001:db8::5", "fd00::254")), extension.Asked},
		"the link-local address":       {query(1, v6("fe80::f816:3eff:fe00:1", "fe80::a9fe:a9fe")), extension.Asked},
		"the other port":               {query(1, v6("fe80::f816:3eff:fe00:1", "fe80::a9fe:a9fe"), func(s *sent) { s.DstPort = 54 }), extension.Asked},
		"another's address":            {query(1, func(s *sent) { s.Src = netip.MustParseAddr("10.0.0.6") }), extension.Refused},
		"no address":                   {query(1, func(s *sent) { s.Src = netip.MustParseAddr("0.0.0.0") }), extension.Refused},
		"a group's address":            {query(1, func(s *sent) { s.Src = netip.MustParseAddr("224.0.0.1") }), extension.Refused},
		"another's link-local address": {query(1, v6("fe80::f816:3eff:fe00:2", "fe80::a9fe:a9fe")), extension.Refused},
		"another's MAC":                {query(1, func(s *sent) { s.SrcMAC = mac(2) }), extension.Refused},
		"to everybody":                 {query(1, func(s *sent) { s.DstMAC = neutron.MAC{255, 255, 255, 255, 255, 255} }), extension.Refused},
		"from port 0":                  {query(1, func(s *sent) { s.SrcPort = 0 }), extension.Refused},
		"to another address":           {query(1, func(s *sent) { s.Dst = netip.MustParseAddr("169.254.169.253") }), extension.Refused},
		"to another port":              {query(1, func(s *sent) { s.DstPort = 5353 }), extension.Refused},
		"by the port of another":       {moved(query(1), 2, "1"), extension.Refused},
		"with the key of another":      {moved(query(1), 1, "2"), extension.Refused},
		"with the key of nobody":       {moved(query(1), 1, "3"), extension.Refused},
		"by another bridge":            {elsewhere(query(1)), extension.Refused},
		"an answer":                    {query(1, func(s *sent) { s.m.Response = true }), extension.Malformed},
		"no DNS":                       {query(1, func(s *sent) { s.Payload = []byte("hello") }), extension.Malformed},
		"with a VLAN":                  {packet(1, slices.Insert(slices.Clone(query(1).PacketIn.Packet), 12, 0x81, 0, 0, 1)), extension.Malformed},
		"a frame that is cut":          {packet(1, query(1).PacketIn.Packet[:40]), extension.Malformed},
	} {
		d := guests(t)
		answer, outcome := d.OnPacket(c.p)
		if outcome != c.want || answer != nil || len(d.Asks()) != map[bool]int{true: 1}[c.want == extension.Asked] || c.want != extension.Asked && len(d.waiting) != 0 {
			t.Errorf("%s: %s, sent %v, want %s", name, outcome, answer, c.want)
		}
	}
	d := guests(t)
	d.w.Port("1").Details.Security = neutron.Maybe[neutron.Security]{Value: &neutron.Security{}}
	if _, outcome := d.OnPacket(query(1, func(s *sent) { s.Src = netip.MustParseAddr("10.0.0.6") })); outcome != extension.Asked {
		t.Errorf("a port that may send under any address: %s", outcome)
	}
}

func v6(src, dst string) func(*sent) {
	return func(s *sent) { s.Src, s.Dst = netip.MustParseAddr(src), netip.MustParseAddr(dst) }
}

func moved(p extension.Packet, ofport uint32, key string) extension.Packet {
	p.PacketIn.Metadata, p.Key = of.Match{of.FromPort(ofport)}, key
	return p
}

func elsewhere(p extension.Packet) extension.Packet { p.Bridge = "br-ex"; return p }

// TestRefused: what may not be asked gets a code at once, and asks nobody.
func TestRefused(t *testing.T) {
	d := guests(t)
	messages, outcome := d.OnPacket(query(1, func(s *sent) { s.m.Question[0].Qtype = dns.TypeAXFR }))
	if _, m, port := got(t, messages); outcome != extension.Refused || m.Rcode != dns.RcodeRefused || m.Id != 77 || port != 1 || len(d.Asks()) != 0 {
		t.Errorf("%s: %v", outcome, m)
	}
	d.OnPacket(query(1))
	a := d.Asks()[0]
	messages, outcome = d.OnAnswer(resolver.Answer{Number: a.Number}, errors.New("nobody answers"))
	if _, m, _ := got(t, messages); outcome != extension.Unanswered || m.Rcode != dns.RcodeServerFailure {
		t.Errorf("%s: %v", outcome, m)
	}
	d.OnPacket(query(1))
	a = d.Asks()[0]
	other := a
	other.Query.Name = "evil.example.org."
	messages, outcome = d.OnAnswer(answerOf(t, other, "192.0.2.66"), nil)
	if _, m, _ := got(t, messages); outcome != extension.Unanswered || m.Rcode != dns.RcodeServerFailure || len(m.Answer) != 0 {
		t.Errorf("the answer to another question: %s: %v", outcome, m)
	}
}

// TestPortChanges: an answer that comes after the port has gone, or is another's, is not sent.
func TestPortChanges(t *testing.T) {
	for name, change := range map[string]func(d *Forwarder){
		"another ofport":          func(d *Forwarder) { d.w.Port("1").VIF.OFPort = 2 },
		"another MAC":             func(d *Forwarder) { d.w.Port("1").VIF.MAC = mac(2) },
		"another address":         func(d *Forwarder) { d.w.Port("1").Details.FixedIPs[0].IP = netip.MustParseAddr("10.0.0.9") },
		"not wired":               func(d *Forwarder) { d.w.Port("1").Wiring.State = world.Waiting },
		"the port is a network's": func(d *Forwarder) { d.w.Port("1").Details.DeviceOwner = "network:dhcp"; d.settle("1") },
	} {
		d := guests(t)
		d.OnPacket(query(1))
		a := d.Asks()[0]
		change(d)
		if messages, outcome := d.OnAnswer(answerOf(t, a, "192.0.2.1"), nil); messages != nil || outcome != extension.Refused || len(d.waiting) != 0 {
			t.Errorf("%s: %s, sent %v", name, outcome, messages)
		}
	}
}

// TestBounds: a guest has so many questions at a time, and all guests so many; one that is sent again is asked once.
func TestBounds(t *testing.T) {
	d := guests(t)
	id := func(n uint16) func(*sent) { return func(s *sent) { s.m.Id = n } }
	var asks []resolver.Ask
	for n := range uint16(portQuestions) {
		if _, outcome := d.OnPacket(query(1, id(n))); outcome != extension.Asked {
			t.Fatal(outcome)
		}
		if _, outcome := d.OnPacket(query(1, id(n))); outcome != extension.Ignored {
			t.Errorf("sent again: %s", outcome)
		}
		asks = append(asks, d.Asks()...)
	}
	if _, outcome := d.OnPacket(query(1, id(1000))); outcome != extension.Limited || len(d.Asks()) != 0 {
		t.Errorf("one question more: %s", outcome)
	}
	if _, outcome := d.OnPacket(query(2)); outcome != extension.Asked {
		t.Errorf("another guest: %s", outcome)
	}
	d.OnAnswer(answerOf(t, asks[0], "192.0.2.1"), nil)
	if _, outcome := d.OnPacket(query(1, id(1000))); outcome != extension.Asked {
		t.Errorf("after an answer: %s", outcome)
	}
	for n := len(d.waiting); n < hostQuestions/2; n++ {
		d.waiting[uint64(10_000+n)] = question{}
	}
	for n := d.ports["2"]; n < fewQuestions; n++ {
		if _, outcome := d.OnPacket(query(2, id(uint16(2000+n)))); outcome != extension.Asked {
			t.Errorf("a guest with %d questions, when others have half of the host's: %s", n, outcome)
		}
	}
	if _, outcome := d.OnPacket(query(2, id(3000))); outcome != extension.Limited {
		t.Errorf("more than a few questions, when others have half of the host's: %s", outcome)
	}
	d.ports["2"] = 0
	for n := len(d.waiting); n < hostQuestions; n++ {
		d.waiting[uint64(10_000+n)] = question{}
	}
	if _, outcome := d.OnPacket(query(2, id(1001))); outcome != extension.Limited {
		t.Errorf("one question more than the host has: %s", outcome)
	}
}

// TestSize: an answer is as long as the guest takes and its device carries.
func TestSize(t *testing.T) {
	for name, c := range map[string]struct {
		mtu, edns int
		v6        bool
		want      int
	}{
		"without EDNS":        {1450, 0, false, 512},
		"a small EDNS":        {1450, 1232, false, 1232},
		"IPv4":                {1450, 4096, false, 1422},
		"IPv6":                {1450, 4096, true, 1402},
		"a small MTU":         {600, 4096, false, 572},
		"a large one":         {9000, 65535, false, 8 << 10},
		"an MTU nobody knows": {0, 4096, true, 1232},
	} {
		d := guests(t)
		d.w.View.Interface("i1").MTU = &c.mtu
		changes := []func(*sent){func(s *sent) {
			if c.edns > 0 {
				s.m.SetEdns0(uint16(c.edns), false)
			}
		}}
		if c.v6 {
			changes = append(changes, v6("2001:db8::5", "fd00::254"))
		}
		d.OnPacket(query(1, changes...))
		asks := d.Asks()
		if len(asks) != 1 || asks[0].Most != c.want {
			t.Fatalf("%s: %v, want %d", name, asks, c.want)
		}
		long := new(dns.Msg)
		long.SetQuestion("www.example.org.", dns.TypeA)
		long.Response = true
		for i := range 600 {
			rr, _ := dns.NewRR(fmt.Sprintf("www.example.org. 60 A 192.0.%d.%d", i/256, i%256))
			long.Answer = append(long.Answer, rr)
		}
		b, err := long.Pack()
		if err != nil {
			t.Fatal(err)
		}
		messages, outcome := d.OnAnswer(resolver.Answer{Number: asks[0].Number, Message: b}, nil)
		if f, m, _ := got(t, messages); outcome != extension.Answered || len(f.Payload) > c.want || len(f.Payload) < c.want-40 || !m.Truncated {
			t.Errorf("%s: %d bytes, want %d; truncated %v", name, len(f.Payload), c.want, m.Truncated)
		}
	}
}

// TestExplained: what became of the last query is told, and how many wait.
func TestExplained(t *testing.T) {
	d := guests(t)
	d.w.Time = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	d.OnPacket(query(1))
	if text := strings.Join(d.Explain(world.PortObject("1")), "\n"); !strings.Contains(text, "dns: 1 of its queries wait for an answer") {
		t.Error(text)
	}
	d.OnAnswer(answerOf(t, d.Asks()[0], "192.0.2.1"), nil)
	if text := strings.Join(d.Explain(world.PortObject("1")), "\n"); !strings.HasSuffix(text, "dns: its last query, of type A at 2026-01-02T03:04:05Z, was answered by 192.0.2.53:53") {
		t.Error(text)
	}
}

// TestNeighbours: who asks for an address of the link that guests ask is told; for others nobody is.
func TestNeighbours(t *testing.T) {
	for name, c := range map[string]struct {
		n           int
		src, target string
		want        extension.Outcome
	}{
		"its link-local address": {1, "fe80::f816:3eff:fe00:1", "fe80::a9fe:a9fe", extension.Answered},
		"its address":            {1, "2001:db8::5", "fe80::a9fe:a9fe", extension.Answered},
		"another's address":      {1, "2001:db8::6", "fe80::a9fe:a9fe", extension.Refused},
		"another's MAC":          {2, "2001:db8::5", "fe80::a9fe:a9fe", extension.Refused},
		"for a routed address":   {1, "2001:db8::5", "fd00::254", extension.Refused},
		"for nobody's":           {1, "2001:db8::5", "fe80::1", extension.Refused},
	} {
		d := guests(t)
		messages, outcome := d.OnPacket(packet(1, solicit(c.n, c.src, c.target)))
		if outcome != c.want || (len(messages) == 1) != (c.want == extension.Answered) || len(d.Asks()) != 0 {
			t.Errorf("%s: %s, sent %v", name, outcome, messages)
		}
	}
}

func solicit(n int, src, target string) []byte {
	m := mac(n)
	b := slices.Concat([]byte{0x33, 0x33, 0xff, 0xfe, 0xa9, 0xfe}, m[:], []byte{0x86, 0xdd, 0x60, 0, 0, 0, 0, 24, 58, 255})
	b = slices.Concat(b, netip.MustParseAddr(src).AsSlice(), netip.MustParseAddr("ff02::1:fffe:a9fe").AsSlice())
	return slices.Concat(b, []byte{135, 0, 0, 0, 0, 0, 0, 0}, netip.MustParseAddr(target).AsSlice())
}

// TestGarbage: 10,000 packets that are no queries, or nearly some, leave nothing behind, and what is asked is asked for its sender.
func TestGarbage(t *testing.T) {
	d, random := guests(t), rand.New(rand.NewPCG(1, 2))
	whole := [][]byte{query(1).PacketIn.Packet, query(1, v6("2001:db8::5", "fd00::254")).PacketIn.Packet, solicit(1, "2001:db8::5", "fe80::a9fe:a9fe")}
	seen := map[extension.Outcome]int{}
	for range 10_000 {
		b := slices.Clone(whole[random.IntN(len(whole))])
		for range random.IntN(4) {
			b[random.IntN(len(b))] = byte(random.IntN(256))
		}
		b = b[:len(b)-random.IntN(2)*random.IntN(len(b))]
		messages, outcome := d.OnPacket(packet(1, b))
		seen[outcome]++
		for _, m := range messages {
			if out := m.(of.PacketOut); fmt.Sprint(out.Actions) != fmt.Sprint([]of.Action{of.Output(1)}) {
				t.Fatalf("sent by %v", out.Actions)
			}
		}
		for _, a := range d.Asks() {
			if q := d.waiting[a.Number]; q.port != "1" || q.ofport != 1 || q.mac != mac(1) || !maySend(d.w.Port("1"), q.guest.Addr()) {
				t.Fatalf("%+v is asked", q)
			}
			d.OnAnswer(resolver.Answer{Number: a.Number, Message: b}, nil)
		}
	}
	if len(d.waiting) != 0 || len(d.asked) != 0 || d.ports["1"] != 0 || seen[extension.Malformed] < 1000 || seen[extension.Asked] < 1000 || seen[extension.Refused] < 1000 {
		t.Errorf("%v, %d wait", seen, len(d.waiting))
	}
}

// FuzzPacket: whatever a guest sends, at most one question follows, and nothing is sent to anybody else.
func FuzzPacket(f *testing.F) {
	f.Add(query(1).PacketIn.Packet)
	f.Add(query(1, v6("2001:db8::5", "fd00::254")).PacketIn.Packet)
	f.Add(solicit(1, "2001:db8::5", "fe80::a9fe:a9fe"))
	f.Add(query(1, func(s *sent) { s.m.Question[0].Qtype = dns.TypeAXFR }).PacketIn.Packet)
	d := guests(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		messages, outcome := d.OnPacket(packet(1, b))
		for _, m := range messages {
			if out := m.(of.PacketOut); fmt.Sprint(out.Actions) != fmt.Sprint([]of.Action{of.Output(1)}) {
				t.Errorf("sent by %v", out.Actions)
			}
		}
		asks := d.Asks()
		if len(asks) > 1 || (len(asks) == 1) != (outcome == extension.Asked) {
			t.Errorf("%s, and asks %v", outcome, asks)
		}
		for _, a := range asks {
			d.OnAnswer(resolver.Answer{Number: a.Number, Message: b}, nil)
		}
		if len(d.waiting) != 0 || len(d.asked) != 0 || d.ports["1"] != 0 {
			t.Error("something waits for ever")
		}
	})
}
