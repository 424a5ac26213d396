// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"context"
	"errors"
	"testing"

	"github.com/patchbay-sdn/patchbay/internal/conntrack"
	"github.com/patchbay-sdn/patchbay/internal/effect"
)

// halfBroken knows the connections of zones with an even number.
type halfBroken struct{ Conntrack }

var errZone = errors.New("zone cannot be read")

func (halfBroken) Marked(_ context.Context, zone uint16) ([]conntrack.Connection, error) {
	if zone%2 != 0 {
		return nil, errZone
	}
	return make([]conntrack.Connection, zone), nil
}

// TestConnectionsOfSomeZones: what could be listed counts, and so does that something could not.
func TestConnectionsOfSomeZones(t *testing.T) {
	var got []effect.Event
	r := New(Config{Conntrack: halfBroken{}}, func(e effect.Event) { got = append(got, e) })
	r.Start(t.Context(), []effect.Effect{effect.ListConnections{Zones: []uint16{2, 3, 4, 0}}})
	r.Wait()
	if len(got) != 1 {
		t.Fatalf("%d events", len(got))
	}
	e, ok := got[0].(effect.ConnectionsListed)
	if !ok || !errors.Is(e.Err, errZone) || len(e.Found) != 2 || e.Found[0].Zone != 2 || len(e.Found[1].List) != 4 {
		t.Errorf("%+v", got[0])
	}
}
