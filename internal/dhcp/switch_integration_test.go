// SPDX-License-Identifier: Apache-2.0

//go:build integration

package dhcp_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/agent"
	"github.com/patchbay-sdn/patchbay/internal/dhcp"
	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/lab/onehost"
	"github.com/patchbay-sdn/patchbay/openflow"
)

// answer is that of a server with one network and the ports of the test.
func answer(kind neutron.Kind, filter map[string]any) (found []map[string]any, ok bool) {
	ids, byID := filter["id"].([]string)
	nets, byNetwork := filter["network_id"].([]string)
	switch {
	case kind == neutron.KindPort && byID:
		for _, id := range ids {
			if data := portOf(id); data != nil {
				found = append(found, data)
			}
		}
	case kind == neutron.KindNetwork && byID && ids[0] == "net":
		found = append(found, map[string]any{"id": "net", "mtu": 1442, "admin_state_up": true, "dns_domain": "example.org.", "revision_number": 2})
	case kind == neutron.KindSubnet && byNetwork && nets[0] == "net":
		found = append(found, map[string]any{
			"id": "s4", "network_id": "net", "ip_version": 4, "cidr": "10.5.0.0/24", "gateway_ip": "10.5.0.1", "enable_dhcp": true, "revision_number": 1,
			"dns_nameservers": []any{onehost.Boxed(map[string]any{"address": "192.0.2.53", "order": 0})},
			"host_routes":     []any{onehost.Boxed(map[string]any{"destination": "10.9.0.0/16", "nexthop": "10.5.0.9"})},
		}, map[string]any{
			"id": "s6", "network_id": "net", "ip_version": 6, "cidr": "2001:db8::/64", "gateway_ip": "2001:db8::1", "enable_dhcp": true, "revision_number": 1,
			"ipv6_address_mode": "dhcpv6-stateful", "ipv6_ra_mode": "dhcpv6-stateful",
			"dns_nameservers": []any{onehost.Boxed(map[string]any{"address": "2001:db8::53", "order": 0})},
		})
	default:
		return nil, false
	}
	return found, true
}

func portOf(id string) map[string]any {
	n, ok := strings.CutPrefix(id, "port")
	if !ok {
		return nil
	}
	owner := map[string]string{"3": "trunk:subport", "9": "network:dhcp"}[n]
	if owner == "" {
		owner = "compute:nova"
	}
	return map[string]any{
		"id": id, "network_id": "net", "mac_address": onehost.MAC(n), "admin_state_up": true, "device_owner": owner, "status": "DOWN", "revision_number": 1,
		"fixed_ips": []any{
			onehost.Boxed(map[string]any{"subnet_id": "s6", "ip_address": "2001:db8::1" + n}), onehost.Boxed(map[string]any{"subnet_id": "s4", "ip_address": "10.5.0.1" + n}),
		},
		"bindings":       []any{onehost.Boxed(map[string]any{"host": "hv1", "status": "ACTIVE"})},
		"binding_levels": []any{onehost.Boxed(map[string]any{"host": "hv1", "segment": onehost.Boxed(map[string]any{"network_type": "local"})})},
		"dhcp_options":   []any{onehost.Boxed(map[string]any{"opt_name": "ntp-server", "opt_value": "192.0.2.123", "ip_version": 4})},
	}
}

// bench is an agent on a real switch with namespaces for VMs.
type bench struct{ *onehost.Host }

func config() dhcp.Config {
	base, _ := neutron.ParseMAC("fa:16:3e:00:00:00")
	return dhcp.Config{IPv6: true, MAC: base, Domain: "openstacklocal", Lease: time.Hour}
}

func with(c *agent.Config) { c.Extensions = []extension.New{dhcp.New(config())} }

func newBench(t *testing.T, configure ...func(*agent.Config)) bench {
	t.Helper()
	b := bench{onehost.New(t, answer)}
	b.Configure = func(c *agent.Config) {
		for _, f := range configure {
			f(c)
		}
	}
	b.Start()
	return b
}

// lease has udhcpc ask in a namespace, and returns what it got.
func (b bench) lease(ns string, more ...string) (map[string]string, error) {
	b.Helper()
	dir := b.TempDir()
	script, env := filepath.Join(dir, "script"), filepath.Join(dir, "env")
	if err := os.WriteFile(script, []byte("#!/bin/sh\necho action=$1 >> "+env+"\nenv >> "+env+"\n"), 0o755); err != nil {
		b.Fatal(err)
	}
	args := append([]string{"netns", "exec", ns, "udhcpc", "-i", "eth0", "-n", "-q", "-f", "-t", "8", "-T", "1", "-s", script,
		"-O", "staticroutes", "-O", "msstaticroutes", "-O", "mtu", "-O", "ntpsrv", "-O", "dns", "-O", "domain", "-O", "hostname", "-O", "search", "-O", "broadcast"}, more...)
	out, err := b.Run("ip", args...)
	text, _ := os.ReadFile(env)
	got := map[string]string{}
	for line := range strings.Lines(string(text)) {
		k, v, _ := strings.Cut(strings.TrimSpace(line), "=")
		got[k] = v
	}
	if err != nil {
		return got, fmt.Errorf("%w: %s", err, out)
	}
	return got, nil
}

// dhclient asks in a namespace, and returns the text of the lease.
func (b bench) dhclient(ns, version string) string {
	b.Helper()
	leases := filepath.Join(b.TempDir(), "leases")
	ctx, cancel := context.WithTimeout(b.Context(), 20*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "ip", "netns", "exec", ns, "dhclient", version, "-1", "-d", "-sf", "/bin/true", "-lf", leases, "-pf", leases+".pid", "eth0")
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	var text []byte
	for end := time.Now().Add(15 * time.Second); !strings.Contains(string(text), "\n}") && time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		text, _ = os.ReadFile(leases)
	}
	cancel()
	_ = cmd.Wait()
	return string(text)
}

// TestClientsGetTheirAddress has real clients ask through a real switch: udhcpc, dhclient with both protocols. Then the switch and the agent start anew
// with the server away, and a client asks again.
func TestClientsGetTheirAddress(t *testing.T) {
	b := newBench(t, with)
	ns := b.Plug("1")
	b.Wired(1)
	check := func(when string) {
		t.Helper()
		got, err := b.lease(ns)
		if err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		for k, want := range map[string]string{
			"action": "bound", "ip": "10.5.0.11", "subnet": "255.255.255.0", "router": "10.5.0.1", "serverid": "10.5.0.1", "dns": "192.0.2.53", "mtu": "1442",
			"domain": "example.org", "hostname": "host-10-5-0-11", "ntpsrv": "192.0.2.123", "lease": "3600",
			"staticroutes": "10.9.0.0/16 10.5.0.9 169.254.169.254/32 10.5.0.1 0.0.0.0/0 10.5.0.1",
		} {
			if got[k] != want {
				t.Errorf("%s: %s is %q, want %q", when, k, got[k], want)
			}
		}
	}
	check("udhcpc")
	for _, c := range []struct {
		version string
		want    []string
	}{
		{"-4", []string{"fixed-address 10.5.0.11;", "option routers 10.5.0.1;", "option interface-mtu 1442;"}},
		{"-6", []string{"iaaddr 2001:db8::11 {", "option dhcp6.name-servers 2001:db8::53;", "preferred-life 3600;"}},
	} {
		text := b.dhclient(ns, c.version)
		for _, w := range c.want {
			if !strings.Contains(text, w) {
				t.Errorf("dhclient %s: the lease is %s, want %q in it", c.version, text, w)
			}
		}
	}

	b.Wait("the snapshot", func() bool { _, err := os.Stat(b.Snapshot); return err == nil })
	b.Stop()
	b.Away.Store(true)
	b.RestartSwitch()
	b.Start()
	b.Wait("the port to be wired from the snapshot", func() bool { s := b.Status(); return s.Ports["wired"] == 1 && s.Ready })
	check("without a server, after a restart of switch and agent")
	if s := b.Status(); s.Broker.Up || s.Server.Up || s.Totals.Packets["dhcp"]["answered"] < 2 {
		t.Errorf("broker %v, server %v, packets %v", s.Broker, s.Server, s.Totals.Packets)
	}
}

// TestAFloodCostsNobodyElse has one VM send requests that cannot be read as fast as the switch takes them, while another asks for its address.
func TestAFloodCostsNobodyElse(t *testing.T) {
	b := newBench(t, with)
	b.Plug("1")
	ns := b.Plug("2")
	b.Wired(2)
	number, err := b.Switch.Vsctl(t.Context(), "get", "Interface", "tap1", "ofport")
	if err != nil {
		t.Fatal(err)
	}
	var port uint32
	if _, err := fmt.Sscan(number, &port); err != nil {
		t.Fatal(err)
	}
	conn, err := openflow.Dial(t.Context(), "unix:"+b.Switch.MgmtSocket("br-int"), openflow.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	packet := []byte{255, 255, 255, 255, 255, 255, 0xfa, 0x16, 0x3e, 0, 0, 1, 8, 0, 0x45, 0, 0, 29, 0, 0, 0, 0, 64, 17, 0x7a, 0xd1, 0, 0, 0, 0, 255, 255, 255, 255, 0, 68, 0, 67, 0, 9, 0, 0, 1}
	var msgs []openflow.Message
	for range 1000 {
		msgs = append(msgs, openflow.PacketOut{InPort: port, Packet: packet, Actions: []openflow.Action{openflow.To(0)}})
	}
	ctx, cancel := context.WithCancel(t.Context())
	var sent atomic.Uint64
	var flood sync.WaitGroup
	began := time.Now()
	flood.Go(func() {
		for ctx.Err() == nil && conn.Send(ctx, msgs) == nil && conn.Barrier(ctx) == nil {
			sent.Add(uint64(len(msgs)))
		}
	})
	b.Wait("the flood", func() bool { return sent.Load() >= 5000 })
	got, err := b.lease(ns)
	cancel()
	flood.Wait()
	took := time.Since(began)
	if err != nil || got["ip"] != "10.5.0.12" {
		t.Errorf("in a flood of another VM: %v, %v", got["ip"], err)
	}
	packets := b.Status().Totals.Packets["dhcp"]
	t.Logf("%d packets in %s: %v", sent.Load(), took, packets)
	most := uint64(extension.PacketBurst+took.Seconds()*extension.PacketRate) + 5
	if bad := packets["malformed"]; bad == 0 || bad > most {
		t.Errorf("%d of %d packets reached the extension, want 1 to %d", bad, sent.Load(), most)
	}
	stats, err := b.Switch.Ofctl(t.Context(), "-O", "OpenFlow13", "meter-stats", "br-int")
	if err != nil || !strings.Contains(stats, "packet_in_count") {
		t.Errorf("meters: %v %s", err, stats)
	}
	t.Log(stats)
}

// TestBehindTheFirewall: the filters of a port do not stand between it and its answer, and a request under another's MAC gets none.
func TestBehindTheFirewall(t *testing.T) {
	b := newBench(t, with, onehost.Filtered)
	ns := b.Plug("1")
	b.Wired(1)
	if got, err := b.lease(ns); err != nil || got["ip"] != "10.5.0.11" {
		t.Errorf("%v, %v", got["ip"], err)
	}
	answered := b.Status().Totals.Packets["dhcp"]["answered"]
	b.Must("ip", "-n", ns, "link", "set", "eth0", "address", onehost.MAC("2"))
	if got, err := b.lease(ns, "-t", "2"); err == nil {
		t.Errorf("under the MAC of another port: %v", got["ip"])
	}
	if now := b.Status().Totals.Packets["dhcp"]["answered"]; answered == 0 || now != answered {
		t.Errorf("%d answers before, %d after", answered, now)
	}
}

// TestSubPort: a request that comes from the bridge of a trunk gets its answer back there, under the VLAN of the sub-port.
func TestSubPort(t *testing.T) {
	b := newBench(t, with, onehost.Filtered)
	ns := b.VM("3")
	// The guest's VLAN interface is an access port of the trunk's bridge here.
	b.Vsctl("add-br", "tbr-1", "--", "set", "Bridge", "tbr-1", "datapath_type=netdev", "--",
		"add-port", "tbr-1", "tap3", "tag=101", "--",
		"add-port", "tbr-1", "spi-1", "tag=101", "--", "set", "Interface", "spi-1", "type=patch", "options:peer=spt-1", "--",
		"add-port", "br-int", "spt-1", "--", "set", "Interface", "spt-1", "type=patch", "options:peer=spi-1", "external_ids:iface-id=port3", `external_ids:attached-mac="`+onehost.MAC("3")+`"`)
	b.Wired(1)
	if got, err := b.lease(ns); err != nil || got["ip"] != "10.5.0.13" {
		t.Errorf("%v, %v", got["ip"], err)
	}
}

// dnsmasq starts the server that a DHCP agent starts for the network, with the options and files that it writes, on a port of its own.
func (b bench) dnsmasq() {
	b.Helper()
	ns, dir := b.Plug("9"), b.TempDir()
	for _, ip := range []string{"10.5.0.19/24", "2001:db8::19/64"} {
		b.Must("ip", "-n", ns, "addr", "add", ip, "dev", "eth0")
	}
	routes := "10.9.0.0/16,10.5.0.9,169.254.169.254/32,10.5.0.1,0.0.0.0/0,10.5.0.1"
	for name, text := range map[string]string{
		"host": onehost.MAC("1") + ",host-10-5-0-11.example.org,10.5.0.11,set:port-1\n" + onehost.MAC("1") + ",tag:dhcpv6,host-2001-db8--11.example.org,[2001:db8::11],set:port-1\n",
		"opts": "tag:subnet-s4,option:dns-server,192.0.2.53\ntag:subnet-s4,option:classless-static-route," + routes + "\ntag:subnet-s4,249," + routes +
			"\ntag:subnet-s4,option:router,10.5.0.1\ntag:subnet-s6,option6:dns-server,[2001:db8::53]\ntag:subnet-s6,option6:domain-search,example.org\n" +
			"tag:port-1,option:ntp-server,192.0.2.123\n",
		"leases": "",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			b.Fatal(err)
		}
	}
	cmd := exec.CommandContext(b.Context(), "ip", "netns", "exec", ns, "dnsmasq", "--keep-in-foreground", "--user=root", "--no-hosts", "--no-resolv",
		"--pid-file="+dir+"/pid", "--dhcp-hostsfile="+dir+"/host", "--dhcp-optsfile="+dir+"/opts", "--dhcp-leasefile="+dir+"/leases", "--dhcp-match=set:ipxe,175",
		"--dhcp-userclass=set:ipxe6,iPXE", "--local-service", "--bind-dynamic", "--except-interface=lo", "--dhcp-range=set:subnet-s4,10.5.0.0,static,255.255.255.0,3600s",
		"--dhcp-range=set:subnet-s6,2001:db8::,static,64,3600s", "--dhcp-option-force=option:mtu,1442", "--dhcp-lease-max=256", "--conf-file=/dev/null", "--domain=example.org")
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
}

// TestBesideDnsmasq compares what a client gets from dnsmasq, as a DHCP agent runs it, and from the extension, for the same port, option for option.
func TestBesideDnsmasq(t *testing.T) {
	b := newBench(t)
	ns := b.Plug("1")
	b.dnsmasq()
	b.Wired(2)
	lines := func(text string) map[string]string {
		out := map[string]string{}
		for line := range strings.Lines(text) {
			if k, v, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "option "), " "); ok {
				out[k] = v
			}
		}
		return out
	}
	ask := func() map[string]string {
		all, err := b.lease(ns)
		if err != nil {
			t.Fatal(err)
		}
		for _, version := range []string{"-4", "-6"} {
			for k, v := range lines(b.dhclient(ns, version)) {
				all["dhclient "+version+": "+k] = v
			}
		}
		return all
	}
	before := ask()
	b.Stop()
	b.Configure = with
	b.Start()
	b.Wired(2)
	after := ask()
	if b.Status().Totals.Packets["dhcp"]["answered"] < 6 {
		t.Errorf("packets %v", b.Status().Totals.Packets)
	}
	same := 0
	keys := slices.Collect(maps.Keys(before))
	keys = slices.AppendSeq(keys, maps.Keys(after))
	slices.Sort(keys)
	for _, k := range slices.Compact(keys) {
		a, b := before[k], after[k]
		why, known := differences[k]
		switch {
		case a == b:
			same++
		case known:
			t.Logf("%s: dnsmasq %q, extension %q: %s", k, a, b, why)
		default:
			t.Errorf("%s: dnsmasq %q, extension %q", k, a, b)
		}
	}
	t.Logf("%d values are the same", same)
}

// differences are what the two say differently, and why.
var differences = map[string]string{
	"serverid": "the gateway in place of the DHCP port", "siaddr": "the same", "dhclient -4: dhcp-server-identifier": "the same", "dhclient -4: next-server": "the same",
	"dhclient -6: dhcp6.server-id": "another server", "SHLVL": "", "PWD": "", "_": "", "dhclient -4: renew": "a time of day", "dhclient -4: rebind": "a time of day",
	"dhclient -4: expire": "a time of day", "dhclient -6: starts": "a time of day", "dhclient -6: ia-na": "the client's", "dhclient -6: renew": "T1: dnsmasq takes something off at random",
	"dhclient -6: rebind": "T2: four fifths, as RFC 8415 has it, for seven eighths", "dhclient -4: dhcp-renewal-time": "T1: dnsmasq takes something off at random", "dhclient -4: dhcp-rebinding-time": "the same for T2",
	"dhclient -6: default-duid": "the client's", "dhclient -6: dhcp6.client-id": "the client's, which has the time in it", "opt61": "returned by RFC 6842",
}
