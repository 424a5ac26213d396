// SPDX-License-Identifier: Apache-2.0

package metaproxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/openflow"
)

const secret = "not a real secret"

var (
	one, two = netip.MustParseAddr("240.0.0.2"), netip.MustParseAddr("240.0.0.3")
	served   = &Service{
		Device: "tap-meta", MAC: openflow.MAC{2, 0, 0, 0, 0, 1}, Address: netip.MustParsePrefix("127.0.0.1/8"),
		Clients: map[netip.Addr]Client{
			one: {Instance: "vm1", Project: "blue", Address: netip.MustParseAddr("10.5.0.11")},
			two: {Instance: "vm2", Project: "red", Address: netip.MustParseAddr("10.5.0.11")},
		},
	}
)

// nova stands for Nova: it answers with who asks, if the signature is right.
func nova(w http.ResponseWriter, r *http.Request) {
	h := r.Header
	if want := (&Nova{Secret: secret}).Signature(h.Get("X-Instance-ID")); len(h.Values("X-Instance-ID")) != 1 || h.Get("X-Instance-ID-Signature") != want {
		http.Error(w, "wrong signature", http.StatusForbidden)
		return
	}
	body, _ := io.ReadAll(r.Body)
	fmt.Fprintf(w, "%s %s %s %s %s", h.Get("X-Instance-ID"), h.Values("X-Tenant-ID"), h.Values("X-Forwarded-For"), r.URL.RequestURI(), body)
	for name := range h {
		switch name {
		case "X-Instance-Id", "X-Instance-Id-Signature", "X-Tenant-Id", "X-Forwarded-For", "User-Agent", "Content-Length", "Accept-Encoding":
		default:
			fmt.Fprintf(w, " %s", name)
		}
	}
}

func newProxy(t *testing.T, handler http.HandlerFunc) *Proxy {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	p, err := New(Nova{URL: server.URL, Secret: secret}, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	p.Give(served)
	return p
}

func ask(p *Proxy, from netip.Addr, r *http.Request) (int, string) {
	r.RemoteAddr = netip.AddrPortFrom(from, 40000).String()
	w := httptest.NewRecorder()
	p.ServeHTTP(w, r)
	return w.Code, strings.TrimSpace(w.Body.String())
}

func get(path string) *http.Request { return httptest.NewRequest(http.MethodGet, path, nil) }

// Nova hears who asks from the address that the request came from, and from nothing that the client says.
func TestWhoAsks(t *testing.T) {
	p := newProxy(t, nova)
	if code, body := ask(p, one, get("/latest/meta-data/?a=b")); code != 200 || body != "vm1 [blue] [10.5.0.11] /latest/meta-data/?a=b" {
		t.Errorf("%d %q", code, body)
	}
	forged := get("http://elsewhere.example/x")
	forged.Header = http.Header{
		"X-Instance-Id": {"vm1", "vm3"}, "X_Instance_ID": {"vm1"}, "X-Tenant-Id": {"blue"}, "X-Instance-Id-Signature": {p.nova.Signature("vm1")},
		"X-Forwarded-For": {"10.5.0.99"}, "Forwarded": {"for=10.5.0.99"}, "X-Metadata-Provider": {"x"}, "X-Real-Ip": {"1.2.3.4"}, "X_Tenant_ID": {"blue"},
		"Via": {"1.1 x"}, "X-Instance-Name": {"x"}, "X-Tenant-Name": {"x"}, "X-Project-Id": {"blue"}, "X-Forwarded-Port": {"80"},
		"Connection": {"X-Instance-ID, X-Tenant-ID, X-Instance-ID-Signature, X-Forwarded-For, Upgrade"}, "Upgrade": {"websocket"},
	}
	if code, body := ask(p, two, forged); code != 200 || body != "vm2 [red] [10.5.0.11] /x" {
		t.Errorf("forged: %d %q", code, body)
	}
	if code, body := ask(p, netip.MustParseAddr("240.0.0.9"), get("/")); code != 404 || !strings.Contains(body, "No instance") {
		t.Errorf("of nobody: %d %q", code, body)
	}
	post := httptest.NewRequest(http.MethodPost, "/openstack/latest/password", strings.NewReader("word"))
	if code, body := ask(p, one, post); code != 200 || body != "vm1 [blue] [10.5.0.11] /openstack/latest/password word" {
		t.Errorf("POST: %d %q", code, body)
	}
	p.Give(&Service{Clients: map[netip.Addr]Client{}})
	if code, _ := ask(p, one, get("/")); code != 404 {
		t.Errorf("of a VM that is gone: %d", code)
	}
	if got := p.Totals(); got["answered"] != 3 || got["unknown"] != 2 {
		t.Errorf("totals %v", got)
	}
}

// A VM that asks too often, or too much, is told so; others are answered.
func TestBounds(t *testing.T) {
	p := newProxy(t, nova)
	now := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	p.now = func() time.Time { return now }
	for range requestBurst {
		if end, ok := p.bounds.begin(one, now); ok {
			end()
		}
	}
	if code, _ := ask(p, one, get("/")); code != 429 {
		t.Errorf("too many: %d", code)
	}
	if code, _ := ask(p, two, get("/")); code != 200 {
		t.Errorf("another VM: %d", code)
	}
	now = now.Add(requestEvery)
	if code, _ := ask(p, one, get("/")); code != 200 {
		t.Errorf("after a while: %d", code)
	}
	now = now.Add(time.Hour)
	for range clientRequests {
		if _, ok := p.bounds.begin(one, now); !ok {
			t.Fatal("refused")
		}
	}
	if code, _ := ask(p, one, get("/")); code != 429 {
		t.Errorf("too many at a time: %d", code)
	}
	large := bytes.Repeat([]byte("x"), bodyBytes+1)
	if code, _ := ask(p, two, httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(large))); code != 413 {
		t.Errorf("large body: %d", code)
	}
	unsaid := httptest.NewRequest(http.MethodPost, "/", struct{ io.Reader }{bytes.NewReader(large)})
	unsaid.ContentLength = -1
	if code, _ := ask(p, two, unsaid); code != 413 {
		t.Errorf("large body of no length: %d", code)
	}
	if code, _ := ask(p, two, httptest.NewRequest(http.MethodConnect, "/", nil)); code != 405 {
		t.Errorf("CONNECT: %d", code)
	}
}

// A body that a VM does not send as it said is the VM's fault, not Nova's.
func TestBadBody(t *testing.T) {
	p := newProxy(t, nova)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.RemoteAddr = netip.AddrPortFrom(one, 40000).String()
		p.ServeHTTP(w, r)
	}))
	defer server.Close()
	for _, chunk := range []string{"xyz\r\n", "4\r\nabcdefg\r\n", "-1\r\n"} {
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
		_, _ = io.WriteString(conn, "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"+chunk)
		if answer, err := io.ReadAll(conn); err != nil || !bytes.HasPrefix(answer, []byte("HTTP/1.1 400 ")) {
			t.Errorf("%q: %v, %q", chunk, err, answer)
		}
		_ = conn.Close()
	}
	if got := p.Totals(); got["refused"] != 3 || got["unreachable"] != 0 {
		t.Errorf("totals %v", got)
	}
}

// Nova away, or silent, is a sentence.
func TestNovaAway(t *testing.T) {
	p := newProxy(t, nova)
	p.forward.Transport = away{errors.New("connection refused")}
	if code, body := ask(p, one, get("/")); code != 502 || body != "Nova's metadata service cannot be reached." {
		t.Errorf("%d %q", code, body)
	}
	p.forward.Transport = away{context.DeadlineExceeded}
	if code, body := ask(p, one, get("/")); code != 504 || body != "Nova's metadata service did not answer in time." {
		t.Errorf("%d %q", code, body)
	}
	if got := p.Totals(); got["unreachable"] != 1 || got["timeout"] != 1 {
		t.Errorf("totals %v", got)
	}
}

type away struct{ err error }

func (a away) RoundTrip(*http.Request) (*http.Response, error) { return nil, a.err }

// What the device lacks is made, in an order that works, and nothing of it twice.
func TestLacks(t *testing.T) {
	var lines []string
	for _, c := range served.Lacks(Link{Index: 3, Addresses: []netip.Prefix{netip.MustParsePrefix("240.1.0.1/16")}}) {
		lines = append(lines, c.Line("tap-meta"))
	}
	want := "ip link set tap-meta address 02:00:00:00:00:01, ip address delete 240.1.0.1/16 dev tap-meta, ip address add 127.0.0.1/8 dev tap-meta, ip link set tap-meta up"
	if got := strings.Join(lines, ", "); got != want {
		t.Errorf("%s", got)
	}
	if left := served.Lacks(Link{Index: 3, MAC: served.MAC, Up: true, Addresses: []netip.Prefix{served.Address}}); len(left) != 0 {
		t.Errorf("%v", left)
	}
}

// fakeHost is a host with a device that comes and goes.
type fakeHost struct {
	mu      sync.Mutex
	link    Link
	at      []string
	changed func()
}

func (f *fakeHost) Look(context.Context, string) (Link, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.link, nil
}

func (f *fakeHost) Change(_ context.Context, _ string, _ int, c Change) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case c.Add.IsValid():
		f.link.Addresses = append(f.link.Addresses, c.Add)
	case c.Up:
		f.link.Up = true
	default:
		f.link.MAC = c.MAC
	}
	return nil
}

func (f *fakeHost) Watch(ctx context.Context, _ string, changed func()) error {
	f.mu.Lock()
	f.changed = changed
	f.mu.Unlock()
	changed()
	<-ctx.Done()
	return ctx.Err()
}

func (f *fakeHost) Listen(ctx context.Context, _ string, at netip.AddrPort) (net.Listener, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp4", at.String())
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil {
		f.at = append(f.at, l.Addr().String())
	}
	return l, err
}

func (f *fakeHost) set(l Link) {
	f.mu.Lock()
	f.link = l
	changed := f.changed
	f.mu.Unlock()
	if changed != nil {
		changed()
	}
}

// The proxy waits for the device, listens on its address, and does so again when the switch has made the device anew. A client with too many connections is hung up on.
func TestDeviceComesAndGoes(t *testing.T) {
	p := newProxy(t, nova)
	host := &fakeHost{}
	p.host = host
	ctx, cancel := context.WithCancel(t.Context())
	states, done := make(chan State, 10), make(chan error)
	go func() { done <- p.Run(ctx, func(s State) { states <- s }) }()
	if s := <-states; s.Listening || s.Reason != "device tap-meta does not exist yet" {
		t.Fatalf("%+v", s)
	}
	host.set(Link{Index: 7})
	if s := <-states; !s.Listening {
		t.Fatalf("%+v", s)
	}
	var open []net.Conn
	for range clientConnections {
		c, err := net.Dial("tcp", host.at[0])
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, c)
	}
	if r, err := (&http.Client{Timeout: 5 * time.Second}).Get("http://" + host.at[0]); err == nil {
		_ = r.Body.Close()
		t.Error("one connection more was taken")
	}
	for _, c := range open {
		_ = c.Close()
	}
	host.set(Link{})
	if s := <-states; s.Listening {
		t.Fatalf("%+v", s)
	}
	host.set(Link{Index: 8})
	if s := <-states; !s.Listening || len(host.at) != 2 {
		t.Fatalf("%+v at %v", s, host.at)
	}
	r, err := (&http.Client{Timeout: 5 * time.Second}).Get("http://" + host.at[1])
	if err != nil {
		t.Fatal(err)
	}
	if _ = r.Body.Close(); r.StatusCode != http.StatusNotFound {
		t.Errorf("status %d for an address of no VM", r.StatusCode)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
