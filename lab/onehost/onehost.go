// SPDX-License-Identifier: Apache-2.0

// Package onehost runs an agent on a private Open vSwitch, with network namespaces as its VMs, for integration tests of extensions.
//
// The test says what the server answers ([Answer]) and how the agent is configured. Packets are real: clients run in the namespaces.
// One port is "port1", its VM has the interface eth0 with the MAC that [MAC] returns.
package onehost

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/agent"
	"github.com/patchbay-sdn/patchbay/internal/conntrack"
	"github.com/patchbay-sdn/patchbay/internal/inspect"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/observe"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/pipeline"
	"github.com/patchbay-sdn/patchbay/internal/runner"
	"github.com/patchbay-sdn/patchbay/internal/world"
	"github.com/patchbay-sdn/patchbay/lab/sim/region"
	"github.com/patchbay-sdn/patchbay/lab/vswitch"
	"github.com/patchbay-sdn/patchbay/openflow"
	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// Answer returns the objects of a kind that a bulk_pull with a filter finds. The simulated server answers if ok is false.
type Answer func(kind neutron.Kind, filter map[string]any) (found []map[string]any, ok bool)

// Host is an agent, its switch and its VMs.
type Host struct {
	*testing.T
	Switch *vswitch.Switch
	Agent  *agent.Agent
	// Configure, if set, changes what the agent is started with.
	Configure func(*agent.Config)
	// Away is whether broker and server are.
	Away atomic.Bool
	// Snapshot is the agent's file.
	Snapshot string
	// Calls, if set, answers calls of the agent with an error or none. The simulated server answers if ok is false.
	Calls func(method string, args map[string]any) (ok bool, err error)

	answer Answer
	served atomic.Pointer[messaging.Service]
	stop   func()
}

// New starts a switch with br-int and other bridges. The test sets Configure and calls Start; the agent ends with the test.
func New(t *testing.T, answer Answer, bridges ...string) *Host {
	t.Helper()
	h := &Host{T: t, Switch: vswitch.New(t), Snapshot: filepath.Join(t.TempDir(), "snapshot"), answer: answer, stop: func() {}}
	for _, br := range append([]string{"br-int"}, bridges...) {
		h.Vsctl("add-br", br, "--", "set", "Bridge", br, "datapath_type=netdev", "fail_mode=secure")
	}
	t.Cleanup(h.Stop)
	return h
}

// Filtered configures an agent with the openvswitch firewall.
func Filtered(c *agent.Config) {
	c.World.AntiSpoof, c.World.FilterTables, c.World.Filter, c.World.FailClosed = false, true, true, true
}

// Start starts the agent: without a firewall and without extensions, if Configure does not say otherwise.
func (h *Host) Start() {
	h.Helper()
	database, err := ovsdb.New(ovsdb.Config{Endpoint: "unix:" + h.Switch.DBSocket()})
	if err != nil {
		h.Fatal(err)
	}
	link := runner.Supervised(func(ctx context.Context, bridge string) (*openflow.Conn, error) {
		return openflow.Dial(ctx, "unix:"+h.Switch.MgmtSocket(bridge), openflow.Config{})
	})
	c := agent.Config{
		Host: "hv1", ReportInterval: 30 * time.Second, PortsPerReport: 20, Log: slog.New(slog.DiscardHandler), Snapshot: h.Snapshot,
		Link: link, PacketLink: link,
		World:     world.Config{Host: "hv1", IntegrationBridge: "br-int", AntiSpoof: true},
		Conntrack: untracked{},
		Settings:  pipeline.Settings{DatapathType: "netdev", MACTableSize: 50000, Controller: "tcp:127.0.0.1:6633", InactivityProbe: 10000},
		Notifier:  observe.NewNotifier(func(string) string { return "" }, 1),
	}
	if h.Configure != nil {
		h.Configure(&c)
	}
	sim := region.New(region.Config{})
	a, err := agent.New(c, database, func(func(messaging.Event)) (agent.Broker, error) {
		return &server{Link: sim.Join("hv1", nil), host: h}, nil
	})
	if err != nil {
		h.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	h.Agent = a
	h.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			h.Error(err)
		}
		sim.Close()
	})
}

// Stop stops the agent, if it runs.
func (h *Host) Stop() { h.stop() }

// Cast sends a message to all agents, of which there is one, if the agent listens to the topic.
func (h *Host) Cast(topic, method string, args any) {
	h.Helper()
	text, err := json.Marshal(args)
	if err != nil {
		h.Fatal(err)
	}
	h.Wait("the agent to listen to "+topic, func() bool { s := h.served.Load(); return s != nil && slices.Contains(s.Topics, topic) })
	if _, err := h.served.Load().Handler(h.Context(), &messaging.Message{Topic: topic, Fanout: true, Method: method, Version: "1.0", Args: text}); err != nil {
		h.Fatal(err)
	}
}

// Vsctl runs ovs-vsctl, and returns what it says.
func (h *Host) Vsctl(args ...string) string {
	h.Helper()
	out, err := h.Switch.Vsctl(h.Context(), args...)
	if err != nil {
		h.Fatalf("ovs-vsctl %v: %v: %s", args, err, out)
	}
	return out
}

// Run runs a command for at most 20 seconds.
func (h *Host) Run(name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(h.Context(), 20*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// Must runs a command that has to succeed.
func (h *Host) Must(name string, args ...string) string {
	h.Helper()
	out, err := h.Run(name, args...)
	if err != nil {
		h.Fatalf("%s %v: %v: %s", name, args, err, out)
	}
	return out
}

// In runs a command in a namespace.
func (h *Host) In(ns string, command ...string) (string, error) {
	return h.Run("ip", append([]string{"netns", "exec", ns}, command...)...)
}

// MAC returns the MAC of a port: one digit.
func MAC(n string) string { return "fa:16:3e:00:00:0" + n }

// VM makes a namespace with a link, tap1 and so on, to that of the switch. It returns the namespace.
func (h *Host) VM(n string) string {
	h.Helper()
	ns, tap := h.Switch.Netns()+"-vm"+n, "tap"+n
	h.Must("ip", "netns", "add", ns)
	h.Cleanup(func() { _, _ = exec.CommandContext(context.Background(), "ip", "netns", "del", ns).CombinedOutput() })
	h.Must("ip", "-n", h.Switch.Netns(), "link", "add", tap, "type", "veth", "peer", "name", "eth0", "address", MAC(n), "netns", ns)
	h.Must("ip", "-n", h.Switch.Netns(), "link", "set", tap, "up")
	h.Must("ip", "-n", ns, "link", "set", "lo", "up")
	h.Must("ip", "-n", ns, "link", "set", "eth0", "up")
	h.Must("ip", "netns", "exec", ns, "ethtool", "-K", "eth0", "tx", "off") // there is no card that would write checksums
	h.Must("ip", "-n", ns, "addr", "flush", "dev", "eth0")
	h.Must("ip", "-n", ns, "addr", "add", "fe80::f816:3eff:fe00:"+n+"/64", "dev", "eth0", "nodad")
	return ns
}

// Plug makes the VM of a port, and returns its namespace.
func (h *Host) Plug(n string) string {
	h.Helper()
	ns, tap := h.VM(n), "tap"+n
	h.Vsctl("add-port", "br-int", tap, "--", "set", "Interface", tap, "external_ids:iface-id=port"+n, `external_ids:attached-mac="`+MAC(n)+`"`)
	return ns
}

// RestartSwitch has ovs-vswitchd lose its flows.
func (h *Host) RestartSwitch() {
	h.Helper()
	if err := h.Switch.StopVswitchd(h.Context()); err != nil {
		h.Fatal(err)
	}
	if err := h.Switch.StartVswitchd(h.Context()); err != nil {
		h.Fatal(err)
	}
}

// Status is what the agent says about itself.
func (h *Host) Status() inspect.Status {
	h.Helper()
	s, err := h.Agent.Status(h.Context())
	if err != nil {
		h.Fatal(err)
	}
	return s
}

// Wait waits for something, 40 seconds at most.
func (h *Host) Wait(what string, ok func() bool) {
	h.Helper()
	for end := time.Now().Add(40 * time.Second); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			h.Fatalf("waited for %s; status %+v", what, h.Status())
		}
	}
}

// Wired waits until that many ports are, and the agent is in sync.
func (h *Host) Wired(ports int) {
	h.Helper()
	h.Wait("the ports to be wired", func() bool {
		s := h.Status()
		return s.Ports["wired"] == ports && s.Pending.Flows == 0 && s.InSync
	})
}

// server answers for the test, and as the simulated server does otherwise.
type server struct {
	*region.Link
	host *Host
}

var errAway = errors.New("the broker is away")

// Boxed returns an object as it is inside of another one.
func Boxed(data map[string]any) map[string]any {
	return map[string]any{"versioned_object.data": data}
}

func (s *server) Call(ctx context.Context, t messaging.Target, method string, args, result any) error {
	if s.host.Away.Load() {
		return errAway
	}
	all, _ := args.(map[string]any)
	if s.host.Calls != nil {
		if ok, err := s.host.Calls(method, all); ok {
			return err
		}
	}
	kind, _ := all["resource_type"].(neutron.Kind)
	filter, _ := all["filter_kwargs"].(map[string]any)
	found, ok := []map[string]any(nil), false
	if method == "bulk_pull" {
		found, ok = s.host.answer(kind, filter)
	}
	if !ok {
		return s.Link.Call(ctx, t, method, args, result)
	}
	objects := make([]any, 0, len(found))
	for _, data := range found {
		o := Boxed(data)
		o["versioned_object.name"], o["versioned_object.version"] = string(kind), "1.1"
		objects = append(objects, o)
	}
	text, err := json.Marshal(objects)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, result)
}

func (s *server) Serve(ctx context.Context, service messaging.Service) error {
	if s.host.Away.Load() {
		return errAway
	}
	s.host.served.Store(&service)
	return s.Link.Serve(ctx, service)
}

// untracked is connection tracking that has nothing to release.
type untracked struct{}

func (untracked) FlushZone(context.Context, uint16) error { return nil }
func (untracked) Marked(context.Context, uint16) ([]conntrack.Connection, error) {
	return nil, nil
}

func (untracked) Release(context.Context, uint16, []conntrack.Connection) (int, error) {
	return 0, nil
}
