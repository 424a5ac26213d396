// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
)

// Values are as RFC 7047 writes them, decoded from JSON: ["set", […]], ["map", [[key, value], …]], ["uuid", "…"], text, numbers as
// float64. A set of one may stand as its element. No value is changed in place.

// RowID makes the UUID of a row from what it is.
func RowID(name string) string {
	h := sha256.Sum256([]byte(name))
	return fmt.Sprintf("%x-%x-%x-%x-%x", h[:4], h[4:6], h[6:8], h[8:10], h[10:16])
}

// Ref refers to a row.
func Ref(id string) any { return []any{"uuid", id} }

// Set is a set of values.
func Set[V any](list ...V) any {
	out := make([]any, len(list))
	for i, v := range list {
		out[i] = v
	}
	return []any{"set", out}
}

// Map is a map of texts to values.
func Map[V any](m map[string]V) any {
	pairs := []any{}
	for _, k := range slices.Sorted(maps.Keys(m)) {
		pairs = append(pairs, []any{k, m[k]})
	}
	return []any{"map", pairs}
}

func tagged(v any, tag string) ([]any, bool) {
	list, _ := v.([]any)
	if len(list) != 2 || list[0] != tag {
		return nil, false
	}
	out, ok := list[1].([]any)
	return out, ok
}

// Elements are those of a set, or the pairs of a map.
func Elements(v any) []any {
	if v == nil {
		return nil
	}
	for _, tag := range []string{"set", "map"} {
		if list, ok := tagged(v, tag); ok {
			return list
		}
	}
	return []any{v}
}

// Entries are those of a map.
func Entries(v any) map[string]any {
	out := map[string]any{}
	pairs, _ := tagged(v, "map")
	for _, p := range pairs {
		if kv, ok := p.([]any); ok && len(kv) == 2 {
			out[fmt.Sprint(kv[0])] = kv[1]
		}
	}
	return out
}

// Refs are the rows that a set refers to.
func Refs(v any) []string {
	var out []string
	for _, e := range Elements(v) {
		out = append(out, RefOf(e))
	}
	slices.Sort(out)
	return out
}

// RefOf is the row that a value refers to.
func RefOf(v any) string {
	pair, _ := v.([]any)
	if len(pair) != 2 || pair[0] != "uuid" {
		return ""
	}
	id, _ := pair[1].(string)
	return id
}

// Text is a text, or the first of a set as text.
func Text(v any) string {
	if e := Elements(v); len(e) > 0 {
		return fmt.Sprint(e[0])
	}
	return ""
}

// Number is a number, or nil for an empty set.
func Number(v any) *int {
	e := Elements(v)
	if len(e) == 0 {
		return nil
	}
	f, _ := e[0].(float64)
	n := int(f)
	return &n
}

// Mutate inserts into a set or a map, or deletes from it. Pairs whose key is there are not inserted; keys delete from a map, too.
func Mutate(old any, insert bool, value any) any {
	_, isMap := tagged(value, "map")
	_, wasMap := tagged(old, "map")
	if isMap || wasMap {
		entries := Entries(old)
		for k, v := range Entries(value) {
			if have, taken := entries[k]; insert && !taken {
				entries[k] = v
			} else if !insert && reflect.DeepEqual(have, v) {
				delete(entries, k)
			}
		}
		if !isMap && !insert {
			for _, k := range Elements(value) {
				delete(entries, fmt.Sprint(k))
			}
		}
		return mapLike(old, value, entries)
	}
	out := slices.Clone(Elements(old))
	for _, e := range Elements(value) {
		i := slices.IndexFunc(out, func(x any) bool { return reflect.DeepEqual(x, e) })
		switch {
		case insert && i < 0:
			out = append(out, e)
		case !insert && i >= 0:
			out = slices.Delete(out, i, i+1)
		}
	}
	return Set(out...)
}

// mapLike is a map of entries whose keys are of the kind that they were before: of text, or numbers.
func mapLike(old, value any, entries map[string]any) any {
	keys := map[string]any{}
	for _, v := range []any{old, value} {
		pairs, _ := tagged(v, "map")
		for _, p := range pairs {
			if kv, ok := p.([]any); ok && len(kv) == 2 {
				keys[fmt.Sprint(kv[0])] = kv[0]
			}
		}
	}
	pairs := []any{}
	for _, k := range slices.Sorted(maps.Keys(entries)) {
		pairs = append(pairs, []any{keys[k], entries[k]})
	}
	return []any{"map", pairs}
}

// same compares values, whatever their order and notation. Most are equal as they are, and need no notation.
func same(a, b any) bool {
	return reflect.DeepEqual(a, b) || slices.Equal(canonical(a), canonical(b))
}

func canonical(v any) []string {
	var out []string
	for _, e := range Elements(v) {
		text, err := json.Marshal(e)
		if err != nil {
			panic(err)
		}
		out = append(out, string(text))
	}
	slices.Sort(out)
	return out
}
