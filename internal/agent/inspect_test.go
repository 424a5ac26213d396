// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/core"
	"github.com/patchbay-sdn/patchbay/internal/dataplane"
	"github.com/patchbay-sdn/patchbay/internal/pipeline"
	"github.com/patchbay-sdn/patchbay/internal/world"
	"github.com/patchbay-sdn/patchbay/openflow"
	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// running has an agent's loop go round for the rest of the test.
func running(t *testing.T, a *Agent) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
}

func has(list []string, part string) bool {
	return slices.ContainsFunc(list, func(s string) bool { return strings.Contains(s, part) })
}

func TestStatusSaysWhatIsMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cloud{refuses: "g1"}
		a, sw, batch := filtering(t, c, nil, 3)
		running(t, a)
		wait(time.Millisecond)
		s, err := a.Status(t.Context())
		if err != nil || s.InSync || !has(s.Reasons, "the switch's database cannot be reached") || s.Switch.Up || !s.Server.Up {
			t.Errorf("before the switch was seen: %+v, %v", s, err)
		}
		sw.changes <- batch
		wait(time.Second)
		s, err = a.Status(t.Context())
		if err != nil || s.InSync || !s.Switch.Up || s.Switch.Detail != "Open vSwitch 3.1.0" {
			t.Errorf("status %+v, %v", s, err)
		}
		for _, reason := range []string{"bridge br-int cannot be programmed", "bulk_pull of 1 group", "flows not as wanted"} {
			if !has(s.Reasons, reason) {
				t.Errorf("no word about %q in %q", reason, s.Reasons)
			}
		}
		if s.Totals.Steps == 0 || s.PID != os.Getpid() {
			t.Errorf("%d turns of process %d", s.Totals.Steps, s.PID)
		}
		if s.Ports["wired"] != 2 || s.Ports["waiting"] != 1 || s.Pending.Flows == 0 || s.Pending.Items != 1 || len(s.Bridges) != 1 {
			t.Errorf("status %+v", s)
		}
		if len(s.Errors) == 0 || !strings.Contains(s.Errors[len(s.Errors)-1].Text, "g1") {
			t.Errorf("the last warning is not kept: %+v", s.Errors)
		}
		ports, err := a.Ports(t.Context())
		if err != nil || len(ports) != 3 || ports[1].State != "waiting" || !strings.Contains(ports[1].Reason, "g1") {
			t.Errorf("ports %+v, %v", ports, err)
		}
		p := ports[0]
		if p.State != "wired" || p.VLAN != 1 || p.Network != "n" || p.Segment != "local" || !p.Filtered || p.Applied || p.Flows == 0 ||
			p.Timeline.Answered.IsZero() || p.Interface != "p0" || p.Addresses[0] != "10.0.5.0" || p.Status != "DOWN" || p.Reported != "" {
			t.Errorf("port %+v", p)
		}
		groups, err := a.Groups(t.Context())
		if err != nil || len(groups) != 3 || groups[1].Known || !groups[0].Known || groups[0].Rules[0].Text != "allow everything from members of group m0 (IPv4)" ||
			groups[0].Rules[0].Members != 1 || !slices.Equal(groups[0].Ports, []string{"p0"}) {
			t.Errorf("groups %+v, %v", groups, err)
		}
		networks, err := a.Networks(t.Context())
		if err != nil || len(networks) != 1 || networks[0].ID != "n" || len(networks[0].Ports) != 2 {
			t.Errorf("networks %+v, %v", networks, err)
		}
	})
}

// withLoop asks an agent whose loop does nothing but answer.
func withLoop[T any](t *testing.T, a *Agent, ask func(context.Context) (T, error)) (T, error) {
	t.Helper()
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			case answer := <-a.asked:
				answer(a.view())
			}
		}
	})
	defer wg.Wait()
	defer close(stop)
	return ask(t.Context())
}

// A loop that is busy or over lets nobody wait for ever, and a mistake in an answer does not end it.
func TestQuestionsToALoopThatDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _, _ := filtering(t, &cloud{}, nil, 0)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := a.Status(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "loop does not answer") {
			t.Errorf("a loop that does not go round: %v", err)
		}
		a.log.Warn("something is wrong", "port", "p7")
		events, err := a.Events(t.Context())
		if err != nil || len(events) != 1 || events[0].Subject != "p7" || events[0].Level != "warning" {
			t.Errorf("the recorder of a stuck agent: %+v, %v", events, err)
		}
		ctx, cancel = context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- a.Run(ctx) }()
		if err := a.ask(t.Context(), func(core.View) { panic("mistake") }); err == nil || !strings.Contains(err.Error(), "mistake") {
			t.Errorf("a mistake in an answer: %v", err)
		}
		if err := a.Alive(t.Context()); err != nil {
			t.Error(err)
		}
		cancel()
		<-done
		if _, err := a.Ports(t.Context()); !errors.Is(err, errEnded) {
			t.Errorf("after the end: %v", err)
		}
	})
}

// With 100,000 flows no step of a question holds the loop for long.
func BenchmarkFlowsStep(b *testing.B) {
	const flows = 100_000
	a, err := New(Config{World: world.Config{IntegrationBridge: "br-int"}, Log: slog.New(slog.DiscardHandler)}, nil,
		func(func(messaging.Event)) (Broker, error) { return nil, nil })
	if err != nil {
		b.Fatal(err)
	}
	d := a.view().Dataplane
	var have []openflow.Entry
	for i := range flows {
		f, err := openflow.ParseFlow(fmt.Sprintf("table=82,priority=70,tcp,reg5=0x%x,nw_src=10.%d.%d.0/24,tp_dst=80,actions=output:%d", i%200+1, i/200%256, i/51200, i%200+1))
		if err != nil {
			b.Fatal(err)
		}
		e, err := f.Entry()
		if err != nil {
			b.Fatal(err)
		}
		have = append(have, e)
		d.Set(world.InterfaceObject(fmt.Sprint(i)), pipeline.Want{Flows: []pipeline.Flow{{Bridge: "br-int", Entry: e, Reason: "test"}}})
	}
	conn := &hung{}
	d.Linked("br-int", conn, nil, time.Now())
	d.Read(dataplane.Reading{Bridge: "br-int", Conn: conn, Flows: have}, time.Now())
	var held time.Duration
	steps := 0
	go func() {
		for answer := range a.asked {
			began := time.Now()
			answer(a.view())
			held += time.Since(began)
			steps++
		}
	}()
	for b.Loop() {
		all, err := a.flowsOf(b.Context(), "br-int")
		if err != nil || len(all) != flows {
			b.Fatal(len(all), err)
		}
	}
	close(a.asked)
	b.ReportMetric(float64(held.Microseconds())/float64(steps), "µs/step")
}

var _ Broker = (*messaging.Client)(nil)

// Fifty askers at a time hold nobody up: the loop goes on answering in moments.
func TestManyAskers(t *testing.T) {
	c := &cloud{}
	a, sw, batch := filtering(t, c, nil, 200)
	running(t, a)
	sw.changes <- batch
	for range 100 {
		if s, err := a.Status(t.Context()); err != nil || s.Ports["wired"] == 200 {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	var wg sync.WaitGroup
	var answers atomic.Int64
	for i := range 50 {
		wg.Go(func() {
			for ctx.Err() == nil {
				switch i % 5 {
				case 0:
					_, _ = a.Flows(ctx, "")
				case 1:
					_, _ = a.Ports(ctx)
				case 2:
					_, _ = a.Groups(ctx)
				case 3:
					_, _ = a.Events(ctx)
				default:
					_, _ = a.Status(ctx)
				}
				answers.Add(1)
			}
		})
	}
	// What the loop would do with an event that comes now.
	var waits []time.Duration
	for ctx.Err() == nil {
		began := time.Now()
		if a.Alive(t.Context()) == nil {
			waits = append(waits, time.Since(began))
		}
		time.Sleep(time.Millisecond)
	}
	wg.Wait()
	slices.Sort(waits)
	median, worst := waits[len(waits)/2], waits[len(waits)-1]
	t.Logf("%d answers to 50 askers in a second; a turn of the loop waited %s in the median, %s at most", answers.Load(), median, worst)
	if median > 500*time.Millisecond {
		t.Errorf("the loop is held up: %s in the median of %d", median, len(waits))
	}
}
