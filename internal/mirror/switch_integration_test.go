// SPDX-License-Identifier: Apache-2.0

//go:build integration

package mirror_test

import (
	"bytes"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/patchbay-sdn/patchbay/internal/agent"
	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/mirror"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/lab/onehost"
)

// VM 1 is the one whose packets are copied, 2 the one that it talks to, and 3 looks at the copies.

// answer is that of a server that knows the ports of the test and their group.
func answer(kind neutron.Kind, filter map[string]any) (found []map[string]any, ok bool) {
	ids, byID := filter["id"].([]string)
	switch {
	case kind == neutron.KindPort && byID:
		for _, id := range ids {
			found = append(found, portOf(strings.TrimPrefix(id, "port")))
		}
	case kind == neutron.KindPort: // the members of the group
		found = append(found, portOf("1"), portOf("2"), portOf("3"))
	case kind == neutron.KindSecurityGroup:
		rule := func(id string, more map[string]any) map[string]any {
			more["id"], more["security_group_id"], more["ethertype"] = id, "g", "IPv4"
			return onehost.Boxed(more)
		}
		found = append(found, map[string]any{"id": "g", "name": "g", "revision_number": 1, "rules": []any{
			rule("out", map[string]any{"direction": "egress"}), rule("icmp", map[string]any{"direction": "ingress", "protocol": "icmp"}),
		}})
	default:
		return nil, false
	}
	return found, true
}

func portOf(n string) map[string]any {
	return map[string]any{
		"id": "port" + n, "network_id": "net", "project_id": "a", "mac_address": onehost.MAC(n), "admin_state_up": true, "device_owner": "compute:nova", "status": "DOWN",
		"revision_number": 1, "security_group_ids": []string{"g"}, "security": onehost.Boxed(map[string]any{"port_security_enabled": true}),
		"fixed_ips":      []any{onehost.Boxed(map[string]any{"subnet_id": "s4", "ip_address": "10.5.0.1" + n})},
		"bindings":       []any{onehost.Boxed(map[string]any{"host": "hv1", "status": "ACTIVE"})},
		"binding_levels": []any{onehost.Boxed(map[string]any{"host": "hv1", "segment": onehost.Boxed(map[string]any{"network_type": "local"})})},
	}
}

// bench is an agent on a real switch with namespaces for VMs, and what it told the server.
type bench struct {
	*onehost.Host
	mu   sync.Mutex
	told map[string]string // status by id
}

func newBench(t *testing.T, bridges ...string) *bench {
	t.Helper()
	b := &bench{Host: onehost.New(t, answer, bridges...), told: map[string]string{}}
	b.Configure = func(c *agent.Config) {
		onehost.Filtered(c)
		c.Extensions = []extension.New{mirror.New}
	}
	b.Calls = func(method string, args map[string]any) (bool, error) {
		if !strings.Contains(method, "_tap_") {
			return false, nil
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		if msg, ok := args["msg"].(map[string]any); ok {
			b.told[fmt.Sprint(msg["id"])] = fmt.Sprint(args["status"])
		}
		return true, nil
	}
	b.Start()
	for _, n := range []string{"1", "2", "3"} {
		b.Plug(n)
		b.Must("ip", "-n", b.ns(n), "addr", "add", "10.5.0.1"+n+"/24", "dev", "eth0")
		b.Must("ip", "netns", "exec", b.ns(n), "sysctl", "-qw", "net.ipv6.conf.eth0.disable_ipv6=1")
	}
	b.Wired(3)
	return b
}

func (b *bench) ns(n string) string { return b.Switch.Netns() + "-vm" + n }

func (b *bench) wait(id, status string) {
	b.Helper()
	b.Wait(id+" to be "+status, func() bool { b.mu.Lock(); defer b.mu.Unlock(); return b.told[id] == status })
}

func bound(n string) map[string]any {
	return map[string]any{"id": "port" + n, "binding:host_id": "hv1", "binding:vnic_type": "normal", "binding:vif_details": map[string]any{}}
}

const service, flow, tunnels = "5e000001-0000-4000-8000-000000000000", "f1000001-0000-4000-8000-000000000000", "3a000001-0000-4000-8000-000000000000"

func (b *bench) tap(event, direction string) {
	b.Helper()
	b.Cast(neutron.TopicTap, event+"_tap_flow", map[string]any{"host": "hv1", "tap_flow_msg": map[string]any{
		"tap_flow": map[string]any{"id": flow, "tap_service_id": service, "direction": direction, "status": "DOWN"}, "port": bound("1"), "tap_service_port": bound("3"),
	}})
}

// seen prints what comes in by an interface, whomever it is for: one line a packet.
const seen = `
import socket, struct, sys
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.ntohs(3)); s.bind(('eth0', 0))
s.setsockopt(263, 1, struct.pack('iHH8s', socket.if_nametoindex('eth0'), 1, 0, b''))
s.setsockopt(263, 8, 1)
print('ready', flush=True)
while True:
    p, aux, _, a = s.recvmsg(9000, 99)
    if a[2] == 4: continue
    tag = ''
    for level, kind, data in aux:
        if struct.unpack('I', data[:4])[0] & 16: tag = 'tagged '
    kind, = struct.unpack('!H', p[12:14])
    if kind != 0x800: print(tag + 'type %x' % kind, flush=True); continue
    src, dst, proto = socket.inet_ntoa(p[26:30]), socket.inet_ntoa(p[30:34]), p[23]
    if proto == 17: dst += ':%d' % struct.unpack('!H', p[36:38])
    inner = ''
    if proto == 47:
        flags, what = struct.unpack('!HH', p[34:38]); at = 38
        if what == 0x6558: inner = ' key %d' % struct.unpack('!I', p[at:at+4]); at += 4
        else: inner = ' session %d' % (struct.unpack('!H', p[at+6:at+8])[0] & 1023); at += 12
        e = p[at:]
        if e[12:14] == b'\x08\x00': inner += ' of ' + socket.inet_ntoa(e[26:30]) + '>' + socket.inet_ntoa(e[30:34])
        else: inner += ' of type ' + e[12:14].hex()
    print(tag + {1: 'icmp', 17: 'udp', 47: 'gre'}.get(proto, str(proto)), src + '>' + dst + inner, flush=True)
`

// watch looks at what a VM receives until it is asked what that was.
type watch struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (w *watch) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(p)
}

func (w *watch) lines() map[string]bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := map[string]bool{}
	for line := range strings.Lines(w.text.String()) {
		out[strings.TrimSpace(line)] = true
	}
	return out
}

func (b *bench) watch(n string) *watch {
	b.Helper()
	w := &watch{}
	cmd := exec.CommandContext(b.Context(), "ip", "netns", "exec", b.ns(n), "python3", "-c", seen)
	cmd.Stdout, cmd.Stderr = w, w
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	b.Wait("the watch of VM "+n, func() bool { return w.lines()["ready"] })
	return w
}

// packets has VMs send what is allowed and what is not.
func (b *bench) packets() {
	b.Helper()
	b.Must("ip", "netns", "exec", b.ns("1"), "ping", "-c", "2", "-i", "0.2", "-W", "2", "10.5.0.12")
	b.Must("ip", "netns", "exec", b.ns("2"), "ping", "-c", "2", "-i", "0.2", "-W", "2", "10.5.0.11")
	b.Must("ip", "netns", "exec", b.ns("2"), "python3", "-c", "import socket;socket.socket(socket.AF_INET,socket.SOCK_DGRAM).sendto(b'x',('10.5.0.11',99))") // no rule lets it in
	// From an address that VM 1 does not have.
	b.Must("ip", "netns", "exec", b.ns("1"), "python3", "-c", fmt.Sprintf(`
import socket, struct
h = struct.pack('!BBHHHBBH4s4s', 69, 0, 29, 0, 0, 9, 17, 0, socket.inet_aton('10.5.0.77'), socket.inet_aton('10.5.0.12')) + struct.pack('!HHHH', 9, 98, 9, 0) + b'x'
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW); s.bind(('eth0', 0)); s.send(bytes.fromhex('%s%s0800') + h)`, hex("2"), hex("1")))
	b.Must("ip", "netns", "exec", b.ns("1"), "ping", "-c", "1", "-W", "2", "10.5.0.12") // after all others
}

func hex(n string) string { return strings.ReplaceAll(onehost.MAC(n), ":", "") }

const (
	sent, received   = "icmp 10.5.0.11>10.5.0.12", "icmp 10.5.0.12>10.5.0.11"
	forged, filtered = "udp 10.5.0.77>10.5.0.12:98", "udp 10.5.0.12>10.5.0.11:99"
)

// copied fails unless a watch has seen these of the packets, and nothing with a tag.
func (b *bench) copied(what string, w *watch, want ...string) {
	b.Helper()
	b.Wait(what, func() bool {
		got := w.lines()
		return !slices.ContainsFunc(want, func(line string) bool { return !got[line] })
	})
	got := w.lines()
	for _, line := range []string{sent, received, forged, filtered} {
		if got[line] != slices.Contains(want, line) {
			b.Errorf("%s: %q is among the packets: %t", what, line, got[line])
		}
	}
	for line := range got {
		if strings.HasPrefix(line, "tagged") || strings.Contains(line, "Error") {
			b.Errorf("%s: %s", what, line)
		}
	}
}

// TestRealPackets: packets of VM 1 are copied to VM 3, in each direction, and go the same way as without; what the security group drops is dropped.
func TestRealPackets(t *testing.T) {
	b := newBench(t)
	b.Vsctl("set", "Open_vSwitch", ".", "other_config:stats-update-interval=3600000") // it makes a new version of a mirror's row
	b.Cast(neutron.TopicTap, "create_tap_service", map[string]any{"host": "hv1", "tap_service": map[string]any{"tap_service": map[string]any{"id": service, "status": "DOWN"}, "port": bound("3")}})
	b.wait(service, "ACTIVE")
	before := b.watch("3")
	b.packets()
	b.copied("without a tap flow", before)

	for direction, want := range map[string][]string{"BOTH": {sent, received, forged}, "OUT": {sent, forged}, "IN": {received}} {
		b.tap("create", direction)
		b.wait(flow, "ACTIVE")
		b.Wait("the mirror", func() bool { return b.Vsctl("--bare", "--columns=name", "list", "Mirror") == "ts_5e000001\n" })
		copies, one, two := b.watch("3"), b.watch("1"), b.watch("2")
		b.packets()
		b.copied(direction, copies, want...)
		b.copied("VM 1", one, received)
		b.copied("VM 2", two, sent)
		// VM 3 is not cut off.
		b.Must("ip", "netns", "exec", b.ns("3"), "ping", "-c", "1", "-W", "2", "10.5.0.12")
		if direction == "BOTH" {
			b.survive(want)
		}
		b.tap("delete", direction)
		b.wait(flow, "INACTIVE")
		if got := b.Vsctl("--bare", "--columns=name", "list", "Mirror") + b.Vsctl("list-ports", "br-int"); strings.Contains(got, "ts_") {
			t.Errorf("left over: %s", got)
		}
		after := b.watch("3")
		b.packets()
		b.copied("after the tap flow", after)
	}
}

// survive has agent and switch restart, and somebody change the rows.
func (b *bench) survive(want []string) {
	b.Helper()
	version := func() string {
		return b.Must("ovsdb-client", "transact", "unix:"+b.Switch.DBSocket(), `["Open_vSwitch",{"op":"select","table":"Mirror","where":[],"columns":["_uuid","_version"]},`+
			`{"op":"select","table":"Port","where":[["name","==","ts_out_5e000001"]],"columns":["_version"]},{"op":"select","table":"Port","where":[["name","==","ts_in_5e000001"]],"columns":["_version"]}]`)
	}
	before := version()
	b.Stop()
	b.Start()
	b.Wired(3)
	if after := version(); after != before {
		b.Errorf("a restart of the agent writes: %s\n%s", before, after)
	}
	copies := b.watch("3")
	b.packets()
	b.copied("after a restart of the agent", copies, want...)

	b.RestartSwitch()
	b.Wired(3)
	copies = b.watch("3")
	b.packets()
	b.copied("after a restart of the switch", copies, want...)

	b.Vsctl("clear", "Bridge", "br-int", "mirrors")
	b.Wait("the mirror to be there again", func() bool { return strings.Contains(b.Vsctl("--bare", "--columns=name", "list", "Mirror"), "ts_") })
	copies = b.watch("3")
	b.packets()
	b.copied("after the mirror was deleted", copies, want...)
}

// TestTunnels: packets of VM 1 are copied into tunnels to a host outside, each direction with a number of its own, and what comes back by the tunnels goes nowhere.
func TestTunnels(t *testing.T) {
	for kind, number := range map[string]string{"gre": "key", "erspanv1": "session"} {
		t.Run(kind, func(t *testing.T) {
			b := newBench(t, "br-up")
			b.Vsctl("set-fail-mode", "br-up", "standalone")
			b.VM("9")
			b.Vsctl("add-port", "br-up", "tap9")
			b.Must("ip", "-n", b.ns("9"), "addr", "add", "192.0.2.9/24", "dev", "eth0")
			b.Must("ip", "-n", b.Switch.Netns(), "addr", "add", "192.0.2.1/24", "dev", "br-up")
			b.Must("ip", "-n", b.Switch.Netns(), "link", "set", "br-up", "up")
			b.Must("ip", "netns", "exec", b.ns("9"), "ping", "-c", "1", "-W", "5", "192.0.2.1")
			message := map[string]any{"host": "hv1", "tap_mirror_msg": map[string]any{
				"tap_mirror": map[string]any{"id": tunnels, "remote_ip": "192.0.2.9", "mirror_type": kind, "directions": map[string]any{"IN": 7, "OUT": 8}}, "port": bound("1"),
			}}
			b.Cast(neutron.TopicTap, "create_tap_mirror", message)
			b.Wait("the mirrors", func() bool { return strings.Count(b.Vsctl("--bare", "--columns=name", "list", "Mirror"), "tm_") == 2 })
			far := b.watch("9")
			out, in := "gre 192.0.2.1>192.0.2.9 "+number+" 8 of 10.5.0.11>10.5.0.12", "gre 192.0.2.1>192.0.2.9 "+number+" 7 of 10.5.0.12>10.5.0.11"
			b.Wait("the copies", func() bool { b.packets(); got := far.lines(); return got[in] && got[out] })
			for _, line := range slices.Sorted(maps.Keys(far.lines())) {
				if strings.Contains(line, " 8 of 10.5.0.12>10.5.0.11") || strings.Contains(line, " 7 of 10.5.0.11>10.5.0.12") || strings.Contains(line, "tagged") {
					t.Errorf("out of place: %s", line)
				}
			}

			if kind == "gre" {
				two := b.watch("2")
				b.Must("ip", "netns", "exec", b.ns("9"), "python3", "-c", fmt.Sprintf(`
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_RAW, 47)
for _ in range(5): s.sendto(bytes.fromhex('2000655800000007' + '%s020000000009' + '88b5') + bytes(50), ('192.0.2.1', 0))`, hex("2")))
				b.Wait("what comes back to be dropped", func() bool {
					flows, _ := b.Switch.Ofctl(t.Context(), "dump-flows", "br-int", "table=0,in_port=tm_in_3a000001")
					return strings.Contains(flows, "n_packets=5,") && strings.Contains(flows, "actions=drop")
				})
				b.packets()
				b.copied("VM 2", two, sent)
				if two.lines()["type 88b5"] {
					t.Error("what comes in by the tunnel has reached a VM")
				}
			}
			b.Cast(neutron.TopicTap, "delete_tap_mirror", message)
			b.Wait("nothing to be left", func() bool {
				return !strings.Contains(b.Vsctl("list-ports", "br-int"), "tm_") && b.Vsctl("list", "Mirror") == ""
			})
		})
	}
}
