// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// life is one run of an agent, from its start to its crash. Everything that it does to the outside is a step; at the last
// one it dies, and nothing that it does afterwards counts.
type life struct {
	mu      sync.Mutex
	steps   int
	limit   int // dies with this step; 0: lives on
	dead    bool
	died    chan struct{}
	onDeath func()
	conns   []net.Conn
}

func newLife(limit int, onDeath func()) *life {
	return &life{limit: limit, died: make(chan struct{}), onDeath: onDeath}
}

// step says whether the agent is still alive.
func (l *life) step() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.steps++; l.steps == l.limit {
		l.die()
	}
	return !l.dead
}

// crash ends the agent now.
func (l *life) crash() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.die()
}

func (l *life) die() {
	if l.dead {
		return
	}
	l.dead = true
	l.onDeath()
	close(l.died)
	for _, nc := range l.conns {
		_ = nc.Close()
	}
}

func (l *life) keep(nc net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns = append(l.conns, nc)
}

// drop breaks the connections to the bridges.
func (l *life) drop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, nc := range l.conns {
		_ = nc.Close()
	}
	l.conns = nil
}

// truth is what the server knows.
type truth struct {
	ports     map[string]map[string]any // object data, by id
	rules     map[string]map[string]any // by id
	addresses map[string]map[string]any
	tunnels   map[string]bool // "type ip"
	stations  map[string]bool // "network segment type endpoint mac ip"
	policies  map[string]map[string]any
	networks  map[string]map[string]any // by id; what was told about them
	routers   map[string]string         // addresses of distributed routers, by host
	subPorts  map[string]int            // of the trunk: their VLANs
}

var regionSubPorts = []string{"7", "8"}

func subPort(id string, vlan int) map[string]any {
	return map[string]any{"port_id": id, "trunk_id": trunkID, "segmentation_type": "vlan", "segmentation_id": vlan}
}

var (
	regionGroups = []string{"g1", "g2", "g3"}
	regionLists  = []string{"a1", "a2"}

	regionPolicies = []string{"q1", "q2"}
)

func newTruth() *truth {
	t := &truth{
		ports: map[string]map[string]any{}, rules: map[string]map[string]any{}, addresses: map[string]map[string]any{}, tunnels: map[string]bool{},
		stations: map[string]bool{}, policies: map[string]map[string]any{}, networks: map[string]map[string]any{}, routers: map[string]string{"hv1": "fa:16:3f:00:00:01"},
		subPorts: map[string]int{},
	}
	for _, id := range regionPolicies {
		t.policies[id] = map[string]any{"id": id, "name": id, "revision_number": 0, "rules": []any{}}
	}
	for _, id := range regionLists {
		t.addresses[id] = map[string]any{"id": id, "revision_number": 0, "addresses": []any{}}
	}
	for _, s := range regionSegments() {
		if s.kind == "vxlan" || s.kind == "gre" { // somebody else is always there
			t.stations[fmt.Sprintf("%s %d %s 10.0.0.9 fa:16:3e:99:00:01 10.0.0.90", s.network, s.id, s.kind)] = true
			t.tunnels[s.kind+" 10.0.0.9"] = true
		}
	}
	return t
}

// clone shares the objects, which are replaced and never changed.
func (t *truth) clone() *truth {
	return &truth{
		maps.Clone(t.ports), maps.Clone(t.rules), maps.Clone(t.addresses), maps.Clone(t.tunnels), maps.Clone(t.stations),
		maps.Clone(t.policies), maps.Clone(t.networks), maps.Clone(t.routers), maps.Clone(t.subPorts),
	}
}

// asTold is a port as the server tells it now: with the policy of its network.
func (t *truth) asTold(p map[string]any) map[string]any {
	p = maps.Clone(p)
	p["qos_network_policy_id"] = t.network(fmt.Sprint(p["network_id"]))["qos_policy_id"]
	return p
}

func (t *truth) network(id string) map[string]any {
	if n := t.networks[id]; n != nil {
		return n
	}
	return map[string]any{"id": id, "revision_number": 0, "qos_policy_id": nil}
}

// addresses of distributed routers, as messages have them.
func (t *truth) routerAddresses() []any {
	list := []any{}
	for _, host := range slices.Sorted(maps.Keys(t.routers)) {
		list = append(list, map[string]any{"host": host, "mac_address": t.routers[host]})
	}
	return list
}

type regionSegment struct {
	network, kind, physnet string
	id                     int
}

func regionSegments() []regionSegment {
	return []regionSegment{{"n1", "vxlan", "", 101}, {"n2", "gre", "", 102}, {"n3", "vlan", "physnet1", 103}, {"n4", "flat", "physnet1", -1}, {"n5", "local", "", -1}}
}

func (t *truth) group(id string) map[string]any {
	rules := []any{}
	for _, r := range slices.Sorted(maps.Keys(t.rules)) {
		if t.rules[r]["security_group_id"] == id {
			rules = append(rules, wrapped(t.rules[r]))
		}
	}
	return map[string]any{"id": id, "rules": rules}
}

// pull answers bulk_pull.
func (t *truth) pull(kind neutron.Kind, filter map[string]any) []any {
	found := []any{}
	ids, _ := filter["id"].([]string)
	groups, _ := filter["security_group_ids"].([]string)
	switch {
	case kind == neutron.KindPort && groups != nil:
		for _, id := range slices.Sorted(maps.Keys(t.ports)) {
			in, _ := t.ports[id]["security_group_ids"].([]string)
			if slices.ContainsFunc(in, func(g string) bool { return slices.Contains(groups, g) }) {
				found = append(found, primitive(kind, t.asTold(t.ports[id])))
			}
		}
	case kind == neutron.KindPort:
		for _, id := range ids {
			if t.ports[id] != nil {
				found = append(found, primitive(kind, t.asTold(t.ports[id])))
			}
		}
	case kind == neutron.KindTrunk:
		subs := []any{}
		for _, id := range slices.Sorted(maps.Keys(t.subPorts)) {
			subs = append(subs, primitive(neutron.KindSubPort, subPort(id, t.subPorts[id])))
		}
		found = append(found, primitive(kind, map[string]any{"id": trunkID, "port_id": trunkParent, "admin_state_up": true, "status": "DOWN", "sub_ports": subs}))
	case kind == neutron.KindQosPolicy:
		for _, id := range ids {
			found = append(found, primitive(kind, t.policies[id]))
		}
	case kind == neutron.KindNetwork:
		for _, id := range ids {
			found = append(found, primitive(kind, t.network(id)))
		}
	case kind == neutron.KindSecurityGroup:
		for _, id := range ids {
			found = append(found, primitive(kind, t.group(id)))
		}
	case kind == neutron.KindAddressGroup:
		for _, id := range ids {
			found = append(found, primitive(kind, t.addresses[id]))
		}
	}
	return found
}

// fdb are forwarding entries as a message has them.
func fdb(stations []string) map[string]any {
	networks := map[string]any{}
	for _, line := range stations {
		f := strings.Fields(line)
		var id int
		_, _ = fmt.Sscan(f[1], &id)
		network, _ := networks[f[0]].(map[string]any)
		if network == nil {
			network = map[string]any{"segment_id": id, "network_type": f[2], "ports": map[string][]any{}}
			networks[f[0]] = network
		}
		ports, _ := network["ports"].(map[string][]any)
		if len(ports[f[3]]) == 0 {
			ports[f[3]] = []any{[]string{"00:00:00:00:00:00", "0.0.0.0"}}
		}
		ports[f[3]] = append(ports[f[3]], []string{f[4], f[5]})
	}
	return map[string]any{"fdb_entries": networks}
}

// region is a broker with a server behind it, as one agent sees them. Away, nothing is answered and what is sent is lost.
type region struct {
	life    *life
	onEvent func(messaging.Event)

	mu      sync.Mutex
	truth   *truth
	rnd     *rand.Rand // nil: everything is answered at once
	away    bool
	service messaging.Service
	calls   int

	ready func(*Agent)        // called before the agent runs
	spoil func(objects []any) // does something to objects that are told
}

func (r *region) draw(n int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.rnd == nil {
		return n // more than anybody asks for
	}
	return r.rnd.IntN(n)
}

// chance sets what answers are drawn from; nil: everything is answered at once.
func (r *region) chance(rnd *rand.Rand) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rnd = rnd
}

func (r *region) isAway() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.away
}

func (r *region) Call(ctx context.Context, target messaging.Target, method string, args, result any) error {
	if !r.life.step() {
		return messaging.ErrTimeout
	}
	if r.isAway() {
		_ = sleep(ctx, 10*time.Second)
		return messaging.ErrTimeout
	}
	switch r.draw(12) {
	case 0:
		return messaging.ErrTimeout
	case 1:
		return &messaging.RemoteError{Class: "DBError", Message: "deadlock"}
	case 2:
		return &messaging.RemoteError{Class: "DBConnectionError", Message: "Can't connect"}
	}
	all, _ := args.(map[string]any)
	r.mu.Lock()
	var value any
	var cast []string // networks whose entries are sent
	switch method {
	case "has_alive_neutron_server":
		if target.Version != "1.2" {
			r.mu.Unlock()
			return messaging.NewUnsupportedVersion(target.Version, method)
		}
		value = true
	case "report_state":
		value = "alive"
	case "bulk_pull":
		kind, _ := all["resource_type"].(neutron.Kind)
		filter, _ := all["filter_kwargs"].(map[string]any)
		found := r.truth.pull(kind, filter)
		if r.spoil != nil {
			r.spoil(found)
		}
		value = found
	case "tunnel_sync":
		tunnels := []any{}
		for _, t := range slices.Sorted(maps.Keys(r.truth.tunnels)) {
			if kind, ip, _ := strings.Cut(t, " "); kind == all["tunnel_type"] {
				tunnels = append(tunnels, map[string]any{"ip_address": ip})
			}
		}
		value = map[string]any{"tunnels": tunnels}
	case "update_device_list":
		value = map[string]any{}
		up, _ := all["devices_up"].([]string)
		for _, id := range up {
			if p := r.truth.ports[id]; p != nil && all["refresh_tunnels"] == true {
				cast = append(cast, fmt.Sprint(p["network_id"]))
			}
		}
	case "update_device_down":
		value = map[string]any{"device": all["device"], "exists": true}
	case "update_subport_bindings":
		bound := []any{}
		subs, _ := all["subports"].([]neutron.SubPort)
		for _, s := range subs {
			bound = append(bound, map[string]any{"id": s.PortID, "mac_address": macOf(s.PortID)})
		}
		value = map[string]any{trunkID: bound}
	case "update_trunk_status":
	case "get_dvr_mac_address_list":
		value = r.truth.routerAddresses()
	case "get_subnet_for_dvr":
		value = map[string]any{"gateway_mac": "fa:16:3e:00:00:99"}
	default:
		panic("the region does not know " + method)
	}
	r.calls++
	encoded, err := json.Marshal(value) // as it is now, whenever it arrives
	var entries []string
	for line := range r.truth.stations {
		if slices.Contains(cast, strings.Fields(line)[0]) {
			entries = append(entries, line)
		}
	}
	r.mu.Unlock()
	if err != nil {
		return err
	}
	if len(entries) > 0 {
		r.send(neutron.TopicL2Population, "add_fdb_entries", fdb(entries))
	}
	if n := r.draw(4); n < 3 {
		if sleep(ctx, time.Duration(n)*300*time.Millisecond) != nil || r.isAway() {
			return messaging.ErrTimeout
		}
	}
	if !r.life.step() {
		return messaging.ErrTimeout
	}
	if result == nil {
		return nil
	}
	return json.Unmarshal(encoded, result)
}

func (r *region) Serve(_ context.Context, s messaging.Service) error {
	if !r.life.step() || r.isAway() {
		return messaging.ErrTimeout
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.service = s
	return nil
}

func (r *region) RemoveLeftovers(context.Context, []string, string) ([]string, error) {
	return nil, nil
}

func (r *region) Close(context.Context) error { return nil }

// send delivers a message, if the agent listens and can be reached.
func (r *region) send(topic, method string, args any) {
	body, err := json.Marshal(args)
	if err != nil {
		panic(err)
	}
	r.mu.Lock()
	handler := r.service.Handler
	if r.away {
		handler = nil
	}
	r.mu.Unlock()
	if handler != nil {
		_, _ = handler(context.Background(), &messaging.Message{Topic: topic, Method: method, Args: body})
	}
}

// push tells about an object.
func (r *region) push(kind neutron.Kind, event neutron.Event, data map[string]any) {
	objects := []any{primitive(kind, data)}
	if r.spoil != nil {
		r.spoil(objects)
	}
	r.send("neutron-vo-"+string(kind)+"-1.0", "push", map[string]any{"event_type": event, "resource_list": objects})
}

// leave takes the broker away; back brings it again, with a new queue: what was sent meanwhile is lost.
func (r *region) leave() {
	r.mu.Lock()
	r.away = true
	r.mu.Unlock()
}

func (r *region) back() {
	r.mu.Lock()
	was := r.away
	r.away = false
	r.mu.Unlock()
	if was && r.onEvent != nil {
		r.onEvent(messaging.Connected{Addr: "a:5672"})
		r.onEvent(messaging.Gap{Queue: "q", Reason: "it had expired"})
	}
}
