// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/world"
	of "github.com/patchbay-sdn/patchbay/openflow"
)

// TestNothingLeavesUnderAnotherMAC looks at every flow of table 71 that lets a packet out, in every script: it is bound to the
// port and to one of its MACs, so that the switch learns no other MAC there (CVE-2015-8914, CVE-2021-20267).
func TestNothingLeavesUnderAnotherMAC(t *testing.T) {
	files, err := filepath.Glob("testdata/*.script")
	if err != nil {
		t.Fatal(err)
	}
	looked := 0
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		c := play(t, string(data)).c
		macs := map[uint64]map[of.Value]bool{}
		for _, id := range c.w.PortIDs() {
			p := c.w.Port(id)
			if p.VIF == nil || !c.w.Filtered(p) {
				continue
			}
			number := uint64(p.VIF.OFPort)
			macs[number] = map[of.Value]bool{hw(p.VIF.MAC).Value(): true}
			for _, pair := range p.Details.AllowedAddressPairs {
				macs[number][hw(pair.MAC).Value()] = true
			}
		}
		for _, f := range c.all(t, func(world.Object) bool { return true }) {
			flow, err := f.Entry.Flow()
			if err != nil {
				t.Fatal(err)
			}
			if flow.Table != fwBaseEgress || len(flow.Actions) == 0 || flow.Priority == 110 || toDropped(flow) {
				continue
			}
			looked++
			from, bound := flow.Match.Lookup(of.InPort)
			mac, checked := flow.Match.Lookup(of.EthSrc)
			if !bound || !checked || !macs[from.Value.Lo][mac.Value] {
				t.Errorf("%s: %s lets out packets under any MAC", file, f.Entry)
			}
		}
	}
	if looked < 100 {
		t.Errorf("only %d flows were looked at", looked)
	}
}

func toDropped(f of.Flow) bool {
	return f.Actions[len(f.Actions)-1] == of.To(fwDropped)
}

// TestClaimsAreOfOneNetwork: packets are sent to a port's filters by the local VLAN alone, and a port's own MAC counts before
// the address pair of another.
func TestClaimsAreOfOneNetwork(t *testing.T) {
	data, err := os.ReadFile("testdata/physical-networks.script")
	if err != nil {
		t.Fatal(err)
	}
	c := play(t, string(data)).c
	local := map[uint16]bool{}
	for _, s := range c.w.Segments.All() {
		local[s.VLAN] = true
	}
	own := map[of.Value]bool{}
	for _, id := range c.w.PortIDs() {
		own[hw(c.w.Port(id).VIF.MAC).Value()] = true
	}
	claims := 0
	for _, f := range c.all(t, func(world.Object) bool { return true }) {
		flow, err := f.Entry.Flow()
		if err != nil {
			t.Fatal(err)
		}
		to, claim := flow.Match.Lookup(of.EthDst)
		if flow.Table != intTransient || !claim {
			continue
		}
		claims++
		tag, ok := flow.Match.Lookup(of.VLANVID)
		if !ok || !local[uint16(tag.Value.Lo&0xfff)] {
			t.Errorf("%s claims packets of a VLAN that is not a local one", f.Entry)
		}
		if pair := !own[to.Value]; pair != (flow.Priority == pairMAC) {
			t.Errorf("%s: a pair's claim must be below those of the ports themselves", f.Entry)
		}
	}
	if claims < 3 {
		t.Errorf("only %d claims were looked at", claims)
	}
}

// TestAPortIsInNoVLANBeforeItIsWired: from the first sight of its row, whatever the firewall, and whatever is known of it. A row
// without a tag is a trunk of all VLANs.
func TestAPortIsInNoVLANBeforeItIsWired(t *testing.T) {
	noop := filterConfig()
	noop.Filter, noop.FilterTables, noop.AntiSpoof = false, false, true
	closed := filterConfig()
	closed.FailClosed = true
	for name, cfg := range map[string]world.Config{"noop": noop, "openvswitch": closed, "fail_closed off": filterConfig()} {
		t.Run(name, func(t *testing.T) {
			for _, ofport := range []int{0, -1, 11} { // not made yet, failed, made
				c := newCloud(cfg)
				c.plugInto("tapA", ofport, map[string]string{"iface-id": "A", "attached-mac": "fa:16:3e:00:00:0a"})
				c.w.Resolve() // nobody has answered
				want := Compile(c.w, c.s, world.PortObject("A"))
				if got := rowsText(c, want.Rows); got != "tag=4095 vlan_mode=trunk trunks=4095" {
					t.Errorf("number %d: rows %q", ofport, got)
				}
			}
		})
	}
}

// TestAPortLeavesItsNetworkForTheNext: until the flows of its new network are in place a port is in neither.
func TestAPortLeavesItsNetworkForTheNext(t *testing.T) {
	for tag, want := range map[int]string{0: "tag=4095 vlan_mode=trunk trunks=4095", 7: "tag=4095 vlan_mode=trunk trunks=4095", 1: ""} {
		c := newCloud(filterConfig())
		c.plugInto("tapA", 11, map[string]string{"iface-id": "A", "attached-mac": "fa:16:3e:00:00:0a"})
		p := c.w.View.PortByName("tapA")
		if p.Tag = nil; tag != 0 {
			p.Tag = &tag
		}
		if got := rowsText(c, []ovsdb.Spec{ovsdb.IsolationSpec{Port: p.UUID, VLAN: world.DeadVLAN, Keep: 1}}); got != want {
			t.Errorf("tag %d: rows %q, want %q", tag, got, want)
		}
	}
}

// rowsText is what rows write about a port.
func rowsText(c *cloud, rows []ovsdb.Spec) string {
	texts, err := ovsdb.DiffRows(c.w.View, rows...).JSON()
	if err != nil {
		return err.Error()
	}
	var out []string
	for _, column := range []string{"tag", "vlan_mode", "trunks"} {
		for _, text := range texts {
			var op struct {
				Op  string                     `json:"op"`
				Row map[string]json.RawMessage `json:"row"`
			}
			if json.Unmarshal([]byte(text), &op) != nil || op.Op != "update" {
				continue
			}
			if v, ok := op.Row[column]; ok {
				out = append(out, column+"="+strings.NewReplacer(`["set",[`, "", `]]`, "", `"`, "").Replace(string(v)))
			}
		}
	}
	return strings.Join(out, " ")
}
