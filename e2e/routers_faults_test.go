// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

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
	heal       time.Duration
	took       time.Duration
	detail     []string
}

var (
	transmitted = regexp.MustCompile(`(\d+) packets transmitted`)
	answer      = regexp.MustCompile(`icmp_seq=(\d+) .*time=`)
)

// count says how many packets were sent, how many of them had no answer, and how many of those in a row.
func (s *flowing) count() (sent, lost, gap int) {
	text := s.out.String()
	if m := transmitted.FindStringSubmatch(text); m != nil {
		sent, _ = strconv.Atoi(m[1])
	}
	answered := map[int]bool{}
	for _, m := range answer.FindAllStringSubmatch(text, -1) {
		n, _ := strconv.Atoi(m[1])
		answered[n] = true
	}
	run := 0
	for n := 1; n <= sent; n++ {
		if answered[n] {
			lost, gap, run = lost+run, max(gap, run), 0
		} else {
			run++
		}
	}
	if run > onTheWay {
		lost, gap = lost+run, max(gap, run)
	}
	return sent, lost, gap
}

// under sends packets every way through the router while something happens, and judges what it cost.
func (r *routed) under(t *testing.T, most limit, happens func(row *streamRow)) {
	t.Helper()
	ways := []struct {
		name string
		from *vm
		to   string
	}{
		{"between networks", r.a, r.b.v4}, {"between networks, IPv6", r.a, r.b.v6},
		{"to the outside", r.a, r.beyond.v4}, {"to the outside, IPv6", r.a, r.beyond.v6},
		{"to a floating address", r.beyond, r.floats},
	}
	var streams []*flowing
	for _, w := range ways {
		r.marked(t, w.from, w.to, r.token(), 1)
		s := &flowing{name: w.name, cmd: w.from.Command(r.ctx, "ping", "-n", "-i", fmt.Sprint(pace.Seconds()), w.to)}
		s.cmd.Stdout, s.cmd.Stderr = &s.out, &s.out
		if err := s.cmd.Start(); err != nil {
			t.Fatal(err)
		}
		streams = append(streams, s)
	}
	row := streamRow{name: t.Name()[strings.Index(t.Name(), "/")+1:], agent: r.agent}
	before, began := r.allFlows(), time.Now()
	happens(&row)
	r.eventually(2*time.Second, func() bool { return false })
	row.took = time.Since(began)
	row.changed = r.youngerThan(t, row.took) + vanished(before, r.allFlows())
	for _, s := range streams {
		_ = s.cmd.Process.Signal(unix.SIGINT)
		_ = s.cmd.Wait() // it says so when packets were lost, which is counted
		sent, lost, gap := s.count()
		row.sent, row.lost, row.gap = row.sent+sent, row.lost+lost, max(row.gap, gap)
		row.detail = append(row.detail, fmt.Sprintf("%s: %d of %d lost, %d in a row", s.name, lost, sent, gap))
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
	t.Log(row, strings.Join(row.detail, "; "))
}

// restart ends all agents, at once or with a chance to say goodbye, and starts them again.
func (r *routed) restart(t *testing.T, crash bool) {
	most := untouched
	if r.agent == lab.Python {
		most = figures
	}
	r.under(t, most, func(*streamRow) { r.launch(t, r.agent, crash) })
}

// launch starts agents in the place of those that run, and waits until they know everything.
func (r *routed) launch(t *testing.T, kind lab.AgentKind, crash bool) {
	t.Helper()
	r.eachHost(t, func(h *lab.Host) error {
		if crash {
			if err := h.KillAgent(); err != nil {
				return err
			}
		} else if err := h.StopAgent(r.ctx); err != nil {
			return err
		}
		return h.StartAgent(r.ctx, kind, routing)
	})
	if !r.eventually(settled, func() bool { return r.calls.calm(rest) }) {
		t.Errorf("the agents are not in sync after %v", settled)
	}
	r.agent = kind
}

// switchDies kills a switch and starts it again, and measures how long it takes until all flows are back.
func (r *routed) switchDies(t *testing.T, host int) {
	r.under(t, healed, func(row *streamRow) {
		h := r.l.Host(host)
		before := r.flows(h)
		if err := h.Switch().KillVswitchd(r.ctx); err != nil {
			t.Fatal(err)
		}
		if err := h.Switch().StartVswitchd(r.ctx); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		var after map[string][]string
		if !r.eventually(time.Minute, func() bool { after = r.flows(h); return same(before, after) }) {
			t.Errorf("flows are not back:\n%s", difference(before, after))
		}
		row.heal = time.Since(began)
		for _, way := range []struct {
			from *vm
			to   string
		}{{r.a, r.b.v4}, {r.a, r.b.v6}, {r.a, r.beyond.v4}, {r.a, r.beyond.v6}, {r.beyond, r.floats}} {
			r.marked(t, way.from, way.to, r.token(), 20)
		}
	})
}

// handOver gives all hosts to the other agent and back. Afterwards the flows are those from before.
func (r *routed) handOver(t *testing.T) {
	ours, other := r.agent, lab.Python
	if ours == lab.Python {
		other = lab.Patchbay
	}
	before := r.unsigned()
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
}

var cookie = regexp.MustCompile(`cookie=0x[0-9a-f]+, `)

// unsigned are the flows of all hosts without cookies: what another agent made and is right keeps that agent's.
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

func (r streamRow) String() string {
	return fmt.Sprintf("%s\t%s\t%.0f\t%d\t%d\t%d ms\t%d\t%s", r.name, r.agent, r.took.Seconds(), r.sent, r.lost,
		int64(r.gap)*pace.Milliseconds(), r.changed, seconds(r.heal))
}

func (r *routed) printStreams() {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "what happened\tagent before\tseconds\tsent\tlost\tlongest gap\tflows changed\tflows back after")
	for _, row := range r.streams {
		fmt.Fprintln(w, row)
	}
	_ = w.Flush()
}
