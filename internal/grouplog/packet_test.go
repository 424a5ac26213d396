// SPDX-License-Identifier: Apache-2.0

package grouplog

import (
	"encoding/hex"
	"strings"
	"testing"
)

// Frames, as hexadecimal digits, and what os-ken of Debian 12 prints of them, without what they carry. oracle_integration_test.go asks it.
const (
	ethernet = "fa163e000001fa163e000002"
	udp      = ethernet + "0800" + "450000210000000040110000" + "0a0000010a000002" + "00050006000da7f4" + "68656c6c6f"
)

type sample struct{ name, hex, text string }

func samples() []sample {
	const four = "ethernet(dst='fa:16:3e:00:00:01',ethertype=2048,src='fa:16:3e:00:00:02'), "
	const six = "ethernet(dst='fa:16:3e:00:00:01',ethertype=34525,src='fa:16:3e:00:00:02'), "
	ip := func(proto, length string) string {
		return four + "ipv4(csum=0,dst='10.0.0.2',flags=0,header_length=5,identification=0,offset=0,option=None,proto=" + proto +
			",src='10.0.0.1',tos=0,total_length=" + length + ",ttl=64,version=4)"
	}
	const link, group = "fe800000000000000000000000000001", "ff020000000000000000000000000016"
	return []sample{
		{"udp", udp, ip("17", "33") + ", udp(csum=42996,dst_port=6,src_port=5,total_length=13)"},
		{"tcp", ethernet + "0800" + "450000280000000040060000" + "0a0000010a000002" + "00010016000000070000000050022000" + "12340000",
			ip("6", "40") + ", tcp(ack=0,bits=2,csum=4660,dst_port=22,offset=5,option=None,seq=7,src_port=1,urgent=0,window_size=8192)"},
		{"syn", ethernet + "0800" + "4500003c0000000040060000" + "0a0000010a000002" + "000100160000000700000000a0022000" + "12340000" +
			"020405b4" + "0402080a0000000100000002" + "01030307",
			ip("6", "60") + ", tcp(ack=0,bits=2,csum=4660,dst_port=22,offset=10,option=[TCPOptionMaximumSegmentSize(kind=2,length=4,max_seg_size=1460), " +
				"TCPOptionSACKPermitted(kind=4,length=2), TCPOptionTimestamps(kind=8,length=10,ts_ecr=2,ts_val=1), TCPOptionNoOperation(kind=1,length=1), " +
				"TCPOptionWindowScale(kind=3,length=3,shift_cnt=7)],seq=7,src_port=1,urgent=0,window_size=8192)"},
		{"echo", ethernet + "0800" + "4500001f0000000040010000" + "0a0000010a000002" + "0800339a00010002" + "616263",
			ip("1", "31") + ", icmp(code=0,csum=13210,data=echo(data=None,id=1,seq=2),type=8)"},
		{"echo6", ethernet + "86dd" + "60000000000b3aff" + link + group + "8000bdb900010002" + "616263",
			six + "ipv6(dst='ff02::16',ext_hdrs=[],flow_label=0,hop_limit=255,nxt=58,payload_length=11,src='fe80::1',traffic_class=0,version=6), " +
				"icmpv6(code=0,csum=48569,data=echo(data=None,id=1,seq=2),type_=128)"},
		{"multicast report", ethernet + "86dd" + "6000000000100001" + link + group + "3a00050200000100" + "8f00000000000000",
			six + "ipv6(dst='ff02::16',ext_hdrs=[hop_opts(data=None,nxt=58,size=0)],flow_label=0,hop_limit=1,nxt=0,payload_length=16,src='fe80::1',traffic_class=0,version=6), " +
				"icmpv6(code=0,csum=0,data=None,type_=143)"},
		{"arp", ethernet + "0806" + "0001080006040001" + "fa163e0000020a000009" + "ffffffffffff0a000001",
			"ethernet(dst='fa:16:3e:00:00:01',ethertype=2054,src='fa:16:3e:00:00:02'), " +
				"arp(dst_ip='10.0.0.1',dst_mac='ff:ff:ff:ff:ff:ff',hlen=6,hwtype=1,opcode=1,plen=4,proto=2048,src_ip='10.0.0.9',src_mac='fa:16:3e:00:00:02')"},
		{"tagged", ethernet + "8100" + "a0050800" + "4500001c0000000040110000" + "0a0000010a000002" + "0005000600080000",
			strings.Replace(ip("17", "28"), "ethertype=2048,src='fa:16:3e:00:00:02'), ", "ethertype=33024,src='fa:16:3e:00:00:02'), vlan(cfi=0,ethertype=2048,pcp=5,vid=5), ", 1) +
				", udp(csum=0,dst_port=6,src_port=5,total_length=8)"},
		{"sctp", ethernet + "0800" + "450000200000000040840000" + "0a0000010a000002" + "000500060000000900000003",
			ip("132", "32") + ", sctp(chunks=[],csum=3,dst_port=6,src_port=5,vtag=9)"},
		{"another protocol", ethernet + "0800" + "450000190000000040590000" + "0a0000010a000002" + "6f73706678", ip("89", "25")},
		{"another ether type", ethernet + "88cc" + "0102", "ethernet(dst='fa:16:3e:00:00:01',ethertype=35020,src='fa:16:3e:00:00:02')"},
	}
}

func bytesOf(t *testing.T, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestHeaders(t *testing.T) {
	for _, s := range samples() {
		if got := headers(bytesOf(t, s.hex)); got != s.text {
			t.Errorf("%s:\n%s\nwant\n%s", s.name, got, s.text)
		}
	}
	const later = ethernet + "0800" + "4500001c0000006440110000" + "0a0000010a000002" + "6665746368206d65" // not a UDP header
	if got := headers(bytesOf(t, later)); strings.Contains(got, "udp") {
		t.Errorf("a later fragment has ports: %s", got)
	}
}

// FuzzHeaders: whatever a guest sends is one printable line of numbers and addresses, and nothing of what it carries is in it.
func FuzzHeaders(f *testing.F) {
	for _, s := range samples() {
		b, err := hex.DecodeString(s.hex)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		text := headers(b)
		if len(text) > 4000 {
			t.Errorf("%d characters of %d bytes", len(text), len(b))
		}
		for _, c := range text {
			if c < ' ' || c > '~' {
				t.Errorf("%q is in a line", c)
			}
		}
	})
}
