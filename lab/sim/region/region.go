// SPDX-License-Identifier: Apache-2.0

// Package region is the cloud of a neutron-server, in memory and without a broker: networks, ports, groups and the rest, the
// methods that layer-2 agents call, and the messages that the server sends them. Package sim puts it behind a RabbitMQ; tests
// put it beside an agent in the same process, with [Region.Join].
//
// It is as unkind as the real server. A change is not told as it was made: for each kind of object a thread takes the ids of
// what has changed, reads the object again and sends what it finds, while other calls are answered. So an answer may be older
// or newer than a push, and one that comes twice may say the same. A host with a new address has its old tunnels deleted, a
// port is ACTIVE only when nobody holds it back, and objects have the versions of the release. [Unkind] makes it worse.
package region

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// Config says what the server is like. The zero value is a kind server of release 21.
type Config struct {
	// Release is the server's release, from 17 on; 21 when zero.
	Release int
	// Seed draws the ids; they are random when it is zero.
	Seed uint64
	// Unkind is what goes wrong.
	Unkind Unkind
	// Workers has messages about different networks sent beside each other, as by several processes of a server. Otherwise all messages that are sent
	// as they stand keep their order.
	Workers bool
	// DHCP pretends that an agent serves the subnets that ask for it: their ports wait for it, and it takes so long.
	DHCP time.Duration
	// Log is told what goes wrong; nil ignores it.
	Log func(format string, args ...any)
}

// Cast sends a message to agents.
type Cast func(t messaging.Target, method string, args any) error

// Region is the cloud and its server. Its methods may be used by many goroutines.
type Region struct {
	log     func(string, ...any)
	started time.Time
	release int
	own     map[string]string // versions of objects, by kind
	dhcp    time.Duration
	workers bool

	mu        sync.Mutex
	rnd       *rand.Rand // of ids; nil: random ones
	networks  map[string]*Network
	subnets   map[string]*Subnet
	ports     map[string]*Port
	groups    map[string]*Group
	rules     map[string]*Rule
	addresses map[string]*AddressGroup
	policies  map[string]*Policy
	trunks    map[string]*Trunk
	agents    map[string]*Agent // by host
	routers   map[string]string // addresses of distributed routers, by host
	// members are the ports of a group, onNetwork those of a network, taken the addresses in use on a subnet.
	members   map[string]map[string]*Port
	onNetwork map[string]map[string]*Port
	taken     map[string]map[string]bool
	tunnels   map[string]map[string]string // by type: host by address
	segments  map[string]int               // the last segmentation id given out, by type

	cast    Cast
	joined  []*Link
	chance  *chance
	news    map[string][]outgoing // by the thread that sends them, in their order
	sending map[string]bool       // threads at work
	upTo    map[string]uint64     // messages ever put into news, by thread
	casting map[string]bool       // threads to which a change has given messages that are sent as they stand
	sent    map[string]uint64     // and of them, those that are on their way
	changed *sync.Cond
	closed  bool
	muted   bool // nobody is told anything
	done    sync.WaitGroup
}

// outgoing is a message on its way: a cast as it stands, or, with a kind, a push of what that object is then.
type outgoing struct {
	target   messaging.Target
	method   string
	args     any
	kind, id string
}

// directly begins the names of threads of messages that are sent as they stand, before the call that led to them is answered.
const directly = "cast"

// New makes an empty cloud.
func New(cfg Config) *Region {
	s := &Region{
		log: func(string, ...any) {}, started: time.Now().Truncate(time.Second), release: 21, dhcp: cfg.DHCP, workers: cfg.Workers,
		networks: map[string]*Network{}, subnets: map[string]*Subnet{}, ports: map[string]*Port{}, groups: map[string]*Group{},
		rules: map[string]*Rule{}, addresses: map[string]*AddressGroup{}, agents: map[string]*Agent{},
		policies: map[string]*Policy{}, trunks: map[string]*Trunk{}, routers: map[string]string{},
		members: map[string]map[string]*Port{}, onNetwork: map[string]map[string]*Port{}, taken: map[string]map[string]bool{},
		tunnels: map[string]map[string]string{}, segments: map[string]int{},
		news: map[string][]outgoing{}, sending: map[string]bool{}, sent: map[string]uint64{}, upTo: map[string]uint64{}, casting: map[string]bool{},
	}
	if cfg.Release != 0 {
		s.release = cfg.Release
	}
	s.own = versionsOf(s.release)
	if cfg.Seed != 0 {
		s.rnd = rand.New(rand.NewPCG(cfg.Seed, 1))
	}
	if cfg.Log != nil {
		s.log = cfg.Log
	}
	s.chance = newChance(cfg.Unkind)
	s.changed = sync.NewCond(&s.mu)
	return s
}

// Release is the server's release.
func (s *Region) Release() int { return s.release }

// Deliver has messages sent by cast, beside those that have joined; nil: only to those.
func (s *Region) Deliver(cast Cast) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cast = cast
}

// Close ends the sending.
func (s *Region) Close() {
	s.mu.Lock()
	s.closed = true
	s.changed.Broadcast()
	s.mu.Unlock()
	s.done.Wait()
}

// tell has a thread send a message; s.mu is held.
func (s *Region) tell(thread string, m outgoing) {
	if s.muted || s.closed {
		return
	}
	s.news[thread] = append(s.news[thread], m)
	s.upTo[thread]++
	if !s.sending[thread] {
		s.sending[thread] = true
		s.done.Go(func() { s.send(thread) })
	}
}

// castNow sends a message as it stands, behind those about the same network.
func (s *Region) castNow(network string, t messaging.Target, method string, args any) {
	if !s.workers {
		network = ""
	}
	s.tellNow(network, outgoing{target: t, method: method, args: args})
}

func (s *Region) tellNow(network string, m outgoing) {
	s.casting[directly+network] = true
	s.tell(directly+network, m)
}

// pushed has the thread of the kind read the object again and tell all agents what it is then.
func (s *Region) pushed(kind, id string) {
	s.tell(kind+s.chance.process(), outgoing{kind: kind, id: id})
}

// send is a thread that sends messages, until there are none.
func (s *Region) send(thread string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.news[thread]) > 0 && !s.closed {
		m := s.news[thread][0]
		s.news[thread] = s.news[thread][1:]
		s.mu.Unlock()
		s.chance.delay("before "+thread, true)
		s.mu.Lock()
		list := []outgoing{m}
		if m.kind != "" {
			list = s.read(m.kind, m.id)
		}
		s.mu.Unlock()
		s.chance.delay("after "+thread, false)
		for _, m := range list {
			s.deliver(m)
			if m.method != "" && s.chance.twice(m.target.Topic+m.method) {
				s.deliver(m)
			}
		}
		s.mu.Lock()
		s.sent[thread]++
		s.changed.Broadcast()
	}
	s.sending[thread] = false
}

func (s *Region) deliver(m outgoing) {
	s.mu.Lock()
	cast, joined := s.cast, append([]*Link(nil), s.joined...)
	s.mu.Unlock()
	if cast != nil {
		if err := cast(m.target, m.method, m.args); err != nil {
			s.log("casting %s: %v", m.method, err)
		}
	}
	for _, l := range joined {
		l.deliver(m)
	}
}

// read is the push of an object as it is now, once for each version that somebody listens to.
func (s *Region) read(kind, id string) []outgoing {
	event, object := "updated", s.object(kind, id)
	if object == nil {
		gone := gone(kind, id)
		event, object = "deleted", &gone
	}
	return s.push(kind, event, *object)
}

// push tells all agents about an object, in the server's version and in all that agents have reported. One that is newer than
// the server's own spoils the push for everybody.
func (s *Region) push(kind, event string, object primitive) []outgoing {
	list := map[string]bool{s.own[kind]: true}
	for _, a := range s.agents {
		if v := a.versions[kind]; v != "" {
			list[v] = true
		}
	}
	var out []outgoing
	for _, version := range sorted(list) {
		encoded, err := s.inVersion(object, kind, version)
		if err != nil {
			s.log("Exception while dispatching %s events: %v", kind, err)
			return nil
		}
		out = append(out, outgoing{
			target: messaging.Target{Topic: "neutron-vo-" + kind + "-" + version, Fanout: true, Version: "1.1"}, method: "push",
			args: map[string]any{"resource_list": []json.RawMessage{encoded}, "event_type": event},
		})
	}
	return out
}

// pushedNow tells about an object as it is when it changes, as the plugins of QoS and trunks do.
func (s *Region) pushedNow(kind, event string, object primitive) {
	for _, m := range s.push(kind, event, object) {
		s.tellNow("", m)
	}
}

// do changes the model and returns when all that was to be told about it is sent; while the server is unkind, the thread that
// reads objects again is not waited for, and never for the answer to an agent.
func (s *Region) do(ctx context.Context, change func() error) error {
	return s.doing(ctx, s.chance.kind(), change)
}

func (s *Region) doing(ctx context.Context, wait bool, change func() error) error {
	stop := context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.changed.Broadcast()
	})
	defer stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.casting)
	if err := change(); err != nil {
		return err
	}
	upTo := map[string]uint64{}
	for thread := range s.casting {
		upTo[thread] = s.upTo[thread]
	}
	if wait {
		for thread, n := range s.upTo {
			upTo[thread] = n
		}
	}
	for thread, n := range upTo {
		for s.sent[thread] < n && !s.closed {
			if err := ctx.Err(); err != nil {
				return fmt.Errorf("telling what has changed: %w", err)
			}
			s.changed.Wait()
		}
	}
	return nil
}
