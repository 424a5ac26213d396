// SPDX-License-Identifier: Apache-2.0

package sim

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

func ask(raw json.RawMessage) (question, error) {
	q, err := arguments[question](raw)
	if err == nil && versions[q.Kind] == "" {
		err = &messaging.RemoteError{
			Class: "InvalidResourceTypeClass", Module: "neutron.api.rpc.callbacks.exceptions",
			Message: "Invalid resource type " + q.Kind, Kwargs: json.RawMessage(fmt.Sprintf(`{"resource_type": %q}`, q.Kind)),
			Args: json.RawMessage(`[]`),
		}
	}
	return q, err
}

// answer refuses to answer in another version than its own. The real server goes down to earlier ones; no agent that asks
// here needs it.
func (q *question) answer(list []json.RawMessage) ([]json.RawMessage, error) {
	if len(list) > 0 && q.Version != versions[q.Kind] {
		return nil, &messaging.RemoteError{
			Class: "InvalidTargetVersion", Module: "oslo_versionedobjects.exception",
			Message: fmt.Sprintf("Invalid target version %s of %s, only %s is known here", q.Version, q.Kind, versions[q.Kind]),
		}
	}
	return list, nil
}

func (s *Server) bulkPull(raw json.RawMessage) (any, error) {
	q, err := ask(raw)
	if err != nil {
		return nil, err
	}
	return q.answer(s.find(q.Kind, q.Filter))
}

func (s *Server) pull(raw json.RawMessage) (any, error) {
	q, err := ask(raw)
	if err != nil {
		return nil, err
	}
	list, err := q.answer(s.find(q.Kind, filter{"id": {q.ID}}))
	if err != nil || len(list) == 0 {
		return nil, err
	}
	return list[0], nil
}

// find lists the objects of a kind, in the order of their ids.
func (s *Server) find(kind string, f filter) []json.RawMessage {
	switch kind {
	case "Port":
		return encodeAll(s.candidates(f), f, func(p *Port) string { return p.ID }, func(p *Port, key string) []string {
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
		}, func(p *Port) json.RawMessage { return p.object(s.networks[p.NetworkID]) })
	case "Network":
		return encodeAll(values(s.networks), f, func(n *Network) string { return n.ID }, func(n *Network, key string) []string {
			return only(key, "id", n.ID)
		}, (*Network).object)
	case "Subnet":
		return encodeAll(values(s.subnets), f, func(n *Subnet) string { return n.ID }, func(n *Subnet, key string) []string {
			return append(only(key, "id", n.ID), only(key, "network_id", n.NetworkID)...)
		}, (*Subnet).object)
	case "SecurityGroup":
		return encodeAll(values(s.groups), f, func(g *Group) string { return g.ID }, func(g *Group, key string) []string {
			return only(key, "id", g.ID)
		}, (*Group).object)
	case "SecurityGroupRule":
		return encodeAll(values(s.rules), f, func(r *Rule) string { return r.ID }, func(r *Rule, key string) []string {
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
		}, (*Rule).object)
	case "QosPolicy":
		return encodeAll(values(s.policies), f, func(p *Policy) string { return p.ID }, func(p *Policy, key string) []string {
			return only(key, "id", p.ID)
		}, (*Policy).object)
	case "AddressGroup":
		return encodeAll(values(s.addresses), f, func(g *AddressGroup) string { return g.ID }, func(g *AddressGroup, key string) []string {
			return only(key, "id", g.ID)
		}, (*AddressGroup).object)
	}
	return []json.RawMessage{}
}

// candidates are the ports that may pass, found by an index where there is one.
func (s *Server) candidates(f filter) []*Port {
	byID := func(of map[string]*Port, seen map[string]*Port) {
		for id, p := range of {
			seen[id] = p
		}
	}
	seen := map[string]*Port{}
	switch {
	case f["id"] != nil:
		for _, id := range f["id"] {
			if p := s.ports[id]; p != nil {
				seen[id] = p
			}
		}
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

func encodeAll[T any](list []T, f filter, id func(T) string, field func(T, string) []string, object func(T) json.RawMessage) []json.RawMessage {
	list = slices.DeleteFunc(list, func(v T) bool {
		for key, wanted := range f {
			if !slices.ContainsFunc(field(v, key), func(have string) bool { return slices.Contains(wanted, have) }) {
				return true
			}
		}
		return false
	})
	slices.SortFunc(list, func(a, b T) int { return cmp.Compare(id(a), id(b)) })
	out := make([]json.RawMessage, 0, len(list))
	for _, v := range list {
		out = append(out, object(v))
	}
	return out
}
