// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/patchbay-sdn/patchbay/internal/inspect"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// source is an agent of which everything can be decided by a test.
type source struct {
	status  inspect.Status
	ports   []inspect.Port
	groups  []inspect.Group
	flows   []inspect.Flow
	events  []inspect.Event
	err     error
	asked   atomic.Int64
	blocked chan struct{} // the loop does not answer until it is closed
}

func (s *source) ask(ctx context.Context) error {
	s.asked.Add(1)
	if s.blocked != nil {
		select {
		case <-s.blocked:
		case <-ctx.Done():
			return fmt.Errorf("the agent's loop does not answer: %w", ctx.Err())
		}
	}
	return s.err
}

func (s *source) Status(ctx context.Context) (inspect.Status, error)      { return s.status, s.ask(ctx) }
func (s *source) Ports(ctx context.Context) ([]inspect.Port, error)       { return s.ports, s.ask(ctx) }
func (s *source) Networks(ctx context.Context) ([]inspect.Network, error) { return nil, s.ask(ctx) }
func (s *source) Tunnels(ctx context.Context) ([]inspect.Tunnel, error)   { return nil, s.ask(ctx) }
func (s *source) Groups(ctx context.Context) ([]inspect.Group, error)     { return s.groups, s.ask(ctx) }
func (s *source) Bridges(ctx context.Context) ([]inspect.Bridge, error) {
	return s.status.Bridges, s.ask(ctx)
}
func (s *source) Events(context.Context) ([]inspect.Event, error) { return s.events, nil }
func (s *source) Flows(ctx context.Context, bridge string) ([]inspect.Flow, error) {
	if bridge == "br-no" {
		return nil, fmt.Errorf("%w: bridge %s is none of this agent's", inspect.ErrNotFound, bridge)
	}
	return s.flows, s.ask(ctx)
}

func example() *source {
	return &source{
		status: inspect.Status{
			Host: "hv1", Version: "1", InSync: true, Started: time.Unix(1e9, 0).UTC(), Ports: map[string]int{"wired": 1},
			Bridges: []inspect.Bridge{{Name: "br-int", Role: "integration", Connected: true}}, Switch: inspect.Peer{Up: true},
		},
		ports:  []inspect.Port{{ID: "aaaa-1", Name: "web <1>", State: "wired"}, {ID: "aaab-2", Name: "db", State: "dead"}},
		groups: []inspect.Group{{ID: "g1", Name: "default", Known: true, Ports: []string{"aaaa-1"}, Rules: []inspect.Rule{}}},
		flows:  []inspect.Flow{{Bridge: "br-int", Text: "table=0,priority=1,actions=drop", State: "present"}},
		events: []inspect.Event{{Seq: 1, Kind: "push", Text: "one"}, {Seq: 2, Kind: "push", Text: "two"}},
	}
}

// served opens a socket for a source and returns a client of it.
func served(t *testing.T, src inspect.Source, opts Options) *Client {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := Listen(t.Context(), path, "")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- New(src, opts).Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(path); err == nil {
			t.Error("the socket is left behind")
		}
	})
	return NewClient(path)
}

// What the source says arrives at the client unchanged.
func TestClientIsASource(t *testing.T) {
	src := example()
	c := served(t, src, Options{Settings: func() ([]byte, error) { return []byte(`{"a":1}`), nil }})
	ctx := t.Context()
	status, err := c.Status(ctx)
	if diff := cmp.Diff(src.status, status); diff != "" || err != nil {
		t.Errorf("status: %v\n%s", err, diff)
	}
	ports, err := c.Ports(ctx)
	if diff := cmp.Diff(src.ports, ports); diff != "" || err != nil {
		t.Errorf("ports: %v\n%s", err, diff)
	}
	flows, err := c.Flows(ctx, "")
	if diff := cmp.Diff(src.flows, flows); diff != "" || err != nil {
		t.Errorf("flows: %v\n%s", err, diff)
	}
	groups, err := c.Groups(ctx)
	if diff := cmp.Diff(src.groups, groups); diff != "" || err != nil {
		t.Errorf("groups: %v\n%s", err, diff)
	}
	bridges, err := c.Bridges(ctx)
	if diff := cmp.Diff(src.status.Bridges, bridges); diff != "" || err != nil {
		t.Errorf("bridges: %v\n%s", err, diff)
	}
	if networks, err := c.Networks(ctx); len(networks) != 0 || err != nil {
		t.Errorf("networks: %v %v", networks, err)
	}
	if tunnels, err := c.Tunnels(ctx); len(tunnels) != 0 || err != nil {
		t.Errorf("tunnels: %v %v", tunnels, err)
	}
	events, err := c.EventsAfter(ctx, 1)
	if len(events) != 1 || events[0].Text != "two" || err != nil {
		t.Errorf("events: %v %v", events, err)
	}
	if p, err := c.Port(ctx, "web <1>"); p.ID != "aaaa-1" || err != nil {
		t.Errorf("port by name: %+v, %v", p, err)
	}
	if _, err := c.Port(ctx, "aaa"); !errors.Is(err, inspect.ErrAmbiguous) {
		t.Errorf("ambiguous: %v", err)
	}
	if _, err := c.Port(ctx, "x/../y"); !errors.Is(err, inspect.ErrNotFound) {
		t.Errorf("unknown: %v", err)
	}
	if _, err := c.Flows(ctx, "br-no"); !errors.Is(err, inspect.ErrNotFound) {
		t.Errorf("unknown bridge: %v", err)
	}
	if b, err := c.Get(ctx, "/v1/config"); string(b) != `{"a":1}` || err != nil {
		t.Errorf("config: %s, %v", b, err)
	}
	if b, err := c.Get(ctx, "/v1/groups/default"); !json.Valid(b) || err != nil {
		t.Errorf("group: %s, %v", b, err)
	}
}

func TestHealth(t *testing.T) {
	wired := inspect.Status{Ready: true, Reasons: []string{"the broker cannot be reached"}}
	unknown := wired
	unknown.Ready = false
	tests := []struct {
		name   string
		status inspect.Status
		code   int
		text   string
	}{
		{"in sync", inspect.Status{InSync: true}, 200, "in sync\n"},
		{
			"in sync, entries may come", inspect.Status{InSync: true, Awaited: []inspect.Awaited{{Network: "n1"}}}, 200,
			"in sync\n- the server may still send forwarding entries of network n1\n",
		},
		{"wired, the broker is away", wired, 200, "wired, but not in sync\n- the broker cannot be reached\n"},
		{"not ready", unknown, 503, "not ready\n- the broker cannot be reached\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			src := &source{status: tt.status}
			if code, text := request(New(src, Options{}), "/readyz"); code != tt.code || text != tt.text {
				t.Errorf("%d %q", code, text)
			}
			if code, _ := request(New(src, Options{}), "/livez"); code != 200 {
				t.Errorf("alive, but livez says %d", code)
			}
		})
	}
	stuck := &source{err: errors.New("the agent's loop does not answer")}
	for _, path := range []string{"/livez", "/readyz"} {
		if code, text := request(New(stuck, Options{}), path); code != 503 || !strings.Contains(text, "loop does not answer") {
			t.Errorf("%s: %d %q", path, code, text)
		}
	}
}

func request(h http.Handler, path string) (int, string) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, http.NoBody))
	return w.Code, w.Body.String()
}

func TestNothingCanBeChanged(t *testing.T) {
	s := New(example(), Options{})
	for _, method := range []string{"POST", "PUT", "DELETE", "PATCH", "OPTIONS", "CONNECT", "X"} {
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequest(method, "/v1/status", http.NoBody))
		if w.Code != http.StatusMethodNotAllowed {
			t.Errorf("%s: %d", method, w.Code)
		}
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/status", strings.NewReader("body")))
	if w.Code != http.StatusBadRequest {
		t.Errorf("a request with a body: %d", w.Code)
	}
	if code, _ := request(s, "/v1/nonsense"); code != http.StatusNotFound {
		t.Errorf("unknown document: %d", code)
	}
	if code, _ := request(s, "/v1/events?after=x"); code != http.StatusBadRequest {
		t.Errorf("events after x: %d", code)
	}
}

func TestListen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := Listen(t.Context(), path, "")
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o660 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if _, err := Listen(t.Context(), path, ""); err == nil || !strings.Contains(err.Error(), "another agent answers") {
		t.Errorf("took a socket from an agent that runs: %v", err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false) // the agent is killed
	_ = l.Close()
	l, err = Listen(t.Context(), path, fmt.Sprint(os.Getgid()))
	if err != nil {
		t.Fatalf("a dead agent's socket is in the way: %v", err)
	}
	_ = l.Close()
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(t.Context(), path, ""); err == nil {
		t.Error("replaced what is not a socket")
	}
	if _, err := Listen(t.Context(), path+"2", "no-such-group-here"); err == nil {
		t.Error("opened for a group that does not exist")
	}
	for _, p := range []string{path, path + "3"} {
		if _, err := NewClient(p).Status(t.Context()); !errors.Is(err, ErrNoAgent) {
			t.Errorf("asking nobody: %v", err)
		}
	}
}

// Readers that ask for a lot and read nothing take up their own turns and nothing else: others are answered meanwhile, and
// the source is asked only as often as there is room.
func TestSlowReaders(t *testing.T) {
	src := example()
	long := strings.Repeat("x", 1000)
	// More than the kernel buffers, and not so much that encoding it takes the time that is measured.
	for range 1000 {
		src.flows = append(src.flows, inspect.Flow{Bridge: "br-int", Text: long})
	}
	for range 1000 {
		src.ports = append(src.ports, inspect.Port{ID: "p", Reason: long})
	}
	c := served(t, src, Options{})
	for i := range 40 {
		conn, err := net.Dial("unix", c.path)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		path := []string{"/v1/flows", "/v1/ports"}[i%2]
		if _, err := io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(200 * time.Millisecond)
	if n := src.asked.Load(); n > maxLarge+maxRequests {
		t.Errorf("%d answers in memory for 40 readers that do not read, want at most %d", n, maxLarge+maxRequests)
	}
	began := time.Now()
	if _, err := c.Status(t.Context()); err != nil || time.Since(began) > queueTime/2 {
		t.Errorf("others wait for them: %s, %v", time.Since(began), err)
	}
}

// Many askers at a time all get their answer.
func TestManyAskers(t *testing.T) {
	c := served(t, example(), Options{})
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			for range 20 {
				if s, err := c.Status(t.Context()); err != nil || s.Host != "hv1" {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// A client that says half a request, or nothing, is cut off.
func TestHalfARequest(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for a deadline")
	}
	c := served(t, example(), Options{})
	conn, err := net.Dial("unix", c.path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_, _ = io.WriteString(conn, "GET /v1/status HT")
	_ = conn.SetReadDeadline(time.Now().Add(readTime + 5*time.Second))
	if _, err := io.ReadAll(bufio.NewReader(conn)); err != nil {
		t.Errorf("still open: %v", err)
	}
}

// FuzzRequest: no request stops the server or gets anything but an answer in HTTP.
func FuzzRequest(f *testing.F) {
	f.Add("GET", "/v1/ports/aaaa", "")
	f.Add("GET", "/v1/flows?bridge=%00", "x")
	f.Add("HEAD", "/v1/events?after=-1", "")
	f.Add("POST", "//v1/../v1/status", "{}")
	f.Add("GET", "/metrics", "")
	src := example()
	s := New(src, Options{Settings: func() ([]byte, error) { return nil, errors.New("none") }, Metrics: Metrics(src)})
	f.Fuzz(func(t *testing.T, method, target, body string) {
		raw := method + " " + target + " HTTP/1.1\r\nHost: a\r\nContent-Length: " + fmt.Sprint(len(body)) + "\r\n\r\n" + body
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(raw)))
		if err != nil {
			return // net/http answers 400
		}
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if w.Code < 200 || w.Code > 599 {
			t.Errorf("%q: %d", raw, w.Code)
		}
		if w.Code == http.StatusOK && strings.HasPrefix(r.URL.Path, "/v1/") && !json.Valid(w.Body.Bytes()) {
			t.Errorf("%q: %s", raw, w.Body)
		}
	})
}
