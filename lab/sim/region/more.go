// SPDX-License-Identifier: Apache-2.0

package region

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// What extensions of agents ask for: policies of quality of service, and addresses of distributed routers.

// Policy is a policy of quality of service.
type Policy struct {
	ID, Name, Project string
	Rules             []PolicyRule
	stamp
}

// PolicyRule is a rule of a policy: the name of its object, such as QosDscpMarkingRule, and what it says.
type PolicyRule struct {
	Kind   string
	Fields map[string]any
	id     string
}

func (p *Policy) object() primitive {
	rules := []primitive{}
	for _, r := range p.Rules {
		f := fields{"id": r.id, "qos_policy_id": p.ID}
		for k, v := range r.Fields {
			f[k] = v
		}
		rules = append(rules, part(r.Kind, "1.5", f))
	}
	return whole("QosPolicy", fields{
		"id": p.ID, "name": p.Name, "project_id": p.Project, "description": "", "shared": false, "is_default": false, "rules": rules,
	}.stamped(p.stamp))
}

// CreatePolicy makes a policy.
func (s *Region) CreatePolicy(ctx context.Context, name string, rules ...PolicyRule) (id string, err error) {
	err = s.do(ctx, func() error {
		p := &Policy{ID: s.newID(), Name: name, Rules: s.identified(rules), stamp: born()}
		p.Revision = 1
		s.policies[p.ID], id = p, p.ID
		return nil
	})
	return id, err
}

// identified gives rules their ids.
func (s *Region) identified(rules []PolicyRule) []PolicyRule {
	rules = slices.Clone(rules)
	for i := range rules {
		rules[i].id = s.newID()
	}
	return rules
}

// ChangePolicy gives a policy other rules, and tells all agents.
func (s *Region) ChangePolicy(ctx context.Context, id string, rules ...PolicyRule) error {
	return s.do(ctx, func() error {
		p := s.policies[id]
		if p == nil {
			return notFound("policy", id)
		}
		p.Rules = s.identified(rules)
		p.touch()
		s.pushedNow("QosPolicy", "updated", p.object())
		return nil
	})
}

// SetNetworkPolicy gives a network a policy, or none, and tells all agents.
func (s *Region) SetNetworkPolicy(ctx context.Context, network, policy string) error {
	return s.do(ctx, func() error {
		n := s.networks[network]
		if n == nil {
			return notFound("network", network)
		}
		if policy != "" && s.policies[policy] == nil {
			return notFound("policy", policy)
		}
		n.Policy = policy
		n.touch()
		for _, p := range s.onNetwork[network] {
			p.wire = nil
		}
		s.pushed("Network", n.ID)
		return nil
	})
}

// AddRouters pretends that so many more hosts have distributed routers, and tells all agents.
func (s *Region) AddRouters(ctx context.Context, hosts int) error {
	return s.do(ctx, func() error {
		for range hosts {
			s.router(fmt.Sprintf("elsewhere-%d", len(s.routers)))
		}
		s.castRouters()
		return nil
	})
}

// router is the router address of a host, which it is given when there is none.
func (s *Region) router(host string) string {
	if s.routers[host] == "" {
		n := len(s.routers) + 1
		s.routers[host] = fmt.Sprintf("fa:16:3f:%02x:%02x:%02x", n>>16&0xff, n>>8&0xff, n&0xff)
	}
	return s.routers[host]
}

func (s *Region) routerList() []fields {
	list := []fields{}
	for host, mac := range s.routers {
		list = append(list, fields{"host": host, "mac_address": mac})
	}
	return list
}

func (s *Region) castRouters() {
	s.castNow("", messaging.Target{Topic: "q-agent-notifier-dvr-update", Fanout: true, Version: "1.0"}, "dvr_mac_address_update",
		fields{"dvr_macs": s.routerList()})
}

func (s *Region) routerAddresses(json.RawMessage) (any, error) { return s.routerList(), nil }

func (s *Region) routerAddress(raw json.RawMessage) (any, error) {
	args, err := arguments[struct {
		Host string `json:"host"`
	}](raw)
	if err != nil {
		return nil, err
	}
	known := s.routers[args.Host] != ""
	mac := s.router(args.Host)
	if !known {
		s.castRouters()
	}
	return fields{"host": args.Host, "mac_address": mac}, nil
}

// routedSubnet is what agents ask about a subnet with routers.
func (s *Region) routedSubnet(raw json.RawMessage) (any, error) {
	args, err := arguments[struct {
		Subnet string `json:"subnet"`
	}](raw)
	if err != nil {
		return nil, err
	}
	sub := s.subnets[args.Subnet]
	if sub == nil {
		return fields{}, nil
	}
	f := fields{"id": sub.ID, "network_id": sub.NetworkID, "cidr": sub.CIDR.String(), "gateway_ip": nil}
	if sub.Gateway.IsValid() {
		f["gateway_ip"] = sub.Gateway.String()
	}
	for _, p := range s.onNetwork[sub.NetworkID] {
		if slices.Contains(p.FixedIPs, FixedIP{sub.ID, sub.Gateway}) {
			f["gateway_mac"] = p.MAC
		}
	}
	return f, nil
}
