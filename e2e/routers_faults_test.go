// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bytes"
	"fmt"
	"net/http"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"
	"golang.org/x/sys/unix"

	"github.com/patchbay-sdn/patchbay/lab"
)

const (
	// pace is the time between two packets of a stream.
	pace = 10 * time.Millisecond
	// onTheWay is how many packets at the end of a stream may be without an answer because it was stopped.
	onTheWay = 20
)

// flowing is a ping that goes on while something happens.
type flowing struct {
	name string
	cmd  *exec.Cmd
	out  bytes.Buffer
}

// streamRow is what became of the packets of all streams while one thing happened.
type streamRow struct {
	name       string
	agent      lab.AgentKind
	sent, lost int
	gap        int // packets
	changed    int // flows
	rows       int // changed in the databases, and meters
	heal, bare time.Duration
	took       time.Duration
	note       string
	detail     []string
}

var (
	transmitted = regexp.MustCompile(`(\d+) packets transmitted`)
	answer      = regexp.MustCompile(`\[(\d+)\.(\d{6})\] .*icmp_seq=(\d+) .*time=`)
)

// count says how many packets were sent, how many of them had no answer, how many of those in a row, and when the first of them
// was missed.
func (s *flowing) count() (sent, lost, gap int, first time.Time) {
	text := s.out.String()
	if m := transmitted.FindStringSubmatch(text); m != nil {
		sent, _ = strconv.Atoi(m[1])
	}
	answered := map[int]time.Time{}
	for _, m := range answer.FindAllStringSubmatch(text, -1) {
		n, _ := strconv.Atoi(m[3])
		at, _ := strconv.ParseInt(m[1]+m[2], 10, 64)
		answered[n] = time.UnixMicro(at)
	}
	run := 0
	for n := 1; n <= sent; n++ {
		at, ok := answered[n]
		if !ok {
			run++
			continue
		}
		if run > 0 && lost == 0 {
			first = at
		}
		lost, gap, run = lost+run, max(gap, run), 0
	}
	if run > onTheWay {
		lost, gap = lost+run, max(gap, run)
	}
	return sent, lost, gap, first
}

// way is from a VM to an address.
type way struct {
	name string
	from *vm
	to   string
}

// ways are all that lead through the router.
func (r *routed) ways() []way {
	return []way{
		{"between networks", r.a, r.b.v4}, {"between networks, IPv6", r.a, r.b.v6},
		{"to the outside", r.a, r.beyond.v4}, {"to the outside, IPv6", r.a, r.beyond.v6},
		{"to a floating address", r.beyond, r.floats},
		{"from a trunk's parent to the outside", r.carrier.vm, r.beyond.v4},
		{"from a sub-port between networks", r.carrier.vm, r.b.v4}, {"between networks to a sub-port", r.b, r.carrier.riders[1].ip()},
	}
}

// under sends packets every way through the router while something happens, and judges what it cost.
func (r *routed) under(t *testing.T, most limit, happens func(row *streamRow)) *streamRow {
	t.Helper()
	var streams []*flowing
	for _, w := range r.ways() {
		r.marked(t, w.from, w.to, r.token(), 1)
		s := &flowing{name: w.name, cmd: w.from.Command(r.ctx, "ping", "-D", "-n", "-i", fmt.Sprint(pace.Seconds()), w.to)}
		s.cmd.Stdout, s.cmd.Stderr = &s.out, &s.out
		if err := s.cmd.Start(); err != nil {
			t.Fatal(err)
		}
		streams = append(streams, s)
	}
	row := &streamRow{name: t.Name()[strings.Index(t.Name(), "/")+1:], agent: r.agent}
	before, rows, began := r.allFlows(), r.rows(t), time.Now()
	happens(row)
	r.wait(2 * time.Second)
	row.took = time.Since(began)
	row.changed = r.youngerThan(t, row.took) + vanished(before, r.allFlows())
	after := r.rows(t)
	row.rows = max(vanished([]map[string][]string{rows}, []map[string][]string{after}), vanished([]map[string][]string{after}, []map[string][]string{rows}))
	for _, s := range streams {
		_ = s.cmd.Process.Signal(unix.SIGINT)
		_ = s.cmd.Wait() // it says so when packets were lost, which is counted
		sent, lost, gap, first := s.count()
		row.sent, row.lost, row.gap = row.sent+sent, row.lost+lost, max(row.gap, gap)
		text := fmt.Sprintf("%s: %d of %d lost, %d in a row", s.name, lost, sent, gap)
		if lost > 0 {
			text += ", the first before " + first.Format("15:04:05.000")
		}
		row.detail = append(row.detail, text)
		if sent < int(row.took/pace)/10 {
			t.Errorf("%s: %d packets were sent in %v", s.name, sent, row.took)
		}
	}
	r.streams = append(r.streams, row)
	if most != healed && most != figures && row.lost > 0 {
		t.Errorf("%d packets were lost\n%s", row.lost, strings.Join(row.detail, "\n"))
	}
	if most == untouched && row.changed > 0 {
		t.Errorf("%d flows were touched", row.changed)
	}
	if (most == untouched || most == healed) && row.rows > 0 {
		t.Errorf("%d rows were changed", row.rows)
	}
	t.Log(row, strings.Join(row.detail, "; "))
	if row.rows > 0 {
		t.Logf("rows that changed:\n%s", difference(rows, after))
	}
	return row
}

// restart ends all agents, at once or with a chance to say goodbye, and starts them again.
func (r *routed) restart(t *testing.T, crash bool) {
	r.under(t, r.restarted(), func(*streamRow) { r.launch(t, r.agent, crash) })
}

// restarted is what a restart may cost.
func (r *routed) restarted() limit {
	if r.agent == lab.Python {
		return figures
	}
	return untouched
}

// launch starts agents in the place of those that run, and waits until they know everything.
func (r *routed) launch(t *testing.T, kind lab.AgentKind, crash bool) {
	t.Helper()
	done := r.pythonSays(t, pythonTakenOver, r.l.Hosts()...)
	r.eachHost(t, func(h *lab.Host) error {
		if crash {
			if err := h.KillAgent(); err != nil {
				return err
			}
		} else if err := h.StopAgent(r.ctx); err != nil {
			return err
		}
		return h.StartAgent(r.ctx, kind, extended()...)
	})
	if kind == lab.Python {
		done() // it asks nothing for long before it has dealt with all ports
	}
	if !r.eventually(settled, func() bool { return r.calls.calm(rest) }) {
		t.Errorf("the agents are not in sync after %v", settled)
	}
	r.agent = kind
}

// switchDies kills a switch and starts it again, and the agent if that is gone too, and measures how long it takes until all
// flows and meters are back.
func (r *routed) switchDies(t *testing.T, host int) {
	h := r.l.Host(host)
	before, meters, numbered := r.flows(h), r.meters(h), r.dump(h, "--no-names")
	row := r.under(t, healed, func(row *streamRow) {
		if err := h.Switch().KillVswitchd(r.ctx); err != nil {
			t.Fatal(err)
		}
		if err := h.Switch().StartVswitchd(r.ctx); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if _, pid := h.Agent(); pid == 0 {
			if err := h.LaunchAgent(r.ctx, r.agent, extended()...); err != nil {
				t.Fatal(err)
			}
		}
		var after map[string][]string
		if !r.eventually(time.Minute, func() bool {
			after = r.flows(h)
			return same(before, after) && slices.Equal(meters, r.meters(h))
		}) {
			t.Errorf("flows are not back:\n%s\nmeters were\n%s\nand are\n%s", difference(before, after), meters, r.meters(h))
		}
		row.heal = time.Since(began)
		for _, w := range r.ways() {
			r.marked(t, w.from, w.to, r.token(), 20)
		}
	})
	row.bare = r.bareTime(t, h, numbered)
	if bound := healTime(row.bare); row.heal > bound && r.agent == lab.Patchbay {
		t.Errorf("all flows were back after %v, wanted %v", row.heal, bound)
	}
}

// alone is what happens without a broker.
func (r *routed) alone(t *testing.T, happens func()) {
	if r.agent == lab.Patchbay {
		r.remembered(t)
	}
	r.stopBroker(t)
	defer r.brokerBack(t)
	happens()
}

// brokerBack starts the broker, and waits until everybody has found it and knows everything.
func (r *routed) brokerBack(t *testing.T) {
	r.startBroker(t)
	if !r.eventually(back, r.served) {
		t.Errorf("the server is not back after %v", back)
	}
	r.eventually(settled, func() bool { return r.calls.calm(rest) })
}

// restartAlone starts the agents anew while there is no broker. They know everything from before.
func (r *routed) restartAlone(t *testing.T) {
	r.alone(t, func() {
		r.under(t, r.restarted(), func(*streamRow) {
			r.eachHost(t, func(h *lab.Host) error {
				if err := h.StopAgent(r.ctx); err != nil {
					return err
				}
				return h.LaunchAgent(r.ctx, r.agent, extended()...)
			})
			r.wait(outage(t) / 2)
		})
	})
}

// brokerDown has a policy changed, a trunk grown and a port plugged in while the broker is away. All of it has to be in place
// soon after the server is back.
func (r *routed) brokerDown(t *testing.T) {
	down := outage(t)
	r.under(t, unharmed, func(row *streamRow) {
		r.stopBroker(t)
		r.wait(down / 4)
		if err := r.l.Host(2).PlugMany(r.ctx, []ports.Port{r.unplugged}); err != nil {
			t.Fatal(err)
		}
		// It may take the server until it has its broker back, and then tell of changes to one policy in any order.
		ordered := make(chan error, 4)
		r.dscp, r.subs = 46, 14
		go func() { ordered <- r.tryRule(r.inherited, attributes{"dscp_mark": 14}) }()
		go func() { ordered <- r.tryRule(r.mark, attributes{"dscp_mark": 46}) }()
		go func() { ordered <- r.tryRule(r.rate, attributes{"max_kpps": 20, "direction": "egress"}) }()
		go func() {
			ordered <- r.try(http.MethodPut, "trunks/"+r.carrier.trunk+"/add_subports", attributes{"sub_ports": subPorts(r.spare)}, nil)
		}()
		r.wait(down - down/4)
		r.startBroker(t)
		if !r.eventually(back, r.served) {
			t.Errorf("the server is not back after %v", back)
		}
		for range cap(ordered) {
			if err := <-ordered; err != nil {
				t.Errorf("the server did not do what it was told meanwhile: %v", err)
			}
		}
		noticed := time.Now()
		place := func(missing func() []string) time.Duration {
			var left []string
			if !r.eventually(back, func() bool { left = missing(); return len(left) == 0 }) {
				t.Errorf("not in place %v after the broker was back: %v", back, left)
			}
			return time.Since(noticed)
		}
		limits := place(r.limitsMissing)
		row.heal = place(r.portsMissing)
		waited := openFor(r.calls.since(noticed.Add(-back), 0), noticed, time.Now())
		row.note = fmt.Sprintf("mark and meters after %.1f s; for %.1f s questions were open at the server", limits.Seconds(), waited.Seconds())
		if row.heal-waited > inTime && r.agent == lab.Patchbay {
			t.Errorf("in place after %v, of which the server took %v for answers; wanted %v", row.heal, waited, inTime)
		}
		r.eventually(settled, func() bool { return r.calls.calm(rest) })
	})
}

// limitsMissing is what of the changed policies is not in place.
func (r *routed) limitsMissing() []string {
	var out []string
	marks := func(h *lab.Host, dscp uint8) bool {
		return strings.Contains(strings.Join(r.flows(h)["br-int"], "\n"), fmt.Sprintf("set_field:%d->ip_dscp", dscp))
	}
	if !marks(r.l.Host(2), r.subs) {
		out = append(out, "the mark of the sub-port")
	}
	for _, n := range []int{2, 3} {
		h := r.l.Host(n)
		if !marks(h, r.dscp) {
			out = append(out, "the mark on "+h.Name())
		}
		if !strings.Contains(strings.Join(r.meters(h), "\n"), "rate=20000") {
			out = append(out, "the meter on "+h.Name())
		}
	}
	return out
}

// portsMissing is which of the new ports the server does not take for wired.
func (r *routed) portsMissing() []string {
	r.wait(500 * time.Millisecond) // each look costs the server's only worker some time
	var out []string
	for what, id := range map[string]string{"the sub-port": r.spare.port.ID, "the port plugged in": r.unplugged.ID} {
		if p, err := ports.Get(r.ctx, r.l.Neutron(), id).Extract(); err != nil || p.Status != "ACTIVE" {
			out = append(out, what)
		}
	}
	return out
}

// handOver gives all hosts to the other agent and back. Afterwards the flows are those from before.
func (r *routed) handOver(t *testing.T) {
	ours, other := r.agent, lab.Python
	if ours == lab.Python {
		other = lab.Patchbay
	}
	before, rows := r.unsigned(), unnumbered(r.rows(t))
	for _, kind := range []lab.AgentKind{other, ours} {
		r.run(t, "handed to the "+string(kind)+" agent", "3", func(t *testing.T) {
			most := unharmed
			if kind == lab.Python {
				most = figures
			}
			r.under(t, most, func(*streamRow) { r.launch(t, kind, false) })
		})
	}
	if ours != lab.Patchbay {
		return // the Python agent leaves what it does not know
	}
	after := r.unsigned()
	for i, h := range r.l.Hosts() {
		if !same(before[i], after[i]) {
			t.Errorf("flows of %s are not those before:\n%s", h.Name(), difference(before[i], after[i]))
		}
	}
	if now := unnumbered(r.rows(t)); !same(rows, now) {
		t.Errorf("rows are not those before:\n%s", difference(rows, now))
	}
}

// riders are the sub-ports of a trunk as its parent's row lists them, in whatever order the agent that wrote it had them.
var (
	riders = regexp.MustCompile(`subport_ids=""\[[^\]]*\]""`)
	portID = regexp.MustCompile(`[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}`)
)

// unnumbered are rows without the ids of those that limit bandwidth, which the Python agent makes anew at every start, and with sub-ports in order.
func unnumbered(rows map[string][]string) map[string][]string {
	var ids []string
	for name, lines := range rows {
		for _, line := range lines {
			if id, _, ok := strings.Cut(line, ","); ok && (strings.HasSuffix(name, " QoS") || strings.HasSuffix(name, " Queue")) {
				ids = append(ids, id, "…")
			}
		}
	}
	hide := strings.NewReplacer(ids...)
	out := map[string][]string{}
	for name, lines := range rows {
		for _, line := range lines {
			line = riders.ReplaceAllStringFunc(hide.Replace(line), func(list string) string {
				ids := portID.FindAllString(list, -1)
				slices.Sort(ids)
				return "subport_ids=" + strings.Join(ids, " ")
			})
			out[name] = append(out[name], line)
		}
		slices.Sort(out[name])
	}
	return out
}

var cookie = regexp.MustCompile(`cookie=0x[0-9a-f]+, |reset_counts `)

// unsigned are the flows of all hosts without cookies, and a flag of the Python agent's: what another agent made and is right
// keeps both.
func (r *routed) unsigned() []map[string][]string {
	all := r.allFlows()
	for _, flows := range all {
		for _, lines := range flows {
			for i := range lines {
				lines[i] = cookie.ReplaceAllString(lines[i], "")
			}
			slices.Sort(lines)
		}
	}
	return all
}

func (r *streamRow) String() string {
	return fmt.Sprintf("%s\t%s\t%.0f\t%d\t%d\t%d ms\t%d\t%d\t%s\t%s\t%s", r.name, r.agent, r.took.Seconds(), r.sent, r.lost,
		int64(r.gap)*pace.Milliseconds(), r.changed, r.rows, seconds(r.heal), seconds(r.bare), r.note)
}

func (r *routed) printStreams() {
	printTable("what happened\tagent before\tseconds\tsent\tlost\tlongest gap\tflows changed\trows changed\tback after\tovs-ofctl\t", r.streams)
}
