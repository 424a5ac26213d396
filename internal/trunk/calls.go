// SPDX-License-Identifier: Apache-2.0

package trunk

import (
	"context"
	"maps"
	"slices"

	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
)

// The keys of calls. Each but the first is about one bridge.
type (
	trunksCall struct{}
	bindCall   struct{ bridge string }
	statusCall struct{ bridge string }
)

func (trunksCall) String() string   { return "which trunks ports have" }
func (k bindCall) String() string   { return "binding of the sub-ports on " + k.bridge }
func (k statusCall) String() string { return "status of the trunk on " + k.bridge }

type (
	// question is one about the trunk of a parent, and told the answers to all.
	question struct {
		bridge, parent string
		seq            uint64
	}
	trunksPulled struct {
		questions []question
		trunks    []neutron.Trunk
	}
	// bound is what the server has bound of what it was asked to.
	bound struct {
		life  uint64
		asked []neutron.SubPort
		ports []neutron.BoundSubPort
	}
)

// Calls implements extension.Caller.
func (t *trunks) Calls() []extension.Call {
	var out []extension.Call
	var questions []question
	for _, name := range slices.Sorted(maps.Keys(t.busy)) {
		b := t.bridges[name]
		if b.unanswered() {
			questions = append(questions, question{name, b.parent.id, b.seq})
		}
		if subs := b.unbound(); len(subs) > 0 {
			life := b.life
			out = append(out, extension.Call{Key: bindCall{name}, Run: func(ctx context.Context, s *neutron.Server) (any, error) {
				ports, err := s.BindSubPorts(ctx, subs)
				return bound{life, subs, ports}, err
			}})
		}
		if b.reportable() {
			trunk, seq := b.trunk.ID, b.seq
			out = append(out, extension.Call{Key: statusCall{name}, Run: func(ctx context.Context, s *neutron.Server) (any, error) {
				return seq, s.TrunkStatus(ctx, trunk, neutron.TrunkActive)
			}})
		}
	}
	if len(questions) > 0 {
		out = append(out, extension.Call{Key: trunksCall{}, Run: func(ctx context.Context, s *neutron.Server) (any, error) {
			parents := make([]string, len(questions))
			for i, q := range questions {
				parents[i] = q.parent
			}
			trunks, err := s.TrunksOf(ctx, parents)
			return trunksPulled{questions, trunks}, err
		}})
	}
	return out
}

// OnCall implements extension.Caller. What failed is still listed.
func (t *trunks) OnCall(k extension.Key, result any, err error) {
	if err != nil {
		return
	}
	switch k := k.(type) {
	case trunksCall:
		t.answer(result.(trunksPulled))
	case bindCall:
		if b := t.bridges[k.bridge]; b != nil {
			b.take(result.(bound))
			t.touched[b.name] = true
		}
	case statusCall:
		if b := t.bridges[k.bridge]; b != nil {
			b.due = b.due && b.seq != result.(uint64)
			t.touched[b.name] = true
		}
	}
}

// answer takes the server's answer about trunks, unless something was heard since it was asked.
func (t *trunks) answer(a trunksPulled) {
	for _, q := range a.questions {
		b := t.bridges[q.bridge]
		if b == nil || b.parent.id != q.parent || b.seq != q.seq {
			continue
		}
		at := slices.IndexFunc(a.trunks, func(tr neutron.Trunk) bool { return tr.PortID == q.parent && bridgeName(tr.ID) == q.bridge })
		if at < 0 {
			b.learn(nil)
		} else {
			tr := a.trunks[at]
			tr.SubPorts = slices.Clone(tr.SubPorts) // pushes change them, and the answer is an event's
			b.learn(&tr)
		}
		t.touched[b.name] = true
	}
}

// take takes what the server has bound.
func (b *bridge) take(a bound) {
	if a.life != b.life || b.trunk == nil {
		return
	}
	for _, s := range a.asked {
		if slices.Contains(b.trunk.SubPorts, s) {
			at := slices.IndexFunc(a.ports, func(p neutron.BoundSubPort) bool { return p.ID == s.PortID })
			if b.bound[s.PortID] = at >= 0; at >= 0 {
				b.macs[s.PortID] = a.ports[at].MAC
			}
		}
	}
	b.due = true
	b.seq++
}
