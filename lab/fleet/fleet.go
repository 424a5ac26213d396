// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/patchbay-sdn/patchbay/lab/broker"
	"github.com/patchbay-sdn/patchbay/lab/sim"
	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// Layouts of an agent's bindings on the broker.
const (
	Hub     = "hub"     // one exchange behind the fanout exchanges, as agents have it
	Classic = "classic" // two bindings a topic, as before
	Stream  = "stream"  // one stream behind that exchange, as agents have it with [patchbay] fanout_stream
)

// Config says how large a fleet is and what happens to it. Zero values mean the defaults that are given.
type Config struct {
	Agents    int     // 100
	Ports     int     // of each host at the start; 1
	Span      int     // hosts that share a project, a network and its default group; 10
	Network   string  // type of the networks: vxlan, with l2population, or vlan; vxlan up to 300 agents
	StartRate float64 // agents a second; 100
	Rate      float64 // messages to all agents a second, to which changes lead; 5
	For       time.Duration
	Idle      time.Duration // how long the agents are measured at rest
	Seed      uint64
	Events    []string      // kinds of changes; DefaultEvents
	Storms    []string      // one after the other, after the changes
	Away      time.Duration // of the server, in its storm; 75 s
	Boots     time.Duration // at the highest rate, in the storm of them; then a fifth of it at twice the rate; a minute
	Layout    string        // Hub
	Query     string        // of the transport URL, such as rabbit_stream_fanout=true
	Dir       string        // of the broker; a temporary one that is removed afterwards
	Root      string        // of another suite's RabbitMQ, see package release
	Settle    time.Duration
	Profile   string // directory for profiles of Go's pprof; none without
	// Progress is told how far the run is, every second and at the end of each part.
	Progress func(Progress)
}

// Progress is how far a run is.
type Progress struct {
	Part   string // what is done now
	Text   string // what has come of it
	Done   bool   // the part is over
	Passed time.Duration
}

// mostTunnelled is how many agents have tunnels by default. A start of N agents with tunnels has the server send all agents 2 N messages or more.
const mostTunnelled = 300

func (c *Config) fill() error {
	def := func(to *int, v int) {
		if *to == 0 {
			*to = v
		}
	}
	def(&c.Agents, 100)
	def(&c.Ports, 1)
	def(&c.Span, 10)
	for to, v := range map[*float64]float64{&c.StartRate: 100, &c.Rate: 5} {
		if *to == 0 {
			*to = v
		}
	}
	for to, v := range map[*time.Duration]time.Duration{&c.Settle: 3 * time.Minute, &c.Away: 75 * time.Second, &c.Boots: time.Minute} {
		if *to == 0 {
			*to = v
		}
	}
	if c.Network == "" {
		c.Network = vxlan
		if c.Agents > mostTunnelled {
			c.Network = vlan
		}
	}
	if c.Layout == "" {
		c.Layout = Hub
	}
	if len(c.Events) == 0 {
		c.Events = DefaultEvents()
	}
	if c.Progress == nil {
		c.Progress = func(Progress) {}
	}
	for _, e := range c.Events {
		if events[e].run == nil {
			return fmt.Errorf("there is no event %q, but %v", e, sortedNames(events))
		}
	}
	for _, s := range c.Storms {
		if storms[s] == nil {
			return fmt.Errorf("there is no storm %q, but %v", s, sortedNames(storms))
		}
	}
	if layouts := []string{Hub, Classic, Stream}; !slices.Contains(layouts, c.Layout) {
		return fmt.Errorf("there is no layout %q, but %s", c.Layout, strings.Join(layouts, ", "))
	}
	if c.Network != vxlan && c.Network != vlan {
		return fmt.Errorf("there are no networks of type %q, but %s and %s", c.Network, vxlan, vlan)
	}
	if c.Agents > 1<<18 || c.Span < 1 {
		return errors.New("too many agents, or no hosts of a project")
	}
	return nil
}

// counts are what the agents' broker clients and logs see.
type counts struct {
	calls, failed, deliveries, warnings, errors atomic.Int64

	mu       sync.Mutex
	by, fail map[string]int // calls of each method, and those that failed
	confirms []time.Duration
}

// confirmed notes how long the broker took to confirm a message of the server to all agents.
func (c *counts) confirmed(took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.confirms = append(c.confirms, took)
}

// takeConfirms gives what was noted since the last time.
func (c *counts) takeConfirms() []time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := c.confirms
	c.confirms = nil
	return all
}

// called counts a call that is over.
func (c *counts) called(method string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.by == nil {
		c.by, c.fail = map[string]int{}, map[string]int{}
	}
	c.by[method]++
	if err != nil {
		c.failed.Add(1)
		c.fail[method]++
	}
}

// methods are the calls of each method so far, and those that failed.
func (c *counts) methods() (all, failed map[string]int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.by), maps.Clone(c.fail)
}

// more is what was counted since an earlier count.
func more(now, before map[string]int) map[string]int {
	out := map[string]int{}
	for name, n := range now {
		if n > before[name] {
			out[name] = n - before[name]
		}
	}
	return out
}

// project has a network, and hosts with ports in it.
type project struct {
	name, network, group string
	hosts                []*host
	rules                []rule
	cidr                 netip.Prefix
	next                 int
	used                 map[netip.Addr]bool
}

// rule is one that the churn made.
type rule struct {
	id   string
	port int
}

// Fleet is a broker, a server and the hosts.
type Fleet struct {
	cfg    Config
	began  time.Time
	url    messaging.URL
	broker *broker.Broker
	server *sim.Server
	common string // the group that every port has
	hosts  []*host
	log    *slog.Logger
	counts counts
	times  *times
	usage  usage
	rnd    *rand.Rand
	work   sync.WaitGroup // agents on their way back
	remove string         // the temporary directory
}

// New starts a broker and the server, and makes the hosts with their ports. No agent runs yet.
func New(ctx context.Context, cfg Config) (*Fleet, error) {
	if err := cfg.fill(); err != nil {
		return nil, err
	}
	f := &Fleet{cfg: cfg, began: time.Now(), times: newTimes(), rnd: rand.New(rand.NewPCG(cfg.Seed, 1))}
	f.log = slog.New(countingHandler{&f.counts})
	dir := cfg.Dir
	if dir == "" {
		var err error
		if dir, err = os.MkdirTemp("", "fleet"); err != nil {
			return nil, fmt.Errorf("making a directory for the broker: %w", err)
		}
		f.remove = dir
	}
	if err := f.prepare(ctx, dir); err != nil {
		return nil, errors.Join(err, f.Close(context.WithoutCancel(ctx)))
	}
	return f, nil
}

func (f *Fleet) prepare(ctx context.Context, dir string) error {
	var err error
	// With a low limit of memory the broker would block the server when it is behind, which is not what is measured here.
	f.broker, err = broker.Start(ctx, broker.Config{Dir: dir, Root: f.cfg.Root, Schedulers: 2, Memory: 8 << 30})
	if err != nil {
		return err
	}
	f.usage.follow(f.broker.PID())
	url := f.broker.URL()
	if f.cfg.Query != "" {
		url += "?" + f.cfg.Query
	}
	if f.url, err = messaging.ParseURL(url); err != nil {
		return fmt.Errorf("the broker's address: %w", err)
	}
	if f.server, err = sim.Start(ctx, sim.Config{URL: url, Workers: true, Release: release, Confirmed: f.counts.confirmed}); err != nil {
		return err
	}
	return f.server.Quietly(func() error { return f.populate(ctx) })
}

// Close ends everything.
func (f *Fleet) Close(ctx context.Context) error {
	f.work.Wait()
	for _, h := range f.hosts {
		h.end(true)
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var err error
	if f.broker != nil {
		err = f.broker.Stop(ctx)
	}
	if f.server != nil {
		_ = f.server.Close(ctx) // its broker is gone
	}
	if f.remove != "" {
		err = errors.Join(err, os.RemoveAll(f.remove))
	}
	return err
}

// Run starts the agents, has everything happen that the configuration says, and compares. The result is there, as far as it goes, also with an error.
func (f *Fleet) Run(ctx context.Context) (*Result, error) {
	r := &Result{
		Agents: f.cfg.Agents, Ports: f.cfg.Ports, Span: f.cfg.Span, Network: f.cfg.Network, Seed: f.cfg.Seed, Rate: f.cfg.Rate, Layout: f.cfg.Layout, Query: f.cfg.Query,
	}
	if out, err := f.broker.Ctl(ctx, "version"); err == nil {
		r.RabbitMQ = firstLine(out)
	}
	stop := f.sampling(ctx)
	defer stop()
	steps := []struct {
		part string
		run  func(context.Context, *Result) (string, error)
	}{
		{"start", f.start}, {"rest", f.rest}, {"changes", f.churn}, {"storms", f.storm}, {"settle", f.settle}, {"flows", f.check},
	}
	for _, s := range steps {
		began := time.Now()
		text, err := s.run(ctx, r)
		if err != nil {
			return r, fmt.Errorf("%s: %w", s.part, err)
		}
		if text != "" {
			f.tell(s.part, text, true, time.Since(began))
		}
	}
	stop()
	r.Seconds, r.Series = time.Since(f.began).Seconds(), f.usage.series
	return r, nil
}

func (f *Fleet) tell(part, text string, done bool, passed time.Duration) {
	f.cfg.Progress(Progress{Part: part, Text: text, Done: done, Passed: passed})
}

// countingHandler counts what agents log.
type countingHandler struct{ *counts }

// Enabled implements slog.Handler.
func (h countingHandler) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }

// Handle implements slog.Handler.
func (h countingHandler) Handle(_ context.Context, r slog.Record) error {
	if r.Level >= slog.LevelError {
		h.errors.Add(1)
	} else {
		h.warnings.Add(1)
	}
	return nil
}

// WithAttrs implements slog.Handler.
func (h countingHandler) WithAttrs([]slog.Attr) slog.Handler { return h }

// WithGroup implements slog.Handler.
func (h countingHandler) WithGroup(string) slog.Handler { return h }
