// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/lab"
)

// TestFootprint counts what an agent takes up while it has nothing to do, the Python agent first, then Patchbay, on the
// same host with ten filtered ports: connections and queues at the broker, time from start to alive, flows that a restart
// makes anew, lines in the log of a minute.
func TestFootprint(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	f := &filtered{cloud: &cloud{l: lab.New(t, 1), ctx: ctx}}
	t.Cleanup(f.close)
	h := f.l.Host(1)
	n, err := f.l.CreateNetwork(ctx, lab.Network{Name: "footprint", Type: "vxlan"})
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	queuesBefore := f.consumed(t)
	for _, kind := range []lab.AgentKind{lab.Python, lab.Patchbay} {
		began := time.Now()
		if err := h.StartAgent(ctx, kind, filtering); err != nil {
			t.Fatal(err)
		}
		start := time.Since(began)
		if kind == lab.Python { // ports can be bound once an agent is alive
			ids = f.plugTen(t, n)
		}
		f.waitActive(t, ids...)
		f.wait(fdbGraceOver) // leftovers of the agent before go only then
		connections := f.connectionsOf(t, h)
		queues := f.consumed(t) - queuesBefore

		began = time.Now()
		if err := h.StopAgent(ctx); err != nil {
			t.Fatal(err)
		}
		if err := h.StartAgent(ctx, kind, filtering); err != nil {
			t.Fatal(err)
		}
		f.wait(fdbGraceOver)
		touched := f.youngerThan(t, time.Since(began))

		log := h.AgentLog(kind)
		from := size(log)
		f.wait(time.Minute)
		lines := strings.Count(tail(log, from), "\n")
		fmt.Printf("%s: %d connections, %d queues with a consumer, alive after %.1f s, a restart made %d flows anew, %d lines in a minute\n",
			kind, connections, queues, start.Seconds(), touched, lines)
		if kind == lab.Patchbay && (connections != 1 || queues > 2 || touched > 0 || lines > 0) {
			t.Errorf("%d connections, %d queues, %d flows, %d lines: want 1, 2, 0, 0", connections, queues, touched, lines)
		}
		if err := h.StopAgent(ctx); err != nil {
			t.Fatal(err)
		}
		f.wait(2 * time.Second)
	}
}

// plugTen plugs ten filtered ports of a network into the first host.
func (f *filtered) plugTen(t *testing.T, n lab.Network) (ids []string) {
	t.Helper()
	list, err := f.l.CreatePorts(f.ctx, f.l.Host(1), lab.Port{NetworkID: n.ID}, 10)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.l.Host(1).PlugMany(f.ctx, list); err != nil {
		t.Fatal(err)
	}
	for _, p := range list {
		ids = append(ids, p.ID)
	}
	return ids
}

// connectionsOf counts those that the agent of a host has to the broker.
func (c *cloud) connectionsOf(t *testing.T, h *lab.Host) int {
	t.Helper()
	_, pid := h.Agent()
	all, err := c.l.Broker().Connections(c.ctx)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, conn := range all {
		if name, _ := conn.Properties["connection_name"].(string); strings.Contains(name, fmt.Sprintf(":%d:", pid)) {
			n++
		}
	}
	return n
}

// consumed counts the queues that somebody reads.
func (c *cloud) consumed(t *testing.T) int {
	t.Helper()
	all, err := c.l.Broker().Queues(c.ctx)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, q := range all {
		if q.Consumers > 0 {
			n++
		}
	}
	return n
}
