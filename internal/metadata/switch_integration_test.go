// SPDX-License-Identifier: Apache-2.0

//go:build integration

package metadata_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"

	"github.com/patchbay-sdn/patchbay/internal/agent"
	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/metadata"
	"github.com/patchbay-sdn/patchbay/internal/metaproxy"
	"github.com/patchbay-sdn/patchbay/internal/netlink/netlinktest"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/lab/onehost"
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

// answer is that of a server that knows the ports of the test, and no others.
func answer(kind neutron.Kind, filter map[string]any) (found []map[string]any, ok bool) {
	ids, _ := filter["id"].([]string)
	for _, id := range ids {
		if data := portOf(id); data != nil {
			found = append(found, data)
		}
	}
	return found, kind == neutron.KindPort
}

// vm is a VM of the test. The first two have the same address, in networks of their own; the third is in the network of the first.
type vm struct{ network, project, ip string }

var vms = map[string]vm{
	"1": {"net1", "blue", "10.5.0.11"},
	"2": {"net2", "red", "10.5.0.11"},
	"3": {"net1", "green", "10.5.0.13"},
}

func portOf(id string) map[string]any {
	n := strings.TrimPrefix(id, "port")
	v, known := vms[n]
	if !known {
		return nil
	}
	return map[string]any{
		"id": id, "network_id": v.network, "project_id": v.project, "mac_address": onehost.MAC(n), "admin_state_up": true, "device_owner": "compute:nova", "device_id": "vm" + n,
		"status": "DOWN", "revision_number": 1, "fixed_ips": []any{onehost.Boxed(map[string]any{"subnet_id": "s4", "ip_address": v.ip})},
		"bindings":       []any{onehost.Boxed(map[string]any{"host": "hv1", "status": "ACTIVE"})},
		"binding_levels": []any{onehost.Boxed(map[string]any{"host": "hv1", "segment": onehost.Boxed(map[string]any{"network_type": "local"})})},
	}
}

// bench is an agent on a real switch with namespaces for VMs, and a server that stands for Nova.
type bench struct {
	*onehost.Host
	nova  *httptest.Server
	proxy *metaproxy.Proxy
}

func newBench(t *testing.T, filter bool) *bench {
	t.Helper()
	b := &bench{Host: onehost.New(t, answer, "br-meta")}
	b.nova = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := r.Header
		if h.Get("X-Instance-ID-Signature") != (&metaproxy.Nova{Secret: secret}).Signature(h.Get("X-Instance-ID")) {
			http.Error(w, "wrong signature", http.StatusForbidden)
			return
		}
		fmt.Fprint(w, h.Get("X-Instance-ID")+" "+h.Get("X-Tenant-ID")+" "+h.Get("X-Forwarded-For")+" "+r.URL.Path)
	}))
	t.Cleanup(b.nova.Close)
	cfg := metadata.Config{CIDR: netip.MustParsePrefix("240.0.0.0/16"), VLAN: 1, BaseMAC: neutron.MAC{0xfa, 0x16, 0xee}, Port: 80}
	b.Configure = func(c *agent.Config) {
		if filter {
			onehost.Filtered(c)
		}
		var err error
		if b.proxy, err = metaproxy.New(metaproxy.Nova{URL: b.nova.URL, Secret: secret}, kernel{ns: b.Switch.Netns()}, ""); err != nil {
			t.Fatal(err)
		}
		c.World.Physical = map[string]string{"meta": "br-meta"}
		c.Extensions, c.Metadata = []extension.New{metadata.New(cfg)}, b.proxy
	}
	b.Start()
	return b
}

func (b *bench) ns(n string) string { return b.Switch.Netns() + "-vm" + n }

// plug makes a VM with its address, and plugs it in.
func (b *bench) plug(n string) {
	b.Helper()
	b.Plug(n)
	b.Vsctl("set", "Interface", "tap"+n, "external_ids:vm-uuid=vm"+n)
	b.configure(n)
}

// configure gives a VM its own MAC, address and route, as DHCP would.
func (b *bench) configure(n string) {
	b.Helper()
	ns, v := b.ns(n), vms[n]
	b.Must("ip", "-n", ns, "link", "set", "eth0", "down")
	b.Must("ip", "-n", ns, "addr", "flush", "dev", "eth0")
	b.Must("ip", "-n", ns, "link", "set", "eth0", "address", onehost.MAC(n))
	b.Must("ip", "-n", ns, "addr", "add", v.ip+"/24", "dev", "eth0")
	b.Must("ip", "-n", ns, "link", "set", "eth0", "up")
	b.Must("ip", "-n", ns, "route", "replace", "169.254.169.254/32", "dev", "eth0")
}

// curl asks as a VM.
func (b *bench) curl(n string, more ...string) (string, error) {
	url := "http://169.254.169.254/latest"
	if len(more) > 0 && strings.HasPrefix(more[0], "http:") {
		url, more = more[0], more[1:]
	}
	args := append([]string{"netns", "exec", b.ns(n), "curl", "-s", "-S", "-m", "3", url}, more...)
	return b.Run("ip", args...)
}

// answered waits until each VM is told who it is.
func (b *bench) answered(when string, numbers ...string) {
	b.Helper()
	for _, n := range numbers {
		want := fmt.Sprintf("vm%s %s %s /latest", n, vms[n].project, vms[n].ip)
		b.Wait(fmt.Sprintf("the answer to VM %s %s", n, when), func() bool {
			got, _ := b.curl(n)
			return got == want
		})
	}
}

// requests returns how many packets were taken for a VM's, on both bridges.
func (b *bench) requests(n string) int {
	b.Helper()
	sum := 0
	for _, bridge := range []string{"br-int", "br-meta"} {
		out, err := b.Switch.Ofctl(b.Context(), "dump-flows", bridge)
		if err != nil {
			b.Fatal(err, out)
		}
		for line := range strings.Lines(out) {
			if !strings.Contains(line, "dl_src="+onehost.MAC(n)) || !strings.Contains(line, "nw_src="+vms[n].ip) || !strings.Contains(line, "table=0") && !strings.Contains(line, "table=80") {
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

// send has a VM send the first packet of a connection, under the name of another and with a VLAN tag; 0: without.
func (b *bench) send(from, as string, vlan uint16) {
	b.Helper()
	v := vms[as]
	mac, err := net.ParseMAC(onehost.MAC(as))
	if err != nil {
		b.Fatal(err)
	}
	ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolTCP, SrcIP: net.ParseIP(v.ip), DstIP: net.ParseIP("169.254.169.254")}
	tcp := &layers.TCP{SrcPort: 40000, DstPort: 80, SYN: true, Window: 1000}
	_ = tcp.SetNetworkLayerForChecksum(ip)
	frame := gopacket.NewSerializeBuffer()
	ether := &layers.Ethernet{SrcMAC: mac, DstMAC: net.HardwareAddr{0xfa, 0x16, 0xee, 0xff, 0xff, 0xff}, EthernetType: layers.EthernetTypeIPv4}
	all := []gopacket.SerializableLayer{ether, ip, tcp}
	if vlan != 0 {
		ether.EthernetType = layers.EthernetTypeDot1Q
		all = slices.Insert(all, 1, gopacket.SerializableLayer(&layers.Dot1Q{VLANIdentifier: vlan, Type: layers.EthernetTypeIPv4}))
	}
	if err := gopacket.SerializeLayers(frame, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, all...); err != nil {
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
	b.Wired(3)
	b.answered("at first", "1", "2", "3")

	sent := []string{"-H", "X-Instance-ID: vm2", "-H", "X_Instance_ID: vm2", "-H", "X-Tenant-ID: red", "-H", "X-Forwarded-For: 10.5.0.99", "-H", "Connection: X-Instance-ID"}
	if got, err := b.curl("1", sent...); err != nil || got != "vm1 blue 10.5.0.11 /latest" {
		b.Errorf("with the headers of another: %q, %v", got, err)
	}
	b.nothing("another port", "1", "http://169.254.169.254:81/")

	b.Must("ip", "-n", b.ns("1"), "addr", "add", "10.5.0.13/32", "dev", "eth0")
	b.nothing("the address of another", "1", "--interface", "10.5.0.13")
	b.Must("ip", "-n", b.ns("1"), "link", "set", "eth0", "address", onehost.MAC("3"))
	b.nothing("the MAC of another", "1", "--interface", "10.5.0.11")
	b.nothing("the MAC and address of another", "1", "--interface", "10.5.0.13")
	b.configure("1")
	if b.requests("2") == 0 {
		b.Error("the requests of VM 2 were not counted")
	}
	for as, vlans := range map[string][]uint16{"1": {1, 2, 3}, "2": {0, 1, 2, 3}, "3": {0, 1, 2, 3}} { // an answer would go to the other VM
		before := b.requests(as)
		for _, vlan := range vlans {
			b.send("1", as, vlan)
		}
		time.Sleep(200 * time.Millisecond) // nothing is to come
		if after := b.requests(as); after != before {
			b.Errorf("%d packets of VM 1 with one of the VLANs %d, and the MAC and address of VM %s, were taken for its", after-before, vlans, as)
		}
	}
	b.answered("under its own name again", "1", "2")

	b.RestartSwitch()
	b.answered("after the switch was restarted", "1", "2", "3")

	b.Stop()
	b.Away.Store(true)
	b.RestartSwitch()
	b.Start()
	b.answered("with the server away, after switch and agent were restarted", "1", "2", "3")
	b.nova.Close()
	if got, err := b.curl("1"); err != nil || !strings.Contains(got, "cannot be reached") {
		b.Errorf("with Nova away: %q, %v", got, err)
	}
}
