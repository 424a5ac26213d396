// SPDX-License-Identifier: Apache-2.0

package ovsdb

import (
	"slices"

	wire "github.com/ovn-kubernetes/libovsdb/ovsdb"
)

// BridgeSpec says how a bridge shall be. Empty fields of an existing bridge are left as they are.
type BridgeSpec struct {
	Name         string
	Create       bool // if it does not exist; EnsureBridge does in any case
	DatapathType string
	FailMode     string
	Protocols    []string          // added to those there
	OtherConfig  map[string]string // merged
	ExternalIDs  map[string]string // merged
	RemoveConfig []string          // keys of OtherConfig
	// FirstController is for a bridge that has neither FailMode nor a controller. One that is created gets both as soon as it exists.
	FirstController *Controller
	McastSnooping   *bool
}

// EnsureBridge creates the bridge with its local port, or brings an existing one in line.
func (t *Tx) EnsureBridge(s BridgeSpec) Ref {
	if b := t.view.BridgeByName(s.Name); b != nil {
		t.alignBridge(b, s)
		return RefTo(b.UUID)
	}
	root := t.view.Root()
	if root == nil {
		t.fail(ErrConflict, "Bridge "+s.Name, "the Open_vSwitch row is not there")
		return Ref{}
	}
	t.checkFree("Bridge", s.Name)
	port := t.insertPort(PortSpec{Name: s.Name, Type: "internal"})
	row := wire.Row{
		"name": s.Name, "ports": setOf([]Ref{port}), "datapath_type": s.DatapathType, "protocols": setOf(s.Protocols),
		"fail_mode":    optStringCodec().encode(s.FailMode),
		"other_config": encodeMap(s.OtherConfig), "external_ids": encodeMap(s.ExternalIDs),
	}
	ref := t.insert("Bridge", row)
	t.edit("Open_vSwitch", root.UUID).mutate("bridges", wire.MutateOperationInsert, setOf([]Ref{ref}))
	t.bridges[s.Name] = ref
	return ref
}

func (t *Tx) alignBridge(b *Bridge, s BridgeSpec) {
	missing := slices.DeleteFunc(slices.Clone(s.Protocols), func(p string) bool { return slices.Contains(b.Protocols, p) })
	other, ids := differing(b.OtherConfig, s.OtherConfig), differing(b.ExternalIDs, s.ExternalIDs)
	kind := s.DatapathType != "" && s.DatapathType != b.DatapathType
	mode := s.FailMode != "" && s.FailMode != b.FailMode
	if len(missing)+len(other)+len(ids) == 0 && !kind && !mode {
		return
	}
	e := t.Bridge(b.UUID).AddProtocols(missing...).MergeOtherConfig(other).MergeExternalIDs(ids)
	if kind {
		e.SetDatapathType(s.DatapathType)
	}
	if mode {
		e.SetFailMode(s.FailMode)
	}
}

// DeleteBridge deletes the bridge of this identity with its ports.
func (t *Tx) DeleteBridge(id UUID) {
	root := t.view.Root()
	if root == nil {
		t.fail(ErrConflict, "Bridge "+string(id), "the Open_vSwitch row is not there")
		return
	}
	t.checkExists("Bridge", id)
	t.edit("Open_vSwitch", root.UUID).mutate("bridges", wire.MutateOperationDelete, setOf([]UUID{id}))
}

// PortSpec says how a port with one interface shall be. Empty fields of an existing port are left as they are.
type PortSpec struct {
	Bridge      string // by name; it may be created in the same transaction
	Name        string
	Type        string            // of the interface
	Options     map[string]string // of the interface, merged
	ExternalIDs map[string]string // of the interface, merged
	Tag         *int
	VLANMode    string
	Trunks      []int
	OtherConfig map[string]string // of the port, merged
	// Initial is for a port that is created, instead of Tag, VLANMode and Trunks.
	Initial *VLANs
	// KeepIfPresent leaves a port alone that exists.
	KeepIfPresent bool
}

// EnsurePort creates the port with its interface, or brings an existing one in line. A port of the name on another bridge
// is an error: whose it is cannot be known here.
func (t *Tx) EnsurePort(s PortSpec) Ref {
	if p := t.view.PortByName(s.Name); p != nil {
		if at := t.view.BridgeOf(p.UUID); at == nil || at.Name != s.Bridge {
			t.fail(ErrConstraint, "Port "+s.Name, "it is on another bridge than "+s.Bridge)
			return Ref{}
		}
		t.alignPort(p, s)
		return RefTo(p.UUID)
	}
	bridge, isNew := t.bridges[s.Bridge]
	var at UUID
	if !isNew {
		b := t.view.BridgeByName(s.Bridge)
		if b == nil {
			t.fail(ErrConflict, "Port "+s.Name, "there is no bridge "+s.Bridge)
			return Ref{}
		}
		at = b.UUID
	}
	t.checkFree("Port", s.Name)
	ref := t.insertPort(s)
	if isNew {
		// A row that is new in the same transaction is changed through its insert.
		for _, o := range t.ops {
			if o.ref == bridge {
				set := o.row["ports"].(wire.OvsSet)
				o.row["ports"] = wire.OvsSet{GoSet: append(set.GoSet, ref)}
			}
		}
		return ref
	}
	t.edit("Bridge", at).mutate("ports", wire.MutateOperationInsert, setOf([]Ref{ref}))
	return ref
}

func (t *Tx) insertPort(s PortSpec) Ref {
	iface := t.insert("Interface", wire.Row{
		"name": s.Name, "type": s.Type, "options": encodeMap(s.Options), "external_ids": encodeMap(s.ExternalIDs),
	})
	return t.insert("Port", wire.Row{
		"name": s.Name, "interfaces": setOf([]Ref{iface}), "tag": optIntCodec().encode(s.Tag),
		"vlan_mode": optStringCodec().encode(s.VLANMode), "trunks": setOf(s.Trunks), "other_config": encodeMap(s.OtherConfig),
	})
}

func (t *Tx) alignPort(p *Port, s PortSpec) {
	if other := differing(p.OtherConfig, s.OtherConfig); len(other) > 0 {
		t.Port(p.UUID).MergeOtherConfig(other)
	}
	if s.Tag != nil && (p.Tag == nil || *p.Tag != *s.Tag) {
		t.Port(p.UUID).SetTag(*s.Tag)
	}
	if s.VLANMode != "" && s.VLANMode != p.VLANMode {
		t.Port(p.UUID).SetVLANMode(s.VLANMode)
	}
	if len(s.Trunks) > 0 && !slices.Equal(slices.Sorted(slices.Values(s.Trunks)), p.Trunks) {
		t.Port(p.UUID).SetTrunks(s.Trunks...)
	}
	for _, id := range p.Interfaces {
		i := t.view.Interface(id)
		if i == nil || i.Name != s.Name {
			continue
		}
		options, ids := differing(i.Options, s.Options), differing(i.ExternalIDs, s.ExternalIDs)
		if len(options)+len(ids) > 0 {
			t.Interface(id).MergeOptions(options).MergeExternalIDs(ids)
		}
		if s.Type != "" && s.Type != i.Type {
			t.Interface(id).SetType(s.Type)
		}
	}
}

// DeletePort takes the port of this identity from its bridge; the database collects its rows.
func (t *Tx) DeletePort(id UUID) {
	b := t.view.BridgeOf(id)
	if b == nil {
		t.fail(ErrConflict, "Port "+string(id), "it is on no bridge")
		return
	}
	t.checkExists("Port", id)
	t.edit("Bridge", b.UUID).mutate("ports", wire.MutateOperationDelete, setOf([]UUID{id}))
}

// differing returns the pairs of want that have lacks.
func differing(have, want map[string]string) map[string]string {
	var d map[string]string
	for k, v := range want {
		if was, ok := have[k]; ok && was == v {
			continue
		}
		if d == nil {
			d = map[string]string{}
		}
		d[k] = v
	}
	return d
}
