// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// maxValue bounds the length of a value after its references were replaced, in
// bytes. References that double at each step would otherwise fill the memory.
const maxValue = 1 << 20

// Get reads the option, converts its value and replaces references in it. The
// error is a [*ValueError], a [*ReferenceError] or an [*UnknownOptionError].
func (c *Config) Get(group, name string) (Value, error) {
	group = orTop(group)
	o, err := c.schema.resolve(group, name)
	if err != nil {
		return Value{}, &UnknownOptionError{Group: group, Option: name}
	}
	ns := c.first
	if o.Mutable {
		ns = c.current
	}
	return c.reader(ns).get(group, name)
}

// Values reads every declared option, in the order of declaration. The errors
// of all that cannot be read are returned together.
func (c *Config) Values() ([]Value, error) {
	var values []Value
	var errs []error
	for _, o := range c.schema.options {
		v, err := c.Get(o.Group, o.dest())
		if err != nil {
			errs = append(errs, err)
			continue
		}
		values = append(values, v)
	}
	return values, join(errs)
}

// reader reads one option and those it refers to.
type reader struct {
	*Config
	ns    *namespace
	memo  map[Name]result
	stack []Name
}

type result struct {
	value Value
	err   error
}

func (c *Config) reader(ns *namespace) *reader {
	return &reader{Config: c, ns: ns, memo: map[Name]result{}}
}

var errCycle = errors.New("refers to itself")

// get returns errNoOption, errNoGroup, errIsGroup, errNotReplaced and errCycle
// bare, for the place that refers to the option to explain.
func (r *reader) get(group, name string) (Value, error) {
	o, err := r.schema.resolve(group, name)
	if err != nil {
		return Value{}, err
	}
	at := Name{group, name}
	if done, ok := r.memo[at]; ok {
		return done.value, done.err
	}
	if slices.Contains(r.stack, at) {
		return Value{}, errCycle
	}
	r.stack = append(r.stack, at)
	v, err := r.evaluate(o, group, name)
	r.stack = r.stack[:len(r.stack)-1]
	r.memo[at] = result{v, err}
	return v, err
}

// evaluate picks the source that wins.
func (r *reader) evaluate(o *Option, group, name string) (Value, error) {
	found, inFile, ok := r.ns.lookup(o, group)
	variable := "OS_" + strings.ToUpper(group) + "__" + strings.ToUpper(name)
	env, inEnv := r.env[variable]
	fromFile := ok && inFile
	switch {
	case inEnv && (!ok || inFile):
		found = envRaw(o, env, variable)
	case ok:
	default:
		var set bool
		if found, set = r.ns.defaults[o.dest()]; !set || !isBuiltin(o) {
			found, set = o.defaultRaw()
		}
		if !set {
			return Value{option: o, name: o.ID(), secret: o.Secret}, nil
		}
	}
	v, err := r.finish(o, group, found)
	var value *ValueError
	if errors.As(err, &value) {
		value.inFile = fromFile
	}
	return v, err
}

// envRaw: the original treats the text of a multi-valued option as a sequence
// of characters.
func envRaw(o *Option, env, variable string) raw {
	origin := Origin{Kind: FromEnvironment, Name: variable}
	if !o.Multi {
		return raw{items: []rawItem{{text: env, origin: origin}}}
	}
	r := raw{multi: true, items: []rawItem{{text: env, origin: origin, parsed: characters{}}}}
	return r
}

// characters marks an item that is split after its references were replaced.
type characters struct{}

// finish replaces references and converts.
func (r *reader) finish(o *Option, group string, found raw) (Value, error) {
	v := Value{option: o, name: o.ID(), secret: o.Secret}
	replaced := raw{multi: found.multi}
	for _, item := range found.items {
		v.origin = item.origin
		if item.origin.Kind == FromFile {
			v.name = item.name
		}
		if _, ok := item.parsed.(bool); !ok {
			text, secret, err := r.replace(o, group, item)
			if err != nil {
				return Value{}, err
			}
			item.text, v.secret = text, v.secret || secret
		}
		if _, ok := item.parsed.(characters); ok {
			for _, char := range item.text {
				replaced.items = append(replaced.items, rawItem{text: string(char), origin: item.origin})
			}
			continue
		}
		replaced.items = append(replaced.items, item)
	}
	var err error
	if v.any, err = convert(o, replaced); err != nil {
		reason := err.Error()
		if text := found.items[len(found.items)-1].text; strings.Contains(text, " #") || strings.Contains(text, " ;") {
			reason += "; a comment cannot stand at the end of a line"
		}
		if v.secret {
			reason = "is not a valid " + o.Type.String() + " (the value is secret and not shown)"
		}
		return Value{}, &ValueError{Group: o.Group, Option: o.dest(), Origin: v.origin, Reason: reason}
	}
	return v, nil
}

// convert applies the option's type.
func convert(o *Option, found raw) (any, error) {
	if !o.Multi {
		item := found.items[len(found.items)-1]
		if flag, ok := item.parsed.(bool); ok {
			if _, boolean := o.Type.(Bool); boolean {
				return flag, nil
			}
		}
		return o.Type.Parse(item.text)
	}
	out := []any{}
	for _, item := range found.items {
		v, err := o.Type.Parse(item.text)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, nil
}

// replace puts the values of other options in place of "$name" and "${name}".
// secret reports that one of them is secret.
func (r *reader) replace(o *Option, group string, item rawItem) (out string, secret bool, err error) {
	s := strings.ReplaceAll(item.text, `\$`, "$$")
	var b strings.Builder
	for {
		before, after, found := strings.Cut(s, "$")
		b.WriteString(before)
		if !found {
			return b.String(), secret, nil
		}
		ref, length := reference(after)
		switch {
		case strings.HasPrefix(after, "$"):
			b.WriteByte('$')
			s = after[1:]
			continue
		case ref == "":
			b.WriteByte('$')
			s = after
			continue
		}
		v, err := r.follow(group, ref)
		switch {
		case errors.Is(err, errNotReplaced):
			b.WriteString("$" + after[:length])
		case err != nil:
			return "", false, r.explain(o, item.origin, ref, secret, err)
		default:
			b.WriteString(v.Text())
			secret = secret || v.secret
		}
		if b.Len() > maxValue {
			return "", false, &ValueError{Group: o.Group, Option: o.dest(), Origin: item.origin,
				Reason: fmt.Sprintf("becomes longer than %d bytes when its references are replaced", maxValue)}
		}
		s = after[length:]
	}
}

// reference reads the name after a dollar sign; length is that of its text,
// braces included.
func reference(s string) (name string, length int) {
	braced := strings.HasPrefix(s, "{")
	if braced {
		s = s[1:]
	}
	end := len(s)
	for i, r := range s {
		if r == '_' || isLetterFold(r) || i > 0 && (r == '.' || r >= '0' && r <= '9') {
			continue
		}
		end = i
		break
	}
	if end == 0 || braced && !strings.HasPrefix(s[end:], "}") {
		return "", 0
	}
	if braced {
		return s[:end], end + 2
	}
	return s[:end], end
}

// follow reads the option that a reference names: in the group that the
// reference spells out, else in the group of the value, else at the top level.
func (r *reader) follow(group, ref string) (Value, error) {
	option := ref
	if g, name, ok := strings.Cut(ref, "."); ok {
		if g == topLevel {
			return Value{}, errNoGroup
		}
		group, option = g, name
	}
	v, err := r.get(group, option)
	if !isUnknown(err) {
		return v, err
	}
	// The original looks at the top level also when the option exists and it is
	// one of its own references that leads nowhere.
	v, again := r.get(topLevel, ref)
	if errors.Is(again, errNoOption) {
		return v, err
	}
	return v, again
}

func isUnknown(err error) bool {
	var ref *ReferenceError
	return errors.Is(err, errNoOption) || errors.As(err, &ref) && ref.Kind == UnknownOption
}

// explain turns the failure of a reference into an error about the option that
// holds it.
func (r *reader) explain(o *Option, origin Origin, ref string, secret bool, err error) error {
	e := &ReferenceError{Group: o.Group, Option: o.dest(), Origin: origin, Ref: ref}
	if o.Secret || secret {
		e.Ref = ""
	}
	var value *ValueError
	switch {
	case errors.As(err, &value):
		reason := fmt.Sprintf("refers to [%s] %s, which %s", value.Group, value.Option, value.Reason)
		return &ValueError{Group: o.Group, Option: o.dest(), Origin: origin, Reason: reason, Err: value}
	case errors.Is(err, errNoOption):
		e.Kind = UnknownOption
	case errors.Is(err, errNoGroup):
		e.Kind, e.Meant = UnknownGroup, r.schema.meant(e.Ref)
	case errors.Is(err, errIsGroup):
		e.Kind = GroupReference
	case errors.Is(err, errCycle):
		e.Kind = Cycle
	default:
		return err
	}
	return e
}
