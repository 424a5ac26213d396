// SPDX-License-Identifier: Apache-2.0

//go:build parity

package live

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/patchbay-sdn/patchbay/lab"
	"github.com/patchbay-sdn/patchbay/parity"
)

// config is a configuration of agents that several scenarios share, so that the agents need not start anew.
type config struct {
	name  string
	doc   string
	hosts int
	// overrides are options of the agents, as "section.option=value"; own ones come on top, by host.
	overrides []string
	own       map[string][]string
	// hybrid: VMs are plugged in through Linux bridges of their own, on which rules of iptables filter.
	hybrid bool
	// use is played when the agents have started, for flows that the first port brings and the last one leaves.
	use []step
	// leaves are tables of the integration bridge that hold nothing at rest and in which the Python agent leaves flows of what
	// is gone. They are emptied after a scenario, so that its agents need not start anew.
	leaves []string
}

func (c *config) options(host string) []string {
	return slices.Concat([]string{
		"securitygroup.firewall_driver=noop",
		"agent.polling_interval=1", // the Python agent's; scenarios are played in half the time
		"ovs.of_request_timeout=30",
	}, c.overrides, c.own[host])
}

// scenario is a story that agents are told, with checkpoints at which their switches are looked at.
type scenario struct {
	name   string
	config *config
	hosts  int // the first so many take part
	doc    string
	steps  []step
	// noise matches "checkpoint line" of lines that the Python agent itself gets right one time and not the next.
	noise *regexp.Regexp
}

// step is one thing that is done to the cloud, or a checkpoint.
type step struct {
	text string // what is done, in words
	do   func(ctx context.Context, p *play) error
	// checkpoint is the name of a checkpoint; do is nil then. status is what ports should get to first.
	checkpoint string
	status     map[string]string
}

// thing is a port or network that a scenario made.
type thing struct {
	name, id string
	kind     byte // of the stable id
	isTrunk  bool // stable ids of trunks begin like those of rules
	// The rest is for ports. tap is the interface in the switch, which is the outer end of a Linux bridge's pair with iptables_hybrid.
	tap, mac string
	shown    string // address that stands for mac in snapshots and recordings, if the server chose it
	host     int
	router   bool     // it belongs to a router: no VM is behind it
	subnets  []attrs  // for networks
	trunk    []string // names of the bridge and patches that stand for it in a trunk
}

// play is one scenario being played.
type play struct {
	*cloud
	kind     lab.AgentKind
	scenario *scenario
	hosts    []*host
	things   map[string]*thing
	order    []*thing
	undo     []func(context.Context) error
	steps    []string
	stages   []parity.Stage
	canon    *parity.Canon
}

// result is what came out of a play.
type result struct {
	stages []parity.Stage
	names  map[string]string
	// leftover is how the end differs from the state before.
	leftover parity.Diff
	took     time.Duration
}

// newPlay begins a scenario; s may be a pseudo scenario without steps.
func (c *cloud) newPlay(kind lab.AgentKind, s *scenario) *play {
	p := &play{
		cloud: c, kind: kind, scenario: s, hosts: c.hosts[:s.hosts],
		things: map[string]*thing{}, canon: parity.NewCanon(),
	}
	for _, h := range c.hosts {
		h.forget()
		h.mu.Lock()
		h.remember()
		h.mu.Unlock()
		p.canon.Pair(h.LocalIP(), recordedIP(h.LocalIP()))
		mac := c.routerMACs[h.Name()]
		p.canon.Pair(mac, recordedRouterMAC(h.Name()))
		p.canon.Pair(strings.ToUpper(strings.ReplaceAll(mac, ":", "-")), recordedRouterMAC(h.Name())) // as the server writes it
	}
	p.canon.Pair(c.spareIP(), recordedIP(c.spareIP()))
	return p
}

// run plays the scenario from a state at rest, whose lines are base, and back to it.
func (p *play) run(ctx context.Context, base parity.Snapshot) (*result, error) {
	began := time.Now()
	p.journal.drain()
	err := p.all(ctx)
	clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Minute)
	defer cancel()
	p.steps = append(p.steps, "everything is taken away again")
	for _, undo := range slices.Backward(p.undo) {
		err = errors.Join(err, undo(clean))
	}
	err = errors.Join(err, p.check(clean, "after", nil))
	if err != nil {
		return nil, fmt.Errorf("playing %s with %s: %w", p.scenario.name, p.kind, err)
	}
	after := p.stages[len(p.stages)-1].Want.Select(isState)
	return &result{
		stages: p.stages, names: p.recordedNames(), leftover: parity.Compare(base, after, nil), took: time.Since(began),
	}, nil
}

var stateLine = regexp.MustCompile(`^hv\d+ (br-|Bridge|Port|Interface|QoS|Queue|ip6?tables|ipset|sysctl)`)

// isState tells lines that describe a switch from those about the API and about calls.
func isState(line string) bool { return stateLine.MatchString(line) }

func (p *play) all(ctx context.Context) error {
	for _, s := range p.scenario.steps {
		if s.do == nil {
			if err := p.check(ctx, s.checkpoint, s.status); err != nil {
				return err
			}
			continue
		}
		p.steps = append(p.steps, s.text)
		if err := s.do(ctx, p); err != nil {
			return fmt.Errorf("%s: %w", s.text, err)
		}
	}
	return nil
}

// check waits until ports have the wanted status and all is quiet, and takes a snapshot. A status that is not reached is no
// error: the snapshot will show it.
func (p *play) check(ctx context.Context, name string, want map[string]string) error {
	for deadline := time.Now().Add(30 * time.Second); len(want) > 0 && time.Now().Before(deadline); {
		_, status, err := p.portLines(ctx, p.ids())
		if err != nil {
			return err
		}
		if maps.Equal(only(status, want), want) {
			break
		}
		if err := wait(ctx, 250*time.Millisecond); err != nil {
			return err
		}
	}
	if err := p.settle(ctx, p.kind, p.hosts); err != nil {
		return err
	}
	stage := parity.Stage{Checkpoint: name, Steps: p.steps}
	p.steps = nil
	entries, calls := p.journal.drain()
	lines, err := p.snapshot(ctx, calls)
	if err != nil {
		return err
	}
	stage.Want = parity.NewSnapshot(lines).Select(func(line string) bool {
		return p.scenario.noise == nil || !p.scenario.noise.MatchString(name+" "+line)
	})
	names := p.hostNames()
	for i := range entries {
		e := &entries[i]
		e.hosts = slices.DeleteFunc(slices.Clone(e.hosts), func(h string) bool { return !slices.Contains(names, h) })
		if len(e.hosts) == 0 {
			continue
		}
		ev, err := e.event(p.canon)
		if err != nil {
			return err
		}
		stage.Events = append(stage.Events, ev)
	}
	p.stages = append(p.stages, stage)
	return nil
}

func only(m, keys map[string]string) map[string]string {
	kept := map[string]string{}
	for k := range keys {
		kept[k] = m[k]
	}
	return kept
}

func (p *play) hostNames() []string {
	var names []string
	for _, h := range p.hosts {
		names = append(names, h.Name())
	}
	return names
}

// ids are the names of ports by their id.
func (p *play) ids() map[string]string {
	ids := map[string]string{}
	for _, t := range p.order {
		if t.tap != "" {
			ids[t.id] = t.name
		}
	}
	return ids
}

var anyID = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)

// snapshot writes down everything that two agents should agree on.
func (p *play) snapshot(ctx context.Context, calls []*call) ([]string, error) {
	lines, _, err := p.portLines(ctx, p.ids())
	if err != nil {
		return nil, err
	}
	trunks, err := p.trunkLines(ctx)
	if err != nil {
		return nil, err
	}
	lines = append(lines, trunks...)
	for _, h := range p.hosts {
		names := p.names(h)
		own := h.rows(names)
		for _, br := range h.bridges() {
			flows, err := h.flows(ctx, br)
			if err != nil {
				return nil, err
			}
			own = append(own, names.Flows(br, flows)...)
			if br == "br-int" {
				meters, err := h.meters(ctx, br)
				if err != nil {
					return nil, err
				}
				own = append(own, names.Meters(br, meters)...)
			}
		}
		if p.scenario.config.hybrid {
			rules, err := h.ruleLines(ctx, names)
			if err != nil {
				return nil, err
			}
			own = append(own, rules...)
		}
		for _, line := range own {
			lines = append(lines, h.Name()+" "+line)
		}
		lines = append(lines, callLines(calls, names, []string{h.Name()})...)
	}
	for i := range lines {
		lines[i] = anyID.ReplaceAllString(lines[i], "<id>")
	}
	return lines, nil
}

func (p *play) names(h *host) *parity.Names {
	n := h.names()
	p.base(n)
	for _, t := range p.order {
		n.Text(t.id, t.name)
		if t.tap != "" {
			n.Text(t.tap, t.tap[:3]+"-"+t.name)
		}
		if p.scenario.config.hybrid {
			switch t.kind {
			case parity.PortKind:
				n.Bridged(t.id, t.name)
			case parity.GroupKind, parity.AddressGroupKind:
				n.Group(t.id, t.name)
			}
		}
		for _, name := range t.trunk {
			n.Text(name, name[:4]+t.name)
		}
		if t.shown != "" {
			n.Text(t.mac, t.shown)
		}
	}
	return n
}

// recordedNames are the stable identifiers of a recording and what they stand for.
func (p *play) recordedNames() map[string]string {
	names := map[string]string{}
	for _, t := range p.order {
		names[p.canon.Text(t.id)] = t.name
		if t.tap != "" {
			names[p.canon.Text(t.tap)] = t.tap[:3] + "-" + t.name
		}
		for _, name := range t.trunk {
			names[p.canon.Text(name)] = name[:4] + t.name
		}
	}
	for _, h := range p.cloud.hosts {
		ip := recordedIP(h.LocalIP())
		names[ip] = "ip-" + h.Name()
		names[recordedRouterMAC(h.Name())] = "router-mac-" + h.Name()
		maps.Copy(names, tunnelNames(ip, h.Name()))
	}
	ip := recordedIP(p.spareIP())
	names[ip] = "ip-spare"
	maps.Copy(names, tunnelNames(ip, "spare"))
	return names
}

// made gives a new port or network its name.
func (p *play) made(t *thing) {
	number := 1
	if len(p.scenario.config.use) > 0 && p.scenario.name == p.scenario.config.start().name {
		number = 0x1001 // a replay plays the start of a configuration before each of its scenarios
	}
	for _, other := range p.order {
		if other.kind == t.kind {
			number++
		}
	}
	stable := p.canon.ID(t.id, t.kind, number)
	if t.tap != "" {
		p.canon.Pair(t.tap, t.tap[:3]+stable[:11])
	}
	p.things[t.name] = t
	p.order = append(p.order, t)
}

func tapName(id string) string { return "tap" + id[:11] }
