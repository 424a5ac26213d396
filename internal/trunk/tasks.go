// SPDX-License-Identifier: Apache-2.0

package trunk

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
)

// The tasks. Each but the first is about one bridge.
const (
	taskTrunks  = "which trunks ports have"
	taskBind    = "binding of the sub-ports on "
	taskStatus  = "status of the trunk on "
	taskPatches = "patches of the empty bridge "
	taskBridge  = "the empty bridge "
	taskStray   = "the patch that leads nowhere, "
)

type (
	// question is one about the trunk of a parent, and told the answers to all.
	question struct {
		bridge, parent string
		news           uint64
	}
	told struct {
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

// Due implements extension.Extension.
func (t *trunks) Due() []extension.Task {
	if len(t.busy)+len(t.strays) == 0 {
		return nil
	}
	var out []extension.Task
	wait := func(id string, at time.Time) {
		out = append(out, extension.Task{ID: id, At: at, Run: func(context.Context, *neutron.Server) (any, error) { return nil, nil }})
	}
	var questions []question
	for _, name := range slices.Sorted(maps.Keys(t.busy)) {
		b := t.bridges[name]
		if b.unanswered() {
			questions = append(questions, question{name, b.parent.id, b.news})
		}
		if subs := b.unbound(); len(subs) > 0 {
			life := b.life
			out = append(out, extension.Task{ID: taskBind + name, Run: func(ctx context.Context, s *neutron.Server) (any, error) {
				ports, err := s.BindSubPorts(ctx, subs)
				return bound{life, subs, ports}, err
			}})
		}
		if b.reportable() {
			trunk, news := b.trunk.ID, b.news
			out = append(out, extension.Task{ID: taskStatus + name, Run: func(ctx context.Context, s *neutron.Server) (any, error) {
				return news, s.TrunkStatus(ctx, trunk, neutron.TrunkActive)
			}})
		}
		if !b.empty.IsZero() && !b.patchesGo {
			wait(taskPatches+name, b.empty.Add(patchGrace))
		}
		if !b.empty.IsZero() && !b.bridgeGoes {
			wait(taskBridge+name, b.empty.Add(bridgeGrace))
		}
	}
	if len(questions) > 0 {
		out = append(out, extension.Task{ID: taskTrunks, Run: func(ctx context.Context, s *neutron.Server) (any, error) {
			parents := make([]string, len(questions))
			for i, q := range questions {
				parents[i] = q.parent
			}
			trunks, err := s.TrunksOf(ctx, parents)
			return told{questions, trunks}, err
		}})
	}
	for name, s := range t.strays {
		if !s.goes {
			wait(taskStray+name, s.since.Add(patchGrace))
		}
	}
	return out
}

// Done implements extension.Extension. What failed is still due.
func (t *trunks) Done(id string, result any, err error) {
	if err != nil {
		return
	}
	if id == taskTrunks {
		t.answer(result.(told))
		return
	}
	if name, ok := strings.CutPrefix(id, taskStray); ok {
		if s := t.strays[name]; s != nil {
			s.goes, t.suspects[name] = true, true
		}
		return
	}
	for prefix, done := range map[string]func(*bridge){
		taskBind:    func(b *bridge) { b.take(result.(bound)) },
		taskStatus:  func(b *bridge) { b.due = b.due && b.news != result.(uint64) },
		taskPatches: func(b *bridge) { b.patchesGo = !b.empty.IsZero() && !t.now().Before(b.empty.Add(patchGrace)) },
		taskBridge:  func(b *bridge) { b.bridgeGoes = !b.empty.IsZero() && !t.now().Before(b.empty.Add(bridgeGrace)) },
	} {
		if name, ok := strings.CutPrefix(id, prefix); ok && t.bridges[name] != nil {
			done(t.bridges[name])
			t.touched[name] = true
		}
	}
}

// answer takes the server's answer about trunks, unless something was heard since it was asked.
func (t *trunks) answer(a told) {
	for _, q := range a.questions {
		b := t.bridges[q.bridge]
		if b == nil || b.parent.id != q.parent || b.news != q.news {
			continue
		}
		at := slices.IndexFunc(a.trunks, func(tr neutron.Trunk) bool { return tr.PortID == q.parent && bridgeName(tr.ID) == q.bridge })
		if at < 0 {
			b.learn(nil)
		} else {
			b.learn(&a.trunks[at])
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
	b.news++
}
