// SPDX-License-Identifier: Apache-2.0

package qos

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
)

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

// Save implements extension.Saver.
func (q *QoS) Save() any {
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

// Load implements extension.Saver.
func (q *QoS) Load(data json.RawMessage) error {
	var m memory
	if err := json.Unmarshal(data, &m); err != nil {
		return err
	}
	for _, p := range m.Policies {
		q.recalled[p.ID] = &policy{rules: p.Rules, label: p.Name, revision: p.Revision, known: true}
	}
	for id, n := range m.Networks {
		q.networks[id] = networkPolicy{n.Policy, n.Revision}
		q.missing[extension.Item{Kind: neutron.KindNetwork, ID: id}] = true
	}
	return nil
}
