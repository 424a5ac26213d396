// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/fake"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	sim "github.com/patchbay-sdn/patchbay/lab/sim/region"
	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// life is one run of an agent, from its start to its crash. Everything that it does to the outside is a step; at the last
// one it dies, and nothing that it does afterwards counts.
type life struct {
	tape    Tape  // of the agent, if one is kept
	rules   Rules // iptables, if there is
	mu      sync.Mutex
	steps   int
	limit   int // dies with this step; 0: lives on
	dead    bool
	died    chan struct{}
	onDeath func()
	conns   []net.Conn
	late    time.Duration // by which the news of the database comes
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

// end ends the agent now, and waits until it has.
func (l *life) end(t *testing.T, cancel context.CancelFunc, done <-chan error) {
	t.Helper()
	l.crash()
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
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

// cloud is a server that knows it, in the shape of the server's own objects.
func (t *truth) cloud() *sim.Region {
	s := sim.New(sim.Config{})
	s.AddAgent("hv1", netip.MustParseAddr("10.0.0.1"))
	for kind, all := range map[neutron.Kind]map[string]map[string]any{
		neutron.KindNetwork: t.networks, neutron.KindPort: t.ports, neutron.KindAddressGroup: t.addresses, neutron.KindQosPolicy: t.policies,
	} {
		for _, data := range all {
			s.Put(string(kind), data)
		}
	}
	for _, id := range regionGroups {
		s.Put("SecurityGroup", map[string]any{"id": id})
	}
	for _, id := range slices.Sorted(maps.Keys(t.rules)) {
		s.Put("SecurityGroupRule", t.rules[id])
	}
	subs := []any{}
	for _, id := range slices.Sorted(maps.Keys(t.subPorts)) {
		subs = append(subs, fake.Wrapped(subPort(id, t.subPorts[id])))
	}
	s.Put("Trunk", map[string]any{"id": trunkID, "port_id": trunkParent, "status": "DOWN", "sub_ports": subs})
	for host, mac := range t.routers {
		s.PutRouter(host, mac)
	}
	for tunnel := range t.tunnels {
		kind, ip, _ := strings.Cut(tunnel, " ")
		s.PutTunnel(kind, ip, "at "+ip)
	}
	at := func(network, host, mac, subnet, ip, kind, number string) map[string]any {
		return map[string]any{
			"id": network + mac + ip + host, "network_id": network, "mac_address": mac, "status": "ACTIVE", "device_owner": "compute:nova",
			"fixed_ips": []any{fake.Wrapped(map[string]any{"ip_address": ip, "subnet_id": subnet})},
			"bindings":  []any{fake.Wrapped(map[string]any{"host": host, "status": "ACTIVE"})},
			"binding_levels": []any{fake.Wrapped(map[string]any{"segment": fake.Wrapped(map[string]any{
				"network_type": kind, "segmentation_id": json.Number(number),
			})})},
		}
	}
	for line := range t.stations {
		f := strings.Fields(line)
		s.AddAgent("at "+f[3], netip.MustParseAddr(f[3]))
		s.Put("Port", at(f[0], "at "+f[3], f[4], "", f[5], f[2], f[1]))
	}
	for _, n := range regionSegments() {
		s.Put("Subnet", map[string]any{"id": "s" + n.network, "network_id": n.network, "cidr": "10.0.0.0/16", "gateway_ip": "10.0.255.254"})
		s.Put("Port", at(n.network, "", "fa:16:3e:00:00:99", "s"+n.network, "10.0.255.254", "local", "0"))
	}
	return s
}

// same says whether two hold the same objects.
func (t *truth) same(o *truth) bool {
	objects := func(a, b map[string]map[string]any) bool {
		return maps.EqualFunc(a, b, func(x, y map[string]any) bool { return reflect.ValueOf(x).Pointer() == reflect.ValueOf(y).Pointer() })
	}
	return o != nil && objects(t.ports, o.ports) && objects(t.rules, o.rules) && objects(t.addresses, o.addresses) && objects(t.policies, o.policies) &&
		objects(t.networks, o.networks) && maps.Equal(t.tunnels, o.tunnels) && maps.Equal(t.stations, o.stations) && maps.Equal(t.routers, o.routers) &&
		maps.Equal(t.subPorts, o.subPorts)
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
	link    *sim.Link // to what knows the truth as it was told
	told    *truth

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
	var answer json.RawMessage // as it is now, whenever it arrives
	if err := r.server(method).Call(ctx, target, method, args, &answer); err != nil {
		return err
	}
	if method == "bulk_pull" && r.spoil != nil {
		var found []any
		if err := json.Unmarshal(answer, &found); err != nil {
			return err
		}
		r.mu.Lock()
		r.spoil(found)
		r.mu.Unlock()
		var err error
		if answer, err = json.Marshal(found); err != nil {
			return err
		}
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
	return json.Unmarshal(answer, result)
}

// server is the connection to one that knows the truth as it is. What it is told of ports and trunks does not change the truth.
func (r *region) server(method string) *sim.Link {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.link == nil || !r.truth.same(r.told) {
		r.told = r.truth.clone()
		r.link = r.truth.cloud().Join("hv1", nil)
		_ = r.link.Serve(context.Background(), messaging.Service{
			Topics: []string{neutron.TopicL2Population}, Handler: func(_ context.Context, m *messaging.Message) (any, error) {
				r.send(m.Topic, m.Method, m.Args)
				return nil, nil
			},
		})
	}
	link := r.link
	if strings.HasPrefix(method, "update_") || method == "report_state" {
		r.link = nil
	}
	return link
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
