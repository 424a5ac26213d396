// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"os"
	"path/filepath"
	"testing"

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
	for _, s := range c.w.Segments() {
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
