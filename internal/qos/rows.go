// SPDX-License-Identifier: Apache-2.0

package qos

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/pipeline"
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
		if later, ok := p.OtherConfig[keys[1]]; ok && later != want {
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

// minimumClaim is the queue that a port has on the uplinks. The zero value is none.
type minimumClaim struct {
	number uint32 // of the queue
	kbps   int
}

// minimum is what a port claims of the uplinks.
func (q *QoS) minimum(id string) minimumClaim {
	rules, _, _ := q.rules(id)
	rule := find(rules, minimumBandwidth, egress)
	if rule == nil {
		return minimumClaim{}
	}
	return minimumClaim{q.w.Port(id).VIF.OFPort, rule.MinKbps}
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
	isOurs := func(q *ovsdb.QoS) bool { return q.ExternalIDs["_type"] == minimumType }
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
	// Queues and rows that nobody has any more, the Python agent's of earlier runs among them.
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
	for queue := range v.Queues() {
		if queue.ExternalIDs["type"] == minimumType && !claimed[queue.UUID] && !keep[queue.UUID] {
			tx.DeleteQueue(queue.UUID)
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
