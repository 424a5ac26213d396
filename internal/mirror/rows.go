// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/pipeline"
	"github.com/patchbay-sdn/patchbay/internal/world"
	of "github.com/patchbay-sdn/patchbay/openflow"
)

const (
	entry    = 0   // table
	priority = 300 // before all other flows for packets of a port
)

// copying is a mirror of the switch: packets of ports go to a port, in a copy.
type copying struct {
	name     string   // of the mirror
	src, dst []string // names of ports whose packets are copied as they come in, and as they go out
	port     string   // name of the port that copies go to
	// Of a tap service: copies leave by port, which is a patch, come in again by its other end back, and go to the port of the tap service from there. A port that
	// copies go to directly would be lost for everything else: the switch would drop what it sends, and not flood packets to it.
	back string
	to   *world.Port
	// Of a tap mirror: a tunnel.
	kind    string
	options map[string]string
}

// short makes a name of a prefix and the beginning of an id, which tells the taps of a host apart. The kernel takes 15 letters.
func short(prefix, id string) string { return prefix + id[:min(8, 15-len(prefix), len(id))] }

// wanted returns the mirrors of a tap service or a tap mirror. Those of a tap service have no ports before the server has confirmed a tap flow.
func (m *Mirrors) wanted(id string) []copying {
	if t := m.Tunnels[id]; t != nil {
		return m.wantedTunnels(id, t)
	}
	flows := m.flowsTo(id)
	if len(flows) == 0 {
		return nil
	}
	c := copying{name: short("ts_", id), port: short("ts_out_", id), back: short("ts_in_", id), to: m.plugged(m.Flows[flows[0]].Port)}
	for _, f := range flows {
		flow := m.Flows[f]
		if flow.Told != neutron.TapActive {
			continue
		}
		port := m.plugged(flow.Source).VIF.Name
		if flow.Direction != in {
			c.src = append(c.src, port)
		}
		if flow.Direction != out {
			c.dst = append(c.dst, port)
		}
	}
	return []copying{c}
}

// wantedTunnels returns the mirrors of a tap mirror: each direction has a tunnel of its own, as the server gives each an id.
func (m *Mirrors) wantedTunnels(id string, t *tunnel) []copying {
	p := m.plugged(t.Port)
	if p == nil || refusesMirror(m.w.Config.TunnelTypes, t) != "" {
		return nil
	}
	var all []copying
	for _, d := range slices.Sorted(maps.Keys(t.Directions)) {
		number := fmt.Sprint(t.Directions[d])
		c := copying{name: short("tm_"+strings.ToLower(d)+"_", id), kind: "gre", options: map[string]string{"remote_ip": t.Remote, "key": number}}
		c.port = c.name
		if t.Type == "erspanv1" {
			// Open vSwitch reads the index as hexadecimal, and the server gives the same number for both.
			c.kind, c.options["erspan_ver"], c.options["erspan_idx"] = "erspan", "1", number
		}
		if remote, err := netip.ParseAddr(t.Remote); err == nil && remote.Is6() {
			c.kind = "ip6" + c.kind
		}
		if d != in {
			c.src = []string{p.VIF.Name}
		}
		if d != out {
			c.dst = []string{p.VIF.Name}
		}
		all = append(all, c)
	}
	return all
}

// Compile implements extension.Extension.
func (m *Mirrors) Compile(o world.Object, want *pipeline.Want) {
	if id, ok := own.Key(o); ok {
		m.compile(id, want)
	}
}

// compile adds what is wanted for a tap service or a tap mirror, and returns whether that is all there is to want: a port gets its number when it is there.
func (m *Mirrors) compile(id string, want *pipeline.Want) (whole bool) {
	br, made := m.w.Config.IntegrationBridge, 0
	whole = true
	for _, c := range m.wanted(id) {
		if !m.room[c.name] || len(c.src)+len(c.dst) == 0 {
			continue
		}
		made++
		if !c.compile(br, id, m.w, want) {
			whole = false
		}
	}
	if made == 0 && (m.doomed[id] || m.isKnown(id)) {
		want.Rows = append(want.Rows, ovsdb.AbsentMarked{Bridge: br, Key: mark, Value: id})
	}
	return whole
}

// compile adds one mirror: ports that are in no network first, then the flow that says what becomes of what they receive, and then the mirror.
func (c *copying) compile(br, id string, w *world.World, want *pipeline.Want) (whole bool) {
	ids, dead := map[string]string{mark: id}, world.DeadVLAN
	isolated := &ovsdb.VLANs{Tag: dead, Mode: "trunk", Trunks: []int{dead}}
	if c.to != nil {
		want.Rows = append(want.Rows,
			ovsdb.PortSpec{Bridge: br, Name: c.port, Type: "patch", Options: map[string]string{"peer": c.back}, ExternalIDs: ids, Initial: isolated},
			ovsdb.PortSpec{Bridge: br, Name: c.back, Type: "patch", Options: map[string]string{"peer": c.port}, ExternalIDs: ids, Tag: &dead, VLANMode: "trunk", Trunks: []int{dead}})
	} else {
		want.Rows = append(want.Rows, ovsdb.PortSpec{Bridge: br, Name: c.port, Type: c.kind, Options: c.options, ExternalIDs: ids, Initial: isolated})
	}
	port, number, back := w.View.PortByName(c.port), w.OFPort(c.port), w.OFPort(c.back)
	if port == nil || number == 0 || c.to != nil && back == 0 {
		return false
	}
	want.Flow(br, "nothing comes in by a port that copies go to", of.Flow{Table: entry, Priority: priority, Match: of.Match{of.FromPort(number)}})
	if c.to != nil {
		want.Flow(br, "copies of packets go to the port of a tap service", of.Flow{
			Table: entry, Priority: priority, Match: of.Match{of.FromPort(back)}, Actions: []of.Action{of.Output(c.to.VIF.OFPort)},
		})
	}
	want.After = append(want.After,
		ovsdb.AccessSpec{Port: port.UUID, Tag: dead}, // copies have no tag of the host's
		ovsdb.MirrorSpec{Bridge: br, Name: c.name, ExternalIDs: ids, Src: c.src, Dst: c.dst, Output: c.port})
	return true
}

// isComplete says whether the rows of a tap service or a tap mirror are as wanted.
func (m *Mirrors) isComplete(id string) bool {
	var want pipeline.Want
	if !m.compile(id, &want) {
		return false
	}
	tx := ovsdb.DiffRows(m.w.View, slices.Concat(want.Rows, want.After)...)
	_, err := tx.JSON()
	return err == nil && tx.Len() == 0
}
