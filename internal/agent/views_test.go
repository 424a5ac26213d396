// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/fake"
	"github.com/patchbay-sdn/patchbay/internal/inspect"
	"github.com/patchbay-sdn/patchbay/internal/observe"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// TestViewsOfAnAgentThatHasStopped are errors, not empty lists.
func TestViewsOfAnAgentThatHasStopped(t *testing.T) {
	a := tunnelHost(t, true)
	close(a.ended)
	ctx := t.Context()
	for name, view := range map[string]func() error{
		"status": func() error { _, err := a.Status(ctx); return err }, "ports": func() error { _, err := a.Ports(ctx); return err },
		"bridges": func() error { _, err := a.Bridges(ctx); return err }, "flows": func() error { _, err := a.Flows(ctx, ""); return err },
		"networks": func() error { _, err := a.Networks(ctx); return err }, "tunnels": func() error { _, err := a.Tunnels(ctx); return err },
		"groups": func() error { _, err := a.Groups(ctx); return err }, "alive": func() error { return a.Alive(ctx) },
	} {
		if err := view(); !errors.Is(err, errEnded) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestTunnelsAndNetworks: how they stand and who uses them, with L2 population and without.
func TestTunnelsAndNetworks(t *testing.T) {
	for _, l2population := range []bool{true, false} {
		a := tunnelHost(t, l2population)
		tunnels, err := withLoop(t, a, a.Tunnels)
		if err != nil || len(tunnels) != 3 {
			t.Fatalf("%+v, %v", tunnels, err)
		}
		for i, want := range []struct {
			remote, state, err string
			ofport             uint32
		}{{"10.0.0.2", "up", "", 3}, {"10.0.0.3", "failed", "no route", 0}, {"10.0.0.4", "missing", "", 0}} {
			got := tunnels[i]
			if got.Remote != want.remote || got.State != want.state || got.Error != want.err || got.OFPort != want.ofport || got.Type != "vxlan" || !slices.Equal(got.Networks, []string{"n1"}) {
				t.Errorf("L2 population %v: %+v", l2population, got)
			}
		}
		networks, err := withLoop(t, a, a.Networks)
		if err != nil || len(networks) != 2 {
			t.Fatalf("%+v, %v", networks, err)
		}
		slices.SortFunc(networks, func(x, y inspect.Network) int { return x.Number - y.Number })
		stations := 0
		if l2population {
			stations = 3
		}
		if n := networks[0]; n.ID != "n1" || n.Type != "vxlan" || n.Number != 7 || len(n.Endpoints) != 3 || n.Endpoints[0] != "10.0.0.2" || n.Stations != stations || !slices.Equal(n.Ports, []string{"p1"}) {
			t.Errorf("L2 population %v: %+v", l2population, n)
		}
		if n := networks[1]; n.ID != "n2" || n.Physical != "physnet1" || n.Number != 9 || n.Endpoints != nil {
			t.Errorf("L2 population %v: %+v", l2population, n)
		}
	}
}

// TestBridgeViews: role, network and datapath of each bridge.
func TestBridgeViews(t *testing.T) {
	a := tunnelHost(t, true)
	a.view().Dataplane.Linked("br-tun", nil, errors.New("refused"), time.Now())
	list, err := withLoop(t, a, a.Bridges)
	if err != nil || len(list) != 3 {
		t.Fatalf("%+v, %v", list, err)
	}
	if b := list[0]; b.Name != "br-ex" || b.Role != "physical" || b.Physical != "physnet1" || b.DatapathID != "" {
		t.Errorf("%+v", b)
	}
	if b := list[1]; b.Name != "br-int" || b.Role != "integration" || b.Physical != "" || b.DatapathID != "00aa" || b.Connected {
		t.Errorf("%+v", b)
	}
	if b := list[2]; b.Name != "br-tun" || b.Role != "tunnel" || b.Error != "refused" {
		t.Errorf("%+v", b)
	}
}

// tunnelHost is an agent with two networks, one of them in tunnels, whose loop the test is.
func tunnelHost(t *testing.T, l2population bool) *Agent {
	t.Helper()
	two := fake.TwoNetworks(l2population)
	a, err := New(Config{
		Host: "hv1", Log: slog.New(slog.DiscardHandler), Notifier: observe.NewNotifier(func(string) string { return "" }, 1), World: two.Config(),
	}, &fakeSwitch{changes: make(chan *ovsdb.Batch)}, func(func(messaging.Event)) (Broker, error) { return &fakeBroker{}, nil })
	if err != nil {
		t.Fatal(err)
	}
	two.Fill(a.world())
	return a
}

// A bridge that is none of the agent's has no flows to show.
func TestFlowsOfABridgeThatIsNone(t *testing.T) {
	a := tunnelHost(t, false)
	if _, err := withLoop(t, a, func(ctx context.Context) ([]inspect.Flow, error) { return a.Flows(ctx, "br-no") }); !errors.Is(err, inspect.ErrNotFound) {
		t.Errorf("%v", err)
	}
}
