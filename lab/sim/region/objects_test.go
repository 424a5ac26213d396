// SPDX-License-Identifier: Apache-2.0

package region

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
)

// shapes collects the form of every object in a JSON value: for each kind and version the fields and the types of their
// values. A field that is null here and something else there has both.
func shapes(v any, into map[string]map[string]map[string]bool) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			shapes(e, into)
		}
	case map[string]any:
		data, ok := v["versioned_object.data"].(map[string]any)
		if ok && v["versioned_object.changes"] == nil {
			kind := fmt.Sprintf("%v %v %v", v["versioned_object.name"], v["versioned_object.version"], v["versioned_object.namespace"])
			if into[kind] == nil {
				into[kind] = map[string]map[string]bool{}
			}
			for name, value := range data {
				if into[kind][name] == nil {
					into[kind][name] = map[string]bool{}
				}
				into[kind][name][fmt.Sprintf("%T", value)] = true
			}
		}
		for _, e := range v {
			shapes(e, into)
		}
	}
}

func transcript(t *testing.T) map[string]map[string]map[string]bool {
	t.Helper()
	file, err := os.Open("../../../internal/neutron/testdata/transcript.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	real := map[string]map[string]map[string]bool{}
	for s := bufio.NewReader(file); ; {
		line, err := s.ReadBytes('\n')
		if err != nil {
			return real
		}
		var entry any
		if err := json.Unmarshal(line, &entry); err != nil {
			t.Fatal(err)
		}
		shapes(entry, real)
	}
}

// TestObjectsLookLikeTheRealOnes compares with what a neutron-server 21 has sent.
func TestObjectsLookLikeTheRealOnes(t *testing.T) {
	seg := &Segment{ID: "s", NetworkType: "vxlan", SegmentationID: 7}
	n := &Network{ID: "n", Segments: []*Segment{seg}, stamp: born()}
	low, high := 80, 90
	rule := &Rule{ID: "r", GroupID: "g", Protocol: "tcp", PortMin: &low, PortMax: &high, RemoteGroup: "x", RemoteAddressGroup: "y", stamp: born()}
	port := &Port{
		ID: "p", NetworkID: "n", MAC: "fa:16:3e:00:00:01", Status: down, Groups: []string{"g"}, FixedIPs: []FixedIP{{"s", netip.MustParseAddr("10.0.0.1")}}, stamp: born(),
		Bindings: []*Binding{{Host: "h", Status: active, VIFType: bound, Segment: seg, details: "{}"}, {Host: "i", Status: inactive, VIFType: unbound}},
	}
	sub := &Subnet{ID: "s", CIDR: netip.MustParsePrefix("10.0.0.0/24"), Gateway: netip.MustParseAddr("10.0.0.1"), stamp: born()}
	have := map[string]map[string]map[string]bool{}
	server := New(Config{})
	for _, object := range []primitive{
		n.object(), sub.object(), port.object(n), rule.object(), (&Group{ID: "g", Rules: []*Rule{rule}, stamp: born()}).object(),
		(&AddressGroup{ID: "a", Addresses: []string{"10.0.0.0/8"}, stamp: born()}).object(),
	} {
		text, err := server.inVersion(object, object.Name, server.own[object.Name])
		if err != nil {
			t.Fatal(err)
		}
		var v any
		if err := json.Unmarshal(text, &v); err != nil {
			t.Fatal(err)
		}
		shapes(v, have)
	}
	real := transcript(t)
	compared := 0
	for kind, fields := range have {
		if real[kind] == nil {
			t.Errorf("the real server has sent no %s", kind)
			continue
		}
		if a, b := names(fields), names(real[kind]); !slices.Equal(a, b) {
			t.Errorf("%s has the fields %v, the real one %v", kind, a, b)
		}
		for name, types := range fields {
			compared++
			for typ := range types {
				if !real[kind][name][typ] {
					t.Errorf("%s: %s is a %s, in the real one %v", kind, name, typ, names(real[kind][name]))
				}
			}
		}
	}
	if compared < 80 {
		t.Errorf("only %d fields compared", compared)
	}
}

func names[T any](m map[string]T) []string { return slices.Sorted(maps.Keys(m)) }

func TestGonePort(t *testing.T) {
	const real = `{"versioned_object.name":"Port","versioned_object.namespace":"versionedobjects","versioned_object.version":"1.7",` +
		`"versioned_object.data":{"id":"x","qos_network_policy_id":null,"qos_policy_id":null,"security_group_ids":null},` +
		`"versioned_object.changes":["id","qos_network_policy_id","qos_policy_id","security_group_ids"]}`
	if got := string(encode(as(gone("Port", "x"), "1.7"))); got != real {
		t.Errorf("got  %s\nreal %s", got, real)
	}
}

// TestRulesAreStoredAsTheRealServerDoes pins what the API makes of a rule before agents see it.
func TestRulesAreStoredAsTheRealServerDoes(t *testing.T) {
	one, all := 1, 65535
	for _, c := range []struct {
		spec RuleSpec
		want string
	}{
		{RuleSpec{EtherType: "ipv6", Protocol: "icmp"}, `IPv6 ipv6-icmp - `},
		{RuleSpec{EtherType: "IPv6", Protocol: float64(1)}, `IPv6 58 - `},
		{RuleSpec{EtherType: "IPv4", Protocol: "TCP", PortMin: &one, PortMax: &all}, `IPv4 tcp - `},
		{RuleSpec{Protocol: 112, RemotePrefix: "10.1.2.3"}, `IPv4 112 - 10.1.2.3/32`},
		{RuleSpec{Protocol: "udp", PortMin: &one, PortMax: &one, RemotePrefix: "10.1.2.3/8"}, `IPv4 udp 1 10.1.2.3/8`},
	} {
		r, err := c.spec.rule()
		if err != nil {
			t.Error(err)
			continue
		}
		low := "-"
		if r.PortMin != nil {
			low = fmt.Sprint(*r.PortMin)
		}
		if got := strings.Join([]string{r.EtherType, r.Protocol, low, r.RemotePrefix}, " "); got != c.want {
			t.Errorf("%+v: %q, want %q", c.spec, got, c.want)
		}
	}
	if _, err := (RuleSpec{RemotePrefix: "nowhere"}).rule(); err == nil {
		t.Error("a prefix that is none was taken")
	}
}
