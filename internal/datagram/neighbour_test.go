// SPDX-License-Identifier: Apache-2.0

package datagram

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
)

var guest, service = neutron.MAC{0xfa, 0x16, 0x3e, 1, 2, 3}, neutron.MAC{0xfa, 0x16, 0xee, 0xff, 0xff, 0xff}

// solicit returns a solicitation as a guest sends it.
func solicit(t testing.TB, src, target string, hops uint8) []byte {
	t.Helper()
	from, for6 := netip.MustParseAddr(src), netip.MustParseAddr(target)
	ip := &layers.IPv6{Version: 6, HopLimit: hops, NextHeader: layers.IPProtocolICMPv6, SrcIP: from.AsSlice(), DstIP: netip.MustParseAddr("ff02::1:fffe:a9fe").AsSlice()}
	icmp := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(layers.ICMPv6TypeNeighborSolicitation, 0)}
	if err := icmp.SetNetworkLayerForChecksum(ip); err != nil {
		t.Fatal(err)
	}
	b := gopacket.NewSerializeBuffer()
	err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
		&layers.Ethernet{SrcMAC: guest[:], DstMAC: []byte{0x33, 0x33, 0xff, 0xfe, 0xa9, 0xfe}, EthernetType: layers.EthernetTypeIPv6}, ip, icmp,
		&layers.ICMPv6NeighborSolicitation{TargetAddress: for6.AsSlice(), Options: layers.ICMPv6Options{{Type: layers.ICMPv6OptSourceAddress, Data: guest[:]}}})
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestNeighbour: who asks for an address of the link is told a MAC, in a packet that another decoder reads and whose checksum is right.
func TestNeighbour(t *testing.T) {
	s, err := ReadSolicitation(solicit(t, "fe80::1", "fe80::a9fe:a9fe", 255))
	if err != nil || s.SrcMAC != guest || s.Src.String() != "fe80::1" || s.Target.String() != "fe80::a9fe:a9fe" {
		t.Fatalf("%+v, %v", s, err)
	}
	b := s.Answer(service)
	p := gopacket.NewPacket(b, layers.LayerTypeEthernet, gopacket.Default)
	ether, _ := p.LinkLayer().(*layers.Ethernet)
	ip, _ := p.NetworkLayer().(*layers.IPv6)
	tell, _ := p.Layer(layers.LayerTypeICMPv6NeighborAdvertisement).(*layers.ICMPv6NeighborAdvertisement)
	if p.ErrorLayer() != nil || ether == nil || ip == nil || tell == nil {
		t.Fatalf("%v\n%x", p, b)
	}
	if !slices.Equal(ether.DstMAC, guest[:]) || !slices.Equal(ether.SrcMAC, service[:]) || ip.HopLimit != 255 || ip.SrcIP.String() != "fe80::a9fe:a9fe" || ip.DstIP.String() != "fe80::1" ||
		tell.TargetAddress.String() != "fe80::a9fe:a9fe" || !tell.Solicited() || !tell.Override() || tell.Router() || len(tell.Options) != 1 || !slices.Equal(tell.Options[0].Data, service[:]) {
		t.Errorf("%v", p)
	}
	if sum := Checksum(Checksum(ProtoICMPv6+uint32(len(b)-54), b[22:54]), b[54:]); sum != 0xffff {
		t.Errorf("checksum %x", sum)
	}
}

// TestBadNeighbours: what is cut, comes by a router, or asks for nobody gets no answer.
func TestBadNeighbours(t *testing.T) {
	whole := solicit(t, "fe80::1", "fe80::a9fe:a9fe", 255)
	for n := range whole {
		if s, err := ReadSolicitation(whole[:n]); err == nil {
			t.Errorf("%d of %d bytes are read: %+v", n, len(whole), s)
		}
	}
	for name, b := range map[string][]byte{
		"by a router":                  solicit(t, "fe80::1", "fe80::a9fe:a9fe", 64),
		"without a source":             solicit(t, "::", "fe80::a9fe:a9fe", 255),
		"from a group":                 solicit(t, "ff02::1", "fe80::a9fe:a9fe", 255),
		"for a group":                  solicit(t, "fe80::1", "ff02::1", 255),
		"IPv4":                         changed(whole, 12, 8, 0),
		"with a header before ICMPv6":  changed(whole, 20, 0),
		"an advertisement":             changed(whole, 54, 136),
		"with a code":                  changed(whole, 55, 1),
		"with a length beyond the end": changed(whole, 18, 1),
		"with a length that is short":  changed(whole, 18, 0, 23),
	} {
		if s, err := ReadSolicitation(b); err == nil {
			t.Errorf("%s is read: %+v", name, s)
		}
	}
}

func changed(b []byte, at int, to ...byte) []byte {
	b = slices.Clone(b)
	copy(b[at:], to)
	return b
}

// FuzzRead: no bytes are too much, and what is read is written again.
func FuzzRead(f *testing.F) {
	udp := Frame{SrcMAC: guest, DstMAC: service, Src: netip.MustParseAddr("10.0.0.1"), Dst: netip.MustParseAddr("169.254.169.254"), SrcPort: 1, DstPort: 53, Payload: []byte("x")}
	f.Add(udp.Bytes())
	udp.Src, udp.Dst = netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fd00::254")
	f.Add(udp.Bytes())
	f.Add(solicit(f, "fe80::1", "fe80::a9fe:a9fe", 255))
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, err := ReadSolicitation(b); err == nil {
			_ = s.Answer(service)
		}
		got, err := Read(b)
		if err != nil {
			return
		}
		again, err := Read(got.Bytes())
		if err != nil || again.Src != got.Src || again.Dst != got.Dst || again.SrcPort != got.SrcPort || again.DstPort != got.DstPort || !slices.Equal(again.Payload, got.Payload) {
			t.Errorf("%+v, %v; before %+v", again, err, got)
		}
	})
}
