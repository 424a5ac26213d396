// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"

	"github.com/patchbay-sdn/patchbay/lab"
	"github.com/patchbay-sdn/patchbay/tools/howto/page"
)

// TestExplain breaks connectivity in ten ways, one after the other, and asks `patchbay trace` and `patchbay explain` why. They
// must say that all is well before, name the true cause, and say that all is well again afterwards. That it is the truth is
// seen with real packets.
func TestExplain(t *testing.T) {
	x := newOnCall(t)
	defer x.print("fault", "what the commands say")
	defer x.followed(time.Now())
	a, b, c := x.vms["a"], x.vms["b"], x.vms["c"]
	const vip = "192.168.100.250"
	x.vm(a, "ip", "addr", "add", vip+"/24", "dev", "eth0")

	x.fault(ailment{
		name: "wrong group",
		seed: func() { x.update(b, attributes{"security_groups": []string{x.closed}}) },
		heal: func() { x.update(b, attributes{"security_groups": []string{x.open}}) },
		args: []string{"trace", "a", "b"}, well: "delivered: to port b", ping: func() bool { return x.pings(a, b.IPs[0]) },
		cause: "group",
		also:  []string{"explain", "b"}, alsoSays: "group closed",
	})
	x.fault(ailment{
		name: "port security",
		seed: func() { x.update(a, attributes{"port_security_enabled": true, "security_groups": []string{x.open}}) },
		heal: func() { x.update(a, attributes{"port_security_enabled": false, "security_groups": []string{}}) },
		args: []string{"trace", "a", "b", "udp", "--sport", "67", "--dport", "68"}, well: "delivered: to port b", inverted: true,
		ping:  func() bool { return x.leases(a, b) },
		cause: "port-security",
		also:  []string{"explain", "a"}, alsoSays: "It may send under its own addresses only",
	})
	x.update(a, attributes{"port_security_enabled": true, "security_groups": []string{x.open}})
	x.fault(ailment{
		name: "wrong VLAN",
		seed: func() { x.freeze(1); x.vsctl(1, "set", "Port", a.Tap, "tag=7") },
		heal: func() { x.thaw(1) }, // who puts it right
		args: []string{"trace", "a", c.IPs[0]}, cold: []string{"trace", a.PortID, c.IPs[0]}, well: "leaves: to " + x.l.Host(2).LocalIP(), ping: func() bool { return x.pings(a, c.IPs[0]) },
		cause: "vlan",
		also:  []string{"explain", a.PortID}, alsoSays: "It is on VLAN 7, but its network",
	})
	x.fault(ailment{
		name: "dead port",
		seed: func() { x.update(b, attributes{"binding:host_id": "hv2"}) },
		heal: func() { x.update(b, attributes{"binding:host_id": "hv1"}) },
		args: []string{"trace", "a", "b"}, well: "delivered: to port b", ping: func() bool { return x.pings(a, b.IPs[0]) },
		cause: "dead",
		also:  []string{"explain", "b"}, alsoSays: "is dead: bound to host hv2, not to this one.",
	})
	tunnel := x.tunnelTo(x.l.Host(2).LocalIP())
	x.fault(ailment{
		name: "missing tunnel",
		seed: func() { x.freeze(1); x.vsctl(1, "del-port", "br-tun", tunnel) },
		heal: func() { x.thaw(1) },
		args: []string{"trace", "a", c.IPs[0]}, cold: []string{"trace", a.PortID, c.IPs[0]}, well: "leaves: to " + x.l.Host(2).LocalIP(), ping: func() bool { return x.pings(a, c.IPs[0]) },
		cause: "tunnel",
	})
	x.fault(ailment{
		name: "MTU",
		seed: func() { x.host(1, "ip", "link", "set", "dev", b.Tap, "mtu", "1000") },
		heal: func() { x.host(1, "ip", "link", "set", "dev", b.Tap, "mtu", "1400") },
		args: []string{"trace", "a", "b", "--size", "1400"}, well: "delivered: to port b",
		ping: func() bool {
			return x.runs(a.Command(x.ctx, "ping", "-n", "-c", "1", "-W", "1", "-M", "do", "-s", "1372", b.IPs[0]))
		},
		cause: "mtu",
		also:  []string{"explain", "b"}, alsoSays: "MTU 1000",
	})
	x.fault(ailment{
		name: "admin down",
		seed: func() { x.update(b, attributes{"admin_state_up": false}) },
		heal: func() { x.update(b, attributes{"admin_state_up": true}) },
		args: []string{"trace", "a", "b"}, well: "delivered: to port b", ping: func() bool { return x.pings(a, b.IPs[0]) },
		cause: "down",
		also:  []string{"explain", "b"}, alsoSays: "is down: admin down.",
	})
	x.fault(ailment{
		name: "spoofed source",
		seed: func() { x.update(a, attributes{"allowed_address_pairs": []map[string]string{}}) },
		heal: func() { x.update(a, attributes{"allowed_address_pairs": []map[string]string{{"ip_address": vip}}}) },
		args: []string{"trace", "a", "b", "--src", vip}, well: "delivered: to port b", inverted: true,
		ping:  func() bool { return x.runs(a.Command(x.ctx, "ping", "-n", "-c", "1", "-W", "1", "-I", vip, b.IPs[0])) },
		cause: "spoofed",
	})
	x.fault(ailment{
		name: "broken patch",
		seed: func() { x.freeze(1); x.vsctl(1, "set", "Interface", "patch-tun", "options:peer=nobody") },
		heal: func() { x.vsctl(1, "set", "Interface", "patch-tun", "options:peer=patch-int"); x.thaw(1) },
		args: []string{"trace", "a", c.IPs[0]}, cold: []string{"trace", a.PortID, c.IPs[0]}, well: "leaves: to " + x.l.Host(2).LocalIP(), ping: func() bool { return x.pings(a, c.IPs[0]) },
		cause: "patch",
	})
	number := x.vsctl(1, "get", "Interface", a.Tap, "ofport")
	x.fault(ailment{
		name: "foreign flow",
		seed: func() {
			x.ofctl(1, "add-flow", "br-int", "cookie=0,table=0,priority=100,in_port="+number+",actions=drop")
		},
		heal: func() { x.ofctl(1, "--strict", "del-flows", "br-int", "table=0,priority=100,in_port="+number) },
		args: []string{"trace", "a", "b"}, well: "delivered: to port b", ping: func() bool { return x.pings(a, b.IPs[0]) },
		cause: "foreign-flow",
		also:  []string{"explain", "table=0,priority=100,in_port=" + number}, alsoSays: "not the agent's: somebody else has put it there",
	})
	t.Run("the other side", func(t *testing.T) {
		// Where the first host's trace ends, the second one's goes on with the command it names.
		out, status := x.patchbay(1, "trace", "a", c.IPs[0], "tcp", "--dport", "22")
		_, command, ok := strings.Cut(out, "go on there with: patchbay ")
		if status != 0 || !ok {
			t.Fatalf("status %d:\n%s", status, out)
		}
		out, status = x.patchbay(2, strings.Fields(command)...)
		if status != 0 || !strings.Contains(out, "delivered: to port c") {
			t.Errorf("status %d:\n%s", status, out)
		}
	})
}

// ailment is one way to break connectivity.
type ailment struct {
	name       string
	seed, heal func()
	// inverted: it is there from the beginning.
	inverted bool
	// args are the command that is asked, cold the same when no agent knows names.
	args, cold []string
	ping       func() bool // whether real packets get through
	well       string      // what the command says when all is well
	cause      string      // the word for what is wrong
	also       []string    // another command that knows
	alsoSays   string
}

// onCall is a lab with somebody who has to find out.
type onCall struct {
	*cloud
	t            *testing.T
	vms          map[string]*lab.VM
	open, closed string // groups: one that allows everything, one nothing from outside
	network      lab.Network
	rows         [][2]string
	names        []string // of the page, each with its name here
	read         []string // rows of the page that were done
	left         int      // rows after the last one
	away         *elsewhere
	transport    string // the option, after login
}

func newOnCall(t *testing.T, overrides ...string) *onCall {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	t.Cleanup(cancel)
	x := &onCall{cloud: &cloud{l: lab.New(t, 2), ctx: ctx}, t: t, vms: map[string]*lab.VM{}}
	x.eachHost(t, func(h *lab.Host) error {
		return h.StartAgent(ctx, lab.Patchbay, append([]string{filtering}, overrides...)...)
	})
	var err error
	if x.network, err = x.l.CreateNetwork(ctx, lab.Network{Name: "blue"}); err != nil {
		t.Fatal(err)
	}
	for name, group := range map[string]*string{"open": &x.open, "closed": &x.closed} {
		if *group, err = x.l.CreateGroup(ctx, name); err != nil {
			t.Fatal(err)
		}
	}
	for _, protocol := range []string{"icmp", "tcp", "udp"} {
		if err := x.l.Allow(ctx, x.open, protocol); err != nil {
			t.Fatal(err)
		}
	}
	for name, host := range map[string]int{"a": 1, "b": 1, "c": 2} {
		vm, err := x.l.Host(host).Plug(ctx, lab.Port{NetworkID: x.network.ID, Name: name, Extra: attributes{"security_groups": []string{x.open}}})
		if err != nil {
			t.Fatal(err)
		}
		x.vms[name] = vm
	}
	if err := x.l.WaitActive(ctx, x.vms["a"].PortID, x.vms["b"].PortID, x.vms["c"].PortID); err != nil {
		t.Fatal(err)
	}
	for _, to := range []string{"b", "c"} {
		if err := x.vms["a"].WaitPing(ctx, x.vms[to].IPs[0]); err != nil {
			t.Fatal(err)
		}
	}
	a, b, c := x.vms["a"], x.vms["b"], x.vms["c"]
	x.names = []string{
		"tap4f1c2a3b-de", a.Tap, "4f1c2a3b", a.PortID[:8], "192.168.100.250", "192.168.100.250", "192.168.100.2", a.IPs[0], "192.168.100.4", c.IPs[0],
		"tap8b10f263-91", b.Tap, "8b10f263", b.PortID[:8], "10.251.1.12", x.l.Host(2).LocalIP(), "vxlan-0afb010c", x.tunnelTo(x.l.Host(2).LocalIP()),
	}
	return x
}

func (x *onCall) fault(a ailment) {
	x.t.Run(a.name, func(t *testing.T) {
		outer := x.t
		x.t = t
		defer func() { x.t = outer }()
		if a.inverted {
			a.heal()
		}
		x.says(a.args, 0, a.well)
		x.reality(a, true)
		a.seed()
		asked := a.args
		if a.cold != nil {
			asked = a.cold
		}
		said := x.says(asked, 1, x.here(x.told(connectivity, a.name)[1]))
		x.reality(a, false)
		if out, _ := x.patchbay(1, append(asked, "--json")...); !strings.Contains(out, `"cause": "`+a.cause+`"`) {
			t.Errorf("the cause is not %s:\n%s", a.cause, out)
		}
		if a.also != nil {
			x.says(a.also, 0, a.alsoSays)
		}
		x.rows = append(x.rows, [2]string{a.name, verdict(said)})
		a.heal()
		x.says(a.args, 0, a.well)
		x.reality(a, true)
	})
}

// says asks a command on the first host until it ends with the status and says the words, in which … stands for any text.
func (x *onCall) says(args []string, status int, words string) string {
	x.t.Helper()
	var out string
	var got int
	if !x.eventually(wired, func() bool {
		out, got = x.patchbay(1, args...)
		return got == status && page.Says(out, words)
	}) {
		x.t.Errorf("patchbay %s: status %d, want %d and %q\n%s", strings.Join(args, " "), got, status, words, out)
	}
	return out
}

// reality compares with real packets.
func (x *onCall) reality(a ailment, want bool) {
	x.t.Helper()
	if a.ping != nil && !x.eventually(wired, func() bool { return a.ping() == want }) {
		x.t.Errorf("real packets: get through is %v, want %v", !want, want)
	}
}

// verdict is the line of a trace that counts.
func verdict(out string) string {
	for line := range strings.Lines(out) {
		for _, word := range []string{"dropped: ", "delivered: ", "leaves: "} {
			if strings.HasPrefix(line, word) {
				return strings.TrimSpace(line)
			}
		}
	}
	return ""
}

func (x *onCall) print(left, right string) {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "\n%s\t%s\n", left, right)
	for _, r := range x.rows {
		fmt.Fprintf(w, "%s\t%s\n", r[0], r[1])
	}
	_ = w.Flush()
}

// patchbay runs the operator's command on a host.
func (x *onCall) patchbay(host int, args ...string) (out string, status int) {
	x.t.Helper()
	return x.runPatchbay(x.t, host, args...)
}

// runPatchbay runs the operator's command on a host.
func (c *cloud) runPatchbay(t *testing.T, host int, args ...string) (out string, status int) {
	t.Helper()
	h := c.l.Host(host)
	bin := os.Getenv("PATCHBAY_BIN")
	if bin == "" {
		bin = filepath.Join("..", "bin", "patchbay")
	}
	bin, err := filepath.Abs(bin)
	if err != nil {
		t.Fatal(err)
	}
	cmd := h.Command(c.ctx, bin, args...)
	cmd.Env = append(cmd.Environ(), "PATCHBAY_SOCKET="+filepath.Join(h.Dir(), "agent", "state", "patchbay.sock"))
	text, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return string(text), cmd.ProcessState.ExitCode()
}

func (x *onCall) update(vm *lab.VM, what attributes) {
	x.t.Helper()
	if err := ports.Update(x.ctx, x.l.Neutron(), vm.PortID, change{what}).Err; err != nil {
		x.t.Fatalf("updating the port of %s: %v", vm.Name, err)
	}
}

func (x *onCall) pings(vm *lab.VM, ip string) bool { return vm.Ping(x.ctx, ip) == nil }

// leases says whether the answer of a DHCP server gets through.
func (x *onCall) leases(from, to *lab.VM) bool {
	x.t.Helper()
	sender, err := openProbe(from.Netns, "eth0")
	if err != nil {
		x.t.Fatal(err)
	}
	defer sender.close()
	listener, err := openProbe(to.Netns, "eth0")
	if err != nil {
		x.t.Fatal(err)
	}
	defer listener.close()
	k := x.token()
	if err := sender.send(dhcpAnswer(&vm{VM: from, v4: from.IPs[0]}, &vm{VM: to, v4: to.IPs[0]}, 4, k)); err != nil {
		x.t.Fatal(err)
	}
	return x.eventually(silence, func() bool { return listener.saw(k) > 0 })
}

func (x *onCall) runs(cmd *exec.Cmd) bool { return cmd.Run() == nil }

func (x *onCall) vm(vm *lab.VM, name string, args ...string) {
	x.must(vm.Command(x.ctx, name, args...))
}

func (x *onCall) host(n int, name string, args ...string) {
	x.must(x.l.Host(n).Command(x.ctx, name, args...))
}

func (x *onCall) must(cmd *exec.Cmd) {
	x.t.Helper()
	if out, err := cmd.CombinedOutput(); err != nil {
		x.t.Fatalf("%s: %v\n%s", strings.Join(cmd.Args, " "), err, out)
	}
}

func (x *onCall) vsctl(host int, args ...string) string {
	x.t.Helper()
	out, err := x.l.Host(host).Switch().Vsctl(x.ctx, args...)
	if err != nil {
		x.t.Fatal(err)
	}
	return strings.Trim(strings.TrimSpace(out), `"`)
}

func (x *onCall) ofctl(host int, args ...string) {
	x.t.Helper()
	if _, err := x.l.Host(host).Switch().Ofctl(x.ctx, append([]string{"-O", "OpenFlow14"}, args...)...); err != nil {
		x.t.Fatal(err)
	}
}

// freeze stops the agent of a host where it is, so that it repairs nothing and answers nobody.
func (x *onCall) freeze(host int) { x.signal(host, syscall.SIGSTOP) }

func (x *onCall) thaw(host int) { x.signal(host, syscall.SIGCONT) }

func (x *onCall) signal(host int, sig syscall.Signal) {
	x.t.Helper()
	if err := x.l.Host(host).SignalAgent(sig); err != nil {
		x.t.Fatal(err)
	}
}

// tunnelTo is the name of the first host's tunnel to an address.
func (x *onCall) tunnelTo(ip string) string {
	x.t.Helper()
	text := "vxlan-"
	for part := range strings.SplitSeq(ip, ".") {
		n, err := strconv.Atoi(part)
		if err != nil {
			x.t.Fatal(err)
		}
		text += fmt.Sprintf("%02x", n)
	}
	return text
}
