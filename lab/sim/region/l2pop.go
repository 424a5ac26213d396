// SPDX-License-Identifier: Apache-2.0

package region

import (
	"slices"

	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

const l2population = "q-agent-notifier-l2population-update"

// flood stands for "send broadcasts here" in forwarding entries.
var flood = [2]string{"00:00:00:00:00:00", "0.0.0.0"}

// entries are the forwarding entries of one segment, by tunnel endpoint.
type entries map[string][][2]string

func (s *Region) fdb(method, host string, p *Port, seg *Segment, e entries) {
	t := messaging.Target{Topic: l2population, Version: "1.0", Fanout: host == "", Server: host}
	s.castNow(p.NetworkID, t, method, fields{"fdb_entries": fields{p.NetworkID: fields{
		"segment_id": seg.SegmentationID, "network_type": seg.NetworkType, "ports": e,
	}}})
}

// endpoint is the agent of a host with tunnels of the segment's type; nil when there is none.
func (s *Region) endpoint(host string, seg *Segment) *Agent {
	a := s.agents[host]
	if a == nil || a.conf.TunnelingIP == "" || seg == nil || !slices.Contains(a.conf.TunnelTypes, seg.NetworkType) {
		return nil
	}
	return a
}

// activeOn counts the ACTIVE ports of a network on a host. A binding that is not the active one counts as well.
func (s *Region) activeOn(host, network string) int {
	n := 0
	for _, p := range s.onNetwork[network] {
		if p.Status == active && slices.ContainsFunc(p.Bindings, func(b *Binding) bool { return b.Host == host }) {
			n++
		}
	}
	return n
}

// addresses are the forwarding entries of a port.
func (p *Port) addresses() [][2]string {
	var list [][2]string
	for _, ip := range p.FixedIPs {
		list = append(list, [2]string{p.MAC, ip.IP.String()})
	}
	return list
}

// announce tells the other hosts where an ACTIVE port is, and its own host, when it needs it, where all others are.
func (s *Region) announce(p *Port, refresh bool) {
	b := p.active()
	a := s.endpoint(b.Host, b.Segment)
	if a == nil {
		return
	}
	ip := a.conf.TunnelingIP
	own := entries{ip: {}}
	if n := s.activeOn(b.Host, p.NetworkID); n == 1 || n == 2 || refresh {
		if others := s.others(p, b); len(others) > 0 {
			s.fdb("add_fdb_entries", b.Host, p, b.Segment, others)
		}
		own[ip] = append(own[ip], flood)
	}
	own[ip] = append(own[ip], p.addresses()...)
	s.fdb("add_fdb_entries", "", p, b.Segment, own)
}

// others are the entries of all ACTIVE ports of the network on other hosts.
func (s *Region) others(p *Port, b *Binding) entries {
	e := entries{}
	list := values(s.onNetwork[p.NetworkID])
	slices.SortFunc(list, func(x, y *Port) int { return x.Created.Compare(y.Created) })
	for _, q := range list {
		for _, on := range q.Bindings {
			a := s.agents[on.Host]
			if q.Status != active || on.Host == b.Host || a == nil || a.conf.TunnelingIP == "" {
				continue
			}
			ip := a.conf.TunnelingIP
			if e[ip] == nil {
				e[ip] = [][2]string{flood}
			}
			e[ip] = append(e[ip], q.addresses()...)
		}
	}
	return e
}

// withdraw tells all hosts that a port is no longer behind the endpoint of a host; its status has changed already.
func (s *Region) withdraw(p *Port, b *Binding) {
	a := s.endpoint(b.Host, b.Segment)
	if a == nil {
		return
	}
	e := entries{a.conf.TunnelingIP: {}}
	if s.activeOn(b.Host, p.NetworkID) == 0 {
		e[a.conf.TunnelingIP] = append(e[a.conf.TunnelingIP], flood)
	}
	e[a.conf.TunnelingIP] = append(e[a.conf.TunnelingIP], p.addresses()...)
	s.fdb("remove_fdb_entries", "", p, b.Segment, e)
}

// readdress tells all hosts that addresses of a port have changed.
func (s *Region) readdress(p *Port, b *Binding, before []FixedIP) {
	a := s.endpoint(b.Host, b.Segment)
	if a == nil {
		return
	}
	missing := func(from, in []FixedIP) [][2]string {
		var list [][2]string
		for _, ip := range from {
			if !slices.ContainsFunc(in, func(o FixedIP) bool { return o.IP == ip.IP }) {
				list = append(list, [2]string{p.MAC, ip.IP.String()})
			}
		}
		return list
	}
	change := fields{}
	if list := missing(before, p.FixedIPs); len(list) > 0 {
		change["before"] = list
	}
	if list := missing(p.FixedIPs, before); len(list) > 0 {
		change["after"] = list
	}
	if len(change) == 0 {
		return
	}
	s.castNow(p.NetworkID, messaging.Target{Topic: l2population, Version: "1.0", Fanout: true}, "update_fdb_entries",
		fields{"fdb_entries": fields{"chg_ip": fields{p.NetworkID: fields{a.conf.TunnelingIP: change}}}})
}
