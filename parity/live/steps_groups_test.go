// SPDX-License-Identifier: Apache-2.0

//go:build parity

package live

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"

	"github.com/patchbay-sdn/patchbay/lab"
	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// ref stands for the id of something that the scenario made, by its name.
type ref string

// groups are the attributes of a port that is in security groups.
func groups(names ...ref) attrs {
	if names == nil {
		names = []ref{}
	}
	return attrs{"security_groups": names}
}

// pair is an allowed address pair; without a MAC it gets the port's.
func pair(ip, mac string) attrs {
	a := attrs{"ip_address": ip}
	if mac != "" {
		a["mac_address"] = mac
	}
	return a
}

// pairs are the attributes of a port with these address pairs.
func pairs(list ...attrs) attrs {
	if list == nil {
		list = []attrs{}
	}
	return attrs{"allowed_address_pairs": list}
}

// unsecured are the attributes of a port without port security.
var unsecured = attrs{"port_security_enabled": false, "security_groups": []string{}}

// trusted are the attributes of a port that is the network's own; the server wants it to be in no group.
func trusted(owner string) attrs {
	return attrs{"device_owner": "network:" + owner, "security_groups": []string{}}
}

// resolve puts ids in the place of names.
func (p *play) resolve(a attrs) (attrs, error) {
	id := func(r ref) (string, error) {
		if t := p.things[string(r)]; t != nil {
			return t.id, nil
		}
		return "", fmt.Errorf("nothing is called %q", r)
	}
	done := maps.Clone(a)
	for key, value := range a {
		switch v := value.(type) {
		case ref:
			one, err := id(v)
			if err != nil {
				return nil, err
			}
			done[key] = one
		case []ref:
			ids := []string{}
			for _, r := range v {
				one, err := id(r)
				if err != nil {
					return nil, err
				}
				ids = append(ids, one)
			}
			done[key] = ids
		}
	}
	return done, nil
}

// The words of rules. Each says one thing, and a rule says several: rule(in, tcp, ports(80, 80), from("G2")).
var (
	in  = attrs{"direction": "ingress"}
	out = attrs{"direction": "egress"}
	v4  = attrs{"ethertype": "IPv4"}
	v6  = attrs{"ethertype": "IPv6"}
	tcp = proto("tcp")
	udp = proto("udp")
)

func proto(name string) attrs { return attrs{"protocol": name} }

// ports are destination ports.
func ports(low, high int) attrs { return attrs{"port_range_min": low, "port_range_max": high} }

// icmp is a type of ICMP, and a code unless it is negative.
func icmp(kind, code int) attrs {
	if code < 0 {
		return attrs{"port_range_min": kind}
	}
	return ports(kind, code)
}

// cidr, members and addresses say who is on the other side.
func cidr(prefix string) attrs      { return attrs{"remote_ip_prefix": prefix} }
func members(group ref) attrs       { return attrs{"remote_group_id": group} }
func listed(addressGroup ref) attrs { return attrs{"remote_address_group_id": addressGroup} }

// rule puts words together. Without another word it is for IPv4.
func rule(words ...attrs) attrs {
	r := maps.Clone(v4)
	for _, w := range words {
		maps.Copy(r, w)
	}
	return r
}

// group creates a security group with the given rules and no others: the two for egress that the server adds are taken away.
func group(name string, rules ...attrs) step {
	text := "security group " + name + " is created without rules"
	if len(rules) > 0 {
		text = fmt.Sprintf("security group %s is created with the rules %v", name, rules)
	}
	return step{text: text, do: func(ctx context.Context, p *play) error {
		var answer struct {
			Group struct {
				ID    string
				Rules []struct{ ID string } `json:"security_group_rules"`
			} `json:"security_group"`
		}
		body := attrs{"security_group": attrs{"name": name, "tenant_id": lab.Project}}
		if err := p.api(ctx, http.MethodPost, "security-groups", body, &answer); err != nil {
			return err
		}
		t := &thing{name: name, id: answer.Group.ID, kind: 'c'}
		p.made(t)
		p.undo = append(p.undo, func(ctx context.Context) error {
			return absent(p.api(ctx, http.MethodDelete, "security-groups/"+t.id, nil, nil))
		})
		for _, r := range answer.Group.Rules {
			if err := p.api(ctx, http.MethodDelete, "security-group-rules/"+r.ID, nil, nil); err != nil {
				return err
			}
		}
		for i, r := range rules {
			if err := p.addRule(ctx, fmt.Sprintf("%s.%d", name, i+1), name, r); err != nil {
				return err
			}
		}
		return nil
	}}
}

func (p *play) addRule(ctx context.Context, name, group string, r attrs) error {
	body, err := p.resolve(r)
	if err != nil {
		return err
	}
	body["security_group_id"], body["tenant_id"] = p.things[group].id, lab.Project
	var answer struct {
		Rule struct{ ID string } `json:"security_group_rule"`
	}
	if err := p.api(ctx, http.MethodPost, "security-group-rules", attrs{"security_group_rule": body}, &answer); err != nil {
		return err
	}
	p.made(&thing{name: name, id: answer.Rule.ID, kind: 'd'})
	return nil
}

// addRule adds a rule, under a name by which dropRule takes it away. The rules of group are called G.1, G.2 …
func addRule(name, group string, r attrs) step {
	return step{text: fmt.Sprintf("group %s gets the rule %s: %v", group, name, r), do: func(ctx context.Context, p *play) error {
		return p.addRule(ctx, name, group, r)
	}}
}

func dropRule(name string) step {
	return step{text: "rule " + name + " is deleted", do: func(ctx context.Context, p *play) error {
		return p.api(ctx, http.MethodDelete, "security-group-rules/"+p.things[name].id, nil, nil)
	}}
}

func dropGroup(name string) step {
	return step{text: "security group " + name + " is deleted", do: func(ctx context.Context, p *play) error {
		return p.api(ctx, http.MethodDelete, "security-groups/"+p.things[name].id, nil, nil)
	}}
}

// addressGroup creates an address group.
func addressGroup(name string, prefixes ...string) step {
	return step{text: fmt.Sprintf("address group %s is created with %v", name, prefixes), do: func(ctx context.Context, p *play) error {
		body := attrs{"name": name, "tenant_id": lab.Project, "addresses": prefixes}
		return p.create(ctx, "address-groups", "address_group", body, &thing{name: name, kind: 'e'})
	}}
}

// listAddresses adds prefixes to an address group; unlistAddresses takes them away.
func listAddresses(name string, prefixes ...string) step {
	return changeAddresses(name, "add_addresses", "gets", prefixes)
}

func unlistAddresses(name string, prefixes ...string) step {
	return changeAddresses(name, "remove_addresses", "loses", prefixes)
}

func changeAddresses(name, how, word string, prefixes []string) step {
	return step{text: fmt.Sprintf("address group %s %s %v", name, word, prefixes), do: func(ctx context.Context, p *play) error {
		return p.api(ctx, http.MethodPut, "address-groups/"+p.things[name].id+"/"+how,
			attrs{"addresses": prefixes}, nil)
	}}
}

// defaultGroup gives the project's default group its name. Agents may know it from an earlier scenario, so what they would be
// told when they ask is written into the journal.
func defaultGroup() step {
	return step{text: "the default group of the project is called default", do: func(ctx context.Context, p *play) error {
		var answer struct {
			Groups []struct {
				ID    string
				Rules []struct{ ID, Direction, EtherType string } `json:"security_group_rules"`
			} `json:"security_groups"`
		}
		if err := p.api(ctx, http.MethodGet, "security-groups?name=default&tenant_id="+lab.Project, nil, &answer); err != nil {
			return err
		}
		if len(answer.Groups) != 1 {
			return fmt.Errorf("%d default groups", len(answer.Groups))
		}
		g := answer.Groups[0]
		p.made(&thing{name: "default", id: g.ID, kind: 'c'})
		for _, r := range g.Rules {
			number := map[string]int{"ingressIPv4": 1, "ingressIPv6": 2, "egressIPv4": 3, "egressIPv6": 4}[r.Direction+r.EtherType]
			p.canon.ID(r.ID, 'd', 0xf0+number)
		}
		client, err := p.rpc()
		if err != nil {
			return err
		}
		defer func() { _ = client.Close(ctx) }()
		for _, ask := range []struct{ kind, version, key string }{
			{"SecurityGroup", "1.5", "id"}, {"SecurityGroupRule", "1.2", "security_group_id"},
		} {
			args, err := json.Marshal(map[string]any{
				"resource_type": ask.kind, "version": ask.version, "filter_kwargs": map[string]any{ask.key: []string{g.ID}},
			})
			if err != nil {
				return err
			}
			var result json.RawMessage
			if err := client.Call(ctx, pullTarget, "bulk_pull", json.RawMessage(args), &result); err != nil {
				return err
			}
			p.journal.told(p.hostNames(), "bulk_pull", args, result)
		}
		return nil
	}}
}

// pullTarget is where agents ask for objects.
var pullTarget = messaging.Target{Topic: "q-plugin", Version: "1.1"}

// told takes down an answer of the server as if the agents of hosts had asked.
func (j *journal) told(hosts []string, method string, args, result json.RawMessage) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.add(entry{hosts: hosts, call: &call{method: method, args: args, result: result}})
}
