// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestReadHosts(t *testing.T) {
	inventory := "lone\n[compute]\nhv[08:10].example ansible_user=root  # three\nhv1\tx=y\n[compute:vars]\na=b\n[network]\nnet1\nhv1\n[all:children]\ncompute\n"
	for _, c := range []struct {
		name, text, group string
		want              []string
	}{
		{"lines", "a\n\n# no\nroot@b # why\na\n", "", []string{"a", "root@b"}},
		{"inventory", inventory, "", []string{"lone", "hv08.example", "hv09.example", "hv10.example", "hv1", "net1"}},
		{"group", inventory, "compute", []string{"hv08.example", "hv09.example", "hv10.example", "hv1"}},
		{"agents", `[{"ID":"1","Binary":"neutron-openvswitch-agent","Host":"hv1"},{"Binary":"neutron-dhcp-agent","Host":"net1"}]`, "", []string{"hv1"}},
		{"agents as the client prints them", "[\n  {\n    \"Host\": \"hv1\",\n    \"Binary\": \"neutron-openvswitch-agent\"\n  }\n]\n", "", []string{"hv1"}},
	} {
		got, err := ReadHosts([]byte(c.text), c.group)
		if diff := cmp.Diff(c.want, got); diff != "" || err != nil {
			t.Errorf("%s: %v\n%s", c.name, err, diff)
		}
	}
	for name, c := range map[string][2]string{
		"nothing": {"", ""}, "no agents": {"[]", ""}, "an option of ssh": {"-oProxyCommand=x", ""}, "a command": {"a;reboot", ""}, "no such group": {inventory, "storage"},
		"too many": {"hv[1:99999999]", ""}, "backwards": {"hv[9:1]", ""}, "no JSON": {"[{", ""},
	} {
		if got, err := ReadHosts([]byte(c[0]), c[1]); err == nil {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestConnect(t *testing.T) {
	run, err := Connect([]string{"env", "HOST={host}", "sh", "-c"})
	if err != nil {
		t.Fatal(err)
	}
	a := run(t.Context(), "hv1", "echo I am $HOST; echo why >&2; exit 3")
	if string(a.Out) != "I am hv1\n" || a.Errs != "why" || a.Status != 3 || a.Host != "hv1" {
		t.Errorf("%+v", a)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if a := run(ctx, "hv1", "sleep 10"); a.Status != Unreachable || a.Errs != "no answer in time" {
		t.Errorf("%+v", a)
	}
	none, err := Connect([]string{"/no/such/program", "{host}"})
	if a := none(t.Context(), "hv1", "true"); err != nil || a.Status != Unreachable {
		t.Errorf("%v %+v", err, a)
	}
	for _, words := range [][]string{nil, {"ssh", "hv1"}} {
		if _, err := Connect(words); err == nil {
			t.Errorf("%v is taken", words)
		}
	}
}

// region is hosts that say what a test wants: by host and command, the status.
type region struct {
	mu       sync.Mutex
	statuses map[string]int
	ran      []string
}

func (r *region) run(_ context.Context, host, command string) Answer {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ran = append(r.ran, host+" "+command)
	status := r.statuses[host+" "+command]
	return Answer{Host: host, Status: status, Errs: map[bool]string{true: "it says why"}[status != 0]}
}

func (r *region) count(command string) (n int) {
	for _, c := range r.ran {
		if strings.HasSuffix(c, " "+command) {
			n++
		}
	}
	return n
}

func switching(t *testing.T, hosts int, statuses map[string]int) (*Fleet, *region, *Record, *Switch) {
	t.Helper()
	reg := &region{statuses: statuses}
	f := &Fleet{Run: reg.run, Parallel: 3, Timeout: time.Minute}
	for i := range hosts {
		f.Hosts = append(f.Hosts, fmt.Sprint("h", i+1))
	}
	r, err := Open(filepath.Join(t.TempDir(), "record"))
	if err != nil {
		t.Fatal(err)
	}
	return f, reg, r, &Switch{
		Check: "check", Plan: "plan", To: "to", Verify: "verify", Back: "back", Canary: 1, Batch: 3, StopOn: 1, Pause: time.Minute,
		Say: func(string, string) {}, Now: time.Now,
	}
}

func states(r *Record, hosts []string) string {
	var out []string
	for _, h := range hosts {
		out = append(out, h+" "+string(r.Hosts[h].State))
	}
	return strings.Join(out, ", ")
}

func TestSwitch(t *testing.T) {
	for _, c := range []struct {
		name     string
		statuses map[string]int
		after    error // of the first batch
		stopOn   int
		want     string
		failures int
		back     int
	}{
		{"all well", map[string]int{"h2 plan": 1}, nil, 1, "h1 switched, h2 switched, h3 switched, h4 switched, h5 switched", 0, 0},
		{"the canary is not well", map[string]int{"h1 verify": 1}, nil, 1, "h1 taken back, h2 , h3 , h4 , h5 ", 1, 1},
		{"the canary cannot be switched", map[string]int{"h1 to": 100}, nil, 1, "h1 taken back, h2 , h3 , h4 , h5 ", 1, 1},
		{"it is not taken back", map[string]int{"h1 verify": 1, "h1 back": 255}, nil, 1, "h1 needs a look, h2 , h3 , h4 , h5 ", 1, 1},
		{"one of a batch", map[string]int{"h3 verify": 3}, nil, 1, "h1 switched, h2 switched, h3 taken back, h4 switched, h5 ", 1, 1},
		{"one of a batch, and on", map[string]int{"h3 verify": 3}, nil, 2, "h1 switched, h2 switched, h3 taken back, h4 switched, h5 switched", 1, 1},
		{"refused, and not touched", map[string]int{"h2 check": 1, "h3 plan": 4, "h4 check": 255}, nil, 9, "h1 switched, h2 refused, h3 refused, h4 refused, h5 switched", 3, 0},
		{"traffic is not well", nil, errors.New("lost"), 1, "h1 taken back, h2 , h3 , h4 , h5 ", 1, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, reg, r, s := switching(t, 5, c.statuses)
				s.StopOn = c.stopOn
				if c.after != nil {
					s.After = func(context.Context, []string) error { return c.after }
				}
				err := f.Switch(t.Context(), r, s)
				var stopped ErrStopped
				if errors.As(err, &stopped); stopped.Failures != c.failures || (err == nil) != (c.failures == 0) {
					t.Errorf("%v, want %d failures", err, c.failures)
				}
				if got := states(r, f.Hosts); got != c.want {
					t.Errorf("%s\nwant\n%s", got, c.want)
				}
				if reg.count("back") != c.back {
					t.Errorf("%d taken back, want %d: %v", reg.count("back"), c.back, reg.ran)
				}
				if again, err := Open(r.path); err != nil || states(again, f.Hosts) != c.want {
					t.Errorf("the file says %v %s", err, states(again, f.Hosts))
				}
			})
		})
	}
}

// Without a plan hosts are switched after the check alone, as on the way back.
func TestSwitchWithoutPlan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, reg, r, s := switching(t, 2, map[string]int{"h2 check": 1})
		s.Plan = ""
		if err := f.Switch(t.Context(), r, s); err == nil {
			t.Error("a host that refuses is no failure")
		}
		if got := states(r, f.Hosts); got != "h1 switched, h2 refused" || reg.count("") != 0 {
			t.Errorf("%s: %v", got, reg.ran)
		}
	})
}

// The reason of a failure is what the document says, or the last line; a host that is not reached has no configuration that is refused.
func TestWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _, r, s := switching(t, 3, nil)
		s.StopOn, s.Plan = 9, ""
		s.Explain = func(a Answer) string {
			return map[string]string{"h1": "the document says why", "h3": "nobody asked"}[a.Host]
		}
		f.Run = func(_ context.Context, host, _ string) Answer {
			status := 1
			if host == "h3" {
				status = Unreachable
			}
			return Answer{Host: host, Status: status, Out: []byte("{\n  first line\nlast line\n")}
		}
		if err := f.Switch(t.Context(), r, s); err == nil {
			t.Error("no failure")
		}
		for host, want := range map[string]string{
			"h1": "its configuration is refused: the document says why", "h2": "its configuration is refused: last line", "h3": "not reached: last line",
		} {
			if got := r.Hosts[host].Why; got != want {
				t.Errorf("%s: %q, want %q", host, got, want)
			}
		}
	})
}

// A switch that was stopped goes on, with what is mended, and touches no host that is switched.
func TestSwitchGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, reg, r, s := switching(t, 5, map[string]int{"h3 verify": 1})
		if err := f.Switch(t.Context(), r, s); err == nil {
			t.Fatal("no failure")
		}
		reg.statuses, reg.ran = nil, nil
		if err := f.Switch(t.Context(), r, s); err != nil {
			t.Fatal(err)
		}
		slices.Sort(reg.ran)
		want := []string{"h3 check", "h3 plan", "h3 to", "h3 verify", "h5 check", "h5 plan", "h5 to", "h5 verify"}
		if diff := cmp.Diff(want, reg.ran); diff != "" {
			t.Error(diff)
		}
		began := time.Now()
		if err := f.Switch(t.Context(), r, s); err != nil || time.Since(began) != 0 {
			t.Errorf("nothing to do: %v after %v", err, time.Since(began))
		}
	})
}

// A host that is slow to be well is asked again.
func TestSwitchIsPatient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, reg, r, s := switching(t, 1, map[string]int{"h1 verify": 1})
		run, asked := f.Run, 0
		f.Run = func(ctx context.Context, host, command string) Answer {
			if command == "verify" {
				if asked++; asked == 3 {
					reg.statuses = nil
				}
			}
			return run(ctx, host, command)
		}
		s.Tries = 5
		if err := f.Switch(t.Context(), r, s); err != nil || asked != 3 || reg.count("back") != 0 {
			t.Errorf("%v, asked %d times, %v", err, asked, reg.ran)
		}
	})
}

// A host that has begun when somebody stops the command is not left with an agent that does not work.
func TestSwitchIsStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, reg, r, s := switching(t, 4, map[string]int{"h1 to": 1})
		ctx, cancel := context.WithCancel(t.Context())
		run := f.Run
		f.Run = func(ctx context.Context, host, command string) Answer {
			if command == "to" {
				cancel()
			}
			return run(ctx, host, command)
		}
		if err := f.Switch(ctx, r, s); err == nil {
			t.Error("it says that all is done")
		}
		if got := states(r, f.Hosts); reg.count("back") != 1 || got != "h1 taken back, h2 , h3 , h4 " {
			t.Errorf("%s: %v", got, reg.ran)
		}
	})
}

func TestBatches(t *testing.T) {
	hosts := []string{"a", "b", "c", "d", "e"}
	for _, c := range []struct {
		done          []string
		canary, batch int
		want          [][]string
	}{
		{nil, 1, 3, [][]string{{"a"}, {"b", "c", "d"}, {"e"}}},
		{nil, 0, 2, [][]string{{"a", "b"}, {"c", "d"}, {"e"}}},
		{[]string{"a"}, 2, 9, [][]string{{"b"}, {"c", "d", "e"}}},
		{[]string{"a", "b", "c", "d", "e"}, 2, 9, nil},
		{nil, 9, 0, [][]string{{"a", "b", "c", "d", "e"}}},
	} {
		r := &Record{Hosts: map[string]Host{}}
		for _, h := range c.done {
			r.Hosts[h] = Host{State: Switched}
		}
		if diff := cmp.Diff(c.want, r.Batches(hosts, c.canary, c.batch)); diff != "" {
			t.Errorf("%+v\n%s", c, diff)
		}
	}
}
