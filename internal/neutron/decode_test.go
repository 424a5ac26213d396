// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"encoding/json"
	"errors"
	"slices"
	"testing"
)

// explosive panics on some values.
type explosive string

func (e *explosive) UnmarshalJSON(b []byte) error {
	if string(b) == `"boom"` {
		panic("boom")
	}
	*e = explosive(b)
	return nil
}

// What cannot be read is told from what is not there, by its id if that can be read.
func TestReadAll(t *testing.T) {
	type object struct {
		ID   string    `json:"id"`
		Size int       `json:"size"`
		Fuse explosive `json:"fuse"`
	}
	read := func(data ...string) Read[object] {
		objects := make([]Primitive, len(data))
		for i, d := range data {
			objects[i] = Primitive{Name: "Thing", Data: json.RawMessage(d)}
		}
		return ReadAll("Thing", objects, func(o *object) string { return o.ID })
	}
	r := read(`{"id":"a","size":1}`, `{"id":"b","size":"large"}`, `{"id":"c","fuse":"boom"}`, `{"id":"d"}`)
	if len(r.Found) != 2 || r.Found[1].ID != "d" || !slices.Equal(r.Unread, []string{"b", "c"}) || !r.Maybe("b") || r.Maybe("gone") {
		t.Errorf("%+v", r)
	}
	var panicked *DecodePanic
	if !errors.As(r.Err, &panicked) || panicked.Value != "boom" {
		t.Errorf("error %v", r.Err)
	}
	for _, nameless := range []string{`null`, `{"size":2}`, `{"id":7}`, `[]`} {
		if r := read(`{"id":"a"}`, nameless); len(r.Found) != 1 || !slices.Equal(r.Unread, []string{""}) || !r.Maybe("any") || r.Err == nil {
			t.Errorf("%s: %+v", nameless, r)
		}
	}
	if r := read(`{"id":"a"}`); r.Err != nil || len(r.Unread) > 0 || r.Maybe("a") {
		t.Errorf("%+v", r)
	}
}

// A minor version adds fields. Of one that nobody knows yet what is known is taken, nested objects included.
func TestDecodeLaterVersions(t *testing.T) {
	for _, version := range []string{"1.5", "1.7", "1.8", "1.9", "1.10", "1.11", "1.99"} {
		p := Primitive{Name: "Port", Version: version, Data: []byte(`{"id":"p","pvlan_type":"community","pvlan_community":"a","trusted":null,
			"hardware_offload_type":"switchdev","from_the_future":{"versioned_object.name":"X","versioned_object.data":{"id":"q"}},
			"binding_levels":[{"versioned_object.name":"PortBindingLevel","versioned_object.version":"9.9","versioned_object.data":
			{"host":"h","level":0,"new":1,"segment":{"versioned_object.name":"NetworkSegment","versioned_object.data":{"network_type":"vxlan","segmentation_id":7}}}}]}`)}
		var port Port
		if err := p.Decode(KindPort, &port); err != nil || port.ID != "p" || *port.BindingLevels[0].Segment.Value.SegmentationID != 7 {
			t.Errorf("Port %s: %+v, %v", version, port, err)
		}
	}
	var n Network
	later := Primitive{Name: "Network", Version: "1.3", Data: []byte(`{"id":"n","qinq":true,"pvlan":true,"mtu":1450}`)}
	if err := later.Decode(KindNetwork, &n); err != nil || n.ID != "n" || n.MTU != 1450 {
		t.Errorf("Network 1.3: %+v, %v", n, err)
	}
}
