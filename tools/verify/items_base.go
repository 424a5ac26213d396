// SPDX-License-Identifier: Apache-2.0

package main

import "cmp"

func foundation() []item {
	const section = "Foundation"
	return []item{
		{
			name: "check", section: section, command: "make --no-print-directory check", paths: []string{"tests", "lab", "parity", "deploy", "tools", ".golangci.yml"},
			figures: summed(),
			claims:  []claim{{text: "format, vet, linter, direction of imports, unit tests with -race; the Python agent's recorded flows, rows and calls replayed", wanted: "0 failed", show: "{tests} tests, {failed} failed"}},
		},
		{
			name: "ci", section: section, paths: []string{"all"}, servers: true,
			command: "d=$(mktemp -d /var/tmp/patchbay-ci.XXXXXX) && trap 'chmod -R u+w $d; rm -rf $d' EXIT && git clone -q . $d/clone && cd $d/clone && bash .ci/run",
			figures: []figure{
				{name: "seconds", pattern: `^=== all sections passed in (\d+)s`, want: "<= 1800"},
				{name: "tests", pattern: `^(\d+) passed, \d+ failed`, want: ">= 2000"},
				{name: "skipped", pattern: `^\d+ passed, \d+ failed, (\d+) skipped`},
			},
			claims: []claim{{text: "all that CI runs, on a fresh clone", wanted: "1,800 s at most", show: "{seconds} s; {tests} tests, {skipped} skipped"}},
		},
		{
			name: "flaky", section: section, command: "make --no-print-directory test FLAKY=5", paths: []string{"tests", "lab", "parity", "deploy", "tools"},
			figures: summed(),
			claims:  []claim{{text: "unit tests with -race, five times in a row", wanted: "0 failed", show: "{tests} tests, {failed} failed"}},
		},
		{
			name: "try", section: section, command: "make --no-print-directory try TRIES=20", paths: []string{"product", "cloud", "README.md", "tools/try"}, servers: true,
			figures: []figure{
				{name: "failed", pattern: `(\d+) of \d+ tries failed`, want: "= 0"},
				{name: "tries", pattern: `\d+ of (\d+) tries failed`, want: ">= 20"},
				{name: "seconds", pattern: `^ *([\d.]+) s  in all`, take: most, want: "<= 300"},
			},
			claims: []claim{{text: "the five-minute try of the README, to the letter, twenty times; in sync at the end, no warning in the log but of two settings of the lab", wanted: "0 failed, 300 s at most", show: "{failed} of {tries} failed; the longest took {seconds} s with the packages present"}},
		},
		real("lab", section, "TestLab", "./lab", "the lab comes up, coming up again changes nothing, nothing is left", "{tests} tests", "all pass"),
		func() item {
			it := real("record", section, "TestAgainstTheRealServer", "./internal/agent",
				"the agent record equals the Python agent's; 1 connection, 2 queues, none left after SIGTERM, and none 5 minutes after kill -9; a restarted broker, closed connections, a deleted queue", "{connections} connection; out {out} after SIGTERM, queues gone {gone} after kill -9", "no difference, 1 connection",
				figure{name: "connections", pattern: `(\d+) connection, queues`, want: "= 1"},
				figure{name: "out", pattern: `out in (\S+)`},
				figure{name: "gone", pattern: `gone after (\S+)`})
			it.command = "PATCHBAY_LONG=1 " + it.command
			return it
		}(),
		func() item {
			it := real("config-oracle", section, "TestOracle", "./oslo/config", "configuration is read as oslo.config reads it, in generated file sets", "{differences} differences in {cases}, seed {seed}", "0",
				figure{name: "cases", pattern: `(\d+) cases, \d+ differences`, want: ">= 20000"},
				figure{name: "differences", pattern: `\d+ cases, (\d+) differences`, want: "= 0"},
				figure{name: "seed", pattern: `differences, seed (\d+)`})
			it.command += " -args -cases 20000 -seed 0"
			it.short = "options that refer to themselves by a deprecated name: an error called otherwise, an empty list written otherwise"
			return it
		}(),
		real("options", section, "TestSchemaEqualsNeutron|TestValidationEqualsNeutron", "./internal/options", "options are Neutron's, and values are judged as Neutron judges them", "{options} options, {values} values", "all equal",
			figure{name: "options", pattern: `(\d+) options equal`, want: ">= 200"},
			figure{name: "values", pattern: `(\d+) values, \d+ refused`, want: ">= 1000"}),
		unit("corpus", section, "TestCorpus", "./internal/options", "broken configurations are diagnosed with file, line and option"),
		real("messaging", section, "", "./oslo/messaging", "RPC with oslo.messaging as the other side; 100 forced disconnects over 10,000 calls; TLS, quorum queues, blocked and silent brokers",
			"{results} results, {duplicates} duplicates after {cuts} disconnects; {times} times the Python client's calls per CPU-second", "10,000; 0; 100; 5",
			figure{name: "results", pattern: `(\d+) results, \d+ typed errors`, want: "= 10000"},
			figure{name: "duplicates", pattern: `(\d+) duplicates`, want: "= 0"},
			figure{name: "cuts", pattern: `(\d+) disconnects forced`, want: ">= 100"},
			figure{name: "times", pattern: `Go makes ([\d.]+) times`, want: ">= 5"}),
		live("footprint", section, "make --no-print-directory footprint", "e2e",
			[]claim{{text: "connections, queues, start, restart and log of an idle agent with ten filtered ports, beside the Python agent", wanted: "1, 2, 0 flows, 0 lines", show: "{patchbay-connections} and {python-connections}; {patchbay-queues} and {python-queues}; {patchbay-restart} and {python-restart} flows; {patchbay-lines} and {python-lines} lines"}},
			append(footprint("patchbay", "= 1", "<= 2", "<= 5", "= 0"), footprint("python", "", "", "", "")...)...),
		live("flood", section, "make --no-print-directory flood", "e2e", []claim{{text: "100,000 pushes at once and a body of 200 MB: wiring meanwhile, memory", wanted: "3 times the quiet time at most", show: "{ratio} times; {before} MiB before, {flooded} MiB at most"}},
			figure{name: "ratio", pattern: `wiring took ([\d.]+) times`, want: "<= 3"},
			figure{name: "before", pattern: `memory: at most (\d+) MiB`},
			figure{name: "flooded", pattern: `memory: at most \d+ MiB before, (\d+) MiB`}),
		{
			name: "mutants", section: section, command: "make --no-print-directory mutants MUTANTS=1000 SEED=1 MUTANTSFLAGS='-for 35m'", paths: []string{"tests", "tools/mutants"},
			figures: []figure{
				{name: "score", pattern: `^seed \d+: ([\d.]+) % killed`, want: ">= 90"},
				{name: "drawn", pattern: `^(\d+) of \d+ mutants`, take: most, want: ">= 1000"},
			},
			claims: []claim{{text: "small faults put into world, delta, agent, ovsdb, trunk, qos, dvr, neutron and messaging, which the unit tests find", wanted: "90 %", show: "{score} % of {drawn}"}},
			short:  "survivors are listed by the command",
		},
		{
			name: "fuzz", section: section, command: "make --no-print-directory fuzz FUZZTIME=30s", paths: []string{"tests", "tools/fuzz-all"},
			figures: []figure{
				{name: "targets", pattern: `^(\d+) fuzz targets`, want: ">= 20"},
				{name: "executions", pattern: `(\d+) executions, no crash`, take: sum, want: ">= 100000"},
			},
			claims: []claim{{text: "decoders do not crash", wanted: "no crash", show: "{targets} targets, {executions} executions"}},
		},
	}
}

func theSwitch() []item {
	const section = "The switch"
	return []item{
		unit("openflow-golden", section, "Golden|TestHoldFlows", "./openflow", "flows are byte-exact with ovs-ofctl's vectors, both directions; 100,000 flows are held"),
		func() item {
			it := real("openflow-live", section, "TestDifferential|TestFault|TestLive", "./openflow", "20,000 random flows against ovs-ofctl and a live switch; faults, 20,000 refused flows, packets, flow monitor", "{tests} tests", "all pass")
			it.command = "PATCHBAY_FLOWS=20000 " + it.command
			return it
		}(),
		real("ovsdb", section, "", "./internal/ovsdb", "1,000 ports in and out, the database restarted, killed and compacted meanwhile; traffic costs nothing", "{tests} tests; {batches} batches in {traffic} of traffic", "all pass; 0 batches",
			figure{name: "traffic", pattern: `(\S+) of traffic, rx_packets`},
			figure{name: "batches", pattern: `rx_packets of tap0 from \S+ to \S+: (\d+) batches`, want: "= 0"}),
		real("conntrack", section, "", "./internal/conntrack", "tracked connections are removed in both datapaths, and limits of a real switch", "{tests} tests", "all pass"),
		{
			name: "bench-openflow", section: section, command: "make --no-print-directory bench-openflow", paths: []string{"openflow"}, servers: true,
			figures: []figure{
				{name: "install", pattern: `(?i)^.*install\b.*?\d+ +[\d.]+ ms +[\d.]+ ms +([\d.]+) +`, want: ">= 2"},
				{name: "dump", pattern: `(?i)^.*dump\b.*?\d+ +[\d.]+ ms +[\d.]+ ms +([\d.]+) +`, want: ">= 4"},
			},
			claims: []claim{{text: "speed beside `ovs-ofctl`", wanted: "install 2, dump 4 times as fast", show: "install {install}, dump {dump} times"}},
			short:  "the switch itself is most of the time to install; single runs vary",
		},
	}
}

func wiring() []item {
	const section = "Wiring"
	parity := func(group, text string) item {
		return live("parity-"+group, section, "make --no-print-directory parity-fast SCENARIO='"+cmp.Or(scenarioGroups[group], hybridGroups[group])+"'", "parity",
			[]claim{{text: text, wanted: "0 unexplained", show: "{scenarios} scenarios, {lines} lines, {accepted} accepted, {unexplained} unexplained"}}, parityFigures...)
	}
	sample := func(name, seed string) item {
		it := live(name, section, "make --no-print-directory parity SCENARIO=\"$(tools/parity-sample 15 "+seed+")\"", "parity",
			[]claim{{text: "fifteen scenarios drawn at random, both agents live", wanted: "0 unexplained", show: "seed {seed}: {scenarios} scenarios, {lines} lines, {accepted} accepted, {unexplained} unexplained"}},
			append(parityFigures, figure{name: "seed", pattern: `^seed (\d+): `})...)
		it.paths = append(it.paths, "tools/parity-sample")
		return it
	}
	return []item{
		parity("wiring", "wiring: flows, rows, statuses and calls, live, against the recordings of the Python agent"),
		parity("groups-1", "security groups, live, against the recordings, first half"),
		parity("groups-2", "security groups, live, against the recordings, second half"),
		parity("hybrid-1", "security groups with iptables_hybrid, rules and IP sets as well, live, against the recordings, first half"),
		parity("hybrid-2", "security groups with iptables_hybrid, rules and IP sets as well, live, against the recordings, second half"),
		parity("routers", "distributed routers, live, against the recordings"),
		parity("qos", "quality of service, live, against the recordings"),
		parity("trunk", "trunks, live, against the recordings"),
		sample("parity-live-1", "0"),
		sample("parity-live-2", "0"),
		live("e2e-wiring", section, "make --no-print-directory e2e TESTFLAGS='-run TestWiring'", "e2e",
			[]claim{{text: "real packets on one, two and three hosts, every network type, DHCP", wanted: "0 failed", show: "{cases} cases, {failed} failed"}},
			figure{name: "cases", pattern: `^(\d+) cases, \d+ failed`, want: ">= 200"},
			figure{name: "failed", pattern: `^\d+ cases, (\d+) failed`, want: "= 0"}),
		{
			name: "unkind", section: section, command: "make --no-print-directory unkind HISTORIES=1500 SEED=0", paths: []string{"tests", "lab/sim"},
			figures: summed(),
			claims:  []claim{{text: "1,500 new histories of a whole agent and a server that delays, reorders, repeats, fails and loses, of any release: flows, rows and statuses end as those of a fresh start", wanted: "0 failed", show: "{tests} tests, {failed} failed"}},
		},
		{
			name: "decisions", section: section, command: "make --no-print-directory decisions HISTORIES=1000 SEED=0", paths: []string{"tests"},
			figures: summed(),
			claims:  []claim{{text: "1,000 new histories of agents with crashes, recorded and decided again twice: effects equal byte for byte", wanted: "0 failed", show: "{tests} histories, {failed} failed"}},
		},
		{
			name: "histories", section: section, command: "make --no-print-directory histories HISTORIES=5000 SEED=0", paths: []string{"tests"},
			figures: summed(),
			claims:  []claim{{text: "any history of events ends in the same flows, meters and rows as a fresh start; 5,000 new ones a property", wanted: "0 failed", show: "{tests} properties, {failed} failed"}},
		},
	}
}

// scenarioGroups are the scenarios of parity in parts that take less than an hour with both agents, as patterns for SCENARIO='…'.
var scenarioGroups = map[string]string{
	"wiring":   `^('"$(ls parity/testdata | sed -n 's/\.txtar$//p' | grep -vE '^(config|fw|hybrid|dvr|qos|trunk)-' | paste -sd'|')"')$`,
	"groups-1": "^fw-[a-h]",
	"groups-2": "^fw-[i-z]",
	"routers":  "^dvr-",
	"qos":      "^qos-",
	"trunk":    "^trunk-",
}

// hybridGroups are those of iptables_hybrid, which only the Python agent 21 plays so far.
var hybridGroups = map[string]string{
	"hybrid-1": "^hybrid-[a-h]",
	"hybrid-2": "^hybrid-[i-z]",
}

var parityFigures = []figure{
	{name: "scenarios", pattern: `^(\d+) scenarios +\d+ +\d+ +\d+`, want: ">= 1"},
	{name: "lines", pattern: `^\d+ scenarios +(\d+) +\d+ +\d+`},
	{name: "accepted", pattern: `^\d+ scenarios +\d+ +(\d+) +\d+`},
	{name: "unexplained", pattern: `^\d+ scenarios +\d+ +\d+ +(\d+)`, want: "= 0"},
}

// footprint are the figures of TestFootprint of one agent, with what they have to be.
func footprint(agent, connections, queues, start, none string) []figure {
	return []figure{
		{name: agent + "-connections", pattern: `^` + agent + `: (\d+) connections`, want: connections},
		{name: agent + "-queues", pattern: `^` + agent + `: .* (\d+) queues with a consumer`, want: queues},
		{name: agent + "-start", pattern: `^` + agent + `: .* alive after ([\d.]+) s`, want: start},
		{name: agent + "-restart", pattern: `^` + agent + `: .* a restart made (\d+) flows anew`, want: none},
		{name: agent + "-lines", pattern: `^` + agent + `: .* (\d+) lines in a minute`, want: none},
	}
}
