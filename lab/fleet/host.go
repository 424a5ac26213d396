// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/agent"
	"github.com/patchbay-sdn/patchbay/internal/conntrack"
	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/fake"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/observe"
	"github.com/patchbay-sdn/patchbay/internal/options"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/pipeline"
	"github.com/patchbay-sdn/patchbay/internal/runner"
	"github.com/patchbay-sdn/patchbay/internal/trunk"
	"github.com/patchbay-sdn/patchbay/internal/world"
	"github.com/patchbay-sdn/patchbay/openflow"
	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// Bridges of hosts, and what leads out of them.
const (
	integration, tunnels, external = "br-int", "br-tun", "br-ex"

	vxlan, vlan, physnet = "vxlan", "vlan", "physnet1"
)

// host is a host of the fleet: a switch, which stays, and an agent, which comes and goes.
type host struct {
	name string
	ip   netip.Addr
	kind string // of networks
	of   *project
	ovs  *fake.OVS
	vms  []*vm // plugged in
	made int   // ports that were ever plugged in

	mu      sync.Mutex
	running *running // nil without an agent
	started time.Time
	watches []*watch
}

// vm is a port of a host.
type vm struct {
	id, mac string
	ip      netip.Addr
	ofport  int
}

// running is an agent at work.
type running struct {
	*agent.Agent
	cancel  context.CancelFunc
	crashed *atomic.Bool
	done    chan struct{}
}

func newHost(n int, of *project, kind string) *host {
	h := &host{name: fmt.Sprintf("hv%05d", n), ip: address(n), kind: kind, of: of, ovs: fake.NewOVS()}
	h.ovs.Mu.Lock()
	defer h.ovs.Mu.Unlock()
	h.ovs.AddBridge(integration, nil)
	if kind == vlan {
		h.ovs.AddBridge(external, nil)
	}
	h.ovs.Run()
	h.ovs.Committed = h.committed
	return h
}

// address is the tunnel endpoint of the n-th host.
func address(n int) netip.Addr {
	return netip.AddrFrom4([4]byte{172, 16 + byte(n>>16), byte(n >> 8), byte(n)})
}

// plug puts the interface of a VM into the integration bridge, as a hypervisor does.
func (h *host) plug(v *vm) {
	h.ovs.Mu.Lock()
	defer h.ovs.Mu.Unlock()
	h.ovs.AddPort(integration, tap(v.id), h.made, v.ofport, map[string]string{"iface-id": v.id, "attached-mac": v.mac})
	h.ovs.Run()
}

// number gives a VM a port number that no other had.
func (h *host) number(v *vm) {
	h.made++
	v.ofport = firstPort + h.made
}

// firstPort is behind the numbers that the switch gives to its own ports.
const firstPort = 10000

func (h *host) unplug(v *vm) {
	h.ovs.Mu.Lock()
	defer h.ovs.Mu.Unlock()
	h.ovs.DeletePort(tap(v.id))
	h.ovs.Run()
}

func tap(id string) string { return "tap" + id[:11] }

// tracking stands in for connection tracking: no connections are there.
type tracking struct{}

func (tracking) FlushZone(context.Context, uint16) error { return nil }

func (tracking) Marked(context.Context, uint16) ([]conntrack.Connection, error) { return nil, nil }

func (tracking) Release(context.Context, uint16, []conntrack.Connection) (int, error) { return 0, nil }

// config is an agent's on a host with the openvswitch firewall, over a switch; with tunnels it has l2population.
func (h *host) config(ovs *fake.OVS, log *slog.Logger) agent.Config {
	w := world.Config{Host: h.name, IntegrationBridge: integration, Physical: map[string]string{}, FilterTables: true, Filter: true, FailClosed: true}
	c := neutron.Configurations{
		IntegrationBridge: integration, TunnelTypes: []string{}, DatapathType: "system", BridgeMappings: map[string]string{}, Extensions: []string{},
	}
	if h.kind == vxlan {
		ip := h.ip.String()
		w.TunnelBridge, w.IntPatch, w.TunPatch, w.TunnelTypes, w.LocalIP = tunnels, "patch-tun", "patch-int", []string{vxlan}, h.ip
		w.L2Population, w.ARPResponder = true, true
		c.TunnelTypes, c.TunnelingIP, c.L2Population, c.ARPResponderEnabled = w.TunnelTypes, &ip, true, true
	} else {
		w.Physical[physnet], c.BridgeMappings[physnet] = external, external
	}
	return agent.Config{
		Host: h.name, ReportInterval: 30 * time.Second, PortsPerReport: 20, Log: log, Conntrack: tracking{}, Extensions: []extension.New{trunk.New},
		World: w, Configurations: c,
		Settings: pipeline.Settings{DatapathType: "system", MACTableSize: 50000, VXLANPort: 4789, DontFragment: true, Controller: "tcp:127.0.0.1:6633"},
		Notifier: observe.NewNotifier(func(string) string { return "" }, 1),
		Link: runner.Supervised(func(ctx context.Context, bridge string) (*openflow.Conn, error) {
			return ovs.Bridge(bridge).Dial(ctx, openflow.Config{})
		}),
	}
}

// run begins an agent over a switch. Open makes its broker's client.
func run(ctx context.Context, cfg agent.Config, ovs *fake.OVS, open func(func(messaging.Event)) (agent.Broker, error)) (*running, error) {
	database, err := ovsdb.New(ovsdb.Config{Dial: ovs.Dial})
	if err != nil {
		return nil, err
	}
	a, err := agent.New(cfg, database, open)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	r := &running{Agent: a, cancel: cancel, done: make(chan struct{}), crashed: &atomic.Bool{}}
	go func() {
		defer close(r.done)
		_ = a.Run(ctx) // always nil
	}()
	return r, nil
}

// client is the agent's broker client, and counts.
type client struct {
	*messaging.Client
	counts  *counts
	crashed *atomic.Bool
}

// Call implements agent.Broker.
func (c *client) Call(ctx context.Context, t messaging.Target, method string, args, result any) error {
	c.counts.calls.Add(1)
	err := c.Client.Call(ctx, t, method, args, result)
	c.counts.called(method, err)
	return err
}

// Serve implements agent.Broker.
func (c *client) Serve(ctx context.Context, s messaging.Service) error {
	handler := s.Handler
	s.Handler = func(ctx context.Context, m *messaging.Message) (any, error) {
		c.counts.deliveries.Add(1)
		return handler(ctx, m)
	}
	return c.Client.Serve(ctx, s)
}

// Close implements agent.Broker. An agent that crashed deletes nothing.
func (c *client) Close(ctx context.Context) error {
	if c.crashed.Load() {
		over, cancel := context.WithCancel(ctx)
		cancel()
		ctx = over
	}
	return c.Client.Close(ctx)
}

// start starts the agent of a host, if there is none.
func (h *host) start(ctx context.Context, f *Fleet) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.running != nil {
		return nil
	}
	crashed := &atomic.Bool{}
	r, err := run(ctx, h.config(h.ovs, f.log), h.ovs, func(onEvent func(messaging.Event)) (agent.Broker, error) {
		cfg := messaging.Config{
			URL: f.url, Exchange: "neutron", Program: options.Program, Host: h.name, OnEvent: onEvent,
			Context: func(context.Context) map[string]any { return neutron.RequestContext(time.Now()) },
		}
		if f.cfg.Layout != Classic {
			cfg.Hub, cfg.HubStream = "patchbay", f.cfg.Layout == Stream
		}
		c, err := messaging.Open(cfg)
		return &client{c, &f.counts, crashed}, err
	})
	if err != nil {
		return err
	}
	r.crashed, h.running, h.started = crashed, r, time.Now()
	return nil
}

// end ends the agent of a host, as a stop does, or a crash: then it leaves its queues behind. Wait waits until it is gone.
func (h *host) end(crash bool) (wait func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.running
	if r == nil {
		return func() {}
	}
	for _, w := range h.watches {
		w.disturbed = true
	}
	h.running = nil
	r.crashed.Store(crash)
	r.cancel()
	return func() { <-r.done }
}

// inSync says whether the agent of a host is, and why not.
func (h *host) inSync(ctx context.Context) (bool, string) {
	h.mu.Lock()
	r := h.running
	h.mu.Unlock()
	if r == nil {
		return false, "no agent"
	}
	s, err := r.Status(ctx)
	switch {
	case err != nil:
		return false, err.Error()
	case len(s.Reasons) > 0:
		return s.InSync, s.Reasons[0]
	}
	return s.InSync, ""
}
