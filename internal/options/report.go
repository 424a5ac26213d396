// SPDX-License-Identifier: Apache-2.0

package options

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/patchbay-sdn/patchbay/oslo/config"
)

// Severity orders findings.
type Severity int

// How much a finding matters.
const (
	Note    Severity = iota // worth knowing; nothing is wrong
	Warning                 // the agent starts, but something is probably not as meant
	Fatal                   // the agent refuses to start
)

func (s Severity) String() string {
	switch s {
	case Fatal:
		return "error"
	case Warning:
		return "warning"
	}
	return "note"
}

// Finding is one thing that a check of the configuration has found.
type Finding struct {
	Problem
	Severity Severity
	// Kind is one word for programs: command-line, file, syntax, value,
	// conflict, unsupported, unknown, removed, deprecated, advice, no-effect or
	// other (a setting of another program).
	Kind string
}

// Setting is the effective value of one option.
type Setting struct {
	config.Value
	Support Support
	Why     string
}

// Report is everything there is to say about a configuration.
type Report struct {
	Files    []string  // as read, in order
	Findings []Finding // the gravest first
	Settings []Setting // in the order of the table; without those that cannot be read

	// Options is what the agent would run with; nil when there are errors that
	// keep them from being put together.
	Options *Options
}

// Effective is what these options are and where each value comes from, without findings.
func (o *Options) Effective() *Report {
	r := &Report{Options: o}
	r.Files = o.conf.Files()
	r.read(o.conf, rows(thisMachine()))
	r.Findings = nil
	return r
}

// Value is the effective value of an option, if it can be read.
func (r *Report) Value(group, name string) (config.Value, bool) {
	for _, s := range r.Settings {
		option := s.Option()
		if id := option.ID(); fileGroup(id.Group) == fileGroup(group) && id.Option == name {
			return s.Value, true
		}
	}
	return config.Value{}, false
}

// Refuse adds an error that another package has found.
func (r *Report) Refuse(p Problem) {
	r.add(Fatal, "value", p)
	r.sort()
}

// Warn adds a warning of a kind that another package has found.
func (r *Report) Warn(kind string, p Problem) {
	r.add(Warning, kind, p)
	r.sort()
}

// Count is the number of findings of a severity.
func (r *Report) Count(s Severity) int {
	n := 0
	for _, f := range r.Findings {
		if f.Severity == s {
			n++
		}
	}
	return n
}

// Check reads the configuration as Load does and reports on all of it. Unlike
// Load it goes on after faults. The error is config.ErrHelp, config.ErrVersion,
// or about the declarations themselves.
func Check(args, env []string) (*Report, error) {
	table := rows(thisMachine())
	schema, err := schemaOf(table)
	if err != nil {
		return nil, fmt.Errorf("declaring the options: %w", err)
	}
	conf, err := config.Inspect(schema, config.Input{
		Args: args, Env: env, Project: project, Program: Program, Version: true,
	})
	if errors.Is(err, config.ErrHelp) || errors.Is(err, config.ErrVersion) {
		return nil, err
	}
	r := &Report{}
	r.Files = conf.Files()
	r.fatal(err)
	r.read(conf, table)
	o, errs := assign(conf, table)
	for _, err := range errs {
		r.fatal(err)
	}
	for _, p := range refused(conf, table) {
		r.add(Fatal, "unsupported", p)
	}
	if len(errs) == 0 {
		r.Options = o
		for _, p := range o.Advice() {
			r.add(Warning, "advice", p)
		}
	}
	r.unknown(conf, schema)
	for _, d := range conf.Deprecations() {
		r.deprecated(d)
	}
	r.sort()
	return r, nil
}

func (r *Report) sort() {
	slices.SortStableFunc(r.Findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(b.Severity, a.Severity), cmp.Compare(a.Origin.File, b.Origin.File),
			cmp.Compare(a.Origin.Line, b.Origin.Line))
	})
}

func (r *Report) add(s Severity, kind string, p Problem) {
	f := Finding{Problem: p, Severity: s, Kind: kind}
	if !slices.Contains(r.Findings, f) {
		r.Findings = append(r.Findings, f)
	}
}

// fatal takes an error apart.
func (r *Report) fatal(err error) {
	var several config.Errors
	if errors.As(err, &several) {
		for _, e := range several {
			r.fatal(e)
		}
		return
	}
	if kind, p := diagnose(err); err != nil {
		r.add(Fatal, kind, p)
	}
}

// diagnose finds the place and the sentence of an error of Load.
func diagnose(err error) (kind string, p Problem) {
	var (
		conflict  Problem
		parse     *config.ParseError
		file      *config.FileError
		usage     *config.UsageError
		value     *config.ValueError
		reference *config.ReferenceError
	)
	switch {
	case err == nil:
		return "", p
	case errors.As(err, &conflict):
		return "conflict", conflict
	case errors.As(err, &parse):
		return "syntax", Problem{Origin: config.Origin{Kind: config.FromFile, File: parse.File, Line: parse.Line},
			Sentence: sentence(parse.Kind.String())}
	case errors.As(err, &file):
		return "file", Problem{Origin: config.Origin{Kind: config.FromFile, File: file.Path}, Sentence: sentence(file.Reason())}
	case errors.As(err, &usage):
		return "command-line", Problem{Sentence: sentence(usage.Error())}
	case errors.As(err, &value):
		// The text at fault may belong to an option that this one refers to.
		root := value.Root()
		p = at(root.Group, root.Option, root.Origin, root.Reason)
		return "value", p
	case errors.As(err, &reference):
		return "value", at(reference.Group, reference.Option, reference.Origin, reference.Sentence())
	}
	return "other", Problem{Sentence: sentence(err.Error())}
}

func at(group, option string, origin config.Origin, reason string) Problem {
	group = fileGroup(group)
	return Problem{Group: group, Option: option, Origin: origin, Sentence: fmt.Sprintf("[%s] %s %s.", group, option, reason)}
}

// sentence gives a phrase its capital and its full stop.
func sentence(s string) string {
	if s == "" {
		return s
	}
	s = strings.ToUpper(s[:1]) + s[1:]
	if strings.HasSuffix(s, "?") {
		return s
	}
	return s + "."
}

// read collects the effective values, and notes on those without effect.
func (r *Report) read(conf *config.Config, table []row) {
	for _, row := range table {
		v, err := conf.Get(row.Group, row.ID().Option)
		if err != nil {
			continue // assign reports it
		}
		r.Settings = append(r.Settings, Setting{Value: v, Support: row.support, Why: row.why})
		warned := row.advise != nil && row.advise(v) != "" // which says more
		if row.support == NoEffect && v.Origin().Kind != config.FromDefault && !warned {
			r.add(Note, "no-effect", problem(v, "has no effect: %s.", row.why))
		}
	}
}

func (r *Report) deprecated(d config.Deprecation) {
	used, now := d.Used, d.Option
	used.Group, now.Group = fileGroup(used.Group), fileGroup(now.Group)
	p := Problem{Group: used.Group, Option: used.Option, Origin: d.Origin}
	if d.Reason != "" {
		p.Sentence = fmt.Sprintf("%s will be removed: %s.", used, d.Reason)
	} else {
		p.Sentence = fmt.Sprintf("%s is the old name of %s.", used, now)
	}
	r.add(Warning, "deprecated", p)
}
