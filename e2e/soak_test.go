// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/patchbay-sdn/patchbay/lab"
)

const (
	envSoak     = "SOAK"               // how long: 3m
	envSoakSeed = "PATCHBAY_SOAK_SEED" // 1
)

// TestSoak changes rules, members, groups and ports while agents, switches, broker, server and database are restarted, and
// looks after every round whether what may pass passes, nothing else does, and the flows are those that an agent makes which
// knows nothing and finds an empty switch. The second host's agent lives through all of it: what it takes up must not grow.
//
// On the simulated server, which forgets everything when it ends, that one is only stopped for a while.
func TestSoak(t *testing.T) {
	length, err := time.ParseDuration(or(os.Getenv(envSoak), "3m"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), length+timeout)
	defer cancel()
	patience(t)
	x := &soak{faults: newFaults(ctx, t, 20), rng: rand.New(rand.NewPCG(uint64(setting(t, envSoakSeed, 1)), 0)), happened: map[string]int{}}
	defer x.print()
	for began := time.Now(); time.Since(began) < length && !t.Failed(); {
		x.round()
	}
	x.survivor()
}

type soak struct {
	*faults
	rng      *rand.Rand
	happened map[string]int
	rounds   int
	updates  int
	probes   int
	compared int       // flows
	sizes    []string  // of the second host's agent, after every round
	launched time.Time // when the first host's agent was started last
}

// round is some updates, a misfortune among them, and a check.
func (x *soak) round() {
	x.rounds++
	misfortunes := []struct {
		name string
		do   func()
	}{
		{"agent restarted", func() { x.stopOne(false) }},
		{"agent killed", func() { x.stopOne(true) }},
		{"switch of hv1 killed", func() { x.killSwitch(1) }},
		{"switch of hv2 killed", func() { x.killSwitch(2) }},
		{"broker restarted", x.brokerRestarts},
		{"server restarted", x.serverRestarts},
		{"database restarted", x.databaseRestarts},
	}
	if simulated() {
		misfortunes = misfortunes[:6]
	}
	m := misfortunes[(x.rounds-1)%len(misfortunes)]
	x.happened[m.name]++
	for i := range 10 {
		if i == 5 {
			m.do()
		}
		what, err := x.update(x.rng)
		if err != nil {
			x.t.Errorf("%s after %s: %v", what, m.name, err)
		}
		x.updates++
		x.wait(time.Duration(x.rng.IntN(200)) * time.Millisecond)
	}
	x.check(m.name)
	x.must(x.undo())
	x.rest()
	x.sizes = append(x.sizes, strconv.Itoa(x.memory()>>10))
	x.t.Logf("round %d, %s: %d updates, %d probes, %d flows compared, %s KiB", x.rounds, m.name, x.updates, x.probes, x.compared, x.sizes[x.rounds-1])
}

func simulated() bool { return os.Getenv(lab.EnvServer) == string(lab.Simulated) }

// rest waits until the agents have nothing to do.
func (x *soak) rest() {
	x.wait(time.Second)
	// On a busy machine an agent asks nothing for a while after its start.
	if !x.launched.IsZero() && !x.eventually(settled, func() bool { return len(x.calls.since(x.launched, 1)) > 0 }) {
		x.t.Errorf("the agent that was started has asked nothing after %v", settled)
	}
	if !x.eventually(settled, func() bool { return x.calls.calm(2 * time.Second) }) {
		x.t.Errorf("the agents still ask after %v", settled)
	}
}

func (x *soak) stopOne(crash bool) {
	h := x.l.Host(1)
	if crash {
		x.must(h.KillAgent())
	} else {
		x.must(h.StopAgent(x.ctx))
	}
	_, err := x.update(x.rng) // nobody is there to hear of it
	x.must(err)
	x.launch(h)
}

func (x *soak) launch(h *lab.Host) {
	x.launched = time.Now()
	x.must(h.LaunchAgent(x.ctx, lab.Patchbay, filtering))
}

func (x *soak) killSwitch(host int) {
	h := x.l.Host(host)
	x.must(h.Switch().KillVswitchd(x.ctx))
	x.must(h.Switch().StartVswitchd(x.ctx))
}

func (x *soak) brokerRestarts() {
	x.stopBroker(x.t)
	x.startBroker(x.t)
	x.eventually(back, x.served)
}

func (x *soak) serverRestarts() {
	if simulated() {
		resume := x.pauseServer(x.t)
		x.wait(5 * time.Second)
		resume()
		return
	}
	x.must(x.l.StopServer(x.ctx))
	x.must(x.l.StartServer(x.ctx))
	x.eventually(back, x.served)
}

func (x *soak) databaseRestarts() {
	x.must(x.l.KillDatabase())
	x.must(x.l.StartDatabase(x.ctx))
	x.eventually(back, func() bool { _, err := x.l.Host(1).AgentRecord(x.ctx); return err == nil })
}

// check holds what there is against what there should be.
func (x *soak) check(after string) {
	x.rest()
	x.reaches(after)
	// The first host's agent starts without memory on a switch without flows, and has to wait for the server's answers; the
	// second's has to do it from what it knows.
	for i, h := range x.l.Hosts() {
		before, limit := x.meaning(h), wired
		if i == 0 {
			limit = settled
			x.must(h.StopAgent(x.ctx))
			x.must(os.Remove(snapshotOf(h)))
		}
		x.killSwitch(i + 1)
		if i == 0 {
			x.launch(h)
		}
		var now map[string][]string
		if !x.eventually(limit, func() bool { now = x.meaning(h); return same(before, now) }) {
			x.t.Errorf("%s after %s: flows differ from those made anew:\n%s", h.Name(), after, difference(before, now))
		}
		x.compared += count(now)
	}
	x.rest()
}

// reaches sends a new connection's first packet of every tuple.
func (x *soak) reaches(after string) {
	for _, v := range x.vms() {
		x.announce(x.t, v)
	}
	x.wait(silence)
	for i, tu := range x.tuples {
		arrives := func() bool {
			k := x.token()
			c := tu.conn
			c.own = 30000 + uint16(x.probes%20000)
			x.probes++
			x.must(c.from.probe.send(c.first(k)))
			return x.eventually(silence, func() bool { return c.to.probe.saw(k) > 0 })
		}
		ok := arrives()
		if tu.allowed && !ok {
			ok = arrives() // the first one may have been what the switches learn from
		}
		if ok != tu.allowed {
			x.t.Errorf("after %s: tuple %d, %s: passes: %v, wanted: %v", after, i, tu.name, ok, tu.allowed)
		}
	}
}

// memory is the resident size of the second host's agent in bytes.
func (x *soak) memory() int {
	_, pid := x.l.Host(2).Agent()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	x.must(err)
	pages, err := strconv.Atoi(strings.Fields(string(text))[1])
	x.must(err)
	return pages * os.Getpagesize()
}

// goroutines ends the second host's agent in the way that makes it write down what it was doing, and counts.
func (x *soak) goroutines() int {
	h := x.l.Host(2)
	log := h.AgentLog(lab.Patchbay)
	start := size(log)
	x.must(h.SignalAgent(syscall.SIGQUIT))
	if !x.eventually(wired, func() bool { _, pid := h.Agent(); return pid == 0 }) {
		x.t.Fatal("the agent does not end")
	}
	return strings.Count(tail(log, start), "\ngoroutine ")
}

// survivor holds the agent that lived through all of it against one that has just started.
func (x *soak) survivor() {
	h, old := x.l.Host(2), x.memory()
	before := x.meaning(h)
	many := x.goroutines()
	x.must(h.LaunchAgent(x.ctx, lab.Patchbay, filtering))
	x.rest()
	x.wait(fdbGraceOver)
	if now := x.meaning(h); !same(before, now) {
		x.t.Errorf("flows of the agent that lived through it differ from those of a new one:\n%s", difference(before, now))
	}
	young := x.memory()
	few := x.goroutines()
	x.must(h.LaunchAgent(x.ctx, lab.Patchbay, filtering))
	x.note("memory of the agent that lived through it: %d KiB, of a new one %d KiB; goroutines: %d and %d", old>>10, young>>10, many, few)
	if few == 0 || many > few+5 {
		x.t.Errorf("%d goroutines, a new agent has %d", many, few)
	}
	if old > 2*young+8<<20 {
		x.t.Errorf("%d KiB, a new agent has %d", old>>10, young>>10)
	}
}

// fdbGraceOver is when an agent has removed what nobody wants any more, even if the server did not tell it everything.
const fdbGraceOver = 35 * time.Second

func (x *soak) note(format string, args ...any) { x.row.note += fmt.Sprintf(format, args...) + "\n" }

func (x *soak) print() {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "\nrounds\t%d\nupdates\t%d\nprobes\t%d\nflows compared\t%d\n", x.rounds, x.updates, x.probes, x.compared)
	for name, n := range x.happened {
		fmt.Fprintf(w, "%s\t%d\n", name, n)
	}
	fmt.Fprintf(w, "KiB after each round\t%s\n%s", strings.Join(x.sizes, " "), x.row.note)
	_ = w.Flush()
}
