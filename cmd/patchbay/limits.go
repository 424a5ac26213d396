// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/patchbay-sdn/patchbay/internal/inspect"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
)

// limits says in sentences what cannot be had because of the releases of the switch, the broker and the server.
func limits(s *inspect.Status) []string {
	var out []string
	if v, ok := versionOf("Open vSwitch", s.Switch.Detail); ok {
		for _, l := range []struct {
			since [2]int
			lacks string
		}{
			{[2]int{3, 0}, "has no flow monitor for OpenFlow 1.4: flows that other programs change are found and repaired within a minute, not at once"},
			{[2]int{2, 12}, "has no GRE over IPv6: gre networks need a local_ip of IPv4"},
			{[2]int{2, 10}, "has no meters in the kernel datapath: packet rate limits have no effect there"},
		} {
			if before(v, l.since) {
				out = append(out, fmt.Sprintf("Open vSwitch before %d.%d %s.", l.since[0], l.since[1], l.lacks))
			}
		}
	}
	if v, ok := versionOf("RabbitMQ", s.Broker.Detail); ok && before(v, [2]int{3, 9}) {
		out = append(out, "RabbitMQ 3.8 refuses quorum queues that expire: rabbit_transient_quorum_queue cannot be used.")
	}
	return append(out, serverLimits(s.Server.Detail)...)
}

func serverLimits(releases string) []string {
	first, err := strconv.Atoi(leading.FindString(releases))
	if err != nil {
		return nil
	}
	var out []string
	if first < 18 {
		out = append(out, "Neutron before 18 has no address groups.")
	}
	if first < 23 {
		out = append(out, "Neutron before 23 does not say whether it reaches its database: the agent learns it from the first call that fails.")
	}
	switch {
	case strings.HasSuffix(releases, "or later"):
	case neutron.PushesAfterReport(releases):
		out = append(out, fmt.Sprintf("The server looks like %s, and objects are those of %d: a later one of these pushes each change twice. "+
			"An external or shared network with a subnet and a DHCP port, found at the agent's next start, tells the release.", releases, first))
	}
	if strings.HasPrefix(releases, "27 ") {
		out = append(out, "The server looks like 27 or later, and objects are those of 28: one since 29 pushes each change of ports and networks twice. "+
			"An external or shared network, found at the agent's next start, tells the release.")
	}
	return out
}

var (
	leading = regexp.MustCompile(`^\d+`)
	numbers = regexp.MustCompile(`(\d{1,4})\.(\d{1,4})`)
)

// versionOf finds the version behind a product's name.
func versionOf(product, detail string) (v [2]int, ok bool) {
	_, rest, named := strings.Cut(detail, product+" ")
	m := numbers.FindStringSubmatch(rest)
	if !named || m == nil {
		return v, false
	}
	for i := range v {
		v[i], _ = strconv.Atoi(m[i+1]) // digits only, and few
	}
	return v, true
}

func before(v, since [2]int) bool { return v[0] < since[0] || v[0] == since[0] && v[1] < since[1] }
