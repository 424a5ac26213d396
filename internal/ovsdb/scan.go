// SPDX-License-Identifier: Apache-2.0

package ovsdb

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
)

// scanner reads the columns of a row from JSON in one pass. Values are nested arrays; encoding/json would parse each of
// them once per level.
type scanner struct {
	text []byte
	at   int
}

// peek returns the next byte that is not white space, 0 at the end.
func (s *scanner) peek() byte {
	for s.at < len(s.text) {
		switch c := s.text[s.at]; c {
		case ' ', '\t', '\n', '\r':
			s.at++
		default:
			return c
		}
	}
	return 0
}

func (s *scanner) expect(c byte) error {
	if got := s.peek(); got != c {
		return fmt.Errorf("want %q at byte %d, got %q", c, s.at, got)
	}
	s.at++
	return nil
}

// object calls field for every member; field must read the value.
func (s *scanner) object(field func(name string) error) error {
	return s.list('{', '}', func() error {
		name, err := s.str()
		if err != nil {
			return err
		}
		if err := s.expect(':'); err != nil {
			return err
		}
		return field(name)
	})
}

// array calls element for every element; element must read it.
func (s *scanner) array(element func() error) error { return s.list('[', ']', element) }

func (s *scanner) list(open, end byte, element func() error) error {
	if err := s.expect(open); err != nil {
		return err
	}
	if s.peek() == end {
		s.at++
		return nil
	}
	for {
		if err := element(); err != nil {
			return err
		}
		if s.peek() == end {
			s.at++
			return nil
		}
		if err := s.expect(','); err != nil {
			return err
		}
	}
}

func (s *scanner) str() (string, error) {
	if err := s.expect('"'); err != nil {
		return "", err
	}
	start := s.at - 1
	for s.at < len(s.text) {
		i := bytes.IndexAny(s.text[s.at:], `"\`)
		if i < 0 {
			break
		}
		s.at += i
		if s.text[s.at] == '"' {
			s.at++
			quoted := s.text[start:s.at]
			if bytes.IndexByte(quoted, '\\') < 0 {
				return string(quoted[1 : len(quoted)-1]), nil
			}
			var out string
			if err := json.Unmarshal(quoted, &out); err != nil {
				return "", fmt.Errorf("decoding a string: %w", err)
			}
			return out, nil
		}
		s.at += 2 // the escaped byte too
	}
	return "", fmt.Errorf("string without an end at byte %d", start)
}

// word reads a number or true, false, null.
func (s *scanner) word() string {
	s.peek()
	start := s.at
	for s.at < len(s.text) {
		c := s.text[s.at]
		if c != '-' && c != '+' && c != '.' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && c != 'E' {
			break
		}
		s.at++
	}
	return string(s.text[start:s.at])
}

func (s *scanner) integer() (int, error) {
	w := s.word()
	n, err := strconv.Atoi(w)
	if err != nil {
		return 0, fmt.Errorf("want an integer at byte %d, got %q", s.at, w)
	}
	return n, nil
}

func (s *scanner) boolean() (bool, error) {
	switch w := s.word(); w {
	case "true":
		return true, nil
	case "false":
		return false, nil
	default:
		return false, fmt.Errorf("want a boolean at byte %d, got %q", s.at, w)
	}
}

// skip reads any value and drops it.
func (s *scanner) skip() error {
	switch s.peek() {
	case '{':
		return s.object(func(string) error { return s.skip() })
	case '[':
		return s.array(s.skip)
	case '"':
		_, err := s.str()
		return err
	}
	if s.word() == "" {
		return fmt.Errorf("want a value at byte %d", s.at)
	}
	return nil
}

// atom reads a string, integer, boolean or ["uuid", "…"].
func atom[E any](s *scanner) (e E, err error) {
	switch p := any(&e).(type) {
	case *string:
		*p, err = s.str()
	case *int:
		*p, err = s.integer()
	case *bool:
		*p, err = s.boolean()
	case *UUID:
		*p, err = s.uuid()
	default:
		err = fmt.Errorf("no column has type %T", e)
	}
	return e, err
}

func (s *scanner) uuid() (UUID, error) {
	if err := s.tag("uuid"); err != nil {
		return "", err
	}
	id, err := s.str()
	if err != nil {
		return "", err
	}
	return UUID(id), s.expect(']')
}

// tag reads the beginning of ["uuid", …], ["set", …] or ["map", …].
func (s *scanner) tag(want string) error {
	if err := s.expect('['); err != nil {
		return err
	}
	kind, err := s.str()
	if err != nil {
		return err
	}
	if kind != want {
		return fmt.Errorf("want a %s at byte %d, got a %q", want, s.at, kind)
	}
	return s.expect(',')
}

// isSet says whether a set in brackets follows; without them it is the only element.
func (s *scanner) isSet() bool {
	if s.peek() != '[' {
		return false
	}
	ahead := *s
	return ahead.tag("set") == nil
}

// elements calls element for every element of a set; element must read it.
func (s *scanner) elements(element func() error) error {
	if !s.isSet() {
		return element()
	}
	if err := s.tag("set"); err != nil {
		return err
	}
	if err := s.array(element); err != nil {
		return err
	}
	return s.expect(']')
}

// pairs calls key and then value for every pair of a map.
func (s *scanner) pairs(key, value func() error) error {
	if err := s.tag("map"); err != nil {
		return err
	}
	if err := s.array(func() error {
		if err := s.expect('['); err != nil {
			return err
		}
		if err := key(); err != nil {
			return err
		}
		if err := s.expect(','); err != nil {
			return err
		}
		if err := value(); err != nil {
			return err
		}
		return s.expect(']')
	}); err != nil {
		return err
	}
	return s.expect(']')
}
