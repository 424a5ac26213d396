// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/effect"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/pull"
	"github.com/patchbay-sdn/patchbay/internal/report"
	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// server is a broker behind which a server answers as it is told. What it is told nothing about it refuses.
type server struct {
	answers map[string]any // by method: what is sent, or an error
	calls   []string       // method and arguments
	within  time.Duration  // of the last call

	serveErr, removeErr error
	served              messaging.Service
	leftovers           []string // topics of which they were asked for
}

func (s *server) Call(ctx context.Context, _ messaging.Target, method string, args, result any) error {
	if end, ok := ctx.Deadline(); ok {
		s.within = time.Until(end)
	}
	text, err := json.Marshal(args)
	if err != nil {
		return err
	}
	s.calls = append(s.calls, method+" "+string(text))
	switch answer := s.answers[method].(type) {
	case nil:
		return &messaging.RemoteError{Class: string(messaging.UnsupportedVersion)}
	case error:
		return answer
	case string:
		if result == nil {
			return nil
		}
		return json.Unmarshal([]byte(answer), result)
	}
	panic(method)
}

func (s *server) Serve(_ context.Context, to messaging.Service) error {
	s.served = to
	return s.serveErr
}

func (s *server) RemoveLeftovers(_ context.Context, topics []string, host string) ([]string, error) {
	s.leftovers = topics
	return []string{"queue of " + host}, s.removeErr
}

// outcomes carries out effects, and returns what became of them.
func outcomes(ctx context.Context, cfg Config, effects ...effect.Effect) (got []effect.Event) {
	for _, e := range effects { // one after the other
		r := New(cfg, func(e effect.Event) { got = append(got, e) })
		r.Start(ctx, []effect.Effect{e})
		r.Wait()
	}
	return got
}

// one is the only outcome of an effect.
func one[T effect.Event](t *testing.T, cfg Config, e effect.Effect) T {
	t.Helper()
	got := outcomes(t.Context(), cfg, e)
	if len(got) != 1 {
		t.Fatalf("%v: %d outcomes: %v", e, len(got), got)
	}
	return got[0].(T)
}

// TestRegistering: the server has to be alive, to tell its versions and to have its topics served. Queues that nobody removes keep nobody from it.
func TestRegistering(t *testing.T) {
	broken := errors.New("broken")
	e := effect.Register{Kinds: []neutron.Kind{neutron.KindPort}, Topics: []string{"mine"}, L2Population: true}
	for name, c := range map[string]struct {
		server server
		want   error // nil: registered
	}{
		"nobody answers":     {server{answers: map[string]any{"has_alive_neutron_server": broken}}, broken},
		"without a database": {server{answers: map[string]any{"has_alive_neutron_server": "false"}}, errNoDatabase},
		"no versions":        {server{answers: map[string]any{"has_alive_neutron_server": "true", "get_networks": broken}}, broken},
		"not served":         {server{answers: map[string]any{"has_alive_neutron_server": "true"}, serveErr: broken}, broken},
		"queues that stay":   {server{answers: map[string]any{"has_alive_neutron_server": "true"}, removeErr: broken}, nil},
		"registered":         {server{answers: map[string]any{"has_alive_neutron_server": "true"}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := &c.server
			got := one[effect.Registered](t, Config{Broker: s, Host: "hv1"}, e)
			if !errors.Is(got.Err, c.want) || (got.Err == nil) != (c.want == nil) || (got.Versions == nil) != (c.want != nil) {
				t.Errorf("%+v, want the error %v", got, c.want)
			}
			if got.Err == nil {
				port, _ := got.Versions.Topic(neutron.KindPort)
				directed := neutron.DirectedTopics(true)
				if !slices.Contains(s.served.Topics, port) || !slices.Contains(s.served.Topics, "mine") || !slices.Equal(s.served.Directed, directed) {
					t.Errorf("served: %+v", s.served)
				}
				if slices.ContainsFunc(s.served.Topics, func(t string) bool { return slices.Contains(directed, t) }) {
					t.Errorf("served twice: %+v", s.served)
				}
				if got.Releases == "" || !slices.Equal(got.Removed, []string{"queue of hv1"}) || len(s.leftovers) <= len(s.served.Topics) {
					t.Errorf("%+v, leftovers of %q", got, s.leftovers)
				}
			}
			stopping, cancel := context.WithCancel(t.Context())
			cancel()
			if got := outcomes(stopping, Config{Broker: s}, e); (len(got) == 0) != (c.want != nil) {
				t.Errorf("while the agent stops: %+v", got)
			}
		})
	}
	s := &server{answers: map[string]any{"has_alive_neutron_server": io.EOF}}
	if one[effect.Registered](t, Config{Broker: s}, e); s.within <= 0 || s.within > aliveTimeout {
		t.Errorf("the server has %v to say whether it is alive", s.within)
	}
}

// TestReports: what is reported, and what the server makes of it.
func TestReports(t *testing.T) {
	s := &server{answers: map[string]any{"report_state": `"revived"`, "update_device_down": `{}`, "update_device_list": `{"devices_up":["p1"],"failed_devices_down":["p2"]}`, "bulk_pull": "[]"}}
	cfg := Config{Broker: s, Host: "hv1"}
	state := one[effect.StateReported](t, cfg, effect.ReportState{State: neutron.AgentState{Host: "hv1"}, Timeout: time.Hour})
	if state.Status != "revived" || state.Err != nil || state.Took <= 0 || s.within <= 59*time.Minute || s.within > time.Hour {
		t.Errorf("%+v, within %v", state, s.within)
	}
	ports := one[effect.PortsReported](t, cfg, effect.ReportPorts{Batch: report.Batch{Update: neutron.DeviceUpdate{Up: []string{"p1"}, Down: []string{"p2"}}}})
	if ports.Err != nil || !slices.Equal(ports.Result.Up, []string{"p1"}) || !slices.Equal(ports.Result.FailedDown, []string{"p2"}) || !slices.Equal(ports.Batch.Update.Down, []string{"p2"}) {
		t.Errorf("%+v", ports)
	}
	if down := one[effect.PortsReported](t, cfg, effect.ReportPorts{Batch: report.Batch{AdminDown: "p3"}}); down.Err != nil || down.Batch.AdminDown != "p3" {
		t.Errorf("%+v", down)
	}
	if got := one[effect.DatabaseAsked](t, cfg, effect.AskDatabase{Versions: neutron.Versions{neutron.KindPort: "1.7"}}); got.Err != nil {
		t.Error(got.Err)
	}
	for i, part := range []string{`report_state {`, `"devices_up":["p1"]`, `"device":"p3"`, `{"id":["` + neutron.Nobody + `"]}`} {
		if len(s.calls) != 4 || !strings.Contains(s.calls[i], part) {
			t.Errorf("no %q in %q", part, s.calls)
		}
	}
	s.answers = nil
	for _, e := range outcomes(t.Context(), cfg, effect.ReportState{}, effect.ReportPorts{}, effect.ReportPorts{Batch: report.Batch{AdminDown: "p3"}},
		effect.AskDatabase{Versions: neutron.Versions{neutron.KindPort: "1.7"}}, effect.AskDatabase{}) {
		if effect.Failure(e) == nil {
			t.Errorf("%T: a refusal is lost", e)
		}
	}
}

// TestPulls: which filter a question has, and what is read of the answer.
func TestPulls(t *testing.T) {
	versions := neutron.Versions{}
	for _, k := range []neutron.Kind{neutron.KindPort, neutron.KindSecurityGroup, neutron.KindAddressGroup, neutron.KindNetwork} {
		versions[k] = "1.0"
	}
	objects := func(kind neutron.Kind, texts ...string) string {
		for i, text := range texts {
			texts[i] = fmt.Sprintf(`{"versioned_object.name":%q,"versioned_object.version":"1.0","versioned_object.data":%s}`, kind, text)
		}
		return "[" + strings.Join(texts, ",") + "]"
	}
	for name, c := range map[string]struct {
		batch  pull.Batch
		answer string
		filter string
		want   string // what was found; what cannot be read
		bad    bool
		fails  bool
	}{
		"ports": {pull.Batch{Owner: pull.Ports, Kind: neutron.KindPort, IDs: []string{"a", "b", "c"}}, objects(neutron.KindPort, `{"id":"a"}`, `{"id":"b","admin_state_up":7}`),
			`{"id":["a","b","c"]}`, "port a; unread b", false, true},
		"ports that are all fine": {pull.Batch{Owner: pull.Ports, Kind: neutron.KindPort, IDs: []string{"a"}}, objects(neutron.KindPort, `{"id":"a"}`), `{"id":["a"]}`, "port a", false, false},
		"members": {pull.Batch{Owner: pull.Filters, Kind: neutron.KindPort, IDs: []string{"g"}}, objects(neutron.KindPort, `{"id":"a"}`, `{"id":"b","fixed_ips":7}`),
			`{"security_group_ids":["g"]}`, "member a; unread b", true, false},
		"groups": {
			pull.Batch{Owner: pull.Filters, Kind: neutron.KindSecurityGroup, IDs: []string{"g", "h", "i", "j", "k"}},
			objects(neutron.KindSecurityGroup, `{"id":"g","rules":[]}`, `{"id":"h"}`, `{"id":"i","rules": null}`, `{"id":"j","rules":7}`, `{"id":7}`),
			`{"id":["g","h","i","j","k"]}`, "group g; unread j; unread ; unread h; unread i", true, false,
		},
		"a group without rules": {pull.Batch{Owner: pull.Filters, Kind: neutron.KindSecurityGroup, IDs: []string{"g"}}, objects(neutron.KindSecurityGroup, `{"id":"g"}`), `{"id":["g"]}`, "unread g", true, false},
		"a group":               {pull.Batch{Owner: pull.Filters, Kind: neutron.KindSecurityGroup, IDs: []string{"g"}}, objects(neutron.KindSecurityGroup, `{"id":"g","rules":[]}`), `{"id":["g"]}`, "group g", false, false},
		"addresses": {pull.Batch{Owner: pull.Filters, Kind: neutron.KindAddressGroup, IDs: []string{"x"}}, objects(neutron.KindAddressGroup, `{"id":"x"}`, `{"id":"y","addresses":7}`),
			`{"id":["x"]}`, "addresses x; unread y", true, false},
		"an extension": {pull.Batch{Owner: pull.Extensions, Kind: neutron.KindNetwork, IDs: []string{"n"}}, objects(neutron.KindNetwork, `{"id":7}`), `{"id":["n"]}`, "object", false, false},
		"an extension, by other fields": {pull.Batch{Owner: pull.Extensions, Kind: neutron.KindNetwork, By: "mtu&shared=True&name=x", IDs: []string{"n"}}, "[]",
			`{"mtu":["n"],"name":["x"],"shared":["True"]}`, "", false, false},
		"no answer": {pull.Batch{Owner: pull.Ports, Kind: neutron.KindPort, IDs: []string{"a"}}, "", `{"id":["a"]}`, "", false, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := &server{answers: map[string]any{"bulk_pull": c.answer}}
			if c.answer == "" {
				s.answers = nil
			}
			got := one[effect.Pulled](t, Config{Broker: s}, effect.Pull{Batch: c.batch, Versions: versions})
			if !reflect.DeepEqual(got.Batch, c.batch) || got.Took <= 0 || (got.Err != nil) != c.fails || (got.Bad != nil) != c.bad {
				t.Errorf("%+v", got)
			}
			var found []string
			for _, p := range got.Ports {
				found = append(found, "port "+p.ID)
			}
			for _, g := range got.Groups {
				found = append(found, "group "+g.ID)
			}
			for _, m := range got.Members {
				found = append(found, "member "+m.ID)
			}
			for _, g := range got.Addresses {
				found = append(found, "addresses "+g.ID)
			}
			for range got.Objects {
				found = append(found, "object")
			}
			for _, id := range got.Unread {
				found = append(found, "unread "+id)
			}
			if text := strings.Join(found, "; "); text != c.want {
				t.Errorf("%q, want %q", text, c.want)
			}
			if len(s.calls) != 1 || !strings.Contains(s.calls[0], `"filter_kwargs":`+c.filter) {
				t.Errorf("asked %q, want the filter %s", s.calls, c.filter)
			}
		})
	}
	s := &server{answers: map[string]any{"tunnel_sync": `{"tunnels":[{"ip_address":"10.0.0.2"}]}`}}
	got := one[effect.Pulled](t, Config{Broker: s, Host: "hv1", LocalIP: netip.MustParseAddr("10.0.0.1")}, effect.Pull{Batch: pull.Batch{Owner: pull.Tunnels, IDs: []string{"vxlan"}}})
	if len(got.Tunnels) != 1 || len(s.calls) != 1 || !strings.Contains(s.calls[0], `"tunnel_ip":"10.0.0.1","tunnel_type":"vxlan"`) {
		t.Errorf("%+v, asked %q", got, s.calls)
	}
	s.answers = nil
	if got := one[effect.Pulled](t, Config{Broker: s}, effect.Pull{Batch: pull.Batch{Owner: pull.Tunnels, IDs: []string{"vxlan"}}}); got.Err == nil {
		t.Error("a refusal is lost")
	}
}

// TestWhatPullsAreCalled: a panic says what the question was.
func TestWhatPullsAreCalled(t *testing.T) {
	for owner, want := range map[pull.Owner]string{
		pull.Ports: "asking about ports", pull.Filters: "asking for what filters need", pull.Tunnels: "asking for tunnels", pull.Extensions + 1: "asking for what an extension needs",
	} {
		var said []string
		r := New(Config{Broker: &server{}}, func(effect.Event) {})
		r.Probe = func(what string) { said = append(said, what) }
		r.Start(t.Context(), []effect.Effect{effect.Pull{Batch: pull.Batch{Owner: owner, IDs: []string{"x"}}}})
		if r.Wait(); len(said) == 0 || !strings.Contains(said[0], want) {
			t.Errorf("owner %d: %q, want %q", owner, said, want)
		}
	}
}

// callKey is the key of a call.
type callKey struct{}

func (callKey) String() string { return "question" }

// TestCallsOfExtensions: what the server answers is kept beside what the extension makes of it.
func TestCallsOfExtensions(t *testing.T) {
	for name, c := range map[string]struct {
		answers map[string]any
		result  any
		heard   string
		fails   string
	}{
		"an answer":    {map[string]any{"has_alive_neutron_server": "true"}, true, "true", ""},
		"no answer":    {map[string]any{"has_alive_neutron_server": io.EOF}, false, "", "EOF"},
		"an empty one": {map[string]any{"has_alive_neutron_server": "null"}, false, "null", ""},
		"nonsense":     {map[string]any{"has_alive_neutron_server": "7"}, false, "7", "decoding the answer to has_alive_neutron_server"},
	} {
		got := one[effect.Called](t, Config{Broker: &server{answers: c.answers}}, effect.CallExtension{
			CallKey: effect.CallKey{Extension: 3, Key: callKey{}}, Run: func(ctx context.Context, s *neutron.Server) (any, error) { return s.Alive(ctx) },
		})
		if got.Extension != 3 || got.Key != (callKey{}) || got.Result != c.result || len(got.Heard) != 1 || string(got.Heard[0].Result) != c.heard || (got.Heard[0].Err != nil) != (name == "no answer") {
			t.Errorf("%s: %+v", name, got)
		}
		if (got.Err == nil) != (c.fails == "") || got.Err != nil && !strings.Contains(got.Err.Error(), c.fails) {
			t.Errorf("%s: %v, want %q", name, got.Err, c.fails)
		}
	}
}

// TestRulesOfGroups: a group comes with its rules, with none, or without having been told them.
func TestRulesOfGroups(t *testing.T) {
	for text, want := range map[string]bool{
		`{"rules":[]}`: true, `{"rules":[{"id":"r"}]}`: true, "{\"rules\" :\t\r\n [] }": true, `{}`: false, `{"rules":null}`: false, "{\"rules\" : \n\tnull}": false,
	} {
		if got := hasRules(neutron.Primitive{Data: []byte(text)}); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}
