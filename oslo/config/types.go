// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"math/big"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// Type converts the text of an option to its value.
//
// Parse gives nil (a number left empty), string, bool, int64, *big.Int (an
// integer beyond 64 bits), float64, []any or []Pair. Its error completes the
// sentence "option …": "is not a boolean". String names the type for people.
type Type interface {
	Parse(text string) (any, error)
	String() string
}

// Pair is one entry of a dictionary value, in the order of the text.
type Pair struct {
	Key   string
	Value any
}

// String is text, optionally restricted.
type String struct {
	Choices    []string
	Regexp     *regexp.Regexp // must match somewhere in the value
	IgnoreCase bool           // for Choices; a Regexp carries its own flag
	MaxLength  int            // in characters; 0: no limit
	Quotes     bool           // strip quotes around the value; useful inside a List
}

// Parse implements Type.
func (t String) Parse(s string) (any, error) {
	if t.Quotes && s != "" && (s[0] == '"' || s[0] == '\'') {
		if len(s) == 1 || s[len(s)-1] != s[0] {
			return nil, fmt.Errorf("has a quote that is not closed: %q", s)
		}
		s = s[1 : len(s)-1]
	}
	if t.MaxLength > 0 && utf8.RuneCountInString(s) > t.MaxLength {
		return nil, fmt.Errorf("is longer than %d characters", t.MaxLength)
	}
	if t.Regexp != nil && !t.Regexp.MatchString(s) {
		return nil, fmt.Errorf("is %q, which does not match %s", s, t.Regexp)
	}
	if t.Choices == nil || slices.ContainsFunc(t.Choices, func(c string) bool {
		return c == s || t.IgnoreCase && lower(c) == lower(s)
	}) {
		return s, nil
	}
	return nil, fmt.Errorf("is %q, which is none of %s", s, strings.Join(quoteEmpty(t.Choices), ", "))
}

func quoteEmpty(choices []string) []string {
	out := slices.Clone(choices)
	for i, c := range out {
		if c == "" {
			out[i] = `""`
		}
	}
	return out
}

func (t String) String() string {
	switch {
	case t.Choices != nil:
		return "one of " + strings.Join(quoteEmpty(t.Choices), ", ")
	case t.Regexp != nil:
		return "string matching " + t.Regexp.String()
	}
	return "string"
}

// Bool is true/1/on/yes or false/0/off/no in any case.
type Bool struct{}

// Parse implements Type.
func (Bool) Parse(s string) (any, error) {
	switch lower(s) {
	case "true", "1", "on", "yes":
		return true, nil
	case "false", "0", "off", "no":
		return false, nil
	}
	return nil, fmt.Errorf("is %q, which is not a boolean (true or false)", s)
}

func (Bool) String() string { return "boolean" }

// Int is a decimal integer. An empty value means that the option is not set.
type Int struct {
	Min, Max *int64
	Choices  []int64 // when given, Min and Max are not looked at
	name     string
}

// Limit makes the pointer that the bounds of Int and Float want.
func Limit[T int64 | float64](n T) *T { return &n }

// Port is an Int from 0 to 65535.
func Port() Int { return Int{Min: Limit[int64](0), Max: Limit[int64](65535), name: "port"} }

// Parse implements Type.
func (t Int) Parse(s string) (any, error) {
	if strip(s) == "" {
		return nil, nil
	}
	n, err := parseInt(s)
	if err != nil {
		return nil, fmt.Errorf("is %q, which is not a whole number", s)
	}
	if t.Choices != nil {
		if v, ok := n.(int64); ok && slices.Contains(t.Choices, v) {
			return n, nil
		}
		return nil, fmt.Errorf("is %s, which is none of %v", text(n), t.Choices)
	}
	if t.Min != nil && compareInt(n, *t.Min) < 0 {
		return nil, fmt.Errorf("is %s, but the least value is %d", text(n), *t.Min)
	}
	if t.Max != nil && compareInt(n, *t.Max) > 0 {
		return nil, fmt.Errorf("is %s, but the greatest value is %d", text(n), *t.Max)
	}
	return n, nil
}

func compareInt(n any, limit int64) int {
	if v, ok := n.(*big.Int); ok {
		return v.Cmp(big.NewInt(limit))
	}
	return big.NewInt(n.(int64)).Cmp(big.NewInt(limit))
}

func (t Int) String() string {
	name := t.name
	if name == "" {
		name = "integer"
	}
	switch {
	case t.Choices != nil:
		return fmt.Sprintf("%s, one of %v", name, t.Choices)
	case t.name != "" && t.Min != nil && *t.Min == 0 && t.Max != nil && *t.Max == 65535:
		return name
	}
	return name + bounds(t.Min, t.Max)
}

func bounds[T int64 | float64](lo, hi *T) string {
	switch {
	case lo != nil && hi != nil:
		return fmt.Sprintf(" from %v to %v", *lo, *hi)
	case lo != nil:
		return fmt.Sprintf(", at least %v", *lo)
	case hi != nil:
		return fmt.Sprintf(", at most %v", *hi)
	}
	return ""
}

// Float is a decimal number. An empty value means that the option is not set.
type Float struct{ Min, Max *float64 }

// Parse implements Type.
func (t Float) Parse(s string) (any, error) {
	if strip(s) == "" {
		return nil, nil
	}
	f, err := parseFloat(s)
	if err != nil {
		return nil, fmt.Errorf("is %q, which is not a number", s)
	}
	if t.Min != nil && f < *t.Min {
		return nil, fmt.Errorf("is %s, but the least value is %g", floatText(f), *t.Min)
	}
	if t.Max != nil && f > *t.Max {
		return nil, fmt.Errorf("is %s, but the greatest value is %g", floatText(f), *t.Max)
	}
	return f, nil
}

func (t Float) String() string { return "number" + bounds(t.Min, t.Max) }

// List is items between commas. An item that its type refuses is tried again
// together with the next one, so that items may contain commas.
type List struct {
	Item   Type // nil: String
	Bounds bool // the list stands between "[" and "]"
}

// Parse implements Type.
func (t List) Parse(s string) (any, error) {
	s = strings.TrimRight(strip(s), ",")
	if t.Bounds {
		var err error
		if s, err = unbound(s, "[", "]"); err != nil {
			return nil, err
		}
	}
	items := []any{}
	if s == "" {
		return items, nil
	}
	item := orString(t.Item)
	for parts := strings.Split(s, ","); len(parts) > 0; {
		var v any
		var err error
		v, parts, err = tryLonger(parts, func(part string) (any, error) { return item.Parse(strip(part)) })
		if err != nil {
			return nil, err
		}
		items = append(items, v)
	}
	return items, nil
}

func (t List) String() string { return "list of " + orString(t.Item).String() }

func orString(t Type) Type {
	if t == nil {
		return String{}
	}
	return t
}

func unbound(s, left, right string) (string, error) {
	if !strings.HasPrefix(s, left) {
		return "", fmt.Errorf("must begin with %q", left)
	}
	if !strings.HasSuffix(s, right) {
		return "", fmt.Errorf("must end with %q", right)
	}
	// A lone bracket is both ends at once.
	return s[1:max(1, len(s)-1)], nil
}

// tryLonger parses the shortest run of parts, joined again, that parse accepts.
func tryLonger(parts []string, parse func(string) (any, error)) (any, []string, error) {
	part := parts[0]
	for parts = parts[1:]; ; parts = parts[1:] {
		v, err := parse(part)
		if err == nil || len(parts) == 0 {
			return v, parts, err
		}
		part += "," + parts[0]
	}
}

// Dict is "key:value" pairs between commas.
type Dict struct {
	Value  Type // nil: String
	Bounds bool // the pairs stand between "{" and "}"
}

// Parse implements Type.
func (t Dict) Parse(s string) (any, error) {
	s = strip(s)
	if t.Bounds {
		var err error
		if s, err = unbound(s, "{", "}"); err != nil {
			return nil, err
		}
	}
	pairs := []Pair{}
	if s == "" {
		return pairs, nil
	}
	for parts := strings.Split(s, ","); len(parts) > 0; {
		v, rest, err := tryLonger(parts, t.parsePair)
		if err != nil {
			return nil, err
		}
		p := v.(Pair)
		if p.Key == "" {
			return nil, errors.New("has a pair without a key")
		}
		if slices.ContainsFunc(pairs, func(q Pair) bool { return q.Key == p.Key }) {
			return nil, fmt.Errorf("has the key %q twice", p.Key)
		}
		pairs, parts = append(pairs, p), rest
	}
	return pairs, nil
}

func (t Dict) parsePair(s string) (any, error) {
	key, value, ok := strings.Cut(s, ":")
	if !ok {
		return nil, fmt.Errorf("must be key:value pairs separated by commas; %q has no colon", strip(s))
	}
	v, err := orString(t.Value).Parse(strip(value))
	return Pair{Key: strip(key), Value: v}, err
}

func (t Dict) String() string { return "dictionary of " + orString(t.Value).String() }

// IP is an IPv4 or IPv6 address, kept as it was written.
type IP struct{ Version int } // 4, 6 or 0 for either

// Parse implements Type.
func (t IP) Parse(s string) (any, error) {
	addr, err := netip.ParseAddr(s)
	if err == nil && addr.Zone() == "" &&
		(t.Version == 0 || t.Version == 4 && addr.Is4() || t.Version == 6 && addr.Is6()) {
		return s, nil
	}
	return nil, fmt.Errorf("is %q, which is not an %s", s, t)
}

func (t IP) String() string {
	if t.Version == 0 {
		return "IP address"
	}
	return fmt.Sprintf("IPv%d address", t.Version)
}

// Hostname is a host or domain name. A dot at its end is removed.
type Hostname struct{}

// Parse implements Type.
func (Hostname) Parse(s string) (any, error) { return parseHostname(s, false) }

func (Hostname) String() string { return "host name" }

func parseHostname(s string, underscore bool) (any, error) {
	if s == "" {
		return nil, errors.New("is empty, which is not a host name")
	}
	if utf8.RuneCountInString(s) > 253 {
		return nil, errors.New("is longer than a host name can be (253 characters)")
	}
	s = strings.TrimSuffix(s, ".")
	labels := strings.Split(s, ".")
	if !strings.ContainsFunc(labels[len(labels)-1], func(r rune) bool {
		return r == '-' || r < utf8.RuneSelf && isLetterFold(r)
	}) {
		return nil, fmt.Errorf("is %q, whose last part has no letter, so it is no host name", s)
	}
	for _, label := range labels {
		if !isLabel(label, underscore) {
			return nil, fmt.Errorf("is %q, which is not a host name", s)
		}
	}
	return s, nil
}

func isLabel(label string, underscore bool) bool {
	label = strings.TrimSuffix(label, "\n") // a Python "$" matches before it
	if label == "" || utf8.RuneCountInString(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
		return false
	}
	return !strings.ContainsFunc(label, func(r rune) bool {
		return !isLetterFold(r) && (r < '0' || r > '9') && r != '-' && (r != '_' || !underscore)
	})
}

// HostAddress is an IP address or a host name.
type HostAddress struct{ Version int } // 4, 6 or 0 for either

// Parse implements Type.
func (t HostAddress) Parse(s string) (any, error) { return parseHost(s, t.Version, false) }

func (HostAddress) String() string { return "host name or IP address" }

// HostDomain is a HostAddress whose names may contain underscores.
type HostDomain struct{ Version int } // 4, 6 or 0 for either

// Parse implements Type.
func (t HostDomain) Parse(s string) (any, error) { return parseHost(s, t.Version, true) }

func (HostDomain) String() string { return "host name (underscores allowed) or IP address" }

func parseHost(s string, version int, underscore bool) (any, error) {
	if v, err := (IP{Version: version}).Parse(s); err == nil {
		return v, nil
	}
	v, err := parseHostname(s, underscore)
	if err != nil {
		return nil, fmt.Errorf("is %q, which is neither a host name nor an IP address", s)
	}
	return v, nil
}
