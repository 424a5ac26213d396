// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
)

// Primitive is the wire form of a versioned object: its type and version around the data.
type Primitive struct {
	Name    string          `json:"versioned_object.name"`
	Version string          `json:"versioned_object.version"`
	Data    json.RawMessage `json:"versioned_object.data"`
}

// Decode reads the data of the primitive into v after checking that it is of the type asked for.
func (p Primitive) Decode(kind Kind, v any) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = &DecodePanic{kind, r}
		}
	}()
	if p.Name != string(kind) {
		return fmt.Errorf("expected a %s object, got %q", kind, p.Name)
	}
	if err := json.Unmarshal(p.Data, v); err != nil {
		return fmt.Errorf("decoding %s %s: %w", p.Name, p.Version, err)
	}
	return nil
}

// nested is an object inside another object: the same wrapper again.
type nested[T any] struct {
	Data T `json:"versioned_object.data"`
}

// List is a list of objects inside another object, unwrapped. Absent and null both mean none.
type List[T any] []T

// UnmarshalJSON implements json.Unmarshaler.
func (l *List[T]) UnmarshalJSON(b []byte) error {
	var wrapped []nested[T]
	if err := json.Unmarshal(b, &wrapped); err != nil {
		return err
	}
	*l = nil
	for _, w := range wrapped {
		*l = append(*l, w.Data)
	}
	return nil
}

// MarshalJSON implements json.Marshaler: what it writes, UnmarshalJSON reads.
func (l List[T]) MarshalJSON() ([]byte, error) {
	wrapped := make([]nested[T], len(l))
	for i, v := range l {
		wrapped[i].Data = v
	}
	return json.Marshal(wrapped)
}

// Maybe is an object inside another object that may be absent or null.
type Maybe[T any] struct {
	Value *T
}

// UnmarshalJSON implements json.Unmarshaler.
func (m *Maybe[T]) UnmarshalJSON(b []byte) error {
	var wrapped *nested[T]
	if err := json.Unmarshal(b, &wrapped); err != nil {
		return err
	}
	m.Value = nil
	if wrapped != nil {
		m.Value = &wrapped.Data
	}
	return nil
}

// MarshalJSON implements json.Marshaler.
func (m Maybe[T]) MarshalJSON() ([]byte, error) {
	if m.Value == nil {
		return []byte("null"), nil
	}
	return json.Marshal(nested[T]{*m.Value})
}

// EmbeddedJSON is a JSON object that Neutron carries as a string inside JSON, as it does for binding profiles.
// Anything that is not an object, null and the empty string included, decodes to none: the fields are free-form
// dictionaries that other services write, and a strange one must not cost the port its wiring.
type EmbeddedJSON map[string]json.RawMessage

// UnmarshalJSON implements json.Unmarshaler.
func (e *EmbeddedJSON) UnmarshalJSON(b []byte) error {
	*e = nil
	var text string
	if json.Unmarshal(b, &text) == nil {
		b = []byte(text)
	}
	var m map[string]json.RawMessage
	if json.Unmarshal(b, &m) == nil && len(m) > 0 {
		*e = m
	}
	return nil
}

// MAC is an Ethernet address. The zero value is no address.
type MAC [6]byte

// ParseMAC reads the colon, dash and dot forms.
func ParseMAC(s string) (MAC, error) {
	hw, err := net.ParseMAC(s)
	if err != nil {
		return MAC{}, err
	}
	if len(hw) != len(MAC{}) {
		return MAC{}, fmt.Errorf("address %s: not an Ethernet address", s)
	}
	return MAC(hw), nil
}

// String gives the lower-case colon form.
func (m MAC) String() string { return net.HardwareAddr(m[:]).String() }

// MarshalText implements encoding.TextMarshaler.
func (m MAC) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (m *MAC) UnmarshalText(b []byte) error {
	if len(b) == 0 {
		*m = MAC{}
		return nil
	}
	v, err := ParseMAC(string(b))
	*m = v
	return err
}

// Prefix is an address or a range. Neutron writes a single address with or without its length; both decode to the
// same value. The host bits are cleared.
type Prefix struct{ netip.Prefix }

// ParsePrefix reads "10.0.0.5", "10.0.0.0/24" and their IPv6 kin.
func ParsePrefix(s string) (Prefix, error) {
	if p, err := netip.ParsePrefix(s); err == nil {
		return Prefix{p.Masked()}, nil
	}
	a, err := netip.ParseAddr(s)
	if err != nil {
		return Prefix{}, fmt.Errorf("%q is neither an address nor a prefix", s)
	}
	return Prefix{netip.PrefixFrom(a.WithZone(""), a.BitLen())}, nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *Prefix) UnmarshalText(b []byte) error {
	if len(b) == 0 {
		*p = Prefix{}
		return nil
	}
	v, err := ParsePrefix(string(b))
	*p = v
	return err
}
