// SPDX-License-Identifier: Apache-2.0

package world

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
)

// Object names something that is compiled on its own: a value of one of the types below. A change costs what its objects cost. Objects
// are comparable; nil names none. Every flow has an owner, so an Object is two words, and what they point to is shared.
type Object interface {
	fmt.Stringer // the kind and the id, for people

	rank() int    // of the kind, in the order of the types below
	text() string // its id
}

type (
	// BridgeObject is the base flows and rows of a bridge, by its name.
	BridgeObject string
	// PortObject is a port plugged in here, by Neutron's id.
	PortObject string
	// SegmentObject is a segment with a local VLAN.
	SegmentObject SegmentKey
	// TunnelObject is an endpoint of a tunnel.
	TunnelObject Endpoint
	// StationObject is an address of a segment that is behind endpoints.
	StationObject struct {
		Segment SegmentKey
		MAC     neutron.MAC
	}
	// PeerObject is an address of a remote group on a segment.
	PeerObject struct {
		Segment SegmentKey
		Peer    Peer
	}
	// InterfaceObject is an interface of the integration bridge that is no port, by its name.
	InterfaceObject string
	// ExtensionObject is something that an extension adds. Key is a comparable value of the extension's own.
	ExtensionObject struct {
		Extension string
		Key       any
	}
	// GroupObject is a security group, by its id. It has no flows of its own, and is named when it cannot be worked out.
	GroupObject string
)

func (BridgeObject) rank() int    { return 1 }
func (PortObject) rank() int      { return 2 }
func (SegmentObject) rank() int   { return 3 }
func (TunnelObject) rank() int    { return 4 }
func (StationObject) rank() int   { return 5 }
func (PeerObject) rank() int      { return 6 }
func (InterfaceObject) rank() int { return 7 }
func (ExtensionObject) rank() int { return 8 }
func (GroupObject) rank() int     { return 9 }

func (o BridgeObject) text() string    { return string(o) }
func (o PortObject) text() string      { return string(o) }
func (o SegmentObject) text() string   { return SegmentKey(o).String() }
func (o TunnelObject) text() string    { return Endpoint(o).String() }
func (o StationObject) text() string   { return o.Segment.String() + "|" + o.MAC.String() }
func (o InterfaceObject) text() string { return string(o) }
func (o ExtensionObject) text() string { return o.Extension + " " + fmt.Sprint(o.Key) }
func (o GroupObject) text() string     { return string(o) }

func (o PeerObject) text() string {
	mac := "-"
	if o.Peer.MAC != (neutron.MAC{}) {
		mac = o.Peer.MAC.String()
	}
	return o.Segment.String() + "|" + o.Peer.Prefix.String() + "|" + mac
}

func (o BridgeObject) String() string    { return "bridge " + o.text() }
func (o PortObject) String() string      { return "port " + o.text() }
func (o SegmentObject) String() string   { return "segment " + o.text() }
func (o TunnelObject) String() string    { return "tunnel " + o.text() }
func (o StationObject) String() string   { return "station " + o.text() }
func (o PeerObject) String() string      { return "peer " + o.text() }
func (o InterfaceObject) String() string { return "interface " + o.text() }
func (o ExtensionObject) String() string { return o.text() } // it begins with the name of the extension
func (o GroupObject) String() string     { return "group " + o.text() }

// PortID returns the id of a port, if the object is one.
func PortID(o Object) (id string, ok bool) {
	port, ok := o.(PortObject)
	return string(port), ok
}

// IDOf returns the object's id, for people: nothing reads it back.
func IDOf(o Object) string { return o.text() }

// NameOf returns the object's name for people; "none" for nil, the owner of a flow that nothing wants.
func NameOf(o Object) string {
	if o == nil {
		return "none"
	}
	return o.String()
}

// ordered is an object with what it is sorted by.
type ordered struct {
	object Object
	rank   int
	id     string
}

func inOrder(o Object) ordered {
	if o == nil {
		return ordered{}
	}
	return ordered{o, o.rank(), o.text()}
}

func (o ordered) compare(p ordered) int {
	return cmp.Or(cmp.Compare(o.rank, p.rank), cmp.Compare(o.id, p.id))
}

// CompareObjects orders objects by kind, then by the text of their ids; nil comes first.
func CompareObjects(a, b Object) int { return inOrder(a).compare(inOrder(b)) }

// SortObjects sorts objects in the order of [CompareObjects]. Each text is built once.
func SortObjects(objects []Object) {
	all := make([]ordered, len(objects))
	for i, o := range objects {
		all[i] = inOrder(o)
	}
	slices.SortFunc(all, ordered.compare)
	for i := range all {
		objects[i] = all[i].object
	}
}

// SortedObjects returns the keys of a map in the order of [CompareObjects].
func SortedObjects[V any](of map[Object]V) []Object {
	out := slices.AppendSeq(make([]Object, 0, len(of)), maps.Keys(of)) // may be many
	SortObjects(out)
	return out
}
