// SPDX-License-Identifier: Apache-2.0

package hostmap

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/patchbay-sdn/patchbay/internal/inspect"
)

// Levels are how much attention something needs, the most urgent first. They are the classes of the style.
const (
	bad   = "bad"   // nothing passes, and somebody has to do something
	wait  = "wait"  // not done yet
	aside = "aside" // not this host's to wire
	off   = "off"   // switched off on purpose
	fine  = "fine"
)

func urgency(level string) int { return slices.Index([]string{bad, wait, aside, off, fine}, level) }

func worse(a, b string) string {
	if urgency(b) < urgency(a) {
		return b
	}
	return a
}

// page is everything the template needs, in the order in which it is shown.
type page struct {
	Host     string
	Headline string
	Taken    string
	Level    string // of the whole
	Verdict  string
	Facts    []string
	Peers    []peer
	Shares   []share
	Problems []problem
	Size     string // of tiles: large, medium, small
	Bridge   bridge // the integration bridge
	Lanes    []lane
	Ports    []*port
	Networks []*band
	Tunnels  []far
	Errors   []inspect.Event
}

// peer is something the agent talks to.
type peer struct{ Name, Level, Word, Tip string }

// share is how many ports are in a state.
type share struct {
	Level, Word, Count string
	X, Width           string // of the bar, in percent
	parts              int
}

// problem is something wrong, with the reason, and the ports it concerns.
type problem struct {
	Level, What, Reason string
	Ports               []*port
	More                string
}

// lane is what leaves the integration bridge by one way.
type lane struct {
	Bands  []*band
	Bridge *bridge // none: it stays on this host
	Stays  string  // why it does not leave
	Reach  string  // what is behind the bridge
	Fan    *fan
	Far    []far
	Size   string // of Far
	Level  string // of the link to the bridge
}

// band is a network of this host with its ports.
type band struct {
	Name, ID, Detail string
	VLAN             string
	Hue              int
	Level            string // the worst of its ports
	Count            string
	Ports            []*port
	Linked           bool // to the integration bridge
	Tip              string
	Remote           string // tunnels that carry it
}

type bridge struct {
	Name, Role, Level, Word string
	Lines                   []string
	Tip                     string
}

// far is the other end of a tunnel, or a physical network.
type far struct{ Name, Type, Detail, Level, Word, Error, Tip string }

// port is a port as it is shown.
type port struct {
	inspect.Port
	Anchor             string
	Label, Level, Word string
	Line, Why, Tip     string // addresses; the reason; everything
	Mark               string // the class of what is not a VM's port
	From, To, Dropped  string
}

// Few enough hosts are a fan of lines; more are chips.
const (
	fanMost = 14
	farRow  = 30 // the height of a host's row in the style, in pixels
)

// sizeOf is how large tiles are, so that the picture of 1,000 ports is not much longer than that of 100.
func sizeOf(n, large, medium int) string {
	switch {
	case n <= large:
		return "large"
	case n <= medium:
		return "medium"
	}
	return "small"
}

func newPage(h Host) page {
	p := page{
		Host: cmp.Or(h.Status.Host, "this host"),
		Size: sizeOf(len(h.Ports), 24, 260),
	}
	groups := map[string]string{}
	for _, g := range h.Groups {
		groups[g.ID] = g.Name
	}
	for _, doc := range h.Ports {
		p.Ports = append(p.Ports, newPort(doc, groups))
	}
	slices.SortFunc(p.Ports, comparePorts)
	for i, x := range p.Ports {
		x.Anchor = "p" + strconv.Itoa(i+1)
	}
	for _, t := range h.Tunnels {
		p.Tunnels = append(p.Tunnels, newFar(t))
	}
	slices.SortFunc(p.Tunnels, func(a, b far) int {
		return cmp.Or(urgency(a.Level)-urgency(b.Level), compareNames(a.Name, b.Name), cmp.Compare(a.Tip, b.Tip))
	})
	p.Bridge = integration(h.Bridges)
	p.drawLanes(h)
	p.summarise(h)
	p.findProblems(h)
	p.judge(h.Status.InSync)
	return p
}

func comparePorts(a, b *port) int {
	return cmp.Or(urgency(a.Level)-urgency(b.Level), cmp.Compare(a.State, b.State),
		compareNames(a.Label, b.Label), cmp.Compare(a.ID, b.ID))
}

// newPort decides how a port is shown.
func newPort(doc inspect.Port, groups map[string]string) *port {
	x := &port{Port: doc, Word: doc.State, Why: doc.Reason}
	switch doc.State {
	case "wired":
		x.Level = fine
		if !doc.Applied {
			x.Level, x.Word, x.Why = wait, "settling", "its flows and rows are not all in place yet"
		}
	case "down":
		x.Level = off
	case "moved", "elsewhere", "ancillary":
		x.Level = aside
	case "waiting":
		x.Level = wait
	default:
		x.Level = bad
	}
	x.Label = cmp.Or(doc.Name, doc.Interface, short(doc.ID), "(no name)")
	x.Line = strings.Join(doc.Addresses, ", ")
	switch doc.Role {
	case "":
	case "trunk parent", "sub-port":
		x.Mark = "trunk"
	case "DHCP":
		x.Mark = "service"
	default:
		x.Mark = "router"
	}
	if c := doc.Counters; c != nil {
		x.From, x.To, x.Dropped = size(c.RxBytes), size(c.TxBytes), number(c.RxDropped+c.TxDropped)
	}
	x.Tip = portTip(x, groups)
	return x
}

// portTip tells everything about a port, the most important first.
func portTip(x *port, groups map[string]string) string {
	names := make([]string, len(x.Groups))
	for i, id := range x.Groups {
		names[i] = cmp.Or(groups[id], short(id))
	}
	var vlan, ofport, flows, took, security string
	if x.VLAN != 0 {
		vlan = fmt.Sprintf("local VLAN %d", x.VLAN)
	}
	if x.OFPort != 0 {
		ofport = fmt.Sprintf("OpenFlow port %d", x.OFPort)
	}
	if x.Flows != 0 {
		flows = count(x.Flows, "flow")
	}
	if t := x.Timeline; x.Level == fine && !t.Plugged.IsZero() && t.Applied.After(t.Plugged) {
		took = fmt.Sprintf("wired %.2g s after it was plugged in", t.Applied.Sub(t.Plugged).Seconds())
	}
	switch {
	case x.Filtered:
		security = dots("filtered", labelled("groups", strings.Join(names, ", ")))
	case x.State == "wired" && !x.Secured:
		security = "port security is off: nothing is filtered"
	}
	return lines(
		x.Label+" is "+x.Word+labelled(":", x.Why),
		dots(x.Line, x.MAC),
		dots(x.Segment, labelled("network", short(x.Network)), vlan),
		dots(x.Interface, ofport, flows, x.Role, x.Owner),
		security,
		lines(x.Notes...),
		traffic(x.Counters, "sent", "received"),
		dots(labelled("the server says", x.Status), labelled("reported", x.Reported), took),
		labelled("port", x.ID),
	)
}

// newFar shows the other end of a tunnel.
func newFar(t inspect.Tunnel) far {
	f := far{
		Name: cmp.Or(t.Remote, t.Name), Level: fine, Word: t.State, Error: t.Error,
		Type: t.Type, Detail: count(len(t.Networks), "network"),
	}
	switch t.State {
	case "up":
	case "missing":
		f.Level = wait
	default:
		f.Level = bad
	}
	var ofport string
	if t.OFPort != 0 {
		ofport = fmt.Sprintf("OpenFlow port %d", t.OFPort)
	}
	f.Tip = lines(fmt.Sprintf("tunnel to %s is %s", f.Name, t.State)+labelled(":", t.Error), dots(f.Type, f.Detail), dots(t.Name, ofport), traffic(t.Counters, "from there", "to there"))
	return f
}

// newBridge shows a bridge.
func newBridge(doc inspect.Bridge) bridge {
	b := bridge{Name: doc.Name, Role: doc.Role, Level: fine, Word: "in order", Lines: []string{count(doc.Present, "flow")}}
	switch {
	case !doc.Connected:
		b.Level, b.Word = bad, "not connected"
	case doc.Pending > 0:
		b.Level, b.Word = wait, number(doc.Pending)+" pending"
	}
	if doc.Foreign > 0 {
		b.Lines = append(b.Lines, number(doc.Foreign)+" foreign")
	}
	if doc.Repaired > 0 {
		b.Lines = append(b.Lines, number(doc.Repaired)+" repaired")
	}
	b.Tip = lines(
		dots(doc.Name, b.Word)+labelled(":", doc.Error),
		fmt.Sprintf("%s wanted, %s present, %s pending", number(doc.Wanted), number(doc.Present), number(doc.Pending)),
		fmt.Sprintf("%s foreign, %s repaired", number(doc.Foreign), number(doc.Repaired)),
		labelled("datapath", doc.DatapathID),
	)
	return b
}

// missingBridge stands where the documents name no bridge.
func missingBridge(role string) bridge {
	return bridge{Name: "no " + role + " bridge", Role: role, Level: bad, Word: "missing", Tip: "the agent programs no " + role + " bridge"}
}

func integration(all []inspect.Bridge) bridge {
	i := slices.IndexFunc(all, func(b inspect.Bridge) bool { return b.Role == "integration" })
	if i < 0 {
		return missingBridge("integration")
	}
	return newBridge(all[i])
}
