// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

var (
	vmMAC, otherMAC = net.HardwareAddr{0xfa, 0x16, 0x3e, 0, 0, 1}, net.HardwareAddr{0xfa, 0x16, 0x3e, 0, 0, 2}
	everybody       = net.HardwareAddr{255, 255, 255, 255, 255, 255}
	vmIP, otherIP   = net.IP{10, 0, 0, 5}, net.IP{10, 0, 0, 9}
)

// frame puts layers together.
func frame(t testing.TB, parts ...gopacket.SerializableLayer) []byte {
	t.Helper()
	b := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true}, parts...); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func ethernet(to net.HardwareAddr, kind layers.EthernetType) *layers.Ethernet {
	return &layers.Ethernet{SrcMAC: vmMAC, DstMAC: to, EthernetType: kind}
}

func ipv4(to net.IP, protocol layers.IPProtocol) *layers.IPv4 {
	return &layers.IPv4{Version: 4, IHL: 5, TTL: 64, SrcIP: vmIP, DstIP: to, Protocol: protocol}
}

// frames are one of each kind, with what is said about it and the filters that take it.
func frames(t testing.TB) map[string]struct {
	data   []byte
	text   string
	takers []string
} {
	t.Helper()
	type row = struct {
		data   []byte
		text   string
		takers []string
	}
	ip := ethernet(otherMAC, layers.EthernetTypeIPv4)
	udp := func(src, dst layers.UDPPort) *layers.UDP { return &layers.UDP{SrcPort: src, DstPort: dst} }
	offer := &layers.DHCPv4{
		Operation: layers.DHCPOpReply, HardwareType: layers.LinkTypeEthernet, HardwareLen: 6, ClientHWAddr: vmMAC, YourClientIP: vmIP,
		ClientIP: net.IPv4zero, NextServerIP: net.IPv4zero, RelayAgentIP: net.IPv4zero,
		Options: layers.DHCPOptions{layers.NewDHCPOption(layers.DHCPOptMessageType, []byte{byte(layers.DHCPMsgTypeOffer)})},
	}
	return map[string]row{
		"question for an address": {
			frame(t, ethernet(everybody, layers.EthernetTypeARP), &layers.ARP{
				AddrType: layers.LinkTypeEthernet, Protocol: layers.EthernetTypeIPv4, HwAddressSize: 6, ProtAddressSize: 4, Operation: layers.ARPRequest,
				SourceHwAddress: vmMAC, SourceProtAddress: vmIP, DstHwAddress: make([]byte, 6), DstProtAddress: otherIP,
			}),
			"ARP: who has 10.0.0.9, asks 10.0.0.5", []string{"arp"},
		},
		"tcp":  {frame(t, ip, ipv4(otherIP, layers.IPProtocolTCP), &layers.TCP{SrcPort: 40000, DstPort: 5432, SYN: true}), "TCP SYN, 0 bytes", []string{"ip", "tcp", "6"}},
		"ping": {frame(t, ip, ipv4(otherIP, layers.IPProtocolICMPv4), &layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(8, 0)}), "ICMP echo request", []string{"ip", "icmp", "1"}},
		"dhcp": {frame(t, ip, ipv4(otherIP, layers.IPProtocolUDP), udp(67, 68), offer), "DHCP offer of 10.0.0.5", []string{"ip", "udp", "dhcp", "17"}},
		"dns": {
			frame(t, ip, ipv4(otherIP, layers.IPProtocolUDP), udp(40000, 53), &layers.DNS{Questions: []layers.DNSQuestion{{Name: []byte("a.example"), Type: layers.DNSTypeA, Class: layers.DNSClassIN}}}),
			"DNS question for a.example", []string{"ip", "udp", "dns", "17"},
		},
		"no IP":           {frame(t, ethernet(otherMAC, 0x88cc), gopacket.Payload("x")), "EtherType 0x88cc", nil},
		"another":         {frame(t, ip, ipv4(otherIP, 47), gopacket.Payload("xxxxxxxx")), "IP protocol 47", []string{"ip", "47"}},
		"cut off":         {frame(t, ip, ipv4(otherIP, layers.IPProtocolTCP), &layers.TCP{})[:40], "IP protocol 6", []string{"ip", "6"}},
		"almost nothing":  {[]byte{1, 2, 3}, "a frame that is too short", nil},
		"with a VLAN tag": {frame(t, ethernet(otherMAC, layers.EthernetTypeDot1Q), &layers.Dot1Q{VLANIdentifier: 7, Type: 0x88cc}, gopacket.Payload("x")), "EtherType 0x88cc", nil},
	}
}

func TestReadAndFilter(t *testing.T) {
	for name, f := range frames(t) {
		c := Read(f.data)
		if c.Text != f.text {
			t.Errorf("%s: %q, want %q", name, c.Text, f.text)
		}
		taken := map[string]bool{"": true}
		for _, p := range f.takers {
			taken[p] = true
		}
		for _, p := range append(Protocols, "", "1", "6", "17", "47") {
			filter := Filter{Protocol: p}
			if err := filter.Check(); err != nil {
				t.Error(err)
			}
			if got := filter.Takes(false, &c); got != taken[p] {
				t.Errorf("%s: filter %q takes it: %v", name, p, got)
			}
		}
		if want := name == "with a VLAN tag"; (c.VLAN == 7) != want {
			t.Errorf("%s: VLAN %d", name, c.VLAN)
		}
	}
	tcp := Read(frames(t)["tcp"].data)
	for _, c := range []struct {
		filter Filter
		sent   bool
		want   bool
	}{
		{Filter{Port: 5432}, false, true},
		{Filter{Port: 40000}, false, true},
		{Filter{Port: 22}, false, false},
		{Filter{Host: netip.MustParseAddr("10.0.0.9")}, false, true},
		{Filter{Host: netip.MustParseAddr("10.0.0.5")}, false, true},
		{Filter{Host: netip.MustParseAddr("10.0.0.6")}, false, false},
		{Filter{FromVM: true}, false, true},
		{Filter{FromVM: true}, true, false},
		{Filter{ToVM: true}, true, true},
		{Filter{ToVM: true}, false, false},
	} {
		if got := c.filter.Takes(c.sent, &tcp); got != c.want {
			t.Errorf("%+v sent %v: %v", c.filter, c.sent, got)
		}
	}
	for _, bad := range []Filter{{Protocol: "tpc"}, {Protocol: "999"}, {FromVM: true, ToVM: true}} {
		if bad.Check() == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
}

// Guests send what they like. What gopacket reads out of a frame is read here, too.
func FuzzRead(f *testing.F) {
	for _, row := range frames(f) {
		f.Add(row.data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c := Read(data)
		if c.Text == "" {
			t.Error("a frame without words")
		}
		p := gopacket.NewPacket(data, layers.LayerTypeEthernet, gopacket.NoCopy)
		ip, ok := p.NetworkLayer().(*layers.IPv4)
		if !ok || p.Layer(layers.LayerTypeDot1Q) != nil || p.ErrorLayer() != nil || p.Metadata().Truncated || len(ip.SrcIP) == 0 || ip.FragOffset != 0 {
			return
		}
		if binary.BigEndian.Uint16(ip.Contents[2:]) == 0 {
			return // gopacket takes the rest of the frame for the packet, where the switch sees no packet
		}
		if src, dst := ip.SrcIP.String(), ip.DstIP.String(); c.Packet.Src.String() != src || c.Packet.Dst.String() != dst {
			t.Errorf("%v, want from %s to %s", c.Packet, src, dst)
		}
		if u, ok := p.TransportLayer().(*layers.UDP); ok && (c.Packet.SrcPort != uint16(u.SrcPort) || c.Packet.DstPort != uint16(u.DstPort)) {
			t.Errorf("%v, want ports %d and %d", c.Packet, u.SrcPort, u.DstPort)
		}
	})
}

// The file is one that others read: pcap 2.4 in the byte order of the magic number, with nanoseconds and Ethernet.
func TestFile(t *testing.T) {
	var out bytes.Buffer
	f, err := NewFile(&out)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Write(&Frame{Time: time.Unix(0x01020304, 0x05060708), Data: []byte{1, 2, 3}}); err != nil {
		t.Fatal(err)
	}
	want := []byte{
		0x4d, 0x3c, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x40, 0, 1, 0, 1, 0, 0, 0,
		4, 3, 2, 1, 8, 7, 6, 5, 3, 0, 0, 0, 3, 0, 0, 0, 1, 2, 3,
	}
	if got := out.Bytes(); !bytes.Equal(got, want) {
		t.Errorf("% x\nwant\n% x", got, want)
	}
}

// What the switch is asked about has all that flows of the agent match on.
func TestFlow(t *testing.T) {
	const macs = "dl_src=fa:16:3e:00:00:01,dl_dst=fa:16:3e:00:00:02"
	solicitation := frame(t, ethernet(otherMAC, layers.EthernetTypeIPv6), &layers.IPv6{
		Version: 6, HopLimit: 255, NextHeader: layers.IPProtocolICMPv6, SrcIP: net.ParseIP("fe80::1"), DstIP: net.ParseIP("ff02::2"),
	}, &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(135, 0)}, &layers.ICMPv6NeighborSolicitation{TargetAddress: net.ParseIP("fe80::9")})
	later := ipv4(otherIP, layers.IPProtocolUDP)
	later.FragOffset = 7
	for name, c := range map[string]struct {
		data []byte
		want string
	}{
		"tcp":          {frames(t)["tcp"].data, macs + ",ip,nw_src=10.0.0.5,nw_dst=10.0.0.9,nw_proto=6,nw_ttl=64,tcp_src=40000,tcp_dst=5432"},
		"ping":         {frames(t)["ping"].data, macs + ",ip,nw_src=10.0.0.5,nw_dst=10.0.0.9,nw_proto=1,nw_ttl=64,icmp_type=8,icmp_code=0"},
		"no IP":        {frames(t)["no IP"].data, macs + ",dl_type=0x88cc"},
		"tagged":       {frames(t)["with a VLAN tag"].data, macs + ",dl_vlan=7,dl_type=0x88cc"},
		"solicitation": {solicitation, macs + ",ipv6,ipv6_src=fe80::1,ipv6_dst=ff02::2,nw_proto=58,nw_ttl=255,icmpv6_type=135,icmpv6_code=0,nd_target=fe80::9"},
		"fragment":     {frame(t, ethernet(otherMAC, layers.EthernetTypeIPv4), later, gopacket.Payload("xxxxxxxxxx")), macs + ",ip,nw_src=10.0.0.5,nw_dst=10.0.0.9,nw_proto=17,nw_ttl=64,nw_frag=later"},
		"arp": {
			frames(t)["question for an address"].data,
			"dl_src=fa:16:3e:00:00:01,dl_dst=ff:ff:ff:ff:ff:ff,arp,arp_op=1,arp_spa=10.0.0.5,arp_tpa=10.0.0.9,arp_sha=fa:16:3e:00:00:01,arp_tha=00:00:00:00:00:00",
		},
	} {
		if got := Read(c.data).Flow; got != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, c.want)
		}
	}
}
