// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

// api is the little of the Networking API that is needed here. Without Keystone every request is an administrator's.
type api struct{ base string }

type object = map[string]any

const project = "kernel"

func (a api) do(ctx context.Context, method, path string, body, answer any) error {
	var text []byte
	var err error
	if body != nil {
		if text, err = json.Marshal(body); err != nil {
			return fmt.Errorf("%s %s: %w", method, path, err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, a.base+"/v2.0/"+path, bytes.NewReader(text))
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := (&http.Client{Timeout: patience}).Do(req)
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	defer func() { _ = resp.Body.Close() }()
	got, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	if resp.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, got)
	}
	if answer == nil {
		return nil
	}
	if err := json.Unmarshal(got, answer); err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	return nil
}

// create makes a resource, such as a "port" in "ports", and decodes it into made.
func (a api) create(ctx context.Context, kind, kinds string, attributes object, made any) error {
	attributes["tenant_id"] = project
	var answer map[string]json.RawMessage
	if err := a.do(ctx, http.MethodPost, kinds, object{kind: attributes}, &answer); err != nil {
		return err
	}
	if err := json.Unmarshal(answer[kind], made); err != nil {
		return fmt.Errorf("reading the new %s: %w", kind, err)
	}
	return nil
}

type created struct {
	ID string `json:"id"`
}

type port struct {
	ID       string `json:"id"`
	MAC      string `json:"mac_address"`
	Status   string `json:"status"`
	FixedIPs []struct {
		IP string `json:"ip_address"`
	} `json:"fixed_ips"`
}

func (a api) port(ctx context.Context, id string) (port, error) {
	var answer struct {
		Port port `json:"port"`
	}
	err := a.do(ctx, http.MethodGet, "ports/"+id, nil, &answer)
	return answer.Port, err
}

// allow adds a rule to a group that lets packets in, and returns the rule's ID.
func (a api) allow(ctx context.Context, group string, attributes object) (string, error) {
	rule := object{"security_group_id": group, "direction": "ingress", "ethertype": "IPv4"}
	for k, v := range attributes {
		rule[k] = v
	}
	var made created
	err := a.create(ctx, "security_group_rule", "security-group-rules", rule, &made)
	return made.ID, err
}

func (a api) forbid(ctx context.Context, rule string) error {
	return a.do(ctx, http.MethodDelete, "security-group-rules/"+rule, nil, nil)
}

// agentsAlive counts the layer-2 agents that report.
func (a api) agentsAlive(ctx context.Context) (int, error) {
	var answer struct {
		Agents []struct {
			Alive bool `json:"alive"`
		} `json:"agents"`
	}
	if err := a.do(ctx, http.MethodGet, "agents?binary=neutron-openvswitch-agent", nil, &answer); err != nil {
		return 0, err
	}
	n := 0
	for _, agent := range answer.Agents {
		if agent.Alive {
			n++
		}
	}
	return n, nil
}
