// SPDX-License-Identifier: Apache-2.0

package ovsdb

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	wire "github.com/ovn-kubernetes/libovsdb/ovsdb"
)

// codec translates one column between its Go type and RFC 7047 JSON. Our own and not libovsdb's, whose decoder panics on
// malformed sets and maps and parses values several times.
type codec[F any] struct {
	decode func(*scanner) (F, error)
	// merge applies the difference of an update2 "modify" to the old value without changing it. Nil for columns of at
	// most one element, where the difference is the new value.
	merge  func(old F, diff *scanner) (F, error)
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
		decode: func(s *scanner) (*int, error) {
			v, err := decodeSet[int](s)
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
		merge: func(old []E, diff *scanner) ([]E, error) {
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
		merge: func(old map[K]V, diff *scanner) (map[K]V, error) {
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

// decodeOptional decodes a column of at most one element; the empty set gives the zero value.
func decodeOptional[E any](s *scanner) (e E, err error) {
	n := 0
	err = s.elements(func() (err error) {
		if n++; n > 1 {
			return fmt.Errorf("more than one element")
		}
		e, err = atom[E](s)
		return err
	})
	return e, err
}

// decodeSet decodes a set of any size, sorted.
func decodeSet[E cmp.Ordered](s *scanner) ([]E, error) {
	var set []E
	err := s.elements(func() error {
		e, err := atom[E](s)
		set = append(set, e)
		return err
	})
	slices.Sort(set)
	return set, err
}

// decodeMap decodes a map; the empty map gives nil.
func decodeMap[K comparable, V any](s *scanner) (map[K]V, error) {
	var m map[K]V
	var k K
	err := s.pairs(func() (err error) {
		k, err = atom[K](s)
		return err
	}, func() error {
		v, err := atom[V](s)
		if m == nil {
			m = map[K]V{}
		}
		m[k] = v
		return err
	})
	return m, err
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
