// SPDX-License-Identifier: Apache-2.0

//go:build integration

package localip_test

import (
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/patchbay-sdn/patchbay/internal/agent"
	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/localip"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/lab/onehost"
)

// The address that leads to port 2, and that the VM outside of the host has.
const local = "10.5.0.13"

// answer is that of a server that knows the ports of the test, their group and the local IP of one of them. Associations are asked for by port.
func (m mode) answer(kind neutron.Kind, filter map[string]any) (found []map[string]any, ok bool) {
	ids, byID := filter["id"].([]string)
	switch {
	case kind == neutron.KindPort && byID:
		for _, id := range ids {
			found = append(found, m.port(strings.TrimPrefix(id, "port")))
		}
	case kind == neutron.KindPort: // the members of the group
		found = append(found, m.port("1"), m.port("2"))
	case kind == neutron.KindSecurityGroup:
		rule := func(id string, more map[string]any) map[string]any {
			more["id"], more["security_group_id"], more["ethertype"] = id, "g", "IPv4"
			return onehost.Boxed(more)
		}
		found = append(found, map[string]any{"id": "g", "name": "g", "revision_number": 1, "rules": []any{
			rule("out", map[string]any{"direction": "egress"}),
			rule("tcp", map[string]any{"direction": "ingress", "protocol": "tcp", "port_range_min": 22, "port_range_max": 22, "remote_group_id": "g"}),
			rule("udp", map[string]any{"direction": "ingress", "protocol": "udp", "port_range_min": 53, "port_range_max": 53}),
			rule("icmp", map[string]any{"direction": "ingress", "protocol": "icmp"}),
		}})
	case kind == neutron.KindLocalIPAssociation:
		if asked, _ := filter["fixed_port_id"].([]string); slices.Contains(asked, "port2") {
			found = append(found, map[string]any{
				"local_ip_id": "lip", "fixed_port_id": "port2", "fixed_ip": "10.5.0.12",
				"local_ip": onehost.Boxed(map[string]any{"local_ip_address": local, "ip_mode": "translate"}),
			})
		}
	default:
		return nil, false
	}
	return found, true
}

func (m mode) port(n string) map[string]any {
	return map[string]any{
		"id": "port" + n, "network_id": "net", "project_id": "a", "mac_address": onehost.MAC(n), "admin_state_up": true, "device_owner": "compute:nova", "status": "DOWN",
		"revision_number": 1, "security_group_ids": []string{"g"},
		"security":       onehost.Boxed(map[string]any{"port_security_enabled": n != "2" || !m.open}),
		"fixed_ips":      []any{onehost.Boxed(map[string]any{"subnet_id": "s4", "ip_address": "10.5.0.1" + n})},
		"bindings":       []any{onehost.Boxed(map[string]any{"host": "hv1", "status": "ACTIVE"})},
		"binding_levels": []any{onehost.Boxed(map[string]any{"host": "hv1", "segment": onehost.Boxed(map[string]any{"network_type": "vlan", "physical_network": "physnet1", "segmentation_id": 101})})},
	}
}

// bench is an agent on a real switch with namespaces for VMs.
type bench struct{ *onehost.Host }

// mode is how the host filters and translates.
type mode struct {
	firewall, static bool
	open             bool // the port that the address leads to has no port security
	short            bool // without repairs
}

func newBench(t *testing.T, m mode) bench {
	t.Helper()
	b := bench{onehost.New(t, m.answer, "br-ex")}
	b.Configure = func(c *agent.Config) {
		if m.firewall {
			onehost.Filtered(c)
		}
		c.World.Physical = map[string]string{"physnet1": "br-ex"}
		c.Extensions = []extension.New{localip.New(m.static)}
	}
	b.Start()
	return b
}

// in runs a command in the VM of a port.
func (b bench) in(n string, command ...string) (string, error) {
	return b.In(b.Switch.Netns()+"-vm"+n, command...)
}

// address gives the VM of a port its address.
func (b bench) address(n string) {
	b.Helper()
	b.Must("ip", "-n", b.Switch.Netns()+"-vm"+n, "addr", "add", "10.5.0.1"+n+"/24", "dev", "eth0")
}

// plug makes the VM of a port, with its address.
func (b bench) plug(n string) {
	b.Helper()
	b.Plug(n)
	b.address(n)
}

// ofctl runs ovs-ofctl, and returns what it says.
func (b bench) ofctl(args ...string) string {
	b.Helper()
	out, err := b.Switch.Ofctl(b.Context(), args...)
	if err != nil {
		b.Fatalf("ovs-ofctl %v: %v: %s", args, err, out)
	}
	return out
}

// serve has the VM answer TCP and UDP until the end of the test.
func (b bench) serve(n string) {
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
	server := exec.CommandContext(b.Context(), "ip", "netns", "exec", b.Switch.Netns()+"-vm"+n, "python3", "-c", echo)
	if err := server.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = server.Process.Kill(); _ = server.Wait() })
	b.Wait("the servers", func() bool {
		out, _ := b.in(n, "ss", "-lntu")
		return strings.Contains(out, ":23 ") && strings.Contains(out, ":53 ")
	})
}

// asks has the VM ask over TCP or UDP, and returns what it was told.
func (b bench) asks(n, protocol, address string, port int) (string, error) {
	kind := map[string]string{"tcp": "STREAM", "udp": "DGRAM"}[protocol]
	out, err := b.in(n, "python3", "-c", fmt.Sprintf(
		"import socket;s=socket.socket(socket.AF_INET,socket.SOCK_%s);s.settimeout(1.5);s.connect(('%s',%d));s.send(b'x');print(s.recv(99).decode())", kind, address, port))
	return strings.TrimSpace(out), err
}

// neighbor returns the MAC that the VM has for an address.
func (b bench) neighbor(n, address string) string {
	out, _ := b.in(n, "ip", "neigh", "show", address)
	return regexp.MustCompile(`lladdr (\S+)`).FindString(out)
}

// translated fails unless the address leads to port 2 with every protocol, and port 2 itself is still what it is under its own address.
func (b bench) translated(when string) {
	b.Helper()
	b.Wait("the local IP to be answered "+when, func() bool { got, _ := b.asks("1", "tcp", local, 22); return got == "tcp x of 10.5.0.11" })
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
	if got := b.neighbor("1", local); got != "lladdr "+onehost.MAC("2") {
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
	b.Wired(2)
	b.VM("3")
	b.address("3")
	b.Vsctl("add-port", "br-ex", "tap3", "tag=101")
	b.serve("2")
	b.serve("3")
	b.translated("at first")

	// The port itself reaches who has the address in the network.
	if got, err := b.asks("2", "udp", local, 53); err != nil || got != "udp x of 10.5.0.12" || b.neighbor("2", local) != "lladdr "+onehost.MAC("3") {
		t.Errorf("the port that the address leads to gets %q, %v, from %q", got, err, b.neighbor("2", local))
	}
	// Announcements of that one do not reach the guests.
	announce := fmt.Sprintf("import socket;s=socket.socket(socket.AF_PACKET,socket.SOCK_RAW);s.bind(('eth0',0));m=bytes.fromhex('%s');a=socket.inet_aton('%s');"+
		"s.send(b'\\xff'*6+m+bytes.fromhex('08060001080006040001')+m+a+b'\\0'*6+a)", strings.ReplaceAll(onehost.MAC("3"), ":", ""), local)
	b.Must("ip", "netns", "exec", b.Switch.Netns()+"-vm3", "python3", "-c", announce)
	b.Wait("the announcement to be dropped", func() bool {
		out, _ := b.Switch.Ofctl(t.Context(), "dump-flows", "br-int", "table=0,arp,arp_spa="+local)
		return regexp.MustCompile(`n_packets=[1-9]\d*, .*priority=10,.*actions=drop`).MatchString(out)
	})
	if got := b.neighbor("1", local); got != "lladdr "+onehost.MAC("2") {
		t.Errorf("after an announcement the VM has %q", got)
	}

	// A forged sender teaches the switch nothing.
	b.Must("ip", "-n", b.Switch.Netns()+"-vm1", "addr", "add", "10.5.0.77/24", "dev", "eth0")
	if _, err := b.in("1", "python3", "-c", "import socket;s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM);s.bind(('10.5.0.77',0));s.sendto(b'x',('"+local+"',53))"); err != nil {
		t.Fatal(err)
	}
	if got, err := b.asks("1", "udp", local, 53); err != nil {
		t.Errorf("%q, %v", got, err)
	}
	learned := b.ofctl("dump-flows", "br-int", "table=32")
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
	b.ofctl("del-flows", "br-int", "table=31")
	b.ofctl("del-flows", "br-int", "table=30")
	b.translated("after its flows were deleted")

	b.Vsctl("del-port", "br-int", "tap2")
	b.Wait("the port to be gone", func() bool { return b.Status().Ports["wired"] == 1 })
	b.Vsctl("add-port", "br-int", "tap2", "--", "set", "Interface", "tap2", "external_ids:iface-id=port2", `external_ids:attached-mac="`+onehost.MAC("2")+`"`)
	b.Wired(2)
	b.translated("after it was plugged in again")

	b.RestartSwitch()
	b.translated("after a restart of the switch")
}
