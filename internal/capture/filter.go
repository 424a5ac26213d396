// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Filter chooses frames. The zero Filter takes all.
type Filter struct {
	// Protocol is one of [Protocols], or the number of an IP protocol; empty for all.
	Protocol string
	Port     uint16     // of either end
	Host     netip.Addr // at either end
	// FromVM and ToVM take frames of one direction only.
	FromVM, ToVM bool
}

// Protocols are the names that a filter knows.
var Protocols = []string{"arp", "dhcp", "dns", "icmp", "ip", "sctp", "tcp", "udp"}

// Check says what is wrong with a filter.
func (f *Filter) Check() error {
	if _, err := strconv.ParseUint(f.Protocol, 10, 8); f.Protocol != "" && err != nil && !slices.Contains(Protocols, f.Protocol) {
		return fmt.Errorf("protocol %q is none of %s, and no number", f.Protocol, strings.Join(Protocols, ", "))
	}
	if f.FromVM && f.ToVM {
		return fmt.Errorf("no frame goes both from the VM and to it")
	}
	return nil
}

// Takes says whether a frame is chosen.
func (f *Filter) Takes(sent bool, c *Content) bool {
	p := &c.Packet
	switch {
	case f.FromVM && sent, f.ToVM && !sent:
		return false
	case f.Port != 0 && p.SrcPort != f.Port && p.DstPort != f.Port:
		return false
	case f.Host.IsValid() && p.Src != f.Host && p.Dst != f.Host:
		return false
	}
	has := func(port uint16) bool { return p.SrcPort == port || p.DstPort == port }
	switch f.Protocol {
	case "":
		return true
	case "ip":
		return p.Protocol != "arp" && p.Dst.IsValid()
	case "dhcp":
		return p.Protocol == "udp" && (has(67) || has(68) || has(546) || has(547))
	case "dns":
		return (p.Protocol == "udp" || p.Protocol == "tcp") && has(53)
	}
	return p.Protocol == f.Protocol || numbers[p.Protocol] == f.Protocol
}

// numbers are those of the protocols that have a name here.
var numbers = map[string]string{"tcp": "6", "udp": "17", "sctp": "132", "icmp": "1"}
