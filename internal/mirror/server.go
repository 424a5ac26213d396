// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
)

const (
	// settleAfter is how long messages may take that the server has sent before it answered.
	settleAfter = 30 * time.Second
	// firstWait is how long the agent waits for the answer before it takes it that there is no plugin, and is in sync without one.
	firstWait = 10 * time.Second
)

// The keys of calls: what is active, and a report about a tap service or a tap flow.
type (
	syncCall struct{}
	report   struct{ kind, id string }
)

func (syncCall) String() string { return "sync_tap_resources" }
func (r report) String() string { return "status of tap " + r.kind + " " + r.id }

// Resync implements extension.Resyncer.
func (m *Mirrors) Resync() {
	m.round++
	m.asking, m.settle = true, time.Time{}
}

// Calls implements extension.Caller. A server that did not answer may have no tap-as-a-service plugin: the agent is in sync while it asks again.
func (m *Mirrors) Calls() []extension.Call {
	var out []extension.Call
	if m.asking {
		run := sync
		if !m.failing {
			run = syncSoon
		}
		out = append(out, extension.Call{Key: syncCall{}, Background: m.failing, Run: run})
	}
	for _, r := range slices.SortedFunc(maps.Keys(m.due), func(a, b report) int { return cmp.Or(strings.Compare(a.kind, b.kind), strings.Compare(a.id, b.id)) }) {
		status, tell := m.due[r], (*neutron.Server).TapServiceStatus
		if r.kind == "flow" {
			tell = (*neutron.Server).TapFlowStatus
		}
		out = append(out, extension.Call{Key: r, Run: func(ctx context.Context, s *neutron.Server) (any, error) { return status, tell(s, ctx, r.id, status) }})
	}
	return out
}

// syncSoon is sync, but does not hold the agent up for rpc_response_timeout.
func syncSoon(ctx context.Context, s *neutron.Server) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, firstWait)
	defer cancel()
	return sync(ctx, s)
}

// sync has the server send what is active.
func sync(ctx context.Context, s *neutron.Server) (any, error) {
	err := s.SyncTaps(ctx)
	if err != nil {
		err = fmt.Errorf("%w; mirrors stay as they are. A server without service_plugins = taas never answers: then take taas out of agent.extensions", err)
	}
	return nil, err
}

// OnCall implements extension.Caller. A report that failed is still listed.
func (m *Mirrors) OnCall(k extension.Key, result any, err error) {
	switch k := k.(type) {
	case syncCall:
		if m.asking, m.failing = err != nil, err != nil; err == nil {
			m.settle = m.w.Time.Add(settleAfter)
		}
	case report:
		if status, ok := result.(string); neutron.IsTapGone(err) {
			m.forget(k)
		} else if err == nil && ok {
			m.told(k, status)
		}
	}
}

// told takes that the server knows a status.
func (m *Mirrors) told(r report, status string) {
	if s := m.Services[r.id]; s != nil && r.kind == "service" {
		s.Told = status
		m.touched[r.id] = true
	}
	if f := m.Flows[r.id]; f != nil && r.kind == "flow" {
		f.Told = status
		m.touched[f.Service] = true
	}
	if status == neutron.TapInactive {
		m.forget(r)
	}
}

// forget drops a tap service or a tap flow that the server has no more.
func (m *Mirrors) forget(r report) {
	delete(m.due, r)
	delete(m.warned, r.id)
	if s := m.Services[r.id]; s != nil && r.kind == "service" {
		delete(m.Services, r.id)
		m.doom(r.id)
	}
	if f := m.Flows[r.id]; f != nil && r.kind == "flow" {
		delete(m.Flows, r.id)
		m.doom(f.Service)
	}
}

// Deadline implements extension.Timed.
func (m *Mirrors) Deadline() time.Time { return m.settle }

// OnTime implements extension.Timed.
func (m *Mirrors) OnTime(now time.Time) {
	if !m.settle.IsZero() && !now.Before(m.settle) {
		m.settle = time.Time{}
		m.prune()
	}
}

// prune forgets what the server would have sent, had it still been active, and has rows deleted that belong to nothing. The server sends no tap mirrors: they
// stay until it deletes them.
func (m *Mirrors) prune() {
	for id, s := range m.Services {
		if s.round < m.round && !s.Gone && (s.Told == neutron.TapActive || s.Told == neutron.TapError) {
			m.forget(report{"service", id})
		}
	}
	for id, f := range m.Flows {
		if f.round < m.round && !f.Gone && (f.Told == neutron.TapActive || f.Told == neutron.TapError) {
			m.forget(report{"flow", id})
		}
	}
	b := m.w.View.BridgeByName(m.w.Config.IntegrationBridge)
	if b == nil {
		return
	}
	orphan := func(ids map[string]string) {
		if id := ids[mark]; id != "" {
			m.doom(id)
		}
	}
	for _, row := range m.w.View.MirrorsOn(b) {
		orphan(row.ExternalIDs)
		if id := row.ExternalIDs[mark]; m.doomed[id] && strings.HasPrefix(row.Name, "tm_") {
			m.warn(id, fmt.Sprintf("mirror %s is deleted: the agent knows no tap mirror %s, and the server cannot be asked for it; if it is still wanted, delete it and create it again", row.Name, id))
		}
	}
	for _, i := range m.w.View.InterfacesOn(b) {
		orphan(i.ExternalIDs)
	}
}
