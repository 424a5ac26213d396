// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"fmt"
	"slices"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/world"
	of "github.com/patchbay-sdn/patchbay/openflow"
)

// Cookie marks our flows. It is the same in every run, so that a restart finds its own flows unchanged.
const Cookie = 0x5061746368626179 // "Patchbay"

// Want is what one object wants the switch to be like.
type Want struct {
	Flows []Flow
	// Rows come before the flows, since flows refer to ports by the numbers they get.
	Rows []ovsdb.Spec
	// Until are rows for as long as the flows are not in place: they come before the flows, too.
	Until []ovsdb.Spec
	// After are rows that may only change once the flows are in place.
	After []ovsdb.Spec
	// Meters come before the flows that use them, and go after them.
	Meters []Meter
	// Waiting says what is still to come, in words. Until it has come the object is not complete, and its port not up.
	Waiting string
	// Err: the object cannot be expressed; nothing of it is wanted.
	Err error
}

// Flow is one flow of a bridge, with the reason for it.
type Flow struct {
	Bridge string
	Entry  of.Entry
	Reason string
}

// Meter is one meter of a bridge, with the reason for it.
type Meter struct {
	Bridge string
	of.MeterDesc
	Reason string
}

// Flow adds a flow of a bridge, under our mark. One that cannot be expressed makes Err.
func (w *Want) Flow(bridge, reason string, f of.Flow) {
	f.Cookie = Cookie
	e, err := f.Entry()
	if err != nil {
		w.Err = err
		return
	}
	w.Flows = append(w.Flows, Flow{bridge, e, reason})
}

// Override takes out flows that were replaced: of those of one bridge with the same table, priority and match the last counts.
func (w *Want) Override() {
	type key struct {
		bridge string
		key    of.Key
	}
	seen := make(map[key]bool, len(w.Flows))
	kept := make([]Flow, 0, len(w.Flows))
	for _, f := range slices.Backward(w.Flows) {
		if k := (key{f.Bridge, f.Entry.Key()}); !seen[k] {
			seen[k] = true
			kept = append(kept, f)
		}
	}
	slices.Reverse(kept)
	w.Flows = kept
}

// Compile returns what an object wants. An object that is gone wants nothing.
func Compile(w *world.World, s *Settings, o world.Object) Want {
	c := compiler{w: w, s: s}
	switch o := o.(type) {
	case world.BridgeObject:
		c.bridge(string(o))
	case world.PortObject:
		c.port(string(o))
	case world.SegmentObject:
		c.segment(world.SegmentKey(o))
	case world.TunnelObject:
		c.tunnel(world.Endpoint(o))
	case world.StationObject:
		c.station(o.Segment, o.MAC)
	case world.PeerObject:
		if !w.Config.Hybrid {
			c.peer(o.Segment, o.Peer)
		}
	case world.InterfaceObject:
		c.foreign(string(o))
	}
	if c.want.Err != nil {
		return Want{Err: fmt.Errorf("compiling %s: %w", o, c.want.Err)}
	}
	return c.want
}

// Settings is what the pipeline reads of the options besides what the world knows.
type Settings struct {
	DatapathType string
	MACTableSize int
	// Controller is written to bridges that the agent sets up first. Nothing listens there; it is there because a
	// Python agent that takes over later would add it, and the first controller of a bridge flushes its flows.
	Controller      string
	InactivityProbe int // ms
	VXLANPort       int
	DontFragment    bool
	TunnelChecksum  bool
	TOS             string // empty, a number or "inherit"
	IGMPSnooping    bool
	// What becomes of multicast with IGMPSnooping: whether the other bridges get all of it (IGMPFlood) and the reports of receivers
	// (IGMPFloodReports), and whether what nobody has registered for is flooded. The defaults are false, true, false.
	IGMPFlood, IGMPFloodReports, IGMPFloodUnregistered bool
}

// compiler collects what one object wants.
type compiler struct {
	w    *world.World
	s    *Settings
	want Want
	// seen, if not nil, are the flows so far: different reasons may lead to the same flow, and the first one counts.
	seen map[of.Key]bool
}

func (c *compiler) flow(bridge, reason string, f of.Flow) {
	f.Cookie = Cookie
	e, err := f.Entry()
	if err != nil {
		c.want.Err = err
		return
	}
	if c.seen != nil {
		if c.seen[e.Key()] {
			return
		}
		c.seen[e.Key()] = true
	}
	c.want.Flows = append(c.want.Flows, Flow{bridge, e, reason})
}

func (c *compiler) row(s ovsdb.Spec)   { c.want.Rows = append(c.want.Rows, s) }
func (c *compiler) until(s ovsdb.Spec) { c.want.Until = append(c.want.Until, s) }
func (c *compiler) after(s ovsdb.Spec) { c.want.After = append(c.want.After, s) }

// hw turns Neutron's address into OpenFlow's.
func hw(m neutron.MAC) of.MAC { return of.MAC(m) }

// unicast and multicast match a destination by the bit that tells one from the other.
func unicast() of.Term   { return of.Masked(of.EthDst, of.Uint(0), of.MAC{1}.Value()) }
func multicast() of.Term { return of.Masked(of.EthDst, of.MAC{1}.Value(), of.MAC{1}.Value()) }

func etherType(t uint64) of.Term { return of.Num(of.EthType, t) }

const (
	typeIPv6 = 0x86dd
	typeARP  = 0x0806

	protoICMPv6 = 58
)
