// SPDX-License-Identifier: Apache-2.0

package main

import "io"

// plain is a writer for terminals. Names of ports and groups are the tenants' choice, and a terminal obeys what is in them; so
// control characters, but for the end of a line and the tabulator, become question marks.
type plain struct {
	to   io.Writer
	lead bool // the last byte begins a character of two bytes that may be a control character
}

// Write implements io.Writer.
func (p *plain) Write(b []byte) (int, error) {
	clean := make([]byte, len(b))
	for i, c := range b {
		switch {
		case c < ' ' && c != '\n' && c != '\t', c == 0x7f, p.lead && c >= 0x80 && c < 0xa0:
			c = '?' // of the two bytes of U+0080 to U+009F the second; what is left is no character, which terminals show as such
		}
		p.lead = c == 0xc2
		clean[i] = c
	}
	return p.to.Write(clean)
}
