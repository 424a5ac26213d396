// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/world"
	"github.com/patchbay-sdn/patchbay/openflow"
)

// watched is what an agent says about itself while it runs.
type watched struct {
	mu      sync.Mutex
	vlans   map[uint16]string // what local VLANs stand for, and stood for as long as nothing else got them
	open    map[string]bool   // ports that are to be in a network without filters, as far as it knows
	rests   bool
	missing []string
}

// watchAgent has an agent say whether it is at rest, and what its local VLANs stand for before flows with them are sent.
func watchAgent(a *Agent, before *watched) *watched {
	w := &watched{vlans: map[uint16]string{}}
	if before != nil {
		before.mu.Lock()
		maps.Copy(w.vlans, before.vlans)
		before.mu.Unlock()
	}
	a.cfg.Progress = func(p Progress) {
		w.mu.Lock()
		defer w.mu.Unlock()
		missing := p.Missing
		say := func(is bool, what string) {
			if is {
				missing = append(missing, what)
			}
		}
		say(!p.Complete, "more than that")
		v := a.view()
		for _, name := range v.Quarantined() {
			say(true, name+", which is held")
		}
		say(v.Unsaved() && !restless(a), "the snapshot")
		for _, name := range a.world().Bridges() {
			say(v.Dataplane.Bridge(name).FoundMeters > 0, "meters that were found on "+name)
		}
		for _, e := range v.Extensions {
			for _, call := range e.Calls() {
				say(true, "call "+call.Key.String())
			}
			say(e.Timed != nil && !e.Timed.Deadline().IsZero(), "deadline of "+e.Name())
		}
		w.rests, w.missing = len(missing) == 0, missing
	}
	probe := a.cfg.probe.f
	a.cfg.probe.f = func(where string) {
		if where == "connecting to bridges" { // a step of the loop, after what changed was worked out
			w.mu.Lock()
			now := maps.Clone(w.vlans)
			maps.Copy(now, vlansOf(a))
			w.vlans, w.open = now, openPorts(a)
			w.mu.Unlock()
		}
		if probe != nil {
			probe(where)
		}
	}
	return w
}

// openPorts are ports that an agent wires without filters.
func openPorts(a *Agent) map[string]bool {
	open := map[string]bool{}
	for _, id := range a.world().PortIDs() {
		if p := a.world().Port(id); a.world().Trusted(p) {
			open[id] = true
		}
	}
	return open
}

// restless says whether something changes all the time, so that the snapshot never is what is known now.
func restless(a *Agent) bool {
	return slices.ContainsFunc(a.view().Extensions, func(e extension.Member) bool { return e.Name() == "extra" })
}

func (w *watched) atRest() (bool, []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rests, w.missing
}

// numbering is what numbers in flows stand for: local VLANs, and ports that the switch gave a number.
type numbering struct {
	vlans map[uint16]string
	ports map[int]string
}

// givenFrom is the first number that the switch gives; those of VMs that are plugged in directly are lower, and the same everywhere.
const givenFrom = 1000

// givenPorts are the names of interfaces by the numbers that the switch gave them. Who calls it has the lock.
func (o *fakeOVS) givenPorts(into map[int]string) map[int]string {
	for _, i := range o.rows["Interface"] {
		if n := numberOf(i["ofport"]); n != nil && *n >= givenFrom {
			into[*n] = textOf(i["name"])
		}
	}
	return into
}

func (o *fakeOVS) numbering(vlans map[uint16]string) numbering {
	o.mu.Lock()
	defer o.mu.Unlock()
	return numbering{vlans, o.givenPorts(map[int]string{})}
}

var givenNumbers = regexp.MustCompile(`(in_port=|output:|resubmit\(|resubmit:|reg5=|set_field:)([1-9]\d{3,4}|0x[0-9a-f]{3,4})(,|$|->reg5|->pkt_mark)`)

// line is a flow with what its numbers stand for.
func (n numbering) line(e openflow.Entry) string {
	line := rename(e.String(), func(vlan uint16) string { return n.vlans[vlan] })
	return givenNumbers.ReplaceAllStringFunc(line, func(s string) string {
		m := givenNumbers.FindStringSubmatch(s)
		number, err := strconv.ParseInt(m[2], 0, 32)
		if name := n.ports[int(number)]; err == nil && name != "" {
			return m[1] + name + m[3]
		}
		return s
	})
}

// pieces are a flow of the integration bridge. Of one that is part of conjunctions they are what it matches together with each of them:
// who is a member of a group, and which groups are in force, is heard one by one. Ids of conjunctions follow from what they mean.
func (n numbering) pieces(e openflow.Entry) []string {
	line := n.line(e)
	match, actions, _ := strings.Cut(line, "actions=")
	if !strings.HasPrefix(actions, "conjunction(") {
		return []string{line}
	}
	var out []string
	for _, c := range strings.Split(actions, "),") {
		out = append(out, match+"actions="+strings.TrimSuffix(c, ")"))
	}
	return out
}

// inNetworks are ports with a VM behind them that are in a network, by number, as far as the database says: of VMs that are plugged
// in directly, of a trunk's parent, and of its sub-ports. Who calls it has the lock.
func (o *fakeOVS) inNetworks() map[int]string {
	all := map[int]string{}
	for _, row := range o.rows["Port"] {
		name := textOf(row["name"])
		if tag := textOf(row["tag"]); !isVM(name) || tag == "" || tag == fmt.Sprint(world.DeadVLAN) {
			continue
		}
		for _, i := range o.rows["Interface"] {
			if n := numberOf(i["ofport"]); i["name"] == name && n != nil {
				all[*n] = textOf(entriesOf(i["external_ids"])["iface-id"])
			}
		}
	}
	return all
}

// isVM says whether a VM is behind an interface of the integration bridge. A trunk's tap is in a bridge of its own.
func isVM(name string) bool {
	return strings.HasPrefix(name, "tap") && name != "tap"+trunkParent || strings.HasPrefix(name, "qvo") ||
		slices.ContainsFunc([]string{"tpi-", "spi-"}, func(p string) bool { return strings.HasPrefix(name, p) })
}
