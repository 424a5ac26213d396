// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/world"
	sim "github.com/patchbay-sdn/patchbay/lab/sim/region"
	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// unregistered is a connection on which state reports are lost for a while, to a server that may be of a release that nobody knows yet: what it pushes in its
// own versions is not listened to.
type unregistered struct {
	*sim.Link
	unknown bool
	lost    atomic.Bool
}

func (u *unregistered) Call(ctx context.Context, t messaging.Target, method string, args, result any) error {
	if method == "report_state" && u.lost.Load() {
		return messaging.ErrTimeout
	}
	return u.Link.Call(ctx, t, method, args, result)
}

func (u *unregistered) Serve(ctx context.Context, s messaging.Service) error {
	if u.unknown {
		s.Topics = slices.DeleteFunc(slices.Clone(s.Topics), func(t string) bool { return t == "neutron-vo-Port-1.11" })
	}
	return u.Link.Serve(ctx, s)
}

// A server with newer objects pushes ours from the first state report on. What changed before it, after a port was asked for, is heard in the versions that the
// server may have, and if these are newer than any that are known, soon after the report.
func TestWhatChangedBeforeTheFirstReport(t *testing.T) {
	for name, c := range map[string]struct {
		unknown bool
		before  string // the port's status before the first report
	}{
		"a release that is known": {false, "DOWN"},
		"a later one":             {true, "ACTIVE"},
	} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { changesUnreported(t, c.unknown, c.before) }) })
	}
}

func changesUnreported(t *testing.T, unknown bool, before string) {
	t.Helper()
	cloud := sim.New(sim.Config{Release: 29, Seed: 1})
	t.Cleanup(cloud.Close)
	cloud.AddAgent("hv1", netip.MustParseAddr("10.0.0.1"))
	n, err := cloud.CreateNetwork(t.Context(), sim.NetworkSpec{Segment: sim.Segment{NetworkType: "local"}})
	if err != nil {
		t.Fatal(err)
	}
	id, mac, owner, host, on := "A", macOf("A"), "compute:nova", "hv1", true
	spec := sim.PortSpec{ID: &id, MAC: &mac, NetworkID: &n.ID, DeviceOwner: &owner, Host: &host, AdminUp: &on}
	if _, err := cloud.CreatePort(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	l, ovs, u := newLife(0, func() {}), newFakeOVS(), &unregistered{unknown: unknown}
	u.lost.Store(true)
	_, _, cancel, done := startAgent(t, world.Config{Host: "hv1", IntegrationBridge: "br-int"}, ovs, l, func(onEvent func(messaging.Event)) Broker {
		u.Link = cloud.Join("hv1", onEvent)
		return u
	}, nil, "", slog.New(slog.DiscardHandler))
	wait(time.Second)
	ovs.plug("A", 0, 10)
	wait(time.Second)
	if got := cloud.Status("A"); got != "ACTIVE" {
		t.Errorf("without a state report the port is %s", got)
	}
	on = false
	if _, err := cloud.UpdatePort(t.Context(), "A", sim.PortSpec{AdminUp: &on}); err != nil {
		t.Fatal(err)
	}
	wait(time.Minute)
	if got := cloud.Status("A"); got != before {
		t.Errorf("before the first state report the port that was switched off is %s, want %s", got, before)
	}
	u.lost.Store(false)
	wait(40 * time.Second)
	if got := cloud.Status("A"); got != "DOWN" {
		t.Errorf("after the first state report the port is %s", got)
	}
	l.crash()
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
