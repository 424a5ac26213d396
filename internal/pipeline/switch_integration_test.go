// SPDX-License-Identifier: Apache-2.0

//go:build integration

package pipeline

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/patchbay-sdn/patchbay/internal/world"
	"github.com/patchbay-sdn/patchbay/lab/vswitch"
	of "github.com/patchbay-sdn/patchbay/openflow"
)

// trace is a packet on its way through the flows of a script.
type trace struct {
	packet string
	states []string // of connection tracking, for each time that it is asked
	out    string   // the port that the packet comes to, or "" if none
}

// fromNetwork is a packet that comes out of a tunnel for port A of the scripts.
func fromNetwork(mac, ip string, port int) string {
	return fmt.Sprintf("in_port=1,dl_vlan=1,dl_src=%s,dl_dst=fa:16:3e:00:00:0a,tcp,nw_src=%s,nw_dst=10.0.0.10,tp_src=40000,tp_dst=%d", mac, ip, port)
}

const (
	member   = "fa:16:3e:aa:aa:aa" // may send under every address
	stranger = "fa:16:3e:ff:ff:ff"
)

var traces = map[string][]trace{
	"base": {
		{fromNetwork(stranger, "10.0.0.99", 22), []string{"trk,new"}, ""},
		{"in_port=1,dl_vlan=1,dl_src=" + stranger + ",dl_dst=fa:16:3e:00:00:0a,arp,arp_op=2", nil, "11"},
		{"in_port=11,dl_src=fa:16:3e:00:00:0a,dl_dst=ff:ff:ff:ff:ff:ff,arp,arp_op=1,arp_spa=10.0.0.10", nil, "NORMAL"},
		{"in_port=11,dl_src=fa:16:3e:00:00:0a,dl_dst=ff:ff:ff:ff:ff:ff,arp,arp_op=1,arp_spa=10.0.0.11", nil, ""},
		{"in_port=11,dl_src=" + stranger + ",dl_dst=ff:ff:ff:ff:ff:ff,arp,arp_op=1,arp_spa=10.0.0.10", nil, ""},
	},
	"plain-rules": {
		{fromNetwork(stranger, "10.0.0.99", 22), []string{"trk,new"}, "11"},
		{fromNetwork(stranger, "10.0.0.99", 22), []string{"trk,est"}, "11"},
		{fromNetwork(stranger, "10.0.0.99", 22), []string{"trk,inv"}, ""},
		{fromNetwork(stranger, "11.0.0.99", 22), []string{"trk,new"}, ""},
		{fromNetwork(stranger, "11.0.0.99", 443), []string{"trk,new"}, "11"},
		{fromNetwork(stranger, "11.0.0.99", 40001), []string{"trk,est,rpl"}, "11"},
		{fromNetwork(stranger, "11.0.0.99", 40001), []string{"trk,est"}, ""}, // no rule allows it any more
	},
	"overlapping-ranges": {
		{fromNetwork(stranger, "10.0.0.11", 84), []string{"trk,new"}, "11"}, // a
		{fromNetwork(stranger, "10.0.0.11", 90), []string{"trk,new"}, "11"},
		{fromNetwork(stranger, "10.0.0.11", 91), []string{"trk,new"}, ""},
		{fromNetwork(stranger, "10.0.0.12", 80), []string{"trk,new"}, "11"}, // a and b
		{fromNetwork(stranger, "10.0.0.12", 95), []string{"trk,est"}, "11"},
		{fromNetwork(stranger, "10.0.0.12", 96), []string{"trk,new"}, ""},
		{fromNetwork(stranger, "10.0.0.13", 85), []string{"trk,new"}, ""}, // nobody
	},
	"address-group": {
		{fromNetwork(stranger, "192.0.2.7", 22), []string{"trk,new"}, "11"},
		{fromNetwork(stranger, "192.0.2.7", 22), []string{"trk,est"}, "11"},
		{fromNetwork(stranger, "192.0.3.7", 22), []string{"trk,new"}, ""},
		{fromNetwork(stranger, "192.0.2.7", 23), []string{"trk,new"}, ""},
	},
	"everyone-and-every-address": {
		{fromNetwork(stranger, "203.0.113.1", 80), []string{"trk,new"}, "11"},
		{fromNetwork(stranger, "203.0.113.1", 22), []string{"trk,new"}, ""},
		{fromNetwork(member, "203.0.113.1", 22), []string{"trk,new"}, "11"},
		{fromNetwork(member, "203.0.113.1", 80), []string{"trk,new"}, "11"},
		{fromNetwork(stranger, "10.0.0.11", 22), []string{"trk,new"}, "11"},
	},
	"fail-closed": {
		{"in_port=11,dl_src=fa:16:3e:00:00:0a,dl_dst=ff:ff:ff:ff:ff:ff,arp,arp_op=1,arp_spa=10.0.0.10", nil, "NORMAL"},
		{"in_port=12,dl_src=fa:16:3e:00:00:0b,dl_dst=ff:ff:ff:ff:ff:ff,arp,arp_op=1,arp_spa=10.0.0.11", nil, "NORMAL"},
		{"in_port=13,dl_src=fa:16:3e:00:00:0c,dl_dst=ff:ff:ff:ff:ff:ff,arp,arp_op=1,arp_spa=10.0.0.12", nil, ""},
		{"in_port=14,dl_src=fa:16:3e:00:00:0d,dl_dst=ff:ff:ff:ff:ff:ff,arp,arp_op=1,arp_spa=10.0.0.13", nil, ""},
	},
}

// TestScriptsOnASwitch installs the flows of every script on a real switch, which must take them all and have them as they
// were meant, and sends packets through some of them.
func TestScriptsOnASwitch(t *testing.T) {
	sw, conn := scriptSwitch(t)
	files, err := filepath.Glob("testdata/*.script")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	played := 0
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".script")
		t.Run(name, func(t *testing.T) {
			install(t, conn, playFile(t, file))
			for _, tr := range traces[name] {
				tr.run(t, sw)
				played++
			}
		})
	}
	if played < 30 {
		t.Errorf("only %d packets were sent", played)
	}
}

// playFile plays a script, and returns the cloud that it makes.
func playFile(t *testing.T, file string) *cloud {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return play(t, string(data)).c
}

// scriptSwitch returns a switch with the ports of the scripts.
func scriptSwitch(t *testing.T) (*vswitch.Switch, *of.Conn) {
	t.Helper()
	sw := vswitch.New(t, func(c *vswitch.Config) { c.DummyDatapath = true })
	args := []string{"add-br", "br-int", "--", "set", "Bridge", "br-int", "fail_mode=secure"}
	for i, name := range []string{1: "patch-tun", 2: "int-br-ex", 11: "tapA", 12: "tapB", 13: "tapC", 14: "tapD"} {
		if name != "" {
			args = append(args, "--", "add-port", "br-int", name, "--", "set", "Interface", name, "type=dummy", fmt.Sprintf("ofport_request=%d", i))
		}
	}
	if _, err := sw.Vsctl(t.Context(), args...); err != nil {
		t.Fatal(err)
	}
	conn, err := of.Dial(t.Context(), "unix:"+sw.MgmtSocket("br-int"), of.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return sw, conn
}

// install replaces all flows by those of a cloud.
func install(t *testing.T, conn *of.Conn, c *cloud) {
	t.Helper()
	remove, err := of.DeleteFlows(of.Filter{Table: of.AllTables})
	if err != nil {
		t.Fatal(err)
	}
	msgs := []of.Message{remove}
	flows := c.all(t, func(world.Object) bool { return true })
	for _, f := range flows {
		msgs = append(msgs, of.AddFlow(f.Entry))
	}
	if err := conn.Commit(t.Context(), msgs); err != nil {
		t.Fatal(err)
	}
	have, err := conn.Flows(t.Context(), of.Filter{Table: of.AllTables})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range have {
		if flows[e.Key()].Entry != e {
			t.Errorf("the switch has %s\nwant %s", e, flows[e.Key()].Entry)
		}
	}
	if len(have) != len(flows) {
		t.Errorf("the switch has %d flows, want %d", len(have), len(flows))
	}
}

func (tr trace) run(t *testing.T, sw *vswitch.Switch) {
	t.Helper()
	args := []string{"ofproto/trace", "br-int", tr.packet}
	for _, s := range tr.states {
		args = append(args, "--ct-next", s)
	}
	out, err := sw.Appctl(t.Context(), "ovs-vswitchd", args...)
	if err != nil {
		t.Fatal(err)
	}
	var ends []string
	for line := range strings.SplitSeq(out, "\n") {
		line = strings.TrimSpace(line)
		if to, ok := strings.CutPrefix(line, "output:"); ok {
			ends = append(ends, to)
		} else if line == "NORMAL" {
			ends = append(ends, line)
		}
	}
	var want []string
	if tr.out != "" {
		want = []string{tr.out}
	}
	if !slices.Equal(ends, want) {
		t.Errorf("%s %q comes to %q, want %q:\n%s", tr.packet, tr.states, ends, want, out)
	}
}
