// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/lab"
)

// TestDHCP has real clients ask a DHCP agent's dnsmasq and the extension dhcp for the same port, and compares what they got, option for option. A client that
// is bound to dnsmasq renews at the extension. A sub-port of a trunk and a VM behind a Linux bridge ask, too; and at last one asks with broker,
// server and database away, after a restart of switch and agent.
func TestDHCP(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	start := time.Now()
	x := &leased{cloud: &cloud{l: lab.New(t, 2), ctx: ctx, round: round{name: string(lab.Patchbay)}}}
	t.Cleanup(x.close)
	t.Cleanup(func() { x.table.print(time.Since(start)) })
	if !x.run(t, "agents and a DHCP agent start, a VM is plugged in", "2", x.prepare) {
		t.FailNow()
	}
	var before map[string]map[string]string
	if !x.run(t, "dnsmasq answers udhcpc, dhclient, dhcpcd and systemd-networkd", "2", func(t *testing.T) { before = x.ask(t, x.vm.VM, "dnsmasq") }) {
		t.FailNow()
	}
	x.run(t, "a client that dnsmasq has bound renews at the extension", "1", x.renews)
	x.run(t, "the extension answers, option for option", "1", func(t *testing.T) { x.compare(t, before, x.ask(t, x.vm.VM, "extension")) })
	x.run(t, "patchbay port says who answers", "1", x.explained)
	x.run(t, "a sub-port of a trunk gets its address", "1", x.subPort)
	x.run(t, "a VM of a host without the extension gets its from dnsmasq", "1", x.elsewhere)
	x.run(t, "with broker, server and database away, after a restart of switch and agent", "1", x.alone)
	x.run(t, "a VM behind a Linux bridge, with iptables_hybrid", "1", x.hybrid)
}

type leased struct {
	*cloud
	net     network
	v4, v6  string // subnets
	vm      *vm
	carrier *carrier
}

const answering = "agent.extensions=dhcp"

func (x *leased) close() {
	x.cloud.close()
	if x.carrier != nil {
		x.carrier.close()
	}
}

func (x *leased) prepare(t *testing.T) {
	x.eachHost(t, func(h *lab.Host) error { return h.StartAgent(x.ctx, lab.Patchbay, filtering) })
	if err := x.l.Host(2).StartDHCP(x.ctx); err != nil {
		t.Fatal(err)
	}
	x.leases(t)
	x.vm = x.plugVM(t, "asks", 1, 50, false)
	if err := x.l.WaitActive(x.ctx, x.vm.PortID); err != nil {
		t.Fatal(err)
	}
	// The DHCP agent starts dnsmasq anew for each subnet, and the clients ask for addresses of all of them.
	if !x.eventually(wired, x.knows) {
		t.Fatal("dnsmasq does not know the IPv6 address of the VM")
	}
}

// knows returns whether dnsmasq runs, and knows the IPv6 subnet and the address of the VM in it.
func (x *leased) knows() bool {
	args, err := os.ReadFile(filepath.Join("/proc", x.dnsmasq(), "cmdline"))
	if err != nil {
		return false
	}
	hosts, _ := os.ReadFile(x.l.Host(2).DHCPFile(x.net.ID, "host"))
	return strings.Contains(string(args), "fd00:21::,static") && strings.Contains(string(hosts), "[fd00:21::50]")
}

// dnsmasq returns the pid of the dnsmasq that was started last.
func (x *leased) dnsmasq() string {
	pid, err := os.ReadFile(x.l.Host(2).DHCPFile(x.net.ID, "pid"))
	if err != nil {
		return "none"
	}
	return strings.TrimSpace(string(pid))
}

// leases makes the network.
func (x *leased) leases(t *testing.T) {
	t.Helper()
	var network struct{ Network identified }
	x.post(t, "networks", attributes{"network": attributes{"name": "leased", "tenant_id": lab.Project}}, &network)
	x.net.ID, x.net.Name = network.Network.ID, "leased"
	subnet := func(what attributes) string {
		var made struct{ Subnet identified }
		all := attributes{"network_id": x.net.ID, "tenant_id": lab.Project}
		maps.Copy(all, what)
		x.post(t, "subnets", attributes{"subnet": all}, &made)
		return made.Subnet.ID
	}
	x.v4 = subnet(attributes{
		"ip_version": 4, "cidr": "10.21.0.0/24", "dns_nameservers": []string{"192.0.2.54", "192.0.2.53"},
		"host_routes": []attributes{{"destination": "10.29.0.0/16", "nexthop": "10.21.0.9"}},
	})
	subnet(attributes{"ip_version": 4, "cidr": "10.22.0.0/24"}) // a route leads to it
	subnet(attributes{"ip_version": 4, "cidr": "10.23.0.0/24", "enable_dhcp": false})
	x.v6 = subnet(attributes{
		"ip_version": 6, "cidr": "fd00:21::/64", "ipv6_address_mode": "dhcpv6-stateful", "ipv6_ra_mode": "dhcpv6-stateful", "dns_nameservers": []string{"fd00:21::53"},
	})
}

// plugVM plugs in a VM with one address of each version.
func (x *leased) plugVM(t *testing.T, name string, host, last int, hybrid bool) *vm {
	t.Helper()
	made, err := x.l.Host(host).Plug(x.ctx, lab.Port{NetworkID: x.net.ID, Name: name, Hybrid: hybrid, Extra: attributes{
		"device_id": name + "-instance",
		"fixed_ips": []attributes{
			{"subnet_id": x.v4, "ip_address": fmt.Sprintf("10.21.0.%d", last)}, {"subnet_id": x.v6, "ip_address": fmt.Sprintf("fd00:21::%d", last)},
		},
		"extra_dhcp_opts": []attributes{
			{"opt_name": "ntp-server", "opt_value": "192.0.2.123", "ip_version": 4}, {"opt_name": "66", "opt_value": "boot.example.org", "ip_version": 4},
			{"opt_name": "bootfile-name", "opt_value": "pxelinux.0", "ip_version": 4}, {"opt_name": "150", "opt_value": "192.0.2.66", "ip_version": 4},
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return &vm{VM: made, net: &x.net, name: name, host: host}
}

// ask has the clients ask one after the other, and returns what each of them got.
func (x *leased) ask(t *testing.T, v *lab.VM, from string) map[string]map[string]string {
	t.Helper()
	clients := map[string]func() (map[string]string, error){
		"udhcpc":           func() (map[string]string, error) { return x.udhcpc(t, v, "eth0") },
		"dhclient":         func() (map[string]string, error) { return x.dhclient(t, v, "-4") },
		"dhclient -6":      func() (map[string]string, error) { return x.dhclient(t, v, "-6", "-D", "LL") },
		"dhcpcd":           func() (map[string]string, error) { return x.dhcpcd(t, v, "-4") },
		"dhcpcd -6":        func() (map[string]string, error) { return x.dhcpcd(t, v, "-6") },
		"systemd-networkd": func() (map[string]string, error) { return x.networkd(t, v) },
	}
	out := map[string]map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(clients)) {
		pid := x.dnsmasq()
		got, err := clients[name]()
		if err != nil && from == "dnsmasq" && x.eventually(10*time.Second, func() bool { return x.dnsmasq() != pid && x.knows() }) {
			t.Logf("dnsmasq crashed while %s asked, and was started again; asking once more", name)
			got, err = clients[name]()
		}
		if err != nil {
			t.Errorf("%s has no lease of the %s: %v", name, from, err)
			continue
		}
		out[name] = got
	}
	return out
}

func (x *leased) bare(t *testing.T, v *lab.VM, link string) {
	t.Helper()
	for _, args := range [][]string{{"-4", "address", "flush", "dev", link}, {"-6", "address", "flush", "dev", link, "scope", "global"}} {
		if out, err := v.Command(x.ctx, "ip", args...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
}

// script writes what udhcpc tells it to a file, and gives the link its address.
func script(t *testing.T) (path, env string) {
	t.Helper()
	dir := t.TempDir()
	path, env = filepath.Join(dir, "script"), filepath.Join(dir, "env")
	text := "#!/bin/sh\n{ echo action=$1; env; } >> " + env + "\n[ -n \"$ip\" ] && ip address replace $ip/$mask dev $interface\nexit 0\n"
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return path, env
}

// told reads what udhcpc told its script last.
func told(env string) map[string]string {
	text, _ := os.ReadFile(env)
	got := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), "="); ok && (k == strings.ToLower(k) || strings.HasPrefix(k, "opt")) && k != "_" {
			got[k] = v
		}
	}
	return got
}

func udhcpcArgs(path, link string, more ...string) []string {
	args := []string{"-i", link, "-f", "-t", "5", "-T", "2", "-s", path}
	for _, o := range []string{"staticroutes", "msstaticroutes", "mtu", "ntpsrv", "dns", "domain", "hostname", "broadcast", "router", "tftp", "bootfile", "0x96"} {
		args = append(args, "-O", o)
	}
	return append(args, more...)
}

func (x *leased) udhcpc(t *testing.T, v *lab.VM, link string) (map[string]string, error) {
	t.Helper()
	x.bare(t, v, link)
	path, env := script(t)
	ctx, cancel := context.WithTimeout(x.ctx, 20*time.Second)
	defer cancel()
	out, err := v.Command(ctx, "udhcpc", udhcpcArgs(path, link, "-n", "-q")...).CombinedOutput()
	got := told(env)
	if err == nil && got["ip"] == "" {
		err = fmt.Errorf("no address")
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	return got, nil
}

var leaseLine = regexp.MustCompile(`(?m)^\s*(?:option )?([a-z0-9.-]+) (.+?);?\s*$`)

// dhclient asks, and returns the lines of the lease.
func (x *leased) dhclient(t *testing.T, v *lab.VM, args ...string) (map[string]string, error) {
	t.Helper()
	x.bare(t, v, "eth0")
	dir := t.TempDir()
	file := filepath.Join(dir, "leases")
	ctx, cancel := context.WithTimeout(x.ctx, 20*time.Second)
	defer cancel()
	cmd := v.Command(ctx, "dhclient", append(args, "-1", "-d", "-sf", "/bin/true", "-lf", file, "-pf", filepath.Join(dir, "pid"), "eth0")...)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	leased := func() bool { got, err := os.ReadFile(file); return err == nil && strings.Contains(string(got), "\n}") }
	x.eventually(18*time.Second, leased)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	text, _ := os.ReadFile(file)
	if !leased() {
		return nil, fmt.Errorf("%s", out.String())
	}
	got := map[string]string{}
	for _, m := range leaseLine.FindAllStringSubmatch(string(text), -1) {
		got[m[1]] = m[2]
	}
	return got, nil
}

// differing are what the two answer differently, with the reason; anything else is a fault.
var differing = map[string]string{
	"serverid": "the gateway in place of the DHCP port", "siaddr": "the same", "dhcp-server-identifier": "the same", "next-server": "the same",
	"dhcp6.server-id": "another server", "renew": "a time of day", "rebind": "a time of day", "expire": "a time of day", "starts": "a time of day",
	"cltt": "a time of day", "ia-na": "the client's", "default-duid": "the client's", "iaaddr": "compared by itself", "opt58": "dnsmasq shortens T1 at random", "opt59": "the same",
	"dhcp-renewal-time": "dnsmasq shortens T1 at random", "dhcp-rebinding-time": "the same",
	"staticroutes": "compared by itself", "msstaticroutes": "compared by itself", "rfc3442-classless-static-routes": "compared by itself",
	"max-life": "dnsmasq takes the client's wish if that is shorter", "preferred-life": "the same",
	"dhcp6.client-id": "the client's", "opt61": "returned by RFC 6842", "dhcp_client_identifier": "the same",
	"dhcp_server_identifier": "the gateway in place of the DHCP port", "SERVER_ADDRESS": "the same", "NEXT_SERVER": "the same", "dhcp6_server_id": "another server",
	"classless_static_routes": "compared by itself", "ms_classless_static_routes": "compared by itself", "CLASSLESS_ROUTES": "compared by itself",
	"dhcp6_ia_na1_t2": "four fifths by RFC 8415, and seven eighths with dnsmasq",
	"interface":       "", "mask": "", "action": "", "dhcptype": "", "sname": "", "boot_file": "",
}

// compare looks at what a client got from one and the other.
func (x *leased) compare(t *testing.T, before, after map[string]map[string]string) {
	for _, client := range slices.Sorted(maps.Keys(before)) {
		a, b := before[client], after[client]
		keys := slices.Collect(maps.Keys(a))
		keys = slices.AppendSeq(keys, maps.Keys(b))
		slices.Sort(keys)
		for _, k := range slices.Compact(keys) {
			if why, known := differing[k]; known && a[k] != b[k] {
				t.Logf("%s: %s: dnsmasq %q, extension %q: %s", client, k, a[k], b[k], why)
			} else if a[k] != b[k] {
				t.Errorf("%s: %s: dnsmasq %q, extension %q", client, k, a[k], b[k])
			}
		}
	}
	// The network has no router, so that dnsmasq gives no route to the metadata.
	toMetadata := regexp.MustCompile(`169\.254\.169\.254/32[ ,]10\.21\.0\.1 ?`)
	for client, option := range map[string]string{"udhcpc": "staticroutes", "dhcpcd": "classless_static_routes", "systemd-networkd": "CLASSLESS_ROUTES"} {
		if a, b := before[client][option], toMetadata.ReplaceAllString(after[client][option], ""); a == "" || a != b {
			t.Errorf("%s: routes: dnsmasq %q, extension %q", client, a, b)
		}
	}
	if a, b := strings.Fields(before["dhclient -6"]["iaaddr"] + " ")[0], strings.Fields(after["dhclient -6"]["iaaddr"] + " ")[0]; a != b {
		t.Errorf("IPv6 address: dnsmasq %s, extension %s", a, b)
	}
}

// renews binds a client to dnsmasq, loads the extension, and has the client renew.
func (x *leased) renews(t *testing.T) {
	x.bare(t, x.vm.VM, "eth0")
	path, env := script(t)
	cmd := x.vm.Command(x.ctx, "udhcpc", udhcpcArgs(path, "eth0")...)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	var server string
	if !x.eventually(15*time.Second, func() bool {
		got := told(env) // the script may still be writing
		server = got["serverid"]
		return got["action"] == "bound" && server != ""
	}) {
		t.Fatalf("not bound: %s", out.String())
	}
	x.again(t, 1, filtering, answering)
	x.waitAnswers(t, 1, x.vm.PortID)
	if err := x.vm.WaitPing(x.ctx, server); err != nil { // so that its MAC is known
		t.Fatal(err)
	}
	x.stopDHCP(t)
	signalled(t, cmd)
	if !x.eventually(15*time.Second, func() bool { return told(env)["action"] == "renew" }) {
		t.Fatalf("not renewed: %v, %s", told(env), out.String())
	}
	if got := told(env); got["ip"] != "10.21.0.50" || got["serverid"] != server {
		t.Errorf("renewed with %s of %s, want the address that it has, of %s", got["ip"], got["serverid"], server)
	}
}

// stopDHCP ends dnsmasq: whoever answers now is the extension. ARP for its address is still known.
func (x *leased) stopDHCP(t *testing.T) {
	t.Helper()
	if err := x.l.Host(2).StopDHCP(x.ctx); err != nil {
		t.Fatal(err)
	}
}

// signalled has udhcpc renew. It runs in a namespace, which ip has exec'ed into.
func signalled(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Process.Signal(syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
}

// again starts the agent of a host anew.
func (x *leased) again(t *testing.T, host int, overrides ...string) {
	t.Helper()
	h := x.l.Host(host)
	if err := h.StopAgent(x.ctx); err != nil {
		t.Fatal(err)
	}
	if err := h.StartAgent(x.ctx, lab.Patchbay, overrides...); err != nil {
		t.Fatal(err)
	}
}

// waitAnswers waits until the agent says that it answers a port.
func (x *leased) waitAnswers(t *testing.T, host int, port string) {
	t.Helper()
	var out string
	if !x.eventually(wired, func() bool {
		out, _ = x.runPatchbay(t, host, "port", port)
		return strings.Contains(out, "the agent answers DHCPv4 with")
	}) {
		t.Fatalf("the extension does not answer: %s", out)
	}
}

func (x *leased) explained(t *testing.T) {
	out, _ := x.runPatchbay(t, 1, "port", x.vm.PortID)
	for _, want := range []string{"the agent answers DHCPv4 with 10.21.0.50/24", "the agent answers DHCPv6 with fd00:21::50", "its last packet, ", "was answered with"} {
		if !strings.Contains(out, want) {
			t.Errorf("patchbay port says\n%s, want %q in it", out, want)
		}
	}
}

// subPort has a sub-port ask, through its VLAN.
func (x *leased) subPort(t *testing.T) {
	rides := func(name string, last int) *rider {
		p, err := x.l.CreatePort(x.ctx, nil, lab.Port{NetworkID: x.net.ID, Name: name, Extra: attributes{
			"device_owner": "", "fixed_ips": []attributes{{"subnet_id": x.v4, "ip_address": fmt.Sprintf("10.21.0.%d", last)}},
		}})
		if err != nil {
			t.Fatal(err)
		}
		return &rider{net: &x.net, port: p}
	}
	parent, sub := rides("parent", 60), rides("sub", 61)
	sub.vlan = 101
	x.carrier = x.carry(t, 1, parent, sub)
	x.carrier.waitTrunk(t)
	x.waitAnswers(t, 1, sub.port.ID)
	for _, r := range []*rider{parent, sub} {
		got, err := x.udhcpc(t, x.carrier.vm.VM, r.link())
		if err != nil || got["ip"] != r.ip() {
			t.Errorf("%s: %v, %v; want %s", r.link(), got["ip"], err, r.ip())
		}
	}
}

// elsewhere has a VM of the second host, whose agent has no extension, ask a DHCP agent there.
func (x *leased) elsewhere(t *testing.T) {
	if err := x.l.Host(2).StartDHCP(x.ctx); err != nil {
		t.Fatal(err)
	}
	v := x.plugVM(t, "elsewhere", 2, 70, false)
	if err := x.l.WaitActive(x.ctx, v.PortID); err != nil {
		t.Fatal(err)
	}
	var err error
	var got map[string]string
	if !x.eventually(wired, func() bool { got, err = x.udhcpc(t, v.VM, "eth0"); return err == nil }) || got["ip"] != "10.21.0.70" || got["serverid"] == "10.21.0.1" {
		t.Errorf("%v, %v; want 10.21.0.70 of dnsmasq", got, err)
	}
	x.stopDHCP(t)
}

// alone has the VM ask while nobody answers the agent, after a restart of switch and agent.
func (x *leased) alone(t *testing.T) {
	x.rebooted(t, func() {
		began := time.Now()
		var err error
		var got map[string]string
		if !x.eventually(time.Minute, func() bool { got, err = x.udhcpc(t, x.vm.VM, "eth0"); return err == nil }) {
			t.Fatal(err)
		}
		t.Logf("%s of %s %.1f s after the agent was started", got["ip"], got["serverid"], time.Since(began).Seconds())
		if got["ip"] != "10.21.0.50" || got["dns"] != "192.0.2.54 192.0.2.53" {
			t.Errorf("got %v", got)
		}
		if _, err := x.dhclient(t, x.vm.VM, "-6"); err != nil {
			t.Errorf("no IPv6 lease: %v", err)
		}
	}, filtering, answering)
}

// rebooted starts switch and agent again while broker, server and database are away, and calls asks before they are back.
func (x *leased) rebooted(t *testing.T, asks func(), options ...string) {
	t.Helper()
	h := x.l.Host(1)
	x.stopBroker(t)
	if err := errors.Join(x.l.StopServer(x.ctx), x.l.KillDatabase()); err != nil {
		t.Fatal(err)
	}
	defer func() {
		x.startBroker(t)
		if err := errors.Join(x.l.StartDatabase(x.ctx), x.l.StartServer(x.ctx)); err != nil {
			t.Fatal(err)
		}
	}()
	if err := errors.Join(h.KillAgent(), h.Switch().StopVswitchd(x.ctx), h.Switch().StartVswitchd(x.ctx), h.LaunchAgent(x.ctx, lab.Patchbay, options...)); err != nil {
		t.Fatal(err)
	}
	asks()
}

// hybrid has a VM behind a Linux bridge ask.
func (x *leased) hybrid(t *testing.T) {
	x.again(t, 2, "securitygroup.firewall_driver=iptables_hybrid", answering)
	v := x.plugVM(t, "bridged", 2, 80, true)
	x.waitAnswers(t, 2, v.PortID) // the server waits for the DHCP agent, which is down, before it takes the port for active
	got, err := x.udhcpc(t, v.VM, "eth0")
	if err != nil || got["ip"] != "10.21.0.80" || got["serverid"] != "10.21.0.1" {
		t.Errorf("%v, %v; want 10.21.0.80", got, err)
	}
}
