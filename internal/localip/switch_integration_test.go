// SPDX-License-Identifier: Apache-2.0

//go:build integration

package localip_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/agent"
	"github.com/patchbay-sdn/patchbay/internal/conntrack"
	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/inspect"
	"github.com/patchbay-sdn/patchbay/internal/localip"
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

// cloud is a server that knows the ports of the test, their group and the local IP of one of them.
type cloud struct {
	*region.Link
	mode mode
}

// The address that leads to port 2, and that the VM outside of the host has.
const local = "10.5.0.13"

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
			add(portOf(strings.TrimPrefix(id, "port"), c.mode))
		}
	case kind == neutron.KindPort: // the members of the group
		add(portOf("1", c.mode))
		add(portOf("2", c.mode))
	case kind == neutron.KindSecurityGroup:
		rule := func(id string, more map[string]any) map[string]any {
			more["id"], more["security_group_id"], more["ethertype"] = id, "g", "IPv4"
			return boxed(more)
		}
		add(map[string]any{"id": "g", "name": "g", "revision_number": 1, "rules": []any{
			rule("out", map[string]any{"direction": "egress"}),
			rule("tcp", map[string]any{"direction": "ingress", "protocol": "tcp", "port_range_min": 22, "port_range_max": 22, "remote_group_id": "g"}),
			rule("udp", map[string]any{"direction": "ingress", "protocol": "udp", "port_range_min": 53, "port_range_max": 53}),
			rule("icmp", map[string]any{"direction": "ingress", "protocol": "icmp"}),
		}})
	case kind == neutron.KindLocalIPAssociation:
		asked, _ := filter["fixed_port_id"].([]string)
		if len(asked) == 0 {
			return fmt.Errorf("associations are asked for by %v", filter)
		}
		if slices.Contains(asked, "port2") {
			add(map[string]any{"local_ip_id": "lip", "fixed_port_id": "port2", "fixed_ip": "10.5.0.12", "local_ip": boxed(map[string]any{"local_ip_address": local, "ip_mode": "translate"})})
		}
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

func portOf(n string, m mode) map[string]any {
	return map[string]any{
		"id": "port" + n, "network_id": "net", "project_id": "a", "mac_address": mac(n), "admin_state_up": true, "device_owner": "compute:nova", "status": "DOWN",
		"revision_number": 1, "security_group_ids": []string{"g"},
		"security":       boxed(map[string]any{"port_security_enabled": n != "2" || !m.open}),
		"fixed_ips":      []any{boxed(map[string]any{"subnet_id": "s4", "ip_address": "10.5.0.1" + n})},
		"bindings":       []any{boxed(map[string]any{"host": "hv1", "status": "ACTIVE"})},
		"binding_levels": []any{boxed(map[string]any{"host": "hv1", "segment": boxed(map[string]any{"network_type": "vlan", "physical_network": "physnet1", "segmentation_id": 101})})},
	}
}

// bench is an agent on a real switch with namespaces for VMs.
type bench struct {
	*testing.T
	sw    *vswitch.Switch
	agent *agent.Agent
}

// mode is how the host filters and translates.
type mode struct {
	firewall, static bool
	open             bool // the port that the address leads to has no port security
	short            bool // without repairs
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

func newBench(t *testing.T, m mode) *bench {
	b := &bench{T: t, sw: vswitch.New(t)}
	b.must("add-br", func() (string, error) {
		return b.sw.Vsctl(t.Context(), "add-br", "br-int", "--", "set", "Bridge", "br-int", "datapath_type=netdev", "fail_mode=secure",
			"--", "add-br", "br-ex", "--", "set", "Bridge", "br-ex", "datapath_type=netdev")
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
		World: world.Config{
			Host: "hv1", IntegrationBridge: "br-int", Physical: map[string]string{"physnet1": "br-ex"},
			FilterTables: m.firewall, Filter: m.firewall, FailClosed: m.firewall, AntiSpoof: !m.firewall,
		},
		Conntrack:  untracked{},
		Settings:   pipeline.Settings{DatapathType: "netdev", MACTableSize: 50000, Controller: "tcp:127.0.0.1:6633", InactivityProbe: 10000},
		Extensions: []extension.New{localip.New(m.static)},
		Notifier:   observe.NewNotifier(func(string) string { return "" }, 1),
	}, database, func(func(messaging.Event)) (agent.Broker, error) { return &cloud{sim.Join("hv1", nil), m}, nil })
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
	b.link(n, "br-int", "--", "set", "Interface", "tap"+n, "external_ids:iface-id=port"+n, `external_ids:attached-mac="`+mac(n)+`"`)
}

// link makes a namespace, and adds its interface to the switch.
func (b *bench) link(n, bridge string, more ...string) {
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
		return b.sw.Vsctl(b.Context(), append([]string{"add-port", bridge, tap}, more...)...)
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
			b.Fatalf("waited for %s; status %+v", what, b.status())
		}
	}
}

// serve has the VM answer TCP and UDP until the end of the test.
func (b *bench) serve(n string) {
	b.Helper()
	const echo = `
import socket, threading
def udp():
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(('0.0.0.0', 53))
    while True:
        d, a = s.recvfrom(99); s.sendto(b'udp ' + d + b' of ' + a[0].encode(), a)
threading.Thread(target=udp, daemon=True).start()
s = socket.create_server(('0.0.0.0', 22)); t = socket.create_server(('0.0.0.0', 23))
while True:
    c, a = s.accept(); c.send(b'tcp ' + c.recv(99) + b' of ' + a[0].encode()); c.close()
`
	server := exec.CommandContext(b.Context(), "ip", "netns", "exec", b.sw.Netns()+"-vm"+n, "python3", "-c", echo)
	if err := server.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = server.Process.Kill(); _ = server.Wait() })
	b.wait("the servers", func() bool {
		out, _ := b.in(n, "ss", "-lntu")
		return strings.Contains(out, ":23 ") && strings.Contains(out, ":53 ")
	})
}

// asks has the VM ask over TCP or UDP, and returns what it was told.
func (b *bench) asks(n, protocol, address string, port int) (string, error) {
	kind := map[string]string{"tcp": "STREAM", "udp": "DGRAM"}[protocol]
	out, err := b.in(n, "python3", "-c", fmt.Sprintf(
		"import socket;s=socket.socket(socket.AF_INET,socket.SOCK_%s);s.settimeout(1.5);s.connect(('%s',%d));s.send(b'x');print(s.recv(99).decode())", kind, address, port))
	return strings.TrimSpace(out), err
}

// neighbor returns the MAC that the VM has for an address.
func (b *bench) neighbor(n, address string) string {
	out, _ := b.in(n, "ip", "neigh", "show", address)
	return regexp.MustCompile(`lladdr (\S+)`).FindString(out)
}

// translated fails unless the address leads to port 2 with every protocol, and port 2 itself is still what it is under its own address.
func (b *bench) translated(when string) {
	b.Helper()
	b.wait("the local IP to be answered "+when, func() bool { got, _ := b.asks("1", "tcp", local, 22); return got == "tcp x of 10.5.0.11" })
	for protocol, port := range map[string]int{"tcp": 22, "udp": 53} {
		// The first answer counts, after others that are not translated.
		for _, address := range []string{"10.5.0.12", local, "10.5.0.12", local} {
			if got, err := b.asks("1", protocol, address, port); err != nil || got != protocol+" x of 10.5.0.11" {
				b.Errorf("%s: %s to %s: %q, %v", when, protocol, address, got, err)
			}
		}
	}
	done := make(chan string, 1) // both at a time, so that one could be taken for the other
	go func() { out, _ := b.in("1", "ping", "-c", "4", "-i", "0.2", "-W", "2", local); done <- out }()
	direct, _ := b.in("1", "ping", "-c", "3", "-i", "0.2", "-W", "2", "10.5.0.12")
	for address, out := range map[string]string{local: <-done, "10.5.0.12": direct} {
		if !strings.Contains(out, " 0% packet loss") || strings.Contains(out, "DIFFERENT ADDRESS") || strings.Count(out, "bytes from "+address+":") < 3 {
			b.Errorf("%s: ping of %s: %s", when, address, out)
		}
	}
	if got := b.neighbor("1", local); got != "lladdr "+mac("2") {
		b.Errorf("%s: the VM has %q for the local IP", when, got)
	}
}

// TestRealPackets has a VM ask a local IP that leads to another VM of the host, while a VM outside has the same address, with each way to filter and to translate.
func TestRealPackets(t *testing.T) {
	for name, m := range map[string]mode{
		"firewall": {firewall: true, static: true}, "firewall, the other without": {firewall: true, static: true, open: true, short: true},
		"plain, static": {static: true, short: true}, "plain, tracked": {}, "plain, tracked, the other unchecked": {open: true, short: true},
	} {
		t.Run(name, func(t *testing.T) { play(t, m) })
	}
}

func play(t *testing.T, m mode) {
	b := newBench(t, m)
	b.plug("1")
	b.plug("2")
	wired := func() bool {
		s := b.status()
		return s.Ports["wired"] == 2 && s.Pending.Flows == 0 && s.InSync
	}
	b.wait("the ports to be wired", wired)
	b.link("3", "br-ex", "tag=101")
	b.serve("2")
	b.serve("3")
	b.translated("at first")

	// The port itself reaches who has the address in the network.
	if got, err := b.asks("2", "udp", local, 53); err != nil || got != "udp x of 10.5.0.12" || b.neighbor("2", local) != "lladdr "+mac("3") {
		t.Errorf("the port that the address leads to gets %q, %v, from %q", got, err, b.neighbor("2", local))
	}
	// Announcements of that one do not reach the guests.
	announce := fmt.Sprintf("import socket;s=socket.socket(socket.AF_PACKET,socket.SOCK_RAW);s.bind(('eth0',0));m=bytes.fromhex('%s');a=socket.inet_aton('%s');"+
		"s.send(b'\\xff'*6+m+bytes.fromhex('08060001080006040001')+m+a+b'\\0'*6+a)", strings.ReplaceAll(mac("3"), ":", ""), local)
	b.must("announce", func() (string, error) { return b.in("3", "python3", "-c", announce) })
	b.wait("the announcement to be dropped", func() bool {
		out, _ := b.sw.Ofctl(t.Context(), "dump-flows", "br-int", "table=0,arp,arp_spa="+local)
		return regexp.MustCompile(`n_packets=[1-9]\d*, .*priority=10,.*actions=drop`).MatchString(out)
	})
	if got := b.neighbor("1", local); got != "lladdr "+mac("2") {
		t.Errorf("after an announcement the VM has %q", got)
	}

	// A forged sender teaches the switch nothing.
	b.ip("-n", b.sw.Netns()+"-vm1", "addr", "add", "10.5.0.77/24", "dev", "eth0")
	if _, err := b.in("1", "python3", "-c", "import socket;s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM);s.bind(('10.5.0.77',0));s.sendto(b'x',('"+local+"',53))"); err != nil {
		t.Fatal(err)
	}
	if got, err := b.asks("1", "udp", local, 53); err != nil {
		t.Errorf("%q, %v", got, err)
	}
	learned := b.must("dump-flows", func() (string, error) { return b.sw.Ofctl(t.Context(), "dump-flows", "br-int", "table=32") })
	if strings.Contains(learned, "10.5.0.77") || m.static != strings.Contains(learned, "nw_dst=10.5.0.11") {
		t.Errorf("the switch has learned:\n%s", learned)
	}
	// What the filters of the port do not let in is not let in under its other address.
	if got, err := b.asks("1", "tcp", local, 23); m.firewall && !m.open && !strings.Contains(got, "timed out") {
		t.Errorf("a closed port: %q, %v", got, err)
	}

	if m.short {
		return
	}
	b.must("del-flows", func() (string, error) { return b.sw.Ofctl(t.Context(), "del-flows", "br-int", "table=31") })
	b.must("del-flows", func() (string, error) { return b.sw.Ofctl(t.Context(), "del-flows", "br-int", "table=30") })
	b.translated("after its flows were deleted")

	b.must("del-port", func() (string, error) { return b.sw.Vsctl(t.Context(), "del-port", "br-int", "tap2") })
	b.wait("the port to be gone", func() bool { return b.status().Ports["wired"] == 1 })
	b.must("add-port", func() (string, error) {
		return b.sw.Vsctl(t.Context(), "add-port", "br-int", "tap2", "--", "set", "Interface", "tap2", "external_ids:iface-id=port2", `external_ids:attached-mac="`+mac("2")+`"`)
	})
	b.wait("the port to be wired again", wired)
	b.translated("after it was plugged in again")

	if err := b.sw.StopVswitchd(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := b.sw.StartVswitchd(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.translated("after a restart of the switch")
}
