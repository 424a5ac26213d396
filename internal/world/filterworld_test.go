// SPDX-License-Identifier: Apache-2.0

package world

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
)

// filtering is a world with filters and ports p1 to pn plugged in, about which nothing has been told.
func filtering(n int) *World {
	cfg := config()
	cfg.Filter, cfg.FilterTables, cfg.FailClosed = true, true, true
	w := New(cfg)
	batch := &ovsdb.Batch{Seq: 1, Kind: ovsdb.Initial}
	br := &ovsdb.Bridge{UUID: "b", Name: "br-int"}
	for i := 1; i <= n; i++ {
		number, name := i, fmt.Sprint("tap", i)
		port, iface := ovsdb.UUID("port"+name), ovsdb.UUID(name)
		br.Ports = append(br.Ports, port)
		batch.Ports = append(batch.Ports, ovsdb.Diff[ovsdb.Port]{New: &ovsdb.Port{UUID: port, Name: name, Interfaces: []ovsdb.UUID{iface}}})
		batch.Interfaces = append(batch.Interfaces, ovsdb.Diff[ovsdb.Interface]{New: &ovsdb.Interface{
			UUID: iface, Name: name, OFPort: &number,
			ExternalIDs: map[string]string{"iface-id": fmt.Sprint("p", i), "attached-mac": fmt.Sprintf("fa:16:3e:00:00:%02x", i)},
		}})
	}
	batch.Bridges = []ovsdb.Diff[ovsdb.Bridge]{{New: br}}
	w.Switch(batch)
	w.Resolve()
	return w
}

// grouped is port p<n> in groups.
func grouped(n int, revision int64, groups ...string) neutron.Port {
	return bound(func(p *neutron.Port) {
		p.ID, p.Revision, p.SecurityGroupIDs = fmt.Sprint("p", n), revision, groups
		p.FixedIPs = neutron.List[neutron.FixedIP]{{IP: netip.AddrFrom4([4]byte{10, 0, 0, byte(n)})}}
	})
}

func rule(id, group, text string) neutron.SecurityGroupRule {
	r := neutron.SecurityGroupRule{ID: id, SecurityGroupID: group, Direction: "ingress", EtherType: "IPv4"}
	for _, word := range strings.Fields(text) {
		key, value, _ := strings.Cut(word, "=")
		var low, high int
		prefix, _ := neutron.ParsePrefix(value)
		switch key {
		case "egress":
			r.Direction = key
		case "IPv6":
			r.EtherType = key
		case "remote":
			r.RemoteGroupID = value
		case "addresses":
			r.RemoteAddressGroupID = value
		case "prefix":
			r.RemoteIPPrefix = &prefix
		case "normal":
			r.NormalizedCIDR = &prefix
		case "ports":
			_, _ = fmt.Sscanf(value, "%d-%d", &low, &high)
			r.PortRangeMin, r.PortRangeMax = &low, &high
		case "type":
			_, _ = fmt.Sscan(value, &low)
			r.PortRangeMin = &low
		default:
			r.Protocol = word
		}
	}
	return r
}

// server answers the questions of a world.
type server struct {
	groups    map[string][]neutron.SecurityGroupRule
	members   map[string]neutron.Member
	addresses map[string]neutron.AddressGroup
}

// answers settles a world and answers everything that it asks, until it asks no more.
func (s *server) answers(w *World) {
	for {
		w.Resolve()
		items := w.MissingItems()
		known := slices.ContainsFunc(items, func(i Item) bool {
			_, group := s.groups[i.ID]
			_, addresses := s.addresses[i.ID]
			return i.Kind == neutron.KindPort || group || addresses
		})
		for _, i := range items {
			s.answer(w, i)
		}
		if !known {
			w.Resolve()
			return
		}
	}
}

func (s *server) answer(w *World, i Item) {
	switch i.Kind {
	case neutron.KindSecurityGroup:
		var found []neutron.SecurityGroup
		if rules, ok := s.groups[i.ID]; ok {
			found = append(found, neutron.SecurityGroup{ID: i.ID, Rules: slices.Clone(rules)})
		}
		w.Groups.Pulled([]Item{i}, found)
	case neutron.KindAddressGroup:
		var found []neutron.AddressGroup
		if g, ok := s.addresses[i.ID]; ok {
			found = append(found, g)
		}
		w.Members.AddressGroupsPulled([]Item{i}, found)
	case neutron.KindPort:
		var found []neutron.Member
		for _, m := range s.members {
			if slices.Contains(m.SecurityGroupIDs, i.ID) {
				found = append(found, m)
			}
		}
		w.Members.Pulled([]Item{i}, found)
	}
}

func member1(id, ip string, revision int64, groups ...string) neutron.Member {
	return neutron.Member{
		ID: id, Revision: revision, MAC: neutron.MAC{2}, SecurityGroupIDs: groups,
		FixedIPs: neutron.List[neutron.FixedIP]{{IP: netip.MustParseAddr(ip)}},
	}
}

// pushOf is a push of one object.
func pushOf(t *testing.T, kind neutron.Kind, event neutron.Event, data any) *neutron.Push {
	t.Helper()
	b, err := json.Marshal(data)
	if err != nil {
		t.Fatal(err)
	}
	return &neutron.Push{Kind: kind, Event: event, Objects: []neutron.Primitive{{Name: string(kind), Data: b}}}
}

func send(t *testing.T, w *World, kind neutron.Kind, event neutron.Event, data any) {
	t.Helper()
	if err := w.Push(pushOf(t, kind, event, data), time.Now()); err != nil {
		t.Fatal(err)
	}
}

// wirePort is a port as it is pushed.
func wirePort(id string, revision int, ip string, groups ...string) map[string]any {
	return map[string]any{
		"id": id, "revision_number": revision, "mac_address": "02:00:00:00:00:00", "security_group_ids": groups,
		"fixed_ips": []any{map[string]any{"versioned_object.data": map[string]any{"ip_address": ip}}},
	}
}

func peer(s string) Peer { return Peer{Prefix: netip.MustParsePrefix(s)} }

func names(objects []Object) string {
	var out []string
	for _, o := range objects {
		out = append(out, o.String())
	}
	return strings.Join(out, "; ")
}

var segment7 = SegmentKey{"n1", 7}
