// SPDX-License-Identifier: Apache-2.0

package ovsdb

import (
	"slices"

	wire "github.com/ovn-kubernetes/libovsdb/ovsdb"
)

// MirrorSpec says that a bridge copies packets of ports to another of its ports. Ports are named; of those that the bridge does not have no packets are
// copied, and without the port that copies go to there is nothing to add.
type MirrorSpec struct {
	Bridge, Name string
	ExternalIDs  map[string]string // pairs that the row has, which it is found by besides its name
	Src          []string          // packets are copied as they come in by these
	Dst          []string          // packets are copied as they go out by these
	Output       string            // copies go to this one
}

// diff adds what the mirror lacks.
func (s MirrorSpec) diff(t *Tx, v *View) {
	b := v.BridgeByName(s.Bridge)
	if b == nil {
		return
	}
	out := s.ports(v, b, []string{s.Output})
	if len(out) == 0 {
		return
	}
	src, dst := s.ports(v, b, s.Src), s.ports(v, b, s.Dst)
	at := slices.IndexFunc(v.MirrorsOn(b), func(m *Mirror) bool { return m.Name == s.Name && len(differing(m.ExternalIDs, s.ExternalIDs)) == 0 })
	if at < 0 {
		ref := t.insert("Mirror", wire.Row{
			"name": s.Name, "select_src_port": setOf(src), "select_dst_port": setOf(dst), "output_port": setOf(out), "external_ids": encodeMap(s.ExternalIDs),
		})
		t.edit("Bridge", b.UUID).mutate("mirrors", wire.MutateOperationInsert, setOf([]Ref{ref}))
		return
	}
	m := v.MirrorsOn(b)[at]
	set := func(column string, differs bool, value any) {
		if differs {
			t.edit("Mirror", m.UUID).row[column] = value
		}
	}
	set("select_all", m.SelectAll, false)
	set("select_src_port", !slices.Equal(m.SelectSrc, src), setOf(src))
	set("select_dst_port", !slices.Equal(m.SelectDst, dst), setOf(dst))
	set("output_port", m.Output != out[0], setOf(out))
}

// ports returns the ports of the bridge with these names, sorted.
func (MirrorSpec) ports(v *View, b *Bridge, names []string) []UUID {
	var ids []UUID
	for _, name := range names {
		if p := v.PortByName(name); p != nil && slices.Contains(b.Ports, p.UUID) {
			ids = append(ids, p.UUID)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// AbsentMarked says that a bridge has no mirrors, and no ports, whose external_ids have the key with the value. Those of a port are its interfaces'.
type AbsentMarked struct {
	Bridge, Key, Value string
}

// diff deletes them.
func (s AbsentMarked) diff(t *Tx, v *View) {
	b := v.BridgeByName(s.Bridge)
	if b == nil {
		return
	}
	marked := func(ids map[string]string) bool { return s.Value != "" && ids[s.Key] == s.Value }
	for _, m := range v.MirrorsOn(b) {
		if marked(m.ExternalIDs) {
			t.checkExists("Mirror", m.UUID)
			t.edit("Bridge", b.UUID).mutate("mirrors", wire.MutateOperationDelete, setOf([]UUID{m.UUID}))
		}
	}
	for _, i := range v.InterfacesOn(b) {
		if p := v.PortOf(i.UUID); p != nil && marked(i.ExternalIDs) {
			t.DeletePort(p.UUID)
		}
	}
}
