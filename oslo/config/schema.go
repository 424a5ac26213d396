// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// topLevel is the section whose options belong to no group.
const topLevel = "DEFAULT"

// Name is the section and the option name under which a value can be found.
type Name struct{ Group, Option string }

func (n Name) String() string { return "[" + orTop(n.Group) + "] " + n.Option }

// Option declares one option.
type Option struct {
	Group string // "" or "DEFAULT" for the top level
	Name  string // dashes become underscores in files, and stay on the command line
	Type  Type   // nil: String

	// Default is nil, a string in the syntax of a file (interpolated when read),
	// a bool, an int, a float64 or a []string. Every item of a []string is one
	// value of a multi-valued option or one item of a list.
	Default any

	Help    string
	Metavar string // what stands for the value in the help text

	CLI   bool   // may be given on the command line
	Short string // one letter, for the command line

	Multi    bool // may be given several times; the value is the list of all
	Required bool // Load fails when there is no value
	Mutable  bool // Reload takes a new value over

	// Secret hides the value. Mask, when set, makes the text that may be shown;
	// it must not let any part of the secret through.
	Secret bool
	Mask   func(value string) string

	// Deprecated lists older names, the preferred one first. An empty Group
	// means the group of the option, an empty Option its present name.
	Deprecated []Name

	// Removal, when not empty, says why the option will go away.
	Removal string
}

// dest is the name in files.
func (o *Option) dest() string { return strings.ReplaceAll(o.Name, "-", "_") }

// ID is the section and the name by which the option is read.
func (o *Option) ID() Name { return Name{Group: orTop(o.Group), Option: o.dest()} }

// place is where a value is looked for: in files by name, among the arguments
// by attribute.
type place struct {
	Name
	attribute string
}

// places lists where a value is looked for when the option is read through
// group, the present name first.
func (o *Option) places(group string) []place {
	own := Name{group, o.dest()}
	places := []place{{own, attribute(own.Group, own.Option)}}
	for _, d := range o.deprecated() {
		// An old name that spells the top level out is never found on the
		// command line.
		attr := d.Group + "_" + cmp.Or(d.Option, o.dest())
		d = Name{cmp.Or(d.Group, group), cmp.Or(d.Option, o.dest())}
		if attr[0] == '_' {
			attr = attribute(d.Group, d.Option)
		}
		places = append(places, place{d, attr})
	}
	return places
}

// attribute is the name under which a command line value is stored. The
// original has one flat space for all groups.
func attribute(group, option string) string {
	if group == topLevel {
		return option
	}
	return group + "_" + option
}

// deprecated lists the old names in the order of the original: those with a
// name, the forms with underscores of those with a dash, then whole groups.
func (o *Option) deprecated() []Name {
	var named, dashed, groups []Name
	for _, d := range o.Deprecated {
		if d.Option == "" {
			groups = append(groups, d)
			continue
		}
		named = append(named, d)
		if strings.Contains(d.Option, "-") {
			dashed = append(dashed, Name{d.Group, strings.ReplaceAll(d.Option, "-", "_")})
		}
	}
	return slices.Concat(named, dashed, groups)
}

// Schema is a set of declared options. It does not change after NewSchema.
type Schema struct {
	options []*Option // in the order of declaration
	groups  map[string]map[string]*Option

	// replaced finds the option that has taken over a name. The original files
	// an old name without a group under the top level, whatever the option's
	// group is; references in values depend on it.
	replaced map[Name]*Option
}

// NewSchema checks the declarations: names are unique, defaults are valid.
func NewSchema(options ...Option) (*Schema, error) {
	s := &Schema{
		groups:   map[string]map[string]*Option{topLevel: {}},
		replaced: map[Name]*Option{},
	}
	for _, o := range append(builtin(), options...) {
		if err := s.add(o); err != nil {
			return nil, err
		}
	}
	if _, err := newFlags(s, true); err != nil {
		return nil, err
	}
	return s, nil
}

// builtin declares what every program has.
func builtin() []Option {
	return []Option{
		{Name: "config-file", CLI: true, Multi: true, Metavar: "PATH",
			Help: "configuration file; may be given several times, a later file wins"},
		{Name: "config-dir", Type: List{}, CLI: true, Metavar: "DIR",
			Help: "directory whose *.conf files are read in the order of their names"},
		{Name: "config_source", Type: List{}, Default: "", Metavar: "SOURCE",
			Help: "groups that describe further sources of configuration"},
	}
}

func (s *Schema) add(o Option) error {
	o.Group = orTop(o.Group)
	if o.Type == nil {
		o.Type = String{}
	}
	if o.Name == "" || o.Name[0] == '_' {
		return fmt.Errorf("declaring an option of [%s]: bad name %q", o.Group, o.Name)
	}
	id := o.ID()
	if s.groups[o.Group] == nil {
		s.groups[o.Group] = map[string]*Option{}
	}
	if s.groups[o.Group][id.Option] != nil {
		return fmt.Errorf("declaring %s: declared twice", id)
	}
	if raw, ok := o.defaultRaw(); ok && !slices.ContainsFunc(raw.items, rawItem.refers) {
		if _, err := convert(&o, raw); err != nil {
			return fmt.Errorf("declaring %s: its default %w", id, err)
		}
	}
	s.options = append(s.options, &o)
	s.groups[o.Group][id.Option] = &o
	for _, d := range o.deprecated() {
		s.replaced[Name{orTop(d.Group), strings.ReplaceAll(d.Option, "-", "_")}] = &o
	}
	return nil
}

// Options lists the declared options in the order of declaration.
func (s *Schema) Options() []Option {
	out := make([]Option, len(s.options))
	for i, o := range s.options {
		out[i] = *o
	}
	return out
}

// Option finds a declaration by section and name. Section names are matched as
// in a file.
func (s *Schema) Option(group, name string) (Option, bool) {
	for _, o := range s.options {
		if sectionName(o.Group) == sectionName(orTop(group)) && o.dest() == name {
			return *o, true
		}
	}
	return Option{}, false
}

var (
	errNoOption = errors.New("no such option")
	errNoGroup  = errors.New("no such group")
	errIsGroup  = errors.New("a group, not an option")
	// errNotReplaced is a name that the original finds deprecated and then
	// cannot follow; a reference to it stays as it is.
	errNotReplaced = errors.New("old name of an option that cannot be found")
)

// resolve finds the option to read for a name, present or old.
func (s *Schema) resolve(group, name string) (*Option, error) {
	if group == topLevel && name != topLevel && s.groups[name] != nil {
		return nil, errIsGroup
	}
	options := s.groups[group]
	if options == nil {
		return nil, errNoGroup
	}
	if o := options[name]; o != nil {
		return o, nil
	}
	o := s.replaced[Name{group, name}]
	if o == nil || name == "" {
		return nil, errNoOption
	}
	if o.Group != topLevel {
		options = s.groups[o.Group]
	}
	if o := options[o.Name]; o != nil {
		return o, nil
	}
	return nil, errNotReplaced
}

// meant guesses what a reference with an unknown group was to be: groups have
// the case of their declaration, and the top level has no name.
func (s *Schema) meant(ref string) string {
	group, option, _ := strings.Cut(ref, ".")
	for _, o := range s.options {
		switch {
		case o.dest() != option || !strings.EqualFold(group, o.Group):
		case o.Group == topLevel:
			return option
		default:
			return o.Group + "." + option
		}
	}
	return ""
}

func orTop(group string) string {
	if group == "" {
		return topLevel
	}
	return group
}

// raw is a value as it was found: one item, or several of a multi-valued option.
type raw struct {
	items []rawItem
	multi bool
}

type rawItem struct {
	text   string
	parsed any // a bool for a flag without value; characters{} for text to be split
	origin Origin
	name   Name // of a value from a file: as written there
}

func (r rawItem) refers() bool {
	t := strings.ReplaceAll(strings.ReplaceAll(r.text, `\$`, ""), "$$", "")
	return strings.Contains(t, "$")
}

func (o *Option) defaultRaw() (raw, bool) {
	one := func(text string) (raw, bool) {
		return raw{items: []rawItem{{text: text}}, multi: false}, true
	}
	switch d := o.Default.(type) {
	case string:
		return one(d)
	case bool:
		return one(strconv.FormatBool(d))
	case int:
		return one(strconv.Itoa(d))
	case float64:
		return one(floatText(d))
	case []string:
		if !o.Multi {
			return one(strings.Join(d, ","))
		}
		r := raw{multi: true}
		for _, text := range d {
			r.items = append(r.items, rawItem{text: text})
		}
		return r, true
	}
	return raw{}, false
}
