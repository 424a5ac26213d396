// SPDX-License-Identifier: Apache-2.0

package parity

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

func push(event, object string) Event {
	return Event{Cast: "push", Args: json.RawMessage(`{"event_type":"` + event + `","resource_list":[` + object + `]}`)}
}

func versioned(kind, data string) string {
	return `{"versioned_object.name":"` + kind + `","versioned_object.version":"1.0","versioned_object.data":` + data + `}`
}

// ask pulls objects and returns their data.
func ask(t *testing.T, s *Server, kind, key, value string) []string {
	t.Helper()
	var found []object
	err := s.Call(t.Context(), messaging.Target{}, "bulk_pull", map[string]any{"resource_type": kind, "filter_kwargs": map[string][]string{key: {value}}}, &found)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, o := range found {
		all = append(all, string(o.Data))
	}
	return all
}

func TestServerFollowsThePushes(t *testing.T) {
	s := NewServer()
	for _, step := range []struct{ event, name, want string }{
		{"updated", "one", "one"}, {"updated", "two", "two"}, {"deleted", "", ""},
	} {
		if err := s.Apply(push(step.event, versioned("Port", `{"id":"x","security_group_ids":["g"],"name":"`+step.name+`"}`))); err != nil {
			t.Fatal(err)
		}
		for _, filter := range [][2]string{{"id", "x"}, {"security_group_ids", "g"}} {
			got := ask(t, s, "Port", filter[0], filter[1])
			if (step.want == "") != (len(got) == 0) || len(got) > 0 && !strings.Contains(got[0], step.want) {
				t.Errorf("after %v: %s by %s", step, got, filter[0])
			}
		}
		if got := ask(t, s, "Por", "security_group_ids", "g"); len(got) > 0 {
			t.Errorf("of another kind: %s", got)
		}
	}
	if diff := cmp.Diff([]string{"call bulk_pull Port id=x", "call bulk_pull Port security_group_ids=g"}, slices.Compact(slices.Sorted(slices.Values(s.Calls())))[1:]); diff != "" {
		t.Error(diff)
	}
	if left := s.Calls(); len(left) > 0 {
		t.Errorf("told twice: %v", left)
	}
}

// A rule that was deleted does not come back with an older answer about its group.
func TestServerForgetsRules(t *testing.T) {
	s := NewServer()
	group := versioned("SecurityGroup", `{"id":"g","rules":[`+versioned("SecurityGroupRule", `{"id":"r"}`)+`,`+versioned("SecurityGroupRule", `{"id":"q"}`)+`]}`)
	for _, e := range []Event{push("updated", group), push("deleted", versioned("SecurityGroupRule", `{"id":"r"}`)), push("updated", group)} {
		if err := s.Apply(e); err != nil {
			t.Fatal(err)
		}
	}
	if got := ask(t, s, "SecurityGroup", "id", "g"); len(got) != 1 || strings.Contains(got[0], `"r"`) || !strings.Contains(got[0], `"q"`) {
		t.Errorf("%s", got)
	}
}

// The agent of a replay may ask before the recorded one did; it must not hear of what changed later.
func TestServerForeseesAnswersOnly(t *testing.T) {
	s := NewServer()
	answer := Event{Call: "bulk_pull", Args: json.RawMessage(`{}`), Result: json.RawMessage(`[` + versioned("Port", `{"id":"x","name":"late"}`) + `,` + versioned("Port", `{"id":"y","name":"new"}`) + `]`)}
	if err := s.Apply(push("updated", versioned("Port", `{"id":"x","name":"early"}`))); err != nil {
		t.Fatal(err)
	}
	if err := s.Foresee([]Event{push("updated", versioned("Port", `{"id":"z"}`)), answer}); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]string{"x": "early", "y": "new", "z": ""} {
		got := strings.Join(ask(t, s, "Port", "id", id), "")
		if !strings.Contains(got, want) || (want == "") != (got == "") {
			t.Errorf("%s: %s", id, got)
		}
	}
}

func TestServerFollowsTrunks(t *testing.T) {
	s := NewServer()
	sub := func(port string) string { return versioned("SubPort", `{"port_id":"`+port+`","trunk_id":"t"}`) }
	pull := Event{Call: "pull", Result: json.RawMessage(versioned("Trunk", `{"id":"t","port_id":"p","sub_ports":[`+sub("a")+`]}`))}
	bound := Event{Call: "update_subport_bindings", Result: json.RawMessage(`{"t":[{"id":"b","mac_address":"fa:16:3e:00:00:0b"}]}`)}
	for _, e := range []Event{pull, push("created", sub("b")), push("deleted", sub("a")), bound} {
		if err := s.Apply(e); err != nil {
			t.Fatal(err)
		}
	}
	if got := strings.Join(ask(t, s, "Trunk", "port_id", "p"), ""); !strings.Contains(got, `"port_id":"b"`) || strings.Contains(got, `"port_id":"a"`) {
		t.Errorf("%s", got)
	}
	var result map[string][]struct {
		MAC string `json:"mac_address"`
	}
	err := s.Call(t.Context(), messaging.Target{}, "update_subport_bindings", map[string]any{"subports": []any{map[string]string{"port_id": "b", "trunk_id": "t"}}}, &result)
	if err != nil || len(result["t"]) != 1 || result["t"][0].MAC != "fa:16:3e:00:00:0b" {
		t.Errorf("%v, %v", result, err)
	}
	if err := s.Call(t.Context(), messaging.Target{}, "get_dvr_mac_address_list", map[string]any{}, nil); err == nil {
		t.Error("an answer that nobody recorded")
	}
}

// The status of a port follows from what an agent reports: where the agent of a replay does not report a port down that the
// recorded one did, it is not told that the port is down.
func TestServerTellsStatusAsReported(t *testing.T) {
	down := push("updated", versioned("Port", `{"id":"x","status":"DOWN","admin_state_up":true}`))
	down.Topic, down.Hosts = "neutron-vo-Port-1.7", []string{"hv1"}
	off := push("updated", versioned("Port", `{"id":"x","status":"DOWN","admin_state_up":false}`))
	off.Topic, off.Hosts = down.Topic, down.Hosts
	report := Event{Hosts: []string{"hv1"}, Call: "update_device_list", Args: json.RawMessage(`{"devices_down":["x"]}`)}
	elsewhere := report
	elsewhere.Hosts = []string{"hv2"}
	for _, c := range []struct {
		name  string
		said  map[string][]string // by our agent
		push  Event
		stage []Event
		want  string
	}{
		{"ours did not report", map[string][]string{"devices_up": {"x"}}, down, []Event{down, report}, "ACTIVE"},
		{"ours reported as well", map[string][]string{"devices_down": {"x"}}, down, []Event{down, report}, "DOWN"},
		{"nobody reported: the server has done it", map[string][]string{"devices_up": {"x"}}, down, []Event{down}, "DOWN"},
		{"another host's did", map[string][]string{"devices_up": {"x"}}, down, []Event{down, elsewhere}, "DOWN"},
		{"it was switched off", map[string][]string{"devices_up": {"x"}}, off, []Event{off, report}, "DOWN"},
	} {
		s := NewServer()
		if err := s.Call(t.Context(), messaging.Target{}, "update_device_list", c.said, nil); err != nil {
			t.Fatal(err)
		}
		e, err := s.Told(c.push, c.stage)
		if err != nil || !strings.Contains(string(e.Args), `"status":"`+c.want+`"`) {
			t.Errorf("%s: %s, %v", c.name, e.Args, err)
		}
	}
}
