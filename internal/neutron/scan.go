// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"bytes"
	"encoding/json"
	"errors"
)

// This file finds its way through JSON text without decoding it: most pushes do not concern this host, and finding that out must cost
// no memory. Values are delimited, not validated; whoever decodes one finds its errors. The functions are those of
// oslo/messaging/internal/rawjson, which this package cannot import; a test compares them.

// errSyntax says that the text is not the JSON that was expected.
var errSyntax = errors.New("malformed JSON")

// text returns the string that b begins with, and its length; null gives "".
func text(b []byte) (s string, n int, err error) {
	if n, err = skip(b); err != nil {
		return "", 0, err
	}
	if raw := b[:n]; raw[0] == '"' && plain(raw[1:n-1]) {
		return string(raw[1 : n-1]), n, nil
	}
	var decoded string // apart from s, which stays on the stack
	err = json.Unmarshal(b[:n], &decoded)
	return decoded, n, err
}

// plain says whether all bytes of a string stand for themselves.
func plain(b []byte) bool {
	for _, c := range b {
		if c < 0x20 || c == '\\' || c >= 0x80 {
			return false
		}
	}
	return true
}

// blank says whether there is nothing but blanks in b.
func blank(b []byte) bool { return skipSpace(b, 0) == len(b) }

// members reads the object that b begins with and returns its length. For each member f is given the key and the text
// from its value on, and returns the value's length: skip it, or read it with one of the functions that return one. So
// the text is gone over once, however deep the part that is looked for.
func members(b []byte, f func(key, rest []byte) (int, error)) (int, error) {
	return sequence(b, '{', '}', func(rest []byte) (int, error) {
		keyEnd, err := skipString(rest, 0)
		if err != nil {
			return 0, err
		}
		i := skipSpace(rest, keyEnd)
		if i >= len(rest) || rest[i] != ':' {
			return 0, errSyntax
		}
		i = skipSpace(rest, i+1)
		n, err := f(rest[1:keyEnd-1], rest[i:])
		return i + n, err
	})
}

// elements reads the array that b begins with and returns its length. For each element f is given the text from there
// on, and returns the element's length.
func elements(b []byte, f func(rest []byte) (int, error)) (int, error) {
	return sequence(b, '[', ']', f)
}

// sequence reads what stands between brackets and commas.
func sequence(b []byte, opening, closing byte, f func(rest []byte) (int, error)) (int, error) {
	i := skipSpace(b, 0)
	if i >= len(b) || b[i] != opening {
		return 0, errSyntax
	}
	i = skipSpace(b, i+1)
	if i < len(b) && b[i] == closing {
		return i + 1, nil
	}
	for {
		n, err := f(b[i:])
		if err != nil {
			return 0, err
		}
		i = skipSpace(b, i+n)
		switch {
		case i < len(b) && b[i] == ',':
			i = skipSpace(b, i+1)
		case i < len(b) && b[i] == closing:
			return i + 1, nil
		default:
			return 0, errSyntax
		}
	}
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// skipString expects a quote at i and returns the index behind the closing one.
func skipString(b []byte, i int) (int, error) {
	if i >= len(b) || b[i] != '"' {
		return 0, errSyntax
	}
	for i++; i < len(b); {
		j := bytes.IndexByte(b[i:], '"')
		if j < 0 {
			return 0, errSyntax
		}
		j += i
		// The quote counts if an even number of backslashes precedes it.
		k := j
		for k > i && b[k-1] == '\\' {
			k--
		}
		i = j + 1
		if (j-k)%2 == 0 {
			return i, nil
		}
	}
	return 0, errSyntax
}

// skip returns the length of the value that b begins with.
func skip(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, errSyntax
	}
	switch b[0] {
	case '"':
		return skipString(b, 0)
	case '{', '[':
		return skipNested(b)
	}
	n := bytes.IndexAny(b, ",}] \n\t\r\":{[")
	if n < 0 {
		n = len(b)
	}
	if n == 0 {
		return 0, errSyntax
	}
	return n, nil
}

// skipNested returns the length of what ends with the bracket that closes the first one.
func skipNested(b []byte) (int, error) {
	depth := 0
	for i := 0; i < len(b); {
		switch b[i] {
		case '"':
			end, err := skipString(b, i)
			if err != nil {
				return 0, err
			}
			i = end
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1, nil
			}
		}
		i++
	}
	return 0, errSyntax
}
