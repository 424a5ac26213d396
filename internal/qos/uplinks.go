// SPDX-License-Identifier: Apache-2.0

package qos

import (
	"maps"
	"slices"
	"strconv"

	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/pipeline"
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
	for _, i := range bridgeInterfaces(q.w.View, bridge) {
		if i.Type == "patch" && q.w.OFPort(i.Name) != 0 {
			out = append(out, q.w.OFPort(i.Name))
		}
	}
	slices.Sort(out)
	return out
}

// bridgeInterfaces are the interfaces of a bridge that are ports of their own: those of a bond are not.
func bridgeInterfaces(v *ovsdb.View, bridge string) []*ovsdb.Interface {
	b := v.BridgeByName(bridge)
	if b == nil {
		return nil
	}
	var out []*ovsdb.Interface
	for _, id := range b.Ports {
		if p := v.Port(id); p != nil && len(p.Interfaces) == 1 {
			if i := v.Interface(p.Interfaces[0]); i != nil && i.Name == p.Name {
				out = append(out, i)
			}
		}
	}
	return out
}

// uplinks compiles the queues of all ports with a minimum of bandwidth.
func (q *QoS) uplinks() pipeline.Row {
	row := uplinkRow{claims: maps.Clone(q.policed), bridges: q.physical(), unknown: map[string]bool{}}
	for _, id := range q.w.PortIDs() {
		if _, known, _ := q.rules(id); !known {
			row.unknown[id] = true
		}
	}
	return row
}

// uplinkRow wants a queue on every uplink for each port that has a minimum of bandwidth, and none for the others.
type uplinkRow struct {
	claims  map[string]minimumClaim // by port id
	unknown map[string]bool         // ports of which nothing is known: what they have stays
	bridges []string
}

// Add implements pipeline.Row.
func (r uplinkRow) Add(tx *ovsdb.Tx, v *ovsdb.View) {
	qos := findQoS(v, isOurs)
	queues := map[int]ovsdb.Ref{}
	have := map[int]bool{}           // numbers that are right already
	claimed := map[ovsdb.UUID]bool{} // queues
	keep := map[ovsdb.UUID]bool{}    // queues of ports of which nothing is known
	for _, id := range slices.Sorted(maps.Keys(r.claims)) {
		claim := r.claims[id]
		config := map[string]string{}
		if claim.kbps > 0 {
			config["min-rate"], config["max-rate"] = kilo(claim.kbps), strconv.Itoa(maxRate)
		}
		queue := findQueue(v, id, minimumType)
		number := int(claim.number)
		queues[number] = ensureQueue(tx, queue, config, map[string]string{"port": id, "type": minimumType, "queue-num": strconv.Itoa(number)})
		if queue != nil {
			claimed[queue.UUID] = true
			have[number] = qos != nil && qos.Queues[number] == queue.UUID
		}
	}
	for queue := range v.Queues() {
		if queue.ExternalIDs["type"] == minimumType && r.unknown[queue.ExternalIDs["port"]] {
			keep[queue.UUID] = true
		}
	}
	if qos == nil {
		if len(queues) > 0 {
			ref := tx.InsertQoS(newQoS(uplinkID, minimumType), queues)
			for _, uplink := range r.uplinks(v) {
				tx.Port(uplink.UUID).SetQoS(ref)
			}
		}
	} else {
		r.align(tx, v, qos, queues, have, keep)
	}
	r.sweep(tx, v, qos)
	for queue := range v.Queues() {
		if queue.ExternalIDs["type"] == minimumType && !claimed[queue.UUID] && !keep[queue.UUID] {
			tx.DeleteQueue(queue.UUID)
		}
	}
}

func isOurs(q *ovsdb.QoS) bool { return q.ExternalIDs["_type"] == minimumType }

// sweep deletes rows that nobody has any more, the Python agent's of earlier runs among them.
func (r uplinkRow) sweep(tx *ovsdb.Tx, v *ovsdb.View, qos *ovsdb.QoS) {
	for other := range v.AllQoS() {
		kept := slices.ContainsFunc(slices.Collect(maps.Values(other.Queues)), func(id ovsdb.UUID) bool {
			queue := v.Queue(id)
			return queue != nil && r.unknown[queue.ExternalIDs["port"]]
		})
		if isOurs(other) && other.UUID != qos.UUID && !kept {
			for p := range v.Ports() {
				if p.QoS == other.UUID && !slices.ContainsFunc(r.uplinks(v), func(u *ovsdb.Port) bool { return u.UUID == p.UUID }) {
					tx.Port(p.UUID).ClearQoS()
				}
			}
			tx.DeleteQoS(other.UUID)
		}
	}
}

// align brings the row in line, or deletes it when nothing is left in it.
func (r uplinkRow) align(tx *ovsdb.Tx, v *ovsdb.View, qos *ovsdb.QoS, queues map[int]ovsdb.Ref, have map[int]bool, keep map[ovsdb.UUID]bool) {
	left := len(queues)
	var gone []int
	for n, queue := range qos.Queues {
		if _, wanted := queues[n]; wanted {
			continue
		}
		if keep[queue] {
			left++
		} else {
			gone = append(gone, n)
		}
	}
	if left == 0 {
		for p := range v.Ports() {
			if p.QoS == qos.UUID {
				tx.Port(p.UUID).ClearQoS()
			}
		}
		tx.DeleteQoS(qos.UUID)
		return
	}
	slices.Sort(gone)
	for _, n := range gone {
		tx.QoS(qos.UUID).RemoveQueue(n)
	}
	for _, n := range slices.Sorted(maps.Keys(queues)) {
		if !have[n] {
			tx.QoS(qos.UUID).SetQueue(n, queues[n])
		}
	}
	for _, uplink := range r.uplinks(v) {
		if uplink.QoS != qos.UUID {
			tx.Port(uplink.UUID).SetQoS(ovsdb.RefTo(qos.UUID))
		}
	}
}

// uplinks are the ports of the physical bridges that lead to a wire.
func (r uplinkRow) uplinks(v *ovsdb.View) []*ovsdb.Port {
	var out []*ovsdb.Port
	for _, bridge := range r.bridges {
		for _, i := range bridgeInterfaces(v, bridge) {
			if i.Type == "" {
				out = append(out, v.PortOf(i.UUID))
			}
		}
	}
	return out
}
