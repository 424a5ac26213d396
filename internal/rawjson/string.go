// SPDX-License-Identifier: Apache-2.0

package rawjson

import (
	"bytes"
	"unicode/utf16"
	"unicode/utf8"
)

// String decodes a JSON string; null gives "".
func String(raw []byte) (string, error) {
	if bytes.Equal(raw, []byte("null")) {
		return "", nil
	}
	s, err := Unquote(raw)
	return string(s), err
}

// Text decodes the string that b begins with, and returns its length as well; null gives "".
func Text(b []byte) (s string, n int, err error) {
	if n, err = Skip(b); err == nil {
		s, err = String(b[:n])
	}
	return s, n, err
}

// Unquote decodes a JSON string into bytes that may alias raw. Invalid UTF-8 and lone surrogates become U+FFFD, as in
// encoding/json.
func Unquote(raw []byte) ([]byte, error) {
	text, n, err := unquote(raw, false)
	if err == nil && n != len(raw) {
		err = ErrSyntax
	}
	if err != nil {
		return nil, err
	}
	return text, nil
}

// UnquoteInPlace decodes the JSON string that b begins with, and may write it over b, for callers who have no other use for
// that part. It returns the length of what it read as well.
func UnquoteInPlace(b []byte) (text []byte, n int, err error) { return unquote(b, true) }

func unquote(b []byte, inPlace bool) (text []byte, n int, err error) {
	if len(b) == 0 || b[0] != '"' {
		return nil, 0, ErrSyntax
	}
	i := 1 + plain(b[1:])
	if i < len(b) && b[i] == '"' {
		return b[1:i], i + 1, nil
	}
	out := b[1:i]
	if !inPlace {
		out = append(make([]byte, 0, len(b)), out...)
	}
	for i < len(b) {
		c := b[i]
		switch {
		case c == '"':
			return out, i + 1, nil
		case c == '\\' && i+1 < len(b) && (b[i+1] == '"' || b[i+1] == '\\'):
			out = append(out, b[i+1]) // nearly every escape there is
			i += 2
		case c == '\\':
			r, width := unescape(b[i:])
			if width == 0 {
				return nil, 0, ErrSyntax
			}
			out = utf8.AppendRune(out, r) // never longer than the escape
			i += width
		case c >= utf8.RuneSelf:
			r, width := utf8.DecodeRune(b[i:])
			if r == utf8.RuneError && width == 1 && inPlace {
				// What stands for a bad byte is longer, and would overwrite what is still to be read.
				out, inPlace = append(make([]byte, 0, len(b)), out...), false
			}
			out = utf8.AppendRune(out, r)
			i += width
		default:
			return nil, 0, ErrSyntax // must be escaped inside a string
		}
		n := plain(b[i:])
		out = append(out, b[i:i+n]...)
		i += n
	}
	return nil, 0, ErrSyntax // it does not end
}

// special marks the bytes that do not stand for themselves inside a string.
var special = func() (t [256]bool) {
	for c := range t {
		t[c] = c < 0x20 || c == '"' || c == '\\' || c >= utf8.RuneSelf
	}
	return t
}()

// plain is how many bytes b begins with that stand for themselves.
func plain(b []byte) int {
	for i, c := range b {
		if special[c] {
			return i
		}
	}
	return len(b)
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

// AppendQuoted appends s as a JSON string.
func AppendQuoted(dst, s []byte) []byte {
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
