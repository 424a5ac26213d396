// SPDX-License-Identifier: Apache-2.0

package extension

import (
	"hash/fnv"
	"strings"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/pipeline"
	"github.com/patchbay-sdn/patchbay/internal/resolver"
	"github.com/patchbay-sdn/patchbay/internal/world"
	"github.com/patchbay-sdn/patchbay/openflow"
)

// Packet is a packet that a flow of an extension sent to the agent.
type Packet struct {
	*openflow.PacketIn
	Bridge string
	Key    string // the flow's, see ToAgent
}

// Outcome says in one word what became of a packet. It is a label of a metric: use few.
type Outcome string

// The outcomes. An extension returns one of the first six, or Limited where it has a bound of its own.
const (
	Answered  Outcome = "answered"
	Ignored   Outcome = "ignored"   // it needs no answer
	Refused   Outcome = "refused"   // it is not the sender's to ask, or not ours to answer
	Malformed Outcome = "malformed" // it cannot be read
	Logged    Outcome = "logged"    // it is written down
	Asked     Outcome = "asked"     // resolvers are asked; its outcome comes with their answer, and is counted then
	Failed    Outcome = "failed"    // the extension panicked
	Unclaimed Outcome = "unclaimed" // no extension has such a flow
	Limited   Outcome = "limited"   // there were too many with the same key
	// Unanswered: no resolver said anything.
	Unanswered Outcome = "unanswered"
)

// Bounds of the packets with one key that reach the agent: PacketBurst at once, and then PacketRate a second. A client asks a server a
// few times a minute; who asks for one port more often than this waits, and all others do not.
const (
	PacketRate  = 10
	PacketBurst = 30
)

// Bound is how many packets with one key reach the agent: Burst at once, and then Rate a second.
type Bound struct{ Rate, Burst int }

// Every is the time after which one more packet may come.
func (b Bound) Every() time.Duration { return time.Second / time.Duration(max(b.Rate, 1)) }

// DefaultBound is that of an extension that is not [Bounded].
func DefaultBound() Bound { return Bound{PacketRate, PacketBurst} }

// ToAgent returns the action of a flow that sends whole packets to the extension with the name. The key says whose packets they are, such as
// a port's id: packets with one key share a bound. Meter is the id of the meter that [PacketMeter] makes, so that the switch keeps the bound;
// 0 where it has none, and the agent alone keeps it.
func ToAgent(name, key string, meter uint32) openflow.Action {
	a := openflow.ToController(0xffff)
	a.Userdata, a.Meter = name+" "+key, meter
	return a
}

// PacketConns is over how many connections of their own come the packets whose senders wait for an answer. Open vSwitch keeps about 250 packets of one
// moment for a connection and drops the others; of all connections it takes 1,024.
const PacketConns = 8

// packetConn is the controller id of the connection that packets with one key come by. 0 is that of the connection that changes flows.
func packetConn(key string) uint16 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(key))
	return uint16(1 + h.Sum32()%PacketConns)
}

// OnlyToAgent returns the actions of a flow that does nothing but what [ToAgent] does, by one of the connections that are for packets. The meter is an instruction of the flow: os-ken cannot read a table with a
// meter in such an action, so that a Python agent that runs next would delete none of the table's flows, and guests would ask nobody.
func OnlyToAgent(name, key string, meter uint32) []openflow.Action {
	a := openflow.ToController(0xffff)
	a.Userdata, a.ID = name+" "+key, packetConn(key)
	if meter == 0 {
		return []openflow.Action{a}
	}
	return []openflow.Action{openflow.Meter(meter), a}
}

// PacketMeter returns the meter for packets with one key.
func PacketMeter(bridge, reason string, id uint32, b Bound) pipeline.Meter {
	return pipeline.Meter{Bridge: bridge, Reason: reason, MeterDesc: openflow.MeterDesc{
		ID: id, Flags: openflow.MeterPktps | openflow.MeterBurst, Bands: []openflow.Band{{Rate: uint32(b.Rate), Burst: uint32(b.Burst)}}, //nolint:gosec // options bound them
	}}
}

// ServiceMAC is told to guests that ask for an address that the agent answers for: 169.254.169.254 and the like. It is that of the Python agent.
func ServiceMAC() openflow.MAC { return openflow.MAC{0xfa, 0x16, 0xee, 0xff, 0xff, 0xff} }

// AboveAll is the priority of answers to ARP for such an address, in the transient table.
const AboveAll = 200

// IsGuest says whether a port is one whose guest the agent may answer: wired, with an address, and not Neutron's own.
func IsGuest(p *world.Port) bool {
	return p != nil && p.Wiring.State == world.Wired && p.VIF != nil && p.VIF.OFPort != 0 && p.Details != nil && len(p.Details.FixedIPs) > 0 &&
		!neutron.IsNetworkOwned(p.Details.DeviceOwner) && !strings.HasPrefix(p.Details.DeviceOwner, "neutron:")
}

// Reply is what follows from a packet.
type Reply struct {
	Name    string // of the extension whose flow sent the packet
	Outcome Outcome
	Answer  []openflow.Message // to send
	Records []string           // lines of the extension's log
	Asks    []resolver.Ask     // questions on which the answer depends
	Member  int                // the place of the extension in the list
}

// OnPacket hands a packet to the extension whose flow sent it.
func (s Set) OnPacket(bridge string, p *openflow.PacketIn) Reply {
	name, key, _ := strings.Cut(string(p.Userdata), " ")
	for i, m := range s {
		if m.PacketHandler == nil || m.Name() != name {
			continue
		}
		r := Reply{Name: name, Member: i}
		r.Answer, r.Outcome = m.PacketHandler.OnPacket(Packet{p, bridge, key})
		if m.Recorder != nil {
			r.Records = m.Recorder.Records()
		}
		if m.Asker != nil {
			r.Asks = m.Asker.Asks()
		}
		return r
	}
	return Reply{Outcome: Unclaimed}
}

// PacketBounds returns the bounds of the packets of each extension that takes some, by its name. Without one no packets are passed on.
func (s Set) PacketBounds() map[string]Bound {
	var out map[string]Bound
	for _, m := range s {
		if m.PacketHandler == nil {
			continue
		}
		if out == nil {
			out = map[string]Bound{}
		}
		out[m.Name()] = DefaultBound()
		if m.Bounded != nil {
			out[m.Name()] = m.Bounded.PacketBound()
		}
	}
	return out
}
