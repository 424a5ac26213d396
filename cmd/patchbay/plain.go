// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"unicode"
	"unicode/utf8"
)

// plain is a writer for terminals. Names of ports and groups are the tenants' choice, and a terminal obeys what is in them. So whatever
// has no shape of its own becomes a question mark, but for the end of a line and the tabulator: control characters, of ASCII and of
// Unicode, those that turn the direction of writing or take no room, and bytes that are no text.
type plain struct {
	to   io.Writer
	rest []byte // the beginning of a character whose end is still to come
}

// Write implements io.Writer.
func (p *plain) Write(b []byte) (int, error) {
	text := append(p.rest, b...)
	clean := make([]byte, 0, len(text))
	for len(text) > 0 && utf8.FullRune(text) {
		r, size := utf8.DecodeRune(text)
		switch {
		case r == '\n', r == '\t', unicode.IsGraphic(r) && (r != utf8.RuneError || size > 1):
			clean = append(clean, text[:size]...)
		default:
			clean = append(clean, '?')
		}
		text = text[size:]
	}
	p.rest = append([]byte(nil), text...)
	if _, err := p.to.Write(clean); err != nil {
		return 0, err
	}
	return len(b), nil
}
