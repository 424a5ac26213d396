// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"regexp"
	"strings"
)

// toolsFile is generated from the results of e2e-tools.
const toolsFile = "docs/reference/tools.md"

// toolLab is a run of e2e-tools: the tools that are tried on the lab of one release.
type toolLab struct {
	release string
	tools   []deployed
}

// deployed is a tool by the name of its archive in cmd/patchbay/testdata/tools.
type deployed struct{ fixture, text string }

// image: the tool runs a container.
func (d deployed) image() bool {
	return !regexp.MustCompile(`^(debian|rdo|osa|charm)`).MatchString(d.fixture)
}

func toolLabs() []toolLab {
	return []toolLab{
		{"21", []deployed{
			{"kolla-2023.1", "kolla-ansible 2023.1"}, {"tripleo", "TripleO"}, {"rdo", "RDO's package, Puppet"},
			{"debian-21", "Debian's package, 21"}, {"helm-2026.1", "openstack-helm 2026.1.0"}, {"osa-2023.1", "OpenStack-Ansible 2023.1"}, {"charm", "Juju charm 2024.1"},
		}},
		{"26", []deployed{{"debian-26", "Debian's package, 26, with USE_SYSLOG"}}},
		{"29", []deployed{
			{"debian-29", "Debian's package, 29"}, {"kolla-2026.1", "kolla-ansible 2026.1"}, {"kolla-features", "the same with DVR, QoS and extensions that Patchbay goes on without"}, {"osa-2026.1", "OpenStack-Ansible 2026.1"}, {"kolla-sriov", "kolla-ansible 2026.1 with SR-IOV"}, {"osa-sriov", "OpenStack-Ansible 2026.1 with SR-IOV"}, {"helm-master", "openstack-helm, master"},
		}},
	}
}

// toolItems are the runs of e2e-tools.
func toolItems(section string) []item {
	var items []item
	for _, l := range toolLabs() {
		// The columns after the name: Neutron, where it runs, six cells; packets due, arrived, forbidden, arrived.
		column := func(n int) string { return `^\| [a-z]+[^|\n]* ` + strings.Repeat(`\|[^|\n]*`, n-1) + `\| (\d+) \|` }
		figures := []figure{
			{name: "cells", pattern: `^\d+ tools, (\d+) cells`, want: fmt.Sprintf("= %d", 6*len(l.tools))},
			{name: "failed", pattern: `cells, (\d+) failed`, want: "= 0"},
			{name: "broken", pattern: `points of contracts, (\d+) failed`, want: "= 0"},
			{name: "due", pattern: column(9), take: sum, want: ">= 100"}, {name: "arrived", pattern: column(10), take: sum},
			{name: "forbidden", pattern: column(11), take: sum, want: ">= 100"}, {name: "passed", pattern: column(12), take: sum, want: "= 0"},
		}
		for _, d := range l.tools {
			figures = append(figures, figure{name: d.fixture, pattern: `^\| ` + regexp.QuoteMeta(d.fixture) + ` \| ([^\n]*?) \|$`})
			if d.image() {
				figures = append(figures, figure{name: contractOf(d), pattern: `^\| contract ` + regexp.QuoteMeta(d.fixture) + ` \| ([^\n]*?) \|$`})
			}
		}
		it := live("e2e-tools-"+l.release, section, "make --no-print-directory e2e-tools TESTFLAGS='-run TestTools/"+l.release+"'", "e2e", []claim{{
			text:   fmt.Sprintf("the agent as %d deployment tools run it, in their containers and services, with their files, on Neutron %s: starts, registers, wires VMs, the tool's health check, the tool's rule for logs", len(l.tools), l.release),
			wanted: "0 failed, 0 passed", show: "{cells} cells, {failed} failed; {arrived} of {due} due packets arrived, {passed} of {forbidden} forbidden ones passed",
		}}, figures...)
		it.paths = append(it.paths, "deploy", "cmd/patchbay/testdata/tools")
		items = append(items, it)
	}
	return items
}

// contractOf is the figure with the points of an image's contract.
func contractOf(d deployed) string { return d.fixture + " contract" }

// contracts is the table of the images.
func (b *book) contracts() string {
	const points = 9
	var p strings.Builder
	p.WriteString("\n## Images\n\n" +
		"What a tool expects of its image, and gives to a container of it. Each cell is a test of `make e2e-tools` in a running container; – where the tool has no such thing.\n" +
		"The volume for the snapshot, the options of `[patchbay]` and Patchbay's probe are those of [deploy/examples](../../deploy/examples).\n\n" +
		"| image of | program | first process | user | capabilities | files | read-only root | probes | snapshot | stop | commit, date |\n|---|---|---|---|---|---|---|---|---|---|---|\n")
	for _, l := range toolLabs() {
		r := b.results["e2e-tools-"+l.release]
		for _, d := range l.tools {
			var cells []string
			if r != nil && d.image() {
				cells = strings.Split(r.Figures[contractOf(d)], " | ")
			}
			switch {
			case len(cells) == points:
				fmt.Fprintf(&p, "| %s | %s | %s, %s |\n", d.text, strings.Join(cells, " | "), r.Commit, r.Date.Format("2006-01-02"))
			case d.image():
				fmt.Fprintf(&p, "| %s |%s not run |\n", d.text, strings.Repeat(" – |", points))
			}
		}
	}
	p.WriteString("\n* **program**: Patchbay is what the tool's command finds, in the tool's own directory; the Python program is beside it.\n" +
		"* **first process**: `dumb-init --single-child -- kolla_start`, and the agent below it; with openstack-helm the agent itself.\n" +
		"* **user**: 42435 with the group kolla; 42424 with openstack-helm; in all four user ids.\n" +
		"* **capabilities**: `CAP_NET_ADMIN`, `CAP_NET_RAW` and `CAP_DAC_OVERRIDE` for the daemon, none for its first thread, none for the commands; other users cannot run the daemon.\n" +
		"* **files**: `kolla_set_configs` has copied what config.json names, with owner and mode; `--check` passes, and finds a changed file.\n" +
		"* **probes**: the probe of the examples and `patchbay health --live` pass, with openstack-helm its readiness script too; without an agent they fail. The tool's own check is in the table above.\n" +
		"* **snapshot**: the container is removed and made again on the same volumes: the agent loads the snapshot of the one before it.\n" +
		"* **stop**: `podman stop` ends the agent with status 0 within 15 seconds. TripleO has a shell between, which passes no signal on.\n")
	return p.String()
}

// toolsPage is docs/reference/tools.md.
func (b *book) toolsPage() string {
	var p strings.Builder
	p.WriteString("# Deployment tools\n\n" +
		"Generated by `make verify-page` from the results of `make e2e-tools` in [verification/](../../verification). A row is the agent as a tool runs it: with the tool's effective files and command\n" +
		"line (`cmd/patchbay/testdata/tools`, with the lab's addresses), on a host of the lab with real servers. [Install](../how-to/install.md#deployment-tools) says how to put Patchbay in.\n\n" +
		"| tool | Neutron | runs in | starts | registers | hybrid VM | plain VM | health check | log | packets due, arrived | forbidden, arrived | commit, date |\n|---|---|---|---|---|---|---|---|---|---|---|---|\n")
	for _, l := range toolLabs() {
		r := b.results["e2e-tools-"+l.release]
		for _, d := range l.tools {
			var f []string
			if r != nil {
				f = strings.Split(r.Figures[d.fixture], " | ")
			}
			if len(f) < 12 {
				fmt.Fprintf(&p, "| %s |%s not run |\n", d.text, strings.Repeat(" – |", 10))
				continue
			}
			fmt.Fprintf(&p, "| %s | %s | %s, %s | %s, %s | %s, %s |\n", d.text, strings.ReplaceAll(strings.Join(f[:8], " | "), "| no ", "| **no** "), f[8], f[9], f[10], f[11], r.Commit, r.Date.Format("2006-01-02"))
		}
	}
	p.WriteString("\n* **runs in**: *podman* is a container as the tool makes it: the tool's user, capabilities, mounts, entry and start scripts, in an image that\n" +
		"  [deploy/container/Containerfile](../../deploy/container/Containerfile) makes from a Debian with the tool's layout; *own scripts* are the tool's start and health scripts themselves (`PATCHBAY_TOOLS`), *stand-in* scripts of\n" +
		"  this repository that do the same. *systemd* is a booted Debian 12 with Patchbay's packages, and the tool's unit.\n" +
		"* **hybrid VM**: behind a Linux bridge, as Nova plugs it in where the agent reports `ovs_hybrid_plug`; filtered by iptables, and in Debian's rows by flows.\n" +
		"* **plain VM**: straight in the switch. With iptables_hybrid it has no port security, and one that has security groups stays without a network ([filter-hybrid-ports.md](../how-to/filter-hybrid-ports.md#ports-without-a-linux-bridge)).\n" +
		"* **health check**: kolla's `healthcheck_port`, TripleO's `healthcheck`, the liveness probe of openstack-helm with its RPC call; elsewhere the unit is active, and bridges are there. Each is seen to fail, too. `patchbay health` passes everywhere.\n" +
		"* **log**: every line begins a record for kolla's fluentd and has its fields, also after `copytruncate`; with OpenStack-Ansible the journal has oslo.log's fields.\n" +
		"* TLS ends before the broker, at a listener of the test. Hosts of Debian's packages 26 and 29 are a Debian 12 with their arguments and environment. fluentd, Juju, Kubernetes and Ansible themselves are not run: no package of the lab's Debian has fluentd, Juju or a kubelet.\n" +
		"  Templates of kolla-ansible, OpenStack-Ansible and the chart of openstack-helm are: `make examples` has them make what they put on a host from [deploy/examples](../../deploy/examples).\n")
	p.WriteString(b.contracts())
	return p.String()
}
