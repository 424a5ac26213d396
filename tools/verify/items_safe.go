// SPDX-License-Identifier: Apache-2.0

package main

import "strings"

func groups() []item {
	const section = "Security groups"
	return []item{
		real("firewall-peer", section, "TestPythonFirewall|TestScriptsOnASwitch", "./internal/pipeline", "flows are those of Neutron's own firewall code, run beside ours; they do on a real switch what they say", "{tests} tests", "all pass"),
		{
			name: "rule-mutations", section: section, command: "go test ./internal/pipeline -run TestMutations -mutate -timeout 30m -v", paths: []string{"internal/pipeline", "internal/world"},
			figures: []figure{
				{name: "noticed", pattern: `(\d+) of \d+ mutations noticed`, want: ">= 400"},
				{name: "all", pattern: `\d+ of (\d+) mutations noticed`},
			},
			claims: []claim{{text: "every mapping from a rule to flows, broken once, is noticed", wanted: "all", show: "{noticed} of {all}"}},
		},
		live("e2e-groups", section, "make --no-print-directory e2e-groups", "e2e", []claim{
			{text: "every rule kind, allowed and refused, both IP versions, one host and two, new, established, related, revoked; forged senders", wanted: "0 failed", show: "{cells} cells, {bad} failed"},
			{text: "a removed rule ends a connection; nothing leaves before its filters are there: plugged, replugged, agent dead, server stopped", wanted: "1,000 ms at most; 0 frames", show: "last byte after {last} ms at most; {leaked} of the forbidden arrived"},
		},
			groupFigures()...),
		live("e2e-groups-hybrid", section, "make --no-print-directory e2e-groups-hybrid", "e2e", []claim{
			{text: "the same behind Linux bridges, filtered by iptables, as far as Neutron's rules go", wanted: "0 failed", show: "{cells} cells, {bad} failed; {leaked} of the forbidden arrived before filters are there; last byte after {last} ms at most"},
		}, groupFigures()...),
		live("e2e-blink", section, "PATCHBAY_BLINK_UPDATES=100 make --no-print-directory e2e-blink", "e2e",
			[]claim{{text: "100 updates at 1,000 packets a second and tuple", wanted: "0 lost, 0 passed", show: "{lost} of {sent} lost, {passed} of {forbidden} passed; the Python agent lost {python-lost} of {python-sent}"}},
			blinkFigures()...),
		live("ctlimit", section, "make --no-print-directory e2e-ctlimit", "e2e", []claim{{text: "one VM that opens 100,000 connections does not refuse its neighbour's with conntrack_limit_per_network", wanted: "all pass", show: "{tests} tests"}}, tests),
	}
}

func groupFigures() []figure {
	return []figure{
		{name: "cells", pattern: `patchbay: (\d+) cells`, want: ">= 700"},
		{name: "bad", pattern: `patchbay: \d+ cells \([^)]*\), (\d+) failed`, want: "= 0"},
		{name: "leaked", pattern: `allowed and (\d+) of the forbidden arrived`, take: sum, want: "= 0"},
		{name: "last", pattern: `last byte arrived at the .* (\d+) ms after`, take: most, want: "<= 1000"},
	}
}

func blinkFigures() []figure {
	const columns = `[\d.]+ +[\d.]+ +\d+ +\d+ +`
	row := func(agent string) string { return `^` + agent + ` +` + columns }
	return []figure{
		{name: "sent", pattern: row("patchbay") + `(\d+) `, want: ">= 50000"},
		{name: "lost", pattern: row("patchbay") + `\d+ +(\d+) `, want: "= 0"},
		{name: "forbidden", pattern: row("patchbay") + `\d+ +\d+ +\d+ +\d+ ms +(\d+) `},
		{name: "passed", pattern: row("patchbay") + `\d+ +\d+ +\d+ +\d+ ms +\d+ +(\d+)`, want: "= 0"},
		{name: "python-sent", pattern: row("python") + `(\d+) `},
		{name: "python-lost", pattern: row("python") + `\d+ +(\d+) `},
	}
}

func isolation() []item {
	const section = "Isolation"
	return []item{
		unit("hostile-generator", section, "", "./lab/hostile", "the generator of hostile frames: a seed makes the same frames, each kind is in the mix"),
		live("e2e-isolation", section, "make --no-print-directory e2e-isolation", "e2e", []claim{
			{text: "a port in every state hears nothing of another tenant's network, nothing of its own before it may, and nothing that it sends arrives where it must not; both firewall drivers", wanted: "0", show: "{arrived} of {offered} frames arrived where 0 are due; {failed} states failed"},
			{text: "what a port hears between its row and the agent's first write, without `isolate_vif`", wanted: "shown", show: "openvswitch: {gap} ports of 20 heard some"},
		},
			figure{name: "arrived", pattern: `Patchbay: (\d+) frames arrived of \d+`, want: "= 0"},
			figure{name: "offered", pattern: `Patchbay: \d+ frames arrived of (\d+)`, want: ">= 100000"},
			figure{name: "failed", pattern: `where 0 are due; (\d+) states failed`, want: "= 0"},
			figure{name: "gap", pattern: `patchbay, openvswitch: 20 ports plugged in .*: (\d+) heard some`}),
		live("e2e-hostile", section, "make --no-print-directory e2e-hostile FRAMES=200000 SEED=0", "e2e",
			[]claim{{text: "a VM that sends generated frames of every kind with forged fields, with `drop_fragments`: nobody receives what it may not say, no switch learns a MAC on a port that does not own it", wanted: "0 wrong, 0 stray", show: "{wrong} of {frames} frames wrong, {stray} MACs on a wrong port, {lost} control frames lost; seed {seed}"}},
			figure{name: "frames", pattern: `SEED=-?\d+: (\d+) frames in`, take: sum, want: ">= 600000"},
			figure{name: "wrong", pattern: `control frames lost, (\d+) wrong`, take: sum, want: "= 0"},
			figure{name: "lost", pattern: `(\d+) of \d+ control frames lost`, take: sum, want: "= 0"},
			figure{name: "stray", pattern: `entries at most, (\d+) on a port`, take: sum, want: "= 0"},
			figure{name: "seed", pattern: `^SEED=(-?\d+) FRAMES`}),
		live("e2e-hybrid", section, "make --no-print-directory e2e-hybrid", "e2e",
			[]claim{{text: "VMs behind Linux bridges, filtered by iptables: rules and members that come and go, restart and `kill -9` with no rule written, drift, the Python agent and back, firewall_driver openvswitch and back", wanted: "0 failed, 0 lost, 0 passed", show: "{steps} steps, {failed} failed; {arrived} of {due} due packets arrived, {passed} of {forbidden} forbidden ones passed"}},
			hybridFigures("16")...),
		live("e2e-hybrid-drivers", section, "PATCHBAY_LAB_SERVER=sim make --no-print-directory e2e-hybrid-drivers", "e2e",
			[]claim{{text: "two hosts with 40 VMs behind Linux bridges from iptables_hybrid to openvswitch and back, with both back ends of iptables, under packets of all", wanted: "0 failed, 0 lost, 0 passed", show: "{steps} steps, {failed} failed; {arrived} of {due} due packets arrived, {passed} of {forbidden} forbidden ones passed"}},
			hybridFigures("7")...),
	}
}

// hybridFigures are those of a table of steps with packets that are due and such that are not.
func hybridFigures(least string) []figure {
	return append(stepFigures(least), figure{name: "due", pattern: stepRow(1), take: sum}, figure{name: "arrived", pattern: stepRow(2), take: sum},
		figure{name: "forbidden", pattern: stepRow(3), take: sum, want: ">= 5000"})
}

// stepRow is a column of the table that steps with packets leave: seconds, due and arrived, forbidden and arrived.
func stepRow(column int) string {
	return `^\S.*?\s{2,}[\d.]+\s+` + strings.Repeat(`\d+\s+`, column-1) + `(\d+)\s`
}

func services() []item {
	const section = "Routers, quality of service, trunks"
	return []item{
		live("e2e-routers", section, "make --no-print-directory e2e-routers", "e2e",
			[]claim{{text: "packets through a distributed router with Debian's layer-3 agent on three hosts, with a trunk, limits and filters, while agents, switches and the broker go away", wanted: "all pass; 0 lost in restarts", show: "{tests} parts; {stopped} of {stopped-sent} lost when agents stop, {killed} of {killed-sent} when they are killed"}},
			tests,
			figure{name: "stopped-sent", pattern: routersRow("patchbay/agents_stopped_and_started/3", 3)},
			figure{name: "stopped", pattern: routersRow("patchbay/agents_stopped_and_started/3", 4), want: "= 0"},
			figure{name: "killed-sent", pattern: routersRow("patchbay/agents_killed_-9_and_started/3", 3)},
			figure{name: "killed", pattern: routersRow("patchbay/agents_killed_-9_and_started/3", 4), want: "= 0"}),
		live("e2e-qos", section, "make --no-print-directory e2e-qos", "e2e", []claim{{text: "DSCP marks on the far VM; packet rates within 10 % under load, over a restart; bandwidth as rows, and enforced for what a VM receives", wanted: "all", show: "{rows} measurements as wanted"}},
			figure{name: "rows", pattern: `^.* \d+ +\d+ +[\d.]+ +map\[`, take: count, want: ">= 11"}),
		live("e2e-trunk", section, "make --no-print-directory e2e-trunk", "e2e", []claim{{text: "a VM with a trunk reaches its networks by VLAN sub-interfaces and no other; again after a restart (0 flows, 0 rows changed), a killed switch, another VLAN", wanted: "0 failed", show: "{cases} cases, {failed} failed"}},
			figure{name: "cases", pattern: `^(\d+) cases, \d+ failed`, want: ">= 20"},
			figure{name: "failed", pattern: `^\d+ cases, (\d+) failed`, want: "= 0"}),
	}
}

func routersRow(row string, column int) string { return fault("", row, column, "").pattern }
