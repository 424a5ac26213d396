// SPDX-License-Identifier: Apache-2.0

//go:build integration

package grouplog_test

import (
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/agent"
	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/grouplog"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/lab/onehost"
)

// answer is that of a server with the ports of the test, their group and a log of all events of their project.
func answer(kind neutron.Kind, filter map[string]any) (found []map[string]any, ok bool) {
	ids, byID := filter["id"].([]string)
	switch {
	case kind == neutron.KindPort && byID:
		for _, id := range ids {
			found = append(found, portOf(strings.TrimPrefix(id, "port")))
		}
	case kind == neutron.KindPort: // the members of the group
		found = append(found, portOf("1"), portOf("2"))
	case kind == neutron.KindSecurityGroup:
		rule := func(id string, more map[string]any) map[string]any {
			more["id"], more["security_group_id"], more["ethertype"] = id, "g", "IPv4"
			return onehost.Boxed(more)
		}
		found = append(found, map[string]any{"id": "g", "name": "g", "revision_number": 1, "rules": []any{
			rule("out", map[string]any{"direction": "egress"}),
			rule("in", map[string]any{"direction": "ingress", "protocol": "tcp", "port_range_min": 22, "port_range_max": 22}),
			rule("members", map[string]any{"direction": "ingress", "protocol": "icmp", "remote_group_id": "g"}),
		}})
	case kind == neutron.KindLog:
		if by, _ := filter["resource_type"].([]string); len(by) != 1 || by[0] != "security_group" {
			return nil, false // then there is no log, and the test waits in vain for its lines
		}
		found = append(found, map[string]any{"id": "thelog", "project_id": "a", "resource_type": "security_group", "event": "ALL", "enabled": true, "revision_number": 1})
	default:
		return nil, false
	}
	return found, true
}

func portOf(n string) map[string]any {
	return map[string]any{
		"id": "port" + n, "network_id": "net", "project_id": "a", "mac_address": onehost.MAC(n), "admin_state_up": true, "device_owner": "compute:nova", "status": "DOWN",
		"revision_number": 1, "security_group_ids": []string{"g"},
		"fixed_ips":      []any{onehost.Boxed(map[string]any{"subnet_id": "s4", "ip_address": "10.5.0.1" + n})},
		"bindings":       []any{onehost.Boxed(map[string]any{"host": "hv1", "status": "ACTIVE"})},
		"binding_levels": []any{onehost.Boxed(map[string]any{"host": "hv1", "segment": onehost.Boxed(map[string]any{"network_type": "local"})})},
	}
}

// bench is an agent on a real switch with namespaces for VMs, and the lines that it logs.
type bench struct {
	*onehost.Host
	mu    sync.Mutex
	lines []string
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{Host: onehost.New(t, answer)}
	b.Configure = func(c *agent.Config) {
		onehost.Filtered(c)
		c.Extensions = []extension.New{grouplog.New(extension.Bound{Rate: 100, Burst: 25})}
		c.Records = func(r agent.Records, _ uint64) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.lines = append(b.lines, r.Lines...)
		}
	}
	b.Start()
	return b
}

// in runs a command in the VM of a port.
func (b *bench) in(n string, command ...string) (string, error) {
	return b.In(b.Switch.Netns()+"-vm"+n, command...)
}

func (b *bench) must(n string, command ...string) {
	b.Helper()
	if out, err := b.in(n, command...); err != nil {
		b.Fatalf("%v: %v: %s", command, err, out)
	}
}

// address gives the VM of a port its address.
func (b *bench) address(n string) {
	b.Helper()
	b.Must("ip", "-n", b.Switch.Netns()+"-vm"+n, "addr", "add", "10.5.0.1"+n+"/24", "dev", "eth0")
}

// plug makes the VM of a port, with its address.
func (b *bench) plug(n string) {
	b.Helper()
	b.Plug(n)
	b.address(n)
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
	b.Wired(2)
	one := func(what string, texts ...string) {
		t.Helper()
		b.Wait("a line about "+what, func() bool { return len(b.taken(texts...)) > 0 })
		if lines := b.taken(texts...); len(lines) != 1 {
			t.Errorf("%s is logged %d times:\n%s", what, len(lines), strings.Join(lines, "\n"))
		}
	}
	b.must("1", "ping", "-c", "3", "-i", "0.2", "-W", "2", "10.5.0.12")
	one("the ping that leaves", "action=ACCEPT project_id=a log_resource_ids=['thelog'] vm_port=port1 ", "icmp(", "type=8")
	one("the ping that arrives, by a rule about members", "action=ACCEPT", "vm_port=port2 ", "icmp(", "type=8")

	server := exec.CommandContext(t.Context(), "ip", "netns", "exec", b.Switch.Netns()+"-vm2", "python3", "-c",
		"import socket;s=socket.create_server(('10.5.0.12',22));print('up',flush=True);c,_=s.accept();print(c.recv(100).decode(),flush=True)")
	var out strings.Builder
	server.Stdout = &out
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	b.Wait("the server to listen", func() bool { listens, _ := b.in("2", "ss", "-ltn"); return strings.Contains(listens, "10.5.0.12:22") })
	b.must("1", "python3", "-c", "import socket;s=socket.create_connection(('10.5.0.12',22),3);s.send(b'sesame');s.close()")
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
	b.VM("3")
	b.address("3")
	b.Vsctl("add-port", "br-int", "tap3", "tag="+strings.TrimSpace(b.Vsctl("get", "Port", "tap1", "tag")))
	b.Wait("the way out", func() bool { _, err := b.in("1", "ping", "-c", "1", "-W", "1", "10.5.0.13"); return err == nil })
	counted := make(chan string, 1)
	go func() {
		out, _ := b.in("3", "python3", "-c", "import socket\ns=socket.socket(socket.AF_INET,socket.SOCK_DGRAM);s.bind(('10.5.0.13',77));s.settimeout(2)\ntry:\n while True: print(s.recv(9),flush=True)\nexcept TimeoutError: pass")
		counted <- out
	}()
	b.Wait("the receiver", func() bool { listens, _ := b.in("3", "ss", "-lun"); return strings.Contains(listens, "10.5.0.13:77") })
	b.must("1", "python3", "-c", "import socket;s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM);s.sendto(b'sesame',('10.5.0.13',77))")
	if got := <-counted; strings.Count(got, "sesame") != 1 {
		t.Errorf("who is not of this host got %q", got)
	}
	one("what leaves the host", "action=ACCEPT", "vm_port=port1 ", "udp(", "dst_port=77,")

	b.Must("ip", "-n", b.Switch.Netns()+"-vm1", "addr", "add", "10.5.0.99/24", "dev", "eth0")
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
	b.Wired(2)
	b.must("2", "ping", "-c", "1", "-W", "2", "10.5.0.11") // so that addresses are known
	began := time.Now()
	b.Must("ip", "-n", b.Switch.Netns()+"-vm1", "addr", "add", "10.5.0.99/24", "dev", "eth0")
	if out, err := b.in("1", "python3", "-c", "import socket\ns=socket.socket(socket.AF_INET,socket.SOCK_DGRAM);s.bind(('10.5.0.99',0))\nfor i in range(20000): s.sendto(b'x',('10.5.0.12',99))"); err != nil {
		t.Fatal(err, out)
	}
	b.must("2", "python3", "-c", "import socket\ns=socket.socket()\ns.settimeout(3)\nassert s.connect_ex(('10.5.0.11',22)) == 111")
	b.Wait("the other VM's connection", func() bool { return len(b.taken("action=ACCEPT", "vm_port=port2 ", "dst_port=22,")) > 0 })
	took := time.Since(began)
	// Both bounds: that of the host, and the share of the port.
	most := 25 + 5 + int(took.Seconds()*(100+1)) + 1
	lines := len(b.taken("vm_port=port1 ", "dst_port=99,"))
	if lines < 10 || lines > most {
		t.Errorf("%d lines in %s, want at most %d", lines, took, most)
	}
	taken := b.Status().Totals.Packets["log"]
	t.Logf("20,000 packets in %s: %d lines, packets that reached the agent: %v", took, lines, taken)
	if n := taken["logged"] + taken["limited"]; n > uint64(most)+100 {
		t.Errorf("%d packets reached the agent", n)
	}
}
