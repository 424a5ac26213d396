// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"net/netip"
	"testing"
)

func TestJudgeFrame(t *testing.T) {
	ports := ParsePorts(read(t, "dpif-show.txt"))
	for _, c := range []struct {
		trace  string
		packet Packet
		change func(h *Host)
		want   string
	}{
		{"local", Packet{Protocol: "tcp", SrcMAC: macA, DstMAC: macB, DstPort: 22}, nil, "delivered: to port b (tap6a18cdc6-3c)"},
		{"tunnel", Packet{Protocol: "tcp", SrcMAC: macA, DstMAC: macC}, nil, "leaves: to 10.251.1.12 over vxlan, number 1000"},
		{
			"spoofed", Packet{Protocol: "tcp", SrcMAC: macA, DstMAC: macB, Src: netip.MustParseAddr("1.2.3.4"), Dst: netip.MustParseAddr("192.168.100.3")}, nil,
			"dropped: port a sends under 1.2.3.4, which port security does not let it",
		},
		// A broadcast has no receiver: it goes where the trace goes.
		{"tunnel", Packet{Protocol: "udp", SrcMAC: macA, DstMAC: "ff:ff:ff:ff:ff:ff", SrcPort: 68, DstPort: 67}, nil, "flooded: to 10.251.1.12, tap6a18cdc6-3c"},
		{"local", Packet{Protocol: "udp", SrcMAC: macA, DstMAC: "ff:ff:ff:ff:ff:ff", SrcPort: 68, DstPort: 67}, nil, "flooded: to tap6a18cdc6-3c"},
		{
			"dead", Packet{Protocol: "udp", SrcMAC: macA, DstMAC: "ff:ff:ff:ff:ff:ff", SrcPort: 68, DstPort: 67},
			func(h *Host) { h.Ports[0].State, h.Ports[0].Reason = "dead", "bound to host hv9, not to this one" },
			"dropped: port a is dead: bound to host hv9, not to this one",
		},
		{
			"arp", Packet{Protocol: ARP, SrcMAC: macA, DstMAC: "ff:ff:ff:ff:ff:ff", Dst: netip.MustParseAddr("192.168.100.4")}, nil,
			"answered: the switch answers for 192.168.100.4, as the server said where it is",
		},
	} {
		h := host(t)
		if c.change != nil {
			c.change(h)
		}
		from, err := h.Port("a")
		if err != nil {
			t.Fatal(err)
		}
		if got := h.JudgeFrame(from, c.packet, recorded(t, c.trace), ports); got.String() != c.want {
			t.Errorf("%s to %s: %s, want %s", c.trace, c.packet.DstMAC, got, c.want)
		}
	}
	// What a flow sends to the agent is the agent's to answer.
	h := host(t)
	from, err := h.Port("a")
	if err != nil {
		t.Fatal(err)
	}
	tr := recorded(t, "dead")
	tr.Steps[len(tr.Steps)-1].Actions = []string{"CONTROLLER:65535"}
	if got := h.JudgeFrame(from, Packet{SrcMAC: macA, DstMAC: "ff:ff:ff:ff:ff:ff"}, tr, ports); got.Outcome != Answered {
		t.Errorf("%s", got)
	}
	for _, ref := range []string{"nobody", ""} {
		if e, err := h.Port(ref); err == nil {
			t.Errorf("%q is %v", ref, e)
		}
	}
	if d, vlan := h.Device(from); d == nil || d.Name != "tapb07e3ac9-b0" || vlan != 0 {
		t.Errorf("%v %d", d, vlan)
	}
}
