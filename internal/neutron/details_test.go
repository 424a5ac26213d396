// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"context"
	"encoding/json"
	"net/netip"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

func TestRequestIDs(t *testing.T) {
	form := regexp.MustCompile(`^req-[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	chance := map[byte]bool{}
	for range 200 {
		c := RequestContext(time.Unix(1, 2000).In(time.FixedZone("", 3600)))
		id := c["request_id"].(string)
		if !form.MatchString(id) || c["timestamp"] != "1970-01-01 00:00:01.000002" || c["is_admin"] != true || c["read_only"] != false {
			t.Fatalf("%v", c)
		}
		chance[id[19]], chance[id[24]] = true, true
	}
	if len(chance) < 16 {
		t.Errorf("digits that are chance are not: %v", chance)
	}
}

// TestFormsOfAddresses: what decodes, what does not, and what an empty text means.
func TestFormsOfAddresses(t *testing.T) {
	mac := MAC{1}
	for text, want := range map[string]MAC{`""`: {}, `"02:00:00:00:00:01"`: {2, 0, 0, 0, 0, 1}, `"02-00-00-00-00-01"`: {2, 0, 0, 0, 0, 1}} {
		if err := json.Unmarshal([]byte(text), &mac); err != nil || mac != want {
			t.Errorf("%s: %v, %v", text, mac, err)
		}
	}
	for _, text := range []string{`"x"`, `"02:00:00:00:00:00:00:01"`, `1`} {
		if err := json.Unmarshal([]byte(text), &mac); err == nil {
			t.Errorf("%s is taken for an address", text)
		}
	}
	var p Prefix
	for text, want := range map[string]string{`"10.0.0.5"`: "10.0.0.5/32", `"10.0.0.5/24"`: "10.0.0.0/24", `"fe80::1%eth0"`: "fe80::1/128", `"::/0"`: "::/0"} {
		if err := json.Unmarshal([]byte(text), &p); err != nil || p.String() != want {
			t.Errorf("%s: %v, %v", text, p, err)
		}
	}
	if err := json.Unmarshal([]byte(`""`), &p); err != nil || p.IsValid() {
		t.Errorf("an empty text: %v, %v", p, err)
	}
	if err := json.Unmarshal([]byte(`"10.0.0.0/33"`), &p); err == nil {
		t.Error("a prefix that is none is taken")
	}
	var e FDBEntry
	if err := json.Unmarshal([]byte(`["02:00:00:00:00:01","10.0.0.5"]`), &e); err != nil || e != (FDBEntry{MAC{2, 0, 0, 0, 0, 1}, netip.MustParseAddr("10.0.0.5")}) || e.Flood() {
		t.Errorf("%v, %v", e, err)
	}
	if err := json.Unmarshal([]byte(`["00:00:00:00:00:00","0.0.0.0"]`), &e); err != nil || !e.Flood() {
		t.Errorf("%v, %v", e, err)
	}
	for _, text := range []string{`["02:00:00:00:00:01"]`, `["x","10.0.0.5"]`, `["02:00:00:00:00:01","x"]`, `{}`, `["02:00:00:00:00:01","10.0.0.5","z"]`} {
		if err := json.Unmarshal([]byte(text), &e); err == nil {
			t.Errorf("%s is taken for an entry", text)
		}
	}
	text, err := json.Marshal(FDBEntry{MAC{2}, netip.MustParseAddr("10.0.0.5")})
	if err != nil || string(text) != `["02:00:00:00:00:00","10.0.0.5"]` {
		t.Errorf("%s, %v", text, err)
	}
	list := List[FixedIP]{{}}
	if err := json.Unmarshal([]byte(`{}`), &list); err == nil {
		t.Error("an object is taken for a list")
	}
	if err := json.Unmarshal([]byte(`null`), &list); err != nil || list != nil {
		t.Errorf("null: %v, %v", list, err)
	}
}

// answering answers every call with a text, and keeps what was asked.
type answering struct {
	text   string
	method string
	args   string
}

// Call implements Caller.
func (a *answering) Call(_ context.Context, _ messaging.Target, method string, args, result any) error {
	text, err := json.Marshal(args)
	a.method, a.args = method, string(text)
	if err != nil {
		return err
	}
	return json.Unmarshal([]byte(a.text), result)
}

// TestAnswersOfRouters: what is asked, and what comes back.
func TestAnswersOfRouters(t *testing.T) {
	mac := MAC{2, 0, 0, 0, 0, 1}
	a := &answering{text: `{"host":"hv1","mac_address":"02:00:00:00:00:01"}`}
	s := NewServer(a, "hv1")
	if got, err := s.DVRAddress(t.Context()); err != nil || got != mac || a.method != "get_dvr_mac_address_by_host" || a.args != `{"host":"hv1"}` {
		t.Errorf("%v, %v, %s(%s)", got, err, a.method, a.args)
	}
	a.text = `{"gateway_mac":"02:00:00:00:00:01"}`
	if got, err := s.DVRGateway(t.Context(), "s1"); err != nil || got != mac || a.method != "get_subnet_for_dvr" || a.args != `{"fixed_ips":null,"subnet":"s1"}` {
		t.Errorf("%v, %v, %s(%s)", got, err, a.method, a.args)
	}
	a.text = `[{"host":"hv2","mac_address":"02:00:00:00:00:01"}]`
	if got, err := s.DVRAddresses(t.Context()); err != nil || len(got) != 1 || got[0].MAC != mac || got[0].Host != "hv2" {
		t.Errorf("%v, %v", got, err)
	}
	a.text = `{"tunnels":[{"ip_address":"10.0.0.2","tunnel_type":"vxlan"}]}`
	if got, err := s.TunnelSync(t.Context(), netip.MustParseAddr("10.0.0.1"), "vxlan"); err != nil || len(got) != 1 || got[0].IP != netip.MustParseAddr("10.0.0.2") || a.args != `{"host":"hv1","tunnel_ip":"10.0.0.1","tunnel_type":"vxlan"}` {
		t.Errorf("%v, %v, %s", got, err, a.args)
	}
	if _, err := s.BulkPull(t.Context(), Versions{}, KindPort, nil); err == nil {
		t.Error("a kind that the server does not have is asked for")
	}
	if _, err := s.Pull(t.Context(), Versions{}, KindPort, "x"); err == nil {
		t.Error("a kind that the server does not have is asked for")
	}
	a.text = "[" // fails
	for name, call := range map[string]func() error{
		"DVRAddress":   func() error { _, err := s.DVRAddress(t.Context()); return err },
		"DVRGateway":   func() error { _, err := s.DVRGateway(t.Context(), "s1"); return err },
		"DVRAddresses": func() error { _, err := s.DVRAddresses(t.Context()); return err },
		"TunnelSync": func() error {
			_, err := s.TunnelSync(t.Context(), netip.MustParseAddr("10.0.0.1"), "vxlan")
			return err
		},
		"BulkPull": func() error { _, err := s.BulkPull(t.Context(), Versions{KindPort: "1.7"}, KindPort, nil); return err },
		"Pull":     func() error { _, err := s.Pull(t.Context(), Versions{KindPort: "1.7"}, KindPort, "x"); return err },
	} {
		if call() == nil {
			t.Errorf("%s: the failure is lost", name)
		}
	}
	a.text = "null"
	if got, err := s.BulkPull(t.Context(), Versions{KindPort: "1.7"}, KindPort, nil); err != nil || len(got) != 0 {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := s.Pull(t.Context(), Versions{KindPort: "1.7"}, KindPort, "x"); err != nil || got != nil {
		t.Errorf("%v, %v", got, err)
	}
	if got := orEmpty(nil); got == nil || !slices.Equal(orEmpty([]string{"a"}), []string{"a"}) {
		t.Errorf("%#v", got)
	}
}
