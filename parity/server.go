// SPDX-License-Identifier: Apache-2.0

package parity

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
)

// Server is the neutron-server of a recording: it follows the recorded events and answers the questions of an agent with what
// the recorded server knew then, also those that the recorded agent did not ask. It takes down what it is told and asked.
type Server struct {
	mu      sync.Mutex
	objects map[string]json.RawMessage // by kind and id
	rules   map[string]json.RawMessage // data of rules, by id; they are told with their group, on their own, or as an answer
	gone    map[string]bool            // rules that were deleted
	trunks  map[string]*trunk          // by the port that is the parent
	macs    map[string]string          // of sub-ports
	answers map[string]json.RawMessage // of the questions that are answered as recorded
	calls   []string
	up      map[string]bool // ports that the agent said are up
}

type trunk struct {
	id       string
	data     map[string]json.RawMessage
	subPorts map[string]json.RawMessage // by port
}

// NewServer returns a server that knows nothing.
func NewServer() *Server {
	return &Server{
		objects: map[string]json.RawMessage{}, rules: map[string]json.RawMessage{}, gone: map[string]bool{}, trunks: map[string]*trunk{},
		macs: map[string]string{}, answers: map[string]json.RawMessage{}, up: map[string]bool{},
	}
}

// object is a versioned object as messages have it.
type object struct {
	Kind    string          `json:"versioned_object.name"`
	Version string          `json:"versioned_object.version"`
	Data    json.RawMessage `json:"versioned_object.data"`
}

// Foresee takes over the answers of a stage to questions about things that are not known yet: the agent of a replay may ask
// earlier than the recorded one.
func (s *Server) Foresee(events []Event) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range events {
		if e.Call == "" {
			continue
		}
		if err := s.apply(e, true); err != nil {
			return err
		}
	}
	return nil
}

// Apply takes over what an event says.
func (s *Server) Apply(e Event) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.apply(e, false)
}

func (s *Server) apply(e Event, onlyNew bool) error {
	if e.Failure != "" {
		return nil
	}
	var list []json.RawMessage
	event := ""
	switch e.Call {
	case "":
		if e.Cast != "push" {
			return nil
		}
		var args struct {
			Event string            `json:"event_type"`
			List  []json.RawMessage `json:"resource_list"`
		}
		if err := json.Unmarshal(e.Args, &args); err != nil {
			return fmt.Errorf("reading a push: %w", err)
		}
		list, event = args.List, args.Event
	case "pull":
		if len(e.Result) > 0 && string(e.Result) != "null" {
			list = []json.RawMessage{e.Result}
		}
	case "bulk_pull":
		if err := json.Unmarshal(e.Result, &list); err != nil {
			return fmt.Errorf("reading the answer to a pull: %w", err)
		}
	case "update_subport_bindings":
		return s.bound(e.Result)
	default:
		if key := question(e.Call, e.Args); !onlyNew || s.answers[key] == nil {
			s.answers[key] = e.Result
		}
		return nil
	}
	for _, raw := range list {
		var o object
		if err := json.Unmarshal(raw, &o); err != nil {
			return fmt.Errorf("reading an object: %w", err)
		}
		if err := s.learn(o, raw, event, onlyNew); err != nil {
			return fmt.Errorf("reading a %s: %w", o.Kind, err)
		}
	}
	return nil
}

func (s *Server) learn(o object, raw json.RawMessage, event string, onlyNew bool) error {
	var head struct {
		ID      string            `json:"id"`
		Port    string            `json:"port_id"`
		Trunk   string            `json:"trunk_id"`
		Group   string            `json:"security_group_id"`
		Rules   []object          `json:"rules"`
		SubPort []json.RawMessage `json:"sub_ports"`

		Segments []segment `json:"segments"`
	}
	if err := json.Unmarshal(o.Data, &head); err != nil {
		return err
	}
	switch o.Kind {
	case "SubPort":
		for _, t := range s.trunks {
			delete(t.subPorts, head.Port)
			if t.id == head.Trunk && event == "created" {
				t.subPorts[head.Port] = raw
			}
		}
		return nil
	case "Trunk":
		if s.trunks[head.Port] != nil && onlyNew {
			return nil
		}
		t, err := readTrunk(head.ID, o.Data, head.SubPort)
		if err == nil {
			s.trunks[head.Port] = t
		}
		return err
	case "Network":
		if event == "updated" {
			if err := s.resegment(head.ID, head.Segments); err != nil {
				return err
			}
		}
	case "SecurityGroup":
		for _, rule := range head.Rules {
			if err := s.rule(rule.Data, head.ID); err != nil {
				return err
			}
		}
	case "SecurityGroupRule":
		if event == "deleted" {
			delete(s.rules, head.ID)
			s.gone[head.ID] = true
			return nil
		}
		return s.rule(o.Data, head.Group)
	}
	key := o.Kind + " " + head.ID
	switch {
	case event == "deleted":
		delete(s.objects, key)
	case !onlyNew || s.objects[key] == nil:
		s.objects[key] = raw
	}
	return nil
}

func readTrunk(id string, data json.RawMessage, subPorts []json.RawMessage) (*trunk, error) {
	t := &trunk{id: id, subPorts: map[string]json.RawMessage{}}
	if err := json.Unmarshal(data, &t.data); err != nil {
		return nil, err
	}
	for _, sub := range subPorts {
		var p struct {
			Data struct {
				Port string `json:"port_id"`
			} `json:"versioned_object.data"`
		}
		if err := json.Unmarshal(sub, &p); err != nil {
			return nil, err
		}
		t.subPorts[p.Data.Port] = sub
	}
	return t, nil
}

// segment is one of a network, and where its ports are bound.
type segment struct {
	Data struct {
		ID       string `json:"id,omitempty"`
		Type     string `json:"network_type"`
		Physical string `json:"physical_network,omitempty"`
		Number   *int   `json:"segmentation_id,omitempty"`
	} `json:"versioned_object.data"`
}

type bindingLevel struct {
	Data struct {
		Host    string  `json:"host"`
		Level   int     `json:"level"`
		Segment segment `json:"segment"`
	} `json:"versioned_object.data"`
}

// rebind brings the segments of binding levels in line, and returns whether that changed one.
func rebind(levels []bindingLevel, segments []segment) (changed bool) {
	alone := len(segments) == 1 && len(levels) == 1 // recordings leave ids out that nobody looks for
	for i := range levels {
		bound := &levels[i].Data.Segment
		for _, now := range segments {
			if now.Data.ID == bound.Data.ID && (now.Data.ID != "" || alone) && !reflect.DeepEqual(now, *bound) {
				*bound, changed = now, true
			}
		}
	}
	return changed
}

// resegment has the ports of a network tell its segments as they are now, as the server does when it is asked for a port. It
// does not push the ports.
func (s *Server) resegment(network string, segments []segment) error {
	for key, raw := range s.objects {
		if !strings.HasPrefix(key, "Port ") || !strings.Contains(string(raw), network) {
			continue
		}
		var port map[string]json.RawMessage
		var data map[string]json.RawMessage
		var levels []bindingLevel
		if err := json.Unmarshal(raw, &port); err != nil {
			return err
		}
		if err := json.Unmarshal(port["versioned_object.data"], &data); err != nil {
			return err
		}
		if data["binding_levels"] == nil {
			continue
		}
		if err := json.Unmarshal(data["binding_levels"], &levels); err != nil {
			return err
		}
		if !rebind(levels, segments) {
			continue
		}
		var err error
		if data["binding_levels"], err = json.Marshal(levels); err != nil {
			return err
		}
		if port["versioned_object.data"], err = json.Marshal(data); err != nil {
			return err
		}
		if s.objects[key], err = json.Marshal(port); err != nil {
			return err
		}
	}
	return nil
}

// rule takes over a rule unless it is known to be gone: answers may be older than pushes.
func (s *Server) rule(data json.RawMessage, group string) error {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(data, &all); err != nil {
		return err
	}
	var id string
	if err := json.Unmarshal(all["id"], &id); err != nil {
		return err
	}
	if s.gone[id] {
		return nil
	}
	named, err := json.Marshal(group)
	if err != nil {
		return err
	}
	all["security_group_id"] = named
	s.rules[id], err = json.Marshal(all)
	return err
}

func (s *Server) bound(result json.RawMessage) error {
	var trunks map[string][]struct {
		ID  string `json:"id"`
		MAC string `json:"mac_address"`
	}
	if err := json.Unmarshal(result, &trunks); err != nil {
		return fmt.Errorf("reading bound sub-ports: %w", err)
	}
	for _, ports := range trunks {
		for _, p := range ports {
			s.macs[p.ID] = p.MAC
		}
	}
	return nil
}

// Told returns a push as the server would have sent it to this agent. A port that the recorded agent reported down in the same stage,
// and this one did not, has kept its status: it is the server's answer to the report.
func (s *Server) Told(e Event, stage []Event) (Event, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.Cast != "push" || !strings.HasPrefix(e.Topic, "neutron-vo-Port-") {
		return e, nil
	}
	var push map[string]any
	if err := json.Unmarshal(e.Args, &push); err != nil {
		return e, fmt.Errorf("reading a push: %w", err)
	}
	changed := false
	objects, _ := push["resource_list"].([]any)
	for _, o := range objects {
		object, _ := o.(map[string]any)
		data, _ := object["versioned_object.data"].(map[string]any)
		id, _ := data["id"].(string)
		if data["status"] == "DOWN" && data["admin_state_up"] == true && s.up[id] && reportedDown(stage, e.Hosts, id) {
			data["status"], changed = "ACTIVE", true
		}
	}
	if !changed {
		return e, nil
	}
	var err error
	e.Args, err = json.Marshal(push)
	return e, err
}

// reportedDown tells whether the recorded agent of one of the hosts reported a port down.
func reportedDown(stage []Event, hosts []string, id string) bool {
	for _, e := range stage {
		if e.Call == "update_device_list" && slices.Contains(hosts, e.Hosts[0]) && slices.Contains(Essence(e.Call, e.Args), "down="+id) {
			return true
		}
	}
	return false
}
