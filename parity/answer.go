// SPDX-License-Identifier: Apache-2.0

package parity

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// question names what is asked for. The gateway of a subnet can be asked for in two ways, which have the same answer; all hosts
// get the same endpoints.
func question(method string, args []byte) string {
	var about struct {
		Subnet string `json:"subnet"`
		Type   string `json:"tunnel_type"`
	}
	_ = json.Unmarshal(args, &about)
	return method + " " + about.Subnet + about.Type
}

// Calls returns what was told and asked since the last time, as the lines of checkpoints have it without the host.
func (s *Server) Calls() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	calls := s.calls
	s.calls = nil
	return calls
}

// Call implements neutron.Caller.
func (s *Server) Call(_ context.Context, target messaging.Target, method string, args, result any) error {
	data, err := json.Marshal(args)
	if err != nil {
		return fmt.Errorf("encoding the arguments of %s: %w", method, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(Idle, method) {
		for _, what := range Essence(method, data) {
			s.calls = append(s.calls, strings.TrimSpace("call "+method+" "+what))
		}
	}
	answer, err := s.answer(target, method, data)
	if err != nil || result == nil {
		return err
	}
	text, err := json.Marshal(answer)
	if err != nil {
		return fmt.Errorf("encoding the answer to %s: %w", method, err)
	}
	return json.Unmarshal(text, result)
}

func (s *Server) answer(target messaging.Target, method string, data []byte) (any, error) {
	var args struct {
		Kind     string              `json:"resource_type"`
		Filter   map[string][]string `json:"filter_kwargs"`
		Device   string              `json:"device"`
		Up       []string            `json:"devices_up"`
		Down     []string            `json:"devices_down"`
		SubPorts []struct {
			Port  string `json:"port_id"`
			Trunk string `json:"trunk_id"`
		} `json:"subports"`
	}
	if err := json.Unmarshal(data, &args); err != nil {
		return nil, fmt.Errorf("reading the arguments of %s: %w", method, err)
	}
	switch method {
	case "has_alive_neutron_server":
		if target.Version != "1.2" { // as of release 21
			return nil, messaging.NewUnsupportedVersion(target.Version, method)
		}
		return true, nil
	case "update_device_list", "update_trunk_status":
		for _, id := range args.Up {
			s.up[id] = true
		}
		for _, id := range args.Down {
			delete(s.up, id)
		}
		return map[string]any{}, nil
	case "update_device_down":
		delete(s.up, args.Device)
		return map[string]any{"device": args.Device, "exists": true}, nil
	case "update_subport_bindings":
		bound := map[string][]any{}
		for _, p := range args.SubPorts {
			if mac := s.macs[p.Port]; mac != "" {
				bound[p.Trunk] = append(bound[p.Trunk], map[string]any{"id": p.Port, "mac_address": mac})
			}
		}
		return bound, nil
	case "get_networks": // of the sorts that Patchbay tells the release by; recordings have none
		return []any{}, nil
	case "bulk_pull":
		return s.pull(args.Kind, args.Filter)
	}
	if answer := s.answers[question(method, data)]; answer != nil {
		return answer, nil
	}
	return nil, fmt.Errorf("the recording has no answer to %s", question(method, data))
}

// pull finds objects. The server's filters that agents use are the ids, the groups of ports and the parents of trunks.
func (s *Server) pull(kind string, filter map[string][]string) ([]any, error) {
	found := []any{}
	for _, id := range filter["id"] {
		raw := s.objects[kind+" "+id]
		if raw == nil {
			continue
		}
		if kind != "SecurityGroup" {
			found = append(found, raw)
			continue
		}
		group, err := s.group(id)
		if err != nil {
			return nil, err
		}
		found = append(found, group)
	}
	for _, group := range filter["security_group_ids"] {
		members, err := s.members(kind, group)
		if err != nil {
			return nil, err
		}
		found = append(found, members...)
	}
	for _, port := range filter["port_id"] {
		if t := s.trunks[port]; t != nil && kind == "Trunk" {
			data := map[string]any{}
			for k, v := range t.data {
				data[k] = v
			}
			subs := []any{}
			for _, p := range slices.Sorted(maps.Keys(t.subPorts)) {
				subs = append(subs, t.subPorts[p])
			}
			data["sub_ports"] = subs
			found = append(found, map[string]any{"versioned_object.name": kind, "versioned_object.version": "1.1", "versioned_object.data": data})
		}
	}
	return found, nil
}

// group returns a security group with its rules.
func (s *Server) group(id string) (any, error) {
	rules := []object{}
	for _, rule := range slices.Sorted(maps.Keys(s.rules)) {
		var head struct {
			Group string `json:"security_group_id"`
		}
		if err := json.Unmarshal(s.rules[rule], &head); err != nil {
			return nil, err
		}
		if head.Group == id {
			rules = append(rules, object{"SecurityGroupRule", "1.2", s.rules[rule]})
		}
	}
	data, err := json.Marshal(map[string]any{"id": id, "rules": rules})
	return object{"SecurityGroup", "1.5", data}, err
}

// members returns the ports of a security group.
func (s *Server) members(kind, group string) (found []any, err error) {
	for _, key := range slices.Sorted(maps.Keys(s.objects)) {
		raw := s.objects[key]
		if !strings.HasPrefix(key, kind+" ") {
			continue
		}
		var port struct {
			Data struct {
				Groups []string `json:"security_group_ids"`
			} `json:"versioned_object.data"`
		}
		if err := json.Unmarshal(raw, &port); err != nil {
			return nil, err
		}
		if slices.Contains(port.Data.Groups, group) {
			found = append(found, raw)
		}
	}
	return found, nil
}
