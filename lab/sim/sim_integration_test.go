// SPDX-License-Identifier: Apache-2.0

//go:build integration

package sim_test

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/lab/broker"
	"github.com/patchbay-sdn/patchbay/lab/sim"
	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// listener is an agent's side of the conversation.
type listener struct {
	*neutron.Server
	versions neutron.Versions
	heard    chan any
	kept     []any // heard while something else was waited for
}

func listen(ctx context.Context, t *testing.T, url, host string) *listener {
	t.Helper()
	u, err := messaging.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	c, err := messaging.Open(messaging.Config{URL: u, Exchange: "neutron", Program: "neutron-openvswitch-agent", Host: host})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	l := &listener{Server: neutron.NewServer(c, host), heard: make(chan any, 100)}
	releases, versions, err := neutron.Negotiate(ctx, l.Server)
	if err != nil || releases != "21 to 22" {
		t.Fatalf("an agent takes it for %q: %v", releases, err)
	}
	l.versions = versions
	err = c.Serve(ctx, messaging.Service{
		Topics: neutron.Topics(versions, true, neutron.KindPort, neutron.KindSecurityGroup, neutron.KindSecurityGroupRule),
		Handler: func(_ context.Context, m *messaging.Message) (any, error) {
			msg, err := neutron.DecodeMessage(m.Topic, m.Method, m.Args)
			if err != nil {
				t.Error(err)
			} else if msg != nil {
				l.heard <- msg
			}
			return nil, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func (l *listener) report(ctx context.Context, t *testing.T, host, ip string) neutron.AgentStatus {
	t.Helper()
	status, err := l.ReportState(ctx, neutron.AgentState{
		Binary: neutron.Binary, Host: host, Topic: "N/A", AgentType: neutron.AgentType, StartFlag: true, UUID: "u",
		Configurations: neutron.Configurations{
			TunnelTypes: []string{"vxlan"}, TunnelingIP: &ip, IntegrationBridge: "br-int", DatapathType: "netdev",
		},
	}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return status
}

// next is the next message of a type. Others before it are kept: kinds of messages overtake each other.
func next[T any](t *testing.T, l *listener) *T {
	t.Helper()
	for i, m := range l.kept {
		if found, ok := m.(*T); ok {
			l.kept = slices.Delete(l.kept, i, i+1)
			return found
		}
	}
	for deadline := time.After(10 * time.Second); ; {
		select {
		case m := <-l.heard:
			if found, ok := m.(*T); ok {
				return found
			}
			l.kept = append(l.kept, m)
		case <-deadline:
			t.Fatalf("no %T came", *new(T))
		}
	}
}

func port(t *testing.T, p *neutron.Push) neutron.Port {
	t.Helper()
	list, err := neutron.DecodeAll[neutron.Port](neutron.KindPort, p.Objects)
	if err != nil || len(list) != 1 {
		t.Fatalf("%v, %v", list, err)
	}
	return list[0]
}

// pushOf is the next push about objects of a kind.
func pushOf(t *testing.T, l *listener, kind neutron.Kind) *neutron.Push {
	t.Helper()
	for {
		if p := next[neutron.Push](t, l); p.Kind == kind {
			return p
		}
	}
}

// started is a simulated server on a broker of its own, and the time that the test has.
func started(t *testing.T, limit time.Duration) (context.Context, *broker.Broker, *sim.Server) {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	b := broker.New(t)
	s, err := sim.Start(ctx, sim.Config{URL: b.URL(), Log: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	return ctx, b, s
}

func TestALifeOfAPort(t *testing.T) {
	ctx, b, s := started(t, 2*time.Minute)
	one, two := listen(ctx, t, b.URL(), "hv1"), listen(ctx, t, b.URL(), "hv2")
	if got := one.report(ctx, t, "hv1", "192.0.2.1"); got != neutron.StatusNew {
		t.Errorf("first report: %s", got)
	}
	if got := one.report(ctx, t, "hv1", "192.0.2.1"); got != neutron.StatusAlive {
		t.Errorf("second report: %s", got)
	}
	two.report(ctx, t, "hv2", "192.0.2.2")
	if list, err := two.TunnelSync(ctx, netip.MustParseAddr("192.0.2.2"), "vxlan"); err != nil || len(list) != 1 {
		t.Errorf("tunnels %v, %v", list, err)
	}
	if m := next[neutron.TunnelUpdate](t, one); m.IP.String() != "192.0.2.2" {
		t.Errorf("hv1 hears of the endpoint %v", m)
	}

	made, err := s.Populate(ctx, sim.Population{Project: "x", Host: "hv1", Ports: 1, Groups: 1, Members: 3})
	if err != nil {
		t.Fatal(err)
	}
	id := made.Local[0].ID
	found, err := one.BulkPull(ctx, one.versions, neutron.KindPort, map[string]any{"id": []string{id}})
	if err != nil || len(found) != 1 {
		t.Fatalf("found %v, %v", found, err)
	}
	var p neutron.Port
	if err := found[0].Decode(neutron.KindPort, &p); err != nil {
		t.Fatal(err)
	}
	if p.Status != "DOWN" || len(p.BindingLevels) != 1 || p.BindingLevels[0].Segment.Value.NetworkType != "vxlan" || !slices.Equal(p.SecurityGroupIDs, made.Groups) {
		t.Errorf("the local port is %+v", p)
	}
	members, err := one.BulkPull(ctx, one.versions, neutron.KindPort, map[string]any{"security_group_ids": made.Remotes})
	if err != nil || len(members) != 3 {
		t.Errorf("%d members, %v", len(members), err)
	}
	rules, err := one.BulkPull(ctx, one.versions, neutron.KindSecurityGroupRule, map[string]any{"security_group_id": made.Groups})
	if err != nil || len(rules) != 4 {
		t.Errorf("%d rules, %v", len(rules), err)
	}

	if _, err := one.UpdateDevices(ctx, neutron.DeviceUpdate{Up: []string{id}}); err != nil {
		t.Fatal(err)
	}
	if got := s.Status(id); got != "ACTIVE" {
		t.Errorf("a wired port is %s", got)
	}
	fdb := next[neutron.FDBAdd](t, two).Networks[made.Network.ID].Ports[netip.MustParseAddr("192.0.2.1")]
	if len(fdb) != 2 || !fdb[0].Flood() || fdb[1].IP != p.FixedIPs[0].IP {
		t.Errorf("forwarding entries %v", fdb)
	}

	if got := port(t, pushOf(t, two, neutron.KindPort)); got.Status != "ACTIVE" || got.ID != id {
		t.Errorf("hv2 hears of %s %s", got.ID, got.Status)
	}

	added, err := s.AddMember(ctx, made, 0)
	if err != nil {
		t.Fatal(err)
	}
	if got := port(t, pushOf(t, two, neutron.KindPort)); got.ID != added.ID || !slices.Equal(got.SecurityGroupIDs, made.Remotes) {
		t.Errorf("the new member is told as %+v", got)
	}
	if err := s.DeletePort(ctx, added.ID); err != nil {
		t.Fatal(err)
	}
	for {
		if push := pushOf(t, two, neutron.KindPort); push.Event == neutron.Deleted {
			if !strings.Contains(string(push.Objects[0].Data), added.ID) {
				t.Errorf("deleted %s", push.Objects[0].Data)
			}
			break
		}
	}
	if _, err := one.DeviceDown(ctx, id); err != nil || s.Status(id) != "DOWN" {
		t.Errorf("an unplugged port is %s, %v", s.Status(id), err)
	}
	next[neutron.FDBRemove](t, two) // the deleted member's
	if gone := next[neutron.FDBRemove](t, two).Networks[made.Network.ID].Ports[netip.MustParseAddr("192.0.2.1")]; len(gone) != 2 || !gone[0].Flood() {
		t.Errorf("removed entries %v", gone)
	}
}

func TestChurn(t *testing.T) {
	ctx, b, s := started(t, time.Minute)
	l := listen(ctx, t, b.URL(), "hv1")
	made, err := s.Populate(ctx, sim.Population{Groups: 2, Members: 2})
	if err != nil {
		t.Fatal(err)
	}
	some, stop := context.WithTimeout(ctx, 2*time.Second)
	defer stop()
	n, err := s.Churn(some, made, 20)
	if err != nil || n < 10 || n > 42 {
		t.Errorf("%d changes in 2 s at 20 a second, %v", n, err)
	}
	kinds := map[neutron.Kind]int{}
	for len(l.heard) > 0 {
		if p, ok := (<-l.heard).(*neutron.Push); ok {
			kinds[p.Kind]++
		}
	}
	if kinds[neutron.KindPort] == 0 || kinds[neutron.KindSecurityGroupRule] == 0 {
		t.Errorf("heard of %v", kinds)
	}
}
