// SPDX-License-Identifier: Apache-2.0

package options

import (
	"fmt"
	"strings"

	"github.com/patchbay-sdn/patchbay/oslo/config"
)

// The functions below make rows and their sentences.

func noEffect(r row, why string) row { r.support, r.why = NoEffect, why; return r }

func withReason(r row, why string, refuse func(config.Value) []string) row {
	r.support, r.why, r.refuse = Partly, why, refuse
	return r
}

func since(releases string, r row) row { r.releases = releases; return r }

func whenTrue(sentence string) func(config.Value) []string {
	return func(v config.Value) []string {
		if !v.Bool() {
			return nil
		}
		return []string{sentence}
	}
}

// adviseTrue is for options that cannot be honoured and do not change what is wired.
func adviseTrue(sentence string) func(config.Value) string {
	return func(v config.Value) string {
		if !v.Bool() {
			return ""
		}
		return sentence
	}
}

// advised makes a row one that has no effect, and says so when it is set.
func advised(r row, why string, advise func(config.Value) string) row {
	r.advise = advise
	return noEffect(r, why)
}

// atLeast is for bounds that newer releases of Neutron enforce and the one that
// Patchbay follows does not.
func atLeast(least int) func(config.Value) string {
	return func(v config.Value) string {
		if !v.IsSet() || v.Int() >= int64(least) {
			return ""
		}
		return fmt.Sprintf("is less than %d, which newer releases of Neutron refuse", least)
	}
}

func equalFold(a, b string) bool { return strings.EqualFold(a, b) }

// Problem is something to tell the operator about one setting.
type Problem struct {
	Group    string // as in a file: lower case, or DEFAULT
	Option   string
	Origin   config.Origin
	Sentence string // a whole sentence that begins with the option
}

func (p Problem) Error() string {
	if p.Origin.Kind == config.FromDefault {
		return p.Sentence
	}
	return fmt.Sprintf("%s: %s", p.Origin, p.Sentence)
}

// ProblemWith makes a problem of a value. The reason completes a sentence that
// begins with the option, without full stop; it must not contain a secret.
func ProblemWith(v config.Value, reason string) Problem { return problem(v, "%s.", reason) }

// problem begins the sentence with the option.
func problem(v config.Value, format string, args ...any) Problem {
	o := v.Option()
	id := o.ID()
	group := fileGroup(id.Group)
	return Problem{Group: group, Option: id.Option, Origin: v.Origin(),
		Sentence: fmt.Sprintf("[%s] %s ", group, id.Option) + fmt.Sprintf(format, args...)}
}

// fileGroup is a group as people write it.
func fileGroup(group string) string {
	if group == "DEFAULT" {
		return group
	}
	return strings.ToLower(group)
}

// Unsupported lists the settings that ask for something Patchbay does not have.
// The agent must not start when there is any.
func (o *Options) Unsupported() []Problem {
	return refused(o.conf, rows(thisMachine()))
}

func refused(conf *config.Config, table []row) []Problem {
	var out []Problem
	for _, r := range table {
		if r.refuse == nil && r.refuseWith == nil {
			continue
		}
		v, err := conf.Get(r.Group, r.ID().Option)
		if err != nil {
			continue // reported with the values
		}
		var sentences []string
		if r.refuse != nil {
			sentences = r.refuse(v)
		} else {
			sentences = r.refuseWith(conf, v)
		}
		for _, sentence := range sentences {
			out = append(out, problem(v, "%s.", sentence))
		}
	}
	// config_source belongs to the library, not to the table.
	if v, err := conf.Get("", "config_source"); err == nil && len(v.List()) > 0 {
		out = append(out, problem(v, "names sources of configuration besides files, which Patchbay cannot read."))
	}
	return out
}
