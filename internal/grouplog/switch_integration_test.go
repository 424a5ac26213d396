// SPDX-License-Identifier: Apache-2.0

//go:build integration

package grouplog_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/agent"
	"github.com/patchbay-sdn/patchbay/internal/conntrack"
	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/grouplog"
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

// cloud is a server that knows the ports of the test, their group and a log of all events of their project.
type cloud struct{ *region.Link }

func boxed(data map[string]any) map[string]any {
	return map[string]any{"versioned_object.data": data}
}

func (c *cloud) Call(ctx context.Context, t messaging.Target, method string, args, result any) error {
	all, _ := args.(map[string]any)
	kind, _ := all["resource_type"].(neutron.Kind)
	filter, _ := all["filter_kwargs"].(map[string]any)
	ids, byID := filter["id"].([]string)
	var found []any
	add := func(data map[string]any) {
		o := boxed(data)
		o["versioned_object.name"], o["versioned_object.version"] = string(kind), "1.1"
		found = append(found, o)
	}
	switch {
	case method != "bulk_pull":
		return c.Link.Call(ctx, t, method, args, result)
	case kind == neutron.KindPort && byID:
		for _, id := range ids {
			add(portOf(strings.TrimPrefix(id, "port")))
		}
	case kind == neutron.KindPort: // the members of the group
		add(portOf("1"))
		add(portOf("2"))
	case kind == neutron.KindSecurityGroup:
		rule := func(id string, more map[string]any) map[string]any {
			more["id"], more["security_group_id"], more["ethertype"] = id, "g", "IPv4"
			return boxed(more)
		}
		add(map[string]any{"id": "g", "name": "g", "revision_number": 1, "rules": []any{
			rule("out", map[string]any{"direction": "egress"}),
			rule("in", map[string]any{"direction": "ingress", "protocol": "tcp", "port_range_min": 22, "port_range_max": 22}),
			rule("members", map[string]any{"direction": "ingress", "protocol": "icmp", "remote_group_id": "g"}),
		}})
	case kind == neutron.KindLog:
		if by, _ := filter["resource_type"].([]string); len(by) != 1 || by[0] != "security_group" {
			return fmt.Errorf("logs are asked for by %v", filter)
		}
		add(map[string]any{"id": "thelog", "project_id": "a", "resource_type": "security_group", "event": "ALL", "enabled": true, "revision_number": 1})
	default:
		return c.Link.Call(ctx, t, method, args, result)
	}
	text, err := json.Marshal(found)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, result)
}

func mac(n string) string { return "fa:16:3e:00:00:0" + n }

func portOf(n string) map[string]any {
	return map[string]any{
		"id": "port" + n, "network_id": "net", "project_id": "a", "mac_address": mac(n), "admin_state_up": true, "device_owner": "compute:nova", "status": "DOWN",
		"revision_number": 1, "security_group_ids": []string{"g"},
		"fixed_ips":      []any{boxed(map[string]any{"subnet_id": "s4", "ip_address": "10.5.0.1" + n})},
		"bindings":       []any{boxed(map[string]any{"host": "hv1", "status": "ACTIVE"})},
		"binding_levels": []any{boxed(map[string]any{"host": "hv1", "segment": boxed(map[string]any{"network_type": "local"})})},
	}
}

// bench is an agent on a real switch with namespaces for VMs.
type bench struct {
	*testing.T
	sw    *vswitch.Switch
	agent *agent.Agent
	mu    sync.Mutex
	lines []string
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

func newBench(t *testing.T) *bench {
	b := &bench{T: t, sw: vswitch.New(t)}
	b.must("add-br", func() (string, error) {
		return b.sw.Vsctl(t.Context(), "add-br", "br-int", "--", "set", "Bridge", "br-int", "datapath_type=netdev", "fail_mode=secure")
	})
	database, err := ovsdb.New(ovsdb.Config{Endpoint: "unix:" + b.sw.DBSocket()})
	if err != nil {
		t.Fatal(err)
	}
	sim := region.New(region.Config{})
	b.agent, err = agent.New(agent.Config{
		Host: "hv1", ReportInterval: 30 * time.Second, PortsPerReport: 20, Log: slog.New(slog.DiscardHandler),
		Link: runner.Supervised(func(ctx context.Context, bridge string) (*openflow.Conn, error) {
			return openflow.Dial(ctx, "unix:"+b.sw.MgmtSocket(bridge), openflow.Config{})
		}),
		World:      world.Config{Host: "hv1", IntegrationBridge: "br-int", FilterTables: true, Filter: true, FailClosed: true},
		Conntrack:  untracked{},
		Settings:   pipeline.Settings{DatapathType: "netdev", MACTableSize: 50000, Controller: "tcp:127.0.0.1:6633", InactivityProbe: 10000},
		Extensions: []extension.New{grouplog.New(extension.Bound{Rate: 100, Burst: 25})},
		Records: func(r agent.Records, _ uint64) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.lines = append(b.lines, r.Lines...)
		},
		Notifier: observe.NewNotifier(func(string) string { return "" }, 1),
	}, database, func(func(messaging.Event)) (agent.Broker, error) { return &cloud{sim.Join("hv1", nil)}, nil })
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- b.agent.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		sim.Close()
	})
	return b
}

func (b *bench) must(what string, f func() (string, error)) string {
	b.Helper()
	out, err := f()
	if err != nil {
		b.Fatalf("%s: %v: %s", what, err, out)
	}
	return out
}

func (b *bench) run(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(b.Context(), 20*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "ip", args...).CombinedOutput()
	return string(out), err
}

func (b *bench) ip(args ...string) {
	b.Helper()
	b.must(strings.Join(args, " "), func() (string, error) { return b.run(args...) })
}

func (b *bench) in(n string, args ...string) (string, error) {
	return b.run(append([]string{"netns", "exec", b.sw.Netns() + "-vm" + n}, args...)...)
}

// plug makes the VM of a port.
func (b *bench) plug(n string) {
	b.Helper()
	b.link(n, "--", "set", "Interface", "tap"+n, "external_ids:iface-id=port"+n, `external_ids:attached-mac="`+mac(n)+`"`)
}

// link makes a namespace, and adds its interface to the switch.
func (b *bench) link(n string, more ...string) {
	b.Helper()
	ns, tap := b.sw.Netns()+"-vm"+n, "tap"+n
	b.ip("netns", "add", ns)
	b.Cleanup(func() { _, _ = exec.CommandContext(context.Background(), "ip", "netns", "del", ns).CombinedOutput() })
	b.ip("-n", b.sw.Netns(), "link", "add", tap, "type", "veth", "peer", "name", "eth0", "address", mac(n), "netns", ns)
	b.ip("-n", b.sw.Netns(), "link", "set", tap, "up")
	b.ip("-n", ns, "link", "set", "eth0", "up")
	b.must("ethtool", func() (string, error) { return b.in(n, "ethtool", "-K", "eth0", "tx", "off") })
	b.ip("-n", ns, "addr", "add", "10.5.0.1"+n+"/24", "dev", "eth0")
	b.must("add-port", func() (string, error) {
		return b.sw.Vsctl(b.Context(), append([]string{"add-port", "br-int", tap}, more...)...)
	})
}

func (b *bench) status() inspect.Status {
	b.Helper()
	s, err := b.agent.Status(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	return s
}

func (b *bench) wait(what string, ok func() bool) {
	b.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			b.Fatalf("waited for %s; lines %s; status %+v", what, strings.Join(b.taken("action="), "\n"), b.status())
		}
	}
}

// taken returns the lines that have all of the texts.
func (b *bench) taken(texts ...string) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []string
line:
	for _, line := range b.lines {
		for _, text := range texts {
			if !strings.Contains(line, text) {
				continue line
			}
		}
		out = append(out, line)
	}
	return out
}

// TestRealPackets has VMs on one host ping, connect, be refused and forge their address. What is logged is what happened, once a connection, in both directions, and
// nothing of what packets carry; and packets go where they went without a log.
func TestRealPackets(t *testing.T) {
	b := newBench(t)
	b.plug("1")
	b.plug("2")
	b.wait("the ports to be wired", func() bool {
		s := b.status()
		return s.Ports["wired"] == 2 && s.Pending.Flows == 0 && s.InSync
	})
	one := func(what string, texts ...string) {
		t.Helper()
		b.wait("a line about "+what, func() bool { return len(b.taken(texts...)) > 0 })
		if lines := b.taken(texts...); len(lines) != 1 {
			t.Errorf("%s is logged %d times:\n%s", what, len(lines), strings.Join(lines, "\n"))
		}
	}
	b.must("ping", func() (string, error) { return b.in("1", "ping", "-c", "3", "-i", "0.2", "-W", "2", "10.5.0.12") })
	one("the ping that leaves", "action=ACCEPT project_id=a log_resource_ids=['thelog'] vm_port=port1 ", "icmp(", "type=8")
	one("the ping that arrives, by a rule about members", "action=ACCEPT", "vm_port=port2 ", "icmp(", "type=8")

	server := exec.CommandContext(t.Context(), "ip", "netns", "exec", b.sw.Netns()+"-vm2", "python3", "-c",
		"import socket;s=socket.create_server(('10.5.0.12',22));print('up',flush=True);c,_=s.accept();print(c.recv(100).decode(),flush=True)")
	var out strings.Builder
	server.Stdout = &out
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	b.wait("the server to listen", func() bool { listens, _ := b.in("2", "ss", "-ltn"); return strings.Contains(listens, "10.5.0.12:22") })
	b.must("tcp", func() (string, error) {
		return b.in("1", "python3", "-c", "import socket;s=socket.create_connection(('10.5.0.12',22),3);s.send(b'sesame');s.close()")
	})
	if err := server.Wait(); err != nil || !strings.Contains(out.String(), "sesame") {
		t.Errorf("the server got %q: %v", out.String(), err)
	}
	one("the connection that leaves", "action=ACCEPT", "vm_port=port1 ", "dst_port=22,", "bits=2,")
	one("the connection that arrives", "action=ACCEPT", "vm_port=port2 ", "dst_port=22,", "bits=2,")

	if _, err := b.in("1", "python3", "-c", "import socket;s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM);s.sendto(b'sesame',('10.5.0.12',53))"); err != nil {
		t.Fatal(err)
	}
	one("what no rule allows in", "action=DROP", "vm_port=port2 ", "udp(", "dst_port=53,")
	one("what a rule allowed out", "action=ACCEPT", "vm_port=port1 ", "udp(", "dst_port=53,")

	// To who is not of this host: the packet arrives once, and is logged once.
	tag := b.must("tag", func() (string, error) {
		out, err := b.sw.Vsctl(t.Context(), "get", "Port", "tap1", "tag")
		return strings.TrimSpace(out), err
	})
	b.link("3", "tag="+tag)
	b.wait("the way out", func() bool { _, err := b.in("1", "ping", "-c", "1", "-W", "1", "10.5.0.13"); return err == nil })
	counted := make(chan string, 1)
	go func() {
		out, _ := b.in("3", "python3", "-c", "import socket\ns=socket.socket(socket.AF_INET,socket.SOCK_DGRAM);s.bind(('10.5.0.13',77));s.settimeout(2)\ntry:\n while True: print(s.recv(9),flush=True)\nexcept TimeoutError: pass")
		counted <- out
	}()
	b.wait("the receiver", func() bool { listens, _ := b.in("3", "ss", "-lun"); return strings.Contains(listens, "10.5.0.13:77") })
	b.must("udp", func() (string, error) {
		return b.in("1", "python3", "-c", "import socket;s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM);s.sendto(b'sesame',('10.5.0.13',77))")
	})
	if got := <-counted; strings.Count(got, "sesame") != 1 {
		t.Errorf("who is not of this host got %q", got)
	}
	one("what leaves the host", "action=ACCEPT", "vm_port=port1 ", "udp(", "dst_port=77,")

	b.ip("-n", b.sw.Netns()+"-vm1", "addr", "add", "10.5.0.99/24", "dev", "eth0")
	if _, err := b.in("1", "python3", "-c", "import socket;s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM);s.bind(('10.5.0.99',0));s.sendto(b'sesame',('10.5.0.12',54))"); err != nil {
		t.Fatal(err)
	}
	one("a forged address", "action=DROP", "vm_port=port1 ", "udp(", "dst_port=54,")
	if lines := b.taken("sesame"); len(lines) != 0 {
		t.Errorf("what packets carry is in the log:\n%s", strings.Join(lines, "\n"))
	}
}

// TestFlood has a VM send 20,000 packets that are dropped. The log has as many lines as the options allow, the switch drops the rest, and another VM's
// connection is logged meanwhile.
func TestFlood(t *testing.T) {
	b := newBench(t)
	b.plug("1")
	b.plug("2")
	b.wait("the ports to be wired", func() bool {
		s := b.status()
		return s.Ports["wired"] == 2 && s.Pending.Flows == 0 && s.InSync
	})
	b.must("ping", func() (string, error) { return b.in("2", "ping", "-c", "1", "-W", "2", "10.5.0.11") }) // so that addresses are known
	began := time.Now()
	b.ip("-n", b.sw.Netns()+"-vm1", "addr", "add", "10.5.0.99/24", "dev", "eth0")
	if out, err := b.in("1", "python3", "-c", "import socket\ns=socket.socket(socket.AF_INET,socket.SOCK_DGRAM);s.bind(('10.5.0.99',0))\nfor i in range(20000): s.sendto(b'x',('10.5.0.12',99))"); err != nil {
		t.Fatal(err, out)
	}
	b.must("tcp", func() (string, error) {
		return b.in("2", "python3", "-c", "import socket\ns=socket.socket()\ns.settimeout(3)\nassert s.connect_ex(('10.5.0.11',22)) == 111")
	})
	b.wait("the other VM's connection", func() bool { return len(b.taken("action=ACCEPT", "vm_port=port2 ", "dst_port=22,")) > 0 })
	took := time.Since(began)
	// Both bounds: that of the host, and the share of the port.
	most := 25 + 5 + int(took.Seconds()*(100+1)) + 1
	lines := len(b.taken("vm_port=port1 ", "dst_port=99,"))
	if lines < 10 || lines > most {
		t.Errorf("%d lines in %s, want at most %d", lines, took, most)
	}
	taken := b.status().Totals.Packets["log"]
	t.Logf("20,000 packets in %s: %d lines, packets that reached the agent: %v", took, lines, taken)
	if n := taken["logged"] + taken["limited"]; n > uint64(most)+100 {
		t.Errorf("%d packets reached the agent", n)
	}
}
