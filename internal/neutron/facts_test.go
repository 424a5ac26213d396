// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// A version that no release has is that of one in between, or of one before the oldest.
func TestReleasesWithAVersion(t *testing.T) {
	all := span(releases())
	for version, want := range map[string]string{"1.5": "17", "1.4": "17", "1.7": "18 to 22", "1.8": "23", "1.10": "25 to 28", "1.11": "29 or later", "1.99": "29 or later", "2.0": "29 or later", "": "17"} {
		if got := all.with(KindPort, version).String(); got != want {
			t.Errorf("Port %q: %s, want %s", version, got, want)
		}
	}
	later := all[3:]
	if got := later.with(KindPort, "1.0"); len(got) != 1 || got[0].number != later[0].number {
		t.Errorf("before the oldest: %s", got)
	}
}

// The context is that of an administrator without a session, with an id of its own for each call.
func TestRequestContext(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.FixedZone("east", 3600))
	fields := RequestContext(now)
	form := regexp.MustCompile(`^req-[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	var alike [2]int
	seen, digits := map[string]bool{}, map[string]bool{}
	for range 200 {
		id, _ := RequestContext(now)["request_id"].(string)
		if !form.MatchString(id) || seen[id] {
			t.Fatal(id)
		}
		seen[id] = true
		plain := strings.ReplaceAll(id, "-", "")[len("req"):]
		digits["13 "+plain[13:14]], digits["16 "+plain[16:17]], digits["17 "+plain[17:18]] = true, true, true
		for i, at := range []int{13, 17} { // beside the digits that are not chance
			if plain[at] == plain[at-2] {
				alike[i]++
			}
		}
	}
	if alike[0] > 100 || alike[1] > 100 || len(digits) < 16+4+16-2 { // one may be missing by chance, and hardly three
		t.Errorf("digits that are chance are not: %v are like the one before, %d differ", alike, len(digits))
	}
	delete(fields, "request_id")
	want := map[string]any{
		"is_admin": true, "is_admin_project": true, "has_global_access": true, "can_set_project_id": true, "read_only": false, "show_deleted": false,
		"roles": []string{"admin", "member", "reader"}, "timestamp": "2026-01-02 02:04:05.000006", "user_identity": "- - - - -",
	}
	for name, value := range fields {
		if _, named := want[name]; value == nil && !named {
			delete(fields, name)
		}
	}
	if d := cmp.Diff(want, fields); d != "" {
		t.Error(d)
	}
}

// What arrives on an agent's topics is read, ignored, or refused.
func TestDecodeMessage(t *testing.T) {
	const topic = "neutron-vo-Port-1.5"
	object := func(name string) string {
		return `{"versioned_object.name":"` + name + `","versioned_object.version":"1.5","versioned_object.data":{"id":"p"},"versioned_object.changes":["id"]}`
	}
	push := func(event, objects string) string {
		return `{"context":{"a":[1]},"resource_list":[` + objects + `],"event_type":"` + event + `"}`
	}
	for _, c := range []struct {
		topic, method, args string
		want                string // the type, "nil", or a part of the error
	}{
		{topic, "push", push("updated", object("Port")), "*neutron.Push"},
		{topic, "push", push("deleted", object("Port")+","+object("Port")), "*neutron.Push"},
		{topic, "push", push("created", object("Port")) + " ", "*neutron.Push"},
		{topic, "push", push("updated", object("Network")), `"Network" objects under topic`},
		{topic, "push", push("updated", object("Port")+","+object("Network")), `"Port" and "Network" objects in one message`},
		{topic, "push", push("moved", object("Port")), `unknown event "moved"`},
		{topic, "push", push("updated", ""), "no objects in it"},
		{topic, "push", push("updated", object("Port")) + "x", "decoding push: "},
		{topic, "push", `{"resource_list":7}`, "decoding push: "},
		{topic, "push", `{"event_type":7}`, "decoding push: "},
		{topic, "push", `{"x":}`, "decoding push: "},
		{topic, "push", `{"resource_list":[{"versioned_object.name":7}]}`, "decoding push: "},
		{topic, "other", `{}`, "nil"},
		{"q-agent-notifier-x", "push", `{}`, "nil"},
		{TopicTunnelUpdate, "tunnel_update", `{"tunnel_ip":"10.0.0.1","tunnel_type":"vxlan"}`, "*neutron.TunnelUpdate"},
		{TopicTunnelUpdate, "tunnel_update", `{"tunnel_ip":7}`, "decoding tunnel_update: "},
		{TopicTunnelDelete, "tunnel_delete", `{"tunnel_ip":"10.0.0.1","tunnel_type":"vxlan"}`, "*neutron.TunnelDelete"},
		{TopicDVRUpdate, "dvr_mac_address_update", `{"dvr_macs":[{"host":"h","mac_address":"fa:16:3f:00:00:01"}]}`, "*neutron.DVRUpdate"},
		{TopicL2Population, "add_fdb_entries", `{"fdb_entries":{"n":{"network_type":"vxlan","segment_id":7,"ports":{"10.0.0.1":[["00:00:00:00:00:00","0.0.0.0"]]}}}}`, "*neutron.FDBAdd"},
		{TopicL2Population, "remove_fdb_entries", `{"fdb_entries":{}}`, "*neutron.FDBRemove"},
		{TopicL2Population, "update_fdb_entries", `{"fdb_entries":{"chg_ip":{"n":{"10.0.0.1":{"before":[["fa:16:3e:00:00:01","10.1.0.1"]]}}}}}`, "*neutron.FDBChange"},
		{TopicL2Population, "update_fdb_entries", `{"fdb_entries":{"chg_mac":{}}}`, `unknown action "chg_mac"`},
		{TopicL2Population, "update_fdb_entries", `{"fdb_entries":7}`, "decoding update_fdb_entries: "},
		{TopicL2Population, "add_fdb_entries", `{"fdb_entries":{"n":{"ports":{"10.0.0.1":[["00:00:00:00:00:00"]]}}}}`, "entry of 1 parts"},
		{TopicL2Population, "add_fdb_entries", `{"fdb_entries":{"n":{"ports":{"10.0.0.1":[["x","0.0.0.0"]]}}}}`, "decoding add_fdb_entries: "},
		{TopicL2Population, "add_fdb_entries", `{"fdb_entries":{"n":{"ports":{"10.0.0.1":[["00:00:00:00:00:00","x"]]}}}}`, "decoding add_fdb_entries: "},
		{TopicL2Population, "add_fdb_entries", `{"fdb_entries":{"n":{"ports":{"10.0.0.1":[7]}}}}`, "decoding add_fdb_entries: "},
	} {
		msg, err := DecodeMessage(c.topic, c.method, []byte(c.args))
		got := fmt.Sprintf("%T", msg)
		if err != nil {
			got = err.Error()
		} else if msg == nil {
			got = "nil"
		}
		if err != nil && !strings.Contains(got, c.want) || err == nil && got != c.want {
			t.Errorf("%s %s: %s, want %s", c.method, c.args, got, c.want)
		}
	}
	msg, err := DecodeMessage(topic, "push", []byte(push("deleted", object("Port")+","+object("Port"))))
	if p, ok := msg.(*Push); err != nil || !ok || p.Kind != KindPort || p.Event != Deleted || len(p.Objects) != 2 || p.Objects[1].Version != "1.5" || string(p.Objects[1].Data) != `{"id":"p"}` {
		t.Errorf("%+v, %v", msg, err)
	}
	msg, _ = DecodeMessage(TopicL2Population, "update_fdb_entries", []byte(`{"fdb_entries":{"chg_ip":{"n":{"10.0.0.1":{"before":[["fa:16:3e:00:00:01","10.1.0.1"]]}}}}}`))
	if e := msg.(*FDBChange).Networks["n"][netip.MustParseAddr("10.0.0.1")].Before; len(e) != 1 || e[0].Flood() || e[0].IP != netip.MustParseAddr("10.1.0.1") {
		t.Errorf("%+v", e)
	}
	if !(FDBEntry{IP: netip.IPv4Unspecified()}).Flood() || (FDBEntry{MAC: MAC{1}, IP: netip.IPv4Unspecified()}).Flood() {
		t.Error("what stands for broadcasts")
	}
}

// What is written can be read back.
func TestObjectsAreReadBack(t *testing.T) {
	seven := 7
	port := Port{
		ID: "p", MAC: MAC{2, 0, 0, 0, 0, 1}, FixedIPs: List[FixedIP]{{SubnetID: "s", IP: netip.MustParseAddr("10.0.0.1")}},
		AllowedAddressPairs: List[AddressPair]{{MAC: MAC{2}, IP: Prefix{netip.MustParsePrefix("10.1.0.0/24")}}},
		Security:            Maybe[Security]{Value: &Security{PortSecurityEnabled: true}},
		BindingLevels:       List[BindingLevel]{{Host: "h", Segment: Maybe[Segment]{Value: &Segment{NetworkType: "vxlan", SegmentationID: &seven}}}, {Host: "i"}},
	}
	text, err := json.Marshal(port)
	if err != nil {
		t.Fatal(err)
	}
	var again Port
	if err := json.Unmarshal(text, &again); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(port, again, cmp.Comparer(func(a, b netip.Addr) bool { return a == b }), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); d != "" {
		t.Error(d)
	}
	rule := QosRule{Kind: "QosBandwidthLimitRule", ID: "r", MaxKbps: 5, DSCPMark: &seven}
	var back QosRule
	if text, err := json.Marshal(rule); err != nil || json.Unmarshal(text, &back) != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(rule, back); d != "" {
		t.Error(d)
	}
	for text, want := range map[string]string{
		`{"versioned_object.name":"A"}`: "A", `{"versioned_object.name":"A","versioned_object.data":{"id":7}}`: "decoding A: ", `7`: "json: ",
	} {
		r := QosRule{ID: "before"}
		if err := json.Unmarshal([]byte(text), &r); err != nil && !strings.Contains(err.Error(), want) || err == nil && (r.Kind != want || r.ID != "") {
			t.Errorf("%s: %+v, %v", text, r, err)
		}
	}
	for text, want := range map[string]int{
		`"{\"a\": 1}"`: 1, `{"a": 1, "b": 2}`: 2, `null`: 0, `""`: 0, `"text"`: 0, `[]`: 0, `"{}"`: 0, `{}`: 0, `7`: 0,
	} {
		e := EmbeddedJSON{"before": nil}
		if err := json.Unmarshal([]byte(text), &e); err != nil || len(e) != want || want == 0 && e != nil {
			t.Errorf("%s: %v, %v", text, e, err)
		}
	}
	for _, bad := range []string{`{"fixed_ips":7}`, `{"security":7}`, `{"mac_address":"02:00"}`, `{"mac_address":"02:00:00:00:00:00:00:01"}`, `{"allowed_address_pairs":[{"versioned_object.data":{"ip_address":"x"}}]}`} {
		if err := json.Unmarshal([]byte(bad), &Port{}); err == nil {
			t.Errorf("%s is read", bad)
		}
	}
	if m := port.Member(); m.ID != "p" || m.MAC != port.MAC || len(m.FixedIPs) != 1 || len(m.AllowedAddressPairs) != 1 {
		t.Errorf("%+v", m)
	}
}

// What a port is, by what the server says.
func TestFactsOfAPort(t *testing.T) {
	for owner, want := range map[string][2]bool{"network:dhcp": {true, false}, "compute:nova": {false, true}, "": {false, false}, "networks": {false, false}} {
		if got := [2]bool{IsNetworkOwned(owner), IsComputeOwned(owner)}; got != want {
			t.Errorf("%q: %v", owner, got)
		}
	}
	for want, hints := range map[string][]string{
		"hash": {`{"openvswitch":{"other_config":{"tx-steering":"hash"}}}`}, "thread": {`{"openvswitch":{"other_config":{"tx-steering":"thread"}}}`},
		"": {`{"openvswitch":{"other_config":{"tx-steering":"other"}}}`, `{"openvswitch":{"other_config":{"tx-steering":7}}}`, `{"openvswitch":7}`, `{}`, `{"openvswitch":{}}`},
	} {
		for _, h := range hints {
			p := Port{Hints: Maybe[Hints]{Value: &Hints{}}}
			if err := json.Unmarshal([]byte(h), &p.Hints.Value.Hints); err != nil {
				t.Fatal(err)
			}
			if got := p.TXSteering(); got != want {
				t.Errorf("%s: %q", h, got)
			}
		}
	}
	if got := (&Port{}).TXSteering(); got != "" || !(&Port{}).PortSecurityEnabled() {
		t.Errorf("%q", got)
	}
	level := func(host string, n int, kind string) BindingLevel {
		return BindingLevel{Host: host, Level: n, Segment: Maybe[Segment]{Value: &Segment{NetworkType: kind}}}
	}
	for _, c := range []struct {
		levels List[BindingLevel]
		want   string
	}{
		{nil, ""}, {List[BindingLevel]{level("h", 0, "a"), level("h", 1, "b")}, "b"}, {List[BindingLevel]{level("h", 1, "b"), level("h", 0, "a")}, "b"},
		{List[BindingLevel]{level("h", 0, "a"), level("i", 1, "b")}, "a"}, {List[BindingLevel]{level("i", 0, "a"), level("j", 1, "b")}, "b"},
		{List[BindingLevel]{level("h", 0, "a"), level("h", 0, "b")}, "b"}, {List[BindingLevel]{{Host: "h"}}, ""},
	} {
		got := ""
		if s := (&Port{BindingLevels: c.levels}).SegmentOn("h"); s != nil {
			got = s.NetworkType
		}
		if got != c.want {
			t.Errorf("%+v: %q, want %q", c.levels, got, c.want)
		}
	}
}

// Topics of an agent with and without forwarding entries; and what servers of a release are told.
func TestTopicsAndReports(t *testing.T) {
	versions := releases()[0].versions
	if got := Topics(versions, true, KindPort, KindAddressGroup); !slices.Equal(got, []string{TopicTunnelUpdate, TopicTunnelDelete, TopicDVRUpdate, TopicL2Population, "neutron-vo-Port-1.5"}) {
		t.Errorf("%q", got)
	}
	if got := Topics(versions, false); len(got) != 3 {
		t.Errorf("%q", got)
	}
	if got := DirectedTopics(true); !slices.Equal(got, []string{TopicTunnelUpdate}) || DirectedTopics(false) != nil {
		t.Errorf("%q", got)
	}
	for number, want := range map[int]int{21: 1, 23: 2} {
		c := Configurations{RPHypervisors: map[string]string{"rp_tunnelled": "hv1", "br-ex": "hv1"}, ImpliedRP: "rp_tunnelled"}
		i := slices.IndexFunc(releases(), func(r release) bool { return r.number == number })
		if got := ConfigurationsFor(c, releases()[i].versions); len(got.RPHypervisors) != want || len(c.RPHypervisors) != 2 {
			t.Errorf("release %d: %v", number, got.RPHypervisors)
		}
		c.ImpliedRP = ""
		if got := ConfigurationsFor(c, releases()[i].versions); len(got.RPHypervisors) != 2 {
			t.Errorf("release %d, mentioned: %v", number, got.RPHypervisors)
		}
	}
}

// A server that refuses is one that cannot tell; one that does not answer is an error.
func TestRefusals(t *testing.T) {
	away := errors.New("away")
	for _, c := range []struct {
		err     error
		known   bool
		failure bool
	}{
		{nil, true, false}, {messaging.NewNoSuchMethod("m"), false, false}, {messaging.NewUnsupportedVersion("1.9", "m"), false, false},
		{&messaging.RemoteError{Class: "InvalidResourceTypeClass"}, false, false}, {&messaging.RemoteError{Class: "DBError"}, false, true}, {away, false, true},
	} {
		if known, err := supported(c.err); known != c.known || (err != nil) != c.failure {
			t.Errorf("%v: %v, %v", c.err, known, err)
		}
	}
	if unlessRefused(&messaging.RemoteError{Class: "DBError"}) != nil || !errors.Is(unlessRefused(away), away) || unlessRefused(nil) != nil {
		t.Error("what a server refused, or did not answer")
	}
	s := NewServer(failing{away}, "hv1")
	if ok, err := s.Alive(t.Context()); ok || !errors.Is(err, away) {
		t.Errorf("%v, %v", ok, err)
	}
	if found, err := s.TrunksOf(t.Context(), []string{"p"}); found != nil || !errors.Is(err, away) {
		t.Errorf("%v, %v", found, err)
	}
	if _, err := s.NetworkDetails(t.Context(), "n"); !errors.Is(err, away) {
		t.Error(err)
	}
	if releases, v, err := Negotiate(t.Context(), s); releases != "" || v != nil || !errors.Is(err, away) {
		t.Errorf("%q, %v, %v", releases, v, err)
	}
	// It goes away after its first answers, or refuses all questions.
	for _, answers := range []int{1, 2, 3, 4} {
		if releases, v, err := Negotiate(t.Context(), NewServer(&leaving{answers, away}, "hv1")); releases != "" || v != nil || !errors.Is(err, away) {
			t.Errorf("after %d answers: %q, %v, %v", answers, releases, v, err)
		}
	}
	if releases, _, err := Negotiate(t.Context(), NewServer(failing{messaging.NewNoSuchMethod("m")}, "hv1")); releases != "17" || err != nil {
		t.Errorf("%q, %v", releases, err)
	}
}

// failing is a caller whose calls fail.
type failing struct{ err error }

func (f failing) Call(context.Context, messaging.Target, string, any, any) error { return f.err }

func (f failing) Cast(context.Context, messaging.Target, string, any) error { return f.err }

// leaving is a server that has one network and nothing else, and is away after so many answers.
type leaving struct {
	answers int
	err     error
}

func (l *leaving) Call(_ context.Context, _ messaging.Target, method string, _, result any) error {
	if l.answers--; l.answers < 0 {
		return l.err
	}
	if method == "get_networks" {
		return json.Unmarshal([]byte(`[{"id":"n","tenant_id":"p"}]`), result)
	}
	return json.Unmarshal([]byte(`[]`), result)
}

func (l *leaving) Cast(context.Context, messaging.Target, string, any) error { return l.err }
