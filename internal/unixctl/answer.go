// SPDX-License-Identifier: Apache-2.0

package unixctl

import (
	"bufio"
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"
)

const (
	// maxLine bounds a line of an answer. That of a packet which is flooded to a thousand ports has some 20 KiB.
	maxLine = 256 << 10
	// maxSkipped bounds what else an answer may hold: the identifier, white space, unknown members.
	maxSkipped = 64 << 10
)

var errAnswer = errors.New("not an answer of ovs-vswitchd's control socket")

// answerReader reads JSON-RPC answers whose result is one text. The text of a full connection table has more than ten
// megabytes, and encoding/json would hold all of it, twice: here it is given away line by line.
type answerReader struct {
	r       *bufio.Reader
	skipped int
}

// read reads one answer. Line is called for every line of the result, also for the last one without a newline. Refused is
// the text of the error with which the command was refused; empty if it was not.
func (a *answerReader) read(line func(string) error) (refused string, err error) {
	a.skipped = 0
	if err := a.expect('{'); err != nil {
		return "", err
	}
	for {
		if err := a.expect('"'); err != nil {
			return "", err
		}
		key, err := a.shortText()
		if err != nil {
			return "", err
		}
		if err := a.expect(':'); err != nil {
			return "", err
		}
		c, err := a.next()
		if err != nil {
			return "", err
		}
		switch {
		case c == '"' && key == "result":
			err = a.lines(line)
		case c == '"':
			var text string
			if text, err = a.shortText(); key == "error" {
				refused = text
				if text == "" {
					refused = "no reason given"
				}
			}
		case c == '{' || c == '[':
			err = fmt.Errorf("%w: %q holds more than a text", errAnswer, key)
		default:
			err = a.skipWord()
		}
		if err != nil {
			return "", err
		}
		if c, err = a.next(); err != nil {
			return "", err
		}
		switch c {
		case '}':
			return refused, nil
		case ',':
		default:
			return "", fmt.Errorf("%w: %q after a value", errAnswer, c)
		}
	}
}

// next returns the next byte that is not white space.
func (a *answerReader) next() (byte, error) {
	for {
		c, err := a.r.ReadByte()
		if err != nil {
			return 0, err
		}
		switch c {
		case ' ', '\t', '\r', '\n':
			if err := a.skip(); err != nil {
				return 0, err
			}
		default:
			return c, nil
		}
	}
}

func (a *answerReader) skip() error {
	if a.skipped++; a.skipped > maxSkipped {
		return fmt.Errorf("%w: too long", errAnswer)
	}
	return nil
}

func (a *answerReader) expect(want byte) error {
	c, err := a.next()
	if err == nil && c != want {
		err = fmt.Errorf("%w: %q where %q belongs", errAnswer, c, want)
	}
	return err
}

// skipWord skips the rest of a number, null, true or false.
func (a *answerReader) skipWord() error {
	for {
		c, err := a.r.ReadByte()
		if err != nil {
			return err
		}
		if c == ',' || c == '}' || c == ' ' || c == '\n' || c == '\r' || c == '\t' {
			return a.r.UnreadByte()
		}
		if err := a.skip(); err != nil {
			return err
		}
	}
}

// shortText reads the rest of a text that fits into a line's bounds.
func (a *answerReader) shortText() (string, error) {
	var text []byte
	for {
		var end bool
		var err error
		if text, end, err = a.char(text); err != nil {
			return "", err
		}
		if end {
			return string(text), nil
		}
		if len(text) > maxLine {
			return "", fmt.Errorf("%w: text too long", errAnswer)
		}
	}
}

// lines reads the rest of a text and gives it away line by line. After an error of line it reads on, so that the next
// answer begins where it should.
func (a *answerReader) lines(line func(string) error) error {
	var failed error
	give := func(text []byte) {
		if failed == nil && len(text) > 0 {
			failed = line(string(text))
		}
	}
	text := make([]byte, 0, 512)
	for {
		var end bool
		var err error
		if text, end, err = a.char(text); err != nil {
			return err
		}
		if end {
			give(text)
			return failed
		}
		if n := len(text) - 1; text[n] == '\n' {
			give(text[:n])
			text = text[:0]
		}
		if len(text) > maxLine {
			return fmt.Errorf("%w: line too long", errAnswer)
		}
	}
}

// char appends the next character of a text; end says that the text was closed instead.
func (a *answerReader) char(text []byte) (_ []byte, end bool, err error) {
	c, err := a.r.ReadByte()
	if err != nil {
		return text, false, err
	}
	if c == '"' {
		return text, true, nil
	}
	if c != '\\' {
		return append(text, c), false, nil
	}
	if c, err = a.r.ReadByte(); err != nil {
		return text, false, err
	}
	switch c {
	case '"', '\\', '/':
		return append(text, c), false, nil
	case 'n':
		return append(text, '\n'), false, nil
	case 't':
		return append(text, '\t'), false, nil
	case 'r':
		return append(text, '\r'), false, nil
	case 'b':
		return append(text, '\b'), false, nil
	case 'f':
		return append(text, '\f'), false, nil
	case 'u':
		var hex [4]byte
		for i := range hex {
			if hex[i], err = a.r.ReadByte(); err != nil {
				return text, false, err
			}
		}
		n, err := strconv.ParseUint(string(hex[:]), 16, 16)
		if err != nil {
			return text, false, fmt.Errorf("%w: escape %q", errAnswer, hex)
		}
		// Halves of pairs become the replacement character: nothing we read is beyond ASCII.
		return utf8.AppendRune(text, rune(n)), false, nil
	}
	return text, false, fmt.Errorf("%w: escape %q", errAnswer, c)
}
