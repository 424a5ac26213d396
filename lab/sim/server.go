// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/patchbay-sdn/patchbay/lab/sim/region"
	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// Config says where the server lives and what it is like.
type Config struct {
	// URL is the transport_url of the broker.
	URL string
	// API is the address on which the Networking API is served, such as 127.0.0.1:9696; empty for none.
	API string
	// Release is the server's release, from 17 on; 21 when zero.
	Release int
	// Unkind is what goes wrong.
	Unkind Unkind
	// Workers has messages about different networks sent beside each other, as by several processes of a server.
	Workers bool
	// DHCP pretends that an agent serves the subnets that ask for it: their ports wait for it, and it takes so long.
	DHCP time.Duration
	// Confirmed is told how long the broker took to confirm a message to all agents; nil ignores it.
	Confirmed func(time.Duration)
	// Log is told what goes wrong; nil ignores it.
	Log func(format string, args ...any)
}

// Server is a running server. Its methods may be used by many goroutines.
type Server struct {
	*region.Region

	client *messaging.Client
	mu     sync.Mutex
	toAll  atomic.Int64  // messages that were sent to all agents
	stuck  chan struct{} // nil unless nobody works on calls; closed when somebody does again
	api    *http.Server
	log    func(string, ...any)
	done   sync.WaitGroup
}

// The parts of the cloud under the names of package region.
type (
	// NetworkSpec is described there, as are all of these.
	NetworkSpec = region.NetworkSpec
	// PortSpec makes a port.
	PortSpec = region.PortSpec
	// PolicyRule is one of a QoS policy.
	PolicyRule = region.PolicyRule
	// Population is a cloud to begin with.
	Population = region.Population
	// Populated is what has been made of it.
	Populated = region.Populated
	// Segment is one of a network.
	Segment = region.Segment
	// Port is a port.
	Port = region.Port
	// Unkind is what goes wrong.
	Unkind = region.Unkind
)

// Elsewhere is the host of members; see [Population].
const Elsewhere = region.Elsewhere

// lateness is how long the caller of a call that is lost waits at least: longer than agents do.
const lateness = 90 * time.Second

// Start connects to the broker and serves from then on.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	url, err := messaging.ParseURL(cfg.URL)
	if err != nil {
		return nil, fmt.Errorf("the broker's address: %w", err)
	}
	s := &Server{log: func(string, ...any) {}}
	if cfg.Log != nil {
		s.log = cfg.Log
	}
	s.Region = region.New(region.Config{Release: cfg.Release, Unkind: cfg.Unkind, DHCP: cfg.DHCP, Workers: cfg.Workers, Log: s.log})
	if cfg.Unkind != (Unkind{}) {
		s.log("unkind: %v", cfg.Unkind)
	}
	s.client, err = messaging.Open(messaging.Config{
		URL: url, Exchange: "neutron", Rabbit: messaging.DefaultRabbit(), Program: "neutron-server", Host: "sim",
		Context: requestContext, OnEvent: s.event,
	})
	if err != nil {
		return nil, err
	}
	s.Deliver(func(t messaging.Target, method string, args any) error {
		if t.Fanout {
			s.toAll.Add(1)
		}
		began := time.Now()
		err := s.client.Cast(context.Background(), t, method, args)
		if t.Fanout && err == nil && cfg.Confirmed != nil {
			cfg.Confirmed(time.Since(began))
		}
		return err
	})
	// Concurrent, as the real one: an agent may ask for ten thousand ports while another one reports its state.
	concurrency := 8
	if cfg.Unkind != (Unkind{}) || cfg.Workers {
		concurrency = 64 // many of them wait
	}
	service := messaging.Service{Topics: region.Topics(), Shared: true, Concurrency: concurrency, Handler: s.handle}
	if err := s.client.Serve(ctx, service); err != nil {
		return nil, errors.Join(err, s.client.Close(context.WithoutCancel(ctx)))
	}
	if cfg.API != "" {
		if err := s.serveAPI(cfg.API); err != nil {
			return nil, errors.Join(err, s.Close(context.WithoutCancel(ctx)))
		}
	}
	return s, nil
}

// handle answers a call. One that is lost is answered when nobody waits any more.
func (s *Server) handle(ctx context.Context, m *messaging.Message) (any, error) {
	s.mu.Lock()
	stuck := s.stuck
	s.mu.Unlock()
	if stuck != nil {
		select {
		case <-ctx.Done():
		case <-stuck:
		}
	}
	result, err := s.Handle(ctx, m)
	if errors.Is(err, region.ErrLost) {
		select {
		case <-ctx.Done():
		case <-time.After(lateness):
		}
	}
	return result, err
}

// Hang has calls wait, as those to a server whose workers are stuck or gone, until the returned function is called. Changes are still made and
// sent, as by the processes of the API.
func (s *Server) Hang() (resume func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	stuck := make(chan struct{})
	s.stuck = stuck
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.stuck = nil
		close(stuck)
	})
}

// SentToAll is how many messages were sent to all agents so far.
func (s *Server) SentToAll() int64 { return s.toAll.Load() }

// Leave closes the connection to the broker. The region goes on for those who join it.
func (s *Server) Leave(ctx context.Context) error {
	s.Deliver(nil)
	return s.client.Close(ctx)
}

func (s *Server) serveAPI(addr string) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return fmt.Errorf("serving the API: %w", err)
	}
	s.api = &http.Server{Handler: s.Routes(), ReadHeaderTimeout: 10 * time.Second}
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
	s.Region.Close()
	if left := s.client.Close(ctx); !errors.Is(left, messaging.ErrClosed) {
		err = errors.Join(err, left)
	}
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

func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
