// SPDX-License-Identifier: Apache-2.0

package ovsdb

import "slices"

// Spec says how rows shall be: a value without functions, which can be compared, printed and written down. What it does not name is left alone.
type Spec interface {
	// diff adds to a transaction what rows lack, and nothing when all is as wanted. It reads the view and nothing else.
	diff(t *Tx, v *View)
}

// DiffRows returns the transaction that makes rows as the specs say. An empty one means that they are.
func DiffRows(v *View, specs ...Spec) *Tx {
	t := NewTx(v)
	t.Add(specs...)
	return t
}

// Add adds what rows lack.
func (t *Tx) Add(specs ...Spec) {
	for _, s := range specs {
		s.diff(t, t.view)
	}
}

// diff adds what a bridge lacks.
//
// The first controller comes with the fail mode, since the fail mode shows that nobody has set up the bridge yet. The first controller of a
// bridge flushes its flows, so ovs-vswitchd has to have applied it before flows come.
func (s BridgeSpec) diff(t *Tx, v *View) {
	b := v.BridgeByName(s.Name)
	if b == nil {
		if s.Create {
			if s.FirstController != nil {
				s.FailMode = ""
			}
			t.EnsureBridge(s)
		}
		return
	}
	if s.FirstController != nil && b.FailMode != s.FailMode && len(b.Controllers) == 0 {
		t.Bridge(b.UUID).SetControllers(*s.FirstController)
		t.WaitApplied()
	}
	t.alignBridge(b, s)
	if s.McastSnooping != nil && b.McastSnoopingEnable != *s.McastSnooping {
		t.Bridge(b.UUID).SetMcastSnooping(*s.McastSnooping)
	}
	for _, key := range s.RemoveConfig {
		if _, there := b.OtherConfig[key]; there {
			t.Bridge(b.UUID).RemoveOtherConfig(key)
		}
	}
}

// diff adds what a port lacks. Without its bridge there is nothing to add.
func (s PortSpec) diff(t *Tx, v *View) {
	_, created := t.bridges[s.Bridge]
	if !created && v.BridgeByName(s.Bridge) == nil {
		return
	}
	p := v.PortByName(s.Name)
	switch {
	case p != nil && s.KeepIfPresent:
		return
	case p == nil && s.Initial != nil:
		tag := s.Initial.Tag
		s.Tag, s.VLANMode, s.Trunks = &tag, s.Initial.Mode, s.Initial.Trunks
	}
	t.EnsurePort(s)
}

// VLANs are the VLANs of a port.
type VLANs struct {
	Tag    int
	Mode   string
	Trunks []int
}

// AccessSpec says that a port is in one VLAN and in no other. Pairs of OtherConfig are merged.
type AccessSpec struct {
	Port        UUID
	Tag         int
	OtherConfig map[string]string
}

// diff adds what the port lacks. A port that is gone lacks nothing.
func (s AccessSpec) diff(t *Tx, v *View) {
	p := v.Port(s.Port)
	if p == nil {
		return
	}
	t.alignPort(p, PortSpec{Tag: &s.Tag, OtherConfig: s.OtherConfig})
	// Whoever plugged the port in may have set these, to keep it isolated until it is wired.
	if p.VLANMode != "" {
		t.Port(p.UUID).SetVLANMode("")
	}
	if len(p.Trunks) > 0 {
		t.Port(p.UUID).SetTrunks()
	}
}

// IsolationSpec says that a port is in no network. A port without a tag is a trunk of all VLANs: it receives every network of the host. So
// it carries tagged packets only, of the VLAN that no network has.
type IsolationSpec struct {
	Port UUID
	VLAN int // that no network has
	// Keep is the VLAN in which the port may stay; or AnyVLAN, or NoVLAN.
	Keep int
}

// Values of IsolationSpec.Keep besides VLANs.
const (
	AnyVLAN = -1
	NoVLAN  = 0
)

// diff isolates the port, unless it is isolated or may stay where it is.
func (s IsolationSpec) diff(t *Tx, v *View) {
	p := v.Port(s.Port)
	if p == nil {
		return
	}
	if p.Tag != nil {
		isolated := *p.Tag == s.VLAN && p.VLANMode == "trunk" && slices.Equal(p.Trunks, []int{s.VLAN})
		stays := *p.Tag != s.VLAN && (s.Keep == AnyVLAN || *p.Tag == s.Keep)
		if isolated || stays {
			return
		}
	}
	t.Port(s.Port).SetTag(s.VLAN).SetVLANMode("trunk").SetTrunks(s.VLAN)
	t.WaitApplied() // flows come next, and guards may go: ovs-vswitchd has to have isolated the port by then
}

// AbsentPort says that a port does not exist: the one of this identity, or the one of this name on this bridge.
type AbsentPort struct {
	Port         UUID
	Bridge, Name string
}

// diff deletes the port.
func (s AbsentPort) diff(t *Tx, v *View) {
	p := v.Port(s.Port)
	if s.Port == "" {
		if p = v.PortByName(s.Name); p == nil {
			return
		}
		if b := v.BridgeOf(p.UUID); b == nil || b.Name != s.Bridge {
			return
		}
	}
	if p != nil {
		t.DeletePort(p.UUID)
	}
}
