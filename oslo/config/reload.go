// SPDX-License-Identifier: Apache-2.0

package config

import (
	"slices"
)

// Change is an option whose setting differs from the one before.
type Change struct {
	Option   Name
	Old, New Value
}

// Changes is the outcome of a Reload.
type Changes struct {
	Changed []Change // mutable options, now in force
	Ignored []Name   // other options that were changed in the files, without effect
}

// Reload reads the same command line and files again. Options declared Mutable
// take their new values; changes of others are listed and have no effect. When
// the files cannot be read or a mutable option has a bad value, nothing changes.
func (c *Config) Reload() (Changes, error) {
	ns, err := c.read()
	if err != nil {
		return Changes{}, err
	}
	var changes Changes
	var errs []error
	for _, o := range c.inOrder() {
		if !o.Mutable {
			if !same(c.first, ns, o, o.Group != topLevel) {
				changes.Ignored = append(changes.Ignored, o.ID())
			}
			continue
		}
		if same(c.current, ns, o, true) {
			continue
		}
		now, err := c.reader(ns).get(o.Group, o.dest())
		if err != nil {
			errs = append(errs, err)
			continue
		}
		old, err := c.reader(c.current).get(o.Group, o.dest())
		if err != nil {
			old = Value{option: o, name: o.ID(), secret: o.Secret} // it was nobody's value
		}
		changes.Changed = append(changes.Changed, Change{Option: o.ID(), Old: old, New: now})
	}
	if errs != nil {
		return Changes{}, join(errs)
	}
	c.current = ns
	return changes, nil
}

// same compares what two readings found, before references and types. Immutable
// options of the top level are compared without the command line, as in the
// original.
func same(a, b *namespace, o *Option, args bool) bool {
	look := func(ns *namespace) []rawItem {
		if args {
			r, _, _ := ns.lookup(o, o.Group)
			return r.items
		}
		r, _ := ns.lookupFiles(o.places(o.Group), o.Multi)
		return r.items
	}
	return slices.EqualFunc(look(a), look(b), func(x, y rawItem) bool {
		return x.text == y.text && x.parsed == y.parsed
	})
}
