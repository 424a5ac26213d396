// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"flag"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/script"
	"github.com/patchbay-sdn/patchbay/internal/world"
	of "github.com/patchbay-sdn/patchbay/openflow"
)

var update = flag.Bool("update", false, "write what the scripts in testdata print")

// TestScripts plays the scripts in testdata. Lines of a script build a cloud, lines that begin with "$ " ask what became of
// it, and what follows them is the answer. testdata/README says what can be written.
func TestScripts(t *testing.T) {
	script.Run(t, "testdata/*.script", *update, func(t *testing.T) script.Player { return newScripted(t) })
}

// scripted is a cloud that a script builds.
type scripted struct {
	t      *testing.T
	cfg    world.Config
	c      *cloud // nil while options may still come
	group  *neutron.SecurityGroup
	out    strings.Builder
	closed bool
	card   bool
}

func newScripted(t *testing.T) *scripted { return &scripted{t: t, cfg: filterConfig()} }

// play plays a script and returns what it has built.
func play(t *testing.T, text string) *scripted {
	s := newScripted(t)
	if _, err := script.Play(text, s); err != nil {
		t.Fatal(err)
	}
	return s
}

// Ask lets the cloud come to rest first.
func (s *scripted) Ask(words []string) []string {
	s.cloud().converge(s.t)
	s.out.Reset()
	s.ask(words)
	return strings.Split(strings.TrimSuffix(s.out.String(), "\n"), "\n")
}

func (s *scripted) cloud() *cloud {
	if s.c == nil {
		s.c = newCloud(s.cfg)
		if s.card {
			s.c.apply(&ovsdb.Batch{Kind: ovsdb.Update, OpenVSwitch: []ovsdb.Diff[ovsdb.OpenVSwitch]{{
				Old: s.c.w.View.Root(), New: &ovsdb.OpenVSwitch{UUID: "root", OtherConfig: map[string]string{"hw-offload": "true"}},
			}}})
		}
		if s.closed {
			s.c.w.Close()
		}
	}
	return s.c
}

var commands = regexp.MustCompile(`^(option|network|addresses|group|rule|port|interface) [^ :]+( |$)`)

// Commands implements script.Player.
func (s *scripted) Commands() *regexp.Regexp { return commands }

// Tell takes a line of a script.
func (s *scripted) Tell(f []string) {
	switch f[0] {
	case "option":
		s.option(f[1:])
	case "network":
		n := neutron.Segment{NetworkType: f[2]}
		if len(f) > 3 {
			n.SegmentationID = s.number(f[3])
		}
		if f[2] == "vlan" || f[2] == "flat" {
			n.PhysicalNetwork = "physnet1"
		}
		s.cloud().networks[f[1]] = n
	case "addresses":
		g := &neutron.AddressGroup{ID: f[1]}
		for _, p := range f[2:] {
			g.Addresses = append(g.Addresses, neutron.Address{Prefix: s.prefix(p)})
		}
		s.cloud().addresses[f[1]] = g
	case "group":
		s.group = &neutron.SecurityGroup{ID: f[1]}
		s.cloud().groups[f[1]] = s.group
	case "rule":
		s.rule(f[1:])
	case "port":
		s.port(f[1:])
	case "interface":
		s.cloud().plugInto(f[1], *s.number(f[2]), nil)
	default:
		s.t.Fatalf("what is %q?", f[0])
	}
}

func (s *scripted) option(f []string) {
	if s.c != nil {
		s.t.Fatal("options come first")
	}
	switch f[0] {
	case "explicitly_egress_direct":
		s.cfg.EgressDirect = true
	case "no_firewall":
		s.cfg.Filter, s.cfg.FilterTables = false, false
	case "iptables_hybrid":
		s.cfg.FilterTables, s.cfg.Hybrid = false, true
	case "no_security_groups":
		s.cfg.Filter = false
	case "fail_closed":
		s.cfg.FailClosed = true
		s.closed = len(f) > 1 && f[1] == "now"
	case "permitted_ethertypes":
		for _, e := range f[1:] {
			n, err := strconv.ParseUint(e, 0, 16)
			if err != nil {
				s.t.Fatal(err)
			}
			s.cfg.PermittedEtherTypes = append(s.cfg.PermittedEtherTypes, uint16(n))
		}
	case "hw_offload":
		s.card = true
	default:
		s.t.Fatalf("what is option %q?", f[0])
	}
}

func (s *scripted) number(text string) *int {
	n, err := strconv.Atoi(text)
	if err != nil {
		s.t.Fatal(err)
	}
	return &n
}

func (s *scripted) prefix(text string) neutron.Prefix {
	p, err := neutron.ParsePrefix(text)
	if err != nil {
		s.t.Fatal(err)
	}
	return p
}

// rule reads "ID ingress|egress ipv4|ipv6 [protocol [80 | 80-90 | type T [code C]]] [prefix P | members G | addresses A]".
func (s *scripted) rule(f []string) {
	r := neutron.SecurityGroupRule{ID: f[0], SecurityGroupID: s.group.ID, Direction: f[1], EtherType: map[string]string{"ipv4": "IPv4", "ipv6": "IPv6"}[f[2]]}
	for f = f[3:]; len(f) > 0; f = f[1:] {
		next := func() string { f = f[1:]; return f[0] }
		switch lo, hi, isRange := strings.Cut(f[0], "-"); {
		case f[0] == "prefix":
			p := s.prefix(next())
			r.RemoteIPPrefix = &p
		case f[0] == "members":
			r.RemoteGroupID = next()
		case f[0] == "addresses":
			r.RemoteAddressGroupID = next()
		case f[0] == "type":
			r.PortRangeMin = s.number(next())
		case f[0] == "code":
			r.PortRangeMax = s.number(next())
		case r.Protocol == "":
			r.Protocol = f[0]
		case isRange:
			r.PortRangeMin, r.PortRangeMax = s.number(lo), s.number(hi)
		default:
			r.PortRangeMin, r.PortRangeMax = s.number(f[0]), s.number(f[0])
		}
	}
	s.group.Rules = append(s.group.Rules, r)
}

// port reads "NAME NUMBER|elsewhere NETWORK [IP…] [group G] [pair MAC PREFIX] [owner O] [unprotected]". The name is a letter,
// which is the end of its MAC.
func (s *scripted) port(f []string) {
	p := &neutron.Port{ID: f[0], DeviceOwner: "compute:nova"}
	var err error
	if p.MAC, err = neutron.ParseMAC("fa:16:3e:00:00:0" + strings.ToLower(f[0])); err != nil {
		s.t.Fatal(err)
	}
	c := s.cloud()
	c.bind(p, f[2])
	number := f[1]
	for f = f[3:]; len(f) > 0; f = f[1:] {
		next := func() string { f = f[1:]; return f[0] }
		switch f[0] {
		case "group":
			p.SecurityGroupIDs = append(p.SecurityGroupIDs, next())
		case "owner":
			p.DeviceOwner = next()
		case "unprotected":
			p.Security.Value = &neutron.Security{}
		case "pair":
			var pair neutron.AddressPair
			if pair.MAC, err = neutron.ParseMAC(next()); err != nil {
				s.t.Fatal(err)
			}
			pair.IP = s.prefix(next())
			p.AllowedAddressPairs = append(p.AllowedAddressPairs, pair)
		default:
			ip, err := netip.ParseAddr(f[0])
			if err != nil {
				s.t.Fatal(err)
			}
			p.FixedIPs = append(p.FixedIPs, neutron.FixedIP{IP: ip})
		}
	}
	c.ports[p.ID] = p
	if number != "elsewhere" {
		c.plugInto("tap"+p.ID, *s.number(number), map[string]string{"iface-id": p.ID, "attached-mac": p.MAC.String()})
	}
}

// ask answers "flows OF [TABLE…]", where OF is a port's name, "bridge", "peers" or "interfaces"; "rules NAME [TABLE…]", which
// is the flows of its rules only; and "port NAME".
func (s *scripted) ask(f []string) {
	if f[0] == "port" {
		s.state(f[1])
		return
	}
	if f[0] == "rules" && len(f) == 2 {
		f = append(f, "72", "82")
	}
	kinds := map[string]string{"bridge": "bridge ", "peers": "peer ", "interfaces": "interface "}
	flows := s.c.all(s.t, func(o world.Object) bool {
		if kind := kinds[f[1]]; kind != "" {
			return strings.HasPrefix(o.String(), kind)
		}
		return o == world.PortObject(f[1])
	})
	keys := make([]of.Key, 0, len(flows))
	for k := range flows {
		if f[0] == "rules" && k.Priority() < conjunctive {
			continue
		}
		if len(f) == 2 || slices.Contains(f[2:], strconv.Itoa(int(k.Table()))) {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, of.Key.Compare)
	names := s.c.conjunctionNames()
	reason := ""
	for _, k := range keys {
		flow, err := flows[k].Entry.Flow()
		if err != nil {
			s.t.Fatal(err)
		}
		if flow.Cookie != Cookie {
			s.t.Errorf("%s has not our cookie", flow.String())
		}
		// What reads well must be the flow that it reads as: types of ICMP and ICMPv6 have one name.
		if read, err := of.ParseFlow(flow.String()); err != nil {
			s.t.Error(err)
		} else if e, err := read.Entry(); err != nil || e != flows[k].Entry {
			s.t.Errorf("%s reads as %s: %v", flow.String(), e, err)
		}
		if flows[k].Reason != reason {
			reason = flows[k].Reason
			s.out.WriteString("   # " + reason + "\n")
		}
		match := flow.Match.String()
		if match == "" {
			match = "any"
		}
		line := fmt.Sprintf("%d %5d  %s  -> %s", k.Table(), k.Priority(), match, of.AppendActions(nil, flow.Actions))
		s.out.WriteString(rename(line, names) + "\n")
	}
	if len(keys) == 0 {
		s.out.WriteString("none\n")
	}
}

// state tells what was decided about a port, and in which order its rows and flows come.
func (s *scripted) state(id string) {
	p := s.c.w.Port(id)
	fmt.Fprintf(&s.out, "%s: %s\n", p.Wiring.State, p.Wiring.Reason)
	want := Compile(s.c.w, s.c.s, world.PortObject(id))
	rows := func(when string, list []ovsdb.Spec) {
		for _, r := range list {
			if d := Describe(r, s.c.w.View); d.Tag != nil {
				fmt.Fprintf(&s.out, "tag %d %s the flows\n", *d.Tag, when)
			}
		}
	}
	rows("before", want.Rows)
	rows("until", want.Until)
	rows("after", want.After)
}
