// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"bufio"
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// message is one line of testdata/transcript.jsonl: what a real neutron-server 21 and two Python agents said to each
// other through a dozen scenarios.
type message struct {
	Step     string
	Exchange string
	Keys     []string
	Message  struct {
		Method string
		Args   json.RawMessage
		Result json.RawMessage
		MsgID  string `json:"_msg_id"`
	}
}

func transcript(t testing.TB) []message {
	t.Helper()
	f, err := os.Open("testdata/transcript.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var all []message
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		var m message
		if err := json.Unmarshal(sc.Bytes(), &m); err != nil {
			t.Fatal(err)
		}
		all = append(all, m)
	}
	if err := sc.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

// topic is the topic of a message to an agent, or "".
func (m message) topic() string {
	if t, ok := strings.CutSuffix(m.Exchange, "_fanout"); ok {
		return t
	}
	for _, k := range m.Keys {
		for _, host := range []string{".hv1", ".hv2"} {
			if t, ok := strings.CutSuffix(k, host); ok {
				return t
			}
		}
	}
	return ""
}

// decodeObject reads an object of any kind the package knows.
func decodeObject(p Primitive) (any, error) {
	var v any
	switch Kind(p.Name) {
	case KindPort:
		v = &Port{}
	case KindNetwork:
		v = &Network{}
	case KindSubnet:
		v = &Subnet{}
	case KindSecurityGroup:
		v = &SecurityGroup{}
	case KindSecurityGroupRule:
		v = &SecurityGroupRule{}
	case KindAddressGroup:
		v = &AddressGroup{}
	case KindQosPolicy:
		v = &QosPolicy{}
	case KindTrunk:
		v = &Trunk{}
	case KindSubPort:
		v = &SubPort{}
	default:
		return nil, nil
	}
	return v, p.Decode(Kind(p.Name), v)
}

func TestTranscriptDecodes(t *testing.T) {
	counts := map[string]int{}
	for _, m := range transcript(t) {
		topic := m.topic()
		if topic == "" || m.Message.Method == "" {
			continue
		}
		msg, err := DecodeMessage(topic, m.Message.Method, m.Message.Args)
		if err != nil {
			t.Errorf("%s: %s on %s: %v", m.Step, m.Message.Method, topic, err)
			continue
		}
		push, ok := msg.(*Push)
		if !ok {
			if msg != nil {
				counts[m.Message.Method]++
			}
			continue
		}
		for _, o := range push.Objects {
			if _, err := decodeObject(o); err != nil {
				t.Errorf("%s: %v", m.Step, err)
			}
			counts[string(push.Event)+" "+o.Name]++
		}
	}
	for what, n := range map[string]int{
		"updated Port": 15, "deleted Port": 1, "updated SecurityGroup": 2, "updated Network": 3, "updated AddressGroup": 3,
		"updated QosPolicy": 2, "created Trunk": 1, "add_fdb_entries": 23, "remove_fdb_entries": 3, "update_fdb_entries": 1,
		"tunnel_update": 6,
	} {
		if counts[what] != n {
			t.Errorf("%s: decoded %d, the transcript has %d", what, counts[what], n)
		}
	}
}

// The fields that decide how a port is wired, read from the transcript's own port b on hv2.
func TestPortFields(t *testing.T) {
	for _, m := range transcript(t) {
		var objects []Primitive
		if json.Unmarshal(m.Message.Result, &objects) != nil || len(objects) == 0 || objects[0].Name != "Port" {
			continue
		}
		ports, err := DecodeAll[Port](KindPort, objects)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range ports {
			if p.ID != "1b7fe7dd-8f18-44bc-ab9e-435b643cd341" || len(p.BindingLevels) == 0 {
				continue
			}
			seg := p.BindingLevels[0].Segment.Value
			if p.MAC.String() != "fa:16:3e:6a:76:29" || p.FixedIPs[0].IP.String() != "192.168.55.231" ||
				p.Bindings[0].Host != "hv2" || p.Bindings[0].Status != "ACTIVE" || !p.AdminStateUp ||
				!p.PortSecurityEnabled() || seg == nil || seg.NetworkType != "vxlan" || *seg.SegmentationID != 673 ||
				!IsComputeOwned(p.DeviceOwner) || len(p.SecurityGroupIDs) != 1 || p.Revision != 2 {
				t.Errorf("port read wrongly: %+v", p)
			}
			return
		}
	}
	t.Fatal("the transcript has no such port")
}

func TestDecodeAllKeepsTheGoodOnes(t *testing.T) {
	objects := []Primitive{
		{Name: "Port", Data: json.RawMessage(`{"id":"a","mac_address":"fa:16:3e:00:00:01"}`)},
		{Name: "Port", Data: json.RawMessage(`{"id":"b","mac_address":"nonsense"}`)},
		{Name: "Network", Data: json.RawMessage(`{"id":"c"}`)},
		{Name: "Port", Data: json.RawMessage(`{"id":"d","security":null,"hints":null,"bindings":null,"allowed_address_pairs":[
			{"versioned_object.data":{"mac_address":"fa:16:3e:00:00:02","ip_address":"10.0.0.5"}},
			{"versioned_object.data":{"mac_address":"fa:16:3e:00:00:02","ip_address":"10.1.2.3/16"}}]}`)},
	}
	ports, err := DecodeAll[Port](KindPort, objects)
	if err == nil {
		t.Error("two bad objects, no error")
	}
	if len(ports) != 2 || ports[0].ID != "a" || ports[1].ID != "d" {
		t.Fatalf("got %+v", ports)
	}
	pairs := ports[1].AllowedAddressPairs
	if pairs[0].IP.String() != "10.0.0.5/32" || pairs[1].IP.String() != "10.1.0.0/16" {
		t.Errorf("pairs %v", pairs)
	}
}

func TestDecodeMessageRefuses(t *testing.T) {
	for name, c := range map[string][3]string{
		"empty push":       {"neutron-vo-Port-1.7", "push", `{"resource_list":[],"event_type":"updated"}`},
		"unknown event":    {"neutron-vo-Port-1.7", "push", `{"resource_list":[{"versioned_object.name":"Port"}],"event_type":"eaten"}`},
		"mixed kinds":      {"neutron-vo-Port-1.7", "push", `{"resource_list":[{"versioned_object.name":"Port"},{"versioned_object.name":"Network"}],"event_type":"updated"}`},
		"bad address":      {TopicTunnelUpdate, "tunnel_update", `{"tunnel_ip":"x","tunnel_type":"gre"}`},
		"short entry":      {TopicL2Population, "add_fdb_entries", `{"fdb_entries":{"n":{"ports":{"10.0.0.1":[["00:00:00:00:00:00"]]}}}}`},
		"unknown change":   {TopicL2Population, "update_fdb_entries", `{"fdb_entries":{"chg_mac":{}}}`},
		"endpoint no addr": {TopicL2Population, "add_fdb_entries", `{"fdb_entries":{"n":{"ports":{"hv1":[]}}}}`},
	} {
		if msg, err := DecodeMessage(c[0], c[1], []byte(c[2])); err == nil {
			t.Errorf("%s: accepted as %+v", name, msg)
		}
	}
	if msg, err := DecodeMessage(TopicTunnelUpdate, "port_update", nil); msg != nil || err != nil {
		t.Errorf("a method of another design: %v, %v", msg, err)
	}
}

func TestRatioStaysFloat(t *testing.T) {
	one := Ratio(1)
	got, err := json.Marshal(Inventory{AllocationRatio: &one})
	if err != nil || string(got) != `{"allocation_ratio":1.0}` {
		t.Errorf("got %s, %v", got, err)
	}
}

func FuzzDecode(f *testing.F) {
	for _, m := range transcript(f) {
		if t := m.topic(); t != "" && m.Message.Method != "" {
			f.Add(t, m.Message.Method, []byte(m.Message.Args))
		}
	}
	f.Fuzz(func(_ *testing.T, topic, method string, args []byte) {
		msg, err := DecodeMessage(topic, method, args)
		if push, ok := msg.(*Push); ok && err == nil {
			for _, o := range push.Objects {
				_, _ = decodeObject(o) // must not panic
			}
		}
	})
}
