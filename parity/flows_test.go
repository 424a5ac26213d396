// SPDX-License-Identifier: Apache-2.0

package parity

import (
	"strings"
	"testing"

	"github.com/patchbay-sdn/patchbay/openflow"
)

func testNames() *Names {
	n := NewNames()
	n.Text("b0000001-0000-4000-8000-000000000000", "A")
	n.Text("tapb0000001-00", "tap-A")
	n.Text("a0000001-0000-4000-8000-000000000000", "N1")
	n.Text("198.51.100.12", "ip-hv2")
	n.Text("vxlan-c633640c", "vxlan-hv2")
	n.Text("vxlan-c633640d", "vxlan-hv3")
	n.Port("br-int", 7, "tapb0000001-00")
	n.Port("br-int", 1, "int-br-ex")
	n.Port("br-ex", 2, "phy-br-ex")
	n.Port("br-tun", 1, "patch-int")
	n.Port("br-tun", 9, "vxlan-c633640c")
	n.Port("br-tun", 4, "vxlan-c633640d")
	n.VLAN(3, "a0000001-0000-4000-8000-000000000000/201")
	return n
}

func TestFlowsLoseWhatRunsDifferIn(t *testing.T) {
	for _, test := range []struct{ bridge, flow, want string }{
		{
			"br-int", "cookie=0x77,table=0,priority=9,in_port=7,actions=goto_table:25",
			"br-int table=0 priority=9 in_port=tap-A actions=goto_table:25",
		},
		{
			"br-int", "table=24,priority=2,arp,in_port=7,arp_spa=192.168.100.10,actions=goto_table:25",
			"br-int table=24 priority=2 in_port=tap-A,arp,arp_spa=192.168.100.10 actions=goto_table:25",
		},
		{ // what comes from the wire has the segmentation id, which is the same in every run
			"br-int", "table=0,priority=3,in_port=1,dl_vlan=3,actions=mod_vlan_vid:3,goto_table:59",
			"br-int table=0 priority=3 in_port=int-br-ex,dl_vlan=3 actions=set_vlan:N1/201,goto_table:59",
		},
		{
			"br-ex", "table=0,priority=4,in_port=2,dl_vlan=3,actions=mod_vlan_vid:3,NORMAL",
			"br-ex table=0 priority=4 in_port=phy-br-ex,vlan=N1/201 actions=set_vlan:3,NORMAL",
		},
		{
			"br-int", "table=0,priority=65535,dl_vlan=4095,actions=drop",
			"br-int table=0 priority=65535 vlan=dead actions=drop",
		},
		{ // a packet of a connection is tracked
			"br-int", "table=82,priority=70,ct_state=+est-rel-rpl+trk,ip,reg5=7,actions=drop",
			"br-int table=82 priority=70 reg5=tap-A,ct_state=+est-rel-rpl,ip actions=drop",
		},
		{ // that it is tracked is all that this says, and the state of the next is none
			"br-int", "table=82,priority=50,ct_state=+trk,ip,reg5=7,actions=drop",
			"br-int table=82 priority=50 reg5=tap-A,ct_state=+trk,ip actions=drop",
		},
		{
			"br-int", "table=82,priority=50,ct_state=+inv+trk,ip,reg5=7,actions=drop",
			"br-int table=82 priority=50 reg5=tap-A,ct_state=+inv+trk,ip actions=drop",
		},
		{ // a flood has no order
			"br-tun", "table=22,priority=1,dl_vlan=3,actions=strip_vlan,set_field:0x3e9->tun_id,output:9,output:4",
			"br-tun table=22 priority=1 vlan=N1/201 actions=pop_vlan,set_field:0x3e9->tun_id,output:vxlan-hv2,output:vxlan-hv3",
		},
		{
			"br-int", "table=60,priority=9,in_port=7,actions=load:0x3->NXM_NX_REG6[],resubmit(,61)",
			"br-int table=60 priority=9 in_port=tap-A actions=set_field:N1/201->reg6,resubmit(,61)",
		},
		{
			"br-int", "table=61,priority=12,reg6=0x3,dl_dst=fa:16:3e:00:00:0a,actions=output:7",
			"br-int table=61 priority=12 reg6=N1/201,dl_dst=fa:16:3e:00:00:0a actions=output:tap-A",
		},
		{ // a VLAN of the wire meets the firewall's dispatch, too
			"br-int", "table=60,priority=90,dl_vlan=201,dl_dst=fa:16:3e:00:00:0a,actions=load:0x7->NXM_NX_REG5[],load:0x3->NXM_NX_REG6[],strip_vlan,resubmit(,81)",
			"br-int table=60 priority=90 dl_vlan=201,dl_dst=fa:16:3e:00:00:0a actions=set_field:tap-A->reg5,set_field:N1/201->reg6,pop_vlan,resubmit(,81)",
		},
		{
			"br-int", "table=72,priority=50,ct_state=+est-rel+rpl,ct_zone=3,ct_mark=0,reg5=0x7,actions=resubmit(,94)",
			"br-int table=72 priority=50 ct_zone=N1/201,reg5=tap-A,ct_state=+est-rel+rpl,ct_mark=0 actions=resubmit(,94)",
		},
		{
			"br-int", "table=71,priority=65,ip,in_port=7,reg5=0x7,actions=ct(table=72,zone=NXM_NX_REG6[0..15])",
			"br-int table=71 priority=65 in_port=tap-A,reg5=tap-A,ip actions=ct(table=72,zone=NXM_NX_REG6[0..15])",
		},
		{ // nobody knows what this number was
			"br-int", "table=0,priority=2,in_port=99,actions=drop",
			"br-int table=0 priority=2 in_port=unknown actions=drop",
		},
	} {
		f, err := openflow.ParseFlow(test.flow)
		if err != nil {
			t.Fatalf("%s: %v", test.flow, err)
		}
		got, ok := testNames().Flow(test.bridge, f)
		if !ok || got != test.want {
			t.Errorf("%s\n got %s\nwant %s", test.flow, got, test.want)
		}
	}
}

func TestCookieOfLearnIsDropped(t *testing.T) {
	const text = "table=10,priority=1,actions=learn(table=20,hard_timeout=300,priority=1,cookie=0x%s," +
		"NXM_OF_VLAN_TCI[0..11],NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],output:NXM_OF_IN_PORT[]),output:1"
	var lines []string
	for _, cookie := range []string{"11", "22"} {
		f, err := openflow.ParseFlow(strings.Replace(text, "%s", cookie, 1))
		if err != nil {
			t.Fatal(err)
		}
		line, _ := testNames().Flow("br-tun", f)
		lines = append(lines, line)
	}
	if lines[0] != lines[1] || strings.Contains(lines[0], "cookie") {
		t.Errorf("%q and %q", lines[0], lines[1])
	}
}

func TestLearnedFlowsAreSetAside(t *testing.T) {
	f, err := openflow.ParseFlow("table=20,priority=1,hard_timeout=300,dl_vlan=3,dl_dst=fa:16:3e:00:00:0a,actions=output:9")
	if err != nil {
		t.Fatal(err)
	}
	if line, ok := testNames().Flow("br-tun", f); ok {
		t.Errorf("%q takes part", line)
	}
}
