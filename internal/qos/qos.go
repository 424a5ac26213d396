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
	"encoding/json"
	"errors"
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

// The extension's own objects.
const (
	uplinks   = "minimum bandwidth on the uplinks"
	leftovers = "rows of ports that are gone"
)

// QoS is the extension. It belongs to the agent's loop.
type QoS struct {
	extension.Nothing
	w *world.World

	policies map[string]*policy // that ports here have, by id
	recalled map[string]*policy // from an earlier run
	ports    map[string]port    // that have one, by id
	networks map[string]told    // policies of networks, as pushed
	meters   map[meterKey]uint32
	missing  map[extension.Item]bool // policies and networks to ask for
	touched  map[string]bool         // ports to look at again
	dirty    map[world.Object]bool   // to be compiled again
	maximum  map[string]uint32       // meters of a bridge when they were last given out
	policed  map[string]minimumClaim // queues of ports on the uplinks
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

// told is what a push said about a network.
type told struct {
	policy   string
	revision int64
}

// New makes the extension.
func New(w *world.World) extension.Extension {
	return &QoS{
		w: w, policies: map[string]*policy{}, recalled: map[string]*policy{}, ports: map[string]port{}, networks: map[string]told{},
		meters: map[meterKey]uint32{}, missing: map[extension.Item]bool{}, touched: map[string]bool{}, dirty: map[world.Object]bool{},
		maximum: map[string]uint32{}, policed: map[string]minimumClaim{},
	}
}

// Name implements extension.Extension.
func (*QoS) Name() string { return name }

// Listens implements extension.Extension.
func (*QoS) Listens() extension.Listens {
	return extension.Listens{Kinds: []neutron.Kind{neutron.KindQosPolicy, neutron.KindNetwork}}
}

// Push implements extension.Extension.
func (q *QoS) Push(p *neutron.Push) error {
	if p.Event == neutron.Deleted {
		return nil // a policy or network goes when nothing here uses it any more
	}
	var errs []error // each object counts alone
	for _, o := range p.Objects {
		if p.Kind == neutron.KindNetwork {
			errs = append(errs, q.pushNetwork(o))
		} else {
			errs = append(errs, q.pushPolicy(o))
		}
	}
	return errors.Join(errs...)
}

// pushPolicy takes what was pushed about a policy. It settles no question: a push has the revision of before the change that it
// tells, so of two changes that the server makes at once the older may come last, and nothing tells it from the newer one.
func (q *QoS) pushPolicy(o neutron.Primitive) error {
	var p neutron.QosPolicy
	if err := o.Decode(neutron.KindQosPolicy, &p); err != nil {
		return err
	}
	if have := q.policies[p.ID]; have != nil && (!have.known || p.Revision >= have.revision) {
		q.learn(p.ID, &p)
		have.pushed = q.missing[policyItem(p.ID)]
	}
	return nil
}

// pushNetwork takes the policy of a network. Once it was pushed it counts, since every change is; what the server says with
// a port may be older.
func (q *QoS) pushNetwork(o neutron.Primitive) error {
	var n neutron.Network
	if err := o.Decode(neutron.KindNetwork, &n); err != nil {
		return err
	}
	here, unknown := q.portsOf(n.ID)
	before, known := q.networks[n.ID] // once kept it is kept up to date, ports or not
	if known && n.Revision < before.revision || !known && len(here) == 0 && !unknown {
		return nil
	}
	q.learnNetwork(&n, here)
	return nil
}

func (q *QoS) learnNetwork(n *neutron.Network, ports []string) {
	delete(q.missing, extension.Item{Kind: neutron.KindNetwork, ID: n.ID})
	q.networks[n.ID] = told{n.QosPolicyID, n.Revision}
	for _, id := range ports {
		q.touched[id] = true
	}
}

// portsOf lists the ports of a network, and tells whether there are ports of which nobody knows the network.
func (q *QoS) portsOf(network string) (ids []string, unknown bool) {
	for _, id := range q.w.PortIDs() {
		switch p := q.w.Port(id); {
		case p.Details == nil:
			unknown = true
		case p.Details.NetworkID == network:
			ids = append(ids, id)
		}
	}
	return ids, unknown
}

// learn takes what the server says about a policy; nil if there is none.
func (q *QoS) learn(id string, p *neutron.QosPolicy) {
	have := q.policies[id]
	have.known, have.rules = true, nil
	if p != nil {
		have.rules, have.label, have.revision = p.Rules, p.Name, p.Revision
	}
	for port := range have.ports {
		q.touched[port] = true
	}
}

func policyItem(id string) extension.Item {
	return extension.Item{Kind: neutron.KindQosPolicy, ID: id}
}

// Doubt implements extension.Extension. Networks about which there was no push need not be asked for: ports, which are asked
// for again, tell their network's policy.
func (q *QoS) Doubt() {
	for id, p := range q.policies {
		q.missing[policyItem(id)], p.pushed = true, false
	}
	for id := range q.networks {
		if here, _ := q.portsOf(id); len(here) == 0 {
			delete(q.networks, id)
			delete(q.missing, extension.Item{Kind: neutron.KindNetwork, ID: id})
			continue
		}
		q.missing[extension.Item{Kind: neutron.KindNetwork, ID: id}] = true
	}
}

// Missing implements extension.Extension.
func (q *QoS) Missing() []extension.Item {
	if len(q.missing) == 0 {
		return nil
	}
	return slices.SortedFunc(maps.Keys(q.missing), func(a, b extension.Item) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.ID, b.ID))
	})
}

// Answer implements extension.Extension. What was pushed since the question left is newer, unless the answer's revision says
// otherwise; then the question is asked again, and its answer counts.
func (q *QoS) Answer(kind neutron.Kind, asked []string, found []neutron.Primitive) error {
	if kind == neutron.KindNetwork {
		return q.answerNetworks(asked, found)
	}
	policies, err := neutron.DecodeAll[neutron.QosPolicy](kind, found)
	told := map[string]*neutron.QosPolicy{}
	for i := range policies {
		told[policies[i].ID] = &policies[i]
	}
	for _, id := range asked {
		have, p := q.policies[id], told[id]
		switch {
		case !q.missing[policyItem(id)], p == nil && err != nil: // one that cannot be read is asked for again
		case have.pushed && (p == nil || p.Revision <= have.revision):
			have.pushed = false
		default:
			delete(q.missing, policyItem(id))
			have.pushed = false
			q.learn(id, p)
		}
	}
	return err
}

func (q *QoS) answerNetworks(asked []string, found []neutron.Primitive) error {
	networks, err := neutron.DecodeAll[neutron.Network](neutron.KindNetwork, found)
	for i := range networks {
		if n := &networks[i]; q.missing[extension.Item{Kind: neutron.KindNetwork, ID: n.ID}] {
			here, _ := q.portsOf(n.ID)
			q.learnNetwork(n, here)
		}
	}
	if err != nil {
		return err
	}
	for _, id := range asked {
		delete(q.missing, extension.Item{Kind: neutron.KindNetwork, ID: id}) // one that is gone has no ports for long
	}
	return nil
}

// Settle implements extension.Extension.
func (q *QoS) Settle(changed []world.Object) []world.Object {
	for _, o := range changed {
		switch o.Kind {
		case world.KindPort:
			q.touched[o.ID] = true
		case world.KindBridge:
			q.own(uplinks)
			q.own(leftovers)
			if o.ID != q.w.Config.IntegrationBridge {
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
			if q.notesMeters(id) { // also one that has no policy any more: what is written down waits for this
				q.touched[id] = true
			}
		}
	}
	if len(q.touched) > 0 && q.hasUplinkQueues() {
		q.own(uplinks) // whether they are still wanted may be known now
	}
	for id := range q.touched {
		q.settle(id)
		q.dirty[world.Object{Kind: world.KindPort, ID: id}] = true
	}
	clear(q.touched)
	out := slices.Collect(maps.Keys(q.dirty))
	clear(q.dirty)
	return out
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

func (q *QoS) own(id string) { q.dirty[extension.Own(name, id)] = true }

// settle works out anew which policy a port has, and gives out what is to be given out once.
func (q *QoS) settle(id string) {
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
		q.own(uplinks)
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
		p = cmp.Or(q.recalled[id], &policy{})
		delete(q.recalled, id)
		p.ports = map[string]bool{}
		q.policies[id] = p
		q.missing[policyItem(id)] = true
	}
	return p
}

// assign notes which policies a port has. One that no port has is forgotten.
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
				delete(q.policies, policy)
				delete(q.missing, policyItem(policy))
			}
		}
	}
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

// Rows implements extension.Extension.
func (q *QoS) Rows(b *ovsdb.Batch) {
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
			q.own(leftovers)
		}
	}
	if len(b.QoS)+len(b.Queues) > 0 || len(q.policed) > 0 && len(b.Ports)+len(b.Interfaces) > 0 {
		q.own(uplinks)
		q.own(leftovers)
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

// memory is what an earlier run knew.
type memory struct {
	Policies []policyMemory           `json:"policies"`
	Networks map[string]networkMemory `json:"networks,omitempty"` // of ports here, as far as they were pushed
}

type networkMemory struct {
	Policy   string `json:"policy"`
	Revision int64  `json:"revision"`
}

type policyMemory struct {
	ID       string            `json:"id"`
	Name     string            `json:"name,omitempty"`
	Revision int64             `json:"revision"`
	Rules    []neutron.QosRule `json:"rules"`
}

// Remember implements extension.Extension.
func (q *QoS) Remember() any {
	m := memory{Networks: map[string]networkMemory{}}
	for _, id := range slices.Sorted(maps.Keys(q.policies)) {
		if p := q.policies[id]; p.known {
			m.Policies = append(m.Policies, policyMemory{id, p.label, p.revision, p.rules})
		}
	}
	for id, n := range q.networks {
		if here, _ := q.portsOf(id); len(here) > 0 {
			m.Networks[id] = networkMemory{n.policy, n.revision}
		}
	}
	return m
}

// Recall implements extension.Extension.
func (q *QoS) Recall(data json.RawMessage) error {
	var m memory
	if err := json.Unmarshal(data, &m); err != nil {
		return err
	}
	for _, p := range m.Policies {
		q.recalled[p.ID] = &policy{rules: p.Rules, label: p.Name, revision: p.Revision, known: true}
	}
	for id, n := range m.Networks {
		q.networks[id] = told{n.Policy, n.Revision}
		q.missing[extension.Item{Kind: neutron.KindNetwork, ID: id}] = true
	}
	return nil
}
