// SPDX-License-Identifier: Apache-2.0

package qos

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
)

// What rows say about themselves, as the Python agent writes it.
const (
	limitType   = "bandwidth_limit"
	minimumType = "minimum_bandwidth"

	queuing  = "linux-htb"
	policing = "egress-policer" // of vhost-user ports

	maxRate = 1<<35 - 1 // bit/s, which the switch takes for no limit
	si      = 1000

	// uplinkID is the id of the QoS row of the uplinks. The Python agent has one at random in every run, and leaves the row
	// of the last run behind.
	uplinkID = "patchbay"
)

func hasDirection(key string) bool {
	return strings.HasSuffix(key, "_"+egress) || strings.HasSuffix(key, "_"+ingress)
}

// limitRow wants the limits of one port, and that it has no others.
type limitRow struct {
	port, iface     ovsdb.UUID
	name, id        string
	egress, ingress *neutron.QosRule // nil: no limit
	meters          map[string]uint32
	unsure          bool // what meters there can be is not known yet: what is written down stays
}

// Add implements pipeline.Row.
func (r limitRow) Add(tx *ovsdb.Tx, v *ovsdb.View) {
	p, i := v.Port(r.port), v.Interface(r.iface)
	if p == nil || i == nil {
		return // unplugged
	}
	rate, burst := 0, 0
	if r.egress != nil {
		if rate, burst = r.egress.MaxKbps, r.egress.MaxBurstKbps; burst == 0 {
			burst = int(0.8 * float64(rate)) // enough for TCP to come near the limit
		}
	}
	if i.IngressPolicingRate != rate || i.IngressPolicingBurst != burst {
		tx.Interface(r.iface).SetIngressPolicing(rate, burst)
	}
	if strings.HasPrefix(i.Type, "dpdkvhostuser") {
		r.police(tx, v, p)
	} else {
		r.queue(tx, v, p)
	}
	r.noteMeters(tx, p)
}

// noteMeters writes down the ids of the port's meters, for the next run and for whoever takes over.
func (r limitRow) noteMeters(tx *ovsdb.Tx, p *ovsdb.Port) {
	if r.unsure {
		return
	}
	for _, direction := range []string{egress, ingress} {
		keys := meterKey{r.id, direction}.keys()
		want, old := "", p.OtherConfig[keys[0]]
		if n := r.meters[direction]; n != 0 {
			want = strconv.Itoa(int(n))
		}
		switch {
		case want == "" && old != "":
			tx.Port(r.port).RemoveOtherConfig(keys[0])
		case want != old:
			tx.Port(r.port).MergeOtherConfig(map[string]string{keys[0]: want})
		}
		if earlier, ok := p.OtherConfig[keys[1]]; ok && earlier != want {
			tx.Port(r.port).RemoveOtherConfig(keys[1])
		}
	}
}

// queue wants a limit of what the port receives, by a queue of its own that everything goes through.
func (r limitRow) queue(tx *ovsdb.Tx, v *ovsdb.View, p *ovsdb.Port) {
	qos := findQoS(v, func(q *ovsdb.QoS) bool { return q.ExternalIDs["id"] == r.name && q.ExternalIDs["_type"] == limitType })
	queue := findQueue(v, r.name, limitType)
	if r.ingress == nil {
		if qos != nil {
			if p.QoS == qos.UUID {
				tx.Port(r.port).ClearQoS()
			}
			deleteQoS(tx, v, qos)
		}
		if queue != nil && (qos == nil || !slices.Contains(slices.Collect(maps.Values(qos.Queues)), queue.UUID)) {
			tx.DeleteQueue(queue.UUID)
		}
		return
	}
	config := map[string]string{}
	if r.ingress.MaxKbps > 0 {
		config["max-rate"], config["burst"] = kilo(r.ingress.MaxKbps), kilo(r.ingress.MaxBurstKbps)
	}
	ref := ensureQueue(tx, queue, config, map[string]string{"port": r.name, "type": limitType, "queue-num": "0"})
	if qos == nil {
		tx.Port(r.port).SetQoS(tx.InsertQoS(newQoS(r.name, limitType), map[int]ovsdb.Ref{defaultRate: ref}))
		return
	}
	if queue == nil || qos.Queues[defaultRate] != queue.UUID {
		tx.QoS(qos.UUID).SetQueue(defaultRate, ref)
	}
	if p.QoS != qos.UUID {
		tx.Port(r.port).SetQoS(ovsdb.RefTo(qos.UUID))
	}
}

// police does the same for a port that has no queues. The rates are in bytes here.
func (r limitRow) police(tx *ovsdb.Tx, v *ovsdb.View, p *ovsdb.Port) {
	qos := findQoS(v, func(q *ovsdb.QoS) bool { return q.ExternalIDs["id"] == r.name && q.Type == policing })
	if r.ingress == nil {
		if qos != nil {
			if p.QoS == qos.UUID {
				tx.Port(r.port).ClearQoS()
			}
			tx.DeleteQoS(qos.UUID)
		}
		return
	}
	config := map[string]string{
		"cir": strconv.Itoa(r.ingress.MaxKbps * si / 8), "cbs": strconv.Itoa(r.ingress.MaxBurstKbps * si / 8),
	}
	switch {
	case qos == nil:
		tx.Port(r.port).SetQoS(tx.InsertQoS(ovsdb.QoS{Type: policing, OtherConfig: config, ExternalIDs: map[string]string{"id": r.name}}, nil))
		return
	case qos.OtherConfig["cir"] != config["cir"] || qos.OtherConfig["cbs"] != config["cbs"]:
		tx.QoS(qos.UUID).MergeOtherConfig(config)
	}
	if p.QoS != qos.UUID {
		tx.Port(r.port).SetQoS(ovsdb.RefTo(qos.UUID))
	}
}

func kilo(n int) string { return strconv.Itoa(n * si) }

func newQoS(id, kind string) ovsdb.QoS {
	return ovsdb.QoS{
		Type: queuing, OtherConfig: map[string]string{"max-rate": strconv.Itoa(maxRate)}, ExternalIDs: map[string]string{"id": id, "_type": kind},
	}
}

// findQoS finds a row; of several the first by its identity, so that all who look find the same.
func findQoS(v *ovsdb.View, is func(*ovsdb.QoS) bool) *ovsdb.QoS {
	var found *ovsdb.QoS
	for q := range v.AllQoS() {
		if is(q) && (found == nil || q.UUID < found.UUID) {
			found = q
		}
	}
	return found
}

func findQueue(v *ovsdb.View, port, kind string) *ovsdb.Queue {
	var found *ovsdb.Queue
	for q := range v.Queues() {
		if q.ExternalIDs["port"] == port && q.ExternalIDs["type"] == kind && (found == nil || q.UUID < found.UUID) {
			found = q
		}
	}
	return found
}

// ensureQueue makes a queue, or brings one in line.
func ensureQueue(tx *ovsdb.Tx, have *ovsdb.Queue, config, ids map[string]string) ovsdb.Ref {
	if have == nil {
		return tx.InsertQueue(ovsdb.Queue{OtherConfig: config, ExternalIDs: ids})
	}
	for k, want := range config {
		if have.OtherConfig[k] != want {
			tx.Queue(have.UUID).MergeOtherConfig(map[string]string{k: want})
		}
	}
	for _, k := range []string{"max-rate", "min-rate", "burst"} {
		if _, wanted := config[k]; !wanted && have.OtherConfig[k] != "" {
			tx.Queue(have.UUID).RemoveOtherConfig(k)
		}
	}
	for k, want := range ids {
		if have.ExternalIDs[k] != want {
			tx.Queue(have.UUID).MergeExternalIDs(map[string]string{k: want})
		}
	}
	return ovsdb.RefTo(have.UUID)
}

// deleteQoS deletes a row with those of its queues that no other row has.
func deleteQoS(tx *ovsdb.Tx, v *ovsdb.View, qos *ovsdb.QoS) {
	tx.DeleteQoS(qos.UUID)
	for _, n := range slices.Sorted(maps.Keys(qos.Queues)) {
		queue := qos.Queues[n]
		other := findQoS(v, func(q *ovsdb.QoS) bool {
			return q.UUID != qos.UUID && slices.Contains(slices.Collect(maps.Values(q.Queues)), queue)
		})
		if other == nil && v.Queue(queue) != nil {
			tx.DeleteQueue(queue)
		}
	}
}

// leftoverRow wants the limits of ports to go that are gone: the database collects a port's rows, but not these.
type leftoverRow struct{}

// Add implements pipeline.Row.
func (leftoverRow) Add(tx *ovsdb.Tx, v *ovsdb.View) {
	gone := func(name string) bool { return name != "" && v.PortByName(name) == nil }
	deleted := map[ovsdb.UUID]bool{}
	used := map[ovsdb.UUID]bool{}
	for p := range v.Ports() {
		used[p.QoS] = true
	}
	for _, q := range slices.SortedFunc(v.AllQoS(), func(a, b *ovsdb.QoS) int { return strings.Compare(string(a.UUID), string(b.UUID)) }) {
		ours := q.ExternalIDs["_type"] == limitType || q.Type == policing && len(q.ExternalIDs) == 1
		if ours && gone(q.ExternalIDs["id"]) && !used[q.UUID] {
			deleteQoS(tx, v, q)
			for _, queue := range q.Queues {
				deleted[queue] = true
			}
		}
	}
	for _, q := range slices.SortedFunc(v.Queues(), func(a, b *ovsdb.Queue) int { return strings.Compare(string(a.UUID), string(b.UUID)) }) {
		if q.ExternalIDs["type"] != limitType || !gone(q.ExternalIDs["port"]) || deleted[q.UUID] {
			continue
		}
		if findQoS(v, func(o *ovsdb.QoS) bool { return slices.Contains(slices.Collect(maps.Values(o.Queues)), q.UUID) }) == nil {
			tx.DeleteQueue(q.UUID)
		}
	}
}
