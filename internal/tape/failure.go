// SPDX-License-Identifier: Apache-2.0

package tape

import (
	"errors"
	"fmt"

	"github.com/patchbay-sdn/patchbay/internal/conntrack"
	"github.com/patchbay-sdn/patchbay/internal/effect"
	"github.com/patchbay-sdn/patchbay/internal/iptables"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/openflow"
	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// failure is an error as data: its text, and those in it that decisions ask for.
type failure struct {
	Text   string  `json:"text"`
	Causes []cause `json:"causes,omitempty"`
}

// cause is an error that decisions ask for. Which fields count depends on Kind.
type cause struct {
	Kind    string `json:"kind"`
	What    string `json:"what,omitempty"` // the class of a remote error, a line, what panicked
	Text    string `json:"text,omitempty"`
	Where   string `json:"where,omitempty"`
	Indexes []int  `json:"indexes,omitempty"`
}

// The kinds of causes that have data.
const (
	causePanic       = "panic"
	causeDecodePanic = "decode panic"
	causeRemote      = "remote"
	causeBundle      = "bundle"
	causeSend        = "send"
	causeConn        = "connection"
	causeRule        = "rule"
)

// named are the errors that decisions ask for by their identity.
func named() map[string]error {
	return map[string]error{
		"no limits": conntrack.ErrNoLimits, "malformed": openflow.ErrMalformed, "closed": openflow.ErrClosed,
		"conflict": ovsdb.ErrConflict, "disconnected": ovsdb.ErrDisconnected,
	}
}

// failureOf returns an error as data; nil for none.
func failureOf(err error) *failure {
	if err == nil {
		return nil
	}
	f := &failure{Text: err.Error()}
	f.collect(err)
	return f
}

func failuresOf(errs []error) []*failure {
	out := make([]*failure, len(errs))
	for i, err := range errs {
		out[i] = failureOf(err)
	}
	return out
}

// collect adds the causes in an error, in the order in which errors.As finds them.
func (f *failure) collect(err error) {
	for kind, known := range named() {
		if err == known { //nolint:errorlint // what it wraps is looked at below
			f.Causes = append(f.Causes, cause{Kind: kind})
		}
	}
	switch e := err.(type) { //nolint:errorlint // what it wraps is looked at below
	case *effect.Panic:
		f.Causes = append(f.Causes, cause{Kind: causePanic, What: e.What, Text: fmt.Sprint(e.Value), Where: e.Where})
	case *neutron.DecodePanic:
		f.Causes = append(f.Causes, cause{Kind: causeDecodePanic, What: string(e.Kind), Text: fmt.Sprint(e.Value)})
	case *messaging.RemoteError:
		f.Causes = append(f.Causes, cause{Kind: causeRemote, What: e.Class, Text: e.Message})
	case *openflow.BundleError:
		f.Causes = append(f.Causes, cause{Kind: causeBundle, Indexes: indexes(e.Failures)})
	case *openflow.SendError:
		f.Causes = append(f.Causes, cause{Kind: causeSend, Indexes: indexes(e.Failures)})
	case *openflow.ConnError:
		f.Causes = append(f.Causes, cause{Kind: causeConn})
	case *iptables.RefusedError:
		f.Causes = append(f.Causes, cause{Kind: causeRule, What: e.Line})
	}
	switch e := err.(type) { //nolint:errorlint // this is how errors.As walks
	case interface{ Unwrap() error }:
		if inner := e.Unwrap(); inner != nil {
			f.collect(inner)
		}
	case interface{ Unwrap() []error }:
		for _, inner := range e.Unwrap() {
			if inner != nil {
				f.collect(inner)
			}
		}
	}
}

func indexes(failures []openflow.Failure) []int {
	var out []int
	for _, f := range failures {
		out = append(out, f.Index)
	}
	return out
}

// err returns the error again: it has the same text, and the same causes are found in it.
func (f *failure) err() error {
	if f == nil {
		return nil
	}
	p := &played{text: f.Text}
	for _, c := range f.Causes {
		if err := c.err(f.Text); err != nil {
			p.causes = append(p.causes, err)
		}
	}
	return p
}

func errsOf(list []*failure) []error {
	var out []error
	for _, f := range list {
		out = append(out, f.err())
	}
	return out
}

func (c *cause) err(text string) error {
	switch c.Kind {
	case causePanic:
		return &effect.Panic{What: c.What, Value: c.Text, Where: c.Where}
	case causeDecodePanic:
		return &neutron.DecodePanic{Kind: neutron.Kind(c.What), Value: c.Text}
	case causeRemote:
		return &messaging.RemoteError{Class: c.What, Message: c.Text}
	case causeBundle:
		return &openflow.BundleError{Failures: failuresAt(c.Indexes), Err: errors.New(text)}
	case causeSend:
		return &openflow.SendError{Failures: failuresAt(c.Indexes)}
	case causeConn:
		return &openflow.ConnError{Err: errors.New(text)}
	case causeRule:
		return &iptables.RefusedError{Line: c.What, Err: errors.New(text)}
	}
	return named()[c.Kind] // nil for a kind of a later version
}

// failuresAt are refused messages, of which only the place is known.
func failuresAt(indexes []int) []openflow.Failure {
	var out []openflow.Failure
	for _, i := range indexes {
		out = append(out, openflow.Failure{Index: i, Err: &openflow.Error{}})
	}
	return out
}

// played is an error of a tape.
type played struct {
	text   string
	causes []error
}

func (p *played) Error() string   { return p.text }
func (p *played) Unwrap() []error { return p.causes }
