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

// Unquote decodes a JSON string into bytes that may alias raw. Invalid UTF-8 and lone surrogates become U+FFFD, as in
// encoding/json.
func Unquote(raw []byte) ([]byte, error) {
	if len(raw) < 2 || raw[0] != '"' || raw[len(raw)-1] != '"' {
		return nil, ErrSyntax
	}
	in := raw[1 : len(raw)-1]
	n := plain(in)
	if n == len(in) {
		return in, nil
	}
	out := make([]byte, 0, len(in))
	for {
		out = append(out, in[:n]...)
		if in = in[n:]; len(in) == 0 {
			return out, nil
		}
		switch {
		case in[0] == '\\' && len(in) > 1 && (in[1] == '"' || in[1] == '\\'):
			out, n = append(out, in[1]), 2 // nearly every escape there is
		case in[0] == '\\':
			r, width := unescape(in)
			if width == 0 {
				return nil, ErrSyntax
			}
			out, n = utf8.AppendRune(out, r), width
		case in[0] >= utf8.RuneSelf:
			r, width := utf8.DecodeRune(in) // U+FFFD for what is none
			out, n = utf8.AppendRune(out, r), width
		default:
			return nil, ErrSyntax // must be escaped inside a string
		}
		in = in[n:]
		n = plain(in)
	}
}

// plain is how many bytes b begins with that stand for themselves.
func plain(b []byte) int {
	for i, c := range b {
		if c < 0x20 || c == '"' || c == '\\' || c >= utf8.RuneSelf {
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
