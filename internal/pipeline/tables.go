// SPDX-License-Identifier: Apache-2.0

package pipeline

// Tables of the integration bridge.
const (
	intEntry     = 0
	intCanary    = 23 // holds one flow; a switch without it has lost all of them
	intARPSpoof  = 24
	intMACSpoof  = 25
	intLocal     = 30 // egress of local IPs
	intLocalIP   = 31
	intLearned   = 32 // answers of ports that local IPs lead to; the switch learns its flows
	intRateLimit = 58 // packets per second
	intBandwidth = 59 // bits per second
	intTransient = 60 // filters begin here; without filters, where switching happens
	intDirect    = 61 // straight to a port of this host, without filters
	intEgress    = 62
)

// Tables of the integration bridge that the filters use.
const (
	fwBaseEgress      = 71 // is the sender who it says it is?
	fwRulesEgress     = 72
	fwAcceptOrIngress = 73 // may leave its port; may it enter another of this host?
	fwBaseIngress     = 81
	fwRulesIngress    = 82
	fwAcceptedEgress  = 91 // new connections that were let out
	fwAcceptedIngress = 92 // new connections that were let in
	fwDropped         = 93
	fwAcceptedNormal  = 94 // out into the network
)

// Tables of the tunnel bridge.
const (
	tunEntry     = 0
	tunFromLocal = 2
	tunGRE       = 3
	tunVXLAN     = 4
	tunGeneve    = 6
	tunLearn     = 10
	tunUnicast   = 20
	tunResponder = 21
	tunFlood     = 22
)

// Tables of a physical bridge.
const physEntry = 0

// tunnelTable is where packets of a tunnel type are given their local VLAN.
func tunnelTable(tunnelType string) uint8 {
	switch tunnelType {
	case "gre":
		return tunGRE
	case "geneve":
		return tunGeneve
	default:
		return tunVXLAN
	}
}

// Tables of the integration bridge that extensions send packets on to.
const (
	TableLocal     = intLocal
	TableLocalIP   = intLocalIP
	TableLearned   = intLearned
	TableRateLimit = intRateLimit
	TableBandwidth = intBandwidth
	TableTransient = intTransient
	TableIngress   = fwRulesIngress
	TableNormal    = fwAcceptedNormal
)
