// SPDX-License-Identifier: Apache-2.0

package hostmap

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/patchbay-sdn/patchbay/internal/inspect"
)

// hues is how many colours the style has for the links of networks.
const hues = 6

// drawLanes sorts networks by the way in which they leave the host, so that no two lines cross: by tunnels, by each physical
// bridge, not at all. What is in no network comes first: mostly it waits or failed.
func (p *page) drawLanes(h Host) {
	ways, rest := p.drawBands(h)
	if len(rest) > 0 {
		p.Lanes = append(p.Lanes, lane{Bands: rest, Level: fine})
	}
	bridges := slices.Clone(h.Bridges)
	slices.SortFunc(bridges, func(a, b inspect.Bridge) int {
		return cmp.Or(-cmp.Compare(a.Role, b.Role), compareNames(a.Physical, b.Physical), compareNames(a.Name, b.Name))
	})
	for _, doc := range bridges {
		switch doc.Role {
		case "tunnel":
			p.Lanes = append(p.Lanes, p.tunnelLane(newBridge(doc), ways["tunnel"]))
			delete(ways, "tunnel")
		case "physical":
			way := "physical " + doc.Physical
			p.Lanes = append(p.Lanes, physicalLane(newBridge(doc), doc.Physical, ways[way]))
			delete(ways, way)
		}
	}
	if bands := ways["local"]; bands != nil {
		p.Lanes = append(p.Lanes, lane{Bands: bands, Level: fine, Stays: "Local networks do not leave this host."})
		delete(ways, "local")
	}
	if bands := ways["tunnel"]; bands != nil || len(h.Tunnels) > 0 && !slices.ContainsFunc(bridges, func(b inspect.Bridge) bool { return b.Role == "tunnel" }) {
		p.Lanes = append(p.Lanes, p.tunnelLane(missingBridge("tunnel"), bands))
		delete(ways, "tunnel")
	}
	for _, way := range slices.Sorted(maps.Keys(ways)) {
		p.Lanes = append(p.Lanes, physicalLane(missingBridge("physical"), way[len("physical "):], ways[way]))
	}
	hue := 0
	for _, l := range p.Lanes {
		for _, b := range l.Bands {
			if !b.Linked {
				continue
			}
			b.Hue = hue % hues
			hue++
			if b.ID != "" {
				p.Networks = append(p.Networks, b)
			}
		}
	}
}

func (p *page) tunnelLane(b bridge, bands []*band) lane {
	l := lane{Bands: bands, Bridge: &b, Level: b.Level, Far: p.Tunnels, Size: sizeOf(len(p.Tunnels), fanMost, 60)}
	up := 0
	for _, f := range l.Far {
		if f.Level == fine {
			up++
		}
	}
	switch {
	case len(l.Far) == 0:
		l.Reach = "no tunnels"
	case up == len(l.Far):
		l.Reach = count(up, "tunnel") + ", all up"
		if up == 1 {
			l.Reach = "1 tunnel, up"
		}
	default:
		l.Reach = fmt.Sprintf("%s of %s up", number(up), count(len(l.Far), "tunnel"))
	}
	switch {
	case len(l.Far) == 0: // nothing to draw a line to
	case l.Size == "large":
		b.Lines = append(b.Lines, l.Reach)
		l.Reach, l.Fan = "", newFan(l.Far)
	default:
		l.Fan = newFan(l.Far[len(l.Far)-1:]) // one line to the box of all, as the best of them is
	}
	return l
}

func physicalLane(b bridge, physical string, bands []*band) lane {
	end := far{Name: cmp.Or(physical, "(no name)"), Detail: "physical network", Level: b.Level, Word: b.Word, Tip: dots("physical network "+physical, "by "+b.Name)}
	return lane{Bands: bands, Bridge: &b, Level: b.Level, Far: []far{end}, Size: "large", Fan: newFan([]far{end})}
}

// drawBands makes a band of each network, by the way in which it leaves; and those that leave in no way that is known.
func (p *page) drawBands(h Host) (ways map[string][]*band, rest []*band) {
	ways = map[string][]*band{}
	byID := make(map[string]*port, len(p.Ports))
	for _, x := range p.Ports {
		byID[x.ID] = x
	}
	placed := map[*port]bool{}
	for _, n := range h.Networks {
		b := newBand(n)
		for _, id := range n.Ports {
			if x := byID[id]; x != nil && !placed[x] {
				placed[x] = true
				b.Ports = append(b.Ports, x)
			}
		}
		b.finish()
		way := wayOf(n)
		ways[way] = append(ways[way], b)
	}
	for way := range ways {
		slices.SortFunc(ways[way], compareBands)
	}
	// What is left has no network here: by the network it names, or by its state.
	others := map[string]*band{}
	for _, x := range p.Ports {
		if placed[x] {
			continue
		}
		name := "not in a network"
		if x.Level == aside {
			name = x.Word
		}
		if others[name] == nil {
			others[name] = &band{Name: name}
		}
		others[name].Ports = append(others[name].Ports, x)
	}
	for _, b := range others {
		b.finish()
		b.Tip = lines(b.Name, b.Count)
		rest = append(rest, b)
	}
	slices.SortFunc(rest, compareBands)
	return ways, rest
}

func wayOf(n inspect.Network) string {
	switch n.Type {
	case "vlan", "flat":
		return "physical " + n.Physical
	case "local":
		return "local"
	}
	return "tunnel"
}

func newBand(n inspect.Network) *band {
	b := &band{Name: n.Type, ID: n.ID, Linked: true}
	if n.Number != 0 {
		b.Name = fmt.Sprintf("%s %d", n.Type, n.Number)
	}
	if n.VLAN != 0 {
		b.VLAN = fmt.Sprintf("%d", n.VLAN)
	}
	var mtu, stations string
	if n.MTU != 0 {
		mtu = fmt.Sprintf("MTU %d", n.MTU)
	}
	if n.Stations != 0 {
		stations = count(n.Stations, "station") + " behind them"
	}
	if wayOf(n) == "tunnel" {
		b.Remote = count(len(n.Endpoints), "tunnel")
	}
	b.Detail = short(n.ID)
	b.Tip = lines(
		dots(b.Name, labelled("physical network", n.Physical)),
		labelled("network", n.ID),
		dots(labelled("local VLAN", b.VLAN), mtu),
		dots(b.Remote, stations),
	)
	return b
}

// finish orders the ports of a band, the most urgent first, and sums them up.
func (b *band) finish() {
	slices.SortFunc(b.Ports, comparePorts)
	b.Level = fine
	for _, x := range b.Ports {
		if x.Level == bad || x.Level == wait {
			b.Level = worse(b.Level, x.Level)
		}
	}
	b.Count = count(len(b.Ports), "port")
	b.Tip = lines(b.Tip, b.Count)
}

// compareBands puts first what needs attention, then what is large.
func compareBands(a, b *band) int {
	return cmp.Or(urgency(a.Level)-urgency(b.Level), len(b.Ports)-len(a.Ports), compareNames(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
}

// fan is the lines from a bridge to what is behind it, drawn to the height of its rows.
type fan struct {
	Height int
	Lines  []fanLine
}

type fanLine struct{ Path, Level string }

func newFan(ends []far) *fan {
	const width, top = 56, farRow / 2
	f := &fan{Height: max(len(ends), 1) * farRow}
	for i, e := range ends {
		y := i*farRow + farRow/2
		// All leave where the bridge's own link arrives, and bend once.
		f.Lines = append(f.Lines, fanLine{
			Path: fmt.Sprintf("M0 %d C%d %d %d %d %d %d", top, width/2, top, width/3, y, width, y), Level: e.Level,
		})
	}
	slices.Reverse(f.Lines) // the urgent ones are drawn last, on top
	return f
}
