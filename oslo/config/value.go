// SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"math/big"
	"strings"
)

// OriginKind says what kind of place a value comes from.
type OriginKind int

// Where a value can come from.
const (
	FromDefault OriginKind = iota
	FromFile
	FromEnvironment
	FromCommandLine
)

// Origin is the place where a value was set.
type Origin struct {
	Kind OriginKind
	File string // FromFile
	Line int    // FromFile; 0: the file as a whole
	Name string // the environment variable or the command line option
}

func (o Origin) String() string {
	switch o.Kind {
	case FromFile:
		if o.Line == 0 {
			return o.File // the file as a whole
		}
		return fmt.Sprintf("%s:%d", o.File, o.Line)
	case FromEnvironment:
		return "environment " + o.Name
	case FromCommandLine:
		return "command line " + o.Name
	}
	return "default"
}

// Value is the value of an option, with the place it comes from.
type Value struct {
	option *Option
	any    any
	origin Origin
	name   Name // under which it was found
	secret bool // the option is secret, or the value refers to one that is
}

// Option is the declaration.
func (v Value) Option() Option { return *v.option }

// Origin is the place where the value was set; for a multi-valued option, the
// place of its last item.
func (v Value) Origin() Origin { return v.origin }

// Name is the section and the name under which the value was found: as written
// in a file, which may be an old name, else the option's own.
func (v Value) Name() Name { return v.name }

// IsSet reports that there is a value: one was given and is not an empty
// number, or there is a default.
func (v Value) IsSet() bool { return v.any != nil }

// Secret reports that the value must not be shown.
func (v Value) Secret() bool { return v.secret }

// Any is nil or what the option's [Type] gives; for a multi-valued option
// []any. It is not masked.
func (v Value) Any() any { return v.any }

// Text is the value as text, unmasked; "" when it is not set.
func (v Value) Text() string {
	if v.any == nil {
		return ""
	}
	return text(v.any)
}

// Bool is the value of a Bool option; false when it is not set.
func (v Value) Bool() bool { b, _ := v.any.(bool); return b }

// Int is the value of an Int option; 0 when it is not set. An integer beyond 64
// bits gives the nearest one that fits.
func (v Value) Int() int64 {
	if n, ok := v.any.(*big.Int); ok {
		if n.Sign() < 0 {
			return -1 << 63
		}
		return 1<<63 - 1
	}
	n, _ := v.any.(int64)
	return n
}

// Float is the value of a Float option; 0 when it is not set.
func (v Value) Float() float64 { f, _ := v.any.(float64); return f }

// List is the value of a List or multi-valued option, items as text.
func (v Value) List() []string {
	items, _ := v.any.([]any)
	out := make([]string, len(items))
	for i, item := range items {
		out[i] = text(item)
	}
	return out
}

// Dict is the value of a Dict option in the order of the text, values as text.
func (v Value) Dict() []Pair {
	pairs, _ := v.any.([]Pair)
	out := make([]Pair, len(pairs))
	for i, p := range pairs {
		out[i] = Pair{Key: p.Key, Value: text(p.Value)}
	}
	return out
}

const masked = "***"

// String is the value in the syntax of a file, masked when it is secret.
func (v Value) String() string {
	if v.any == nil {
		return ""
	}
	if v.secret {
		if v.option.Secret && v.option.Mask != nil {
			return v.option.Mask(v.Text())
		}
		if v.Text() == "" {
			return ""
		}
		return masked
	}
	return fileText(v.any)
}

// LogValue masks the value in logs.
func (v Value) LogValue() slog.Value { return slog.StringValue(v.String()) }

// MarshalJSON gives the value with its JSON type; a secret becomes its masked
// text.
func (v Value) MarshalJSON() ([]byte, error) {
	if v.secret {
		return json.Marshal(v.String())
	}
	switch a := v.any.(type) {
	case []Pair:
		m := make(map[string]any, len(a))
		for _, p := range a {
			m[p.Key] = p.Value
		}
		return json.Marshal(m)
	case float64:
		if math.IsNaN(a) || math.IsInf(a, 0) {
			return json.Marshal(floatText(a))
		}
	}
	return json.Marshal(v.any)
}

func fileText(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case bool:
		return strings.ToLower(text(v))
	case []any:
		parts := make([]string, len(v))
		for i, item := range v {
			parts[i] = fileText(item)
		}
		return strings.Join(parts, ",")
	case []Pair:
		parts := make([]string, len(v))
		for i, p := range v {
			parts[i] = p.Key + ":" + fileText(p.Value)
		}
		return strings.Join(parts, ",")
	}
	return text(v)
}
