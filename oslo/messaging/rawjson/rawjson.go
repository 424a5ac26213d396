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
	i, done, err := open(b, '{', '}')
	if done || err != nil {
		return err
	}
	for {
		keyEnd, err := skipString(b, i)
		if err != nil {
			return err
		}
		key := b[i+1 : keyEnd-1]
		i = skipSpace(b, keyEnd)
		if i >= len(b) || b[i] != ':' {
			return ErrSyntax
		}
		i = skipSpace(b, i+1)
		end, err := skipValue(b, i)
		if err != nil {
			return err
		}
		f(key, b[i:end])
		if i, done, err = next(b, end, '}'); done || err != nil {
			return err
		}
	}
}

// Array calls f with each element of the array b.
func Array(b []byte, f func(value []byte)) error {
	i, done, err := open(b, '[', ']')
	if done || err != nil {
		return err
	}
	for {
		end, err := skipValue(b, i)
		if err != nil {
			return err
		}
		f(b[i:end])
		if i, done, err = next(b, end, ']'); done || err != nil {
			return err
		}
	}
}

// open steps behind the bracket that b begins with; done is true when nothing is inside.
func open(b []byte, opening, closing byte) (i int, done bool, err error) {
	i = skipSpace(b, 0)
	if i >= len(b) || b[i] != opening {
		return 0, false, ErrSyntax
	}
	i = skipSpace(b, i+1)
	if i < len(b) && b[i] == closing {
		return 0, true, atEnd(b, i+1)
	}
	return i, false, nil
}

// next steps from the end of a value to the beginning of the next one; done is true when there is none.
func next(b []byte, i int, closing byte) (_ int, done bool, err error) {
	i = skipSpace(b, i)
	switch {
	case i < len(b) && b[i] == ',':
		return skipSpace(b, i+1), false, nil
	case i < len(b) && b[i] == closing:
		return 0, true, atEnd(b, i+1)
	}
	return 0, false, ErrSyntax
}

func atEnd(b []byte, i int) error {
	if skipSpace(b, i) != len(b) {
		return ErrSyntax
	}
	return nil
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

func skipValue(b []byte, i int) (int, error) {
	if i >= len(b) {
		return 0, ErrSyntax
	}
	switch b[i] {
	case '"':
		return skipString(b, i)
	case '{', '[':
		return skipNested(b, i)
	}
	start := i
	for i < len(b) && bytes.IndexByte([]byte(",}] \n\t\r\":{["), b[i]) < 0 {
		i++
	}
	if i == start {
		return 0, ErrSyntax
	}
	return i, nil
}

// skipNested returns the index behind the bracket that closes the one at i.
func skipNested(b []byte, i int) (int, error) {
	depth := 0
	for i < len(b) {
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
