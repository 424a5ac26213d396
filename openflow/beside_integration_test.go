// SPDX-License-Identifier: Apache-2.0

//go:build integration

package openflow

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/patchbay-sdn/patchbay/lab/vswitch"
)

const (
	besideFlows = 50_000
	besideSmall = 40
	besideRuns  = 5
)

// beside is one row of the comparison: the same work by ovs-ofctl and by us.
type beside struct {
	name   string
	flows  int
	least  float64 // how many times as fast we have to be
	before func()  // not timed
	theirs func()
	ours   func()

	theirTimes, ourTimes []time.Duration
	ourCPU               []time.Duration
}

// TestBesideOfctl measures, side by side and in turns, what an agent does all
// day. It prints a table; with PATCHBAY_BENCH=1 it insists on the ratios, which
// needs a quiet machine.
func TestBesideOfctl(t *testing.T) {
	sw := newSwitch(t)
	c := dial(t, sw, Config{})
	ctx := t.Context()

	entries := make([]Entry, besideFlows)
	var text bytes.Buffer
	want := make(map[Key]Entry, besideFlows)
	for i := range entries {
		f := Flow{
			Table: 20, Priority: 2, Cookie: 0x1234567890abcdef,
			Match:   Match{VLAN(uint16(1 + i%4000)), HW(EthDst, MAC{0xfa, 0x16, 0x3e, byte(i >> 16), byte(i >> 8), byte(i)})},
			Actions: []Action{PopVLAN{}, Set(TunID, Uint(uint64(i))), Output(1 + i%100)},
		}
		fmt.Fprintln(&text, f.String())
		e, err := f.Entry()
		if err != nil {
			t.Fatal(err)
		}
		entries[i], want[e.Key()] = e, e
	}
	all := filepath.Join(t.TempDir(), "all")
	writeFile(t, all, text.Bytes())

	clear := func() {
		if err := c.Send(ctx, []Message{deleteAll(t)}); err != nil {
			t.Fatal(err)
		}
		// The switch frees the flows later and in the background, which is not
		// what we measure.
		time.Sleep(500 * time.Millisecond)
	}
	install := func(n int) func() {
		return func() {
			msgs := make([]Message, n)
			for i := range msgs {
				msgs[i] = AddFlow(entries[i])
			}
			if err := c.Commit(ctx, msgs); err != nil {
				t.Fatal(err)
			}
		}
	}
	// Both begin with the wanted flows as they keep them: text there, entries
	// here.
	ofctlInstall := func(n int) func() {
		input := []byte(strings.Join(strings.SplitAfter(text.String(), "\n")[:n], ""))
		return func() { runOfctl(t, sw, input, "--bundle", "add-flows", bridge, "-") }
	}
	rows := []*beside{
		{
			name: "install, one bundle", flows: besideFlows, least: 2, before: clear,
			theirs: ofctlInstall(besideFlows), ours: install(besideFlows),
		},
		{
			name: "dump and decode", flows: besideFlows, least: 4,
			theirs: func() {
				// The least that a program does with the text: match and
				// actions of every flow.
				have := make(map[string]string, besideFlows)
				for line := range strings.SplitSeq(string(runOfctl(t, sw, nil, "--no-stats", "dump-flows", bridge)), "\n") {
					if match, actions, ok := strings.Cut(line, " actions="); ok {
						have[match] = actions
					}
				}
				if len(have) != besideFlows {
					t.Fatalf("ovs-ofctl dumped %d flows", len(have))
				}
			},
			ours: func() {
				n := 0
				var f Flow
				err := c.DumpFlows(ctx, Filter{Table: AllTables}, func(s *FlowStat) error {
					err := s.Decode(&f)
					if err != nil || len(f.Match) != 2 || len(f.Actions) != 3 {
						return fmt.Errorf("%v: %w", s.Entry(), err)
					}
					n++
					return nil
				})
				if err != nil || n != besideFlows {
					t.Fatalf("%d flows: %v", n, err)
				}
			},
		},
		{
			name: "compare, nothing changed", flows: besideFlows, least: 5,
			theirs: func() { runOfctl(t, sw, nil, "--bundle", "replace-flows", bridge, all) },
			ours: func() {
				n := 0
				var buf []byte
				err := c.DumpFlows(ctx, Filter{Table: AllTables}, func(s *FlowStat) error {
					var same bool
					if _, _, same, buf = s.Lookup(want, buf); same {
						n++
					}
					return nil
				})
				if err != nil || n != besideFlows {
					t.Fatalf("%d flows the same: %v", n, err)
				}
			},
		},
		{
			name: "40-flow bundle", flows: besideSmall, least: 15, before: clear,
			theirs: ofctlInstall(besideSmall), ours: install(besideSmall),
		},
	}
	for _, r := range rows {
		r.measure(t, c)
	}
	t.Logf("median of %d runs in turns, Open vSwitch %s, %v\n%s", besideRuns, swVersion(t, c), c.Version(), table(rows))
	check(t, rows)
}

func swVersion(t *testing.T, c *Conn) string {
	t.Helper()
	d, err := c.Desc(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return d.Software
}

func runOfctl(t *testing.T, sw *vswitch.Switch, stdin []byte, args ...string) []byte {
	t.Helper()
	cmd := sw.Command(t.Context(), "ovs-ofctl", append([]string{"-O", "OpenFlow14"}, args...)...)
	cmd.Stdin = bytes.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("ovs-ofctl %v: %v: %s", args, err, out)
	}
	return out
}

func (r *beside) measure(t *testing.T, c *Conn) {
	t.Helper()
	timed := func(f func()) time.Duration {
		if r.before != nil {
			r.before()
		}
		began := time.Now()
		f()
		took := time.Since(began)
		if n := countFlows(t, c); n != r.flows {
			t.Fatalf("%s: %d flows afterwards, not %d", r.name, n, r.flows)
		}
		return took
	}
	for i := range besideRuns {
		steps := []func(){
			func() { r.theirTimes = append(r.theirTimes, timed(r.theirs)) },
			func() {
				cpu := time.Duration(0)
				r.ourTimes = append(r.ourTimes, timed(func() {
					before := ownCPU(t)
					r.ours()
					cpu = ownCPU(t) - before
				}))
				r.ourCPU = append(r.ourCPU, cpu)
			},
		}
		if i%2 == 1 {
			slices.Reverse(steps)
		}
		for _, s := range steps {
			s()
		}
	}
}

func ownCPU(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func median(d []time.Duration) time.Duration {
	s := slices.Clone(d)
	slices.Sort(s)
	return s[len(s)/2]
}

func (r *beside) ratio() float64 { return float64(median(r.theirTimes)) / float64(median(r.ourTimes)) }

func table(rows []*beside) string {
	var b bytes.Buffer
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "work\tflows\tovs-ofctl\topenflow\ttimes as fast\twanted\tour CPU a flow")
	for _, r := range rows {
		fmt.Fprintf(w, "%s\t%d\t%.1f ms\t%.1f ms\t%.1f\t%.0f\t%.2f µs\n", r.name, r.flows,
			ms(median(r.theirTimes)), ms(median(r.ourTimes)), r.ratio(), r.least,
			float64(median(r.ourCPU).Nanoseconds())/1000/float64(r.flows))
	}
	_ = w.Flush()
	return b.String()
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func check(t *testing.T, rows []*beside) {
	t.Helper()
	if os.Getenv("PATCHBAY_BENCH") != "1" {
		return
	}
	for _, r := range rows {
		if r.ratio() < r.least {
			t.Errorf("%s: %.1f times as fast, not %.0f", r.name, r.ratio(), r.least)
		}
	}
	if cpu := median(rows[0].ourCPU) / besideFlows; cpu >= 2*time.Microsecond {
		t.Errorf("%v of CPU for each flow installed", cpu)
	}
}
