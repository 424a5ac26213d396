// SPDX-License-Identifier: Apache-2.0

package qos

import (
	"errors"

	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
)

// Kinds implements extension.PushHandler.
func (*QoS) Kinds() []neutron.Kind { return []neutron.Kind{neutron.KindQosPolicy, neutron.KindNetwork} }

// OnPush implements extension.PushHandler.
func (q *QoS) OnPush(p *neutron.Push) error {
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
	q.networks[n.ID] = networkPolicy{n.QosPolicyID, n.Revision}
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

// Resync implements extension.Resyncer. Networks about which there was no push need not be asked for: ports, which are asked
// for again, tell their network's policy.
func (q *QoS) Resync() {
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

// Missing implements extension.Puller.
func (q *QoS) Missing() []extension.Item { return extension.Sorted(q.missing) }

// OnPulled implements extension.Puller. What was pushed since the question left is newer, unless the answer's revision says
// otherwise; then the question is asked again, and its answer counts.
func (q *QoS) OnPulled(kind neutron.Kind, asked []string, found []neutron.Primitive) error {
	if kind == neutron.KindNetwork {
		return q.answerNetworks(asked, found)
	}
	policies, err := neutron.DecodeAll[neutron.QosPolicy](kind, found)
	byID := map[string]*neutron.QosPolicy{}
	for i := range policies {
		byID[policies[i].ID] = &policies[i]
	}
	for _, id := range asked {
		have, p := q.policies[id], byID[id]
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
