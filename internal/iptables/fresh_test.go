// SPDX-License-Identifier: Apache-2.0

package iptables

// fresh is a host on which nobody has written.
func fresh() State {
	var s State
	for i := range s.Rules {
		s.Rules[i] = Ruleset{
			"filter": {"INPUT": nil, "FORWARD": nil, "OUTPUT": nil},
			"raw":    {"PREROUTING": nil, "OUTPUT": nil},
			"nat":    {"PREROUTING": nil, "INPUT": nil, "OUTPUT": nil, "POSTROUTING": nil},
		}
	}
	s.Sets = map[string]Set{}
	return s
}

// apply is After for tests.
func (s State) apply(c Changes) (State, error) { return s.After(&c) }
