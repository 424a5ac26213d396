// SPDX-License-Identifier: Apache-2.0

package messaging

import (
	"bytes"
	"errors"
	"unicode/utf16"
	"unicode/utf8"
)

// An agent receives many messages that do not concern it. Finding out costs one pass over the bytes here: the members
// of the outermost object are located, their values stay undecoded.

var errJSON = errors.New("malformed JSON")

// scanObject calls f with each member of the JSON object b. Values are only delimited, not checked: whoever decodes one
// finds its errors. Both slices point into b, the key still carries its escapes.
func scanObject(b []byte, f func(key, value []byte)) error {
	i := skipSpace(b, 0)
	if i >= len(b) || b[i] != '{' {
		return errJSON
	}
	i = skipSpace(b, i+1)
	if i < len(b) && b[i] == '}' {
		return atEnd(b, i+1)
	}
	for {
		keyEnd, err := skipString(b, i)
		if err != nil {
			return err
		}
		key := b[i+1 : keyEnd-1]
		i = skipSpace(b, keyEnd)
		if i >= len(b) || b[i] != ':' {
			return errJSON
		}
		i = skipSpace(b, i+1)
		end, err := skipValue(b, i)
		if err != nil {
			return err
		}
		f(key, b[i:end])
		i = skipSpace(b, end)
		if i >= len(b) {
			return errJSON
		}
		switch b[i] {
		case ',':
			i = skipSpace(b, i+1)
		case '}':
			return atEnd(b, i+1)
		default:
			return errJSON
		}
	}
}

func atEnd(b []byte, i int) error {
	if skipSpace(b, i) != len(b) {
		return errJSON
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
		return 0, errJSON
	}
	for i++; i < len(b); {
		j := bytes.IndexByte(b[i:], '"')
		if j < 0 {
			return 0, errJSON
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
	return 0, errJSON
}

func skipValue(b []byte, i int) (int, error) {
	if i >= len(b) {
		return 0, errJSON
	}
	switch b[i] {
	case '"':
		return skipString(b, i)
	case '{', '[':
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
		return 0, errJSON
	}
	start := i
	for i < len(b) && !bytes.ContainsRune([]byte(",}] \n\t\r\":{["), rune(b[i])) {
		i++
	}
	if i == start {
		return 0, errJSON
	}
	return i, nil
}

// jsonString decodes a JSON string; null gives "".
func jsonString(raw []byte) (string, error) {
	if bytes.Equal(raw, []byte("null")) {
		return "", nil
	}
	s, err := unquoteJSON(raw)
	return string(s), err
}

// unquoteJSON decodes a JSON string into bytes that may alias raw. Invalid UTF-8 and lone surrogates become U+FFFD, as
// in encoding/json.
func unquoteJSON(raw []byte) ([]byte, error) {
	if len(raw) < 2 || raw[0] != '"' || raw[len(raw)-1] != '"' {
		return nil, errJSON
	}
	in := raw[1 : len(raw)-1]
	esc := bytes.IndexByte(in, '\\')
	if esc < 0 && utf8.Valid(in) {
		if hasBareByte(in) {
			return nil, errJSON
		}
		return in, nil
	}
	out := make([]byte, 0, len(in))
	for len(in) > 0 {
		plain := in
		if i := bytes.IndexByte(in, '\\'); i >= 0 {
			plain = in[:i]
		}
		if hasBareByte(plain) {
			return nil, errJSON
		}
		out = appendValidUTF8(out, plain)
		if in = in[len(plain):]; len(in) == 0 {
			break
		}
		r, n := unescape(in)
		if n == 0 {
			return nil, errJSON
		}
		out = utf8.AppendRune(out, r)
		in = in[n:]
	}
	return out, nil
}

// hasBareByte finds what must be escaped inside a JSON string.
func hasBareByte(b []byte) bool {
	for _, c := range b {
		if c < 0x20 || c == '"' {
			return true
		}
	}
	return false
}

// appendValidUTF8 replaces each byte that is not part of a valid sequence.
func appendValidUTF8(dst, b []byte) []byte {
	if utf8.Valid(b) {
		return append(dst, b...)
	}
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		dst = utf8.AppendRune(dst, r)
		b = b[n:]
	}
	return dst
}

// unescape decodes the escape at the start of b and tells its length, 0 when it is malformed.
func unescape(b []byte) (rune, int) {
	if len(b) < 2 {
		return 0, 0
	}
	switch b[1] {
	case '"', '\\', '/':
		return rune(b[1]), 2
	case 'b':
		return '\b', 2
	case 'f':
		return '\f', 2
	case 'n':
		return '\n', 2
	case 'r':
		return '\r', 2
	case 't':
		return '\t', 2
	case 'u':
		r := hex4(b[2:])
		if r < 0 {
			return 0, 0
		}
		if utf16.IsSurrogate(r) {
			if len(b) >= 12 && b[6] == '\\' && b[7] == 'u' {
				if pair := utf16.DecodeRune(r, hex4(b[8:])); pair != utf8.RuneError {
					return pair, 12
				}
			}
			return utf8.RuneError, 6
		}
		return r, 6
	}
	return 0, 0
}

func hex4(b []byte) rune {
	if len(b) < 4 {
		return -1
	}
	var r rune
	for _, c := range b[:4] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			c = c | 0x20 - 'a' + 10
		default:
			return -1
		}
		r = r<<4 | rune(c)
	}
	return r
}

// appendQuoted appends s as a JSON string.
func appendQuoted(dst, s []byte) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRune(s[i:])
			if r == utf8.RuneError && n == 1 {
				dst = append(append(dst, s[start:i]...), `\ufffd`...)
				i++
				start = i
				continue
			}
			i += n
			continue
		}
		if c >= 0x20 && c != '"' && c != '\\' {
			i++
			continue
		}
		dst = append(dst, s[start:i]...)
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
		i++
		start = i
	}
	return append(append(dst, s[start:]...), '"')
}
