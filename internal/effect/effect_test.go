// SPDX-License-Identifier: Apache-2.0

package effect

import (
	"strings"
	"testing"

	"github.com/patchbay-sdn/patchbay/internal/dataplane"
	"github.com/patchbay-sdn/patchbay/internal/delta"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/world"
)

// TestOwnersInWords: the text of a round tells owners of one id and different kinds apart, and has a word for no owner.
func TestOwnersInWords(t *testing.T) {
	text := Apply{&dataplane.Round{
		Placed: []world.Object{world.PortObject("a"), world.SegmentObject{Network: "a", ID: 7}},
		Bundles: []dataplane.Bundle{{
			Bridge: "br-int", Changes: []delta.Change{{Owner: world.PortObject("a")}, {Owner: world.BridgeObject("a")}, {}}, MetersOut: []delta.MeterChange{{}},
		}},
	}}.String()
	for _, want := range []string{"placed [port a segment a/7]", "flow of port a: ", "flow of bridge a: ", "flow of none: ", "meter after of none: "} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

// TestSnapshotsAreToldInShort: the text of a small snapshot is all of it; that of a large one is how much it has, because every record of a decision takes it.
func TestSnapshotsAreToldInShort(t *testing.T) {
	small := Save{Memory: &world.Memory{Ports: make([]neutron.Port, 499), Members: make([]world.MemberMemory, 1)}}
	if text := small.String(); !strings.Contains(text, `"ports":[{`) {
		t.Errorf("%.200s", text)
	}
	large := Save{Memory: &world.Memory{Ports: make([]neutron.Port, 1), Members: make([]world.MemberMemory, 500), Groups: make([]neutron.SecurityGroup, 2), Remotes: make([]world.RemoteMemory, 3)}}
	if text := large.String(); !strings.HasSuffix(text, " 1 ports, 2 groups, 500 members of 3, 0 tunnels, 0 segments") {
		t.Errorf("%.200s", text)
	}
}
