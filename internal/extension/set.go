// SPDX-License-Identifier: Apache-2.0

package extension

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/pipeline"
	"github.com/patchbay-sdn/patchbay/internal/world"
	"github.com/patchbay-sdn/patchbay/openflow"
)

// Set is the extensions of an agent, in the order of the options.
type Set []Extension

// Make makes the extensions over a world.
func Make(w *world.World, makers []New) Set {
	set := make(Set, 0, len(makers))
	for _, m := range makers {
		set = append(set, m(w))
	}
	return set
}

// Listens is everything that one of them hears.
func (s Set) Listens() Listens {
	var all Listens
	for _, e := range s {
		l := e.Listens()
		all.Kinds, all.Topics = append(all.Kinds, l.Kinds...), append(all.Topics, l.Topics...)
		all.Packets = all.Packets || l.Packets
	}
	slices.Sort(all.Kinds)
	slices.Sort(all.Topics)
	all.Kinds, all.Topics = slices.Compact(all.Kinds), slices.Compact(all.Topics)
	return all
}

// Push hands news to those who listen to their kind.
func (s Set) Push(p *neutron.Push) error {
	return s.each(func(e Extension) error {
		if !slices.Contains(e.Listens().Kinds, p.Kind) {
			return nil
		}
		return e.Push(p)
	})
}

// Cast hands a message to all of them.
func (s Set) Cast(method string, args []byte) error {
	return s.each(func(e Extension) error { return e.Cast(method, args) })
}

func (s Set) each(f func(Extension) error) error {
	var errs []error
	for _, e := range s {
		if err := f(e); err != nil {
			errs = append(errs, fmt.Errorf("extension %s: %w", e.Name(), err))
		}
	}
	return errors.Join(errs...)
}

// Rows hands changed rows to all of them.
func (s Set) Rows(b *ovsdb.Batch) {
	for _, e := range s {
		e.Rows(b)
	}
}

// Packet hands a packet to all of them: whose flow sent it only they know.
func (s Set) Packet(bridge string, p *openflow.PacketIn) []openflow.Message {
	var out []openflow.Message
	for _, e := range s {
		out = append(out, e.Packet(bridge, p)...)
	}
	return out
}

// Doubt tells all of them that news may have been missed.
func (s Set) Doubt() {
	for _, e := range s {
		e.Doubt()
	}
}

// Settle returns the objects that have changed in the world or in an extension, each once, in order.
func (s Set) Settle(changed []world.Object) []world.Object {
	all := changed
	for _, e := range s {
		all = append(all, e.Settle(changed)...)
	}
	if len(all) > len(changed) {
		slices.SortFunc(all, world.Object.Compare)
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
		for i, e := range s {
			if bad[i] {
				continue
			}
			flows, last := len(want.Flows), lastOf(want.Flows)
			if e.Compile(o, &want); want.Err != nil {
				errs = append(errs, fmt.Errorf("extension %s: %w", e.Name(), want.Err))
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

// Report adds to the state report.
func (s Set) Report(c *neutron.Configurations) {
	for _, e := range s {
		e.Report(c)
	}
}

// Remember is what goes into the snapshot, by name.
func (s Set) Remember() (map[string]json.RawMessage, error) {
	memory := map[string]json.RawMessage{}
	err := s.each(func(e Extension) error {
		value := e.Remember()
		if value == nil {
			return nil
		}
		data, err := json.Marshal(value)
		memory[e.Name()] = data
		return err
	})
	return memory, err
}

// Recall gives back what an earlier run remembered.
func (s Set) Recall(memory map[string]json.RawMessage) error {
	return s.each(func(e Extension) error {
		if data := memory[e.Name()]; data != nil {
			return e.Recall(data)
		}
		return nil
	})
}

// Explain tells what the extensions do about an object.
func (s Set) Explain(o world.Object) []string {
	var out []string
	for _, e := range s {
		out = append(out, e.Explain(o)...)
	}
	return out
}
