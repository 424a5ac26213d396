// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"
	"golang.org/x/sys/unix"

	"github.com/patchbay-sdn/patchbay/lab"
	"github.com/patchbay-sdn/patchbay/lab/broker"
)

// away is something that ends, and comes back after a while.
type away struct {
	end, begin func()
	// back says, after begin, whether the others have noticed as well. Times count from then on; nil: from the end of begin.
	back func() bool
	// api: the server takes orders meanwhile.
	api bool
}

// changes is what has been asked for during an outage.
type changes struct {
	plugged, unplugged ports.Port
	rule               int // the port that a new rule opens; 0 when there is none
	ordered            chan error
}

// without makes changes while something is away, and measures how long after it is back they are in place.
func (x *faults) without(a away) {
	t := x.t
	begun := false
	defer func() {
		if !begun { // the test ends here; the next one needs it
			a.begin()
		}
	}()
	a.end()
	x.wait(x.outage / 4)
	c := x.order(a.api)
	x.wait(x.outage - x.outage/4)
	began := time.Now()
	begun = true
	a.begin()
	if a.back != nil && !x.eventually(back, a.back) {
		t.Errorf("not back after %v", back)
	}
	c.taken(x)
	noticed := time.Now()
	left := c.left(x)
	for end := noticed.Add(back); len(left) > 0 && time.Now().Before(end); left = c.left(x) {
		x.wait(200 * time.Millisecond) // each look costs the server's only worker some time
	}
	x.row.heal = time.Since(noticed)
	waited := x.slow(began, noticed)
	if len(left) > 0 {
		t.Errorf("not in place %v after it was back: %v", back, left)
	} else if x.row.heal-waited > inTime && x.agent == lab.Patchbay {
		t.Errorf("in place after %v, of which the server took %v for answers; wanted %v", x.row.heal, waited, inTime)
	}
	x.row.note = strings.TrimSpace(fmt.Sprintf("%s away for %.0f s, %.1f s until all of it was back", x.row.note, x.outage.Seconds(), noticed.Sub(began).Seconds()))
	x.eventually(settled, func() bool { return x.calls.calm(rest) })
}

// slow tells which questions the server kept for long since something was back, and returns for how long any was open.
func (x *faults) slow(began, noticed time.Time) time.Duration {
	list := x.calls.since(began, 0)
	for _, c := range list {
		if c.answered.IsZero() || c.answered.Sub(c.at) > inTime/2 {
			after := "not yet"
			if !c.answered.IsZero() {
				after = fmt.Sprintf("after %.1f s", c.answered.Sub(c.at).Seconds())
			}
			x.t.Logf("%.1f s after the return hv%d asked %s, answered %s", c.at.Sub(began).Seconds(), c.host, c.method, after)
		}
	}
	waited := openFor(list, noticed, time.Now())
	x.row.note = fmt.Sprintf("%s for %.1f s of it questions were open at the server;", x.row.note, waited.Seconds())
	return waited
}

// order plugs a port in and another out, and where the server takes orders has it add a rule. The interfaces stay what they
// are and only get or lose their port: with tunnels in userspace the switch sometimes loses a packet when one comes or goes, see
// comeAndGo.
func (x *faults) order(api bool) *changes {
	h := x.l.Host(1)
	c := &changes{plugged: x.spare[0], unplugged: x.bulk[0], ordered: make(chan error, 1)}
	x.spare, x.bulk = append(x.spare[1:], c.unplugged), append(x.bulk[1:], c.plugged)
	x.must(h.PlugMany(x.ctx, []ports.Port{c.plugged}))
	x.happens("port plugged in")
	_, err := h.Switch().Vsctl(x.ctx, "clear", "Interface", tap(c.unplugged), "external_ids")
	x.must(err)
	x.happens("port plugged out")
	if !api {
		return c
	}
	x.rules++
	c.rule = 6000 + x.rules
	go func() { // it may take the server until it has its broker back
		_, err := x.tryAllow(x.group, directed(ranged("udp", c.rule, c.rule), "ingress", 4))
		c.ordered <- err
	}()
	return c
}

// tap is the name of a port's interface.
func tap(p ports.Port) string { return "tap" + p.ID[:11] }

// happens takes down what just happened, for who wonders where packets were lost.
func (x *faults) happens(what string) { x.log = append(x.log, happened{x.beat.Load(), what}) }

// comeAndGo makes and removes interfaces that are nobody's, with agents or without: what is lost without them is the switch's. Open
// vSwitch reads the routes anew whenever an interface of the host comes or goes. For a moment it has none, and if flows
// are looked at again just then, packets to and from other hosts are dropped.
func (x *faults) comeAndGo(frozen bool) {
	h := x.l.Host(1)
	signal := func(s syscall.Signal) {
		if frozen {
			x.eachHost(x.t, func(h *lab.Host) error { return h.SignalAgent(s) })
		}
	}
	signal(syscall.SIGSTOP)
	defer signal(syscall.SIGCONT)
	const times = 50
	for range times {
		_, err := h.Switch().Vsctl(x.ctx, "add-port", "br-int", "tapnobody", "--", "set", "Interface", "tapnobody", "type=internal")
		x.must(err)
		x.happens("interface comes")
		x.wait(200 * time.Millisecond)
		_, err = h.Switch().Vsctl(x.ctx, "del-port", "br-int", "tapnobody")
		x.must(err)
		x.happens("interface goes")
		x.wait(200 * time.Millisecond)
	}
	x.row.note = fmt.Sprintf("%d times", times)
}

// left are the changes that are not in place.
func (c *changes) left(x *faults) []string {
	var out []string
	for p, want := range map[string]string{c.plugged.ID: "ACTIVE", c.unplugged.ID: "DOWN"} {
		if got, err := ports.Get(x.ctx, x.l.Neutron(), p).Extract(); err != nil {
			out = append(out, err.Error())
		} else if got.Status != want {
			out = append(out, fmt.Sprintf("port %s is %s, not %s", p, got.Status, want))
		}
	}
	if c.rule == 0 {
		return out
	}
	text, err := x.l.Host(1).Switch().Ofctl(x.ctx, "-O", "OpenFlow14", "dump-flows", "br-int", fmt.Sprintf("udp,tp_dst=%d", c.rule))
	if err != nil || !strings.Contains(text, "tp_dst="+strconv.Itoa(c.rule)) {
		out = append(out, "no flow for the new rule")
	}
	return out
}

// taken waits until the server has done what it was told: that may have to wait for its own connection to the broker.
func (c *changes) taken(x *faults) {
	if c.rule == 0 {
		return
	}
	select {
	case err := <-c.ordered:
		if err != nil {
			x.t.Errorf("the server did not do what it was told meanwhile: %v", err)
		}
	case <-time.After(back):
		x.t.Errorf("the server has not answered after %v", back)
	}
}

func (x *faults) brokerDown() {
	x.without(away{end: func() { x.stopBroker(x.t) }, begin: func() { x.startBroker(x.t) }, back: x.served, api: true})
}

// served says whether the server listens to the broker again.
func (c *cloud) served() bool {
	c.wait(100 * time.Millisecond)
	return c.l.Broker().Served("q-plugin")
}

func (x *faults) serverDown() {
	x.without(away{
		end:   func() { x.must(x.l.StopServer(x.ctx)) },
		begin: func() { x.must(x.l.StartServer(x.ctx)) },
		back:  x.served,
	})
}

func (x *faults) databaseDown() {
	x.without(away{
		end:   func() { x.must(x.l.KillDatabase()) },
		begin: func() { x.must(x.l.StartDatabase(x.ctx)) },
		back: func() bool {
			x.wait(200 * time.Millisecond)
			_, err := x.l.Host(1).AgentRecord(x.ctx)
			return err == nil
		},
	})
}

func (x *faults) must(err error) {
	x.t.Helper()
	if err != nil {
		x.t.Fatal(err)
	}
}

// frozen stops the agent's process in the middle of whatever it does.
func (x *faults) frozen() {
	h := x.l.Host(1)
	x.without(away{
		end:   func() { x.must(h.SignalAgent(syscall.SIGSTOP)) },
		begin: func() { x.must(h.SignalAgent(syscall.SIGCONT)) },
		api:   true,
	})
}

// diskFull puts a full file system in the place of the agent's directory for state. What happens meanwhile must be in place
// although it cannot be written down, and be written down once there is room again.
func (x *faults) diskFull() {
	t, h := x.t, x.l.Host(1)
	dir := filepath.Dir(snapshotOf(h))
	log := h.AgentLog(lab.Patchbay)
	start := size(log)
	// The agent has its own view of what is mounted.
	_, pid := h.Agent()
	inside := func(script string) {
		t.Helper()
		out, err := exec.CommandContext(x.ctx, "nsenter", "-m", "-t", strconv.Itoa(pid), "sh", "-ec", script).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v: %s", script, err, out)
		}
	}
	x.without(away{
		end: func() {
			inside("mount -t tmpfs -o size=4k tmpfs " + dir + " && head -c 4096 /dev/zero >" + dir + "/filler")
		},
		begin: func() {
			if !x.eventually(wired, func() bool { return strings.Contains(tail(log, start), "snapshot not written") }) {
				t.Error("the agent did not say that it cannot write")
			}
			inside("umount -l " + dir)
		},
		api: true,
	})
	after := time.Now()
	c := x.order(false)
	if !x.eventually(wired, func() bool {
		info, err := os.Stat(snapshotOf(h))
		return err == nil && info.ModTime().After(after)
	}) {
		t.Error("nothing is written although there is room again")
	}
	x.eventually(back, func() bool { x.wait(200 * time.Millisecond); return len(c.left(x)) == 0 })
}

func size(file string) int64 {
	info, err := os.Stat(file)
	if err != nil {
		return 0
	}
	return info.Size()
}

// tail is a file from a place on.
func tail(file string, from int64) string {
	text, err := os.ReadFile(file)
	if err != nil || int64(len(text)) < from {
		return ""
	}
	return string(text[from:])
}

// noDescriptors takes from the agent the right to open anything, and has it lose its broker.
func (x *faults) noDescriptors() {
	t := x.t
	_, pid := x.l.Host(1).Agent()
	var before unix.Rlimit
	x.must(unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &before))
	x.without(away{
		end: func() {
			x.must(unix.Prlimit(pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 3, Max: before.Max}, nil))
			x.stopBroker(t)
			x.startBroker(t)
		},
		begin: func() { x.must(unix.Prlimit(pid, unix.RLIMIT_NOFILE, &before, nil)) },
		api:   true,
	})
}

// cleanup runs neutron-ovs-cleanup on the second host while the agent is up. It takes away what bears no mark that it should
// stay; the agent follows, and puts it into place again when it is plugged in again.
func (x *faults) cleanup() {
	t, h := x.t, x.l.Host(2)
	made, err := x.l.CreatePorts(x.ctx, h, lab.Port{NetworkID: x.blue.ID}, 3)
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, p := range made {
		ids = append(ids, p.ID)
	}
	x.must(h.PlugMany(x.ctx, made))
	x.waitActive(t, ids...)
	for _, v := range x.vms() {
		if v.host == 2 {
			_, err := h.Switch().Vsctl(x.ctx, "set", "Interface", v.Tap, "external_ids:skip_cleanup=true")
			x.must(err)
		}
	}
	if out, err := h.Command(x.ctx, "neutron-ovs-cleanup", h.AgentFiles()...).CombinedOutput(); err != nil {
		t.Fatalf("neutron-ovs-cleanup: %v: %s", err, out)
	}
	list, err := h.Switch().Vsctl(x.ctx, "list-ports", "br-int")
	x.must(err)
	for _, p := range made {
		if strings.Contains(list, tap(p)) {
			t.Errorf("neutron-ovs-cleanup left port %s: this test shows nothing", p.ID)
		}
	}
	statuses := func(want string) func() bool {
		return func() bool {
			x.wait(200 * time.Millisecond)
			for _, id := range ids {
				if p, err := ports.Get(x.ctx, x.l.Neutron(), id).Extract(); err != nil || p.Status != want {
					return false
				}
			}
			return true
		}
	}
	if !x.eventually(wired, statuses("DOWN")) {
		t.Error("ports that were cleaned away are not reported")
	}
	began := time.Now()
	x.must(h.PlugMany(x.ctx, made))
	if !x.eventually(wired, statuses("ACTIVE")) {
		t.Error("ports that are plugged in again do not become ACTIVE")
	}
	x.row.heal = time.Since(began)
	x.row.note = "3 ports cleaned away, DOWN, plugged in again, ACTIVE"
	x.must(h.UnplugMany(x.ctx, made))
	for _, id := range ids {
		x.must(x.try(http.MethodDelete, "ports/"+id, nil, nil))
	}
}

var transportLine = regexp.MustCompile(`(?m)^transport_url = .*$`)

// failOver gives server and agents a second broker, independent of the first, and takes the first away for good: everybody
// has to find each other at the second, without any queue of before.
func (x *faults) failOver() {
	t := x.t
	first := x.l.Broker()
	addr, _, err := net.SplitHostPort(first.Addr())
	x.must(err)
	second, err := broker.Start(x.ctx, broker.Config{Dir: filepath.Join(x.l.Dir(), "broker2"), Addr: addr})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = second.Kill() }()
	x.must(x.calls.watch(x.ctx, second))
	// The brokers know nothing of each other, and everybody begins with any of the list: at first there is only one.
	_, err = second.Ctl(x.ctx, "stop_app")
	x.must(err)
	user := "patchbay:patchbay@"
	url := "rabbit://" + user + first.Addr() + "," + user + second.Addr() + "/"
	conf := filepath.Join(x.l.Dir(), "server", "neutron.conf")
	text, err := os.ReadFile(conf)
	x.must(err)
	x.must(os.WriteFile(conf, transportLine.ReplaceAll(text, []byte("transport_url = "+url)), 0o600))
	x.must(x.l.StopServer(x.ctx))
	x.must(x.l.StartServer(x.ctx))
	x.eachHost(t, func(h *lab.Host) error {
		if err := h.StopAgent(x.ctx); err != nil {
			return err
		}
		return h.StartAgent(x.ctx, x.agent, filtering, "DEFAULT.transport_url="+url)
	})
	x.eventually(settled, func() bool { return x.calls.calm(rest) })
	_, err = second.Ctl(x.ctx, "start_app")
	x.must(err)
	defer func(d time.Duration) { x.outage = d }(x.outage)
	x.outage = 0 // the other one is there at once
	x.row.note = "to a second broker:"
	var gone time.Time
	restarted := false
	x.without(away{
		end:   func() { x.stopBroker(t); gone = time.Now() },
		begin: func() {},
		back: func() bool {
			x.wait(100 * time.Millisecond)
			// oslo.messaging 14 may connect to the second broker and go on with a channel of the first: "RecoverableConnectionError: unknown error" every second, for ever.
			if !restarted && time.Since(gone) > 20*time.Second && !second.Served("q-plugin") {
				restarted = true
				x.row.note = "to a second broker; neutron-server did not come to it and was restarted:"
				x.must(x.l.StopServer(x.ctx))
				x.must(x.l.StartServer(x.ctx))
			}
			return second.Served("q-plugin")
		},
		api: true,
	})
}
