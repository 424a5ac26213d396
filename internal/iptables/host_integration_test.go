// SPDX-License-Identifier: Apache-2.0

//go:build integration

package iptables

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/world"
)

// inNamespace runs programs of one back end in a network namespace.
type inNamespace struct {
	name, backend string
	inputs        *[]string
}

// Run implements Runner.
func (n inNamespace) Run(ctx context.Context, input, name string, args ...string) (string, error) {
	for _, tool := range []string{"iptables", "ip6tables"} {
		if name == tool || name == tool+"-save" || name == tool+"-restore" {
			name = tool + "-" + n.backend + strings.TrimPrefix(name, tool)
			break
		}
	}
	if input != "" {
		*n.inputs = append(*n.inputs, input)
	}
	return Exec{}.Run(ctx, input, "ip", append([]string{"netns", "exec", n.name, name}, args...)...)
}

func ip(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(context.WithoutCancel(t.Context()), "ip", args...).CombinedOutput(); err != nil {
		t.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

func namespace(t *testing.T, what string) string {
	t.Helper()
	name := fmt.Sprintf("pbipt-%d-%s", os.Getpid(), what)
	ip(t, "netns", "add", name)
	t.Cleanup(func() { ip(t, "netns", "del", name) })
	ip(t, "-n", name, "link", "set", "lo", "up")
	return name
}

func backends(t *testing.T, test func(t *testing.T, h *Host, run inNamespace)) {
	for _, backend := range []string{"nft", "legacy"} {
		t.Run(backend, func(t *testing.T) {
			var inputs []string
			run := inNamespace{namespace(t, backend), backend, &inputs}
			test(t, &Host{Runner: run, LockDir: t.TempDir()}, run)
		})
	}
}

// write reads, compares and writes, and returns what was written.
func write(t *testing.T, h *Host, f *Filter) Changes {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	have, err := h.Read(ctx)
	if err != nil {
		t.Fatal(err)
	}
	c := f.Next(have, true)
	err = h.Apply(ctx, &c)
	f.Done(c, err)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestRealHost writes every scenario to a real host, one after the other, and reads it back: a second comparison finds nothing, and neither
// does that of an agent that has just started.
func TestRealHost(t *testing.T) {
	backends(t, func(t *testing.T, h *Host, run inNamespace) {
		for _, s := range scenarios(t) {
			cfg := debian(t, &s)
			f := New(cfg)
			var now step
			for i, next := range s.Steps {
				now = now.then(next)
				now.tell(t, f)
				write(t, h, f)
				if again := write(t, h, f); !again.Empty() {
					t.Errorf("%s, step %d: written again: %+v", s.Name, i+1, again)
				}
				restarted := New(cfg)
				now.tell(t, restarted)
				if again := write(t, h, restarted); !again.Empty() {
					t.Errorf("%s, step %d: written after a restart: %+v", s.Name, i+1, again)
				}
			}
		}
	})
}

func TestRealChanges(t *testing.T) {
	backends(t, func(t *testing.T, h *Host, run inNamespace) {
		other := func(args ...string) {
			t.Helper()
			if _, err := run.Run(t.Context(), "", "iptables", args...); err != nil {
				t.Fatal(err)
			}
		}
		other("-A", "INPUT", "-p", "tcp", "-m", "comment", "--comment", "not yours", "--dport", "22", "-j", "ACCEPT")
		other("-N", "neutron-l3-agent-local")
		other("-N", "neutron-filter-top")
		other("-A", "neutron-filter-top", "-j", "neutron-l3-agent-local")
		other("-A", "FORWARD", "-j", "neutron-filter-top")
		if _, err := run.Run(t.Context(), "", "ipset", "create", "mine", "hash:ip"); err != nil {
			t.Fatal(err)
		}
		f := New(Config{})
		f.Set(filtered(port1, "10.0.0.5"))
		f.SetMembers(group, prefixes("10.0.0.5"))
		write(t, h, f)
		*run.inputs = nil
		f.SetMembers(group, prefixes("10.0.0.5", "10.0.0.6"))
		write(t, h, f)
		if !slices.Equal(*run.inputs, []string{"add " + SetName(group, 4) + " 10.0.0.6\n"}) {
			t.Errorf("a member: %q", *run.inputs)
		}
		*run.inputs = nil
		f.Set(filtered(port1, "10.0.0.5", ssh))
		write(t, h, f)
		if len(*run.inputs) != 1 || strings.Count((*run.inputs)[0], "\n") != 3 {
			t.Errorf("a rule: %q", *run.inputs)
		}
		for _, drift := range [][]string{
			{"-F", ingressChain(port1)}, {"-D", "FORWARD", "-j", chainForward}, {"-t", "raw", "-F"}, {"-I", "FORWARD", "-j", "ACCEPT"},
			{"-I", egressChain(port1), "-j", "RETURN"},
		} {
			other(drift...)
			if c := write(t, h, f); c.Rules[0] == "" {
				t.Errorf("%v is not noticed", drift)
			}
			if again := write(t, h, f); !again.Empty() {
				t.Errorf("%v is not repaired: %+v", drift, again)
			}
		}
		have, err := h.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		filter := have.Rules[0]["filter"]
		if !slices.Contains(filter["INPUT"], `-p tcp -m comment --comment "not yours" -m tcp --dport 22 -j ACCEPT`) ||
			!slices.Contains(filter["neutron-filter-top"], "-j neutron-l3-agent-local") {
			t.Errorf("%v", filter)
		}
		if _, there := have.Sets["mine"]; !there {
			t.Errorf("%v", have.Sets)
		}
		_, err = run.Run(t.Context(), "*filter\n-A INPUT -m set --match-set none src -j DROP\nCOMMIT\n", "iptables-restore", "--noflush")
		if err = withLine(err, "*filter\n-A INPUT -m set --match-set none src -j DROP\nCOMMIT\n"); err == nil || !strings.Contains(err.Error(), "match-set none src -j DROP\"") {
			t.Errorf("%v", err)
		}
		if name, err := h.Other(t.Context()); err != nil || name != "" {
			t.Errorf("%q, %v", name, err)
		}
		reverse := map[string]string{"nft": "legacy", "legacy": "nft"}[run.backend]
		wrong := &Host{Runner: inNamespace{run.name, reverse, run.inputs}}
		if name, err := wrong.Other(t.Context()); err != nil || !strings.HasPrefix(name, "iptables-"+run.backend) {
			t.Errorf("%q, %v", name, err)
		}
	})
}

// TestRealPackets sends packets through a port's bridge.
func TestRealPackets(t *testing.T) {
	backends(t, func(t *testing.T, h *Host, run inNamespace) {
		vm, far := namespace(t, "vm"+run.backend), namespace(t, "far"+run.backend)
		host := run.name
		bridge, tap, qvb := "qbr"+short(port1), tapName(port1), bridgeName(port1)
		ip(t, "-n", host, "link", "add", bridge, "type", "bridge", "forward_delay", "0", "stp_state", "0", "ageing_time", "0", "mcast_snooping", "0")
		ip(t, "-n", host, "link", "set", bridge, "up")
		p := filtered(port1, "10.0.0.5")
		for _, end := range []struct{ dev, ns, mac, ip string }{{tap, vm, p.MAC.String(), "10.0.0.5/24"}, {qvb, far, "fa:16:3e:00:00:99", "10.0.0.9/24"}} {
			ip(t, "link", "add", end.dev, "netns", host, "type", "veth", "peer", "name", "eth0", "netns", end.ns)
			ip(t, "-n", host, "link", "set", end.dev, "master", bridge, "up")
			ip(t, "-n", end.ns, "link", "set", "eth0", "address", end.mac, "up")
			ip(t, "-n", end.ns, "addr", "add", end.ip, "dev", "eth0")
		}
		ping := func(from, to string, args ...string) bool {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			all := append([]string{"netns", "exec", from, "ping", "-n", "-c", "3", "-i", "0.2", "-W", "1"}, append(args, to)...)
			return exec.CommandContext(ctx, "ip", all...).Run() == nil
		}
		if !ping(far, "10.0.0.5") {
			t.Fatal("no packet passes the bridge without rules")
		}
		f := New(Config{})
		f.Set(p)
		f.SetMembers(group, prefixes("10.0.0.5"))
		write(t, h, f)
		if ping(far, "10.0.0.5") {
			t.Error("a packet that nothing allows reaches the port")
		}
		if !ping(vm, "10.0.0.9") {
			t.Error("what the port sends, and its answer, does not pass")
		}
		f.SetMembers(group, prefixes("10.0.0.5", "10.0.0.9"))
		write(t, h, f)
		if !ping(far, "10.0.0.5") {
			t.Error("a member of the group does not reach the port")
		}
		f.SetMembers(group, prefixes("10.0.0.5"))
		c := write(t, h, f)
		want := Connections{Zone: 4097, Direction: world.Ingress, Version: 4, Local: prefixes("10.0.0.5")[0], Remote: prefixes("10.0.0.9")[0], Protocol: world.AnyProtocol}
		if !slices.Equal(c.Connections, []Connections{want}) {
			t.Errorf("%+v", c.Connections)
		}
		if ping(far, "10.0.0.5") { // a new connection: ping has another id
			t.Error("an address that left the group reaches the port")
		}
		ip(t, "-n", vm, "addr", "add", "10.0.0.66/24", "dev", "eth0")
		if ping(vm, "10.0.0.9", "-I", "10.0.0.66") {
			t.Error("the port sends under an address that is not its own")
		}
		p.Pairs = []Pair{{p.MAC, netip.MustParsePrefix("10.0.0.66/32")}}
		f.Set(p)
		write(t, h, f)
		if !ping(vm, "10.0.0.9", "-I", "10.0.0.66") {
			t.Error("an allowed address pair does not pass")
		}
		out, err := run.Run(t.Context(), "", "conntrack", "-L", "-w", "4097")
		if err != nil || !strings.Contains(out, "10.0.0.66") {
			t.Errorf("connections are in another zone: %s, %v", out, err)
		}
		f.Set(Port{ID: port1, Kind: Open})
		write(t, h, f)
		if !ping(far, "10.0.0.5") {
			t.Error("a port without port security is filtered")
		}
	})
}

// TestRealHandOver has the real Python agent take over a host, and takes it back: zones stay, and there is nothing to write.
func TestRealHandOver(t *testing.T) {
	var inputs []string
	run := inNamespace{namespace(t, "hand"), "nft", &inputs}
	h := &Host{Runner: run}
	for _, s := range scenarios(t) {
		if !slices.Contains([]string{"rule-update", "port-security-off"}, s.Name) {
			continue
		}
		f := New(debian(t, &s))
		var now step
		for _, next := range s.Steps {
			now = now.then(next)
		}
		now.tell(t, f)
		write(t, h, f)
		before, err := h.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		if _, err := run.Run(t.Context(), "", "/usr/bin/python3", "-B", "testdata/record.py", "--release", "installed", "--take-over", s.Name, dir); err != nil {
			t.Fatal(err)
		}
		after, err := h.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if was, is := before.Rules[0]["raw"], after.Rules[0]["raw"]; !slices.Equal(was[chainPrerouting], is[chainPrerouting]) || !slices.Equal(was[chainZones], is[chainZones]) {
			t.Errorf("%s: zones\n%q\n%q", s.Name, was, is)
		}
		back := New(debian(t, &s))
		now.tell(t, back)
		if c := write(t, h, back); !c.Empty() {
			t.Errorf("%s: written after the Python agent had the host: %+v", s.Name, c)
		}
	}
}

func TestRealBridgeKeys(t *testing.T) {
	name := namespace(t, "keys")
	read := func() []string {
		out, err := exec.CommandContext(t.Context(), "ip", "netns", "exec", name, "cat", "/proc/sys/net/bridge/bridge-nf-call-iptables").Output()
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		if err := os.MkdirAll(dir+"/net/bridge", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(dir+"/net/bridge/bridge-nf-call-iptables", out, 0o644); err != nil {
			t.Fatal(err)
		}
		return Unbridged(os.DirFS(dir), false)
	}
	if got := read(); len(got) > 0 {
		t.Errorf("%v", got)
	}
	if out, err := exec.CommandContext(t.Context(), "ip", "netns", "exec", name, "sysctl", "-qw", "net.bridge.bridge-nf-call-iptables=0").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if got := read(); len(got) != 1 {
		t.Errorf("%v", got)
	}
}
