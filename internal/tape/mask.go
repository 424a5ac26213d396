// SPDX-License-Identifier: Apache-2.0

package tape

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Masking says what of a tape is a secret.
type Masking struct {
	// Clean returns text without secrets.
	Clean func(text []byte) []byte
	// Secret returns whether the value of a name is one.
	Secret func(name string) bool
	// Hidden stands in place of it.
	Hidden string
}

// Mask copies a tape without secrets, compressed or not, as lines. Everything but the strings of secrets stays as it is, and from the first of these on
// the checksums, which become those of the copy. A tape that ends in the middle of a line is copied up to it.
func (m Masking) Mask(from io.Reader, to io.Writer) error {
	r, err := open(from)
	if err != nil {
		return err
	}
	for masked := false; ; {
		text, err := r.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			copied := m.line(text)
			if masked = masked || !bytes.Equal(copied, text); masked {
				copied = resum(copied, text)
			}
			_, err = to.Write(copied)
		}
		if err != nil {
			return fmt.Errorf("copying the tape: %w", err)
		}
	}
}

// resum returns a masked line with the checksum of what it has of decisions. That of before would differ from what masked inputs lead to, and a guessed
// secret could be checked by it. Of a text that was cut only the beginning is known, without its last line, which may end in half a secret.
func resum(masked, before []byte) []byte {
	var l, then struct {
		line
		Events json.RawMessage `json:"in,omitempty"` // as they are
	}
	if json.Unmarshal(masked, &l) != nil || json.Unmarshal(before, &then) != nil || then.Out == "" {
		return masked
	}
	if l.Cut = then.Cut || sum([]byte(then.Out)) != then.Sum; l.Cut {
		l.Out = l.Out[:strings.LastIndexByte(l.Out, '\n')+1]
	}
	l.Sum = sum([]byte(l.Out))
	text, _ := marshal(l) // it was JSON before
	return append(text, '\n')
}

// line returns a line with the strings of secrets replaced.
func (m Masking) line(text []byte) []byte {
	out, name := make([]byte, 0, len(text)), ""
	for len(text) > 0 {
		at := bytes.IndexByte(text, '"')
		if at < 0 {
			break
		}
		if bytes.ContainsAny(text[:at], ",[{}]") { // the value of the name was none, or is over
			name = ""
		}
		out, text = append(out, text[:at]...), text[at:]
		quoted := text[:quotedLen(text)]
		text = text[len(quoted):]
		var plain string
		if json.Unmarshal(quoted, &plain) != nil {
			out = append(out, quoted...)
			continue
		}
		isName := len(text) > 0 && text[0] == ':'
		clean := plain
		if !isName || plain != formatName { // a password may be a word that is in it
			clean = string(m.Clean([]byte(plain)))
		}
		if !isName && name != "" && m.Secret(name) && plain != "" {
			clean = m.Hidden
		}
		if name = ""; isName {
			name = plain
		}
		if clean != plain {
			if masked, err := marshal(clean); err == nil {
				quoted = masked
			}
		}
		out = append(out, quoted...)
	}
	return append(out, text...)
}

// quotedLen returns the length of the string that text begins with, with its quotes.
func quotedLen(text []byte) int {
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(text)
}
