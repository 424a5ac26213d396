// SPDX-License-Identifier: Apache-2.0

package extension

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/pipeline"
	"github.com/patchbay-sdn/patchbay/internal/world"
)

// Member is an extension with the optional interfaces that it implements; the others are nil.
type Member struct {
	Extension
	PushHandler   PushHandler
	CastHandler   CastHandler
	RowHandler    RowHandler
	PacketHandler PacketHandler
	Bounded       Bounded
	Recorder      Recorder
	Asker         Asker
	Warner        Warner
	Resyncer      Resyncer
	Puller        Puller
	Caller        Caller
	Timed         Timed
	Forwarder     Forwarder
	Server        Server
	StateReporter StateReporter
	Saver         Saver
	Explainer     Explainer
}

// Wrapper is an extension that stands before another one, and has all its optional interfaces.
type Wrapper interface {
	Extension
	Unwrap() Extension
}

// NewMember finds the optional interfaces of an extension.
func NewMember(e Extension) Member {
	if w, ok := e.(Wrapper); ok {
		m := NewMember(w.Unwrap())
		m.Extension = e
		return m
	}
	m := Member{Extension: e}
	m.PushHandler, _ = e.(PushHandler)
	m.CastHandler, _ = e.(CastHandler)
	m.RowHandler, _ = e.(RowHandler)
	m.PacketHandler, _ = e.(PacketHandler)
	m.Bounded, _ = e.(Bounded)
	m.Recorder, _ = e.(Recorder)
	m.Asker, _ = e.(Asker)
	m.Warner, _ = e.(Warner)
	m.Resyncer, _ = e.(Resyncer)
	m.Puller, _ = e.(Puller)
	m.Caller, _ = e.(Caller)
	m.Timed, _ = e.(Timed)
	m.Forwarder, _ = e.(Forwarder)
	m.Server, _ = e.(Server)
	m.StateReporter, _ = e.(StateReporter)
	m.Saver, _ = e.(Saver)
	m.Explainer, _ = e.(Explainer)
	return m
}

// Missing returns the objects to pull.
func (m Member) Missing() []Item {
	if m.Puller == nil {
		return nil
	}
	return m.Puller.Missing()
}

// Calls returns the calls to make.
func (m Member) Calls() []Call {
	if m.Caller == nil {
		return nil
	}
	return m.Caller.Calls()
}

// Set is the extensions of an agent, in the order of the options.
type Set []Member

// Make makes the extensions over a world.
func Make(w *world.World, makers []New) Set {
	set := make(Set, 0, len(makers))
	for _, m := range makers {
		set = append(set, NewMember(m(w)))
	}
	return set
}

// Kinds returns the kinds of pushed objects that an extension takes.
func (s Set) Kinds() []neutron.Kind {
	var all []neutron.Kind
	for _, m := range s {
		if m.PushHandler != nil {
			all = append(all, m.PushHandler.Kinds()...)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Takes returns whether an extension takes pushed objects of a kind.
func (s Set) Takes(k neutron.Kind) bool {
	return slices.ContainsFunc(s, func(m Member) bool { return m.PushHandler != nil && slices.Contains(m.PushHandler.Kinds(), k) })
}

// Topics returns the topics of the extensions' own.
func (s Set) Topics() []string {
	var all []string
	for _, m := range s {
		if m.CastHandler != nil {
			all = append(all, m.CastHandler.Topics()...)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// OnPush hands a push to those who take its kind.
func (s Set) OnPush(p *neutron.Push) error {
	return s.each(func(m Member) error {
		if m.PushHandler == nil || !slices.Contains(m.PushHandler.Kinds(), p.Kind) {
			return nil
		}
		return m.PushHandler.OnPush(p)
	})
}

// OnCast hands a message to those who take them.
func (s Set) OnCast(method string, args []byte) error {
	return s.each(func(m Member) error {
		if m.CastHandler == nil {
			return nil
		}
		return m.CastHandler.OnCast(method, args)
	})
}

func (s Set) each(f func(Member) error) error {
	var errs []error
	for _, m := range s {
		if err := f(m); err != nil {
			errs = append(errs, fmt.Errorf("extension %s: %w", m.Name(), err))
		}
	}
	return errors.Join(errs...)
}

// OnRows hands changed rows to those who take them.
func (s Set) OnRows(b *ovsdb.Batch) {
	for _, m := range s {
		if m.RowHandler != nil {
			m.RowHandler.OnRows(b)
		}
	}
}

// Resync tells the extensions that messages may have been lost.
func (s Set) Resync() {
	for _, m := range s {
		if m.Resyncer != nil {
			m.Resyncer.Resync()
		}
	}
}

// Resolve returns the objects that have changed in the world or in an extension, each once, in order.
func (s Set) Resolve(changed []world.Object) []world.Object {
	all := changed
	for _, m := range s {
		all = append(all, m.Resolve(changed)...)
	}
	if len(all) > len(changed) {
		world.SortObjects(all)
		all = slices.Compact(all)
	}
	return all
}

// Compile adds what the extensions want for an object to what the core wants for it, which core compiles. The part of an
// extension that cannot be expressed is left out; the errors say why.
func (s Set) Compile(o world.Object, core func() pipeline.Want) (pipeline.Want, error) {
	var errs []error
	bad := make([]bool, len(s))
compile:
	for {
		want := core()
		if want.Err != nil {
			return want, errors.Join(errs...)
		}
		for i, m := range s {
			if bad[i] {
				continue
			}
			flows, last := len(want.Flows), lastOf(want.Flows)
			if m.Compile(o, &want); want.Err != nil {
				errs = append(errs, fmt.Errorf("extension %s: %w", m.Name(), want.Err))
				bad[i] = true
				continue compile // whatever it had added or replaced
			}
			if len(want.Flows) != flows || lastOf(want.Flows) != last {
				want.Override()
			}
		}
		return want, errors.Join(errs...)
	}
}

func lastOf(flows []pipeline.Flow) pipeline.Flow {
	if len(flows) == 0 {
		return pipeline.Flow{}
	}
	return flows[len(flows)-1]
}

// AddState adds to the state report.
func (s Set) AddState(c *neutron.Configurations) {
	for _, m := range s {
		if m.StateReporter != nil {
			m.StateReporter.AddState(c)
		}
	}
}

// Save returns what goes into the snapshot, by name.
func (s Set) Save() (map[string]json.RawMessage, error) {
	saved := map[string]json.RawMessage{}
	err := s.each(func(m Member) error {
		if m.Saver == nil {
			return nil
		}
		value := m.Saver.Save()
		if value == nil {
			return nil
		}
		data, err := json.Marshal(value)
		saved[m.Name()] = data
		return err
	})
	return saved, err
}

// Load gives back what an earlier run saved.
func (s Set) Load(saved map[string]json.RawMessage) error {
	return s.each(func(m Member) error {
		if data := saved[m.Name()]; data != nil && m.Saver != nil {
			return m.Saver.Load(data)
		}
		return nil
	})
}

// Explain returns what the extensions do about an object.
func (s Set) Explain(o world.Object) []string {
	var out []string
	for _, m := range s {
		if m.Explainer != nil {
			out = append(out, m.Explainer.Explain(o)...)
		}
	}
	return out
}

// TakeDirty empties what an extension notes of objects to compile, and returns them.
func TakeDirty(dirty map[world.Object]bool) []world.Object {
	defer clear(dirty)
	return slices.Collect(maps.Keys(dirty))
}
