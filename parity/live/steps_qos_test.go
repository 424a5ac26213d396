// SPDX-License-Identifier: Apache-2.0

//go:build parity

package live

import (
	"context"
	"fmt"
	"maps"
	"net/http"

	"github.com/patchbay-sdn/patchbay/lab"
)

// policed are the attributes of a port or network with a QoS policy.
func policed(policy ref) attrs { return attrs{"qos_policy_id": policy} }

// unpoliced takes it away.
var unpoliced = attrs{"qos_policy_id": nil}

// limitKind is a kind of QoS rules, as its path in the API names it.
type limitKind string

const (
	bandwidth      limitKind = "bandwidth_limit_rule"
	packetRate     limitKind = "packet_rate_limit_rule"
	dscp           limitKind = "dscp_marking_rule"
	minimum        limitKind = "minimum_bandwidth_rule"
	minimumPackets limitKind = "minimum_packet_rate_rule"
)

// limit is a rule of a policy, and what it says.
type limit struct {
	kind limitKind
	says attrs
}

func limited(kind limitKind, says ...attrs) limit {
	l := limit{kind, attrs{}}
	for _, a := range says {
		maps.Copy(l.says, a)
	}
	return l
}

// The words of limits.
var fromPort, toPort = attrs{"direction": "egress"}, attrs{"direction": "ingress"}

func kbps(most, burst int) attrs { return attrs{"max_kbps": most, "max_burst_kbps": burst} }
func kpps(most, burst int) attrs { return attrs{"max_kpps": most, "max_burst_kpps": burst} }
func mark(n int) attrs           { return attrs{"dscp_mark": n} }

// policy creates a QoS policy. Its rules are called Q1.1, Q1.2 …
func policy(name string, limits ...limit) step {
	return step{text: fmt.Sprintf("QoS policy %s is created with %v", name, limits), do: func(ctx context.Context, p *play) error {
		if err := p.create(ctx, "qos/policies", "policy", attrs{"name": name, "tenant_id": lab.Project}, &thing{name: name, kind: 'e'}); err != nil {
			return err
		}
		for i, l := range limits {
			if err := p.addLimit(ctx, fmt.Sprintf("%s.%d", name, i+1), name, l); err != nil {
				return err
			}
		}
		return nil
	}}
}

func (p *play) addLimit(ctx context.Context, name, policy string, l limit) error {
	answer := map[string]struct{ ID string }{}
	path := "qos/policies/" + p.things[policy].id + "/" + string(l.kind) + "s"
	if err := p.api(ctx, http.MethodPost, path, attrs{string(l.kind): l.says}, &answer); err != nil {
		return err
	}
	p.made(&thing{name: name, id: answer[string(l.kind)].ID, kind: '9'})
	return nil
}

// addLimit adds a rule to a policy.
func addLimit(name, policy string, l limit) step {
	return step{text: fmt.Sprintf("QoS policy %s gets %v", policy, l), do: func(ctx context.Context, p *play) error {
		return p.addLimit(ctx, name, policy, l)
	}}
}

// changeLimit changes a rule of a policy.
func changeLimit(name, policy string, l limit) step {
	return step{text: fmt.Sprintf("rule %s becomes %v", name, l), do: func(ctx context.Context, p *play) error {
		path := "qos/policies/" + p.things[policy].id + "/" + string(l.kind) + "s/" + p.things[name].id
		return p.api(ctx, http.MethodPut, path, attrs{string(l.kind): l.says}, nil)
	}}
}

// dropLimit deletes a rule of a policy.
func dropLimit(name, policy string, kind limitKind) step {
	return step{text: "rule " + name + " is deleted", do: func(ctx context.Context, p *play) error {
		return p.api(ctx, http.MethodDelete, "qos/policies/"+p.things[policy].id+"/"+string(kind)+"s/"+p.things[name].id, nil, nil)
	}}
}
