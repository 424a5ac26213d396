// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"encoding/json"
	"errors"
	"fmt"
)

// errNoID: what has no id cannot be told from anything else, least of all from what was asked for.
var errNoID = errors.New("an object without an id")

// DecodePanic is a mistake in decoding. It costs the object that was decoded.
type DecodePanic struct {
	Kind  Kind
	Value any
}

func (e *DecodePanic) Error() string { return fmt.Sprintf("decoding %s panicked: %v", e.Kind, e.Value) }

// Read is what came of objects that the server was asked for.
type Read[T any] struct {
	Found []T
	// Unread are the ids of objects that came and could not be read, empty for one whose id could not be read either: they are there,
	// but nobody knows how they are. Err says why.
	Unread []string
	Err    error
}

// Maybe says whether an object that was asked for is among those that could not be read.
func (r *Read[T]) Maybe(id string) bool {
	for _, u := range r.Unread {
		if u == id || u == "" {
			return true
		}
	}
	return false
}

// ReadAll reads objects of one kind, each alone.
func ReadAll[T any](kind Kind, objects []Primitive, id func(*T) string) Read[T] {
	r := Read[T]{Found: make([]T, 0, len(objects))}
	var errs []error
	for _, o := range objects {
		var v T
		err := o.Decode(kind, &v)
		if err == nil && id(&v) == "" {
			err = fmt.Errorf("decoding %s: %w", kind, errNoID)
		}
		if err != nil {
			r.Unread, errs = append(r.Unread, o.ID()), append(errs, err)
			continue
		}
		r.Found = append(r.Found, v)
	}
	r.Err = errors.Join(errs...)
	return r
}

// ID is that of an object whatever else is wrong with it; empty if it has none.
func (p Primitive) ID() string {
	var fields map[string]json.RawMessage
	var id string
	if json.Unmarshal(p.Data, &fields) != nil || json.Unmarshal(fields["id"], &id) != nil {
		return ""
	}
	return id
}
