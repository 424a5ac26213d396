// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"slices"
)

// Setting is one "key = value" of a file, continuation lines included.
type Setting struct {
	Section string // as written
	Key     string
	Value   string // lines joined with "\n", not yet interpolated
	Line    int    // line of the key
	File    string
}

// Origin returns the place of the setting.
func (s Setting) Origin() Origin { return Origin{Kind: FromFile, File: s.File, Line: s.Line} }

// Schema is what the configuration was loaded with.
func (c *Config) Schema() *Schema { return c.schema }

// Files returns the paths of the files that were read last, in order.
func (c *Config) Files() []string {
	var files []string
	for _, f := range c.current.files {
		files = append(files, f.Path)
	}
	return files
}

// Unknown lists the settings that no declared option reads, under its present
// name or an old one.
func (c *Config) Unknown() []Setting {
	known := map[Name]bool{}
	for _, o := range c.schema.options {
		for _, p := range o.places(o.Group) {
			known[Name{sectionName(p.Group), p.Option}] = true
		}
	}
	var unknown []Setting
	for _, f := range c.current.files {
		for _, a := range f.Assignments {
			if !known[Name{sectionName(a.Section), a.Key}] {
				unknown = append(unknown, a.in(f.Path))
			}
		}
	}
	return unknown
}

// Deprecation is the use of an old name, or of an option that will go away.
type Deprecation struct {
	Used   Name   // as it is written in the file
	Option Name   // the option's present name
	Reason string // for an option that will go away
	Origin Origin
}

// Deprecations lists the uses in files, whether or not the setting is the one
// that counts.
func (c *Config) Deprecations() []Deprecation {
	var out []Deprecation
	for _, o := range c.schema.options {
		for i, p := range o.places(o.Group) {
			if i == 0 && o.Removal == "" {
				continue
			}
			for _, f := range c.current.files {
				for _, item := range f.values[Name{sectionName(p.Group), p.Option}] {
					d := Deprecation{Used: Name{orTop(p.Group), p.Option}, Option: o.ID(), Origin: item.origin}
					if i == 0 {
						d.Reason = o.Removal
					}
					out = append(out, d)
				}
			}
		}
	}
	slices.SortStableFunc(out, func(a, b Deprecation) int {
		return cmp.Or(cmp.Compare(a.Origin.File, b.Origin.File), cmp.Compare(a.Origin.Line, b.Origin.Line))
	})
	return out
}

// Settings lists every place in the files that sets the option, the one that
// counts among files last.
func (c *Config) Settings(group, name string) []Setting {
	o, err := c.schema.resolve(orTop(group), name)
	if err != nil {
		return nil
	}
	var out []Setting
	for _, f := range c.current.files {
		for _, p := range slices.Backward(o.places(o.Group)) {
			for _, a := range f.Assignments {
				if sectionName(a.Section) == sectionName(p.Group) && a.Key == p.Option {
					out = append(out, a.in(f.Path))
				}
			}
		}
	}
	return out
}
