// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/gophercloud/gophercloud/v2"

	"github.com/patchbay-sdn/patchbay/lab"
)

// Where the members of groups are, and nobody else.
var memberPrefix = map[int]string{4: "192.168.100.224/28", 6: "fd00:e2e::220/124"}

// kind is a kind of rule for one IP version: what it lets through, and what it comes near to.
type kind struct {
	name string
	// rule is what the API is told, besides group, direction and IP version.
	rule attributes
	pass []packetKind
	// refuse are packets that the rule must not be taken to allow.
	refuse []packetKind
	// leave: the rule stays, and whom it allows stops being a member of the group.
	leave bool
}

// packetKind is the first packet of a conversation between a target and a peer.
type packetKind struct {
	proto      uint8
	port       uint16
	kind, code uint8
	stranger   bool // the peer is no member of anything
	other      bool // of the other IP version
}

func tcp(port uint16) packetKind       { return packetKind{proto: protoTCP, port: port} }
func udp(port uint16) packetKind       { return packetKind{proto: protoUDP, port: port} }
func sctpTo(port uint16) packetKind    { return packetKind{proto: protoSCTP, port: port} }
func gre() packetKind                  { return packetKind{proto: protoGRE} }
func esp() packetKind                  { return packetKind{proto: protoESP} }
func stranger(p packetKind) packetKind { p.stranger = true; return p }
func other(p packetKind) packetKind    { p.other = true; return p }

// request is an ICMP packet that asks something.
func request(version int, kind, code uint8) packetKind {
	proto := uint8(protoICMP)
	if version == 6 {
		proto = protoICMPv6
	}
	return packetKind{proto: proto, kind: kind, code: code}
}

// keeper is what every target allows and nobody takes away.
const keeper = 9

// Names that stand for the ID of what is made for the run.
const (
	theGroup     = "the group"
	theAddresses = "the address group"
)

// ranged is a rule for a protocol and a range of ports.
func ranged(protocol string, low, high int) attributes {
	return attributes{"protocol": protocol, "port_range_min": low, "port_range_max": high}
}

func with(a attributes, key string, value any) attributes {
	b := attributes{key: value}
	for k, v := range a {
		b[k] = v
	}
	return b
}

// kindsOf lists the kinds of one IP version. Of ICMP, the switch tracks few requests, and those with code 0 only; so what a
// rule about a type or a code must not be taken to allow is sent to a target whose rule is about another one.
func kindsOf(version int) []kind {
	icmpName, echo, second := "icmp", uint8(8), uint8(13)
	if version == 6 {
		icmpName, echo, second = "ipv6-icmp", 128, 128
	}
	ask := func(kind, code uint8) packetKind { return request(version, kind, code) }
	const group, addresses, prefix = "remote_group_id", "remote_address_group_id", "remote_ip_prefix"
	list := []kind{
		{name: fmt.Sprintf("any IPv%d", version), rule: attributes{},
			pass:   []packetKind{udp(7), tcp(7), sctpTo(7), gre(), ask(echo, 0)},
			refuse: []packetKind{other(udp(7)), other(tcp(7)), other(gre())}},
		{name: "tcp port", rule: ranged("tcp", 80, 80),
			pass: []packetKind{tcp(80)}, refuse: []packetKind{tcp(79), tcp(81), udp(80), sctpTo(80), ask(echo, 0)}},
		{name: "tcp range", rule: ranged("tcp", 1003, 2777),
			pass:   []packetKind{tcp(1003), tcp(1004), tcp(2048), tcp(2776), tcp(2777)},
			refuse: []packetKind{tcp(1002), tcp(2778), udp(1003), tcp(4095)}},
		{name: "udp port", rule: ranged("udp", 53, 53),
			pass: []packetKind{udp(53)}, refuse: []packetKind{udp(52), udp(54), tcp(53)}},
		{name: "udp range", rule: ranged("udp", 5001, 5006),
			pass: []packetKind{udp(5001), udp(5004), udp(5006)}, refuse: []packetKind{udp(5000), udp(5007), tcp(5001)}},
		{name: "sctp port", rule: ranged("sctp", 3868, 3868),
			pass: []packetKind{sctpTo(3868)}, refuse: []packetKind{sctpTo(3867), sctpTo(3869), tcp(3868)}},
		{name: "sctp range", rule: ranged("sctp", 7000, 7008),
			pass: []packetKind{sctpTo(7000), sctpTo(7008)}, refuse: []packetKind{sctpTo(6999), sctpTo(7009), udp(7000)}},
		{name: "icmp", rule: attributes{"protocol": icmpName},
			pass: []packetKind{ask(echo, 0), ask(second, 0)}, refuse: []packetKind{udp(8), tcp(8), gre()}},
		{name: "icmp type", rule: attributes{"protocol": icmpName, "port_range_min": int(echo)},
			pass: []packetKind{ask(echo, 0)}, refuse: []packetKind{udp(8), tcp(8)}},
		{name: "icmp type and code", rule: attributes{"protocol": icmpName, "port_range_min": int(echo), "port_range_max": 0},
			pass: []packetKind{ask(echo, 0)}, refuse: []packetKind{ask(echo, 1), udp(8)}},
		{name: "icmp, another code", rule: attributes{"protocol": icmpName, "port_range_min": int(echo), "port_range_max": 1},
			refuse: []packetKind{ask(echo, 0), udp(8)}},
		{name: "protocol 6 with port", rule: ranged("6", 8080, 8080),
			pass: []packetKind{tcp(8080)}, refuse: []packetKind{tcp(8081), udp(8080)}},
		{name: "protocol 17", rule: attributes{"protocol": "17"},
			pass: []packetKind{udp(1), udp(65535)}, refuse: []packetKind{tcp(1), ask(echo, 0), gre()}},
		{name: "protocol 47", rule: attributes{"protocol": "47"},
			pass: []packetKind{gre()}, refuse: []packetKind{esp(), udp(47), tcp(47)}},
		{name: "prefix", rule: attributes{prefix: memberPrefix[version]},
			pass: []packetKind{udp(7), tcp(7)}, refuse: []packetKind{stranger(udp(7)), stranger(tcp(7))}},
		{name: "prefix, tcp port", rule: with(ranged("tcp", 443, 443), prefix, memberPrefix[version]),
			pass: []packetKind{tcp(443)}, refuse: []packetKind{stranger(tcp(443)), tcp(444), udp(443)}},
		{name: "remote group", rule: attributes{group: theGroup}, leave: true,
			pass: []packetKind{udp(7), tcp(7), gre()}, refuse: []packetKind{stranger(udp(7)), stranger(tcp(7)), stranger(gre())}},
		{name: "remote group, tcp range", rule: with(ranged("tcp", 1023, 1025), group, theGroup),
			pass:   []packetKind{tcp(1023), tcp(1025)},
			refuse: []packetKind{tcp(1022), tcp(1026), stranger(tcp(1023)), udp(1024)}},
		{name: "remote group, udp port", rule: with(ranged("udp", 123, 123), group, theGroup),
			pass: []packetKind{udp(123)}, refuse: []packetKind{udp(124), stranger(udp(123)), tcp(123)}},
		{name: "remote group, sctp port", rule: with(ranged("sctp", 2905, 2905), group, theGroup),
			pass: []packetKind{sctpTo(2905)}, refuse: []packetKind{sctpTo(2906), stranger(sctpTo(2905)), tcp(2905)}},
		{name: "remote group, icmp", rule: with(attributes{"protocol": icmpName}, group, theGroup),
			pass: []packetKind{ask(echo, 0)}, refuse: []packetKind{stranger(ask(echo, 0)), udp(8)}},
		{name: "remote group, icmp type", rule: with(attributes{"protocol": icmpName, "port_range_min": int(echo)}, group, theGroup),
			pass: []packetKind{ask(echo, 0)}, refuse: []packetKind{stranger(ask(echo, 0)), udp(8)}},
		{name: "address group", rule: attributes{addresses: theAddresses}, leave: true,
			pass: []packetKind{udp(7), tcp(7)}, refuse: []packetKind{stranger(udp(7)), stranger(tcp(7))}},
		{name: "address group, tcp port", rule: with(ranged("tcp", 25, 25), addresses, theAddresses),
			pass: []packetKind{tcp(25)}, refuse: []packetKind{tcp(26), stranger(tcp(25)), udp(25)}},
		{name: "address group, udp range", rule: with(ranged("udp", 160, 162), addresses, theAddresses),
			pass: []packetKind{udp(160), udp(162)}, refuse: []packetKind{udp(159), udp(163), stranger(udp(161))}},
	}
	elsewhere := kind{name: "icmp, another type", rule: attributes{"protocol": icmpName, "port_range_min": 137},
		refuse: []packetKind{ask(echo, 0)}}
	if version == 4 {
		elsewhere.rule["port_range_min"] = int(second)
		elsewhere.pass = []packetKind{ask(second, 0)}
	}
	return append(list, elsewhere)
}

// post creates something and reads the answer.
func (c *cloud) post(t *testing.T, path string, body map[string]any, answer any) {
	t.Helper()
	c.request(t, http.MethodPost, path, body, answer)
}

func (c *cloud) request(t *testing.T, method, path string, body map[string]any, answer any) {
	t.Helper()
	if err := c.try(method, path, body, answer); err != nil {
		t.Fatal(err)
	}
}

// try makes a request of the API.
func (c *cloud) try(method, path string, body map[string]any, answer any) error {
	api := c.l.Neutron()
	o := &gophercloud.RequestOpts{OkCodes: []int{http.StatusOK, http.StatusCreated, http.StatusNoContent}}
	if body != nil {
		o.JSONBody = body
	}
	if answer != nil {
		o.JSONResponse = answer
	}
	resp, err := api.Request(c.ctx, method, api.ServiceURL(path), o)
	if resp != nil && answer == nil {
		_ = resp.Body.Close()
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	return nil
}

// identified is what the API says about anything.
type identified struct {
	ID string `json:"id"`
}

// group makes a security group without any rule.
func (c *cloud) group(t *testing.T, name string) string {
	t.Helper()
	var made struct {
		Group struct {
			identified
			Rules []identified `json:"security_group_rules"`
		} `json:"security_group"`
	}
	c.post(t, "security-groups", map[string]any{"security_group": attributes{"name": name, "tenant_id": lab.Project}}, &made)
	for _, r := range made.Group.Rules {
		c.request(t, http.MethodDelete, "security-group-rules/"+r.ID, nil, nil)
	}
	return made.Group.ID
}

// allow adds rules to a group.
func (c *cloud) allow(t *testing.T, group string, rules ...attributes) []string {
	t.Helper()
	ids, err := c.tryAllow(group, rules...)
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

func (c *cloud) tryAllow(group string, rules ...attributes) ([]string, error) {
	list := make([]attributes, len(rules))
	for i, r := range rules {
		list[i] = with(with(r, "security_group_id", group), "tenant_id", lab.Project)
	}
	var made struct {
		Rules []identified `json:"security_group_rules"`
	}
	if err := c.try(http.MethodPost, "security-group-rules", map[string]any{"security_group_rules": list}, &made); err != nil {
		return nil, err
	}
	var ids []string
	for _, r := range made.Rules {
		ids = append(ids, r.ID)
	}
	return ids, nil
}

// directed gives a rule its direction and IP version.
func directed(rule attributes, direction string, version int) attributes {
	return with(with(rule, "direction", direction), "ethertype", fmt.Sprintf("IPv%d", version))
}

// everything are the rules of a group that filters nothing but addresses.
func everything() []attributes {
	var list []attributes
	for _, version := range []int{4, 6} {
		for _, direction := range []string{"ingress", "egress"} {
			list = append(list, directed(attributes{}, direction, version))
		}
	}
	return list
}

// addressGroup makes an address group.
func (c *cloud) addressGroup(t *testing.T, name string, addresses ...string) string {
	t.Helper()
	var made struct {
		Group identified `json:"address_group"`
	}
	c.post(t, "address-groups", map[string]any{"address_group": attributes{
		"name": name, "tenant_id": lab.Project, "addresses": addresses,
	}}, &made)
	return made.Group.ID
}
