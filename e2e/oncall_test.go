// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"

	"github.com/patchbay-sdn/patchbay/lab"
)

// TestOnCall asks the questions of somebody who is on call, each with one command, on a host where something is wrong. The
// same table is in docs/how-to/on-call.md, and the test holds them together. Each fault is handed over as a bundle too, and replayed elsewhere: the
// same decisions, byte for byte.
func TestOnCall(t *testing.T) {
	x := newOnCall(t)
	x.away = newElsewhere(t)
	x.login()
	defer x.print("command", "answer")
	a, b, c := x.vms["a"], x.vms["b"], x.vms["c"]
	ofport := func(vm *lab.VM) string { return x.vsctl(1, "get", "Interface", vm.Tap, "ofport") }
	tunnel := x.tunnelTo(x.l.Host(2).LocalIP())
	nothing := func() {}
	d := x.portFor("d") // while the server can still make it

	x.asked(question{
		ask: "Is this host as the server wants it, and if not, why?", args: []string{"status"}, status: 1,
		seed: func() { x.ctl("stop_app") }, heal: nothing,
		answer: "- the broker cannot be reached",
	})
	x.asked(question{
		ask: "What does this port wait for?", args: []string{"explain", "tapPORT"}, // before the server has told its name
		seed: func() { x.plugBare(d) }, heal: func() { x.ctl("start_app") },
		rename: func(s string) string { return strings.ReplaceAll(s, "tapPORT", "tap"+d.ID[:11]) },
		answer: "It waits for its details from the server.",
	})
	x.asked(question{
		ask: "It took long to come up: where did the time go?", args: []string{"port", "d"},
		seed: nothing, heal: func() { x.unplugBare(d) },
		answer: "details pulled from the server", matches: regexp.MustCompile(`details pulled from the server +\+\d+(\.\d+)? s`),
	})
	x.asked(question{
		ask: "Why is this port DOWN?", args: []string{"explain", "b"},
		seed:   func() { x.update(b, attributes{"admin_state_up": false}) },
		heal:   func() { x.update(b, attributes{"admin_state_up": true}) },
		answer: "is down: admin down.",
	})
	x.asked(question{
		ask: "Which ports of this host do not work, and why?", args: []string{"ports", "--state", "dead"},
		seed:   func() { x.update(b, attributes{"binding:host_id": "hv2"}) },
		heal:   func() { x.update(b, attributes{"binding:host_id": "hv1"}) },
		answer: "bound to host hv2, not to this one",
	})
	x.asked(question{
		ask: "Which interface could the switch not make?", args: []string{"ports", "--state", "failed"},
		seed: func() {
			x.l.Host(1).Switch().Vsctl(x.ctx, "--no-wait", "add-port", "br-int", "tapnowhere", "--", "set", "Interface", "tapnowhere", //nolint:errcheck // it says that it failed
				"external_ids:iface-id=0f0f0f0f-0000-4000-8000-000000000000", `external_ids:attached-mac="fa:16:3e:00:00:01"`)
		},
		heal:   func() { x.vsctl(1, "del-port", "br-int", "tapnowhere") },
		answer: "tapnowhere",
	})
	x.asked(question{
		ask: "Can a reach b with ssh, and if not, what is missing?", args: []string{"trace", "a", "b", "tcp", "--dport", "22"}, status: 1,
		seed: func() { x.update(b, attributes{"security_groups": []string{x.closed}}) }, heal: nothing,
		answer: "dropped: no ingress rule of group closed allows tcp/22 from " + a.IPs[0],
	})
	x.asked(question{
		ask: "What does this group allow, and which ports here have it?", args: []string{"group", "closed"},
		seed: nothing, heal: func() { x.update(b, attributes{"security_groups": []string{x.open}}) },
		answer: "ports here: " + b.PortID,
	})
	x.asked(question{
		ask: "Do large packets get through?", args: []string{"trace", "a", "b", "--size", "1400"}, status: 1,
		seed:   func() { x.host(1, "ip", "link", "set", "dev", b.Tap, "mtu", "1000") },
		heal:   func() { x.host(1, "ip", "link", "set", "dev", b.Tap, "mtu", "1400") },
		answer: "dropped: a packet of 1400 bytes does not fit through " + b.Tap + ", whose MTU is 1000",
	})
	x.asked(question{
		ask: "Why is there this flow?", args: []string{"explain", "table=60,priority=100,in_port=" + ofport(a)},
		seed: nothing, heal: nothing,
		answer: "for port a, because: packets from the port.",
	})
	x.asked(question{
		ask: "Has somebody else put flows on our bridge?", args: []string{"flows", "br-int", "--owner", "--text", "foreign"},
		seed: func() {
			x.ofctl(1, "add-flow", "br-int", "cookie=0,table=0,priority=100,in_port="+ofport(a)+",actions=drop")
		},
		heal:   func() { x.ofctl(1, "--strict", "del-flows", "br-int", "table=0,priority=100,in_port="+ofport(a)) },
		answer: "br-int: 1 flow: 1 foreign",
	})
	x.asked(question{
		ask: "Does somebody tamper with our flows?", args: []string{"events", "--about", "another program"},
		seed: func() { x.ofctl(1, "--strict", "del-flows", "br-int", "table=60,priority=100,in_port="+ofport(b)) }, heal: nothing,
		answer: "repairing a flow changed by another program",
	})
	x.asked(question{
		ask: "Is a tunnel broken?", args: []string{"tunnels"},
		seed: func() {
			// Somebody else has taken the tunnel's place.
			x.freeze(1)
			x.vsctl(1, "del-port", "br-tun", tunnel)
			x.vsctl(1, "add-port", "br-under", "theirs", "--", "set", "Interface", "theirs", "type=vxlan", "options:in_key=flow", "options:out_key=flow",
				"options:remote_ip="+x.l.Host(2).LocalIP(), "options:local_ip="+x.l.Host(1).LocalIP())
			x.thaw(1)
		},
		heal:   func() { x.vsctl(1, "del-port", "br-under", "theirs") },
		answer: "failed",
	})
	x.asked(question{
		ask: "The agent hangs. Is the port on the right VLAN?", args: []string{"explain", a.PortID},
		seed: func() { x.freeze(1); x.vsctl(1, "set", "Port", a.Tap, "tag=7") },
		heal: func() {
			x.thaw(1)
			x.eventually(wired, func() bool { return x.vsctl(1, "get", "Port", a.Tap, "tag") != "7" })
		},
		answer: "It is on VLAN 7, but its network", silent: true,
	})
	x.asked(question{
		ask: "The agent is dead. Does traffic to the other host still pass?", args: []string{"trace", a.PortID, c.IPs[0]},
		seed:   func() { x.killAgent(1) },
		heal:   func() { x.startAgent(1) },
		answer: "leaves: to " + x.l.Host(2).LocalIP() + " over vxlan", silent: true, previous: true,
	})
	x.asked(question{
		ask: "What happened to this port, and when?", args: []string{"events", "--about", b.PortID},
		seed: func() { x.update(b, attributes{"admin_state_up": false}) }, heal: func() { x.update(b, attributes{"admin_state_up": true}) },
		answer: "port is down",
	})
	x.asked(question{
		ask: "Is ovs-vswitchd alive?", args: []string{"status"}, status: 1,
		seed:   x.killSwitch,
		heal:   x.startSwitch,
		answer: "bridge br-int cannot be programmed",
	})
	x.away.otherwise(t)
	x.documented()
}

// question is one that somebody on call asks.
type question struct {
	ask        string
	seed, heal func()
	args       []string
	rename     func(string) string
	status     int
	answer     string
	matches    *regexp.Regexp
	// silent: the agent gives no answer before it is healed; previous: the fault is that of the agent before.
	silent, previous bool
}

func (x *onCall) asked(q question) {
	x.t.Run(q.ask, func(t *testing.T) {
		outer := x.t
		x.t = t
		defer func() { x.t = outer }()
		q.seed()
		if q.silent {
			defer x.replays(t, q)
		}
		defer q.heal()
		if !q.silent {
			defer x.replays(t, q)
		}
		args := q.args
		if q.rename != nil {
			args = strings.Fields(q.rename(strings.Join(args, " ")))
		}
		out := x.says(args, q.status, q.answer)
		if q.matches != nil && !x.eventually(wired, func() bool {
			out, _ = x.patchbay(1, args...)
			return q.matches.MatchString(out)
		}) {
			t.Errorf("nothing matches %s in\n%s", q.matches, out)
		}
		x.questions = append(x.questions, q.ask)
		for line := range strings.Lines(out) {
			if strings.Contains(line, q.answer) {
				x.rows = append(x.rows, [2]string{"patchbay " + strings.Join(q.args, " "), strings.TrimSpace(line)})
				break
			}
		}
	})
}

// documented checks that the questions are those of the table in the documentation, in the same order.
func (x *onCall) documented() {
	text, err := os.ReadFile("../docs/how-to/on-call.md")
	if err != nil {
		x.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "\n## Questions at three in the morning\n")
	rest, _, _ = strings.Cut(rest, "\n## ")
	var told []string
	for line := range strings.Lines(rest) {
		if cells := strings.Split(line, "|"); len(cells) > 3 && strings.HasSuffix(strings.TrimSpace(cells[1]), "?") {
			told = append(told, strings.TrimSpace(cells[1]))
		}
	}
	if got, want := fmt.Sprintf("%q", told), fmt.Sprintf("%q", x.questions); got != want {
		x.t.Errorf("docs/how-to/on-call.md has other questions:\n%s\nasked\n%s", got, want)
	}
	if len(told) < 15 {
		x.t.Errorf("%d questions", len(told))
	}
}

// ctl tells the broker.
func (x *onCall) ctl(args ...string) {
	x.t.Helper()
	if _, err := x.l.Broker().Ctl(x.ctx, args...); err != nil {
		x.t.Fatal(err)
	}
}

// portFor makes a port for host 1 that is not plugged in yet.
func (x *onCall) portFor(name string) *ports.Port {
	x.t.Helper()
	p, err := x.l.CreatePort(x.ctx, x.l.Host(1), lab.Port{NetworkID: x.network.ID, Name: name, Extra: attributes{"security_groups": []string{x.open}}})
	if err != nil {
		x.t.Fatal(err)
	}
	return p
}

// plugBare plugs a port in without a word to the server.
func (x *onCall) plugBare(p *ports.Port) {
	x.t.Helper()
	if err := x.l.Host(1).PlugMany(x.ctx, []ports.Port{*p}); err != nil {
		x.t.Fatal(err)
	}
}

func (x *onCall) unplugBare(p *ports.Port) {
	if err := x.l.Host(1).UnplugMany(x.ctx, []ports.Port{*p}); err != nil {
		x.t.Error(err)
	}
}

func (x *onCall) killAgent(host int) {
	if err := x.l.Host(host).KillAgent(); err != nil {
		x.t.Fatal(err)
	}
}

func (x *onCall) startAgent(host int) {
	if err := x.l.Host(host).StartAgent(x.ctx, lab.Patchbay, filtering, x.transport); err != nil {
		x.t.Fatal(err)
	}
}

func (x *onCall) killSwitch() {
	if err := x.l.Host(1).Switch().KillVswitchd(x.ctx); err != nil {
		x.t.Fatal(err)
	}
}

func (x *onCall) startSwitch() {
	if err := x.l.Host(1).EnsureSwitch(x.ctx); err != nil {
		x.t.Fatal(err)
	}
}
