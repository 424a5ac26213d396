// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/gate"
	"github.com/patchbay-sdn/patchbay/internal/pace"
	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// forgetful is a server that can lose its database. Questions fail then; what has to be written is tried again inside, with
// the pauses that Neutron's retries grow to, as if each were of full length.
type forgetful struct {
	*region

	mu      sync.Mutex
	away    bool
	slow    time.Duration     // of a report, without any trouble
	status  map[string]string // as the database has it
	pulls   int
	reports int
	open    int // reports that are not answered
}

const serverPause, callTime = 10 * time.Second, time.Minute

func (f *forgetful) lost() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.away
}

// counts are the reports and the questions so far, and the reports that the server still works on.
func (f *forgetful) counts() (reports, pulls, open int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.reports, f.pulls, f.open
}

func (f *forgetful) lose(away bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.away = away
}

func (f *forgetful) Call(ctx context.Context, t messaging.Target, method string, args, result any) error {
	all, _ := args.(map[string]any)
	switch method {
	case "bulk_pull":
		f.mu.Lock()
		f.pulls++
		f.mu.Unlock()
		if f.lost() {
			return &messaging.RemoteError{Class: "DBConnectionError", Message: "Can't connect to MySQL server"}
		}
	case "update_device_list":
		f.mu.Lock()
		f.reports++
		f.open++
		f.mu.Unlock()
		finished := make(chan struct{})
		go func() { // the server goes on, whether somebody waits for the answer or not
			defer close(finished)
			time.Sleep(f.slow)
			for f.lost() {
				time.Sleep(serverPause)
			}
			up, _ := all["devices_up"].([]string)
			down, _ := all["devices_down"].([]string)
			f.mu.Lock()
			defer f.mu.Unlock()
			f.open--
			for _, id := range up {
				f.status[id] = "ACTIVE"
			}
			for _, id := range down {
				f.status[id] = "DOWN"
			}
		}()
		select {
		case <-finished:
		case <-time.After(callTime):
			return messaging.ErrTimeout
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return f.region.Call(ctx, t, method, args, result)
}

func (f *forgetful) is(id string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.status[id]
}

// begin runs an agent with two ports that are up.
func (f *forgetful) begin(t *testing.T) (*Agent, *fakeOVS, func()) {
	f.status = map[string]string{}
	a, ovs, stop := tunnelled(t, func(below *region) Broker { f.region = below; return f })
	wait(time.Second)
	ovs.plug("1", 0, 11)
	ovs.plug("2", 0, 12)
	wait(time.Minute)
	if f.is("1") != "ACTIVE" || f.is("2") != "ACTIVE" {
		t.Fatalf("ports are %v", f.status)
	}
	f.mu.Lock()
	f.pulls, f.reports = 0, 0
	f.mu.Unlock()
	return a, ovs, stop
}

// What changed while the database was away is told within five seconds of its return, although the server is in a pause of
// its own with the report, and the server is not asked much meanwhile.
func TestTheDatabaseComesBack(t *testing.T) {
	for _, outage := range []time.Duration{20 * time.Second, 5 * time.Minute} {
		for name, plug := range map[string]bool{"port plugged in and another out": true, "port plugged out": false} {
			t.Run(name+" in "+outage.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := &forgetful{}
					a, ovs, stop := f.begin(t)
					defer stop()
					f.lose(true)
					wait(time.Second)
					ovs.unplug("2")
					if plug {
						wait(100 * time.Millisecond)
						ovs.plug("4", 0, 14)
					}
					wait(outage)
					reports, pulls, _ := f.counts()
					t.Logf("%d questions and %d reports while it was away", pulls, reports)
					if most := int(2*outage/pace.LongestCall) + 10; pulls > most {
						t.Errorf("%d questions in %s", pulls, outage)
					}
					if reports != 1 {
						t.Errorf("%d reports while nothing could be written", reports)
					}
					f.lose(false)
					wait(5 * time.Second)
					if f.is("2") != "DOWN" || plug && f.is("4") != "ACTIVE" {
						t.Errorf("five seconds after the database is back: %v", f.status)
					}
					wait(2 * time.Minute)
					if !a.open(gate.Complete) {
						t.Errorf("not in sync: %v", a.view().AgentStatus().Reasons)
					}
				})
			})
		}
	}
}

// A report that was given up may be carried out after a later one that says the opposite. The server is then told again.
func TestAReportThatComesLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &forgetful{}
		_, ovs, stop := f.begin(t)
		defer stop()
		// The report begins its pause of ten seconds just before the database is back, and the agent has learnt before that it was
		// away.
		f.lose(true)
		ovs.unplug("2")
		wait(100 * time.Millisecond)
		ovs.plug("4", 0, 14) // makes the agent ask
		wait(4 * time.Second)
		f.lose(false)
		wait(4500 * time.Millisecond)
		ovs.plug("2", 0, 12)
		wait(time.Second)
		if _, _, open := f.counts(); f.is("2") != "ACTIVE" || open != 1 {
			t.Fatalf("the port is %s with %d reports open: this test shows nothing", f.is("2"), open)
		}
		wait(2 * time.Second) // the late report has put it down by now
		if _, _, open := f.counts(); f.is("2") != "ACTIVE" || open != 0 {
			t.Errorf("the port is plugged in and %s, %d reports open", f.is("2"), open)
		}
	})
}

// A server that only takes its time is not told twice, and is hardly asked.
func TestASlowReportIsNotRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &forgetful{}
		_, ovs, stop := f.begin(t)
		defer stop()
		f.slow = 45 * time.Second
		ovs.unplug("2")
		wait(time.Minute)
		if reports, pulls, _ := f.counts(); reports != 1 || pulls > 2 || f.is("2") != "DOWN" {
			t.Errorf("%d reports, %d questions, the port is %s", reports, pulls, f.is("2"))
		}
	})
}
