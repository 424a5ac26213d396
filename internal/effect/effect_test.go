// SPDX-License-Identifier: Apache-2.0

package effect

import (
	"strings"
	"testing"

	"github.com/patchbay-sdn/patchbay/internal/dataplane"
	"github.com/patchbay-sdn/patchbay/internal/delta"
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
