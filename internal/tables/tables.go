// SPDX-License-Identifier: Apache-2.0

// Package tables knows the names of the OpenFlow tables that Neutron's agents use, by the kind of bridge. The numbers are
// a contract with the Python agent and with people who read flows; the names are those of its source.
package tables

import "strings"

// A Kind is the part that a bridge plays.
type Kind uint8

// Kinds of bridges. Any bridge that is not one of the first two is treated as a physical one.
const (
	Physical Kind = iota
	Integration
	Tunnel
	// Integration21 is the integration bridge of Neutron 20 and 21, whose packet rate limit is table 59.
	Integration21
)

// KindOf guesses the kind of a bridge by its usual name.
func KindOf(bridge string) Kind {
	switch bridge {
	case "br-int":
		return Integration
	case "br-tun":
		return Tunnel
	}
	return Physical
}

// Refine tells the releases of an integration bridge apart by the tables that have flows: those before 22 use 59 and not
// 58, those before 26 use 58 and not 59.
func (k Kind) Refine(used func(table uint8) bool) Kind {
	if k == Integration && used(59) && !used(58) {
		return Integration21
	}
	return k
}

// ParseKind returns the kind with that name: int, tun, phys or int21.
func ParseKind(s string) (Kind, bool) {
	for k, name := range kindNames {
		if name == s {
			return Kind(k), true
		}
	}
	return Physical, false
}

var kindNames = [...]string{Physical: "phys", Integration: "int", Tunnel: "tun", Integration21: "int21"}

// String returns int, tun, phys or int21.
func (k Kind) String() string { return kindNames[k] }

// Name returns the name of a table, "" if it has none.
func (k Kind) Name(table uint8) string {
	if k != Integration21 {
		return names[k][table]
	}
	switch table {
	case 58:
		return ""
	case 59:
		return names[Integration][58]
	}
	return names[Integration][table]
}

// Number returns the table with that name, in any case of letters.
func (k Kind) Number(name string) (uint8, bool) {
	for n := range 255 {
		if s := k.Name(uint8(n)); s != "" && strings.EqualFold(s, name) {
			return uint8(n), true
		}
	}
	return 0, false
}

// names are those of Neutron 22 and later.
var names = [...]map[uint8]string{
	Integration: {
		0:  "LOCAL_SWITCHING",
		1:  "DVR_TO_SRC_MAC",
		2:  "DVR_TO_SRC_MAC_PHYSICAL",
		3:  "ARP_DVR_MAC_TO_DST_MAC",
		4:  "ARP_DVR_MAC_TO_DST_MAC_PHYSICAL",
		23: "CANARY",
		24: "ARP_SPOOF",
		25: "MAC_SPOOF",
		30: "LOCAL_EGRESS",
		31: "LOCAL_IP",
		58: "PACKET_RATE_LIMIT",
		59: "BANDWIDTH_RATE_LIMIT",
		60: "TRANSIENT",
		61: "LOCAL_MAC_DIRECT",
		62: "TRANSIENT_EGRESS",
		71: "BASE_EGRESS",
		72: "RULES_EGRESS",
		73: "ACCEPT_OR_INGRESS",
		77: "DHCP_IPV4",
		78: "DHCP_IPV6",
		81: "BASE_INGRESS",
		82: "RULES_INGRESS",
		91: "ACCEPTED_EGRESS",
		92: "ACCEPTED_INGRESS",
		93: "DROPPED",
		94: "ACCEPTED_EGRESS_NORMAL",
	},
	Tunnel: {
		0:   "ENTRY",
		1:   "DVR_PROCESS",
		2:   "PATCH_LV_TO_TUN",
		3:   "GRE_TUN_TO_LV",
		4:   "VXLAN_TUN_TO_LV",
		6:   "GENEVE_TUN_TO_LV",
		9:   "DVR_NOT_LEARN",
		10:  "LEARN_FROM_TUN",
		20:  "UCAST_TO_TUN",
		21:  "ARP_RESPONDER",
		22:  "FLOOD_TO_TUN",
		222: "BAGPIPE",
	},
	Physical: {
		0:  "ENTRY",
		1:  "DVR_PROCESS_PHYSICAL",
		2:  "LOCAL_VLAN_TRANSLATION",
		3:  "DVR_NOT_LEARN_PHYSICAL",
		80: "EGRESS_NAT",
		87: "EGRESS_OUTPUT",
		90: "IP_ARP_RESPONDER",
		91: "INGRESS_DIRECT",
	},
}
