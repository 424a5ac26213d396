// SPDX-License-Identifier: Apache-2.0

package rawjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"
)

func TestObject(t *testing.T) {
	var keys, values []string
	err := Object([]byte(` { "a" : [ { "x" : "}\"" } ] , "b\n":null,"c":-1.5e3 } `), func(k, v []byte) {
		keys, values = append(keys, string(k)), append(values, string(v))
	})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := values, []string{`[ { "x" : "}\"" } ]`, `null`, `-1.5e3`}; !equal(got, want) {
		t.Errorf("values %q, want %q", got, want)
	}
	if want := []string{"a", `b\n`, "c"}; !equal(keys, want) {
		t.Errorf("keys %q, want %q", keys, want)
	}
	for _, bad := range []string{``, `[]`, `{`, `{"a"}`, `{"a":}`, `{"a":1`, `{"a":1,`, `{"a":1]`, `{}x`, `{"a":"\"}`, `{a:1}`, `{"a":{"b":1}`} {
		if err := Object([]byte(bad), func(_, _ []byte) {}); !errors.Is(err, ErrSyntax) {
			t.Errorf("%s: %v, want ErrSyntax", bad, err)
		}
	}
}

func TestArray(t *testing.T) {
	var values []string
	if err := Array([]byte("[1 , {\"a\":[]},\n\"]\" ] "), func(v []byte) { values = append(values, string(v)) }); err != nil {
		t.Fatal(err)
	}
	if want := []string{"1", `{"a":[]}`, `"]"`}; !equal(values, want) {
		t.Errorf("%q, want %q", values, want)
	}
	if err := Array([]byte("[]"), func([]byte) { t.Error("an empty array has an element") }); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{``, `{}`, `[`, `[1`, `[1,`, `[1}`, `[]]`, `[,]`} {
		if err := Array([]byte(bad), func([]byte) {}); !errors.Is(err, ErrSyntax) {
			t.Errorf("%s: %v, want ErrSyntax", bad, err)
		}
	}
}

func equal(a, b []string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// FuzzScan: what encoding/json accepts is taken apart into the same parts; anything else is taken apart or refused.
func FuzzScan(f *testing.F) {
	for _, s := range []string{
		`{}`, `[]`, `{"a":1}`, ` { "method" : "m" , "args" : [ { "x" : "}" } ] } `, `[1,"]",[[]],{"a":{}}]`, `{"a":"\\"}`, `{"a":"\\\""}`, `{"a":`, `[1,`, `"x"`, `nul`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var parts [][]byte
		objectErr := Object(text, func(k, v []byte) { parts = append(parts, k, v) })
		var elements [][]byte
		arrayErr := Array(text, func(v []byte) { elements = append(elements, v) })
		if objectErr == nil && arrayErr == nil {
			t.Fatal("both an object and an array")
		}
		dec := json.NewDecoder(bytes.NewReader(text))
		var want [][]byte
		first, err := dec.Token()
		if err != nil || !json.Valid(text) {
			return
		}
		got, gotErr := parts, objectErr
		switch first {
		case json.Delim('['):
			got, gotErr = elements, arrayErr
		case json.Delim('{'):
		default:
			return
		}
		if gotErr != nil {
			t.Fatalf("refused: %v", gotErr)
		}
		for dec.More() {
			if first == json.Delim('{') {
				key, err := dec.Token()
				if err != nil {
					t.Fatal(err)
				}
				want = append(want, []byte(key.(string)))
			}
			var v json.RawMessage
			if err := dec.Decode(&v); err != nil {
				t.Fatal(err)
			}
			want = append(want, v)
		}
		if len(got) != len(want) {
			t.Fatalf("%d parts, encoding/json finds %d", len(got), len(want))
		}
		for i := range want {
			part := got[i]
			if first == json.Delim('{') && i%2 == 0 {
				var err error
				if part, err = Unquote(append(append([]byte{'"'}, part...), '"')); err != nil {
					t.Fatal(err)
				}
			}
			if !bytes.Equal(part, want[i]) {
				t.Errorf("part %q, encoding/json finds %q", part, want[i])
			}
		}
	})
}

// FuzzString: our decoder of JSON strings agrees with encoding/json.
func FuzzString(f *testing.F) {
	for _, s := range []string{
		`""`, `"a"`, `"\u00e9\n\"\\\/\b\f\r\t"`, `"\ud83d\ude00"`, `"\ud83d"`, `"\ude00x"`, `"\u12"`, `"\q"`, "\"\xff\xfe\"", "\"\n\"", `"a"b"`, `"\"`, "\"é\\\"\xe2\x98\"", "\"\\n\xff\xff\xff\\\"\"",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var want string
		wantErr := json.Unmarshal(raw, &want)
		if len(raw) == 0 || raw[0] != '"' || raw[len(raw)-1] != '"' {
			return // blanks around it, or no string at all
		}
		got, err := Unquote(raw)
		if (err == nil) != (wantErr == nil) || err == nil && string(got) != want {
			t.Fatalf("%q: got %q, %v; encoding/json %q, %v", raw, got, err, want, wantErr)
		}
		if err != nil {
			return
		}
		rest := []byte(`,"rest"`)
		if over, n, err := UnquoteInPlace(append(bytes.Clone(raw), rest...)); err != nil || n != len(raw) || !bytes.Equal(over, got) {
			t.Fatalf("%q: in place %q of %d bytes, %v; beside %q of %d", raw, over, n, err, got, len(raw))
		}
		back := AppendQuoted(nil, got)
		var round string
		if err := json.Unmarshal(back, &round); err != nil || round != want {
			t.Fatalf("%q quoted again is %q: %v", got, back, err)
		}
	})
}

// TestText: as encoding/json has it.
func TestText(t *testing.T) {
	for _, in := range []string{`"Port"`, `""`, `"a\"b"`, `"\u00e9\n"`, `"é"`, `null`, `1`, `{}`, `true`, "\"a\x01\"", "\"\xff\"", `"\x"`, `"`, ``} {
		got, n, err := Text([]byte(in))
		var want string
		if wantErr := json.Unmarshal([]byte(in), &want); (err == nil) != (wantErr == nil) {
			t.Errorf("%q: %v, encoding/json says %v", in, err, wantErr)
		} else if err == nil && (got != want || n != len(in)) {
			t.Errorf("%q: %q of %d bytes, want %q", in, got, n, want)
		}
	}
	in := []byte(`"versioned_object" , "rest"`)
	if allocs := testing.AllocsPerRun(100, func() { _, _, _ = Text(in) }); allocs > 1 {
		t.Errorf("%v allocations", allocs)
	}
}
