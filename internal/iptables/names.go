// SPDX-License-Identifier: Apache-2.0

package iptables

import "strings"

// prefix begins the names of the chains that belong to the agent. The Python agent takes the first 16 characters of its program's name;
// the text is fixed here, so that either agent finds the chains of the other.
const prefix = "neutron-openvswi-"

// Chains that all ports share. The names without prefix are shared with other agents of Neutron.
const (
	chainTop        = "neutron-filter-top"
	chainLocal      = prefix + "local"
	chainInput      = prefix + "INPUT"
	chainOutput     = prefix + "OUTPUT"
	chainForward    = prefix + "FORWARD"
	chainPrerouting = prefix + "PREROUTING"
	chainGroups     = prefix + "sg-chain"
	chainFallback   = prefix + "sg-fallback"
	// chainZones is referred to by no rule: it is a note of the zones, for a Python agent that takes over. That agent looks zones up by the
	// wrong part of the port id; this chain has them under the name that it looks for.
	chainZones = "patchbay-zones"
)

const (
	maxDevice = 14 // characters of a device name
	maxChain  = 11 // characters of a chain name after the prefix
	shortID   = maxDevice - 3
)

func cut(s string, n int) string { return s[:min(n, len(s))] }

// short returns the part of a port id that is in the names of its devices.
func short(id string) string { return cut(id, shortID) }

// shifted returns the part of a port id under which the Python agent looks for its zone.
func shifted(id string) string { return cut(id[min(3, len(id)):], shortID) }

func tapName(id string) string    { return cut("tap"+id, maxDevice) }
func bridgeName(id string) string { return cut("qvb"+id, maxDevice) }

func ingressChain(id string) string { return prefix + cut("i"+id, maxChain) }
func egressChain(id string) string  { return prefix + cut("o"+id, maxChain) }
func spoofChain(id string) string   { return prefix + cut("s"+id, maxChain) }

// portOfChain returns the part of a port id in the name of one of its chains; ok is false for other chains.
func portOfChain(name string) (part string, ok bool) {
	rest, ours := strings.CutPrefix(name, prefix)
	if !ours || len(rest) < 2 || !strings.ContainsRune("ios", rune(rest[0])) || len(rest) != maxChain {
		return "", false
	}
	part = rest[1:]
	return part, strings.Trim(part, "0123456789abcdef-") == ""
}

// deviceOf returns the part of a port id in the first device name of a rule.
func deviceOf(rule string) (part string, ok bool) {
	for _, option := range []string{"--physdev-in ", "--physdev-out ", "-i "} {
		_, after, found := strings.Cut(" "+rule, " "+option)
		if !found {
			continue
		}
		name, _, _ := strings.Cut(after, " ")
		if len(name) > 3 && (strings.HasPrefix(name, "tap") || strings.HasPrefix(name, "qvb")) {
			return name[3:], true
		}
	}
	return "", false
}

// target returns the chain or the target that a rule jumps to.
func target(rule string) string {
	words := fields(rule)
	for i, word := range words[:max(0, len(words)-1)] {
		if word == "-j" || word == "-g" {
			return words[i+1]
		}
	}
	return ""
}

// isOurs returns whether a chain is the agent's alone.
func isOurs(chain string) bool { return strings.HasPrefix(chain, prefix) || chain == chainZones }
