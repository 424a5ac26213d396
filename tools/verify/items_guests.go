// SPDX-License-Identifier: Apache-2.0

package main

// guests are what the agent answers the VMs of its host: DHCP, DNS and metadata.
func guests() []item {
	const section = "DHCP, DNS and metadata"
	const who, patchbay = "DHCP agent, dnsmasq", "Patchbay"
	taken := func(name, row, want string) []figure {
		return []figure{cell("python-"+name, row, 1, ""), cell(name, row, 2, want)}
	}
	figures := func(lists ...[]figure) (all []figure) {
		for _, l := range lists {
			all = append(all, l...)
		}
		return all
	}
	return []item{
		live("e2e-guests-hostile", section, "make --no-print-directory e2e-guests-hostile SEED=0", "e2e", []claim{
			{text: "100,000 malformed DHCP, DNS and metadata requests of guests to a running agent; another tenant's VM, with the same addresses, asks meanwhile", wanted: "0 panics, 0 of another's, memory in use 1.1 × at most", show: "{panics} panics, {wrong} wrong answers, memory in use {memory} ×; {dhcp} DHCP packets and {dns} DNS packets of {requests} requests came to the agent; seed {seed}"},
			{text: "wiring a port meanwhile, and while one port sends requests as fast as the switch takes them", wanted: "3 × at most", show: "{wiring} × as long, and {flood} ×"},
		},
			figure{name: "seed", pattern: `^SEED=(-?\d+) REQUESTS`},
			figure{name: "requests", pattern: `^(\d+) requests in`, want: ">= 100000"},
			figure{name: "dhcp", pattern: `^dhcp: \d+ sent, (\d+) came`, want: ">= 16000"},
			figure{name: "dns", pattern: `^dns: \d+ sent, (\d+) came`, want: ">= 16000"},
			figure{name: "panics", pattern: `^(\d+) panics`, want: "= 0"},
			figure{name: "wrong", pattern: `requests answered; (\d+) wrong`, want: "= 0"},
			figure{name: "memory", pattern: `^memory: .* after, ([\d.]+) times`, want: "<= 1.1"},
			figure{name: "wiring", pattern: `^wiring: .* meanwhile, ([\d.]+) times`, want: "<= 3"},
			figure{name: "flood", pattern: `^wiring: .* floods, ([\d.]+) times`, want: "<= 3"}),
		live("e2e-dhcp", section, "make --no-print-directory e2e-dhcp", "e2e", []claim{
			{text: "udhcpc, dhclient, dhcpcd and systemd-networkd, over IPv4 and IPv6, ask a DHCP agent and the agent for the same port, option for option; renewal over the change, trunk, iptables_hybrid, broker, server and database down", wanted: "0 failed", show: "{cases} cases, {failed} failed"},
		},
			figure{name: "cases", pattern: `^(\d+) cases, \d+ failed`, want: ">= 9"}, figure{name: "failed", pattern: `^\d+ cases, (\d+) failed`, want: "= 0"}),
		live("e2e-services-handover", section, "make --no-print-directory e2e-services-handover", "e2e", []claim{
			{text: "a host whose Python agent 29 answers DHCP, metadata and DNS, given to Patchbay and back, twice; a VM with a lease of two minutes; the same answers with broker, server and database down, after a restart of switch and agent", wanted: "0 failed", show: "{cases} cases, {failed} failed; {renewals} renewals, the address lost {lost} times"},
		},
			figure{name: "cases", pattern: `^(\d+) cases, \d+ failed`, want: ">= 14"}, figure{name: "failed", pattern: `^\d+ cases, (\d+) failed`, want: "= 0"},
			figure{name: "renewals", pattern: `^(\d+) renewals, the address lost`, want: ">= 4"}, figure{name: "lost", pattern: `renewals, the address lost (\d+) times`, want: "= 0"}),
		live("e2e-dhcp-storm", section, "make --no-print-directory e2e-dhcp-storm", "bench", []claim{
			{text: "1,000 guests of one host ask for their address at once, three times", wanted: "all answered", show: "{answered} answered, {wrong} wrong; half after {p50}, 99 of 100 after {p99}, {cpu} of CPU"},
			{text: "the same of a DHCP agent's dnsmasq, in the same run", wanted: "shown", show: "{python-answered} answered; half after {python-p50}, 99 of 100 after {python-p99}, {python-cpu} of CPU"},
		},
			figure{name: "answered", pattern: `^\| Patchbay +\| (\d+) of \d+`, want: ">= 3000"}, cell("wrong", patchbay, 2, "= 0"), cell("p50", patchbay, 3, ""), cell("p99", patchbay, 4, ""), cell("cpu", patchbay, 7, ""),
			figure{name: "python-answered", pattern: `^\| DHCP agent, dnsmasq +\| (\d+) of \d+`}, cell("python-p50", who, 3, ""), cell("python-p99", who, 4, ""), cell("python-cpu", who, 7, "")),
		live("bench-services", section, "make --no-print-directory bench-services", "bench", []claim{
			{text: "a compute node with 50 networks beside Python's layer-2, DHCP and metadata agents: processes, network namespaces, connections to the broker", wanted: "1, 0, 1", show: "{processes}, {namespaces}, {connections} (Python {python-processes}, {python-namespaces}, {python-connections})"},
			{text: "the same: memory (PSS), ports of the switch that are not VMs'", wanted: "shown", show: "{memory}, {ports} (Python {python-memory}, {python-ports})"},
			{text: "the same: RPC calls and casts from start to idle, in an idle minute", wanted: "shown", show: "{rpc}, {idle} (Python {python-rpc}, {python-idle})"},
		},
			figures(taken("processes", "processes", "= 1"), taken("namespaces", "network namespaces", "= 0"), taken("connections", "connections to the broker", "= 1"), taken("memory", "memory (PSS)", ""),
				taken("ports", "ports of the switch", ""), taken("rpc", "RPC calls and casts from start to idle", ""), taken("idle", "of an idle minute", ""))...),
	}
}
