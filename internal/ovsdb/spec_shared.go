// SPDX-License-Identifier: Apache-2.0

package ovsdb

import (
	"maps"
	"slices"
)

// SharedQoS says that the uplinks of bridges share one QoS row with these queues, and that no other row or queue of the kind exists. Without
// queues there is no row.
type SharedQoS struct {
	Bridges []string // by name
	Key     QoSKey   // of rows of the kind
	New     QoS      // a row that is not there yet
	Queues  []QueueSpec
	Kind    map[string]string // pairs of external_ids of queues of the kind
	// Unknown are values of UnknownKey, a key of external_ids: queues that have one stay as they are.
	UnknownKey string
	Unknown    []string
}

// diff brings the row, its queues and the uplinks in line.
func (s SharedQoS) diff(t *Tx, v *View) {
	qos := findQoS(v, s.Key.matches)
	queues, have := map[int]Ref{}, map[int]bool{}     // by number; have: those that are right already
	claimed, keep := map[UUID]bool{}, map[UUID]bool{} // queues that are wanted, and those that stay
	for _, q := range s.Queues {
		queue := findQueue(v, q.Key)
		queues[q.Number] = q.ensure(t, queue)
		if queue != nil {
			claimed[queue.UUID] = true
			have[q.Number] = qos != nil && qos.Queues[q.Number] == queue.UUID
		}
	}
	for queue := range v.Queues() {
		keep[queue.UUID] = s.ofKind(queue) && s.unknown(queue)
	}
	switch {
	case qos != nil:
		s.align(t, v, qos, queues, have, keep)
	case len(queues) > 0:
		ref := t.InsertQoS(s.New, queues)
		for _, uplink := range s.uplinks(v) {
			t.Port(uplink.UUID).SetQoS(ref)
		}
	}
	s.deleteOthers(t, v, qos)
	for _, queue := range sortedQueues(v) {
		if s.ofKind(queue) && !claimed[queue.UUID] && !keep[queue.UUID] {
			t.DeleteQueue(queue.UUID)
		}
	}
}

func (s SharedQoS) ofKind(q *Queue) bool { return len(differing(q.ExternalIDs, s.Kind)) == 0 }

func (s SharedQoS) unknown(q *Queue) bool {
	return slices.Contains(s.Unknown, q.ExternalIDs[s.UnknownKey])
}

// deleteOthers deletes other rows of the kind: those of the Python agent's earlier runs, for instance.
func (s SharedQoS) deleteOthers(t *Tx, v *View, qos *QoS) {
	for _, other := range sortedQoS(v) {
		if !s.Key.matches(other) || other.UUID == qos.UUID {
			continue
		}
		kept := slices.ContainsFunc(slices.Collect(maps.Values(other.Queues)), func(id UUID) bool {
			queue := v.Queue(id)
			return queue != nil && s.unknown(queue)
		})
		if kept {
			continue
		}
		uplinks := s.uplinks(v)
		for p := range v.Ports() {
			if p.QoS == other.UUID && !slices.Contains(uplinks, p) {
				t.Port(p.UUID).ClearQoS()
			}
		}
		t.DeleteQoS(other.UUID)
	}
}

// align brings the row in line, or deletes it when no queue is left in it.
func (s SharedQoS) align(t *Tx, v *View, qos *QoS, queues map[int]Ref, have map[int]bool, keep map[UUID]bool) {
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
				t.Port(p.UUID).ClearQoS()
			}
		}
		t.DeleteQoS(qos.UUID)
		return
	}
	slices.Sort(gone)
	for _, n := range gone {
		t.QoS(qos.UUID).RemoveQueue(n)
	}
	for _, n := range slices.Sorted(maps.Keys(queues)) {
		if !have[n] {
			t.QoS(qos.UUID).SetQueue(n, queues[n])
		}
	}
	for _, uplink := range s.uplinks(v) {
		if uplink.QoS != qos.UUID {
			t.Port(uplink.UUID).SetQoS(RefTo(qos.UUID))
		}
	}
}

// uplinks returns the ports of the bridges that lead to a wire.
func (s SharedQoS) uplinks(v *View) []*Port {
	var out []*Port
	for _, bridge := range s.Bridges {
		for _, i := range v.SingleInterfaces(bridge) {
			if i.Type == "" {
				out = append(out, v.PortOf(i.UUID))
			}
		}
	}
	return out
}
