// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

func party(n byte) Party {
	return Party{
		MAC: net.HardwareAddr{0xfa, 0x16, 0x3e, 0, 0, n}, V4: netip.AddrFrom4([4]byte{192, 168, 100, n}),
		V6: netip.AddrFrom16([16]byte{0xfd, 0, 0x0e, 0x2e, 15: n}),
	}
}

func cast() Cast {
	return Cast{
		Own: party(1), Neighbours: []Party{party(2), party(3)}, Strangers: []Party{party(4)}, Gateway: party(254),
		VLANs: []uint16{1, 2}, EtherTypes: []uint16{0x4008},
	}
}

func TestTheSameSeedMakesTheSameFrames(t *testing.T) {
	a, b, other := New(7, cast()), New(7, cast()), New(8, cast())
	differ := 0
	for i := range 20_000 {
		x, y, z := a.Next(), b.Next(), other.Next()
		if x.Kind != y.Kind || !bytes.Equal(x.Bytes, y.Bytes) {
			t.Fatalf("frame %d differs: %s %x and %s %x", i, x.Kind, x.Bytes, y.Kind, y.Bytes)
		}
		if !bytes.Equal(x.Bytes, z.Bytes) {
			differ++
		}
	}
	if differ < 19_000 {
		t.Errorf("of 20000 frames of another seed %d differ", differ)
	}
}

// TestTheMix counts frames by their kind, and what they say by who says it.
func TestTheMix(t *testing.T) {
	const count = 20_000
	g, own := New(1, cast()), cast().Own
	rules := Rules{MACs: []net.HardwareAddr{own.MAC}, IPs: []netip.Prefix{
		netip.PrefixFrom(own.V4, 32), netip.PrefixFrom(own.V6, 128), netip.PrefixFrom(LinkLocal(own.MAC), 128),
	}, Filtered: true}
	by, numbered, inOrder := map[string]int{}, 0, 0
	said := map[string]int{}
	for range count {
		f := g.Next()
		if len(f.Bytes) < 14 || len(f.Bytes) > 1414 {
			t.Fatalf("%s: a frame of %d bytes", f.Kind, len(f.Bytes))
		}
		by[f.Kind]++
		if n, ok := NumberIn(f.Bytes); ok {
			if numbered++; n != g.Number() {
				t.Fatalf("%s: number %d, want %d", f.Kind, n, g.Number())
			}
		}
		wrong := rules.Wrong(f.Bytes)
		if wrong == "" {
			inOrder++
		}
		for _, what := range []string{"source MAC", "ARP sender", "IPv4 source", "IPv6 source", "advertised address", "router advertisement", "answer of a DHCP server", "answer of a DHCPv6 server"} {
			if strings.HasPrefix(wrong, what) {
				said[what]++
			}
		}
	}
	for _, name := range Kinds() {
		if by[name] < count/len(Kinds())/3 {
			t.Errorf("%d frames of %d are %q", by[name], count, name)
		}
		delete(by, name)
	}
	if len(by) > 0 {
		t.Errorf("kinds that are not listed: %v", by)
	}
	t.Logf("%d kinds; %d of %d frames carry their number, %d are in order; of the others: %v", len(Kinds()), numbered, count, inOrder, said)
	if numbered < count*3/4 {
		t.Errorf("%d of %d frames carry their number", numbered, count)
	}
	if len(said) != 8 || inOrder < count/10 || inOrder > count/2 {
		t.Errorf("%d of %d frames are in order, the others say %v", inOrder, count, said)
	}
}

// TestWholeFramesDecode has the library read what it wrote: a frame that is not meant to be damaged has the layers of its kind.
func TestWholeFramesDecode(t *testing.T) {
	want := map[string]gopacket.LayerType{
		"ARP request": layers.LayerTypeARP, "gratuitous ARP": layers.LayerTypeARP, "ICMPv6 type 136": layers.LayerTypeICMPv6NeighborAdvertisement,
		"ICMPv6 type 133": layers.LayerTypeICMPv6RouterSolicitation, "ICMPv6 type 143": layers.LayerTypeMLDv2MulticastListenerReport,
		"DHCP from a server": layers.LayerTypeDHCPv4, "DHCPv6 from a client": layers.LayerTypeDHCPv6, "IPv4 TCP": layers.LayerTypeTCP,
		"IPv4 fragments, whole": layers.LayerTypeIPv4, "IPv6 fragments, tiny": layers.LayerTypeIPv6Fragment,
		"IPv6 hop-by-hop options": layers.LayerTypeIPv6HopByHop, "IPv6 destination options": layers.LayerTypeIPv6Destination,
		"IPv6 authentication header": layers.LayerTypeIPSecAH,
		"VLAN tag":                   layers.LayerTypeDot1Q, "SNAP": layers.LayerTypeSNAP,
	}
	g := New(3, cast())
	seen := map[string]int{}
	for range 10_000 {
		f := g.Next()
		l, ok := want[f.Kind]
		if !ok {
			continue
		}
		seen[f.Kind]++
		if p := gopacket.NewPacket(f.Bytes, layers.LayerTypeEthernet, gopacket.Default); p.Layer(l) == nil {
			t.Fatalf("%s has no %v: %v", f.Kind, l, p)
		}
	}
	if len(seen) != len(want) {
		t.Errorf("only %d of %d kinds were seen", len(seen), len(want))
	}
}

func TestWrong(t *testing.T) {
	own, other := cast().Own, party(2)
	rules := Rules{MACs: []net.HardwareAddr{own.MAC}, IPs: []netip.Prefix{netip.PrefixFrom(own.V4, 32), netip.PrefixFrom(LinkLocal(own.MAC), 128)}, Filtered: true}
	open := rules
	open.Filtered = false
	frame := func(mac net.HardwareAddr, kind uint16, body []byte) []byte {
		return append(binary.BigEndian.AppendUint16(append(append([]byte{}, allOnes...), mac...), kind), body...)
	}
	arp := func(ip netip.Addr) []byte {
		b := append([]byte{0, 1, 8, 0, 6, 4, 0, 2}, own.MAC...)
		return append(append(b, ip.AsSlice()...), make([]byte, 10)...)
	}
	ip4 := func(from netip.Addr, sport, dport byte) []byte {
		b := append([]byte{0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0}, from.AsSlice()...)
		return append(append(b, 255, 255, 255, 255), 0, sport, 0, dport, 0, 8, 0, 0)
	}
	advert := func(before []byte, next byte, target netip.Addr) []byte {
		b := []byte{0x60, 0, 0, 0, 0, byte(len(before) + 24), next, 255}
		b = append(append(b, LinkLocal(own.MAC).AsSlice()...), netip.MustParseAddr("ff02::1").AsSlice()...)
		return append(append(append(b, before...), 136, 0, 0, 0, 0, 0, 0, 0), target.AsSlice()...)
	}
	for _, c := range []struct {
		name               string
		f                  []byte
		filtered, unfilter string
	}{
		{"own MAC", frame(own.MAC, 0x88b5, nil), "", ""},
		{"another's MAC", frame(other.MAC, 0x88b5, nil), "source MAC", "source MAC"},
		{"own ARP", frame(own.MAC, etherARP, arp(own.V4)), "", ""},
		{"another's ARP", frame(own.MAC, etherARP, arp(other.V4)), "ARP sender", "ARP sender"},
		{"another's ARP behind two tags of 0", tag(tag(frame(own.MAC, etherARP, arp(other.V4)), etherVLAN, 0), etherVLAN, 0x2000), "ARP sender", "ARP sender"},
		{"another's ARP in a VLAN", tag(frame(own.MAC, etherARP, arp(other.V4)), etherVLAN, 5), "", ""},
		{"own IPv4", frame(own.MAC, etherIPv4, ip4(own.V4, 1, 2)), "", ""},
		{"another's IPv4", frame(own.MAC, etherIPv4, ip4(other.V4, 1, 2)), "IPv4 source", ""},
		{"no IPv4 yet", frame(own.MAC, etherIPv4, ip4(netip.IPv4Unspecified(), 68, 67)), "", ""},
		{"no IPv4 and no DHCP", frame(own.MAC, etherIPv4, ip4(netip.IPv4Unspecified(), 68, 68)), "IPv4 source", ""},
		{"DHCP server", frame(own.MAC, etherIPv4, ip4(own.V4, 67, 68)), "answer of a DHCP server", ""},
		{"own advertisement", frame(own.MAC, etherIPv6, advert(nil, 58, LinkLocal(own.MAC))), "", ""},
		{"another's advertisement", frame(own.MAC, etherIPv6, advert(nil, 58, other.V6)), "advertised", "advertised"},
		{"the same behind options", frame(own.MAC, etherIPv6, advert([]byte{58, 0, 1, 4, 0, 0, 0, 0}, 60, other.V6)), "advertised", "advertised"},
		{"the same in a whole fragment", frame(own.MAC, etherIPv6, advert([]byte{58, 0, 0, 0, 0, 0, 0, 0}, 44, other.V6)), "advertised", "advertised"},
		{"the same in a first fragment", frame(own.MAC, etherIPv6, advert([]byte{58, 0, 0, 1, 0, 0, 0, 0}, 44, other.V6)), "advertised", ""},
		{"SNAP", frame(own.MAC, 40, append([]byte{0xaa, 0xaa, 3, 0, 0, 0, 8, 6}, arp(other.V4)...)), "ARP sender", "ARP sender"},
	} {
		for r, want := range map[*Rules]string{&rules: c.filtered, &open: c.unfilter} {
			if got := r.Wrong(c.f); (want == "") != (got == "") || !strings.HasPrefix(got, want) {
				t.Errorf("%s, filtered %v: %q, want %q", c.name, r.Filtered, got, want)
			}
		}
	}
}
