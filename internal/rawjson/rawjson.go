// SPDX-License-Identifier: Apache-2.0

// Package rawjson finds its way through JSON text without decoding it. An agent receives many messages that do not
// concern it: to find that out costs one look at the bytes here, no memory, and none of the checks that decoding makes.
//
// Values are delimited, not validated: whoever decodes one finds its errors. Nothing in here can be made to fail in any
// other way than by returning [ErrSyntax], whatever the bytes are.
package rawjson

import (
	"bytes"
	"errors"
)

// ErrSyntax says that the text is not the JSON that was expected.
var ErrSyntax = errors.New("malformed JSON")

// Object calls f with each member of the object b. Both slices point into b; the key still carries its escapes.
func Object(b []byte, f func(key, value []byte)) error {
	n, err := Members(b, func(key, rest []byte) (int, error) {
		n, err := Skip(rest)
		if err == nil {
			f(key, rest[:n])
		}
		return n, err
	})
	if err == nil && !Blank(b[n:]) {
		err = ErrSyntax
	}
	return err
}

// Array calls f with each element of the array b.
func Array(b []byte, f func(value []byte)) error {
	n, err := Elements(b, func(rest []byte) (int, error) {
		n, err := Skip(rest)
		if err == nil {
			f(rest[:n])
		}
		return n, err
	})
	if err == nil && !Blank(b[n:]) {
		err = ErrSyntax
	}
	return err
}

// Blank says whether there is nothing but blanks in b.
func Blank(b []byte) bool { return skipSpace(b, 0) == len(b) }

// Members reads the object that b begins with and returns its length. For each member f is given the key and the text
// from its value on, and returns the value's length: [Skip] it, or read it with one of the functions that return one. So
// the text is gone over once, however deep the part that is looked for.
func Members(b []byte, f func(key, rest []byte) (int, error)) (int, error) {
	return sequence(b, '{', '}', func(rest []byte) (int, error) {
		keyEnd, err := skipString(rest, 0)
		if err != nil {
			return 0, err
		}
		i := skipSpace(rest, keyEnd)
		if i >= len(rest) || rest[i] != ':' {
			return 0, ErrSyntax
		}
		i = skipSpace(rest, i+1)
		n, err := f(rest[1:keyEnd-1], rest[i:])
		return i + n, err
	})
}

// Elements reads the array that b begins with and returns its length. For each element f is given the text from there
// on, and returns the element's length.
func Elements(b []byte, f func(rest []byte) (int, error)) (int, error) {
	return sequence(b, '[', ']', f)
}

// sequence reads what stands between brackets and commas.
func sequence(b []byte, opening, closing byte, f func(rest []byte) (int, error)) (int, error) {
	i := skipSpace(b, 0)
	if i >= len(b) || b[i] != opening {
		return 0, ErrSyntax
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
			return 0, ErrSyntax
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
		return 0, ErrSyntax
	}
	for i++; i < len(b); {
		j := bytes.IndexByte(b[i:], '"')
		if j < 0 {
			return 0, ErrSyntax
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
	return 0, ErrSyntax
}

// Skip returns the length of the value that b begins with.
func Skip(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, ErrSyntax
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
		return 0, ErrSyntax
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
	return 0, ErrSyntax
}
