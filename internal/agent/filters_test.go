// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/fake"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/observe"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/runner"
	"github.com/patchbay-sdn/patchbay/internal/world"
	sim "github.com/patchbay-sdn/patchbay/lab/sim/region"
	"github.com/patchbay-sdn/patchbay/openflow"
	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// cloud is a broker whose server has ports p0…, each in a group of its own, g0…, whose rules refer to members of another,
// m0…. It stumbles over one group, does not know another, and notes what it is asked and told.
type cloud struct {
	*fakeBroker
	refuses, lacks string
	slow           time.Duration // how long it takes to answer about policies

	mu     sync.Mutex
	asked  map[string]int
	status []string
}

func primitive(kind neutron.Kind, data map[string]any) map[string]any {
	p := fake.Wrapped(data)
	p["versioned_object.name"] = string(kind)
	return p
}

func (c *cloud) Call(ctx context.Context, t messaging.Target, method string, args, result any) error {
	all, _ := args.(map[string]any)
	if method == "update_device_list" {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.status = append(c.status, fmt.Sprintf("up %v down %v", all["devices_up"], all["devices_down"]))
		return answer(map[string]any{}, nil, result)
	}
	filter, _ := all["filter_kwargs"].(map[string]any)
	ids, _ := filter["id"].([]string)
	kind, _ := all["resource_type"].(neutron.Kind)
	if method != "bulk_pull" || kind == neutron.KindNDPProxy {
		return c.fakeBroker.Call(ctx, t, method, args, result)
	}
	if kind == neutron.KindQosPolicy && c.slow > 0 && len(ids) > 0 && sleep(ctx, c.slow) != nil {
		return ctx.Err()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.region == nil {
		c.region = sim.New(sim.Config{})
	}
	if groups, ok := filter["security_group_ids"].([]string); ok {
		c.asked["members"]++
		for _, g := range groups {
			c.region.Put("Port", map[string]any{
				"id": "of-" + g, "security_group_ids": groups, "fixed_ips": []any{fake.Wrapped(map[string]any{"ip_address": "10.0.0.1"})},
			})
		}
		return c.fakeBroker.Call(ctx, t, method, args, result)
	}
	c.asked[string(kind)]++
	for _, id := range ids {
		switch {
		case id == c.refuses:
			return &messaging.RemoteError{Class: "KeyError", Message: id}
		case id == c.lacks:
		case kind == neutron.KindPort:
			c.region.Put("Port", fake.PluggedPort(id, 5, "DOWN"))
		case kind == neutron.KindSecurityGroup:
			c.region.Put("SecurityGroupRule", map[string]any{
				"id": "r" + id, "security_group_id": id, "direction": "ingress", "ethertype": "IPv4", "remote_group_id": "m" + id[1:],
			})
		}
	}
	return c.fakeBroker.Call(ctx, t, method, args, result)
}

// filtering makes an agent with filters before a cloud, or before another server that stands before it, and the switch's first rows: so many ports.
func filtering(t *testing.T, c *cloud, ct Conntrack, ports int, before ...Broker) (*Agent, *fakeSwitch, *ovsdb.Batch) {
	t.Helper()
	c.fakeBroker = &fakeBroker{
		alive:  func() (bool, error) { return true, nil },
		report: func(neutron.AgentState) (any, error) { return "alive", nil },
	}
	c.asked = map[string]int{}
	sw := &fakeSwitch{changes: make(chan *ovsdb.Batch)}
	a, err := New(Config{
		Host: "hv1", ReportInterval: 30 * time.Second, PortsPerReport: 20, Log: slog.New(slog.DiscardHandler), Conntrack: ct, probe: &probe{},
		World:    world.Config{Host: "hv1", IntegrationBridge: "br-int", Filter: true, FilterTables: true, FailClosed: true},
		Notifier: observe.NewNotifier(func(string) string { return "" }, 1),
		Link:     runner.Supervised(func(context.Context, string) (*openflow.Conn, error) { return nil, errors.New("no such bridge") }),
	}, sw, func(func(messaging.Event)) (Broker, error) { return append(before, c)[0], nil })
	if err != nil {
		t.Fatal(err)
	}
	return a, sw, fake.Plugged(ports)
}

func TestAGroupThatTheServerRefusesWaitsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const count = 40
		c := &cloud{refuses: "g17", lacks: "g23"}
		a, sw, batch := filtering(t, c, nil, count)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- a.Run(ctx) }()
		sw.changes <- batch
		wait(50 * time.Millisecond) // before the first pause between attempts is over
		c.mu.Lock()
		early := c.asked[string(neutron.KindSecurityGroup)]
		c.mu.Unlock()
		wait(10 * time.Minute)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		for _, id := range a.world().PortIDs() {
			state, reason := world.Wired, "bound"
			switch id {
			case "p17":
				state, reason = world.Waiting, "its security group g17 has not been told yet"
			case "p23":
				state, reason = world.Waiting, "the server does not know its security group g23"
			}
			if got := a.world().Port(id).Wiring; got.State != state || !strings.Contains(got.Reason, reason) {
				t.Errorf("%s is %s (%s), want %s (%s)", id, got.State, got.Reason, state, reason)
			}
		}
		if early > 20 || c.asked["members"] > 10 {
			t.Errorf("%d questions about groups at first, %d about members of %d groups", early, c.asked["members"], count-2)
		}
		if late := c.asked[string(neutron.KindSecurityGroup)] - early; late > 100 || late < 20 {
			t.Errorf("%d more questions about groups in ten minutes: pauses grow to half a minute", late)
		}
	})
}
