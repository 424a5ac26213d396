// SPDX-License-Identifier: Apache-2.0

package ovsdb

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// When has specs count as long as all of these rows exist.
type When struct {
	Bridges    []string // by name
	Ports      []UUID
	Interfaces []UUID
	Specs      []Spec
}

// diff adds what the specs lack.
func (s When) diff(t *Tx, v *View) {
	missing := slices.ContainsFunc(s.Bridges, func(name string) bool { return v.BridgeByName(name) == nil }) ||
		slices.ContainsFunc(s.Ports, func(id UUID) bool { return v.Port(id) == nil }) ||
		slices.ContainsFunc(s.Interfaces, func(id UUID) bool { return v.Interface(id) == nil })
	if missing {
		return
	}
	for _, spec := range s.Specs {
		spec.diff(t, v)
	}
}

// InterfaceSpec says how an interface that exists shall be. Empty fields are left as they are.
type InterfaceSpec struct {
	Interface   UUID
	ExternalIDs map[string]string // merged
	List        *IDList
	Policing    *Policing
	Steering    *Steering
}

// Steering says how an interface of a userspace datapath spreads what it sends over its queues; empty: as Open vSwitch does by itself.
type Steering string

// steeringKey is its key in other_config.
const steeringKey = "tx-steering"

// SteeringOf returns what is set.
func SteeringOf(i *Interface) Steering { return Steering(i.OtherConfig[steeringKey]) }

// Policing is a limit of what an interface receives from its VM. 0 is no limit.
type Policing struct {
	Rate  int // kbit/s
	Burst int // kbit
}

// IDList is a list in external_ids, as JSON. Its order means nothing.
type IDList struct {
	Key string
	IDs []string
	// Present are ids by the names of interfaces: they are in the list if the interface is on Bridge.
	Present map[string]string
	Bridge  string
}

// diff adds what the interface lacks. An interface that is gone lacks nothing.
func (s InterfaceSpec) diff(t *Tx, v *View) {
	i := v.Interface(s.Interface)
	if i == nil {
		return
	}
	if p := s.Policing; p != nil && (i.IngressPolicingRate != p.Rate || i.IngressPolicingBurst != p.Burst) {
		t.Interface(i.UUID).SetIngressPolicing(p.Rate, p.Burst)
	}
	if k := s.Steering; k != nil && *k != SteeringOf(i) {
		if *k == "" {
			t.Interface(i.UUID).RemoveOtherConfig(steeringKey)
		} else {
			t.Interface(i.UUID).MergeOtherConfig(map[string]string{steeringKey: string(*k)})
		}
	}
	missing := differing(i.ExternalIDs, s.ExternalIDs)
	if l := s.List; l != nil {
		var have []string
		want := l.wanted(v)
		if err := json.Unmarshal([]byte(i.ExternalIDs[l.Key]), &have); err != nil || !slices.Equal(slices.Sorted(slices.Values(have)), want) {
			if missing == nil {
				missing = map[string]string{}
			}
			missing[l.Key] = pythonList(want)
		}
	}
	if len(missing) > 0 {
		t.Interface(i.UUID).MergeExternalIDs(missing)
	}
}

// wanted returns the ids, sorted, each once.
func (l *IDList) wanted(v *View) []string {
	ids := map[string]bool{}
	for _, id := range l.IDs {
		ids[id] = true
	}
	if b := v.BridgeByName(l.Bridge); b != nil {
		for _, i := range v.InterfacesOn(b) {
			if id, ok := l.Present[i.Name]; ok {
				ids[id] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(ids))
}

// pythonList spells a list as Python does, so that a Python agent that takes over sees no difference.
func pythonList(items []string) string {
	quoted := make([]string, len(items))
	for i, s := range items {
		quoted[i] = strconv.Quote(s)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

// AbsentPatches says which patch ports a bridge does not have. Their peers go with them.
type AbsentPatches struct {
	Bridge   string
	Prefixes []string // of their names
	Keep     []string // names that stay
	// PeerBridge is the bridge of the peers that go, PeerPrefixes are those of their names.
	PeerBridge   string
	PeerPrefixes []string
	// IfEmpty, unless nil, are the prefixes of all ports that the bridge may have besides its own. If it has others, all patches stay.
	IfEmpty []string
	// WithBridge has the bridge go, too.
	WithBridge bool
}

// diff deletes the patches.
func (s AbsentPatches) diff(t *Tx, v *View) {
	b := v.BridgeByName(s.Bridge)
	if b == nil {
		return
	}
	interfaces := v.InterfacesOn(b)
	if s.IfEmpty != nil && slices.ContainsFunc(interfaces, func(i *Interface) bool { return i.Name != b.Name && !hasPrefix(i.Name, s.IfEmpty) }) {
		return
	}
	for _, i := range interfaces {
		if !hasPrefix(i.Name, s.Prefixes) || slices.Contains(s.Keep, i.Name) {
			continue
		}
		s.deletePeer(t, v, i)
		// Of an interface that two ports had, by somebody's mistake, the port may not be known.
		if p := v.PortOf(i.UUID); p != nil && !s.WithBridge {
			t.DeletePort(p.UUID)
		}
	}
	if s.WithBridge {
		t.Bridge(b.UUID).Verify("ports") // a port may be added this very moment
		t.DeleteBridge(b.UUID)
	}
}

func (s AbsentPatches) deletePeer(t *Tx, v *View, i *Interface) {
	peer := v.InterfaceByName(i.Options["peer"])
	if peer == nil || !hasPrefix(peer.Name, s.PeerPrefixes) {
		return
	}
	if p := v.PortOf(peer.UUID); p != nil {
		if b := v.BridgeOf(p.UUID); b != nil && b.Name == s.PeerBridge {
			t.DeletePort(p.UUID)
		}
	}
}

// StrayPatch says that a bridge has no patch port of this name whose peer is gone. Other ports of the name stay.
type StrayPatch struct {
	Bridge, Name string
	PeerPrefixes []string // of the peer's name
}

// diff deletes the port.
func (s StrayPatch) diff(t *Tx, v *View) {
	i, p := v.InterfaceByName(s.Name), v.PortByName(s.Name)
	if i == nil || p == nil || i.Type != "patch" {
		return
	}
	b, peer := v.BridgeOf(p.UUID), i.Options["peer"]
	if b != nil && b.Name == s.Bridge && hasPrefix(peer, s.PeerPrefixes) && v.InterfaceByName(peer) == nil {
		t.DeletePort(p.UUID)
	}
}

func hasPrefix(name string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}
