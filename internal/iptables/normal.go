// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"strconv"
	"strings"
)

// fields cuts a rule into words. Quotes and backslashes are taken off.
func fields(rule string) []string {
	var out []string
	var word strings.Builder
	inWord, quoted := false, false
	for i := 0; i < len(rule); i++ {
		switch b := rule[i]; {
		case b == '\\' && i+1 < len(rule):
			i++
			word.WriteByte(rule[i])
			inWord = true
		case b == '"':
			quoted, inWord = !quoted, true
		case b == ' ' && !quoted:
			if inWord {
				out = append(out, word.String())
				word.Reset()
				inWord = false
			}
		default:
			word.WriteByte(b)
			inWord = true
		}
	}
	if inWord {
		out = append(out, word.String())
	}
	return out
}

// normal returns a form of a rule that is equal for rules that mean the same: releases and back ends of iptables print MACs in capitals or
// not, hosts have different names of protocols, and a prefix of length 0 is no condition.
func (p Protocols) normal(rule string) string {
	words := fields(rule)
	out := make([]string, 0, len(words))
	for i := 0; i < len(words); i++ {
		word := words[i]
		if i+1 == len(words) || i > 0 && words[i-1] == "!" {
			out = append(out, word)
			continue
		}
		value := words[i+1]
		switch word {
		case "-s", "-d":
			if prefix, err := parseMember(value); err == nil {
				value = prefix.Masked().String()
				if prefix.Bits() == 0 {
					i++
					continue
				}
			}
		case "-p":
			if n, ok := p.number(value); ok {
				value = strconv.Itoa(n)
				if n == 0 {
					i++
					continue
				}
			}
		case "--icmp-type": // some releases print it as it was written
			if kind, _, _ := strings.Cut(value, "/"); kind == strconv.Itoa(anyICMP) {
				value = "any"
			}
		case "--mac-source":
			value = strings.ToUpper(value)
		case "--comment": // taken as it is, whatever its words
		default:
			out = append(out, word)
			continue
		}
		out = append(out, word, value)
		i++
	}
	return strings.Join(out, "\x1f")
}

// setOf returns the names of the IP sets that a rule refers to.
func setsOf(rule string) []string {
	var out []string
	words := fields(rule)
	for i, word := range words[:max(0, len(words)-1)] {
		if word == "--match-set" {
			out = append(out, words[i+1])
		}
	}
	return out
}

// zoneOf returns the device and the zone of a rule that sets one.
func zoneOf(rule string) (device string, zone uint16, ok bool) {
	words := fields(rule)
	for i, word := range words[:max(0, len(words)-1)] {
		switch word {
		case "--physdev-in":
			device = words[i+1]
		case "--zone":
			n, err := strconv.ParseUint(words[i+1], 10, 16)
			zone, ok = uint16(n), err == nil && n > 0
		}
	}
	return device, zone, ok && len(device) > 3
}
