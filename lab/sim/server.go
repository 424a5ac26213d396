// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// Config says where the server lives.
type Config struct {
	// URL is the transport_url of the broker.
	URL string
	// API is the address on which the Networking API is served, such as 127.0.0.1:9696; empty for none.
	API string
	// Log is told what goes wrong; nil ignores it.
	Log func(format string, args ...any)
}

// Server is a running server. Its methods may be used by many goroutines.
type Server struct {
	client  *messaging.Client
	api     *http.Server
	log     func(string, ...any)
	started time.Time

	mu        sync.Mutex
	networks  map[string]*Network
	subnets   map[string]*Subnet
	ports     map[string]*Port
	groups    map[string]*Group
	rules     map[string]*Rule
	addresses map[string]*AddressGroup
	policies  map[string]*Policy
	agents    map[string]*Agent // by host
	routers   map[string]string // addresses of distributed routers, by host
	// members are the ports of a group, onNetwork those of a network, taken the addresses in use on a subnet.
	members   map[string]map[string]*Port
	onNetwork map[string]map[string]*Port
	taken     map[string]map[string]bool
	tunnels   map[string]map[string]string // by type: host by address
	segments  map[string]int               // the last segmentation id given out, by type

	queue   []outgoing
	queued  uint64 // messages ever put into the queue
	sent    uint64 // and of them, those that the broker has
	changed *sync.Cond
	closed  bool
	muted   bool // nobody is told anything
	done    sync.WaitGroup
}

// outgoing is a cast on its way.
type outgoing struct {
	target messaging.Target
	method string
	args   any
}

// topics are those of neutron-server that agents call.
var topics = []string{"q-plugin", "q-reports-plugin", "trunk", "logging-plugin"}

func newServer() *Server {
	s := &Server{
		log: func(string, ...any) {}, started: time.Now(),
		networks: map[string]*Network{}, subnets: map[string]*Subnet{}, ports: map[string]*Port{}, groups: map[string]*Group{},
		rules: map[string]*Rule{}, addresses: map[string]*AddressGroup{}, agents: map[string]*Agent{},
		policies: map[string]*Policy{}, routers: map[string]string{},
		members: map[string]map[string]*Port{}, onNetwork: map[string]map[string]*Port{}, taken: map[string]map[string]bool{},
		tunnels: map[string]map[string]string{}, segments: map[string]int{},
	}
	s.changed = sync.NewCond(&s.mu)
	return s
}

// Start connects to the broker and serves from then on.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	url, err := messaging.ParseURL(cfg.URL)
	if err != nil {
		return nil, fmt.Errorf("the broker's address: %w", err)
	}
	s := newServer()
	if cfg.Log != nil {
		s.log = cfg.Log
	}
	s.client, err = messaging.Open(messaging.Config{
		URL: url, Exchange: "neutron", Rabbit: messaging.DefaultRabbit(), Program: "neutron-server", Host: "sim",
		Context: requestContext, OnEvent: s.event,
	})
	if err != nil {
		return nil, err
	}
	// Concurrent, as the real one: an agent may ask for ten thousand ports while another one reports its state.
	if err := s.client.Serve(ctx, messaging.Service{Topics: topics, Shared: true, Concurrency: 8, Handler: s.handle}); err != nil {
		return nil, errors.Join(err, s.client.Close(context.WithoutCancel(ctx)))
	}
	s.done.Go(s.send)
	if cfg.API != "" {
		if err := s.serveAPI(cfg.API); err != nil {
			return nil, errors.Join(err, s.Close(context.WithoutCancel(ctx)))
		}
	}
	return s, nil
}

func (s *Server) serveAPI(addr string) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return fmt.Errorf("serving the API: %w", err)
	}
	s.api = &http.Server{Handler: s.routes(), ReadHeaderTimeout: 10 * time.Second}
	s.done.Go(func() {
		if err := s.api.Serve(l); err != nil && !errors.Is(err, http.ErrServerClosed) {
			s.log("serving the API: %v", err)
		}
	})
	return nil
}

// Close ends the server and deletes its queues.
func (s *Server) Close(ctx context.Context) error {
	var err error
	if s.api != nil {
		err = s.api.Close()
	}
	s.mu.Lock()
	s.closed = true
	s.changed.Broadcast()
	s.mu.Unlock()
	err = errors.Join(err, s.client.Close(ctx))
	s.done.Wait()
	return err
}

func (s *Server) event(e messaging.Event) {
	switch e := e.(type) {
	case messaging.Disconnected:
		s.log("the broker is gone: %v", e.Err)
	case messaging.ReplyAbandoned:
		s.log("nobody waits for the answer to %s", e.Method)
	case messaging.Dropped:
		s.log("a message to %s makes no sense: %v", e.RoutingKey, e.Err)
	}
}

// requestContext is what the server's messages carry: an administrator without Keystone.
func requestContext(context.Context) map[string]any {
	return map[string]any{
		"auth_token": nil, "domain": nil, "global_request_id": nil, "is_admin": true, "is_admin_project": true,
		"project": nil, "project_domain": nil, "project_id": nil, "project_name": nil, "read_only": false,
		"request_id": "req-" + newID(), "resource_uuid": nil, "roles": []string{"admin"}, "show_deleted": false,
		"system_scope": nil, "tenant_id": nil, "tenant_name": nil,
		"timestamp": time.Now().UTC().Format("2006-01-02 15:04:05.000000"),
		"user":      nil, "user_domain": nil, "user_id": nil, "user_identity": "- - - - -", "user_name": nil,
	}
}

// cast puts a message into the queue; s.mu is held. Messages leave in that order, as those of a real server do for each kind.
func (s *Server) cast(t messaging.Target, method string, args any) {
	if s.muted {
		return
	}
	s.queue = append(s.queue, outgoing{t, method, args})
	s.queued++
	s.changed.Broadcast()
}

// push tells all agents about an object.
func (s *Server) push(kind, event string, object json.RawMessage) {
	s.cast(messaging.Target{Topic: "neutron-vo-" + kind + "-" + versions[kind], Fanout: true, Version: "1.1"}, "push",
		map[string]any{"resource_list": []json.RawMessage{object}, "event_type": event})
}

func (s *Server) pushed(kind string, object json.RawMessage) { s.push(kind, "updated", object) }

func (s *Server) deleted(kind, id string) { s.push(kind, "deleted", encode(gone(kind, id))) }

// send delivers the queue until the server closes.
func (s *Server) send() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		for len(s.queue) == 0 && !s.closed {
			s.changed.Wait()
		}
		if s.closed {
			return
		}
		batch := s.queue
		s.queue = nil
		s.mu.Unlock()
		for _, m := range batch {
			if err := s.client.Cast(context.Background(), m.target, m.method, m.args); err != nil {
				s.log("casting %s: %v", m.method, err)
			}
			s.mu.Lock()
			s.sent++
			s.changed.Broadcast()
			s.mu.Unlock()
		}
		s.mu.Lock()
	}
}

// do changes the model and returns when the broker has all that was to be told about it.
func (s *Server) do(ctx context.Context, change func() error) error {
	stop := context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.changed.Broadcast()
	})
	defer stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := change(); err != nil {
		return err
	}
	for upTo := s.queued; s.sent < upTo && !s.closed; {
		if err := ctx.Err(); err != nil {
			return err
		}
		s.changed.Wait()
	}
	return nil
}
