// SPDX-License-Identifier: Apache-2.0

//go:build integration

package dnsforward_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"github.com/patchbay-sdn/patchbay/internal/agent"
	"github.com/patchbay-sdn/patchbay/internal/dnsforward"
	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/metadata"
	"github.com/patchbay-sdn/patchbay/internal/netlink/netlinktest"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/resolver"
	"github.com/patchbay-sdn/patchbay/lab/onehost"
)

const (
	at4    = "169.254.169.254:53"
	at6    = "[fd00::254]:53"
	atLink = "[fe80::a9fe:a9fe]:53"
)

// vm is a VM of the test. The first two have the same addresses, in networks of their own; the third is in the network of the first.
type vm struct{ network, project, ip, ip6 string }

var vms = map[string]vm{
	"1": {"net1", "blue", "10.5.0.11", "2001:db8:5::11"},
	"2": {"net2", "red", "10.5.0.11", "2001:db8:5::11"},
	"3": {"net1", "green", "10.5.0.13", "2001:db8:5::13"},
}

// answer is that of a server that knows the ports of the test, and no others.
func answer(kind neutron.Kind, filter map[string]any) (found []map[string]any, ok bool) {
	ids, _ := filter["id"].([]string)
	for _, id := range ids {
		n := strings.TrimPrefix(id, "port")
		v, known := vms[n]
		if !known {
			continue
		}
		found = append(found, map[string]any{
			"id": id, "network_id": v.network, "project_id": v.project, "mac_address": onehost.MAC(n), "admin_state_up": true, "device_owner": "compute:nova", "device_id": "vm" + n,
			"status": "DOWN", "revision_number": 1, "fixed_ips": []any{
				onehost.Boxed(map[string]any{"subnet_id": "s4", "ip_address": v.ip}), onehost.Boxed(map[string]any{"subnet_id": "s6", "ip_address": v.ip6}),
			},
			"bindings":       []any{onehost.Boxed(map[string]any{"host": "hv1", "status": "ACTIVE"})},
			"binding_levels": []any{onehost.Boxed(map[string]any{"host": "hv1", "segment": onehost.Boxed(map[string]any{"network_type": "local"})})},
		})
	}
	return found, kind == neutron.KindPort
}

// upstream is a resolver that knows some names, over UDP and TCP.
type upstream struct {
	at   netip.AddrPort
	mu   sync.Mutex
	seen map[string]int // by name
	// held are questions about hold.… that are answered together, the last one first.
	held []func()
}

func newUpstream(t *testing.T) *upstream {
	t.Helper()
	u := &upstream{seen: map[string]int{}}
	packets, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	u.at = netip.MustParseAddrPort(packets.LocalAddr().String())
	streams, err := net.Listen("tcp", u.at.String())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []*dns.Server{{PacketConn: packets, Handler: u}, {Listener: streams, Handler: u}} {
		done := make(chan struct{})
		go func() { defer close(done); _ = s.ActivateAndServe() }()
		t.Cleanup(func() { _ = s.Shutdown(); <-done })
	}
	return u
}

// ServeDNS implements dns.Handler.
func (u *upstream) ServeDNS(w dns.ResponseWriter, asked *dns.Msg) {
	name := strings.ToLower(asked.Question[0].Name)
	m := new(dns.Msg)
	m.SetReply(asked)
	m.RecursionAvailable = true
	text := func(s string) {
		m.Answer = append(m.Answer, &dns.TXT{Hdr: dns.RR_Header{Name: name, Rrtype: dns.TypeTXT, Class: dns.ClassINET, Ttl: 60}, Txt: []string{s}})
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.seen[name]++
	switch label, _, _ := strings.Cut(name, "."); {
	case label == "nx":
		m.Rcode = dns.RcodeNameError
	case label == "fail":
		m.Rcode = dns.RcodeServerFailure
	case label == "medium", label == "large":
		for i := range map[string]int{"medium": 5, "large": 60}[label] {
			text(strings.Repeat("x", 240) + fmt.Sprint(i))
		}
	case strings.HasPrefix(label, "hold"):
		text(label)
		if u.held = append(u.held, func() { _ = w.WriteMsg(m) }); len(u.held) == 2 {
			for _, reply := range slices.Backward(u.held) {
				reply()
			}
			u.held = nil
		}
		return
	default:
		m.Answer = append(m.Answer, &dns.A{Hdr: dns.RR_Header{Name: name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 60}, A: net.IPv4(192, 0, 2, 1)})
	}
	if w.RemoteAddr().Network() == "udp" {
		size := dns.MinMsgSize
		if opt := asked.IsEdns0(); opt != nil {
			size = int(opt.UDPSize())
		}
		m.Truncate(size)
	}
	_ = w.WriteMsg(m)
}

func (u *upstream) count(name string) int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.seen[name]
}

// bench is an agent on a real switch with namespaces for VMs, and a resolver.
type bench struct {
	*onehost.Host
	up *upstream
}

func newBench(t *testing.T, filter bool) *bench {
	t.Helper()
	b := &bench{Host: onehost.New(t, answer, "br-meta"), up: newUpstream(t)}
	dead, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone := netip.MustParseAddrPort(dead.LocalAddr().String())
	_ = dead.Close()
	cfg := dnsforward.Config{
		Listen: []netip.AddrPort{netip.MustParseAddrPort(at4), netip.MustParseAddrPort(at6), netip.MustParseAddrPort(atLink)}, Upstream: []netip.AddrPort{gone, b.up.at}, Timeout: 2 * time.Second,
	}
	b.Configure = func(c *agent.Config) {
		if filter {
			onehost.Filtered(c)
		}
		c.Extensions, c.Resolver = []extension.New{dnsforward.New(cfg)}, &resolver.Client{}
		if !filter { // its ARP is the same; its proxy is not started
			c.World.Physical = map[string]string{"meta": "br-meta"}
			c.Extensions, c.Metadata = append(c.Extensions, metadata.New(metadata.Config{CIDR: netip.MustParsePrefix("240.0.0.0/16"), VLAN: 1, BaseMAC: neutron.MAC{0xfa, 0x16, 0xee}, Port: 80})), noProxy{}
		}
	}
	b.Start()
	return b
}

func (b *bench) ns(n string) string { return b.Switch.Netns() + "-vm" + n }

// configure gives a VM its own MAC, addresses and routes.
func (b *bench) configure(n string) {
	b.Helper()
	ns, v := b.ns(n), vms[n]
	b.Must("ip", "-n", ns, "link", "set", "eth0", "down")
	b.Must("ip", "-n", ns, "addr", "flush", "dev", "eth0")
	b.Must("ip", "-n", ns, "link", "set", "eth0", "address", onehost.MAC(n))
	b.Must("ip", "-n", ns, "link", "set", "eth0", "up")
	b.Must("ip", "-n", ns, "addr", "add", v.ip+"/24", "dev", "eth0")
	b.Must("ip", "-n", ns, "addr", "replace", "fe80::f816:3eff:fe00:"+n+"/64", "dev", "eth0", "nodad")
	b.Must("ip", "-n", ns, "addr", "add", v.ip6+"/64", "dev", "eth0", "nodad")
	b.Must("ip", "-n", ns, "route", "replace", "169.254.169.254/32", "dev", "eth0")
	b.Must("ip", "-n", ns, "route", "replace", "fd00::254/128", "via", "fe80::a9fe:a9fe", "dev", "eth0")
}

// dial opens a socket of a VM.
func (b *bench) dial(n, from, to string) (c net.Conn, err error) {
	dialer := net.Dialer{}
	if from != "" {
		dialer.LocalAddr = net.UDPAddrFromAddrPort(netip.MustParseAddrPort(from))
	}
	if strings.HasPrefix(to, "[fe80:") {
		to = strings.Replace(to, "]", "%eth0]", 1)
	}
	return c, errors.Join(netlinktest.In(b.ns(n), func() { c, err = dialer.DialContext(b.Context(), "udp", to) }), err)
}

// ask asks as a VM. Size is that of EDNS; 0: without.
func (b *bench) ask(n, from, to, name string, kind uint16, size int) (*dns.Msg, error) {
	c, err := b.dial(n, from, to)
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close() }()
	m := new(dns.Msg)
	m.SetQuestion(name, kind)
	if size > 0 {
		m.SetEdns0(uint16(size), false)
	}
	reply, _, err := (&dns.Client{Timeout: 3 * time.Second}).ExchangeWithConn(m, &dns.Conn{Conn: c, UDPSize: 8192})
	return reply, err
}

// answered waits until VMs are answered, at every address.
func (b *bench) answered(when string, numbers ...string) {
	b.Helper()
	for _, n := range numbers {
		for _, to := range []string{at4, at6, atLink} {
			var last error
			b.Wait(fmt.Sprintf("the answer to VM %s at %s %s", n, to, when), func() bool {
				m, err := b.ask(n, "", to, "a.example.org.", dns.TypeA, 1232)
				if last = err; err != nil {
					return false
				}
				return m.Rcode == dns.RcodeSuccess && len(m.Answer) == 1 && m.Answer[0].(*dns.A).A.String() == "192.0.2.1"
			})
			if last != nil {
				b.Fatal(last)
			}
		}
	}
}

// send has a VM send a frame: a datagram under the MAC and address of another and with a VLAN tag, 0 for none.
func (b *bench) send(from, as string, vlan uint16, payloads ...[]byte) {
	b.Helper()
	mac, err := net.ParseMAC(onehost.MAC(as))
	if err != nil {
		b.Fatal(err)
	}
	ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolUDP, SrcIP: net.ParseIP(vms[as].ip), DstIP: net.ParseIP("169.254.169.254")}
	udp := &layers.UDP{SrcPort: 40000, DstPort: 53}
	_ = udp.SetNetworkLayerForChecksum(ip)
	ether := &layers.Ethernet{SrcMAC: mac, DstMAC: net.HardwareAddr{0xfa, 0x16, 0xee, 0xff, 0xff, 0xff}, EthernetType: layers.EthernetTypeIPv4}
	all := []gopacket.SerializableLayer{ether, ip, udp}
	if vlan != 0 {
		ether.EthernetType = layers.EthernetTypeDot1Q
		all = slices.Insert(all, 1, gopacket.SerializableLayer(&layers.Dot1Q{VLANIdentifier: vlan, Type: layers.EthernetTypeIPv4}))
	}
	var sent error
	entered := netlinktest.In(b.ns(from), func() {
		eth, err := net.InterfaceByName("eth0")
		if err != nil {
			sent = err
			return
		}
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
		if err != nil {
			sent = err
			return
		}
		defer func() { _ = unix.Close(fd) }()
		for _, p := range payloads {
			frame := gopacket.NewSerializeBuffer()
			sent = errors.Join(sent, gopacket.SerializeLayers(frame, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, append(slices.Clone(all), gopacket.Payload(p))...),
				unix.Sendto(fd, frame.Bytes(), 0, &unix.SockaddrLinklayer{Ifindex: eth.Index, Halen: 6}))
		}
	})
	if err := errors.Join(entered, sent); err != nil {
		b.Fatal(err)
	}
}

func pack(name string) []byte {
	m := new(dns.Msg)
	m.SetQuestion(name, dns.TypeA)
	b, _ := m.Pack()
	return b
}

// TestDNS has VMs of three tenants ask through a real switch, with and without the firewall: each gets its own answers, and nobody anything under another's
// MAC, address or VLAN. Then the switch starts anew, and the agent with the server away.
func TestDNS(t *testing.T) {
	for name, filter := range map[string]bool{"without firewall": false, "with firewall": true} {
		t.Run(name, func(t *testing.T) { testDNS(newBench(t, filter)) })
	}
}

func testDNS(b *bench) {
	for _, n := range []string{"1", "2", "3"} {
		b.Plug(n)
		b.Vsctl("set", "Interface", "tap"+n, "external_ids:vm-uuid=vm"+n)
		b.configure(n)
	}
	b.Wired(3)
	b.answered("at first", "1", "2", "3")
	b.answers()
	b.tenants()
	b.forged()
	b.garbage()

	b.RestartSwitch()
	b.answered("after the switch was restarted", "1", "2", "3")
	b.Stop()
	b.Away.Store(true)
	b.RestartSwitch()
	b.Start()
	b.answered("with the server away, after switch and agent were restarted", "1", "2", "3")
}

// answers checks what kinds of answers reach a VM; also that of another client than the one the agent's parser belongs to.
func (b *bench) answers() {
	b.Helper()
	hosts, err := (&net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) { return b.dial("1", "", at4) }}).LookupHost(b.Context(), "www.example.org")
	if err != nil || !slices.Contains(hosts, "192.0.2.1") {
		b.Errorf("another client: %v, %v", hosts, err)
	}
	for name, c := range map[string]struct {
		kind            uint16
		size            int
		code, records   int
		truncated       bool
		shortest, limit int
	}{
		"nx.example.org.":     {dns.TypeA, 0, dns.RcodeNameError, 0, false, 0, 512},
		"fail.example.org.":   {dns.TypeA, 1232, dns.RcodeServerFailure, 0, false, 0, 512},
		"medium.example.org.": {dns.TypeTXT, 4096, 0, 5, false, 1232, 1472}, // comes over TCP, and fits into a packet
		"large.example.org.":  {dns.TypeTXT, 4096, 0, -1, true, 900, 1472},
		"Large.example.org.":  {dns.TypeTXT, 0, 0, -1, true, 100, 512},
	} {
		m, err := b.ask("1", "", at4, name, c.kind, c.size)
		if err != nil {
			b.Errorf("%s: %v", name, err)
			continue
		}
		m.Compress = true
		if m.Rcode != c.code || c.records >= 0 && len(m.Answer) != c.records || m.Truncated != c.truncated || m.Len() > c.limit || m.Len() < c.shortest {
			b.Errorf("%s: code %d, %d records, truncated %v, %d bytes", name, m.Rcode, len(m.Answer), m.Truncated, m.Len())
		}
	}
	m, err := b.ask("1", "", at4, "example.org.", dns.TypeAXFR, 0)
	if err != nil || m.Rcode != dns.RcodeRefused || b.up.count("example.org.") != 0 {
		b.Errorf("a zone: %v, %v", m, err)
	}
	if m, err := b.ask("1", "", "169.254.169.254:54", "a.example.org.", dns.TypeA, 0); err == nil {
		b.Errorf("at another port: %v", m)
	}
}

// tenants has two VMs ask under the same address, port and id at the same time. The resolver answers in the other order.
func (b *bench) tenants() {
	b.Helper()
	type got struct {
		text []string
		err  error
	}
	results := map[string]chan got{"1": make(chan got, 1), "2": make(chan got, 1)}
	for n, result := range results {
		go func() {
			var g got
			defer func() { result <- g }()
			c, err := b.dial(n, "10.5.0.11:5000", at4)
			if g.err = err; err != nil {
				return
			}
			defer func() { _ = c.Close() }()
			m := new(dns.Msg)
			m.SetQuestion("hold"+n+".example.org.", dns.TypeTXT)
			m.Id = 4242
			text, _ := m.Pack()
			if _, g.err = c.Write(text); g.err != nil {
				return
			}
			_ = c.SetReadDeadline(time.Now().Add(4 * time.Second)) // also to see whether there is a second answer
			for buffer := make([]byte, 2000); ; {
				size, err := c.Read(buffer)
				if err != nil {
					return
				}
				reply := new(dns.Msg)
				if g.err = reply.Unpack(buffer[:size]); g.err != nil {
					return
				}
				g.text = append(g.text, fmt.Sprint(reply.Id, reply.Question[0].Name, reply.Answer[0].(*dns.TXT).Txt))
			}
		}()
	}
	for n, result := range results {
		want := fmt.Sprintf("4242hold%s.example.org.[hold%s]", n, n)
		if g := <-result; g.err != nil || len(g.text) != 1 || strings.ReplaceAll(g.text[0], " ", "") != want {
			b.Errorf("VM %s: %q, %v, want %s", n, g.text, g.err, want)
		}
	}
}

// forged has a VM ask under the names of others: no question reaches the resolver.
func (b *bench) forged() {
	b.Helper()
	b.Must("ip", "-n", b.ns("1"), "addr", "add", "10.5.0.13/32", "dev", "eth0")
	if m, err := b.ask("1", "10.5.0.13:0", at4, "forged.example.org.", dns.TypeA, 0); err == nil {
		b.Errorf("under the address of another: %v", m)
	}
	b.configure("1")
	for as, vlans := range map[string][]uint16{"1": {1, 2, 3}, "2": {0, 1, 2, 3}, "3": {0, 1, 2, 3}} {
		for _, vlan := range vlans {
			b.send("1", as, vlan, pack("forged.example.org."))
		}
	}
	time.Sleep(500 * time.Millisecond) // nothing is to come
	if n := b.up.count("forged.example.org."); n != 0 {
		b.Errorf("%d forged queries reached the resolver", n)
	}
	b.send("1", "1", 0, pack("true.example.org."))
	b.Wait("the query under its own name", func() bool { return b.up.count("true.example.org.") == 1 })
	b.answered("after queries under other names", "1", "2", "3")
}

// garbage has a VM send 10,000 packets that are no queries, or nearly some. Another VM is answered meanwhile, and this one when it has stopped.
func (b *bench) garbage() {
	b.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	var payloads [][]byte
	for i := range 10_000 {
		p := pack("a.example.org.")
		if i%2 == 0 {
			p = make([]byte, random.IntN(600))
		}
		for range 1 + random.IntN(8) {
			if len(p) > 0 {
				p[random.IntN(len(p))] = byte(random.IntN(256))
			}
		}
		payloads = append(payloads, p[:random.IntN(len(p)+1)])
	}
	done := make(chan struct{})
	go func() { defer close(done); b.send("1", "1", 0, payloads...) }()
	b.answered("while another sends garbage", "2")
	<-done
	b.answered("after its garbage", "1", "2")
	s := b.Status()
	took := s.Totals.Packets["dns_forwarder"]
	if took["malformed"] == 0 || took["failed"] != 0 || !s.InSync {
		b.Errorf("packets %v, in sync %v", took, s.InSync)
	}
	b.Logf("packets: %v", took)
}
