// SPDX-License-Identifier: Apache-2.0

package region

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// filter is what objects are asked for by. Each key names a field, and an object passes when it has one of the values.
type filter map[string][]string

type question struct {
	Kind    string `json:"resource_type"`
	Version string `json:"version"`
	ID      string `json:"resource_id"`
	Filter  filter `json:"filter_kwargs"`
}

func (s *Region) ask(raw json.RawMessage) (question, error) {
	q, err := arguments[question](raw)
	if err == nil && s.own[q.Kind] == "" {
		err = &messaging.RemoteError{
			Class: "InvalidResourceTypeClass", Module: "neutron.api.rpc.callbacks.exceptions",
			Message: "Invalid resource type " + q.Kind, Kwargs: json.RawMessage(fmt.Sprintf(`{"resource_type": %q}`, q.Kind)),
			Args: json.RawMessage(`[]`),
		}
	}
	return q, err
}

func (s *Region) bulkPull(raw json.RawMessage) (any, error) {
	q, err := s.ask(raw)
	if err != nil {
		return nil, err
	}
	return s.find(q.Kind, q.Version, q.Filter)
}

func (s *Region) pull(raw json.RawMessage) (any, error) {
	q, err := s.ask(raw)
	if err != nil {
		return nil, err
	}
	key := "id"
	if q.Kind == "Trunk" { // which is asked for by its parent port
		key = "port_id"
	}
	list, err := s.find(q.Kind, q.Version, filter{key: {q.ID}})
	if err != nil || len(list) == 0 {
		return nil, err
	}
	return list[0], nil
}

// find lists the objects of a kind, in the order of their ids.
func (s *Region) find(kind, version string, f filter) ([]json.RawMessage, error) {
	encode := func(p primitive) (json.RawMessage, error) { return s.inVersion(p, kind, version) }
	switch kind {
	case "Port":
		return encodeAll(s.candidates(f), f, func(p *Port, key string) []string {
			switch key {
			case "id":
				return []string{p.ID}
			case "network_id":
				return []string{p.NetworkID}
			case "device_owner":
				return []string{p.DeviceOwner}
			case "security_group_ids":
				return p.Groups
			}
			return nil
		}, func(p *Port) (json.RawMessage, error) { return s.told(p, version) })
	case "Network":
		return encodeAll(among(s.networks, f), f, func(n *Network, key string) []string {
			return only(key, "id", n.ID)
		}, func(n *Network) (json.RawMessage, error) { return encode(n.object()) })
	case "Subnet":
		return encodeAll(among(s.subnets, f), f, func(n *Subnet, key string) []string {
			return append(only(key, "id", n.ID), only(key, "network_id", n.NetworkID)...)
		}, func(n *Subnet) (json.RawMessage, error) { return encode(n.object()) })
	case "SecurityGroup":
		return encodeAll(among(s.groups, f), f, func(g *Group, key string) []string {
			return slices.Concat(only(key, "id", g.ID), only(key, "name", g.Name), only(key, "project_id", g.Project))
		}, func(g *Group) (json.RawMessage, error) { return encode(g.object()) })
	case "SecurityGroupRule":
		return encodeAll(among(s.rules, f), f, func(r *Rule, key string) []string {
			switch key {
			case "id":
				return []string{r.ID}
			case "security_group_id":
				return []string{r.GroupID}
			case "remote_group_id":
				return []string{r.RemoteGroup}
			case "remote_address_group_id":
				return []string{r.RemoteAddressGroup}
			}
			return nil
		}, func(r *Rule) (json.RawMessage, error) { return encode(r.object()) })
	case "QosPolicy":
		return encodeAll(among(s.policies, f), f, func(p *Policy, key string) []string {
			return only(key, "id", p.ID)
		}, func(p *Policy) (json.RawMessage, error) { return encode(p.object()) })
	case "Trunk":
		return encodeAll(among(s.trunks, f), f, func(t *Trunk, key string) []string {
			return append(only(key, "id", t.ID), only(key, "port_id", t.PortID)...)
		}, func(t *Trunk) (json.RawMessage, error) { return encode(t.object()) })
	case "AddressGroup":
		return encodeAll(among(s.addresses, f), f, func(g *AddressGroup, key string) []string {
			return only(key, "id", g.ID)
		}, func(g *AddressGroup) (json.RawMessage, error) { return encode(g.object()) })
	}
	return []json.RawMessage{}, nil
}

// candidates are the ports that may pass, found by an index where there is one.
func (s *Region) candidates(f filter) []*Port {
	byID := func(of map[string]*Port, seen map[string]*Port) {
		for id, p := range of {
			seen[id] = p
		}
	}
	seen := map[string]*Port{}
	switch {
	case f["id"] != nil:
		return among(s.ports, f)
	case f["security_group_ids"] != nil:
		for _, g := range f["security_group_ids"] {
			byID(s.members[g], seen)
		}
	case f["network_id"] != nil:
		for _, n := range f["network_id"] {
			byID(s.onNetwork[n], seen)
		}
	default:
		seen = s.ports
	}
	return values(seen)
}

// among are the objects with the ids that are asked for, or all.
func among[T any](of map[string]T, f filter) []T {
	if f["id"] == nil {
		return values(of)
	}
	asked := map[string]T{} // each once
	for _, id := range f["id"] {
		if v, ok := of[id]; ok {
			asked[id] = v
		}
	}
	return values(asked)
}

func only(key, name, value string) []string {
	if key == name {
		return []string{value}
	}
	return nil
}

func values[T any](of map[string]T) []T {
	list := make([]T, 0, len(of))
	for _, v := range of {
		list = append(list, v)
	}
	return list
}

func encodeAll[T any](list []T, f filter, field func(T, string) []string, object func(T) (json.RawMessage, error)) ([]json.RawMessage, error) {
	list = slices.DeleteFunc(list, func(v T) bool {
		for key, wanted := range f {
			if !slices.ContainsFunc(field(v, key), func(have string) bool { return slices.Contains(wanted, have) }) {
				return true
			}
		}
		return false
	})
	slices.SortFunc(list, func(a, b T) int { return cmp.Compare(field(a, "id")[0], field(b, "id")[0]) })
	out := make([]json.RawMessage, 0, len(list))
	for _, v := range list {
		text, err := object(v)
		if err != nil {
			return nil, err
		}
		out = append(out, text)
	}
	return out, nil
}
