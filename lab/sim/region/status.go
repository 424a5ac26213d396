// SPDX-License-Identifier: Apache-2.0

package region

import (
	"slices"
	"time"

	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// errStale is what a port that changes at the same time costs the real server.
var errStale = &messaging.RemoteError{Class: "StaleDataError", Module: "sqlalchemy.orm.exc", Message: "UPDATE statement on table 'ports' expected to update 1 row(s); 0 were matched."}

// up hears that a host has wired a port. It may fail before anything is written, or after the status and before other hosts
// are told.
func (s *Region) up(id, host string, refresh bool) error {
	if s.chance.device("up " + id) {
		return errStale
	}
	p := s.ports[id]
	if p == nil || p.Host() != host {
		return nil
	}
	if b := p.active(); b.VIFType == failed && s.bind(p, b) && b.VIFType == bound {
		s.touched(p)
	}
	s.provisioned(p, layer2)
	if s.chance.device("told " + id) {
		return errStale
	}
	s.announce(p, refresh)
	return nil
}

func (s *Region) down(id, host string) (fields, error) {
	if s.chance.device("down " + id) {
		return nil, errStale
	}
	p := s.ports[id]
	if p != nil && p.Host() == host {
		s.setStatus(p, down)
	}
	// A port that is bound elsewhere is said to exist, as is one that nobody knows: the real server looks no further.
	return fields{"device": id, "exists": true}, nil
}

// Those who may hold a port back.
const (
	layer2 = "L2"
	dhcp   = "DHCP"
)

// unheld are the owners of ports that nobody holds back.
var unheld = []string{
	"", "network:router_interface_distributed", "network:ha_router_replicated_interface", "network:router_interface",
	"network:router_gateway", "network:router_centralized_snat", "network:dhcp", "network:floatingip_agent_gateway",
}

// hold notes who has to be ready before a port that was created, or bound to another host, is ACTIVE.
func (s *Region) hold(p *Port) {
	if slices.Contains(unheld, p.DeviceOwner) {
		return
	}
	if p.Status != active && s.agents[p.Host()] != nil {
		p.blocks[layer2] = true
	}
}

// holdAddresses notes that a port waits for a DHCP agent that is to learn its addresses. One that is ACTIVE stays so.
func (s *Region) holdAddresses(p *Port) {
	if slices.Contains(unheld, p.DeviceOwner) {
		return
	}
	if s.dhcp > 0 && slices.ContainsFunc(p.FixedIPs, func(ip FixedIP) bool { return s.subnets[ip.SubnetID].DHCP }) {
		p.blocks[dhcp] = true
		time.AfterFunc(s.dhcp, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.ports[p.ID] == p && !s.closed {
				s.provisioned(p, dhcp)
			}
		})
	}
}

// provisioned hears that somebody is ready with a port. With the last of them it is ACTIVE, if it is bound and switched on.
func (s *Region) provisioned(p *Port, who string) {
	delete(p.blocks, who)
	if len(p.blocks) == 0 && p.active().VIFType == bound && p.AdminUp {
		s.setStatus(p, active)
	}
}

// setStatus changes the status of a port and tells everyone.
func (s *Region) setStatus(p *Port, status string) {
	if p.Status == status {
		return
	}
	before := p.Status
	p.Status = status
	s.touched(p)
	switch {
	case status == active:
		s.announce(p, false)
	case status == down && before != down:
		s.withdraw(p, p.active())
	}
	s.pushed("Port", p.ID)
}
