// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// ErrHelp and ErrVersion are returned by Load when the command line asks for
// them.
var (
	ErrHelp    = errors.New("help requested")
	ErrVersion = errors.New("version requested")
)

// flag is one spelling of an option on the command line.
type flag struct {
	option *Option // nil: help or version
	stop   error   // what ends the parsing
	set    *bool   // of a boolean: the value it gives
}

func (f *flag) takesValue() bool { return f.stop == nil && f.set == nil }

// flags is every spelling that the command line understands.
type flags struct {
	known map[string]*flag
	order []string
}

func newFlags(s *Schema, version bool) (*flags, error) {
	f := &flags{known: map[string]*flag{}}
	help := &flag{stop: ErrHelp}
	if err := f.add(help, "-h", "--help"); err != nil {
		return nil, err
	}
	if version {
		if err := f.add(&flag{stop: ErrVersion}, "--version"); err != nil {
			return nil, err
		}
	}
	for _, o := range s.options {
		if !o.CLI {
			continue
		}
		if err := f.addOption(o); err != nil {
			return nil, err
		}
	}
	return f, nil
}

func (f *flags) addOption(o *Option) error {
	spellings := o.flags("")
	if o.Short != "" {
		spellings = append(spellings, "-"+o.Short)
	}
	_, boolean := o.Type.(Bool)
	if !boolean || o.Multi {
		return f.add(&flag{option: o}, spellings...)
	}
	yes, no := true, false
	if err := f.add(&flag{option: o, set: &yes}, spellings...); err != nil {
		return err
	}
	return f.add(&flag{option: o, set: &no}, o.flags("no")...)
}

// flags spells the option and its old names, "no" marking the inverse of a
// boolean.
func (o *Option) flags(no string) []string {
	spell := func(group, name string) string {
		if group == "" || group == topLevel {
			return "--" + no + name
		}
		return "--" + group + "-" + no + name
	}
	spellings := []string{spell(o.Group, o.Name)}
	for _, d := range o.deprecated() {
		if d.Option == "" && (d.Group == "" || d.Group == topLevel) {
			continue
		}
		if d.Option == "" {
			d.Option = o.Name
		}
		spellings = append(spellings, spell(d.Group, d.Option))
	}
	return spellings
}

func (f *flags) add(fl *flag, spellings ...string) error {
	for _, s := range spellings {
		if f.known[s] != nil {
			return fmt.Errorf("declaring the command line: %s stands for two options", s)
		}
		f.known[s] = fl
		f.order = append(f.order, s)
	}
	return nil
}

// arg is an argument with what it was recognised as.
type arg struct {
	text     string
	option   bool  // it looks like an option …
	flag     *flag // … of this kind; nil: unknown
	spelling string
	value    *string // given after "="
	dashes   bool    // the "--" that ends options
}

// classify looks at each argument on its own, as argparse does before it acts
// on any of them.
func (f *flags) classify(args []string) ([]arg, error) {
	out := make([]arg, 0, len(args))
	for i, text := range args {
		if text == "--" {
			out = append(out, arg{text: text, dashes: true})
			for _, rest := range args[i+1:] {
				out = append(out, arg{text: rest})
			}
			return out, nil
		}
		a, err := f.classifyOne(text, i+1)
		if err != nil {
			return nil, err
		}
		out = append(out, a)
	}
	return out, nil
}

func (f *flags) classifyOne(text string, number int) (arg, error) {
	a := arg{text: text}
	if text == "" || text[0] != '-' {
		return a, nil
	}
	if fl := f.known[text]; fl != nil {
		a.option, a.flag, a.spelling = true, fl, text
		return a, nil
	}
	if len(text) == 1 {
		return a, nil
	}
	if name, value, ok := strings.Cut(text, "="); ok && f.known[name] != nil {
		a.option, a.flag, a.spelling, a.value = true, f.known[name], name, &value
		return a, nil
	}
	candidates := f.candidates(text)
	switch {
	case len(candidates) == 1:
		return candidates[0], nil
	case len(candidates) > 1:
		names := make([]string, len(candidates))
		for i, c := range candidates {
			names[i] = c.spelling
		}
		return a, &UsageError{Arg: argName(text, number), Reason: "could mean " + strings.Join(names, ", ")}
	case isNegativeNumber(text), strings.Contains(text, " "):
		return a, nil
	}
	a.option = true
	return a, nil
}

// candidates are the options that text may abbreviate.
func (f *flags) candidates(text string) []arg {
	var out []arg
	if strings.HasPrefix(text, "--") {
		prefix, value, given := strings.Cut(text, "=")
		for _, s := range f.order {
			if strings.HasPrefix(s, prefix) {
				a := arg{text: text, option: true, flag: f.known[s], spelling: s}
				if given {
					a.value = &value
				}
				out = append(out, a)
			}
		}
		return out
	}
	runes := []rune(text)
	short, value := string(runes[:2]), string(runes[2:])
	for _, s := range f.order {
		switch {
		case s == short:
			out = append(out, arg{text: text, option: true, flag: f.known[s], spelling: s, value: &value})
		case strings.HasPrefix(s, text):
			out = append(out, arg{text: text, option: true, flag: f.known[s], spelling: s})
		}
	}
	return out
}

// isNegativeNumber matches -1, -1.5 and -.5: such arguments are values.
func isNegativeNumber(s string) bool {
	s = strings.TrimSuffix(asciiDigits(s), "\n")
	whole, rest := asciiRun(s[1:])
	if rest == "" {
		return whole != ""
	}
	frac, end := asciiRun(strings.TrimPrefix(rest, "."))
	return rest[0] == '.' && frac != "" && end == ""
}

func asciiRun(s string) (digits, rest string) {
	n := 0
	for n < len(s) && s[n] >= '0' && s[n] <= '9' {
		n++
	}
	return s[:n], s[n:]
}

// given is one option found on the command line.
type given struct {
	flag     *flag
	spelling string
	value    string
}

// parse acts on the arguments in order: use is called for each option. It stops
// at the first error, or when an option ends the parsing.
func (f *flags) parse(args []string, use func(given)) error {
	classified, err := f.classify(args)
	if err != nil {
		return err
	}
	var unknown []string
	for i := 0; i < len(classified); i++ {
		a := classified[i]
		if !a.option || a.flag == nil {
			unknown = append(unknown, argName(a.text, i+1))
			continue
		}
		if a.value == nil && a.flag.takesValue() {
			if i+1 >= len(classified) || classified[i+1].option || classified[i+1].dashes {
				return &UsageError{Arg: a.spelling, Reason: "a value must follow"}
			}
			i++
			a.value = &classified[i].text
		}
		found, err := f.expand(a)
		if err != nil {
			return err
		}
		for _, g := range found {
			if g.flag.stop != nil {
				return g.flag.stop
			}
			use(g)
		}
	}
	if unknown != nil {
		return &UsageError{Arg: strings.Join(unknown, ", "), Reason: "not an option of this program"}
	}
	return nil
}

// expand splits "-abc" into its letters; anything else is one option.
func (f *flags) expand(a arg) ([]given, error) {
	var found []given
	fl, spelling, value := a.flag, a.spelling, a.value
	for {
		switch {
		case value == nil && !fl.takesValue():
			return append(found, given{flag: fl, spelling: spelling}), nil
		case value == nil:
			return nil, &UsageError{Arg: spelling, Reason: "a value must follow"}
		case fl.takesValue():
			return append(found, given{flag: fl, spelling: spelling, value: *value}), nil
		case strings.HasPrefix(spelling, "--") || *value == "":
			return nil, &UsageError{Arg: spelling, Reason: "takes no value"}
		}
		runes := []rune(*value)
		next := f.known["-"+string(runes[0])]
		if next == nil {
			return nil, &UsageError{Arg: spelling, Reason: "takes no value"}
		}
		found = append(found, given{flag: fl, spelling: spelling})
		fl, spelling, value = next, "-"+string(runes[0]), nil
		if len(runes) > 1 {
			rest := string(runes[1:])
			value = &rest
		}
	}
}

// argName is what of an argument may appear in an error. A value could be
// secret, so that only what looks like the name of an option is shown.
func argName(text string, number int) string {
	name, _, _ := strings.Cut(text, "=")
	plain := !strings.ContainsFunc(name, func(r rune) bool {
		return r != '-' && r != '_' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	})
	if strings.HasPrefix(name, "-") && plain {
		return name
	}
	return fmt.Sprintf("argument %d", number)
}

// WriteFlags prints the options that the command line takes, for a help text.
func (s *Schema) WriteFlags(w io.Writer) error {
	options := slices.DeleteFunc(slices.Clone(s.options), func(o *Option) bool { return !o.CLI })
	slices.SortStableFunc(options, func(a, b *Option) int { return strings.Compare(a.flags("")[0], b.flags("")[0]) })
	for _, o := range options {
		spelling := o.flags("")[0]
		if o.Short != "" {
			spelling = "-" + o.Short + ", " + spelling
		}
		if _, boolean := o.Type.(Bool); boolean && !o.Multi {
			spelling += ", " + o.flags("no")[0]
		} else {
			metavar := o.Metavar
			if metavar == "" {
				metavar = strings.ToUpper(o.dest())
			}
			spelling += " " + metavar
		}
		if _, err := fmt.Fprintf(w, "  %-42s %s\n", spelling, o.Help); err != nil {
			return err
		}
	}
	return nil
}
