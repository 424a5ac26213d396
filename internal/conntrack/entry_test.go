// SPDX-License-Identifier: Apache-2.0

package conntrack

import (
	"strings"
	"testing"
)

// entries are lines that ovs-vswitchd 3.1 printed, and the tuples by which it finds them again.
var entries = []struct {
	line, tuple string
	zone        uint16
	mark        uint32
}{
	{
		"tcp,orig=(src=10.9.0.1,dst=10.9.0.2,sport=59766,dport=80),reply=(src=10.9.0.2,dst=10.9.0.1,sport=80,dport=59766),zone=5,mark=1,protoinfo=(state=ESTABLISHED)",
		"ct_nw_src=10.9.0.1,ct_nw_dst=10.9.0.2,ct_nw_proto=6,ct_tp_src=59766,ct_tp_dst=80", 5, 1,
	},
	{
		"tcp,orig=(src=fd00::1,dst=fd00::2,sport=49914,dport=80),reply=(src=fd00::2,dst=fd00::1,sport=80,dport=49914),id=0,zone=4094,status=0,mark=3,labels=0x1,protoinfo=(state_orig=ESTABLISHED,flags_orig=WINDOW_SCALE)",
		"ct_ipv6_src=fd00::1,ct_ipv6_dst=fd00::2,ct_nw_proto=6,ct_tp_src=49914,ct_tp_dst=80", 4094, 3,
	},
	{
		"udp,orig=(src=10.9.0.1,dst=10.9.0.2,sport=49617,dport=99),reply=(src=10.9.0.2,dst=10.9.0.1,sport=99,dport=49617)",
		"ct_nw_src=10.9.0.1,ct_nw_dst=10.9.0.2,ct_nw_proto=17,ct_tp_src=49617,ct_tp_dst=99", 0, 0,
	},
	{
		"icmp,orig=(src=10.9.0.1,dst=10.9.0.2,id=20970,type=8,code=0),reply=(src=10.9.0.2,dst=10.9.0.1,id=20970,type=0,code=0),zone=5,mark=1",
		"ct_nw_src=10.9.0.1,ct_nw_dst=10.9.0.2,ct_nw_proto=1,icmp_id=20970,icmp_type=8,icmp_code=0", 5, 1,
	},
	{
		"icmpv6,orig=(src=fd00::1,dst=fd00::2,id=20972,type=128,code=0),reply=(src=fd00::2,dst=fd00::1,id=20972,type=129,code=0),zone=5,mark=1",
		"ct_ipv6_src=fd00::1,ct_ipv6_dst=fd00::2,ct_nw_proto=58,icmp_id=20972,icmp_type=128,icmp_code=0", 5, 1,
	},
	{
		"sctp,orig=(src=10.9.0.1,dst=10.9.0.2,sport=0,dport=0),reply=(src=10.9.0.2,dst=10.9.0.1,sport=0,dport=0),zone=5,mark=1",
		"ct_nw_src=10.9.0.1,ct_nw_dst=10.9.0.2,ct_nw_proto=132,ct_tp_src=0,ct_tp_dst=0", 5, 1,
	},
	{
		"47,orig=(src=10.9.0.1,dst=10.9.0.2,sport=0,dport=0),reply=(src=10.9.0.2,dst=10.9.0.1,sport=0,dport=0),zone=5",
		"ct_nw_src=10.9.0.1,ct_nw_dst=10.9.0.2,ct_nw_proto=47,ct_tp_src=0,ct_tp_dst=0", 5, 0,
	},
}

func TestParseEntry(t *testing.T) {
	for _, c := range entries {
		e, err := parseEntry(c.line)
		if err != nil {
			t.Errorf("%s: %v", c.line, err)
			continue
		}
		if e.zone != c.zone || e.mark != c.mark || e.tuple() != c.tuple {
			t.Errorf("%s:\n got zone %d, mark %d, %s\nwant zone %d, mark %d, %s", c.line, e.zone, e.mark, e.tuple(), c.zone, c.mark, c.tuple)
		}
	}
}

func TestParseEntryRefuses(t *testing.T) {
	good := "tcp,orig=(src=10.9.0.1,dst=10.9.0.2,sport=1,dport=2),zone=5,mark=1"
	if _, err := parseEntry(good); err != nil {
		t.Fatal(err)
	}
	for _, change := range [][2]string{
		{"tcp", "what"},
		{"tcp", "300"},
		{"orig=", "reply="},
		{"orig=(", "orig="},
		{"2),", "2,"},
		{"src=10.9.0.1,", ""},
		{"dst=10.9.0.2,", ""},
		{"dst=10.9.0.2", "dst=fd00::2"},
		{"src=10.9.0.1,dst=10.9.0.2", "src=fe80::1%eth0,dst=fe80::2"},
		{"src=10.9.0.1", "src=10.9.0"},
		{"sport=1", "sport=65536"},
		{"dport=2", "dport=x"},
		{"zone=5", "zone=65536"},
		{"mark=1", "mark=0x1"},
		{good, ""},
	} {
		bad := strings.Replace(good, change[0], change[1], 1)
		if e, err := parseEntry(bad); err == nil {
			t.Errorf("%s: taken for %+v", bad, e)
		}
	}
}

// A tuple is sent to the switch as part of a command: whatever came in, it must hold nothing but one connection.
func FuzzParseEntry(f *testing.F) {
	for _, c := range entries {
		f.Add(c.line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		e, err := parseEntry(line)
		if err != nil {
			return
		}
		text := e.tuple()
		if strings.ContainsFunc(text, func(r rune) bool {
			return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyz0123456789_=,.:", r)
		}) {
			t.Fatalf("%q became %q", line, text)
		}
		want := 5
		if e.Protocol == protoICMP || e.Protocol == protoICMPv6 {
			want = 6
		}
		if n := len(strings.Split(text, ",")); n != want {
			t.Fatalf("%q became %q of %d fields", line, text, n)
		}
	})
}
