// SPDX-License-Identifier: Apache-2.0

package hostmap

import (
	"fmt"
	"strconv"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/inspect"
)

var exampleTime = time.Date(2026, 11, 15, 8, 30, 0, 0, time.UTC)

// exampleHost is a host with that many ports, such as a cloud has them: a few large networks, many small ones, and a few
// ports that are not well. The same number gives the same host.
func exampleHost(ports int) Host {
	h := Host{Time: exampleTime, Status: inspect.Status{
		Host: "hv1", Version: "0.7.0", PID: 4711, Started: exampleTime.Add(-75 * time.Hour), InSync: true, Firewall: "openvswitch",
		Switch: inspect.Peer{Up: true, Since: exampleTime.Add(-75 * time.Hour), Detail: "Open vSwitch 3.1.0"},
		Broker: inspect.Peer{Up: true, Since: exampleTime.Add(-31 * time.Hour), Detail: "10.0.0.11:5671, TLS verified"},
		Server: inspect.Peer{Up: true, Since: exampleTime.Add(-31 * time.Hour), Detail: "2023.1"},
	}}
	networks := map[bool]int{true: 3, false: 8 + ports/24}[ports < 50]
	for i := range networks {
		n := inspect.Network{ID: exampleID("e", i), Type: "vxlan", Number: 1000 + i*37%900, VLAN: uint16(i + 1), MTU: 1450}
		switch {
		case i == 1 || i%7 == 4:
			n.Type, n.Physical, n.Number, n.MTU = "vlan", "physnet1", 200+i, 1500
		case i == 6:
			n.Type, n.Physical, n.Number, n.MTU = "flat", "external", 0, 1500
		}
		h.Networks = append(h.Networks, n)
	}
	for i := range ports {
		// The further back a network is, the fewer of the ports are its.
		at := 0
		for j, n := range h.Networks {
			if (2*len(n.Ports)+1)*(j+3) < (2*len(h.Networks[at].Ports)+1)*(at+3) {
				at = j
			}
		}
		h.addPort(i, at)
	}
	h.exampleReach(ports)
	h.exampleTrouble()
	return h
}

func (h *Host) addPort(i, at int) {
	n := &h.Networks[at]
	role := []string{"web", "db", "cache", "api", "queue", "build"}[at%6]
	p := inspect.Port{
		ID: exampleID("a", i), Name: fmt.Sprintf("%s-%d", role, len(n.Ports)+1), State: "wired", Reason: "bound to this host",
		Interface: "tap" + exampleID("a", i)[:11], OFPort: uint32(i + 10), MAC: fmt.Sprintf("fa:16:3e:00:%02x:%02x", i>>8, i&0xff),
		Addresses: []string{fmt.Sprintf("10.%d.%d.%d", at, len(n.Ports)/200, len(n.Ports)%200+5)},
		Network:   n.ID, VLAN: n.VLAN, Owner: "compute:nova", Secured: true, Filtered: true, Groups: []string{exampleID("c", at%4)},
		Status: "ACTIVE", Reported: "up", Applied: true, Flows: 30 + i%17,
		Counters: &inspect.Counters{
			RxPackets: int64(i+1) * 9176, RxBytes: int64(i+1) * 9176 * 740, TxPackets: int64(i+1) * 8311, TxBytes: int64(i+1) * 8311 * 610, TxDropped: int64(i % 5),
		},
		Timeline: inspect.Timeline{Plugged: exampleTime.Add(-time.Hour), Applied: exampleTime.Add(-time.Hour + time.Duration(90+i%70)*time.Millisecond)},
	}
	p.Segment = n.Type
	if n.Number != 0 {
		p.Segment += " " + strconv.Itoa(n.Number)
	}
	if len(n.Ports) == 0 && i%2 == 0 {
		p.Name, p.Owner, p.Secured, p.Filtered, p.Groups, p.Role = "dhcp", "network:dhcp", false, false, nil, "DHCP"
	}
	switch i {
	case 3:
		p.Name, p.Owner, p.Secured, p.Filtered, p.Groups, p.Role = "router", "network:router_interface_distributed", false, false, nil, "router interface"
		p.Notes = []string{"distributed routing: the gateway of subnet blue on this host; its packets leave the host as fa:16:3f:00:00:01"}
	case 5:
		p.Name, p.Owner, p.Role, p.Interface = "guest-7", "trunk:subport", "sub-port", "spi-"+exampleID("a", i)[:11]
		p.Notes = []string{"trunk: sub-port of trunk t, whose VM sends it under VLAN 7 through tbr-t", "qos: policy gold, the port's: at most 1000 kbit/s from it"}
	}
	n.Ports = append(n.Ports, p.ID)
	h.Ports = append(h.Ports, p)
}

// exampleReach adds groups, bridges and tunnels.
func (h *Host) exampleReach(ports int) {
	for i, name := range []string{"default", "web", "db", "ops"} {
		h.Groups = append(h.Groups, inspect.Group{ID: exampleID("c", i), Name: name, Known: true})
	}
	for i := range map[int]int{10: 5, 200: 14, 1000: 120}[ports] {
		t := inspect.Tunnel{Name: fmt.Sprintf("vxlan-0a0000%02x", i+2), Type: "vxlan", Remote: fmt.Sprintf("10.0.0.%d", i+2), OFPort: uint32(i + 2), State: "up"}
		t.Counters = &inspect.Counters{RxPackets: int64(i+1) * 70001, RxBytes: int64(i+1) * 70001 * 900, TxPackets: int64(i+1) * 61003, TxBytes: int64(i+1) * 61003 * 880}
		for j := range h.Networks {
			if n := &h.Networks[j]; n.Type == "vxlan" && (i+j)%(2+i%3) == 0 {
				t.Networks = append(t.Networks, n.ID)
				n.Endpoints = append(n.Endpoints, t.Name)
				n.Stations += 4
			}
		}
		h.Tunnels = append(h.Tunnels, t)
	}
	h.Bridges = []inspect.Bridge{
		{Name: "br-int", Role: "integration", Connected: true, Wanted: ports*38 + 21, Present: ports*38 + 21, DatapathID: "0000a2b4c6d8e0f2"},
		{Name: "br-tun", Role: "tunnel", Connected: true, Wanted: ports*6 + 40, Present: ports*6 + 40, DatapathID: "0000a2b4c6d8e0f3"},
		{Name: "br-phys1", Role: "physical", Physical: "physnet1", Connected: true, Wanted: 12, Present: 12},
	}
	if ports > 50 {
		h.Bridges = append(h.Bridges, inspect.Bridge{Name: "br-ex", Role: "physical", Physical: "external", Connected: true, Wanted: 4, Present: 5, Foreign: 1})
	}
}

// exampleTrouble is what is not well on the hosts.
func (h *Host) exampleTrouble() {
	unknown := func(i int, state, reason string) {
		p := &h.Ports[i]
		p.State, p.Reason, p.Applied, p.Reported, p.Flows = state, reason, false, "", 2
		p.Counters = &inspect.Counters{RxPackets: 14, RxBytes: 1204, RxDropped: 14}
		if state != "down" {
			p.Network, p.Segment, p.VLAN, p.Name, p.Addresses, p.Filtered, p.Groups, p.Status = "", "", 0, "", nil, false, nil, ""
			for j := range h.Networks {
				n := &h.Networks[j]
				for k, id := range n.Ports {
					if id == p.ID {
						n.Ports = append(n.Ports[:k:k], n.Ports[k+1:]...)
						break
					}
				}
			}
		}
	}
	switch len(h.Ports) {
	case 10:
		unknown(9, "waiting", "bulk_pull of the port is not answered yet")
		unknown(4, "down", "admin down")
	case 200:
		for _, i := range []int{150, 177} {
			h.Ports[i].State, h.Ports[i].Reason, h.Ports[i].Applied = "waiting", "the members of group web are not known yet", false
		}
		unknown(121, "waiting", "bulk_pull of the port is not answered yet")
		h.Tunnels[6].State, h.Tunnels[6].Error = "failed", "could not open network device vxlan-0a000008 (Address family not supported by protocol)"
	case 1000:
		for _, i := range []int{700, 701, 702, 703, 704, 705, 706, 707, 708, 709, 710, 711} {
			unknown(i, "waiting", "bulk_pull of the port is not answered yet")
		}
		for _, i := range []int{31, 333, 334} {
			h.Ports[i].Applied = false
		}
		unknown(480, "failed", "the switch has no port for it: could not open network device tap (No such device)")
		unknown(611, "dead", "not bound to a segment")
		h.Ports[902].State, h.Ports[902].Reason, h.Ports[902].Applied = "dead", "bound to host hv7, not to this one", true
		for _, i := range []int{40, 41, 42, 43, 250, 555, 871} {
			h.Ports[i].State, h.Ports[i].Reason = "down", "admin down"
		}
		h.Ports[19].State, h.Ports[19].Reason = "moved", "its VM has moved to host hv9"
		h.Tunnels[33].State, h.Tunnels[33].Error = "missing", "the switch has not made it yet"
		h.Tunnels[90].State, h.Tunnels[90].Error = "failed", "could not add network device"
		h.Bridges[0].Pending, h.Bridges[0].Repaired = 84, 2
	}
	asked := 0
	for _, p := range h.Ports {
		if p.Reason == "bulk_pull of the port is not answered yet" {
			asked++
		}
	}
	if asked > 0 {
		h.Status.InSync = false
		h.Status.Reasons = []string{"bulk_pull of " + count(asked, "port") + " is not answered yet"}
	}
	if n := h.Bridges[0].Pending; n > 0 {
		h.Status.Reasons = append(h.Status.Reasons, count(n, "flow")+" not as wanted yet")
	}
}

// exampleID looks like a UUID.
func exampleID(kind string, i int) string {
	return fmt.Sprintf("%s%07x-%04x-4%03x-8%03x-%012x", kind, i*2654435761&0xfffffff, i*40503&0xffff, i&0xfff, i*17&0xfff, i)
}
