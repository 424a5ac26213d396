// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"

	"github.com/patchbay-sdn/patchbay/lab"
)

// How large a run of TestFaults is.
const (
	envFaultsPorts  = "PATCHBAY_FAULTS_PORTS"  // on the first host: 125
	envFaultsOutage = "PATCHBAY_FAULTS_OUTAGE" // how long something is away: 20s
	envFaultsDrift  = "PATCHBAY_FAULTS_DRIFT"  // acts: 200
)

const (
	// inTime is when what changed during an outage has to be in place after it, back how long it may at most take.
	inTime = 5 * time.Second
	back   = 2 * time.Minute
	// rest is for how long an agent asks nothing once it knows everything. The Python agent looks around every 2 s.
	rest = 5 * time.Second
	// ownTime is what an agent may take to be in sync after a start, beside what the server takes to answer.
	ownTime = 3 * time.Second
)

// TestFaults sends two thousand packets a second of some allowed and forbidden tuples while things fail: agents
// restart and crash, the switch dies, broker, server and database are away, somebody tampers with flows and rows, the Python
// agent takes over and gives back. It prints what was lost, how long it took until all was well, and what was asked of the
// server meanwhile. Single faults are chosen with -run TestFaults/name.
func TestFaults(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*timeout)
	defer cancel()
	patience(t)
	x := newFaults(ctx, t, setting(t, envFaultsPorts, 125))
	defer x.print()

	x.fault("agents stopped and started", untouched, func() { x.restart(false) })
	x.fault("agents killed -9 and started", untouched, func() { x.restart(true) })
	x.fault("acts of drift", unharmed, func() { x.drift(setting(t, envFaultsDrift, 200)) })
	x.fault("ovs-vswitchd killed -9", healed, x.switchDies)
	x.fault("ovs-vswitchd killed -9, broker down", healed, func() { x.withoutBroker(x.switchDies) })
	x.fault("agent and ovs-vswitchd killed -9, broker and server down", healed, func() {
		x.withoutServer(func() {
			x.withoutBroker(func() {
				x.crash(x.t, 1)
				x.switchDies()
			})
		})
	})
	x.fault("ovs-ctl restart, flows saved and restored", healed, x.switchRestored)
	x.fault("neutron-ovs-cleanup", unharmed, x.cleanup)
	x.fault("interfaces come and go, agents stopped by SIGSTOP", guarded, func() { x.comeAndGo(true) })
	x.fault("interfaces come and go", guarded, func() { x.comeAndGo(false) })
	x.fault("broker down", unharmed, x.brokerDown)
	x.fault("server down", unharmed, x.serverDown)
	x.fault("database down", unharmed, x.databaseDown)
	x.fault("agent stopped by SIGSTOP", unharmed, x.frozen)
	x.fault("disk full", unharmed, x.diskFull)
	x.fault("no file descriptors, broker restarted", unharmed, x.noDescriptors)
	x.handOver()
	x.fault("broker fails over to another", unharmed, x.failOver)
}

// limit is what a fault may cost.
type limit int

const (
	untouched limit = iota // no packet is lost, no flow is touched
	unharmed               // no packet of those that nobody tampers with is lost; flows may change
	healed                 // the switch is gone for a while; what counts is how long, and that nothing forbidden passes
	guarded                // nothing forbidden passes; the switch itself may lose a packet
	figures                // nothing is promised: the Python agent's
)

// faults is a run of TestFaults.
type faults struct {
	*blink
	t      *testing.T
	calls  calls
	outage time.Duration
	alone  bool // without a server
	// bulk are ports of the first host that only are there, spare such that are not plugged in, but have an interface.
	bulk, spare []ports.Port
	rules       int // how many were added meanwhile
	rows        []faultRow
	row         faultRow // the one that is being made
}

type faultRow struct {
	name string
	result
	changed    int // flows
	heal, bare time.Duration
	calls      int
	peak       int
	note       string
}

// newFaults starts the agents and plugs everything in, a number of ports into the first host.
func newFaults(ctx context.Context, t *testing.T, count int) *faults {
	f := &filtered{cloud: &cloud{l: lab.New(t, 2), ctx: ctx}, agent: lab.Patchbay}
	t.Cleanup(f.close)
	x := &faults{t: t}
	x.outage = outage(t)
	f.l.Neutron().HTTPClient.Timeout += x.outage // without its broker the server answers some requests only when it is back
	if err := x.calls.watch(ctx, f.l.Broker()); err != nil {
		t.Fatal(err)
	}
	f.startAgents(t, f.agent)
	x.blink = f.blink(t)
	x.every = 5 * time.Millisecond // 2,000 packets a second of all tuples: the switches share two cores with the server
	x.fill(count)
	x.settle(t)
	x.inSync()
	x.prefer(t)
	return x
}

// outage is how long something is to be away.
func outage(t *testing.T) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(or(os.Getenv(envFaultsOutage), "20s"))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// fill gives the first host as many ports as it shall have, in the project's default group.
func (x *faults) fill(count int) {
	here := 0
	for _, v := range x.vms() {
		if v.host == 1 {
			here++
		}
	}
	made, err := x.l.CreatePorts(x.ctx, x.l.Host(1), lab.Port{NetworkID: x.blue.ID}, max(count-here, 5)+2)
	if err != nil {
		x.t.Fatal(err)
	}
	x.bulk, x.spare = made[2:], made[:2]
	for _, p := range x.spare {
		_, err := x.l.Host(1).Switch().Vsctl(x.ctx, "add-port", "br-int", tap(p), "--", "set", "Interface", tap(p), "type=internal")
		x.must(err)
	}
	if err := x.l.Host(1).PlugMany(x.ctx, x.bulk); err != nil {
		x.t.Fatal(err)
	}
	var ids []string
	for _, p := range append(x.apart(), x.bulk...) {
		ids = append(ids, p.ID)
	}
	// Looking costs the server time that it needs for the ports.
	x.eventually(settled, func() bool { x.wait(3 * time.Second); return x.calls.calm(3 * time.Second) })
	x.waitActive(x.t, ids...)
}

// apart plugs a port into each host on a network of another type, whose tunnels nobody sends through.
func (x *faults) apart() []ports.Port {
	n, err := x.l.CreateNetwork(x.ctx, lab.Network{Name: "apart", Type: "gre"})
	x.must(err)
	var all []ports.Port
	for _, h := range x.l.Hosts() {
		made, err := x.l.CreatePorts(x.ctx, h, lab.Port{NetworkID: n.ID}, 1)
		x.must(err)
		x.must(h.PlugMany(x.ctx, made))
		all = append(all, made...)
	}
	return all
}

func (x *faults) fault(name string, most limit, happens func()) {
	t := x.t
	t.Helper()
	t.Run(name, func(t *testing.T) {
		x.t = t
		x.row = faultRow{name: name}
		for _, v := range x.vms() {
			v.probe.forget()
		}
		x.prefer(t) // a switch that was restarted has to be told
		before := x.allFlows()
		began := time.Now()
		x.row.result = x.during(t, func() {
			happens()
			x.wait(2 * time.Second)
		})
		x.row.changed = x.youngerThan(x.t, time.Since(began)) + vanished(before, x.allFlows())
		if x.row.doors > 0 {
			x.row.note += fmt.Sprintf(" %d packets were dropped at full sockets", x.row.doors)
		}
		list := x.calls.since(began, 0)
		x.row.calls, x.row.peak = len(list), peak(list)
		x.rows = append(x.rows, x.row)
		t.Log(x.row) // also when the run is broken off
		if most == figures {
			return
		}
		r := x.row.result
		if r.passed > 0 {
			t.Errorf("%d forbidden packets passed\n%s", r.passed, strings.Join(r.detail, "\n"))
		}
		if most == guarded && r.lost > 0 {
			t.Log(strings.Join(r.detail, "\n"))
		} else if most != healed && r.lost > 0 {
			t.Errorf("%d allowed packets were lost\n%s", r.lost, strings.Join(r.detail, "\n"))
		}
		if most == untouched && x.row.changed > 0 {
			t.Errorf("%d flows were touched", x.row.changed)
		}
		if bound := healTime(x.row.bare); most == healed && x.row.heal > bound {
			t.Errorf("all flows were back after %v, wanted %v", x.row.heal, bound)
		}
	})
	x.t = t
}

func (c *cloud) wait(d time.Duration) { c.eventually(d, func() bool { return false }) }

// healTime is when all flows have to be back on a switch that was restarted, by what ovs-ofctl takes for them.
func healTime(bare time.Duration) time.Duration { return 2*bare + 500*time.Millisecond }

// inSync waits until the agents know everything, and Patchbay has written it down.
func (x *faults) inSync() {
	if !x.eventually(settled, func() bool { return x.calls.calm(rest) }) {
		x.t.Errorf("the agents still ask after %v", settled)
	}
	if x.agent == lab.Patchbay {
		x.remembered(x.t)
	}
}

// remembered waits until the agents have written down what they know.
func (c *cloud) remembered(t *testing.T) {
	t.Helper()
	for _, h := range c.l.Hosts() {
		// The first one waits for the forwarding entries of all networks: half a minute, if a network has ports on this host alone.
		if !c.eventually(wired+30*time.Second, func() bool { _, err := os.Stat(snapshotOf(h)); return err == nil }) {
			t.Fatalf("%s has no snapshot", h.Name())
		}
	}
	c.wait(6 * time.Second) // for the last changes to be in it
}

func snapshotOf(h *lab.Host) string { return h.Dir() + "/agent/state/patchbay.snapshot" }

// restart ends both agents, at once or with a chance to say goodbye, starts them again and waits until they are in sync. The
// first host's figures count: it is the one with many ports.
func (x *faults) restart(crash bool) {
	began := make([]time.Time, 2)
	done := x.pythonSays(x.t, pythonTakenOver, x.l.Hosts()...)
	x.eachHost(x.t, func(h *lab.Host) error {
		if crash {
			if err := h.KillAgent(); err != nil {
				return err
			}
		} else if err := h.StopAgent(x.ctx); err != nil {
			return err
		}
		began[slices.IndexFunc(x.l.Hosts(), func(o *lab.Host) bool { return o.Name() == h.Name() })] = time.Now()
		return h.LaunchAgent(x.ctx, x.agent, filtering)
	})
	if x.agent == lab.Python {
		done()
	}
	asks := func() bool { return len(x.calls.since(began[0], 1)) > 0 }
	if !x.eventually(settled, asks) || !x.eventually(settled, func() bool { return x.calls.calm(rest) }) {
		x.t.Errorf("the agents are not in sync after %v", settled)
	}
	list := x.calls.since(began[0], 1)
	after, waited := synced(list, began[0])
	x.row.heal = after
	x.row.note = fmt.Sprintf("hv1: in sync after %.1f s, %.1f of them waiting for the server; %d calls", after.Seconds(), waited.Seconds(), len(list))
	if own := after - waited; x.agent == lab.Patchbay && own > ownTime {
		x.t.Errorf("the agent was in sync %v after the server's answers, wanted %v", own, ownTime)
	}
}

func (x *faults) withoutBroker(happens func()) {
	x.stopBroker(x.t)
	defer func() {
		x.startBroker(x.t)
		if !x.alone {
			x.eventually(back, x.served)
		}
		x.eventually(settled, func() bool { return x.calls.calm(rest) })
	}()
	happens()
}

func (c *cloud) stopBroker(t *testing.T) {
	t.Helper()
	if _, err := c.l.Broker().Ctl(c.ctx, "stop_app"); err != nil {
		t.Fatal(err)
	}
}

func (c *cloud) startBroker(t *testing.T) {
	t.Helper()
	if _, err := c.l.Broker().Ctl(c.ctx, "start_app"); err != nil {
		t.Fatal(err)
	}
}

func (x *faults) withoutServer(happens func()) {
	if err := x.l.StopServer(x.ctx); err != nil {
		x.t.Fatal(err)
	}
	x.alone = true
	defer func() {
		x.alone = false
		if err := x.l.StartServer(x.ctx); err != nil {
			x.t.Fatal(err)
		}
		x.eventually(settled, func() bool { return x.calls.calm(rest) })
	}()
	happens()
}

var duration = regexp.MustCompile(`duration=([0-9.]+)s`)

// youngerThan counts the flows that were made or changed within a time.
func (c *cloud) youngerThan(t *testing.T, age time.Duration) int {
	t.Helper()
	n := 0
	for _, h := range c.l.Hosts() {
		for _, br := range bridges {
			text, err := h.Switch().Ofctl(c.ctx, "-O", "OpenFlow14", "dump-flows", br)
			if err != nil {
				t.Fatal(err)
			}
			for line := range strings.SplitSeq(text, "\n") {
				m := duration.FindStringSubmatch(line)
				if m == nil || learnt(line) {
					continue
				}
				if s, err := strconv.ParseFloat(m[1], 64); err == nil && s < age.Seconds() {
					n++
				}
			}
		}
	}
	return n
}

func (r faultRow) String() string {
	return fmt.Sprintf("%s\t%s\t%.0f\t%d\t%d\t%d ms\t%d\t%d\t%d\t%s\t%s\t%d\t%d\t%s", r.name, r.agent, r.took.Seconds(), r.allowed, r.lost, r.gap,
		r.forbidden, r.passed, r.changed, seconds(r.heal), seconds(r.bare), r.calls, r.peak, r.note)
}

func seconds(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return fmt.Sprintf("%.2f s", d.Seconds())
}

// printTable prints rows that have tabs between their cells.
func printTable[R any](head string, rows []R) {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, head)
	for _, r := range rows {
		fmt.Fprintln(w, r)
	}
	_ = w.Flush()
}

func (x *faults) print() {
	printTable("\nfault\tagent\tseconds\tallowed sent\tlost\tlongest gap\tforbidden sent\tpassed\tflows changed\thealed after\tovs-ofctl\tRPC calls\tin one second\t", x.rows)
}
