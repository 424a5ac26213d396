// SPDX-License-Identifier: Apache-2.0

package parity

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
)

var uuids = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)

// Kinds of things that lines name by more than their ids; see [Canon.ID].
const (
	PortKind         = 'b'
	GroupKind        = 'c'
	AddressGroupKind = 'e'
)

// Canon gives the identifiers of one run the same values in every recording. Ids of named things are derived from their
// names, all others are numbered in the order of their appearance.
type Canon struct {
	ids   map[string]string
	pairs map[string]string // other texts
}

// NewCanon returns a Canon that knows no names.
func NewCanon() *Canon { return &Canon{ids: map[string]string{}, pairs: map[string]string{}} }

// ID says that id is that of a named thing, and returns what stands for it. Kind is a hexadecimal digit that keeps ports,
// networks and so on apart; number counts within the kind.
func (c *Canon) ID(id string, kind byte, number int) string {
	stable := fmt.Sprintf("%c%07x-0000-4000-8000-000000000000", kind, number)
	c.ids[id] = stable
	return stable
}

// Pair says that another text, such as an address, is written differently in recordings.
func (c *Canon) Pair(from, to string) { c.pairs[from] = to }

// Text replaces what is known in a text, and numbers the ids that are not.
func (c *Canon) Text(s string) string {
	s = uuids.ReplaceAllStringFunc(s, func(id string) string {
		if _, ok := c.ids[id]; !ok {
			c.ids[id] = fmt.Sprintf("f%07x-0000-4000-8000-000000000000", len(c.ids))
		}
		return c.ids[id]
	})
	for from, to := range c.pairs {
		s = strings.ReplaceAll(s, from, to)
	}
	return s
}

// dropped are the keys of objects in messages that no agent reads, or that tell the time of the run.
var dropped = map[string]bool{
	"versioned_object.changes": true, "versioned_object.namespace": true, "created_at": true, "updated_at": true,
	"description": true, "project_id": true, "tenant_id": true, "dns": true, "dhcp_options": true, "distributed_bindings": true,
	"standard_attr_id": true, "availability_zones": true, "availability_zone_hints": true, "tags": true,
	"device_id": true, "hosts": true, "is_dynamic": true, "segment_index": true, "driver": true, "vif_details": true,
}

// parts are the kinds of objects that come inside others only. Readers know them by their place, so their kind and version are
// left out, and so are the ids that nobody looks for.
var parts = map[any]bool{
	"PortBinding": true, "PortBindingLevel": true, "IPAllocation": true, "PortSecurity": true, "NetworkSegment": true,
	"AllowedAddressPair": true, "NetworkPortSecurity": true,
}

// JSON returns a message with stable identifiers and without what no agent reads.
func (c *Canon) JSON(data []byte) (json.RawMessage, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, fmt.Errorf("reading a message: %w", err)
	}
	text, err := encode(slim(v))
	if err != nil {
		return nil, err
	}
	return json.RawMessage(bytes.TrimSpace([]byte(c.Text(string(text))))), nil
}

func slim(v any) any {
	switch v := v.(type) {
	case map[string]any:
		if data, ok := v["versioned_object.data"].(map[string]any); ok && parts[v["versioned_object.name"]] {
			for _, k := range []string{"id", "port_id", "network_id", "segment_id", "revision_number"} {
				delete(data, k)
			}
			delete(v, "versioned_object.name")
			delete(v, "versioned_object.version")
		}
		for k, x := range v {
			list, isList := x.([]any)
			if dropped[k] || x == nil || isList && len(list) == 0 {
				delete(v, k) // readers take a missing list for an empty one
			} else {
				v[k] = slim(x)
			}
		}
	case []any:
		for i := range v {
			v[i] = slim(v[i])
		}
	}
	return v
}
