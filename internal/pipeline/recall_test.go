// SPDX-License-Identifier: Apache-2.0

package pipeline_test

import (
	"encoding/json"
	"testing"

	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/pipeline"
	"github.com/patchbay-sdn/patchbay/internal/world"
)

// recalls checks that a host that starts again with its switch as it is, with its memory and without a server, wants the
// same flows. A port of which the server knows nothing any more is not remembered: it has no filters and no flows to keep.
func (h *replay) recalls(t *testing.T) {
	t.Helper()
	data, err := json.Marshal(h.w.Memory())
	if err != nil {
		t.Fatal(err)
	}
	m := &world.Memory{}
	if err := json.Unmarshal(data, m); err != nil {
		t.Fatal(err)
	}
	remembered, err := h.set.Save()
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(h.w.Config)
	set := extension.Make(w, h.makers)
	w.Recall(m)
	if err := set.Load(remembered); err != nil {
		t.Fatal(err)
	}
	w.Switch(ovsdb.Whole(h.db.View()))
	set.OnRows(ovsdb.Whole(h.db.View()))
	collect := func(into map[pipeline.Flow]bool, flows []pipeline.Flow) {
		for _, f := range flows {
			f.Reason = ""
			into[f] = true
		}
	}
	compiled := map[world.Object][]pipeline.Flow{}
	for objects := set.Resolve(w.Everything()); len(objects) > 0; objects = set.Resolve(w.Resolve()) {
		for _, o := range objects {
			want, err := set.Compile(o, func() pipeline.Want { return pipeline.Compile(w, h.s, o) })
			if err != nil {
				t.Fatal(err)
			}
			compiled[o] = want.Flows
		}
	}
	got := map[pipeline.Flow]bool{}
	for _, flows := range compiled {
		collect(got, flows)
	}
	want := map[pipeline.Flow]bool{}
	for o, flows := range h.flows {
		id, isPort := world.PortID(o)
		if p := h.w.Port(id); isPort && (p == nil || p.Details == nil || p.Wiring.State == world.Moved) {
			continue
		}
		collect(want, flows)
	}
	for f := range want {
		if !got[f] {
			t.Errorf("%s: not recalled: %s", h.host, f.Entry)
		}
	}
	for f := range got {
		if !want[f] {
			t.Errorf("%s: recalled, but was not so: %s", h.host, f.Entry)
		}
	}
}
