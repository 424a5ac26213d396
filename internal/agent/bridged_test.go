// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/iptables"
	sim "github.com/patchbay-sdn/patchbay/lab/sim/region"
	"github.com/patchbay-sdn/patchbay/openflow"
)

// hybridEvery: of four histories this one has VMs behind Linux bridges.
const hybridEvery = 3

// bridged are VMs behind Linux bridges, whose rules of iptables are slow and fail at times. With a restart the driver may change, between iptables and
// flows. While iptables is to filter, a port with security groups is in its network only if rules or flows filter it: whatever the agent does, in whatever order.
type bridged struct {
	kernel *kernel

	mu   sync.Mutex
	rnd  *rand.Rand
	fail func(format string, args ...any)
	ovs  *fakeOVS
	on   bool      // iptables is to filter
	down time.Time // until then iptables fails; it may for as long as the server takes to tell everything, and longer
	kind bool      // it is neither slow, nor does it fail
	// excused are ports that were in their networks without a filter before the agent could do something about it.
	excused map[string]bool
}

func newBridged(h *unkindHistory) *bridged {
	b := &bridged{kernel: newKernel(), rnd: rand.New(rand.NewPCG(h.rnd.Uint64(), 4)), ovs: h.ovs, excused: map[string]bool{}}
	b.fail = func(format string, args ...any) {
		h.t.Errorf(format+"\nafter: %s\n%s", append(args, strings.Join(h.story, "\n       "), h.log)...)
	}
	h.local = nil
	for _, letter := range "abcde" {
		h.local = append(h.local, fmt.Sprintf("%c%[1]c%[1]c%[1]c%[1]c%[1]c%[1]c%[1]c-0000-4000-8000-00000000000%[1]c", letter))
	}
	b.drive(h, b.rnd.IntN(2) == 0)
	h.ovs.committed = func(bridge string, _ []flowMod, wiped bool) {
		if bridge == "br-int" && !wiped {
			b.check("flows were written", h.ovs.inNetworks(), h.ovs.flows[bridge])
		}
	}
	return b
}

// open returns whether a port may have no filter: the last one may be a server's, and have no port security. All others are filtered at all times.
func (b *bridged) open(id string) bool { return len(id) != len(hybridA) || id[0] == 'e' }

// keep has a port keep its filter.
func (b *bridged) keep(id string, spec *sim.PortSpec) {
	if b == nil || b.open(id) {
		return
	}
	secure, owner := true, "compute:nova"
	if spec.PortSecurity = &secure; spec.DeviceOwner != nil {
		spec.DeviceOwner = &owner
	}
}

// drive has one of the two drivers filter.
func (b *bridged) drive(h *unkindHistory, hybrid bool) {
	h.cfg.Filter, h.cfg.Hybrid, h.cfg.BridgedOnly, h.cfg.AntiSpoof = true, hybrid, hybrid, hybrid
	h.cfg.FilterTables, h.cfg.FailClosed = !hybrid, !hybrid
	h.note("iptables filters: %v", hybrid)
}

// draw returns a random number.
func (b *bridged) draw(n int) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.rnd.IntN(n)
}

// rest lets iptables work.
func (b *bridged) rest() {
	if b != nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.kind = true
	}
}

// live begins the life of an agent.
func (b *bridged) live(h *unkindHistory) {
	h.life.rules = unkindKernel{b.kernel, b}
	b.mu.Lock()
	b.on = h.cfg.Hybrid
	if b.rnd.IntN(2) == 0 {
		b.down = time.Now().Add(time.Duration(b.rnd.IntN(90)) * time.Second)
	}
	b.mu.Unlock()
	b.excuse(h.ovs, false)
}

// restart may change the driver.
func (b *bridged) restart(h *unkindHistory) {
	b.mu.Lock()
	b.on = false
	b.mu.Unlock()
	if b.draw(2) == 0 {
		b.drive(h, !h.cfg.Hybrid)
	}
}

// excuse takes down which ports are in their networks without a filter, or will be when the switch has lost its flows. The agent did not put them there.
func (b *bridged) excuse(ovs *fakeOVS, lost bool) {
	flows := ovs.Bridge("br-int").Flows()
	ovs.mu.Lock()
	in := ovs.inNetworks()
	ovs.mu.Unlock()
	led := ledByFlows(flows)
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.excused)
	guarded := b.kernel.guarded()
	for n, id := range in {
		if !guarded.Has(id) && (lost || !led[n]) {
			b.excused[id] = true
		}
	}
}

// check looks for ports that are in their networks and that nothing filters.
func (b *bridged) check(when string, in map[int]string, flows map[openflow.Key]openflow.Entry) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.on {
		return
	}
	guarded, led, there := b.kernel.guarded(), ledByFlows(flows), map[string]bool{}
	for n, id := range in {
		if b.open(id) {
			continue
		}
		there[id] = true
		switch {
		case guarded.Has(id) || led[n]:
			delete(b.excused, id)
		case !b.excused[id]:
			b.fail("%s: port %s is in its network, and neither rules nor flows filter it", when, id)
		}
	}
	for id := range b.excused {
		if !there[id] {
			delete(b.excused, id)
		}
	}
}

// ledByFlows returns the numbers of ports whose packets flows lead to filters.
func ledByFlows(flows map[openflow.Key]openflow.Entry) map[int]bool {
	out := map[int]bool{}
	for _, e := range flows {
		if f, err := e.Flow(); err == nil && f.Table == 60 && f.Priority == 100 {
			if from, ok := f.Match.Lookup(openflow.InPort); ok {
				out[int(from.Value.Lo)] = true
			}
		}
	}
	return out
}

// unkindKernel is slow, and fails at times.
type unkindKernel struct {
	*kernel
	b *bridged
}

func (u unkindKernel) trouble(what string) error {
	u.b.mu.Lock()
	pause, fails := time.Duration(u.b.rnd.IntN(3000))*time.Millisecond, u.b.rnd.IntN(6) == 0 || time.Now().Before(u.b.down)
	kind := u.b.kind
	u.b.mu.Unlock()
	if kind {
		return nil
	}
	if time.Sleep(pause); fails {
		return errors.New(what + " failed")
	}
	return nil
}

func (u unkindKernel) Read(ctx context.Context) (iptables.State, error) {
	if err := u.trouble("iptables-save"); err != nil {
		return iptables.State{}, err
	}
	return u.kernel.Read(ctx)
}

func (u unkindKernel) Apply(ctx context.Context, c *iptables.Changes) error {
	if err := u.trouble("iptables-restore"); err != nil {
		return err
	}
	err := u.kernel.Apply(ctx, c)
	flows := u.b.ovs.Bridge("br-int").Flows()
	u.b.ovs.mu.Lock()
	in := u.b.ovs.inNetworks()
	u.b.ovs.mu.Unlock()
	u.b.check("rules were written", in, flows)
	return err
}

// guarded are the ports that have rules.
func (k *kernel) guarded() iptables.Parts {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.state.Guarded()
}

var zoneNumber = regexp.MustCompile(`--zone \d+`)

var ofPort = regexp.MustCompile(`(tap|qvb|-[ios])[a-e]{8}-|^set `)

// described are all rules and sets, one a line, without what may differ: numbers of zones, and the order of rules. What ports share comes with the
// first port and stays; where another host has no port it is left out.
func (k *kernel) described(other *kernel) map[string]bool {
	alone := len(other.guarded()) == 0
	k.mu.Lock()
	defer k.mu.Unlock()
	out := map[string]bool{}
	for i, tables := range k.state.Rules {
		for table, chains := range tables {
			for chain, rules := range chains {
				out[fmt.Sprintf("IPv%d %s :%s", 4+2*i, table, chain)] = true
				for _, rule := range rules {
					out[fmt.Sprintf("IPv%d %s %s %s", 4+2*i, table, chain, zoneNumber.ReplaceAllString(rule, "--zone N"))] = true
				}
			}
		}
	}
	for name, set := range k.state.Sets {
		out["set "+name] = true
		for member := range set.Members {
			out[fmt.Sprintf("set %s %v", name, member)] = true
		}
	}
	maps.DeleteFunc(out, func(line string, _ bool) bool { return alone && !ofPort.MatchString(line) })
	return out
}
