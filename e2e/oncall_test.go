// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"

	"github.com/patchbay-sdn/patchbay/lab"
	"github.com/patchbay-sdn/patchbay/tools/howto/page"
)

// TestOnCall asks the questions of somebody who is on call, on a host where something is wrong. Questions, commands and answers are those of the table
// in docs/how-to/on-call.md; the faults are made here. Each fault is handed over as a bundle too, and replayed elsewhere: the same decisions, byte for
// byte.
func TestOnCall(t *testing.T) {
	x := newOnCall(t)
	x.away = newElsewhere(t)
	x.login()
	defer x.print("command", "answer")
	defer x.followed(time.Now())
	a, b := x.vms["a"], x.vms["b"]
	ofport := func(vm *lab.VM) string { return x.vsctl(1, "get", "Interface", vm.Tap, "ofport") }
	tunnel := x.tunnelTo(x.l.Host(2).LocalIP())
	nothing := func() {}
	d := x.portFor("d") // while the server can still make it
	x.names = append(x.names, "tap5e09c1d4-27", "tap"+d.ID[:11], "in_port=3", "in_port="+ofport(a))

	x.asked(question{
		ask: "Is this host as the server wants it, and if not, why?", status: 1,
		seed: func() { x.ctl("stop_app") }, heal: nothing,
	})
	x.asked(question{
		ask:  "What does this port wait for?",
		seed: func() { x.plugBare(d) }, heal: func() { x.ctl("start_app") },
	})
	x.asked(question{
		ask:  "It took long to come up: where did the time go?",
		seed: nothing, heal: func() { x.unplugBare(d) },
	})
	x.asked(question{
		ask:  "Why is this port DOWN?",
		seed: func() { x.update(b, attributes{"admin_state_up": false}) },
		heal: func() { x.update(b, attributes{"admin_state_up": true}) },
	})
	x.asked(question{
		ask:  "Which ports of this host do not work, and why?",
		seed: func() { x.update(b, attributes{"binding:host_id": "hv2"}) },
		heal: func() { x.update(b, attributes{"binding:host_id": "hv1"}) },
	})
	x.asked(question{
		ask: "Which interface could the switch not make?",
		seed: func() {
			x.l.Host(1).Switch().Vsctl(x.ctx, "--no-wait", "add-port", "br-int", "tapnowhere", "--", "set", "Interface", "tapnowhere", //nolint:errcheck // it says that it failed
				"external_ids:iface-id=0f0f0f0f-0000-4000-8000-000000000000", `external_ids:attached-mac="fa:16:3e:00:00:01"`)
		},
		heal: func() { x.vsctl(1, "del-port", "br-int", "tapnowhere") },
	})
	x.asked(question{
		ask: "Can a reach b with ssh, and if not, what is missing?", status: 1,
		seed: func() { x.update(b, attributes{"security_groups": []string{x.closed}}) }, heal: nothing,
	})
	x.asked(question{
		ask:  "What does this group allow, and which ports here have it?",
		seed: nothing, heal: func() { x.update(b, attributes{"security_groups": []string{x.open}}) },
	})
	x.asked(question{
		ask: "Do large packets get through?", status: 1,
		seed: func() { x.host(1, "ip", "link", "set", "dev", b.Tap, "mtu", "1000") },
		heal: func() { x.host(1, "ip", "link", "set", "dev", b.Tap, "mtu", "1400") },
	})
	x.asked(question{
		ask:  "Why is there this flow?",
		seed: nothing, heal: nothing,
	})
	x.asked(question{
		ask: "Has somebody else put flows on our bridge?",
		seed: func() {
			x.ofctl(1, "add-flow", "br-int", "cookie=0,table=0,priority=100,in_port="+ofport(a)+",actions=drop")
		},
		heal: func() { x.ofctl(1, "--strict", "del-flows", "br-int", "table=0,priority=100,in_port="+ofport(a)) },
	})
	x.asked(question{
		ask:  "Does somebody tamper with our flows?",
		seed: func() { x.ofctl(1, "--strict", "del-flows", "br-int", "table=60,priority=100,in_port="+ofport(b)) }, heal: nothing,
	})
	x.asked(question{
		ask: "Is a tunnel broken?",
		seed: func() {
			// Somebody else has taken the tunnel's place.
			x.freeze(1)
			x.vsctl(1, "del-port", "br-tun", tunnel)
			x.vsctl(1, "add-port", "br-under", "theirs", "--", "set", "Interface", "theirs", "type=vxlan", "options:in_key=flow", "options:out_key=flow",
				"options:remote_ip="+x.l.Host(2).LocalIP(), "options:local_ip="+x.l.Host(1).LocalIP())
			x.thaw(1)
		},
		heal: func() { x.vsctl(1, "del-port", "br-under", "theirs") },
	})
	x.asked(question{
		ask:  "The agent hangs. Is the port on the right VLAN?",
		seed: func() { x.freeze(1); x.vsctl(1, "set", "Port", a.Tap, "tag=7") },
		heal: func() {
			x.thaw(1)
			x.eventually(wired, func() bool { return x.vsctl(1, "get", "Port", a.Tap, "tag") != "7" })
		},
		silent: true,
	})
	x.asked(question{
		ask:    "The agent is dead. Does traffic to the other host still pass?",
		seed:   func() { x.killAgent(1) },
		heal:   func() { x.startAgent(1) },
		silent: true, previous: true,
	})
	x.asked(question{
		ask:  "What happened to this port, and when?",
		seed: func() { x.update(b, attributes{"admin_state_up": false}) }, heal: func() { x.update(b, attributes{"admin_state_up": true}) },
	})
	x.asked(question{
		ask: "Is ovs-vswitchd alive?", status: 1,
		seed: x.killSwitch,
		heal: x.startSwitch,
	})
	x.away.otherwise(t)
}

// question is one that somebody on call asks. The command that answers it, and the answer, are in the page.
type question struct {
	ask        string
	seed, heal func()
	status     int
	// silent: the agent gives no answer before it is healed; previous: the fault is that of the agent before.
	silent, previous bool
}

func (x *onCall) asked(q question) {
	x.t.Run(q.ask, func(t *testing.T) {
		outer := x.t
		x.t = t
		defer func() { x.t = outer }()
		row := x.told(questions, q.ask)
		commands := page.Quoted(row[2])
		if len(row) != 4 || len(commands) != 1 || len(page.Quoted(row[3])) == 0 {
			t.Fatalf("%s: no command and answer for %q: %q", onCallPage, q.ask, row)
		}
		args := words(x.here(commands[0]))[1:]
		q.seed()
		if q.silent {
			defer x.replays(t, q)
		}
		defer q.heal()
		if !q.silent {
			defer x.replays(t, q)
		}
		out := ""
		for _, answer := range page.Quoted(row[3]) {
			out = x.says(args, q.status, x.here(answer))
		}
		x.rows = append(x.rows, [2]string{commands[0], firstWith(out, x.here(page.Quoted(row[3])[0]))})
	})
}

// onCallPage has the questions, the commands and the answers, and what a trace says of faults.
const (
	onCallPage   = "../docs/how-to/on-call.md"
	questions    = "Questions at three in the morning"
	connectivity = "Connectivity"
)

// told returns the row of the page's table that begins with a text.
func (x *onCall) told(table, first string) []string {
	x.t.Helper()
	text, err := os.ReadFile(onCallPage)
	if err != nil {
		x.t.Fatal(err)
	}
	rows := page.Table(string(text), table)
	i := slices.IndexFunc(rows, func(row []string) bool { return row[0] == first })
	if i < 0 {
		x.t.Fatalf("%s has no row for %q", onCallPage, first)
	}
	x.read = append(x.read, first)
	if len(x.read) > 1 && (i == 0 || rows[i-1][0] != x.read[len(x.read)-2]) {
		x.t.Errorf("%s has %q in another place", onCallPage, first)
	}
	x.left = len(rows) - i - 1
	return rows[i]
}

// followed says how much of the page was done, in the words of tools/howto.
func (x *onCall) followed(began time.Time) {
	if x.left > 0 {
		x.t.Errorf("%s has %d rows more", onCallPage, x.left)
	}
	fmt.Printf("\n%s: %d commands in %.1f s, the output of %d compared, 0 not run\n", filepath.Base(onCallPage), len(x.read), time.Since(began).Seconds(), len(x.read))
}

// here puts the ids and addresses of this lab into a text of the page.
func (x *onCall) here(text string) string { return strings.NewReplacer(x.names...).Replace(text) }

// words splits a command line: blanks, and single quotes.
func words(line string) []string {
	var all []string
	for i, part := range strings.Split(line, "'") {
		if i%2 == 1 {
			all = append(all, part)
		} else {
			all = append(all, strings.Fields(part)...)
		}
	}
	return all
}

// firstWith is the first line of an output that has a text of the page in it.
func firstWith(out, text string) string {
	for line := range strings.Lines(out) {
		if page.Says(line, text) {
			return strings.TrimSpace(line)
		}
	}
	return ""
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
