// SPDX-License-Identifier: Apache-2.0

package ovsdb

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	wire "github.com/ovn-kubernetes/libovsdb/ovsdb"
)

// codec translates one column between its Go type and RFC 7047 JSON. Our own and not libovsdb's, whose decoder panics on
// malformed sets and maps and parses each of them twice.
type codec[F any] struct {
	decode func(json.RawMessage) (F, error)
	// merge applies the difference of an update2 "modify" to the old value without changing it. Nil for columns of at
	// most one element, where the difference is the new value.
	merge  func(old F, diff json.RawMessage) (F, error)
	encode func(F) any
}

func stringCodec() codec[string] {
	return codec[string]{decode: decodeOptional[string], encode: func(s string) any { return s }}
}

// optStringCodec is for sets of at most one string: empty stands for the empty set.
func optStringCodec() codec[string] {
	return codec[string]{decode: decodeOptional[string], encode: func(s string) any {
		if s == "" {
			return emptySet()
		}
		return s
	}}
}

func boolCodec() codec[bool] {
	return codec[bool]{decode: decodeOptional[bool], encode: func(b bool) any { return b }}
}

func intCodec() codec[int] {
	return codec[int]{decode: decodeOptional[int], encode: func(i int) any { return i }}
}

func optIntCodec() codec[*int] {
	return codec[*int]{
		decode: func(raw json.RawMessage) (*int, error) {
			v, err := decodeSet[int](raw)
			if err != nil || len(v) == 0 {
				return nil, err
			}
			return &v[0], nil
		},
		encode: func(p *int) any {
			if p == nil {
				return emptySet()
			}
			return *p
		},
	}
}

func optUUIDCodec() codec[UUID] {
	return codec[UUID]{decode: decodeOptional[UUID], encode: func(u UUID) any {
		if u == "" {
			return emptySet()
		}
		return wire.UUID{GoUUID: string(u)}
	}}
}

func setCodec[E cmp.Ordered]() codec[[]E] {
	return codec[[]E]{
		decode: decodeSet[E],
		merge: func(old []E, diff json.RawMessage) ([]E, error) {
			toggled, err := decodeSet[E](diff)
			if err != nil {
				return nil, err
			}
			return symmetricDifference(old, toggled), nil
		},
		encode: func(v []E) any {
			set := emptySet()
			for _, e := range v {
				set.GoSet = append(set.GoSet, encodeAtom(e))
			}
			return set
		},
	}
}

func mapCodec[K comparable, V comparable]() codec[map[K]V] {
	return codec[map[K]V]{
		decode: decodeMap[K, V],
		merge: func(old map[K]V, diff json.RawMessage) (map[K]V, error) {
			d, err := decodeMap[K, V](diff)
			if err != nil {
				return nil, err
			}
			merged := make(map[K]V, len(old)+len(d))
			maps.Copy(merged, old)
			for k, v := range d {
				// A pair that is there with the same value was removed; any other is new.
				if was, ok := merged[k]; ok && was == v {
					delete(merged, k)
				} else {
					merged[k] = v
				}
			}
			if len(merged) == 0 {
				return nil, nil
			}
			return merged, nil
		},
		encode: func(m map[K]V) any { return encodeMap(m) },
	}
}

func emptySet() wire.OvsSet { return wire.OvsSet{GoSet: []any{}} }

func encodeAtom(v any) any {
	if u, ok := v.(UUID); ok {
		return wire.UUID{GoUUID: string(u)}
	}
	return v
}

func encodeMap[K comparable, V any](m map[K]V) wire.OvsMap {
	om := wire.OvsMap{GoMap: make(map[any]any, len(m))}
	for k, v := range m {
		om.GoMap[k] = encodeAtom(v)
	}
	return om
}

// decodeAtom decodes a single string, integer, boolean or ["uuid", "…"].
func decodeAtom[E any](raw json.RawMessage) (E, error) {
	var e E
	if u, ok := any(&e).(*UUID); ok {
		var pair [2]string
		if err := json.Unmarshal(raw, &pair); err != nil {
			return e, fmt.Errorf("decoding a uuid: %w", err)
		}
		if pair[0] != "uuid" {
			return e, fmt.Errorf("decoding a uuid: it begins with %q", pair[0])
		}
		*u = UUID(pair[1])
		return e, nil
	}
	if err := json.Unmarshal(raw, &e); err != nil {
		return e, fmt.Errorf("decoding an atom: %w", err)
	}
	return e, nil
}

// decodeOptional decodes a column of at most one element; the empty set gives the zero value.
func decodeOptional[E any](raw json.RawMessage) (E, error) {
	var zero E
	atoms, err := atomsOf(raw)
	if err != nil || len(atoms) == 0 {
		return zero, err
	}
	if len(atoms) > 1 {
		return zero, fmt.Errorf("decoding a single value: got %d", len(atoms))
	}
	return decodeAtom[E](atoms[0])
}

// decodeSet decodes a set of any size, sorted.
func decodeSet[E cmp.Ordered](raw json.RawMessage) ([]E, error) {
	atoms, err := atomsOf(raw)
	if err != nil || len(atoms) == 0 {
		return nil, err
	}
	set := make([]E, len(atoms))
	for i, a := range atoms {
		if set[i], err = decodeAtom[E](a); err != nil {
			return nil, err
		}
	}
	slices.Sort(set)
	return set, nil
}

// decodeMap decodes a map; the empty map gives nil.
func decodeMap[K comparable, V any](raw json.RawMessage) (map[K]V, error) {
	kind, list, err := tagged(raw)
	if err != nil {
		return nil, err
	}
	if kind != "map" {
		return nil, fmt.Errorf("decoding a map: it begins with %q", kind)
	}
	if len(list) == 0 {
		return nil, nil
	}
	m := make(map[K]V, len(list))
	for _, pair := range list {
		var kv []json.RawMessage
		if err := json.Unmarshal(pair, &kv); err != nil || len(kv) != 2 {
			return nil, fmt.Errorf("decoding a map: a pair is not of two elements")
		}
		k, err := decodeAtom[K](kv[0])
		if err != nil {
			return nil, err
		}
		if m[k], err = decodeAtom[V](kv[1]); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// atomsOf returns the elements of a set; an atom alone is a set of one.
func atomsOf(raw json.RawMessage) ([]json.RawMessage, error) {
	if len(raw) == 0 || raw[0] != '[' {
		return []json.RawMessage{raw}, nil
	}
	kind, list, err := tagged(raw)
	if err != nil {
		return nil, err
	}
	switch kind {
	case "set":
		return list, nil
	case "uuid":
		return []json.RawMessage{raw}, nil
	}
	return nil, fmt.Errorf("decoding a set: it begins with %q", kind)
}

// tagged splits ["set"|"map"|"uuid", …]. The list of a uuid is nil.
func tagged(raw json.RawMessage) (string, []json.RawMessage, error) {
	var parts []json.RawMessage
	if err := json.Unmarshal(raw, &parts); err != nil || len(parts) != 2 {
		return "", nil, fmt.Errorf("decoding a value: not an array of two elements")
	}
	var kind string
	if err := json.Unmarshal(parts[0], &kind); err != nil {
		return "", nil, fmt.Errorf("decoding a value: %w", err)
	}
	if kind == "uuid" {
		return kind, nil, nil
	}
	var list []json.RawMessage
	if err := json.Unmarshal(parts[1], &list); err != nil {
		return "", nil, fmt.Errorf("decoding a %s: %w", kind, err)
	}
	return kind, list, nil
}

// symmetricDifference returns the sorted elements that are in exactly one of the two sorted sets.
func symmetricDifference[E cmp.Ordered](a, b []E) []E {
	out := make([]E, 0, len(a)+len(b))
	add := func(e E) { out = append(out, e) }
	i := 0
	for _, e := range b {
		for i < len(a) && a[i] < e {
			add(a[i])
			i++
		}
		if i < len(a) && a[i] == e {
			i++
			continue
		}
		add(e)
	}
	out = append(out, a[i:]...)
	if len(out) == 0 {
		return nil
	}
	return out
}
