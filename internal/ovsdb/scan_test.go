// SPDX-License-Identifier: Apache-2.0

package ovsdb

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// TestScanner: what is valid is read to its last byte, and everything else is an error that says where.
func TestScanner(t *testing.T) {
	text := func(v any, err error) string {
		if err != nil {
			return "error: " + err.Error()
		}
		return fmt.Sprint(v)
	}
	str := func(s *scanner) string { return text(s.str()) }
	integer := func(s *scanner) string { return text(s.integer()) }
	boolean := func(s *scanner) string { return text(s.boolean()) }
	uuid := func(s *scanner) string { return text(s.uuid()) }
	skip := func(s *scanner) string { return text("", s.skip()) }
	strs := func(s *scanner) string { return text(decodeSet[string](s)) }
	ints := func(s *scanner) string { return text(decodeSet[int](s)) }
	one := func(s *scanner) string { return text(decodeOptional[int](s)) }
	pairs := func(s *scanner) string { return text(decodeMap[string, string](s)) }
	object := func(s *scanner) string {
		var names []string
		err := s.object(func(name string) error { names = append(names, name); return s.skip() })
		return text(names, err)
	}
	for _, c := range []struct {
		read func(*scanner) string
		in   string
		want string // "error: " stands for any
		rest string
	}{
		{str, ` "a"x`, "a", "x"}, {str, `"a\"b\\"`, `a"b\`, ""}, {str, `"\u00e9"`, "é", ""}, {str, `"a`, "error: ", ""}, {str, `"a\`, "error: ", ""},
		{str, `a"`, "error: ", ""}, {str, ``, "error: ", ""}, {str, `"\x"`, "error: ", ""}, {str, `""`, "", ""},
		{integer, "\t12,", "12", ","}, {integer, "-3]", "-3", "]"}, {integer, "0", "0", ""}, {integer, "9", "9", ""}, {integer, "x", "error: ", ""}, {integer, "1.5", "error: ", ""}, {integer, "1E3", "error: ", ""},
		{integer, "1/", "1", "/"}, {integer, "1:", "1", ":"}, {boolean, "true`", "true", "`"}, {boolean, "true{", "true", "{"},
		{boolean, "true,", "true", ","}, {boolean, "false", "false", ""}, {boolean, "1", "error: ", ""}, {boolean, "TRUE", "error: ", ""},
		{uuid, `["uuid","x"]y`, "x", "y"}, {uuid, `["uuid","x"`, "error: ", ""}, {uuid, `["named-uuid","x"]`, "error: ", ""}, {uuid, `"x"`, "error: ", ""}, {uuid, `["uuid",3]`, "error: ", ""}, {uuid, `[3,"x"]`, "error: ", ""},
		{skip, `{"a":[1,"b",{}],"c":null}z`, "", "z"}, {skip, `[]z`, "", "z"}, {skip, `1.5e+3z`, "", ""}, {skip, `"a"z`, "", "z"}, {skip, ``, "error: ", ""}, {skip, `,`, "error: ", ""},
		{skip, `[1`, "error: ", ""}, {skip, `[1 2]`, "error: ", ""}, {skip, `{"a" 1}`, "error: ", ""}, {skip, `{1:2}`, "error: ", ""}, {skip, `{"a":}`, "error: ", ""}, {skip, `"a`, "error: ", ""},
		{strs, `["set",["b","a"]],`, "[a b]", ","}, {strs, `"a",`, "[a]", ","}, {strs, `["set",[]]`, "[]", ""}, {strs, `["set",["a"]`, "error: ", ""}, {strs, `["set","a"]`, "error: ", ""}, {strs, `["set",[1]]`, "error: ", ""},
		{ints, `["set",[3,1]]`, "[1 3]", ""}, {ints, `["set",["a"]]`, "error: ", ""}, {ints, `["map",[]]`, "error: ", ""},
		{one, `["set",[]]`, "0", ""}, {one, `5`, "5", ""}, {one, `["set",[5]]`, "5", ""}, {one, `["set",[5,6]]`, "error: more than one element", ""},
		{pairs, `["map",[["a","b"],["c","d"]]]x`, "map[a:b c:d]", "x"}, {pairs, `["map",[]]`, "map[]", ""}, {pairs, `["map",[["a"]]]`, "error: ", ""}, {pairs, `["map",["a","b"]]`, "error: ", ""},
		{pairs, `["map",[["a","b"]]`, "error: ", ""}, {pairs, `["map",[["a","b"`, "error: ", ""}, {pairs, `["map",[["a",1]]]`, "error: ", ""}, {pairs, `["map",[[1,"a"]]]`, "error: ", ""}, {pairs, `["set",[]]`, "error: ", ""}, {pairs, `["map",[["a","b","c"]]]`, "error: ", ""},
		{object, "{\n \"a\" : 1 ,\r\"b\":\t[]}x", "[a b]", "x"}, {object, `{}`, "[]", ""}, {object, `[`, "error: ", ""}, {object, `{"a":1`, "error: ", ""}, {object, `{"a":1,}`, "error: ", ""},
	} {
		s := &scanner{text: []byte(c.in)}
		got := c.read(s)
		if strings.HasPrefix(c.want, "error: ") {
			if !strings.HasPrefix(got, c.want) {
				t.Errorf("%s: %s, want an error", c.in, got)
			}
			continue
		}
		if got != c.want || c.rest != "" && string(s.text[s.at:]) != c.rest {
			t.Errorf("%s: %s, rest %q; want %s, rest %q", c.in, got, s.text[s.at:], c.want, c.rest)
		}
	}
	stop := errors.New("stop")
	if err := (&scanner{text: []byte(`[1,2]`)}).array(func() error { return stop }); !errors.Is(err, stop) {
		t.Errorf("%v", err)
	}
	if _, err := atom[float64](&scanner{text: []byte("1")}); err == nil {
		t.Error("a column of a type that there is not")
	}
}

// TestDifferences: what update2 calls the difference of a set or a map, applied to it.
func TestDifferences(t *testing.T) {
	for _, c := range []struct{ a, b, want []int }{
		{[]int{1, 3, 5}, []int{2, 3}, []int{1, 2, 5}}, {nil, []int{1}, []int{1}}, {[]int{1}, []int{1}, nil}, {[]int{1, 2}, nil, []int{1, 2}}, {[]int{1}, []int{2, 3}, []int{1, 2, 3}}, {[]int{5}, []int{1}, []int{1, 5}},
	} {
		if got := symmetricDifference(c.a, c.b); !slices.Equal(got, c.want) || (got == nil) != (c.want == nil) {
			t.Errorf("%v and %v: %v, want %v", c.a, c.b, got, c.want)
		}
	}
	for _, c := range []struct {
		diff string
		want map[string]string
	}{
		{`["map",[["a","1"]]]`, map[string]string{"b": "2"}},                     // was there: gone
		{`["map",[["a","9"]]]`, map[string]string{"a": "9", "b": "2"}},           // another value
		{`["map",[["c","3"]]]`, map[string]string{"a": "1", "b": "2", "c": "3"}}, // new
		{`["map",[["a","1"],["b","2"]]]`, nil},                                   // all gone
	} {
		old := map[string]string{"a": "1", "b": "2"}
		got, err := mapCodec[string, string]().merge(old, &scanner{text: []byte(c.diff)})
		if err != nil || !maps.Equal(got, c.want) || (got == nil) != (c.want == nil) || len(old) != 2 {
			t.Errorf("%s: %v, %v", c.diff, got, err)
		}
	}
	if _, err := mapCodec[string, string]().merge(nil, &scanner{text: []byte(`"x"`)}); err == nil {
		t.Error("a text is taken for a map")
	}
	if _, err := setCodec[int]().merge(nil, &scanner{text: []byte(`"x"`)}); err == nil {
		t.Error("a text is taken for a set of numbers")
	}
}
