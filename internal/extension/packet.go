// SPDX-License-Identifier: Apache-2.0

package extension

import (
	"strings"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/pipeline"
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

// The outcomes. An extension returns one of the first four.
const (
	Answered  Outcome = "answered"
	Ignored   Outcome = "ignored"   // it needs no answer
	Refused   Outcome = "refused"   // it is not the sender's to ask, or not ours to answer
	Malformed Outcome = "malformed" // it cannot be read
	Failed    Outcome = "failed"    // the extension panicked
	Unclaimed Outcome = "unclaimed" // no extension has such a flow
	Limited   Outcome = "limited"   // there were too many with the same key
)

// Bounds of the packets with one key that reach the agent: PacketBurst at once, and then PacketRate a second. A client asks a server a
// few times a minute; who asks for one port more often than this waits, and all others do not.
const (
	PacketRate  = 10
	PacketBurst = 30
	PacketEvery = time.Second / PacketRate
)

// ToAgent returns the action of a flow that sends whole packets to the extension with the name. The key says whose packets they are, such as
// a port's id: packets with one key share a bound. Meter is the id of the meter that [PacketMeter] makes, so that the switch keeps the bound;
// 0 where it has none, and the agent alone keeps it.
func ToAgent(name, key string, meter uint32) openflow.Action {
	a := openflow.ToController(0xffff)
	a.Userdata, a.Meter = name+" "+key, meter
	return a
}

// PacketMeter returns the meter for packets with one key.
func PacketMeter(bridge, reason string, id uint32) pipeline.Meter {
	return pipeline.Meter{Bridge: bridge, Reason: reason, MeterDesc: openflow.MeterDesc{
		ID: id, Flags: openflow.MeterPktps | openflow.MeterBurst, Bands: []openflow.Band{{Rate: PacketRate, Burst: PacketBurst}},
	}}
}

// OnPacket hands a packet to the extension whose flow sent it. It returns what to send in answer, whose the packet is and what became of it.
func (s Set) OnPacket(bridge string, p *openflow.PacketIn) (answer []openflow.Message, name string, outcome Outcome) {
	name, key, _ := strings.Cut(string(p.Userdata), " ")
	for _, m := range s {
		if m.PacketHandler != nil && m.Name() == name {
			answer, outcome = m.PacketHandler.OnPacket(Packet{p, bridge, key})
			return answer, name, outcome
		}
	}
	return nil, "", Unclaimed
}
