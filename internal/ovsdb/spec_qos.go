// SPDX-License-Identifier: Apache-2.0

package ovsdb

import (
	"maps"
	"slices"
	"strings"
)

// ConfigSpec says what other_config of a port has, and what it does not have.
type ConfigSpec struct {
	Port UUID
	Set  map[string]string
	// Remove are keys that go, unless they have this value.
	Remove map[string]string
}

// diff adds what the port lacks.
func (s ConfigSpec) diff(t *Tx, v *View) {
	p := v.Port(s.Port)
	if p == nil {
		return
	}
	if missing := differing(p.OtherConfig, s.Set); len(missing) > 0 {
		t.Port(s.Port).MergeOtherConfig(missing)
	}
	for _, key := range slices.Sorted(maps.Keys(s.Remove)) {
		if value, there := p.OtherConfig[key]; there && value != s.Remove[key] {
			t.Port(s.Port).RemoveOtherConfig(key)
		}
	}
}

// QoSKey is by what a QoS row is found.
type QoSKey struct {
	ExternalIDs map[string]string // pairs that the row has
	Type        string            // empty: any
	Pairs       int               // of external_ids in all; 0: any number
}

func (k QoSKey) matches(q *QoS) bool {
	return len(differing(q.ExternalIDs, k.ExternalIDs)) == 0 && (k.Type == "" || q.Type == k.Type) && (k.Pairs == 0 || len(q.ExternalIDs) == k.Pairs)
}

// QueueSpec says how a queue of a QoS row shall be.
type QueueSpec struct {
	Number       int
	Key          map[string]string // pairs of external_ids by which the queue is found
	ExternalIDs  map[string]string // merged
	OtherConfig  map[string]string // merged
	RemoveConfig []string          // keys of OtherConfig
}

// PortQoS says that a port has a QoS row of its own, or that it has none.
type PortQoS struct {
	Port   UUID
	Key    QoSKey
	Absent bool
	New    QoS // a row that is not there yet
	// OtherConfig is merged into a row that is there.
	OtherConfig map[string]string
	Queue       *QueueSpec
}

// diff adds what the port lacks, or deletes what it has.
func (s PortQoS) diff(t *Tx, v *View) {
	p := v.Port(s.Port)
	if p == nil {
		return
	}
	qos := findQoS(v, s.Key.matches)
	var queue *Queue
	if s.Queue != nil {
		queue = findQueue(v, s.Queue.Key)
	}
	if s.Absent {
		if qos != nil {
			if p.QoS == qos.UUID {
				t.Port(s.Port).ClearQoS()
			}
			deleteQoS(t, v, qos)
		}
		if queue != nil && (qos == nil || !hasQueue(qos, queue.UUID)) {
			t.DeleteQueue(queue.UUID)
		}
		return
	}
	queues := map[int]Ref{}
	if s.Queue != nil {
		queues[s.Queue.Number] = s.Queue.ensure(t, queue)
	}
	if qos == nil {
		t.Port(s.Port).SetQoS(t.InsertQoS(s.New, queues))
		return
	}
	if config := differing(qos.OtherConfig, s.OtherConfig); len(config) > 0 {
		t.QoS(qos.UUID).MergeOtherConfig(config)
	}
	for n, ref := range queues {
		if queue == nil || qos.Queues[n] != queue.UUID {
			t.QoS(qos.UUID).SetQueue(n, ref)
		}
	}
	if p.QoS != qos.UUID {
		t.Port(s.Port).SetQoS(RefTo(qos.UUID))
	}
}

// OrphanedQoS says that ports that are gone have no QoS rows and queues: the database deletes the rows of a port, but not these.
type OrphanedQoS struct {
	Rows      []QoSKey
	RowPort   string            // key of external_ids that names the port of a row
	Queues    map[string]string // pairs of external_ids of the queues
	QueuePort string            // key of external_ids that names the port of a queue
}

// diff deletes the rows and queues that no other row refers to.
func (s OrphanedQoS) diff(t *Tx, v *View) {
	gone := func(name string) bool { return name != "" && v.PortByName(name) == nil }
	deleted, used := map[UUID]bool{}, map[UUID]bool{}
	for p := range v.Ports() {
		used[p.QoS] = true
	}
	for _, q := range sortedQoS(v) {
		ours := slices.ContainsFunc(s.Rows, func(k QoSKey) bool { return k.matches(q) })
		if ours && gone(q.ExternalIDs[s.RowPort]) && !used[q.UUID] {
			deleteQoS(t, v, q)
			for _, queue := range q.Queues {
				deleted[queue] = true
			}
		}
	}
	for _, q := range sortedQueues(v) {
		ours := len(differing(q.ExternalIDs, s.Queues)) == 0
		if ours && gone(q.ExternalIDs[s.QueuePort]) && !deleted[q.UUID] && findQoS(v, func(o *QoS) bool { return hasQueue(o, q.UUID) }) == nil {
			t.DeleteQueue(q.UUID)
		}
	}
}

func sortedQoS(v *View) []*QoS {
	return slices.SortedFunc(v.AllQoS(), func(a, b *QoS) int { return strings.Compare(string(a.UUID), string(b.UUID)) })
}

func sortedQueues(v *View) []*Queue {
	return slices.SortedFunc(v.Queues(), func(a, b *Queue) int { return strings.Compare(string(a.UUID), string(b.UUID)) })
}

// findQoS returns a row; of several the first by its identity, so that every Diff finds the same.
func findQoS(v *View, is func(*QoS) bool) *QoS {
	var found *QoS
	for q := range v.AllQoS() {
		if is(q) && (found == nil || q.UUID < found.UUID) {
			found = q
		}
	}
	return found
}

func findQueue(v *View, key map[string]string) *Queue {
	var found *Queue
	for q := range v.Queues() {
		if len(differing(q.ExternalIDs, key)) == 0 && (found == nil || q.UUID < found.UUID) {
			found = q
		}
	}
	return found
}

func hasQueue(q *QoS, queue UUID) bool {
	for _, id := range q.Queues {
		if id == queue {
			return true
		}
	}
	return false
}

// ensure makes the queue, or brings one in line.
func (s *QueueSpec) ensure(t *Tx, have *Queue) Ref {
	if have == nil {
		ids := maps.Clone(s.Key)
		maps.Copy(ids, s.ExternalIDs)
		return t.InsertQueue(Queue{OtherConfig: s.OtherConfig, ExternalIDs: ids})
	}
	if config := differing(have.OtherConfig, s.OtherConfig); len(config) > 0 {
		t.Queue(have.UUID).MergeOtherConfig(config)
	}
	for _, key := range s.RemoveConfig {
		if have.OtherConfig[key] != "" {
			t.Queue(have.UUID).RemoveOtherConfig(key)
		}
	}
	if ids := differing(have.ExternalIDs, s.ExternalIDs); len(ids) > 0 {
		t.Queue(have.UUID).MergeExternalIDs(ids)
	}
	return RefTo(have.UUID)
}

// deleteQoS deletes a row with those of its queues that no other row has.
func deleteQoS(t *Tx, v *View, qos *QoS) {
	t.DeleteQoS(qos.UUID)
	for _, n := range slices.Sorted(maps.Keys(qos.Queues)) {
		queue := qos.Queues[n]
		other := findQoS(v, func(q *QoS) bool { return q.UUID != qos.UUID && hasQueue(q, queue) })
		if other == nil && v.Queue(queue) != nil {
			t.DeleteQueue(queue)
		}
	}
}
