// SPDX-License-Identifier: Apache-2.0

package region

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"time"
)

// Population is a cloud to begin with: ports on one host, whose groups let the members of other groups in.
type Population struct {
	Project string
	Segment Segment      // of the only network
	CIDR    netip.Prefix // of its subnet; 10.64.0.0/14 when zero
	CIDR6   netip.Prefix // of a second one; none when zero
	Host    string       // where the local ports are bound
	Ports   int          // local ports; the n-th has the n-th group, and so on around
	Groups  int          // groups of local ports, each with a remote group of its own
	Members int          // of each remote group, all on hosts that do not exist
}

// Populated is what has been made.
type Populated struct {
	Network *Network
	Local   []*Port  // the local ports
	Groups  []string // ids of the groups of local ports
	Remotes []string // ids of the groups that they let in
}

// Elsewhere is the host of members: an agent that has reported and will never be heard of again.
const Elsewhere = "elsewhere"

// Populate makes the population without telling anybody. It is for the time before agents start: those that run will not
// notice. The local ports are bound when their host's agent has reported; see AddAgent.
func (s *Region) Populate(ctx context.Context, p Population) (made *Populated, err error) {
	err = s.Quietly(func() error {
		made, err = s.populate(ctx, p)
		return err
	})
	return made, err
}

func (s *Region) populate(ctx context.Context, p Population) (made *Populated, err error) {
	if !p.CIDR.IsValid() {
		p.CIDR = netip.MustParsePrefix("10.64.0.0/14")
	}
	s.AddAgent(Elsewhere, netip.MustParseAddr("203.0.113.1"))
	off, name := false, "population"
	made = &Populated{}
	made.Network, err = s.CreateNetwork(ctx, NetworkSpec{Name: &name, Project: &p.Project, Segment: p.Segment})
	if err != nil {
		return nil, err
	}
	for _, cidr := range []netip.Prefix{p.CIDR, p.CIDR6} {
		if cidr.IsValid() {
			if _, err := s.CreateSubnet(ctx, SubnetSpec{Project: p.Project, NetworkID: made.Network.ID, CIDR: cidr, DHCP: &off}); err != nil {
				return nil, err
			}
		}
	}
	for i := range p.Groups {
		local, remote := "local-"+strconv.Itoa(i), "remote-"+strconv.Itoa(i)
		from, err := s.CreateGroup(ctx, GroupSpec{Name: &remote, Project: &p.Project})
		if err != nil {
			return nil, err
		}
		to, err := s.CreateGroup(ctx, GroupSpec{Name: &local, Project: &p.Project})
		if err != nil {
			return nil, err
		}
		for _, kind := range []string{"IPv4", "IPv6"} {
			if _, err := s.CreateRule(ctx, RuleSpec{GroupID: to.ID, Direction: "ingress", EtherType: kind, RemoteGroup: from.ID}); err != nil {
				return nil, err
			}
		}
		made.Groups, made.Remotes = append(made.Groups, to.ID), append(made.Remotes, from.ID)
		for range p.Members {
			if _, err := s.AddMember(ctx, made, i); err != nil {
				return nil, err
			}
		}
	}
	for i := range p.Ports {
		groups := []string{}
		if p.Groups > 0 {
			groups = append(groups, made.Groups[i%p.Groups])
		}
		owner := "compute:nova"
		port, err := s.CreatePort(ctx, PortSpec{
			Project: &p.Project, NetworkID: &made.Network.ID, Host: &p.Host, Groups: &groups, DeviceOwner: &owner,
		})
		if err != nil {
			return nil, err
		}
		made.Local = append(made.Local, port)
	}
	return made, nil
}

// Quietly makes changes without telling anybody. It is for the time before agents start: those that run will not notice.
func (s *Region) Quietly(change func() error) error {
	s.mute(true)
	defer s.mute(false)
	return change()
}

func (s *Region) mute(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.muted = on
}

// AddMember creates a port on another host that has the i-th remote group.
func (s *Region) AddMember(ctx context.Context, of *Populated, i int) (*Port, error) {
	host, owner, groups := Elsewhere, "compute:nova", []string{of.Remotes[i]}
	return s.CreatePort(ctx, PortSpec{
		Project: &of.Network.Project, NetworkID: &of.Network.ID, Host: &host, DeviceOwner: &owner, Groups: &groups,
	})
}

// AddAgent pretends that an agent of the host has reported, so that ports can be bound there before one starts.
func (s *Region) AddAgent(host string, ip netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now().UTC()
	a := &Agent{ID: s.newID(), Type: "Open vSwitch agent", Binary: "neutron-openvswitch-agent", Host: host, Topic: "N/A", Started: now, Created: now}
	a.Heartbeat, a.pretended = now, true
	a.conf.BridgeMappings, a.conf.TunnelTypes = map[string]string{"physnet1": "br-ex"}, []string{"vxlan", "gre", "geneve"}
	a.conf.TunnelingIP, a.conf.Bridge, a.conf.DatapathType = ip.String(), "br-int", "netdev"
	a.Configurations, _ = json.Marshal(fields{
		"bridge_mappings": a.conf.BridgeMappings, "tunnel_types": a.conf.TunnelTypes, "tunneling_ip": a.conf.TunnelingIP,
		"integration_bridge": a.conf.Bridge, "datapath_type": a.conf.DatapathType,
	})
	s.agents[host] = a
}

// Churn changes the population so many times a second, until ctx ends: a member comes to a remote group, another one leaves,
// a rule comes to a group of local ports, and goes. It returns how many changes were pushed.
func (s *Region) Churn(ctx context.Context, of *Populated, perSecond float64) (pushed int, err error) {
	if len(of.Groups) == 0 || perSecond <= 0 {
		return 0, errors.New("no groups to change, or no rate")
	}
	tick := time.NewTicker(time.Duration(float64(time.Second) / perSecond))
	defer tick.Stop()
	var came []*Port
	var rules []*Rule
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return pushed, nil
		case <-tick.C:
		}
		i := n / 4 % len(of.Groups)
		switch n % 4 {
		case 0:
			var p *Port
			if p, err = s.AddMember(ctx, of, i); err == nil {
				came = append(came, p)
			}
		case 1:
			low := 1024 + n%60000
			var r *Rule
			r, err = s.CreateRule(ctx, RuleSpec{GroupID: of.Groups[i], Direction: "ingress", Protocol: "tcp", PortMin: &low, PortMax: &low})
			if err == nil {
				rules = append(rules, r)
			}
		case 2:
			err = s.DeletePort(ctx, came[0].ID)
			came = came[1:]
		case 3:
			err = s.DeleteRule(ctx, rules[0].ID)
			rules = rules[1:]
		}
		if ctx.Err() != nil {
			return pushed, nil
		}
		if err != nil {
			return pushed, fmt.Errorf("changing the population: %w", err)
		}
		pushed++
	}
}
