// SPDX-License-Identifier: Apache-2.0

//go:build integration

package metadata_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"

	"github.com/patchbay-sdn/patchbay/internal/agent"
	"github.com/patchbay-sdn/patchbay/internal/conntrack"
	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/inspect"
	"github.com/patchbay-sdn/patchbay/internal/metadata"
	"github.com/patchbay-sdn/patchbay/internal/metaproxy"
	"github.com/patchbay-sdn/patchbay/internal/netlink/netlinktest"
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

const secret = "not a real secret"

// kernel is the host in the network namespace of the switch.
type kernel struct {
	metaproxy.Host
	ns string
}

func (k kernel) Look(ctx context.Context, device string) (l metaproxy.Link, err error) {
	return l, errors.Join(netlinktest.In(k.ns, func() { l, err = k.Host.Look(ctx, device) }), err)
}

func (k kernel) Change(ctx context.Context, device string, index int, c metaproxy.Change) (err error) {
	return errors.Join(netlinktest.In(k.ns, func() { err = k.Host.Change(ctx, device, index, c) }), err)
}

func (k kernel) Watch(ctx context.Context, device string, changed func()) (err error) {
	return errors.Join(netlinktest.In(k.ns, func() { err = k.Host.Watch(ctx, device, changed) }), err)
}

func (k kernel) Listen(ctx context.Context, device string, at netip.AddrPort) (l net.Listener, err error) {
	return l, errors.Join(netlinktest.In(k.ns, func() { l, err = k.Host.Listen(ctx, device, at) }), err)
}

// cloud is a server that knows the ports of the test. Away: nobody answers.
type cloud struct {
	*region.Link
	away *atomic.Bool
}

var errAway = errors.New("the broker is away")

func boxed(data map[string]any) map[string]any { return map[string]any{"versioned_object.data": data} }

func (c *cloud) Call(ctx context.Context, t messaging.Target, method string, args, result any) error {
	if c.away.Load() {
		return errAway
	}
	all, _ := args.(map[string]any)
	kind, _ := all["resource_type"].(neutron.Kind)
	filter, _ := all["filter_kwargs"].(map[string]any)
	ids, byID := filter["id"].([]string)
	var found []any
	switch {
	case method != "bulk_pull" || kind != neutron.KindPort:
		return c.Link.Call(ctx, t, method, args, result)
	case byID:
		for _, id := range ids {
			if data := portOf(id); data != nil {
				o := boxed(data)
				o["versioned_object.name"], o["versioned_object.version"] = string(kind), "1.1"
				found = append(found, o)
			}
		}
	}
	text, err := json.Marshal(found)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, result)
}

func (c *cloud) Serve(ctx context.Context, s messaging.Service) error {
	if c.away.Load() {
		return errAway
	}
	return c.Link.Serve(ctx, s)
}

// vm is a VM of the test. The first two have the same address, in networks of their own; the third is in the network of the first.
type vm struct{ network, project, ip, mac string }

var vms = map[string]vm{
	"1": {"net1", "blue", "10.5.0.11", "fa:16:3e:00:00:01"},
	"2": {"net2", "red", "10.5.0.11", "fa:16:3e:00:00:02"},
	"3": {"net1", "green", "10.5.0.13", "fa:16:3e:00:00:03"},
}

func portOf(id string) map[string]any {
	n := strings.TrimPrefix(id, "port")
	v, known := vms[n]
	if !known {
		return nil
	}
	return map[string]any{
		"id": id, "network_id": v.network, "project_id": v.project, "mac_address": v.mac, "admin_state_up": true, "device_owner": "compute:nova", "device_id": "vm" + n,
		"status": "DOWN", "revision_number": 1, "fixed_ips": []any{boxed(map[string]any{"subnet_id": "s4", "ip_address": v.ip})},
		"bindings":       []any{boxed(map[string]any{"host": "hv1", "status": "ACTIVE"})},
		"binding_levels": []any{boxed(map[string]any{"host": "hv1", "segment": boxed(map[string]any{"network_type": "local"})})},
	}
}

// bench is an agent on a real switch with namespaces for VMs, and a server that stands for Nova.
type bench struct {
	*testing.T
	sw       *vswitch.Switch
	filter   bool
	away     atomic.Bool
	snapshot string
	nova     *httptest.Server
	proxy    *metaproxy.Proxy
	agent    *agent.Agent
	stop     func()
}

func newBench(t *testing.T, filter bool) *bench {
	b := &bench{T: t, sw: vswitch.New(t), filter: filter, snapshot: filepath.Join(t.TempDir(), "snapshot")}
	b.nova = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := r.Header
		if h.Get("X-Instance-ID-Signature") != (&metaproxy.Nova{Secret: secret}).Signature(h.Get("X-Instance-ID")) {
			http.Error(w, "wrong signature", http.StatusForbidden)
			return
		}
		fmt.Fprint(w, h.Get("X-Instance-ID")+" "+h.Get("X-Tenant-ID")+" "+h.Get("X-Forwarded-For")+" "+r.URL.Path)
	}))
	t.Cleanup(b.nova.Close)
	for _, br := range []string{"br-int", "br-meta"} {
		b.vsctl("add-br", br, "--", "set", "Bridge", br, "datapath_type=netdev", "fail_mode=secure")
	}
	b.start()
	t.Cleanup(func() { b.stop() })
	return b
}

func (b *bench) vsctl(args ...string) {
	b.Helper()
	if out, err := b.sw.Vsctl(b.Context(), args...); err != nil {
		b.Fatalf("ovs-vsctl %v: %v: %s", args, err, out)
	}
}

func (b *bench) start() {
	b.Helper()
	database, err := ovsdb.New(ovsdb.Config{Endpoint: "unix:" + b.sw.DBSocket()})
	if err != nil {
		b.Fatal(err)
	}
	if b.proxy, err = metaproxy.New(metaproxy.Nova{URL: b.nova.URL, Secret: secret}, kernel{ns: b.sw.Netns()}, ""); err != nil {
		b.Fatal(err)
	}
	sim := region.New(region.Config{})
	cfg := metadata.Config{CIDR: netip.MustParsePrefix("240.0.0.0/16"), VLAN: 1, BaseMAC: neutron.MAC{0xfa, 0x16, 0xee}, Port: 80}
	a, err := agent.New(agent.Config{
		Host: "hv1", ReportInterval: 30 * time.Second, PortsPerReport: 20, Log: slog.New(slog.DiscardHandler), Snapshot: b.snapshot,
		Link: runner.Supervised(func(ctx context.Context, bridge string) (*openflow.Conn, error) {
			return openflow.Dial(ctx, "unix:"+b.sw.MgmtSocket(bridge), openflow.Config{})
		}),
		World: world.Config{
			Host: "hv1", IntegrationBridge: "br-int", Physical: map[string]string{"meta": "br-meta"},
			AntiSpoof: !b.filter, FilterTables: b.filter, Filter: b.filter, FailClosed: b.filter,
		},
		Conntrack:  untracked{},
		Settings:   pipeline.Settings{DatapathType: "netdev", MACTableSize: 50000, Controller: "tcp:127.0.0.1:6633", InactivityProbe: 10000},
		Extensions: []extension.New{metadata.New(cfg)}, Metadata: b.proxy,
		Notifier: observe.NewNotifier(func(string) string { return "" }, 1),
	}, database, func(func(messaging.Event)) (agent.Broker, error) {
		return &cloud{sim.Join("hv1", nil), &b.away}, nil
	})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	b.agent = a
	b.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			b.Error(err)
		}
		sim.Close()
	})
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
	for end := time.Now().Add(40 * time.Second); !ok(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			b.Fatalf("waited for %s; status %+v", what, b.status())
		}
	}
}

func (b *bench) run(name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(b.Context(), 20*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (b *bench) must(name string, args ...string) {
	b.Helper()
	if out, err := b.run(name, args...); err != nil {
		b.Fatalf("%s %v: %v: %s", name, args, err, out)
	}
}

func (b *bench) ns(n string) string { return b.sw.Netns() + "-vm" + n }

// plug makes a VM with its address, and plugs it in.
func (b *bench) plug(n string) {
	b.Helper()
	ns, tap, v := b.ns(n), "tap"+n, vms[n]
	b.must("ip", "netns", "add", ns)
	b.Cleanup(func() { _, _ = exec.CommandContext(context.Background(), "ip", "netns", "del", ns).CombinedOutput() })
	b.must("ip", "-n", b.sw.Netns(), "link", "add", tap, "type", "veth", "peer", "name", "eth0", "address", v.mac, "netns", ns)
	b.must("ip", "-n", b.sw.Netns(), "link", "set", tap, "up")
	b.must("ip", "netns", "exec", ns, "ethtool", "-K", "eth0", "tx", "off") // there is no card that would write checksums
	b.configure(n)
	b.vsctl("add-port", "br-int", tap, "--", "set", "Interface", tap, "external_ids:iface-id=port"+n, "external_ids:vm-uuid=vm"+n, `external_ids:attached-mac="`+v.mac+`"`)
}

// configure gives a VM its own MAC, address and route, as DHCP would.
func (b *bench) configure(n string) {
	b.Helper()
	ns, v := b.ns(n), vms[n]
	b.must("ip", "-n", ns, "link", "set", "eth0", "down")
	b.must("ip", "-n", ns, "addr", "flush", "dev", "eth0")
	b.must("ip", "-n", ns, "link", "set", "eth0", "address", v.mac)
	b.must("ip", "-n", ns, "addr", "add", v.ip+"/24", "dev", "eth0")
	b.must("ip", "-n", ns, "link", "set", "eth0", "up")
	b.must("ip", "-n", ns, "route", "replace", "169.254.169.254/32", "dev", "eth0")
}

// curl asks as a VM.
func (b *bench) curl(n string, more ...string) (string, error) {
	url := "http://169.254.169.254/latest"
	if len(more) > 0 && strings.HasPrefix(more[0], "http:") {
		url, more = more[0], more[1:]
	}
	args := append([]string{"netns", "exec", b.ns(n), "curl", "-s", "-S", "-m", "3", url}, more...)
	return b.run("ip", args...)
}

// answered waits until each VM is told who it is.
func (b *bench) answered(when string, numbers ...string) {
	b.Helper()
	for _, n := range numbers {
		want, got := fmt.Sprintf("vm%s %s %s /latest", n, vms[n].project, vms[n].ip), ""
		b.wait(fmt.Sprintf("the answer to VM %s %s, last %q", n, when, got), func() bool {
			got, _ = b.curl(n)
			return got == want
		})
	}
}

// requests returns how many packets were taken for a VM's, on both bridges.
func (b *bench) requests(n string) int {
	b.Helper()
	sum := 0
	for _, bridge := range []string{"br-int", "br-meta"} {
		out, err := b.sw.Ofctl(b.Context(), "dump-flows", bridge)
		if err != nil {
			b.Fatal(err, out)
		}
		for line := range strings.Lines(out) {
			if !strings.Contains(line, "dl_src="+vms[n].mac) || !strings.Contains(line, "nw_src="+vms[n].ip) || !strings.Contains(line, "table=0") && !strings.Contains(line, "table=80") {
				continue
			}
			_, rest, _ := strings.Cut(line, "n_packets=")
			number, _, _ := strings.Cut(rest, ",")
			count, err := strconv.Atoi(number)
			if err != nil {
				b.Fatal(err)
			}
			sum += count
		}
	}
	return sum
}

// tagged has a VM send the first packet of a connection, under the name of another and with a VLAN tag.
func (b *bench) tagged(from, as string, vlan uint16) {
	b.Helper()
	v := vms[as]
	mac, err := net.ParseMAC(v.mac)
	if err != nil {
		b.Fatal(err)
	}
	ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolTCP, SrcIP: net.ParseIP(v.ip), DstIP: net.ParseIP("169.254.169.254")}
	tcp := &layers.TCP{SrcPort: 40000, DstPort: 80, SYN: true, Window: 1000}
	_ = tcp.SetNetworkLayerForChecksum(ip)
	frame := gopacket.NewSerializeBuffer()
	err = gopacket.SerializeLayers(frame, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
		&layers.Ethernet{SrcMAC: mac, DstMAC: net.HardwareAddr{0xfa, 0x16, 0xee, 0xff, 0xff, 0xff}, EthernetType: layers.EthernetTypeDot1Q},
		&layers.Dot1Q{VLANIdentifier: vlan, Type: layers.EthernetTypeIPv4}, ip, tcp)
	if err != nil {
		b.Fatal(err)
	}
	var sent error
	entered := netlinktest.In(b.ns(from), func() {
		eth, err := net.InterfaceByName("eth0")
		if err != nil {
			sent = err
			return
		}
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
		if err != nil {
			sent = err
			return
		}
		defer func() { _ = unix.Close(fd) }()
		sent = unix.Sendto(fd, frame.Bytes(), 0, &unix.SockaddrLinklayer{Ifindex: eth.Index, Halen: 6})
	})
	if err := errors.Join(entered, sent); err != nil {
		b.Fatal(err)
	}
}

// nothing fails if a VM that pretends to be another reaches the proxy.
func (b *bench) nothing(what, n string, more ...string) {
	b.Helper()
	before := b.proxy.Totals()
	if out, err := b.curl(n, more...); err == nil {
		b.Errorf("%s: VM %s got %q", what, n, out)
	}
	after := b.proxy.Totals()
	for result, count := range after {
		if count != before[result] {
			b.Errorf("%s: the proxy had a request that was %s", what, result)
		}
	}
}

// TestMetadata has VMs of three tenants ask through a real switch, with and without the firewall: each sees its own, whatever it says, and nothing under
// another's MAC, address or VLAN. Then the switch starts anew, and the agent with the server away.
func TestMetadata(t *testing.T) {
	for name, filter := range map[string]bool{"without firewall": false, "with firewall": true} {
		t.Run(name, func(t *testing.T) { testMetadata(newBench(t, filter)) })
	}
}

func testMetadata(b *bench) {
	for _, n := range []string{"1", "2", "3"} {
		b.plug(n)
	}
	b.wait("the ports to be wired", func() bool { s := b.status(); return s.Ports["wired"] == 3 && s.Pending.Flows == 0 && s.InSync })
	b.answered("at first", "1", "2", "3")

	sent := []string{"-H", "X-Instance-ID: vm2", "-H", "X_Instance_ID: vm2", "-H", "X-Tenant-ID: red", "-H", "X-Forwarded-For: 10.5.0.99", "-H", "Connection: X-Instance-ID"}
	if got, err := b.curl("1", sent...); err != nil || got != "vm1 blue 10.5.0.11 /latest" {
		b.Errorf("with the headers of another: %q, %v", got, err)
	}
	b.nothing("another port", "1", "http://169.254.169.254:81/")

	b.must("ip", "-n", b.ns("1"), "addr", "add", "10.5.0.13/32", "dev", "eth0")
	b.nothing("the address of another", "1", "--interface", "10.5.0.13")
	b.must("ip", "-n", b.ns("1"), "link", "set", "eth0", "address", vms["3"].mac)
	b.nothing("the MAC of another", "1", "--interface", "10.5.0.11")
	b.nothing("the MAC and address of another", "1", "--interface", "10.5.0.13")
	b.configure("1")
	if b.requests("2") == 0 {
		b.Error("the requests of VM 2 were not counted")
	}
	before := b.requests("2")
	for _, vlan := range []uint16{1, 2, 3} {
		b.tagged("1", "2", vlan)
	}
	time.Sleep(200 * time.Millisecond) // nothing is to come
	if after := b.requests("2"); after != before {
		b.Errorf("%d packets of VM 1 with the VLAN, MAC and address of VM 2 were taken for its", after-before)
	}
	b.answered("under its own name again", "1", "2")

	if err := b.sw.StopVswitchd(b.Context()); err != nil {
		b.Fatal(err)
	}
	if err := b.sw.StartVswitchd(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.answered("after the switch was restarted", "1", "2", "3")

	b.stop()
	b.away.Store(true)
	if err := b.sw.StopVswitchd(b.Context()); err != nil {
		b.Fatal(err)
	}
	if err := b.sw.StartVswitchd(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.start()
	b.answered("with the server away, after switch and agent were restarted", "1", "2", "3")
	b.nova.Close()
	if got, err := b.curl("1"); err != nil || !strings.Contains(got, "cannot be reached") {
		b.Errorf("with Nova away: %q, %v", got, err)
	}
}
