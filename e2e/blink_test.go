// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"runtime"
	"sort"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"

	"github.com/patchbay-sdn/patchbay/lab"
)

// What a run of TestBlink is: which agents, one after the other, how many updates, and from which seed.
const (
	envBlinkAgents  = "PATCHBAY_BLINK_AGENTS"  // "patchbay,python"
	envBlinkUpdates = "PATCHBAY_BLINK_UPDATES" // 200
	envBlinkSeed    = "PATCHBAY_BLINK_SEED"    // 1
	envBlinkNetwork = "PATCHBAY_BLINK_NETWORK" // "vlan"; with "vxlan" the switch alone goes through it, too
)

// beat is the time between two packets of a tuple, unless it is told otherwise.
const beat = time.Millisecond

// freshPorts is from how many ports the packets of a tuple come that are to be new connections.
const freshPorts = 5000

// TestBlink sends a thousand packets a second of each of some allowed and forbidden tuples, while rules, members, groups
// and ports change. No allowed packet may be lost and no forbidden one may pass. The Python agent goes through the same
// updates, for its figures.
func TestBlink(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	patience(t)
	f := &filtered{cloud: &cloud{l: lab.New(t, 2), ctx: ctx}}
	t.Cleanup(f.close)
	switch f.kind = or(os.Getenv(envBlinkNetwork), "vlan"); f.kind {
	case "vlan", "vxlan":
	default:
		t.Fatalf("%s: want vlan or vxlan, not %q", envBlinkNetwork, f.kind)
	}
	updates, seed := setting(t, envBlinkUpdates, 200), setting(t, envBlinkSeed, 1)
	var list []lab.AgentKind
	for name := range strings.SplitSeq(or(os.Getenv(envBlinkAgents), "patchbay,python"), ",") {
		kind, err := lab.ParseAgentKind(name)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, kind)
	}
	var b *blink
	var results []result
	for _, kind := range list {
		f.agent = kind
		f.startAgents(t, kind)
		if b == nil {
			b = f.blink(t)
		}
		b.settle(t)
		f.prefer(t)
		r := b.run(t, updates, uint64(seed))
		results = append(results, r)
		if kind != lab.Patchbay {
			continue
		}
		if r.lost != 0 || r.passed != 0 {
			t.Errorf("%d allowed packets were lost and %d forbidden ones passed", r.lost, r.passed)
		}
	}
	if f.kind == "vxlan" {
		results = append(results, b.bare(t, updates))
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nagent\tupdates\tseconds\ttuples\tper second each\tallowed sent\tlost\tof them unseen\tlongest gap\tforbidden sent\tpassed")
	for _, r := range results {
		fmt.Fprintf(w, "%s\t%d\t%.0f\t%d\t%.0f\t%d\t%d\t%d\t%d ms\t%d\t%d\n", r.agent, r.updates, r.took.Seconds(), r.tuples,
			float64(r.beats)/r.took.Seconds(), r.allowed, r.lost, r.doors, r.gap, r.forbidden, r.passed)
	}
	_ = w.Flush()
	for _, r := range results {
		for _, line := range r.detail {
			fmt.Printf("%s: %s\n", r.agent, line)
		}
	}
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

func setting(t *testing.T, name string, otherwise int) int {
	n, err := strconv.Atoi(or(os.Getenv(name), strconv.Itoa(otherwise)))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// patience gives the switches' sockets room for what comes while they do not get the CPU: this machine has few cores and
// runs a whole cloud. What is lost then is not lost by an agent. The setting is the machine's, so it is put back. Only the first
// network namespace has it: who runs a test in another one sets it there before.
func patience(t *testing.T) {
	const file, room = "/proc/sys/net/core/rmem_default", 128 << 20
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if have, err := strconv.Atoi(strings.TrimSpace(string(before))); err == nil && have >= room {
		return
	}
	if err := os.WriteFile(file, []byte(strconv.Itoa(room)), 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.WriteFile(file, before, 0) })
}

// prefer gives the switches and the senders the CPU before all else, as on a host that has cores for them.
func (f *filtered) prefer(t *testing.T) {
	t.Helper()
	pids := []int{os.Getpid()}
	for _, h := range f.l.Hosts() {
		pids = append(pids, h.Switch().Pids()["ovs-vswitchd"])
	}
	for _, pid := range pids {
		threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		if err != nil {
			t.Fatal(err)
		}
		for _, thread := range threads {
			id, _ := strconv.Atoi(thread.Name())
			_ = unix.Setpriority(unix.PRIO_PROCESS, id, -15) // it may have ended
		}
	}
}

// tuple is one stream of packets.
type tuple struct {
	conn
	name    string
	allowed bool
	// fresh: each packet comes from another port.
	fresh bool
	first token
	beats int
}

// blink is the VMs and what changes between them.
type blink struct {
	*filtered
	target *vm
	group  string // of the target
	extra  string // comes and goes
	tuples []*tuple
	// base is below all tokens of the next run.
	base  token
	done  updates
	every time.Duration // beat
	// beat is how many packets of each tuple have been sent in this run; log is what happened when.
	beat atomic.Int64
	log  []happened
}

// happened is an update, and the number of the packets that were sent just then.
type happened struct {
	beat int64
	what string
}

// result is the figures of one run.
type result struct {
	agent              lab.AgentKind
	updates, tuples    int
	took, every        time.Duration
	beats              int
	allowed, forbidden int
	lost, passed, gap  int
	doors              int // of the lost ones, those that no switch has looked at
	detail             []string
}

// blink makes the VMs: a target, and a sender for each tuple.
func (f *filtered) blink(t *testing.T) *blink {
	f.networks(t)
	b := &blink{filtered: f, base: 1 << 40, every: beat}
	f.open, f.club, b.group, b.extra = f.group(t, "open"), f.group(t, "club"), f.group(t, "target"), f.group(t, "extra")
	f.allow(t, f.open, everything()...)
	f.listed = f.addressGroup(t, "listed", "192.168.100.224/28")
	b.target = f.blue.add(1, 1)
	b.target.extra = attributes{"security_groups": []string{b.group}}
	for _, version := range []int{4, 6} {
		f.allow(t, b.group, directed(ranged("udp", 1000, 1000), "ingress", version),
			directed(with(ranged("tcp", 2000, 2000), "remote_group_id", f.club), "ingress", version))
	}
	f.allow(t, b.group, directed(with(ranged("udp", 3000, 3000), "remote_address_group_id", f.listed), "ingress", 4),
		directed(ranged("udp", 4000, 4000), "egress", 4))
	f.allow(t, b.extra, directed(ranged("tcp", 30000, 30100), "ingress", 4), directed(with(attributes{}, "remote_group_id", b.extra), "ingress", 4))
	number := 0
	add := func(name string, host, version int, proto uint8, port uint16, member, allowed, fresh bool) *tuple {
		number++
		first, groups := 190, []string{f.open}
		if member {
			first, groups = 214, append(groups, f.club)
		}
		v := f.blue.add(first+number, host)
		v.extra = attributes{"security_groups": groups}
		x := &tuple{name: name, allowed: allowed, fresh: fresh, conn: conn{
			from: v, to: b.target, version: version, proto: proto, port: port, own: 20000,
		}}
		b.tuples = append(b.tuples, x)
		return x
	}
	add("udp 1000, IPv4, same host", 1, 4, protoUDP, 1000, false, true, false)
	add("udp 1000, IPv6, other host, new connections", 2, 6, protoUDP, 1000, false, true, true)
	add("tcp 2000 of a member, IPv4, same host", 1, 4, protoTCP, 2000, true, true, false)
	add("tcp 2000 of a member, IPv6, other host", 2, 6, protoTCP, 2000, true, true, false)
	add("udp 3000 of a listed address, IPv4, other host, new connections", 2, 4, protoUDP, 3000, true, true, true)
	out := add("udp 4000 outwards, IPv4, other host", 2, 4, protoUDP, 4000, false, true, false)
	out.from, out.to = out.to, out.from
	add("udp 1001, IPv4, same host", 1, 4, protoUDP, 1001, false, false, true)
	add("tcp 2000 of a stranger, IPv4, other host", 2, 4, protoTCP, 2000, false, false, true)
	add("udp 3000 of a stranger, IPv4, same host", 1, 4, protoUDP, 3000, false, false, true)
	forbidden := add("udp 4001 outwards, IPv4, other host", 2, 4, protoUDP, 4001, false, false, true)
	forbidden.from, forbidden.to = forbidden.to, forbidden.from
	f.plugPlanned(t)
	return b
}

// settle waits until the agents have dealt with everything that there was before, and makes the TCP connections.
func (b *blink) settle(t *testing.T) {
	t.Helper()
	b.forget(t)
	for _, v := range b.vms() {
		b.announce(t, v)
	}
	for _, x := range b.tuples {
		if !x.allowed {
			continue
		}
		for _, step := range []struct {
			build    func(conn, token) []byte
			from, to *vm
		}{{conn.first, x.from, x.to}, {conn.reply, x.to, x.from}, {conn.more, x.from, x.to}} {
			if !b.eventually(settled, func() bool {
				k := b.token()
				if err := step.from.probe.send(step.build(x.conn, k)); err != nil {
					t.Fatal(err)
				}
				return b.eventually(silence, func() bool { return step.to.probe.saw(k) > 0 })
			}) {
				t.Fatalf("%s does not pass", x.name)
			}
		}
	}
	// The Python agent is busy for a while after its start with what it finds.
	b.eventually(wired, func() bool { return false })
}

// run sends while updates happen, and counts at both ends.
func (b *blink) run(t *testing.T, count int, seed uint64) result {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 0))
	r := b.during(t, func() {
		for range count {
			at := b.beat.Load()
			what, err := b.update(rng)
			b.log = append(b.log, happened{at, what})
			if err != nil {
				t.Error(err)
			}
			b.eventually(time.Duration(rng.IntN(100))*time.Millisecond, func() bool { return false })
		}
		// The Python agent looks at what has come every two seconds.
		b.eventually(wired/4, func() bool { return false })
	})
	r.updates = count
	if err := b.undo(); err != nil {
		t.Error(err)
	}
	return r
}

// bare plugs ports and takes them away while no agent runs: what is lost then, the switch loses. Tunnels that Open vSwitch
// itself ends forget their addresses and learn them again whenever an interface appears in the host's namespace, and packets
// that come in between are lost; so only networks without tunnels tell what an agent does.
func (b *blink) bare(t *testing.T, count int) result {
	t.Helper()
	b.eachHost(t, func(h *lab.Host) error { return h.StopAgent(b.ctx) })
	b.agent = "none"
	rng := rand.New(rand.NewPCG(1, 0))
	r := b.during(t, func() {
		for range count {
			b.log = append(b.log, happened{b.beat.Load(), "port beside it"})
			if err := b.neighbour(rng); err != nil {
				t.Error(err)
			}
			b.eventually(time.Duration(rng.IntN(100))*time.Millisecond, func() bool { return false })
		}
	})
	r.updates = count
	if err := b.undo(); err != nil {
		t.Error(err)
	}
	return r
}

// during sends while something happens, and counts at both ends.
func (b *blink) during(t *testing.T, happens func()) result {
	t.Helper()
	var stop atomic.Bool
	b.beat.Store(0)
	sent := make(chan error, 1)
	for i, x := range b.tuples {
		x.first, x.beats = b.base+token(i)<<24, 0
	}
	b.base += token(len(b.tuples)) << 24
	b.log = nil
	before := b.socketDrops(t)
	start := time.Now()
	go func() { sent <- b.send(&stop) }()
	func() {
		defer stop.Store(true) // also when it ends the test
		happens()
	}()
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	r := result{agent: b.agent, every: b.every, tuples: len(b.tuples), took: time.Since(start)}
	b.eventually(time.Second, func() bool { return false })
	for _, x := range b.tuples {
		r.add(x, b.log)
	}
	r.doors = b.socketDrops(t) - before
	return r
}

// socketDrops counts the packets that came to the switches' sockets while those were full: the switch did not get to them,
// and no flow has seen them.
func (c *cloud) socketDrops(t *testing.T) int {
	t.Helper()
	n := 0
	for _, h := range c.l.Hosts() {
		out, err := h.Command(c.ctx, "ss", "-0", "-n", "-m").Output()
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`,d([0-9]+)\)`).FindAllSubmatch(out, -1) {
			d, _ := strconv.Atoi(string(m[1]))
			n += d
		}
	}
	return n
}

// add counts what became of a tuple's packets.
func (r *result) add(x *tuple, log []happened) {
	arrived, gap, longest := 0, 0, 0
	var gaps []string
	ended := func(at int) {
		longest = max(longest, gap)
		if gap > 0 && x.allowed && len(gaps) < 10 {
			gaps = append(gaps, fmt.Sprintf("%d before %d, after %s", gap, at, before(log, int64(at-gap))))
		}
		gap = 0
	}
	for i := range x.beats {
		if x.to.probe.saw(x.first+token(i)) == 0 {
			gap++
			continue
		}
		arrived++
		ended(i)
	}
	ended(x.beats)
	longest *= int(r.every / time.Millisecond)
	r.beats = x.beats
	if x.allowed {
		r.allowed += x.beats
		r.lost += x.beats - arrived
		r.gap = max(r.gap, longest)
		r.detail = append(r.detail, fmt.Sprintf("allowed %s: %d sent, %d lost, longest gap %d ms", x.name, x.beats, x.beats-arrived, longest))
		r.detail = append(r.detail, gaps...)
		return
	}
	r.forbidden += x.beats
	r.passed += arrived
	r.detail = append(r.detail, fmt.Sprintf("forbidden %s: %d sent, %d passed", x.name, x.beats, arrived))
}

// before names the last updates before a packet.
func before(log []happened, beat int64) string {
	i := sort.Search(len(log), func(i int) bool { return log[i].beat > beat })
	var names []string
	for _, h := range log[max(0, i-3):i] {
		names = append(names, fmt.Sprintf("%s at %d", h.what, h.beat))
	}
	return strings.Join(names, ", ")
}

// send sends a packet of each tuple at every beat, on a thread of its own. When it comes late it makes up for a few beats
// and leaves out the others, so that it never sends in bursts that no queue holds.
func (b *blink) send(stop *atomic.Bool) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const makeUp = 5
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return fmt.Errorf("reading the clock: %w", err)
	}
	next := now.Nano()
	for !stop.Load() {
		for _, x := range b.tuples {
			c := x.conn
			build := conn.more
			if x.fresh {
				build, c.own = conn.first, 20000+uint16(x.beats%freshPorts)
			}
			if err := c.from.probe.send(build(c, x.first+token(x.beats))); err != nil {
				return err
			}
			x.beats++
		}
		b.beat.Add(1)
		next += int64(b.every)
		until := unix.NsecToTimespec(next)
		for unix.ClockNanosleep(unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, &until, nil) == unix.EINTR {
			continue
		}
		if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
			return fmt.Errorf("reading the clock: %w", err)
		}
		next = max(next, now.Nano()-makeUp*int64(b.every))
	}
	return nil
}
