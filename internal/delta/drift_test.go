// SPDX-License-Identifier: Apache-2.0

package delta

import (
	"testing"

	of "github.com/patchbay-sdn/patchbay/openflow"
	"github.com/patchbay-sdn/patchbay/openflow/openflowtest"
)

func update(t *testing.T, e of.MonitorEvent, text string) of.FlowUpdate {
	t.Helper()
	return of.FlowUpdate{Event: e, Entry: openflowtest.Entry(t, text)}
}

func marked(e of.Entry) bool { return e.Cookie() == 0x11 }

// settledTracker has one flow, wanted by port a and in place.
func settledTracker(t *testing.T) *Tracker {
	t.Helper()
	tr := New()
	tr.Have([]of.Entry{openflowtest.Entry(t, "table=0,priority=2,cookie=0x11,in_port=1,actions=drop"), openflowtest.Entry(t, "table=0,priority=7,actions=drop")})
	tr.Want(object("a"), []Flow{{Entry: openflowtest.Entry(t, "table=0,priority=2,cookie=0x11,in_port=1,actions=drop"), Reason: "dead"}})
	if c := tr.Changes(); len(c) != 0 {
		t.Fatalf("changes %v", texts(c))
	}
	tr.Sent()
	return tr
}

func TestDrift(t *testing.T) {
	tests := []struct {
		name  string
		event of.MonitorEvent
		flow  string
		drift bool
		undo  string
	}{
		{"a wanted flow is deleted", of.FlowDeleted, "table=0,priority=2,cookie=0x11,in_port=1,actions=drop", true,
			"add table=0,priority=2,cookie=0x11,in_port=1,actions=drop"},
		{"a wanted flow is changed", of.FlowModified, "table=0,priority=2,cookie=0x11,in_port=1,actions=NORMAL", true,
			"add table=0,priority=2,cookie=0x11,in_port=1,actions=drop"},
		{"a wanted flow is replaced under another mark", of.FlowAdded, "table=0,priority=2,in_port=1,actions=NORMAL", true,
			"add table=0,priority=2,cookie=0x11,in_port=1,actions=drop"},
		{"only its cookie is changed", of.FlowModified, "table=0,priority=2,cookie=0x12,in_port=1,actions=drop", false, ""},
		{"a flow with our mark is added", of.FlowAdded, "table=0,priority=3,cookie=0x11,in_port=2,actions=NORMAL", true,
			"delete_strict table=0,priority=3,in_port=2"},
		{"a flow of somebody else is added", of.FlowAdded, "table=0,priority=3,cookie=0x77,in_port=2,actions=NORMAL", false, ""},
		{"a flow of somebody else is deleted", of.FlowDeleted, "table=0,priority=7,actions=drop", false, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tr := settledTracker(t)
			d, ok := tr.Observe(update(t, tt.event, tt.flow), marked)
			if ok != tt.drift {
				t.Fatalf("drift %v: %+v", ok, d)
			}
			c := tr.Changes()
			tr.Sent()
			if tt.undo == "" {
				if len(c) != 0 {
					t.Errorf("changes %v", texts(c))
				}
				return
			}
			if len(c) != 1 || texts(c)[0] != tt.undo {
				t.Errorf("changes %q, want %q", texts(c), tt.undo)
			}
			tr.Done(c)
			if c := tr.Changes(); len(c) != 0 || tr.Unsure() {
				t.Errorf("not settled: %v", texts(c))
			}
		})
	}
}

// Our change and somebody else's cross each other: who was last is not known, and has to be looked up.
func TestCrossingChanges(t *testing.T) {
	tr := settledTracker(t)
	tr.Want(object("a"), []Flow{{Entry: openflowtest.Entry(t, "table=0,priority=2,cookie=0x11,in_port=1,actions=NORMAL")}})
	c := tr.Changes()
	tr.Sent()
	tr.Observe(update(t, of.FlowDeleted, "table=0,priority=2,cookie=0x11,in_port=1,actions=drop"), marked)
	if len(tr.Changes()) != 1 { // asking for them changes nothing
		t.Error("nothing left to do")
	}
	tr.Done(c)
	for range 2 { // also when asked again
		if !tr.Unsure() {
			t.Error("sure of what cannot be known")
		}
	}
	tr.Have(nil)
	if c := tr.Changes(); len(c) != 1 || tr.Unsure() {
		t.Errorf("changes %v", texts(c))
	}
}

// While the bridge is out of reach nothing is concluded.
func TestNoDriftWhileLost(t *testing.T) {
	tr := settledTracker(t)
	tr.Lost()
	if _, ok := tr.Observe(update(t, of.FlowDeleted, "table=0,priority=2,cookie=0x11,in_port=1,actions=drop"), marked); ok {
		t.Error("drift on a bridge that is not known")
	}
}
