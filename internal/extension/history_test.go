// SPDX-License-Identifier: Apache-2.0

package extension_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/patchbay-sdn/patchbay/internal/extension/extensiontest"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/world"
)

// Any order of the same news about ports, networks, policies, routers and trunks, with late, failed, repeated and overtaken ones,
// gaps and restarts, ends in the same flows, meters, rows and queues as when only the end is told. When everything is unplugged
// nothing is left but what was there before.
func TestAnyHistory(outer *testing.T) {
	rapid.Check(outer, func(t *rapid.T) {
		var failed any
		synctest.Test(outer, func(*testing.T) { // the graces of trunks pass at once
			defer func() { failed = recover() }()
			anyHistory(t)
		})
		// Failures are told apart by where they were thrown, and too few draws are none.
		if failed != nil && fmt.Sprintf("%T", failed) == "rapid.stopTest" {
			panic(failed)
		} else if failed != nil {
			panic(failed)
		}
	})
}

func anyHistory(t *rapid.T) {
	cfg := world.Config{
		Host: "hv1", IntegrationBridge: "br-int", TunnelBridge: "br-tun", IntPatch: "patch-tun", TunPatch: "patch-int",
		Physical: map[string]string{"physnet1": "br-ex"}, LocalIP: netip.MustParseAddr("10.0.0.1"), TunnelTypes: []string{"vxlan"},
		L2Population: rapid.Bool().Draw(t, "l2pop"), AntiSpoof: rapid.Bool().Draw(t, "antispoof"),
	}
	cfg.ARPResponder = cfg.L2Population && rapid.Bool().Draw(t, "responder")
	s := newServer()
	h := newHost(t, cfg, s)
	if rapid.Bool().Draw(t, "two routers") {
		s.gateways["s1"] = macOf(rapid.SampledFrom([]string{"1", "2"}).Draw(t, "gateway"))
	}
	h.tell()
	base := h.text()
	for range rapid.IntRange(1, 50).Draw(t, "events") {
		step(t, h, s)
	}
	h.tell()
	fresh := newHost(t, cfg, s)
	for _, id := range slices.Sorted(maps.Keys(h.plugged)) {
		fresh.plug(id)
	}
	if h.booted {
		fresh.boot()
	}
	fresh.tell()
	if got, want := h.text(), fresh.text(); !slices.Equal(got, want) {
		t.Fatalf("after its history:\n%s\ntold the end only:\n%s", only(got, want), only(want, got))
	}

	for _, id := range slices.Sorted(maps.Keys(h.plugged)) {
		h.unplug(id)
	}
	h.halt(false)
	h.cast("hv2", "hv3")
	h.tell()
	if got := h.text(); !slices.Equal(got, base) {
		t.Fatalf("left over:\n%s\nmissing:\n%s", only(got, base), only(base, got))
	}
}

// only lists the lines that are not among the others.
func only(lines, others []string) string {
	return strings.Join(slices.DeleteFunc(slices.Clone(lines), func(l string) bool { return slices.Contains(others, l) }), "\n")
}

var (
	historyPorts    = []string{"1", "2", "3", "4"}
	historySubPorts = []string{"5", "6"}
	historyPolicies = []string{"q1", "q2", ""}
	historyNetworks = []string{"n1", "n2", "n3", "n4"}
)

// step lets something happen, somewhere in the cloud, on the host or on the way between them.
func step(t *rapid.T, h *host, s *server) {
	id := rapid.SampledFrom(historyPorts).Draw(t, "port")
	sub := rapid.SampledFrom(historySubPorts).Draw(t, "sub-port")
	s.revision++
	switch rapid.SampledFrom([]string{
		"plug", "plug", "unplug", "boot", "halt", "sub-port", "sub-port", "trunk", "time", "port", "port", "port", "policy", "network", "hosts", "arrive", "arrive", "arrive", "tell", "settle", "doubt",
	}).Draw(t, "event") {
	case "plug":
		h.plug(id)
	case "unplug":
		h.unplug(id)
	case "boot":
		h.boot()
	case "halt":
		h.halt(rapid.Bool().Draw(t, "dispose"))
	case "sub-port":
		vlan := rapid.IntRange(1, 2).Draw(t, "VLAN")
		event, told := neutron.Created, vlan
		if was, there := s.subPorts[sub]; there {
			event, told = neutron.Deleted, was
			delete(s.subPorts, sub)
		} else {
			s.subPorts[sub] = vlan
		}
		times := rapid.IntRange(0, 2).Draw(t, "told")
		for range times {
			h.pushAs(event, neutron.KindSubPort, subPortData(sub, told))
		}
		if times == 0 { // it was lost
			h.doubt()
		}
	case "time":
		h.settle()
		time.Sleep(time.Duration(rapid.SampledFrom([]int{1, 5, 10, 70}).Draw(t, "seconds")) * time.Second)
	case "trunk": // the ports of the trunk change
		id := rapid.SampledFrom([]string{sub, trunkParent}).Draw(t, "of trunk")
		s.ports[id] = drawPort(t, id, s.revision)
		s.ports[id].owner = map[bool]string{true: "compute:nova", false: "trunk:subport"}[id == trunkParent]
		h.push(neutron.KindPort, id, s.port(id))
	case "port":
		s.ports[id] = drawPort(t, id, s.revision)
		h.push(neutron.KindPort, id, s.port(id))
		h.repeat(t, neutron.KindPort, id)
	case "policy":
		q := rapid.SampledFrom([]string{"q1", "q2"}).Draw(t, "changed")
		s.policies[q] = extensiontest.DrawRules(t)
		h.push(neutron.KindQosPolicy, q, s.policy(q))
		h.repeat(t, neutron.KindQosPolicy, q)
	case "network":
		n := rapid.SampledFrom(historyNetworks).Draw(t, "network")
		s.networks[n] = rapid.SampledFrom(historyPolicies).Draw(t, "policy")
		h.push(neutron.KindNetwork, n, s.network(n))
		h.repeat(t, neutron.KindNetwork, n)
	case "hosts":
		for _, name := range []string{"hv1", "hv2", "hv3"} {
			if rapid.Bool().Draw(t, name) {
				s.macs[name] = macOf(name)
			} else if name != "hv1" { // an address that a host has been given stays
				delete(s.macs, name)
			}
		}
		h.cast()
	case "arrive":
		h.arrive(t)
	case "tell":
		h.tell()
	case "settle":
		h.settle()
	case "doubt":
		if rapid.Bool().Draw(t, "restart") {
			h.restart()
		} else {
			h.doubt()
		}
	}
}

// owners of ports, and what follows from them.
var owners = []string{
	"compute:nova", "compute:nova", "network:router_interface_distributed", "network:router_interface_distributed",
	"network:router_centralized_snat", "network:dhcp", "network:router_gateway", "trunk:subport",
}

func drawPort(t *rapid.T, id string, revision int) *facts {
	f := &facts{
		policy: rapid.SampledFrom(historyPolicies).Draw(t, "policy"), network: rapid.SampledFrom(historyNetworks).Draw(t, "network"),
		owner: rapid.SampledFrom(owners).Draw(t, "owner"), up: rapid.IntRange(0, 4).Draw(t, "up") > 0, revision: revision,
	}
	subnet := "s" + f.network[1:]
	if rapid.IntRange(0, 3).Draw(t, "subnet") == 0 {
		subnet += "b"
	}
	four := []string{subnet, "10.0.0.1" + id}
	six := []string{subnet + "v6", "fd00::1" + id}
	f.ips = [][]string{four}
	switch rapid.IntRange(0, 4).Draw(t, "addresses") {
	case 0:
		f.ips = [][]string{six}
	case 1:
		f.ips = nil
	case 2:
		if !strings.HasPrefix(f.owner, "network:router") { // an interface of a router has one
			f.ips = append(f.ips, six)
		}
	}
	return f
}

// server is what is true.
type server struct {
	revision int
	policies map[string][]extensiontest.Rule
	ports    map[string]*facts
	networks map[string]string      // policies
	macs     map[string]neutron.MAC // router addresses, by host
	gateways map[string]neutron.MAC // by subnet; they do not change, since the server tells nobody when they do
	subPorts map[string]int         // of the trunk: their VLANs
}

// The trunk and its parent.
const trunkID, trunkParent = "trunk", "7"

func subPortData(id string, vlan int) string {
	return fmt.Sprintf(`{"port_id":%q,"trunk_id":%q,"segmentation_type":"vlan","segmentation_id":%d}`, id, trunkID, vlan)
}

type facts struct {
	policy, network, owner string
	up                     bool
	ips                    [][]string // subnet and address
	revision               int
}

func newServer() *server {
	return &server{
		policies: map[string][]extensiontest.Rule{"q1": {}, "q2": {}}, ports: map[string]*facts{}, networks: map[string]string{}, macs: map[string]neutron.MAC{},
		subPorts: map[string]int{},
		gateways: map[string]neutron.MAC{"s1": macOf("far"), "s2": macOf("far"), "s3b": macOf("far"), "s1v6": macOf("six")},
	}
}

// macOf makes an address of a name.
func macOf(name string) neutron.MAC {
	m := neutron.MAC{0xfa, 0x16, 0x3e}
	copy(m[3:], fmt.Sprintf("%3s", name))
	return m
}

func orNull(v string) string {
	if v == "" {
		return "null"
	}
	return `"` + v + `"`
}

func (s *server) policy(id string) string {
	var rules []string
	for _, r := range s.policies[id] {
		rules = append(rules, r.Object())
	}
	return fmt.Sprintf(`{"id":%q,"name":"n-%s","revision_number":%d,"rules":[%s]}`, id, id, s.revision, strings.Join(rules, ","))
}

func (s *server) port(id string) string {
	f := s.ports[id]
	segment := map[string]string{
		"n1": `"network_type":"vxlan","segmentation_id":101`, "n2": `"network_type":"vlan","physical_network":"physnet1","segmentation_id":102`,
		"n3": `"network_type":"flat","physical_network":"physnet1"`, "n4": `"network_type":"local"`,
	}[f.network]
	var ips []string
	for _, ip := range f.ips {
		ips = append(ips, fmt.Sprintf(`{"versioned_object.data":{"subnet_id":%q,"ip_address":%q}}`, ip[0], ip[1]))
	}
	return fmt.Sprintf(`{"id":%q,"network_id":%q,"admin_state_up":%t,"device_owner":%q,"revision_number":%d,"mac_address":%q,
		"qos_policy_id":%s,"qos_network_policy_id":%s,"fixed_ips":[%s],
		"bindings":[{"versioned_object.data":{"host":"hv1","status":"ACTIVE"}}],
		"binding_levels":[{"versioned_object.data":{"segment":{"versioned_object.data":{%s}}}}]}`,
		id, f.network, f.up, f.owner, f.revision, macOf(id), orNull(f.policy), orNull(s.networks[f.network]), strings.Join(ips, ","), segment)
}

func (s *server) network(id string) string {
	return fmt.Sprintf(`{"id":%q,"revision_number":%d,"qos_policy_id":%s}`, id, s.revision, orNull(s.networks[id]))
}

// pull answers about objects by their ids.
func (s *server) pull(kind neutron.Kind, id string) (data string, found bool) {
	switch kind {
	case neutron.KindPort:
		if s.ports[id] == nil {
			return "", false
		}
		return s.port(id), true
	case neutron.KindQosPolicy:
		if s.policies[id] == nil {
			return "", false
		}
		return s.policy(id), true
	}
	return s.network(id), true
}

// call answers a task's question, as things are now.
func (s *server) call(method string, args map[string]any) any {
	switch method {
	case "bulk_pull": // about trunks
		subs := []any{}
		for _, id := range slices.Sorted(maps.Keys(s.subPorts)) {
			subs = append(subs, map[string]any{"versioned_object.name": "SubPort", "versioned_object.data": json.RawMessage(subPortData(id, s.subPorts[id]))})
		}
		data := map[string]any{"id": trunkID, "port_id": trunkParent, "admin_state_up": true, "status": "DOWN", "sub_ports": subs, "revision_number": s.revision}
		return []any{map[string]any{"versioned_object.name": "Trunk", "versioned_object.data": data}}
	case "update_subport_bindings":
		bound := []any{}
		for _, sub := range args["subports"].([]any) {
			if id := fmt.Sprint(sub.(map[string]any)["port_id"]); s.subPorts[id] != 0 {
				bound = append(bound, map[string]any{"id": id, "mac_address": macOf(id).String()})
			}
		}
		return map[string]any{trunkID: bound}
	case "update_trunk_status":
		return nil
	case "get_dvr_mac_address_list":
		all := []neutron.DVRMAC{}
		for _, name := range slices.Sorted(maps.Keys(s.macs)) {
			all = append(all, neutron.DVRMAC{Host: name, MAC: s.macs[name]})
		}
		return all
	case "get_dvr_mac_address_by_host":
		s.macs["hv1"] = macOf("hv1")
		return neutron.DVRMAC{Host: "hv1", MAC: s.macs["hv1"]}
	case "get_subnet_for_dvr":
		if mac, ok := s.gateways[fmt.Sprint(args["subnet"])]; ok {
			return map[string]any{"gateway_mac": mac}
		}
		return map[string]any{}
	}
	panic("the server does not know " + method)
}

func decodePort(t extensiontest.Failer, data string) neutron.Port {
	var p neutron.Port
	if err := json.Unmarshal([]byte(data), &p); err != nil {
		t.Fatal(err)
	}
	return p
}
