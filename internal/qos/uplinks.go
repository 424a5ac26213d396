// SPDX-License-Identifier: Apache-2.0

package qos

import (
	"maps"
	"slices"
	"strconv"

	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/world"
)

// minimumClaim is the queue that a port has on the uplinks. The zero value is none.
type minimumClaim struct {
	number uint32 // of the queue
	kbps   int
}

// minimum is what a port claims of the uplinks. A network that is on none of them has nothing to claim.
func (q *QoS) minimum(id string) minimumClaim {
	rules, _, _ := q.rules(id)
	rule := find(rules, minimumBandwidth, egress)
	if rule == nil || !onUplinks(q.w, id) {
		return minimumClaim{}
	}
	return minimumClaim{q.w.Port(id).VIF.OFPort, rule.MinKbps}
}

// onUplinks says whether a port's network is a physical one.
func onUplinks(w *world.World, id string) bool {
	s := w.Segments.Get(w.Port(id).Wiring.Segment)
	return s != nil && s.Physnet != ""
}

// hasUplinkQueues says whether a port has a queue on the uplinks, of this run or another.
func (q *QoS) hasUplinkQueues() bool {
	for queue := range q.w.View.Queues() {
		if queue.ExternalIDs["type"] == minimumType {
			return true
		}
	}
	return false
}

// physical lists the physical bridges, sorted.
func (q *QoS) physical() []string {
	return slices.Compact(slices.Sorted(maps.Values(q.w.Config.Physical)))
}

// patches are the numbers of the patch ports of a bridge, sorted.
func (q *QoS) patches(bridge string) []uint32 {
	var out []uint32
	for _, i := range q.w.View.SingleInterfaces(bridge) {
		if i.Type == "patch" && q.w.OFPort(i.Name) != 0 {
			out = append(out, q.w.OFPort(i.Name))
		}
	}
	slices.Sort(out)
	return out
}

// uplinks is how the queues of all ports with a minimum of bandwidth shall be, on every uplink. Ports of which nothing is known keep what they
// have.
func (q *QoS) uplinks() ovsdb.Spec {
	spec := ovsdb.SharedQoS{
		Bridges: q.physical(), Key: ovsdb.QoSKey{ExternalIDs: map[string]string{"_type": minimumType}}, New: newQoS(uplinkID, minimumType),
		Kind: map[string]string{"type": minimumType}, UnknownKey: "port",
	}
	for _, id := range slices.Sorted(maps.Keys(q.policed)) {
		claim, config := q.policed[id], map[string]string{}
		if claim.kbps > 0 {
			config["min-rate"], config["max-rate"] = kilo(claim.kbps), strconv.Itoa(maxRate)
		}
		spec.Queues = append(spec.Queues, queue(int(claim.number), id, minimumType, config))
	}
	for _, id := range q.w.PortIDs() {
		if _, known, _ := q.rules(id); !known {
			spec.Unknown = append(spec.Unknown, id)
		}
	}
	return spec
}
