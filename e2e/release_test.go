// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/inspect"
	"github.com/patchbay-sdn/patchbay/lab"
	"github.com/patchbay-sdn/patchbay/lab/release"
	"github.com/patchbay-sdn/patchbay/openflow"
	"github.com/patchbay-sdn/patchbay/parity"
)

// TestHandover has the Python agent of a release wire filtered VMs on a vxlan and on a vlan network, and hands both hosts to Patchbay and back, twice.
// Packets flow in both directions throughout, on connections that last and on new ones, beside packets that no rule allows. After each hand-over no
// flow of Patchbay is left to the Python agent, local VLANs are what they were, and flows and rows are those that the agent makes on a switch of its
// own. What Patchbay makes on its own differs from what the Python agent makes by nothing but what parity/accepted.md lists.
func TestHandover(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), handoverTime)
	defer cancel()
	start := time.Now()
	patience(t)
	x := &handover{smoke: &smoke{filtered: &filtered{agent: lab.Python, cloud: &cloud{ctx: ctx, round: round{name: "handover"}}}}}
	x.alone, x.left = map[lab.AgentKind][]parity.Snapshot{}, map[lab.AgentKind][]parity.Snapshot{}
	t.Cleanup(func() { x.print(time.Since(start)) })
	x.l = lab.New(t, 2)
	t.Cleanup(x.filtered.close)
	if !x.step(t, "Python agents start", func(t *testing.T) { x.startAgents(t, x.agent) }) || !x.step(t, "VMs are wired", x.prepare) {
		return
	}
	// What it makes port by port depends on their order: it may leave out a member of a remote group on another network.
	x.step(t, "Python agents restarted", func(t *testing.T) {
		x.hand(t, lab.Python)
		x.alone[lab.Python] = x.left[lab.Python]
	})
	for range 2 {
		x.step(t, "handed to Patchbay", func(t *testing.T) { x.hand(t, lab.Patchbay) })
		x.step(t, "handed to the Python agent", func(t *testing.T) { x.hand(t, lab.Python) })
	}
	x.step(t, "Patchbay on switches of its own", x.fromNothing)
	x.step(t, "Patchbay beside the Python agent", x.beside)
}

const (
	handoverTime = 12 * time.Minute
	// atRest is for how long nothing may happen to flows and rows before the Python agent is done with them.
	atRest = 6 * time.Second
)

// handover is the lab with what TestHandover needs.
type handover struct {
	*smoke
	club string // a remote group
	tags []map[string]int
	// alone is what an agent makes on a switch of its own, left what it makes of the other's; one for each host.
	alone, left map[lab.AgentKind][]parity.Snapshot
}

// prepare makes networks, groups and VMs. near and the first of greens let in members of the club.
func (x *handover) prepare(t *testing.T) {
	x.networks(t)
	x.open, x.group, x.club = x.filtered.group(t, "open"), x.filtered.group(t, "door"), x.filtered.group(t, "club")
	x.allow(t, x.open, everything()...)
	for _, version := range []int{4, 6} {
		x.allow(t, x.group, directed(attributes{}, "egress", version), directed(with(ranged("udp", memberPort, memberPort), "remote_group_id", x.club), "ingress", version))
	}
	x.allow(t, x.group, directed(ranged("udp", doorPort, doorPort), "ingress", 4))
	add := func(name string, n *network, number, host int, groups ...string) *vm {
		v := n.add(number, host)
		v.name, v.extra = name, attributes{"security_groups": groups}
		return v
	}
	x.near, x.far = add("near", x.blue, 1, 1, x.group), add("far", x.blue, 2, 2, x.open, x.club)
	x.reds = []*vm{add("red1", x.red, 3, 1, x.open), add("red2", x.red, 4, 2, x.open)}
	green := &network{Network: lab.Network{Name: "green", Type: "vlan", PhysicalNetwork: "physnet1"}}
	if err := x.create(green); err != nil {
		t.Fatal(err)
	}
	x.nets = append(x.nets, green)
	x.greens = []*vm{add("green1", green, 5, 2, x.group), add("green2", green, 6, 1, x.open, x.club)}
	x.newcomer = add("stranger", x.blue, 7, 2, x.open) // is no member
	x.plugPlanned(t)
	x.reached(t)
	x.rests(t)
	for _, h := range x.l.Hosts() {
		x.tags = append(x.tags, x.vlans(t, h))
	}
	x.says("%d VMs", len(x.vms()))
}

// lanes are sent in every hand-over, both ways over both networks.
func (x *handover) lanes() []*lane {
	return x.with(
		x.fresh(x.far, x.near, 4, memberPort, true), x.fresh(x.far, x.near, 6, memberPort, true), x.fresh(x.near, x.far, 4, 7, true), x.door(),
		x.fresh(x.newcomer, x.near, 4, memberPort, false), x.fresh(x.far, x.near, 6, shutPort, false),
		x.to(x.greens[0], x.greens[1], 7, true), x.to(x.greens[1], x.greens[0], memberPort, true),
		x.fresh(x.greens[0], x.greens[1], 4, 7, true), x.fresh(x.greens[1], x.greens[0], 6, memberPort, true), x.fresh(x.greens[1], x.greens[0], 4, shutPort, false),
		x.to(x.reds[0], x.reds[1], 7, true), x.to(x.reds[1], x.reds[0], 7, true),
	)
}

// fresh is a UDP lane of which each packet is a connection of its own.
func (x *handover) fresh(from, to *vm, version int, port uint16, due bool) *lane {
	c, n := conn{from: from, to: to, version: version, proto: protoUDP, port: port}, 0
	return &lane{name: fmt.Sprintf("%s to %s, IPv%d, UDP %d, new connections", from.name, to.name, version, port), from: from, ears: []*vm{to}, due: due, make: func(k token) []byte {
		n++
		c.own = 30000 + uint16(n%freshPorts)
		return c.first(k)
	}}
}

// reached waits until all lanes that are due arrive.
func (x *handover) reached(t *testing.T) {
	t.Helper()
	for _, l := range x.lanes() {
		if l.due {
			x.arrives(t, l, true)
		}
	}
}

// hand gives both hosts to another agent, under packets, and looks at what it makes of them.
func (x *handover) hand(t *testing.T, kind lab.AgentKind) {
	x.during(t, lossless, func() {
		x.agent = kind
		done := x.pythonSays(t, pythonTakenOver, x.l.Hosts()...)
		x.startAgents(t, kind)
		if kind == lab.Python {
			done()
			x.rests(t)
		} else {
			x.inSync(t)
			x.pruned(t)
		}
	}, x.lanes()...)
	x.mine(t, kind)
	for i, h := range x.l.Hosts() {
		if now := x.vlans(t, h); !maps.Equal(x.tags[i], now) {
			t.Errorf("local VLANs of %s were %v and are %v", h.Name(), x.tags[i], now)
		}
	}
	last := x.left[kind]
	x.left[kind] = x.images(t)
	if last != nil {
		x.as(t, "the hand-over before", last, x.left[kind])
	}
	if x.alone[kind] != nil {
		x.as(t, "on a switch of its own", x.alone[kind], x.left[kind])
	}
}

// pruned waits until Patchbay has deleted what nothing wants. It does so when the server can no longer send forwarding entries that were asked for: agents that
// start at the same time may get none, and wait for 30 s.
func (x *handover) pruned(t *testing.T) {
	t.Helper()
	for host := range x.l.Hosts() {
		var s inspect.Status
		if !x.eventually(settled, func() bool {
			text, _ := x.runPatchbay(t, host+1, "status", "-o", "json")
			return json.Unmarshal([]byte(text), &s) == nil && s.InSync && len(s.Awaited) == 0
		}) {
			t.Fatalf("hv%d still waits for forwarding entries after %v: %+v", host+1, settled, s.Awaited)
		}
	}
	x.wait(2 * second)
}

// mine looks for flows under Patchbay's cookie. Patchbay touches no flow that is right as it is: such a flow keeps the Python agent's cookie. The
// Python agent makes all flows anew.
func (x *handover) mine(t *testing.T, kind lab.AgentKind) {
	t.Helper()
	ours, err := strconv.ParseUint(agentCookie, 0, 64)
	if err != nil {
		t.Fatal(err)
	}
	patchbays, all := 0, 0
	for _, h := range x.l.Hosts() {
		for br, flows := range x.state(t, h).flows {
			for _, f := range flows {
				all++
				if f.Cookie() != ours {
					continue
				}
				if patchbays++; kind == lab.Python && patchbays <= 10 {
					t.Errorf("%s %s: a flow of Patchbay is left: %s", h.Name(), br, f)
				}
			}
		}
	}
	x.row.flows = all
	if kind == lab.Patchbay {
		x.row.touched = patchbays
	} else {
		x.row.touched = all
	}
}

// vlans are the local VLANs of a host's ports.
func (x *handover) vlans(t *testing.T, h *lab.Host) map[string]int {
	t.Helper()
	out := map[string]int{}
	for p := range x.state(t, h).view.Ports() {
		if p.Tag != nil {
			out[p.Name] = *p.Tag
		}
	}
	return out
}

// rests waits until flows and rows stay as they are.
func (x *handover) rests(t *testing.T) {
	t.Helper()
	last, since := x.images(t), time.Now()
	if !x.eventually(settled, func() bool {
		x.wait(second)
		if now := x.images(t); !slices.EqualFunc(last, now, slices.Equal) {
			last, since = now, time.Now()
		}
		return time.Since(since) > atRest
	}) {
		t.Errorf("flows and rows still change after %v", settled)
	}
}

// images are the flows and rows of all hosts, without cookies and with names in the place of local VLANs, port numbers and ids of conjunctions.
func (x *handover) images(t *testing.T) []parity.Snapshot {
	t.Helper()
	var all []parity.Snapshot
	for _, h := range x.l.Hosts() {
		s, names := x.state(t, h), parity.NewNames()
		names.Learn(s.view)
		for i, v := range x.vms() { // as parity/accepted.md calls them
			letter := string(rune('A' + i))
			names.Text(v.PortID, letter)
			names.Text(v.Tap, "tap-"+letter)
		}
		for i, n := range x.nets {
			names.Text(n.ID, "N"+strconv.Itoa(i+1))
		}
		lines := slices.DeleteFunc(names.Rows(s.view), func(line string) bool {
			return strings.HasPrefix(line, "Bridge br-under ") || strings.Contains(line, " under0 ")
		})
		for br, entries := range s.flows {
			var list []openflow.Flow
			for _, e := range entries {
				f, err := e.Flow()
				if err != nil {
					t.Fatalf("%s: %v", e, err)
				}
				list = append(list, f)
			}
			lines = append(lines, names.Flows(br, list)...)
		}
		for i := range lines {
			lines[i] = h.Name() + " " + lines[i]
		}
		all = append(all, parity.NewSnapshot(lines))
	}
	return all
}

func lines(images []parity.Snapshot) int {
	n := 0
	for _, s := range images {
		n += len(s)
	}
	return n
}

// as holds what an agent made of a switch against what it made before.
func (x *handover) as(t *testing.T, what string, want, have []parity.Snapshot) {
	t.Helper()
	for i := range want {
		if d := parity.Compare(want[i], x.withoutNewKey(want[i], have[i]), nil); len(d.Differences) > 0 {
			t.Errorf("%d flows and rows differ from those %s:\n%s", len(d.Differences), what, written(d))
		}
	}
	x.says("%d flows and rows as %s", lines(have), what)
}

// withoutNewKey is what an agent made without a key of bridges that Patchbay sets, as the Python agent of later releases does. The one of this release, if it does
// not make the key itself, does not know and does not remove it.
func (x *handover) withoutNewKey(want, have parity.Snapshot) parity.Snapshot {
	const key = " other_config:disable-in-band=true"
	makes := slices.ContainsFunc(want, func(line string) bool { return strings.HasSuffix(line, key) })
	if x.agent != lab.Python || makes {
		return have
	}
	return slices.DeleteFunc(slices.Clone(have), func(line string) bool { return strings.HasSuffix(line, key) })
}

func written(d parity.Diff) string {
	var b strings.Builder
	d.Write(&b)
	return b.String()
}

// fromNothing gives Patchbay, without memory, switches on which no agent has ever run.
func (x *handover) fromNothing(t *testing.T) {
	x.agent = lab.Patchbay
	x.eachHost(t, func(h *lab.Host) error {
		if err := h.StopAgent(x.ctx); err != nil {
			return err
		}
		if err := os.Remove(snapshotOf(h)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if _, err := h.Switch().Vsctl(x.ctx, "del-br", "br-int", "--", "del-br", "br-tun", "--", "del-br", "br-ex"); err != nil {
			return err
		}
		return h.EnsureSwitch(x.ctx)
	})
	x.startAgents(t, x.agent)
	for _, v := range x.vms() {
		if err := v.Insert(x.ctx, false); err != nil {
			t.Fatal(err)
		}
	}
	x.reached(t)
	x.inSync(t)
	x.alone[x.agent] = x.images(t)
	if x.left[x.agent] != nil {
		x.as(t, "after the last hand-over", x.left[x.agent], x.alone[x.agent])
	}
}

// beside holds what Patchbay makes against what the Python agent makes.
func (x *handover) beside(t *testing.T) {
	accepted, err := parity.LoadAccepted("../parity/accepted.md")
	if err != nil {
		t.Fatal(err)
	}
	number, _, _ := strings.Cut(release.Upstream(x.l.Sources().Neutron.Version), ".")
	major, err := strconv.Atoi(number)
	if err != nil {
		t.Fatal(err)
	}
	compared, explained := 0, 0
	for i, python := range x.alone[lab.Python] {
		if i >= len(x.alone[lab.Patchbay]) {
			t.Fatal("Patchbay was not seen on a switch of its own")
		}
		d := parity.Compare(accepted.Since(major, python), x.alone[lab.Patchbay][i], accepted.At("fw-handover", "plugged"))
		if n := len(d.Unexplained()); n > 0 {
			t.Errorf("%d differences are not explained:\n%s", n, written(d))
		}
		compared, explained = compared+d.Compared, explained+len(d.Differences)-len(d.Unexplained())
	}
	x.says("%d flows and rows, %d differ and are explained", compared, explained)
}
