// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/fake"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/pipeline"
	"github.com/patchbay-sdn/patchbay/internal/world"
	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// curious is an extension that wants policies, has one call, and notes what it hears. Tests look at it between events.
type curious struct {
	idle
	missing  []string
	heard    []string
	mu       sync.Mutex
	answered int
	fails    int
	done     bool
	recalled string
}

func (*curious) Name() string { return "curious" }

func (*curious) Kinds() []neutron.Kind { return []neutron.Kind{neutron.KindQosPolicy} }

func (*curious) Topics() []string { return []string{"own-topic"} }

func (c *curious) OnPush(p *neutron.Push) error {
	c.heard = append(c.heard, "push "+string(p.Kind))
	return nil
}

func (c *curious) OnCast(method string, _ []byte) error {
	c.heard = append(c.heard, "cast "+method)
	return nil
}

func (c *curious) Resync() { c.heard = append(c.heard, "resync") }

func (c *curious) Missing() []extension.Item {
	var out []extension.Item
	for _, id := range c.missing {
		out = append(out, extension.Item{Kind: neutron.KindQosPolicy, ID: id})
	}
	return out
}

func (c *curious) OnPulled(_ neutron.Kind, asked []string, found []neutron.Primitive) error {
	c.mu.Lock()
	c.answered++
	c.mu.Unlock()
	c.heard = append(c.heard, "answer "+strings.Join(asked, ","))
	c.missing = slices.DeleteFunc(c.missing, func(id string) bool { return slices.Contains(asked, id) })
	if len(found) != len(asked) {
		return errors.New("the server does not have all")
	}
	return nil
}

// greet is the key of its call.
type greet struct{}

func (greet) String() string { return "greet" }

func (c *curious) Calls() []extension.Call {
	if c.done {
		return nil
	}
	return []extension.Call{{Key: greet{}, Run: func(context.Context, *neutron.Server) (any, error) { return time.Now(), nil }}}
}

func (c *curious) OnCall(k extension.Key, result any, _ error) {
	c.fails--
	c.done = c.fails < 0
	c.heard = append(c.heard, "done "+k.String())
	_ = result.(time.Time)
}

func (c *curious) AddState(r *neutron.Configurations) { r.InDistributedMode = true }

func (c *curious) Save() any { return "a thing" }

func (c *curious) Load(data json.RawMessage) error { return json.Unmarshal(data, &c.recalled) }

// deliver has the server send a message.
func (r *rig) deliver(topic, method, args string) {
	_, _ = r.broker.service.Handler(context.Background(), &messaging.Message{Topic: topic, Method: method, Args: []byte(args)})
}

// What an earlier run remembered reaches extensions also where the caller has read it, as a plan does.
func TestAnExtensionIsGivenWhatWasRemembered(t *testing.T) {
	c := &curious{}
	_, err := New(Config{
		Log: slog.New(slog.DiscardHandler), Extensions: []extension.New{func(*world.World) extension.Extension { return c }},
		Memory: &world.Memory{Extensions: map[string]json.RawMessage{"curious": json.RawMessage(`"a thing"`)}},
	}, nil, func(func(messaging.Event)) (Broker, error) { return nil, nil })
	if err != nil || c.recalled != "a thing" {
		t.Errorf("recalled %q, %v", c.recalled, err)
	}
}

// The loop does for an extension what it does for ports: it asks for what is missing, by halves when a question is
// refused, makes its calls until they are not listed any more, and hands on what is heard.
func TestTendingAnExtension(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &curious{missing: []string{"p1", "bad", "p2"}, fails: 2}
		snapshot := t.TempDir() + "/snapshot"
		var server *cloud
		r := startWith(t, func(cfg *Config, _ *fakeBroker) {
			cfg.Extensions = []extension.New{func(*world.World) extension.Extension { return c }}
			cfg.Snapshot = snapshot
		}, func(b *fakeBroker) Broker {
			server = &cloud{fakeBroker: b, refuses: "bad", asked: map[string]int{}}
			return server
		})
		r.sw.changes <- fake.Connected()
		wait(500 * time.Millisecond)
		topics := r.broker.service.Topics
		if !slices.Contains(topics, "neutron-vo-QosPolicy-1.10") || !slices.Contains(topics, "own-topic") {
			t.Errorf("listens to %v", topics)
		}
		r.deliver("neutron-vo-QosPolicy-1.10", "push", `{"event_type":"updated","resource_list":[{"versioned_object.name":"QosPolicy","versioned_object.data":{}}]}`)
		r.deliver("neutron-vo-Port-1.7", "push", `{"event_type":"updated","resource_list":[{"versioned_object.name":"Port","versioned_object.data":{"id":"x"}}]}`)
		r.deliver("own-topic", "hello", `{}`)
		r.broker.onEvent(messaging.Gap{})
		wait(spread + time.Second)
		slices.Sort(c.heard)
		want := []string{"answer p1", "answer p2", "cast hello", "done greet", "done greet", "done greet", "push QosPolicy", "resync"}
		if !slices.Equal(c.heard, want) {
			t.Errorf("heard %q, want %q", c.heard, want)
		}
		if !slices.Equal(c.missing, []string{"bad"}) {
			t.Errorf("still missing: %v", c.missing)
		}
		if n := server.asked["QosPolicy"]; n < 4 || n > 11 {
			t.Errorf("%d questions", n)
		}
		if n := r.lines("bulk_pull for an extension failed"); n != 1 {
			t.Errorf("%d lines about what cannot be told:\n%s", n, r.log)
		}
		if reports := r.broker.sent(); len(reports) == 0 || !reports[0].Configurations.InDistributedMode {
			t.Error("the extension's part of the state report is missing")
		}
		server.mu.Lock()
		server.refuses = ""
		server.mu.Unlock()
		wait(40 * time.Second)
		if len(c.missing) > 0 {
			t.Errorf("missing to the end: %v", c.missing)
		}
		if err := r.stop(); err != nil {
			t.Error(err)
		}
		again := &curious{done: true}
		next := startWith(t, func(cfg *Config, _ *fakeBroker) {
			cfg.Extensions = []extension.New{func(*world.World) extension.Extension { return again }}
			cfg.Snapshot = snapshot
		}, nil)
		wait(time.Second)
		if again.recalled != "a thing" {
			t.Errorf("remembers %q", again.recalled)
		}
		if err := next.stop(); err != nil {
			t.Error(err)
		}
	})
}

// answers counts those that the extension was given, in the loop: what is the loop's is not looked at from outside.
func (r *rig) answers(c *curious) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.answered
}

// An answer from before a gap does not count, nor one to a question that nobody asked for a while: news were not listened to.
func TestOldAnswersDoNotCount(t *testing.T) {
	for name, meanwhile := range map[string]func(r *rig, c *curious){
		"gap": func(r *rig, _ *curious) { r.broker.onEvent(messaging.Gap{}) },
		"not asked for": func(r *rig, c *curious) {
			c.missing = nil
			r.deliver("own-topic", "hello", `{}`)
			wait(time.Second)
			c.missing = []string{"p1"}
			r.deliver("own-topic", "hello", `{}`)
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := &curious{missing: []string{"p1"}, done: true}
			var server *cloud
			r := startWith(t, func(cfg *Config, _ *fakeBroker) {
				cfg.Extensions = []extension.New{func(*world.World) extension.Extension { return c }}
			}, func(b *fakeBroker) Broker {
				server = &cloud{fakeBroker: b, slow: 20 * time.Second, asked: map[string]int{}}
				return server
			})
			r.sw.changes <- fake.Connected()
			wait(5 * time.Second)
			meanwhile(r, c)
			wait(17 * time.Second) // the old one is there, the next not yet
			if n := r.answers(c); n != 0 {
				t.Errorf("%s: the old answer was taken", name)
			}
			wait(20 * time.Second)
			if n := len(slices.DeleteFunc(c.heard, func(s string) bool { return s != "answer p1" })); n != 1 || len(c.missing) != 0 {
				t.Errorf("%s: %d answers, missing %v", name, n, c.missing)
			}
			if err := r.stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

// idle is the part of an extension that wants nothing.
type idle struct{}

func (idle) Resolve([]world.Object) []world.Object { return nil }

func (idle) Compile(world.Object, *pipeline.Want) {}

// shy is an extension that panics once when it is asked what it misses.
type shy struct {
	idle
	panics bool
	worked int // out everything
}

func (*shy) Name() string { return "shy" }

func (s *shy) Resolve([]world.Object) []world.Object { s.worked++; return nil }

func (s *shy) Missing() []extension.Item {
	if s.panics {
		s.panics = false
		panic("injected")
	}
	return nil
}

func (*shy) OnPulled(neutron.Kind, []string, []neutron.Primitive) error { return nil }

// Status asks extensions, too. One that fails then is tried again soon, though nothing else happens.
func TestAnAnswerThatLeavesSomethingToDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := &shy{}
		r := start(t, func(cfg *Config, _ *fakeBroker) {
			cfg.ReportInterval = 0
			cfg.Extensions = []extension.New{func(*world.World) extension.Extension { return x }}
		})
		r.sw.changes <- fake.Connected()
		wait(time.Hour)
		x.panics = true
		before := x.worked
		if s, err := r.agent.Status(t.Context()); err != nil || !has(s.Reasons, "extension shy has failed") {
			t.Errorf("%q, %v", s.Reasons, err)
		}
		wait(time.Second)
		if x.worked == before {
			t.Error("it is not tried again")
		}
		_ = r.stop()
	})
}

// patient is an extension that waits for a time.
type patient struct {
	idle
	at   time.Time
	done time.Time
}

func (*patient) Name() string { return "patient" }

func (p *patient) Deadline() time.Time {
	if !p.done.IsZero() {
		return time.Time{}
	}
	return p.at
}

func (p *patient) OnTime(now time.Time) { p.done = now }

// Deadlines pass without a server, at their time, and the agent is in sync meanwhile.
func TestDeadlineWithoutServer(t *testing.T) {
	for name, away := range map[string]bool{"server": false, "no server": true} {
		synctest.Test(t, func(t *testing.T) {
			p := &patient{at: time.Now().Add(61_370 * time.Millisecond)}
			r := startWith(t, func(cfg *Config, b *fakeBroker) {
				cfg.Extensions = []extension.New{func(*world.World) extension.Extension { return p }}
				if away {
					b.alive = func() (bool, error) { return false, messaging.ErrTimeout }
				}
			}, nil)
			r.sw.changes <- fake.Connected()
			wait(50 * time.Second)
			// One that is like it: the loop's own is the loop's.
			if m := extension.NewMember(&patient{at: p.at}); len(m.Missing())+len(m.Calls()) != 0 {
				t.Error(name, "it is waited for")
			}
			wait(20 * time.Second)
			if late := p.done.Sub(p.at); p.done.IsZero() || late < 0 || late > 10*time.Millisecond {
				t.Errorf("%s: done %v after its time", name, late)
			}
			if err := r.stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

// stuck is an extension whose deadline never moves.
type stuck struct {
	idle
	at    time.Time
	times int
}

func (*stuck) Name() string { return "stuck" }

func (s *stuck) Deadline() time.Time { return s.at }

func (s *stuck) OnTime(time.Time) { s.times++ }

// A deadline that stays in the past does not keep the loop busy.
func TestDeadlineThatStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stuck{at: time.Now()}
		r := startWith(t, func(cfg *Config, _ *fakeBroker) {
			cfg.Extensions = []extension.New{func(*world.World) extension.Extension { return s }}
		}, nil)
		r.sw.changes <- fake.Connected()
		wait(10 * time.Second)
		if s.times == 0 || s.times > 300 {
			t.Errorf("told %d times in 10 s", s.times)
		}
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	})
}
