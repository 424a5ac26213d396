// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strconv"
	"strings"
)

func nothingLost() []item {
	const section = "Nothing is lost"
	faults := func(name, run string, claims []claim, figures ...figure) item {
		// make takes $$ for $, and the shell that it starts must not see the rest.
		run = strings.ReplaceAll(run, "$", "$$")
		return live(name, section, "PATCHBAY_FAULTS_PORTS=40 make --no-print-directory faults TESTFLAGS='-run \"TestFaults/^("+run+")\"'", "e2e", claims, figures...)
	}
	row := func(prefix, name string) []figure {
		return []figure{
			fault(prefix+"-sent", name, faultSent, ">= 1000"),
			fault(prefix+"-lost", name, faultLost, "= 0"),
			fault(prefix+"-passed", name, faultPassed, "= 0"),
		}
	}
	healedRow := func(prefix, name string) []figure {
		return []figure{
			fault(prefix+"-passed", name, faultPassed, "= 0"),
			fault(prefix+"-healed", name, faultHealed, ""),
			fault(prefix+"-bare", name, faultBare, ""),
		}
	}
	join := func(lists ...[]figure) (all []figure) {
		for _, l := range lists {
			all = append(all, l...)
		}
		return all
	}
	kept := func(prefix, name, want string) []figure {
		return []figure{
			{name: prefix + "-sent", pattern: `^kept: ` + name + ` +(\d+) sent`, take: sum, want: ">= 1000"},
			{name: prefix + "-lost", pattern: `^kept: ` + name + ` +\d+ sent +(\d+) lost`, take: sum, want: want},
		}
	}
	handed := faults("faults-handover", "handed|Python_agents|Patchbay_without|broker_fails_over", []claim{
		{text: "to the Python agent and back, twice", wanted: "0 lost; flows as of a fresh start", show: "{python-lost} and {back-lost} lost; {own-lost} when the Python agents start again by themselves"},
		{text: "one of two brokers goes for good", wanted: "0 lost, 5 s", show: "{over-lost} of {over-sent} lost, {over-healed}"},
	}, join(
		[]figure{
			{name: "python-lost", pattern: fault("", "handed to the Python agent", faultLost, "").pattern, take: sum, want: "= 0"},
			{name: "own-lost", pattern: fault("", "Python agents stopped and started", faultLost, "").pattern, take: sum},
			{name: "back-lost", pattern: fault("", "handed back to Patchbay", faultLost, "").pattern, take: sum, want: "= 0"},
		}, row("over", "broker fails over to another"), []figure{fault("over-healed", "broker fails over to another", faultHealed, "<= 5")})...)
	handed.short = "neutron-server has just been started, and keeps questions open"
	return []item{
		{
			name: "crashes", section: section, command: "make --no-print-directory crashes CRASHES=3000 PANICS=1000 SEED=0", paths: []string{"tests"},
			figures: summed(),
			claims:  []claim{{text: "3,000 crashes of an agent and 1,000 panics in it, in new random histories: flows end right, never empty or open in between", wanted: "0 failed", show: "{tests} tests, {failed} failed"}},
		},
		faults("faults-restart", "agents_stopped_and_started$|agents_killed_-9_and_started$|acts_of_drift$", []claim{
			{text: "both agents stopped and started under traffic; killed -9 and started", wanted: "0 lost, 0 flows changed", show: "{stop-lost} of {stop-sent} lost, {stop-changed} flows changed; {kill-lost} of {kill-sent} lost, {kill-changed} flows changed"},
			{text: "200 acts of drift: flows and rows deleted, changed, added by somebody", wanted: "0 lost, all repaired", show: "{drift-lost} of {drift-sent} lost, repaired after {repaired} ms (median)"},
		}, join(row("stop", "agents stopped and started"), row("kill", "agents killed -9 and started"), row("drift", "acts of drift"), []figure{
			fault("stop-changed", "agents stopped and started", faultChanged, "= 0"),
			fault("kill-changed", "agents killed -9 and started", faultChanged, "= 0"),
			{name: "repaired", pattern: `acts, repaired after (\d+) ms \(median\)`, want: "<= 1000"},
		})...),
		faults("faults-switch", "ovs-vswitchd_killed_-9$|ovs-vswitchd_killed_-9,_broker_down$|agent_and_ovs-vswitchd_killed|ovs-ctl_restart|neutron-ovs-cleanup", []claim{
			{text: "ovs-vswitchd killed -9: all flows back", wanted: "2 × ovs-ofctl + 0.5 s", show: "{dead-healed} (ovs-ofctl {dead-bare}), {dead-passed} forbidden passed"},
			{text: "the same with the broker down", wanted: "2 × ovs-ofctl + 0.5 s", show: "{alone-healed} (ovs-ofctl {alone-bare})"},
			{text: "agent and ovs-vswitchd killed -9, broker and server down: from the snapshot", wanted: "2 × ovs-ofctl + 0.5 s", show: "{snap-healed} (ovs-ofctl {snap-bare})"},
		}, join(healedRow("dead", "ovs-vswitchd killed -9"), healedRow("alone", "ovs-vswitchd killed -9, broker down"),
			healedRow("snap", "agent and ovs-vswitchd killed -9, broker and server down"))...),
		faults("faults-away", "broker_down$|server_down$|database_down$|agent_stopped_by_SIGSTOP$|disk_full$|no_file_descriptors", []claim{
			{text: "broker away for 20 s, ports and rules change meanwhile", wanted: "0 lost, in place 5 s after its return", show: "{broker-lost} of {broker-sent} lost, {broker-healed}"},
			{text: "neutron-server away; database away", wanted: "the same", show: "{server-lost} of {server-sent} lost, {server-healed}; {database-lost} of {database-sent} lost, {database-healed}"},
			{text: "agent stopped by SIGSTOP; disk full; no file descriptors", wanted: "0 lost", show: "{stop-lost}, {disk-lost} and {files-lost} lost"},
		}, join(row("broker", "broker down"), row("server", "server down"), row("database", "database down"), row("stop", "agent stopped by SIGSTOP"), row("disk", "disk full"),
			row("files", "no file descriptors, broker restarted"), []figure{
				fault("broker-healed", "broker down", faultHealed, "<= 5"), fault("server-healed", "server down", faultHealed, "<= 5"), fault("database-healed", "database down", faultHealed, "<= 5"),
			})...),
		handed,
		live("e2e-kept", section, "make --no-print-directory e2e-kept", "e2e", []claim{
			{text: "pings that a rule with a remote group allows, on a host with 46 ports, while the agent starts again, is handed to the Python agent and back, twice", wanted: "0 lost", show: "{again-lost} of {again-sent}, {python-lost} of {python-sent} and {back-lost} of {back-sent} lost; {own-lost} of {own-sent} when the Python agent starts again"},
		}, join(kept("again", "Patchbay started again", "= 0"), kept("python", "handed to the Python agent", "= 0"), kept("back", "handed back to Patchbay", "= 0"), kept("own", "Python agent started again", ""))...),
		live("soak", section, "make --no-print-directory soak SOAK=20m PATCHBAY_SOAK_SEED=$RANDOM", "e2e", []claim{
			{text: "20 minutes of updates and restarts of agents, switches, broker, server and database: what may pass passes and nothing else, flows are those of a fresh start", wanted: "0 wrong", show: "{rounds} rounds, {updates} updates, {flows} flows compared"},
		},
			figure{name: "rounds", pattern: `^rounds +(\d+)`, want: ">= 7"},
			figure{name: "updates", pattern: `^updates +(\d+)`},
			figure{name: "flows", pattern: `^flows compared +(\d+)`, want: ">= 1000"}),
		{
			name: "kernel", section: section, command: "make --no-print-directory kernel-smoke", paths: []string{"product", "cloud"}, servers: true,
			figures: []figure{
				{name: "steps", pattern: `^pass +[\d.]+ `, take: count, want: ">= 20"},
				{name: "failed", pattern: `^FAIL +[\d.]+ `, take: count, want: "= 0"},
			},
			claims: []claim{{text: "the kernel datapath: groups over vxlan, revoked connections, agents restarted and killed, the clock set an hour back and a day ahead", wanted: "all steps", show: "{steps} steps, {failed} failed"}},
		},
	}
}

func operator() []item {
	const section = "The operator's tool"
	sim := func(name, target, text, show, wanted string, figures ...figure) item {
		return live(name, section, "PATCHBAY_LAB_SERVER=sim make --no-print-directory "+target, "e2e", []claim{{text: text, wanted: wanted, show: show}}, figures...)
	}
	deploy := func(name string, servers bool, text, show, wanted string, figures ...figure) item {
		return item{
			name: name, section: section, command: "make --no-print-directory " + name, paths: []string{"product", "cloud", "deploy"}, servers: servers,
			claims: []claim{{text: text, wanted: wanted, show: show}}, figures: figures,
		}
	}
	howTo := func(name, about, pages string) item {
		it := deploy(name, true, "pages of docs "+about+", followed to the letter on fresh hosts of the lab by a program that reads the page, VMs pinging meanwhile",
			"{pages} pages, {commands} commands, {seconds} s; {lost} of {pings} pings lost", "all, 0 lost",
			figure{name: "pages", pattern: `(\d+) pages followed to the letter`, want: "= " + strconv.Itoa(len(strings.Fields(pages)))},
			figure{name: "commands", pattern: `\.md: (\d+) commands in `, take: sum, want: ">= 10"},
			figure{name: "seconds", pattern: `\.md: \d+ commands in ([\d.]+) s`, take: sum},
			figure{name: "pings", pattern: `: (\d+) pings, \d+ lost`, take: sum, want: ">= 1000"},
			figure{name: "lost", pattern: `: \d+ pings, (\d+) lost`, take: sum, want: "= 0"})
		it.command = "make --no-print-directory how-to PAGES='" + pages + "'"
		return it
	}
	said := figure{name: "steps", pattern: `^=+ |^--- |passed$`, take: count, want: ">= 1"}
	return append([]item{
		sim("explain", "explain-faults", "ten connectivity faults: `trace` and `explain` name the cause, and real packets agree", "{tests} tests", "all pass", tests),
		live("on-call", section, "PATCHBAY_LAB_SERVER=sim make --no-print-directory on-call", "e2e", []claim{
			{text: "the questions of somebody on call, each answered by one command on a host with the fault; each fault as a support bundle, replayed as nobody and without network: the same decisions, byte for byte", wanted: "all pass", show: "{tests} tests; {bundles} bundles, {steps} steps"},
		}, tests,
			figure{name: "bundles", pattern: `^(\d+) bundles replayed elsewhere`, want: ">= 15"},
			figure{name: "steps", pattern: `without network: (\d+) steps, \d+ events, all decisions the same`, want: ">= 100"}),
		sim("alerts", "alerts", "a real Prometheus: each alert is fired by a fault and is silent after it; every query of the dashboard has data", "{alerts} alerts; {panels} panels, {queries} queries", "all",
			figure{name: "alerts", pattern: `^[a-z].*  Patchbay\w+: `, take: count, want: ">= 14"},
			figure{name: "panels", pattern: `^(\d+) panels`, want: ">= 10"},
			figure{name: "queries", pattern: `(\d+) queries, all with data`, want: ">= 10"}),
		sim("secrets", "secrets", "secrets planted on a host, looked for in everything that it says", "{planted} planted, looked for in {answers} answers", "none found",
			figure{name: "answers", pattern: `(\d+) answers, \d+ bytes`, want: ">= 50"},
			figure{name: "planted", pattern: `(\d+) secrets planted`, want: ">= 5"}),
		sim("admin-load", "admin-load", "200 slow readers, scrapes and nonsense do not hold up wiring", "median {alone} alone, {beside} beside them", "shown",
			figure{name: "alone", pattern: `^alone +([\d.]+ ms)`}, figure{name: "beside", pattern: `^\d+ slow readers +([\d.]+ ms)`}),
		live("e2e-fleet", section, "make --no-print-directory e2e-fleet", "e2e", []claim{
			{text: "`patchbay fleet` on six hosts by ssh, of three kinds, one not reached and one that refuses: a canary that is not well goes back by itself, then all are switched under packets", wanted: "0 lost", show: "{lost} of {sent} lost, {passed} forbidden passed; {switched} hosts switched, {back} taken back"},
		},
			figure{name: "sent", pattern: `^fleet: \d+ of (\d+) packets lost`, want: ">= 10000"},
			figure{name: "lost", pattern: `^fleet: (\d+) of \d+ packets lost`, want: "= 0"},
			figure{name: "passed", pattern: `packets lost, (\d+) of \d+ forbidden ones passed`, want: "= 0"},
			figure{name: "switched", pattern: `passed, (\d+) hosts switched`, want: "= 6"},
			figure{name: "back", pattern: `hosts switched, (\d+) taken back`, want: "= 1"}),
		live("plan", section, "make --no-print-directory plan", "e2e", []claim{{text: "`plan` beside a live Python agent touches nothing, and the differences it prints are those that then happen", wanted: "0 otherwise", show: "{printed} printed, {happened} happened, {otherwise} otherwise"}},
			figure{name: "printed", pattern: `(\d+) differences of rows and flows printed`, take: sum, want: ">= 10"},
			figure{name: "happened", pattern: `printed, (\d+) happened`, take: sum},
			figure{name: "otherwise", pattern: `happened, (\d+) of them not as printed`, take: sum, want: "= 0"}),
		built(real("least-privilege", section, "TestLeastPrivilege", "./deploy", "the socket works with the service's user and capabilities; `plan` works for that user", "{tests} tests", "all pass")),
		deploy("package-reproducible", false, "the same commit gives the same packages", "same bytes", "same bytes"),
		deploy("release-reproducible", false, "`make release` of the same commit in two clones, with a test key: binaries and packages for amd64 and arm64, sources, bills of materials, provenance and signed checksums", "{files} files, same bytes; changes are noticed", "same bytes",
			figure{name: "files", pattern: `^the same bytes: (\d+) files`, want: ">= 15"},
			figure{name: "signed", pattern: `^the signature and the checksums are good`, take: count, want: "= 1"},
			figure{name: "noticed", pattern: `^a changed file and changed checksums are noticed`, take: count, want: "= 1"}),
		live("examples", section, "make --no-print-directory examples", "e2e", []claim{
			{text: "host variables and values of deploy/examples, made into what a host gets by the templates of kolla-ansible, OpenStack-Ansible and the chart of openstack-helm", wanted: "all pass", show: "{tests} tests"},
		}, tests),
		deploy("package-source-test", false, "source packages of Debian and rpm, built with the distributions' own tools, make the same packages as ours", "{same} packages the same, another mode is noticed", "all",
			figure{name: "same", pattern: `^the same: `, take: count, want: "= 4"}, figure{name: "noticed", pattern: `^another mode is noticed`, take: count, want: "= 1"}),
		deploy("package-test", false, "packages: install, upgrade and remove in a clean Debian, nothing left", "passed", "passed", said),
		deploy("package-boot-test", true, "under a real systemd, VMs pinging 100 times a second: Python to Patchbay, a stuck agent, an upgrade, back to Python", "{lost} of {pings} pings lost", "0 lost",
			figure{name: "pings", pattern: `: (\d+) pings, \d+ lost`, take: sum, want: ">= 1000"},
			figure{name: "lost", pattern: `: \d+ pings, (\d+) lost`, take: sum, want: "= 0"}),
		deploy("package-upgrade-test", true, "the packages of 90d824e, made from the history, upgraded to those of now, rolled back and removed under a real systemd: each agent reads the other's snapshot, and a monitor sees the flows that are touched", "{lost} of {pings} pings lost; touched: {upgraded} of {flows} flows by the upgrade, {restarted} by a restart, {back} on the way back", "0 lost, 0 by a restart",
			figure{name: "pings", pattern: `: (\d+) pings, \d+ lost`, take: sum, want: ">= 1000"},
			figure{name: "lost", pattern: `: \d+ pings, (\d+) lost`, take: sum, want: "= 0"},
			figure{name: "flows", pattern: `upgrade: \d+ changes of (\d+) flows`, want: ">= 50"},
			figure{name: "upgraded", pattern: `upgrade: (\d+) changes of \d+ flows`},
			figure{name: "restarted", pattern: `restart: (\d+) changes of \d+ flows`, want: "= 0"},
			figure{name: "back", pattern: `roll back: (\d+) changes of \d+ flows`}),
		howTo("how-to", "about moving hosts", "install replace-the-python-agent filter-hybrid-ports switch-a-fleet"),
		howTo("how-to-on-call", "about finding out", "on-call follow-a-packet capture-packets monitor draw-the-map replay-a-fault"),
		howTo("how-to-lab", "about services for guests, and the lab", "answer-dhcp serve-metadata forward-dns run-the-lab first-cloud"),
		howTo("how-to-services", "about fleets, logs, local IPs, taps and releases", "run-a-fleet log-security-groups share-a-local-ip mirror-a-port make-a-release"),
	}, toolItems(section)...)
}

func speed() []item {
	const section = "Speed"
	bench := func(name, command, what string, claims []claim, figures ...figure) item {
		it := live(name, section, command, "bench", claims, figures...)
		it.short = what
		return it
	}
	return []item{
		fleet("fleet-1000", "N=1000 RATE=5", "1,000 agents, 5 messages a second to all", "1 s", "<= 1000"),
		fleet("fleet-10000", "N=10000 RATE=0.33 FLEETFLAGS='--for 3m --settle 10m'", "10,000 agents, a message to all in 3 s", "3 s", "<= 3000"),
		storm("broker", "N=1000", "--settle 10m", "the broker killed -9 and started under 1,000 agents", ""),
		storm("restart", "N=1000", "--settle 10m", "1,000 agents restarted within a minute", ""),
		storm("server", "N=1000", "--settle 10m --away 5m", "the server away for five minutes with changes, 1,000 agents", ""),
		storm("group", "N=1000", "--settle 10m", "a group with a port on each of 1,000 hosts changed 100 times", ""),
		storm("boots", "N=1000", "--settle 10m --boots 5m", "boots at the highest rate for five minutes, then at twice that for one, 1,000 agents", ""),
		storm("broker-10000", "N=10000 RATE=0.33", "--for 20s --settle 15m", "the broker killed -9 and started under 10,000 agents", "<= 90 s"),
		bench("bench-wiring-sim", "PATCHBAY_BENCH_SERVER=sim PATCHBAY_BENCH_RUNS=1 make --no-print-directory bench-wiring", "the floor itself takes longer than the target where many ports come at once", []claim{
			{text: "one port, plug → ACTIVE, simulated server; agent CPU for 100 ports at once", wanted: "1.5 × floor; 1/40 of Python", show: "{one}, {one-ratio} (Python {one-python}); {cpu}, {cpu-ratio} (Python {cpu-python}); targets of the table: {met} met, {missed} missed"},
		},
			cell("one", "one port, plug → ACTIVE", 3, ""), cell("one-ratio", "one port, plug → ACTIVE", 4, ""), cell("one-python", "one port, plug → ACTIVE", 1, ""),
			cell("cpu", "100 ports at once, agent CPU", 3, ""), cell("cpu-ratio", "100 ports at once, agent CPU", 4, ""), cell("cpu-python", "100 ports at once, agent CPU", 1, ""),
			figure{name: "met", pattern: `\| yes +\|$`, take: count, want: ">= 1"}, figure{name: "missed", pattern: `\| no +\|$`, take: count, want: "= 0"}),
		bench("bench-wiring", "PATCHBAY_BENCH_RUNS=1 make --no-print-directory bench-wiring TESTFLAGS='-run \"TestWiring/(same|push|plug)\"'", "neutron-server answers the questions about the next ports on the same cores", []claim{
			{text: "plug → ACTIVE, neutron-server: one port; all of 100 at once", wanted: "1.5 × floor; 1.3 × floor", show: "{one}, {one-ratio} (Python {one-python}); {all}, {all-ratio} (Python {all-python}); targets of the table: {met} met, {missed} missed"},
		},
			cell("one", "one port, plug → ACTIVE", 3, ""), cell("one-ratio", "one port, plug → ACTIVE", 4, ""), cell("one-python", "one port, plug → ACTIVE", 1, ""),
			cell("all", "100 ports at once, all ACTIVE", 3, ""), cell("all-ratio", "100 ports at once, all ACTIVE", 4, ""), cell("all-python", "100 ports at once, all ACTIVE", 1, ""),
			figure{name: "met", pattern: `\| yes +\|$`, take: count, want: ">= 1"}, figure{name: "missed", pattern: `\| no +\|$`, take: count, want: "= 0"}),
		bench("bench-workers", "make --no-print-directory bench-workers BEFORE=90d824e", "neutron-server's workers, its database and the broker share two cores with the agent", []claim{
			{text: "100 ports at once, all ACTIVE, neutron-server with rpc_workers = 4 (2, 1); first ACTIVE", wanted: "2.5 × as fast as Python and as 90d824e; 2 × one port alone", show: "{all} ({all-2}, {all-1}): {python} × Python, {before} × 90d824e; {first} × one port"},
		},
			workersCell("all", 4, 4, ""), workersCell("all-2", 2, 4, ""), workersCell("all-1", 1, 4, ""), workersCell("python", 4, 5, ">= 2.5"), workersCell("before", 4, 6, ">= 2.5"), workersCell("first", 4, 3, "<= 2")),
		bench("bench-crowd", "PATCHBAY_CROWD_AGENTS=100 make --no-print-directory bench-crowd", "neutron-server, its database, the broker and all agents with their switches share two cores", []claim{
			{text: "all ports of many hosts at once on neutron-server, beside one report of a host at a time by bare calls; then ports of ten hosts come and go at random: forwarding entries", wanted: "1.1 ×, 0 calls failed; 0 wrong", show: "{agents} hosts, {ports} ports after {all} s, {ratio} ×, the first after {first} s, {failed} calls failed; {wrong} of {storms} storms ended with wrong ones"},
		},
			figure{name: "agents", pattern: `^crowd: (\d+) agents`, want: ">= 100"}, figure{name: "ports", pattern: `^crowd: \d+ agents, (\d+) ports`}, figure{name: "first", pattern: `first ACTIVE after ([\d.]+) s, all`},
			figure{name: "all", pattern: `s, all after ([\d.]+) s and`}, figure{name: "ratio", pattern: `; ([\d.]+) times; \d+ calls failed`, want: "<= 1.1"}, figure{name: "failed", pattern: `times; (\d+) calls failed`, want: "= 0"},
			figure{name: "storms", pattern: `^crowd: (\d+) storms on`, want: ">= 200"}, figure{name: "wrong", pattern: `hosts, (\d+) ended with wrong`, want: "= 0"}),
		bench("bench-groups", "PATCHBAY_BENCH_MEMBERS=10,1000,10000 PATCHBAY_BENCH_AGENT=patchbay make --no-print-directory bench-groups", "", []claim{
			{text: "one member more in a remote group of 10,000", wanted: "2 flows", show: "{flows} flows, applied after {after}, {cpu} of CPU; with 10 members after {small}"},
		},
			figure{name: "flows", pattern: `^\| 10000 +\| patchbay` + `(?:[^|\n]*\|){4}` + ` *(\d+) `, want: "= 2"},
			figure{name: "after", pattern: `^\| 10000 +\| patchbay` + `(?:[^|\n]*\|){5}` + ` *([^|\n]*?) *\|`},
			figure{name: "cpu", pattern: `^\| 10000 +\| patchbay` + `(?:[^|\n]*\|){6}` + ` *([^|\n]*?) *\|`},
			figure{name: "small", pattern: `^\| 10 +\| patchbay` + `(?:[^|\n]*\|){5}` + ` *([^|\n]*?) *\|`}),
		bench("bench-before", "make --no-print-directory bench-before BEFORE=90d824e", "the work that releases, drivers and services have added since", []claim{
			{text: "100 filtered ports beside the Patchbay of 90d824e: start; restart; one member more in a group of 1,000; memory", wanted: "1.05 × at most", show: "{start} × as long, {start-cpu} × the CPU; {again} ×, {again-cpu} × the CPU, {touched} flows touched; {member} ×, {member-cpu} × the CPU; {rss} × the memory"},
		},
			cell("start", "start: all ACTIVE", 3, "<= 1.05"), cell("start-cpu", "start: CPU", 3, "<= 1.05"), cell("again", "restart: all ACTIVE", 3, "<= 1.05"), cell("again-cpu", "restart: CPU", 3, "<= 1.05"),
			cell("touched", "restart: flows touched", 2, "= 0"), cell("member", "member added: applied after", 3, "<= 1.05"), cell("member-cpu", "member added: CPU", 3, "<= 1.05"), cell("rss", "RSS", 3, "<= 1.05")),
		bench("bench-hybrid", "make --no-print-directory bench-hybrid", "the programs iptables-restore and ipset read and write whole tables", []claim{
			{text: "behind Linux bridges, filtered by iptables: one member more in a group of 10,000, 500 ports", wanted: "1 line, 20 ms", show: "{member-lines} line, in its set after {member}, {member-cpu} of CPU; with 10 ports after {member-10}"},
			{text: "one rule more for 100 ports, agent CPU; a second start with 500", wanted: "1/20 of Python; 0 lines", show: "{rule-cpu}, the Python agent {rule-python}; {again-lines} lines, {again}, the Python agent {again-python}"},
		},
			hybridCell("member-lines", 500, "patchbay", 9, "= 1"), hybridCell("member", 500, "patchbay", 10, "<= 20"), hybridCell("member-cpu", 500, "patchbay", 11, ""),
			hybridCell("member-10", 10, "patchbay", 10, ""), hybridCell("rule-cpu", 100, "patchbay", 7, ""), hybridCell("rule-python", 100, "python", 7, ""),
			hybridCell("again-lines", 500, "patchbay", 15, "= 0"), hybridCell("again", 500, "patchbay", 13, ""), hybridCell("again-python", 500, "python", 13, "")),
		bench("bench-extensions", "make --no-print-directory bench-extensions", "most of both is there with the extensions off, too", []claim{
			{text: "quality of service, distributed routing and trunks switched on and used by every port: RSS, a foreign push", wanted: "30 MiB, 50 µs", show: "{rss}, {push}; without them {rss-off}, {push-off}"},
		},
			cell("rss", "on and used", 3, "<= 30"), cell("push", "on and used", 4, "<= 50"), cell("rss-off", "off", 3, ""), cell("push-off", "off", 4, "")),
		bench("bench-peers", "make --no-print-directory bench-peers", "some 200 messages that neutron-server sends one by one each wake the process", []claim{
			{text: "100 filtered ports at once beside ovn-controller: time added to the server's; agent CPU", wanted: "2 ×; 1 ×", show: "{rest}, {rest-ratio}; {cpu}, {cpu-ratio}, the Python agent {cpu-python}"},
		},
			cell("rest", "100 ports at once, the rest", 3, ""), cell("rest-ratio", "100 ports at once, the rest", 4, "<= 2"),
			cell("cpu", "100 ports at once, agent CPU", 3, ""), cell("cpu-ratio", "100 ports at once, agent CPU", 4, "<= 1"), cell("cpu-python", "100 ports at once, agent CPU", 1, "")),
	}
}

// workersCell is a cell of the first row of Patchbay in the table of `make bench-workers`. Columns after the name are counted from 1.
func workersCell(name string, workers, column int, want string) figure {
	return figure{name: name, pattern: fmt.Sprintf(`^\| %d +\| patchbay +\|(?:[^|\n]*\|){%d} *([^|\n]*?) *\|`, workers, column-1), want: want}
}

// storm is a run of `lab fleet` with one storm.
func storm(name, agents, flags, text, after string) item {
	kind, _, _ := strings.Cut(name, "-")
	wanted := "0, nothing"
	if after != "" {
		wanted += ", " + after
	}
	return item{
		name: "storm-" + name, section: "Speed", command: "make --no-print-directory fleet " + agents + " STORM=" + kind + " FLEETFLAGS='" + flags + "'",
		paths: []string{"product", "cloud"}, servers: true, short: "broker, server and all agents with their switches share the machine's cores",
		claims: []claim{
			{text: text + ": wrong flows in the end, what has grown", wanted: wanted, show: "{wrong} of {flows}, {grown}; all in sync {after} after its end; {each} calls an agent, at most {most} in a second"},
		},
		figures: []figure{
			{name: "wrong", pattern: `: (\d+) wrong flows on`, want: "= 0"},
			{name: "flows", pattern: `^flows +(\d+) on`, want: ">= 1"},
			{name: "after", pattern: `^storm: .* ([\d.]+ s) after its end`, want: after},
			{name: "each", pattern: `^  calls .* ([\d.]+) an agent`},
			{name: "most", pattern: `^  calls .* at most (\d+) in a second`},
			{name: "grown", pattern: `^  grown +(.*?) *$`},
		},
	}
}

// fleet is a run of `lab fleet`.
func fleet(name, args, text, wanted, want string) item {
	return item{
		name: name, section: "Speed", command: "make --no-print-directory fleet " + args, paths: []string{"product", "cloud"}, servers: true,
		short: "broker, server and all agents with their switches share the machine's cores",
		claims: []claim{
			{text: text + ", real code on one RabbitMQ: wrong flows in the end; change to flow, p99", wanted: "0; " + wanted, show: "{wrong} of {flows}; {p99} (p50 {p50}); a message to all is confirmed after {confirm} (p50)"},
			{text: "all started; an agent with its switch in memory, at rest", wanted: "100 a second; 1.5 MiB, 0.1 ms of CPU a second", show: "{rate} a second, broker {broker-cpu} of CPU, {broker-memory}, {bindings} bindings each; {memory}, {idle}"},
		},
		figures: []figure{
			{name: "wrong", pattern: `: (\d+) wrong flows on`, want: "= 0"},
			{name: "flows", pattern: `^flows +(\d+) on`, want: ">= 1"},
			{name: "p50", pattern: `^  change to flow +p50 ([\d.]+ ms)`},
			{name: "p99", pattern: `^  change to flow .* p99 ([\d.]+ ms)`, want: want},
			{name: "confirm", pattern: `^  to all, confirmed +p50 ([\d.]+ ms)`},
			{name: "rate", pattern: `^start .*\((\d+) agents/s\)`, want: ">= 100"},
			{name: "broker-cpu", pattern: `^  broker, per agent +([\d.]+ ms) of CPU`, want: "<= 9"},
			{name: "broker-memory", pattern: `^  broker, per agent .* (\d+ KiB)`, want: "<= 200"},
			{name: "bindings", pattern: `^  broker, per agent .* ([\d.]+) bindings`, want: "<= 2.1"},
			{name: "memory", pattern: `^  agent with switch .* ([\d.]+ MiB) of heap`, want: "<= 1.5"},
			{name: "idle", pattern: `^rest +agent with switch ([\d.]+ ms)`, want: "<= 0.1"},
		},
	}
}

// hybridCell is a cell of the table of bench-hybrid: the columns after ports and agent are numbered from 2.
func hybridCell(name string, ports int, agent string, column int, want string) figure {
	return figure{name: name, pattern: fmt.Sprintf(`^\| %d +\| %s +\|(?:[^|\n]*\|){%d} *([^|\n]*?) *\|`, ports, agent, column-2), want: want}
}
