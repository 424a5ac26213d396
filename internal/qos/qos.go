// SPDX-License-Identifier: Apache-2.0

// Package qos is the extension for Neutron's quality of service: it limits, marks and favours the traffic of ports by the
// rules of their policies.
//
// A port has the policy that it names, else that of its network. The server is asked for the policies that ports here have,
// and pushes their changes. What a policy means for a port is added to what the port wants: flows and meters (flows.go), rows
// (rows.go). Ports share the queues for minimum bandwidth on the uplinks, so these are an object of their own, and so is what
// ports that are gone have left in the database.
//
// Names in the database, numbers of tables and registers are those of the Python agent, so that either can take over from the
// other.
package qos

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/world"
)

// name is that in agent.extensions.
const name = "qos"

// own names the extension's own objects.
const own extension.Objects[ownKey] = name

type ownKey string

const (
	uplinks   ownKey = "minimum bandwidth on the uplinks"
	leftovers ownKey = "rows of ports that are gone"
)

// QoS is the extension. It belongs to the agent's loop.
type QoS struct {
	w         *world.World
	bandwidth bool // limits of bandwidth are meters, too

	policies map[string]*policy       // that ports here have, by id
	recalled map[string]*policy       // from an earlier run
	ports    map[string]port          // that have one, by id
	networks map[string]networkPolicy // policies of networks, as pushed
	meters   map[meterKey]uint32
	missing  map[extension.Item]bool // policies and networks to ask for
	touched  map[string]bool         // ports to look at again
	dirty    map[world.Object]bool   // to be compiled again
	maximum  map[string]uint32       // meters of a bridge when they were last given out
	policed  map[string]minimumClaim // queues of ports on the uplinks
	unused   map[string]bool         // policies that lost their last port while ports are settled
}

// policy is a policy of the server's.
type policy struct {
	rules    []neutron.QosRule
	label    string // its name
	revision int64
	known    bool // the server has told it, or that there is none
	pushed   bool // since it is asked for
	ports    map[string]bool
}

// port is a port with a policy.
type port struct {
	wants string // the policy that it should have
	has   string // the policy in force: it lags behind while the server is asked
}

// networkPolicy is what a push said about a network.
type networkPolicy struct {
	policy   string
	revision int64
}

// New makes the extension. Bandwidth is limited by the switch's policing and queues.
func New(w *world.World) extension.Extension { return build(w, false) }

// NewMetered makes the extension with bandwidth limited by meters, where the switch has any.
func NewMetered(w *world.World) extension.Extension { return build(w, true) }

func build(w *world.World, bandwidth bool) *QoS {
	return &QoS{
		w: w, bandwidth: bandwidth, policies: map[string]*policy{}, recalled: map[string]*policy{}, ports: map[string]port{}, networks: map[string]networkPolicy{},
		meters: map[meterKey]uint32{}, missing: map[extension.Item]bool{}, touched: map[string]bool{}, dirty: map[world.Object]bool{},
		maximum: map[string]uint32{}, policed: map[string]minimumClaim{}, unused: map[string]bool{},
	}
}

// Name implements extension.Extension.
func (*QoS) Name() string { return name }

// Resolve implements extension.Extension.
func (q *QoS) Resolve(changed []world.Object) []world.Object {
	for _, o := range changed {
		switch o := o.(type) {
		case world.PortObject:
			q.touched[string(o)] = true
		case world.BridgeObject:
			q.mark(uplinks)
			q.mark(leftovers)
			if string(o) != q.w.Config.IntegrationBridge {
				for id := range q.policed { // their flows name the bridge's patches
					q.touched[id] = true
				}
			}
		}
	}
	if !maps.Equal(q.maximum, q.w.MaxMeters) {
		q.maximum = maps.Clone(q.w.MaxMeters)
		for id := range q.ports {
			q.touched[id] = true
		}
		for _, id := range q.w.PortIDs() {
			if q.bandwidth || q.notesMeters(id) { // also one that has no policy any more: its limits, and what is written down, wait for this
				q.touched[id] = true
			}
		}
	}
	if len(q.touched) > 0 && q.hasUplinkQueues() {
		q.mark(uplinks) // whether they are still wanted may be known now
	}
	for id := range q.touched {
		q.resolve(id)
		q.dirty[world.PortObject(id)] = true
	}
	q.forgetUnused()
	clear(q.touched)
	return extension.TakeDirty(q.dirty)
}

// notesMeters says whether ids of meters are written down on a port.
func (q *QoS) notesMeters(id string) bool {
	vif := q.w.Port(id).VIF
	if vif == nil {
		return false
	}
	row := q.w.View.Port(vif.Port)
	return row != nil && slices.ContainsFunc(slices.Collect(maps.Keys(row.OtherConfig)), hasDirection)
}

func (q *QoS) mark(k ownKey) { q.dirty[own.Object(k)] = true }

// resolve works out anew which policy a port has, and gives out what is to be given out once.
func (q *QoS) resolve(id string) {
	p := q.w.Port(id)
	var want string
	if p != nil && p.Details != nil {
		want = q.policyOf(p.Details)
	}
	if p == nil || p.Details != nil { // else what it had stays, as long as nobody knows better
		next := port{wants: want}
		if want != "" {
			next.has = q.ports[id].has
			if have := q.use(want); have.known {
				next.has = want
			}
		}
		q.assign(id, next)
	}
	q.number(id)
	if claim, before := q.minimum(id), q.policed[id]; claim != before {
		q.policed[id] = claim
		if claim == (minimumClaim{}) {
			delete(q.policed, id)
		}
		q.mark(uplinks)
	}
}

// policyOf is the policy that counts for a port: its own before its network's. Ports of Neutron itself do not have their
// network's, except those that lead outside.
func (q *QoS) policyOf(d *neutron.Port) string {
	if d.QosPolicyID != "" {
		return d.QosPolicyID
	}
	internal := neutron.IsNetworkOwned(d.DeviceOwner) || strings.HasPrefix(d.DeviceOwner, "neutron:")
	gateway := strings.HasPrefix(d.DeviceOwner, "network:router_gateway") || strings.HasPrefix(d.DeviceOwner, "network:floatingip_agent_gateway")
	if internal && !gateway {
		return ""
	}
	if n, ok := q.networks[d.NetworkID]; ok {
		return n.policy
	}
	return d.QosNetworkPolicyID
}

// use returns a policy, which is asked for if it is new here.
func (q *QoS) use(id string) *policy {
	p := q.policies[id]
	if p == nil {
		p = cmp.Or(world.TakeRecalled(q.w, q.recalled, id), &policy{})
		p.ports = map[string]bool{}
		q.policies[id] = p
		q.missing[policyItem(id)] = true
	}
	return p
}

// assign notes which policies a port has.
func (q *QoS) assign(id string, next port) {
	before := q.ports[id]
	if q.ports[id] = next; next == (port{}) {
		delete(q.ports, id)
	}
	for _, policy := range []string{next.wants, next.has} {
		if policy != "" {
			q.use(policy).ports[id] = true
		}
	}
	for _, policy := range []string{before.wants, before.has} {
		if p := q.policies[policy]; p != nil && policy != next.wants && policy != next.has {
			if delete(p.ports, id); len(p.ports) == 0 {
				q.unused[policy] = true
			}
		}
	}
}

// forgetUnused forgets policies that no port has, once all ports are settled: one that goes from port to port keeps what was
// pushed about it, which may be newer than the answer that is on its way.
func (q *QoS) forgetUnused() {
	for id := range q.unused {
		if p := q.policies[id]; p != nil && len(p.ports) == 0 {
			delete(q.policies, id)
			delete(q.missing, policyItem(id))
		}
	}
	clear(q.unused)
}

// rules are those in force on a port. Not known: nothing can be said about what it should have. Otherwise waiting names the
// policy that it should have instead and the server has not told.
func (q *QoS) rules(id string) (rules []neutron.QosRule, known bool, waiting string) {
	p := q.w.Port(id)
	have, assigned := q.ports[id]
	switch {
	case p == nil || p.VIF == nil || p.VIF.OFPort == 0 || p.Wiring.State != world.Wired && p.Wiring.State != world.Down:
		return nil, false, ""
	case !assigned:
		return nil, p.Details != nil, ""
	case have.has == "":
		return nil, false, have.wants
	case have.has != have.wants:
		waiting = have.wants
	}
	return q.policies[have.has].rules, true, waiting
}

// OnRows implements extension.RowHandler.
func (q *QoS) OnRows(b *ovsdb.Batch) {
	for _, d := range b.QoS {
		for _, row := range []*ovsdb.QoS{d.Old, d.New} {
			if row != nil {
				q.touchOwner(row.ExternalIDs["id"])
			}
		}
	}
	for _, d := range b.Queues {
		for _, row := range []*ovsdb.Queue{d.Old, d.New} {
			if row != nil {
				q.touchOwner(row.ExternalIDs["port"])
			}
		}
	}
	for _, d := range b.Ports {
		if d.New == nil {
			q.mark(leftovers)
		}
	}
	if len(b.QoS)+len(b.Queues) > 0 || len(q.policed) > 0 && len(b.Ports)+len(b.Interfaces) > 0 {
		q.mark(uplinks)
		q.mark(leftovers)
	}
}

// touchOwner looks again at the port whose interface has the name.
func (q *QoS) touchOwner(name string) {
	if i := q.w.View.InterfaceByName(name); i != nil {
		if id := i.ExternalIDs["iface-id"]; q.w.Port(id) != nil {
			q.touched[id] = true
		}
	}
}
