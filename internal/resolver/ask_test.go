// SPDX-License-Identifier: Apache-2.0

package resolver

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// peers are resolvers in memory, by address. Each gets a question and the network, and sends messages.
type peers map[string]func(network string, asked *dns.Msg, send func(*dns.Msg))

// dialed counts what was dialled.
type dialed struct {
	mu    sync.Mutex
	calls []string
	ids   map[uint16]bool
}

func (p peers) client() (*Client, *dialed) {
	d := &dialed{ids: map[uint16]bool{}}
	return &Client{Dial: func(_ context.Context, network, address string) (net.Conn, error) {
		d.mu.Lock()
		d.calls = append(d.calls, network+" "+address)
		d.mu.Unlock()
		peer := p[address]
		if peer == nil {
			return nil, errors.New("no route")
		}
		ours, theirs := net.Pipe()
		go func() {
			defer func() { _ = theirs.Close() }()
			buffer := make([]byte, 2000)
			n, err := theirs.Read(buffer)
			if err != nil {
				return
			}
			text := buffer[:n]
			if network == "tcp" {
				text = text[2:]
			}
			asked := new(dns.Msg)
			if err := asked.Unpack(text); err != nil {
				return
			}
			d.mu.Lock()
			d.ids[asked.Id] = true
			d.mu.Unlock()
			peer(network, asked, func(m *dns.Msg) {
				b, err := m.Pack()
				if err != nil {
					return
				}
				if network == "tcp" {
					b = append(binary.BigEndian.AppendUint16(nil, uint16(len(b))), b...)
				}
				_, _ = theirs.Write(b)
			})
			_, _ = io.Copy(io.Discard, theirs) // until it hangs up
		}()
		return ours, nil
	}}, d
}

// says answers with a code and so many records.
func says(code int, t *testing.T, records int) func(string, *dns.Msg, func(*dns.Msg)) {
	return func(_ string, asked *dns.Msg, send func(*dns.Msg)) {
		m := new(dns.Msg)
		m.SetRcode(asked, code)
		m.Answer = many(t, records)
		send(m)
	}
}

// silent says nothing.
func silent(string, *dns.Msg, func(*dns.Msg)) {}

func question(t testing.TB, servers ...string) Ask {
	t.Helper()
	q, _, err := Read(ofGuest(t, func(m *dns.Msg) { m.SetEdns0(4096, false) }))
	if err != nil {
		t.Fatal(err)
	}
	a := Ask{Number: 7, Query: q, Most: 1400, Timeout: 4 * time.Second}
	for _, s := range servers {
		a.Servers = append(a.Servers, netip.MustParseAddrPort(s))
	}
	return a
}

const first, second = "192.0.2.1:53", "[2001:db8::2]:53"

// TestAskInOrder: the first resolver is asked; the next one if it fails, refuses, or has had its share of the time. The rest of the time it may still answer.
func TestAskInOrder(t *testing.T) {
	for name, c := range map[string]struct {
		one, two func(string, *dns.Msg, func(*dns.Msg))
		from     string
		code     int
		after    time.Duration
	}{
		"the first answers":                     {says(0, t, 1), says(0, t, 2), first, 0, 0},
		"the name does not exist":               {says(dns.RcodeNameError, t, 0), says(0, t, 2), first, dns.RcodeNameError, 0},
		"the first is away":                     {nil, says(0, t, 1), second, 0, 0},
		"the first fails":                       {says(dns.RcodeServerFailure, t, 0), says(0, t, 1), second, 0, 0},
		"the first refuses, the second also":    {says(dns.RcodeRefused, t, 0), says(dns.RcodeServerFailure, t, 0), second, dns.RcodeServerFailure, 0},
		"the first refuses, the second is away": {says(dns.RcodeRefused, t, 0), nil, first, dns.RcodeRefused, 0},
		"the first is silent":                   {silent, says(0, t, 1), second, 0, 2 * time.Second},
		"the first is late": {func(n string, asked *dns.Msg, send func(*dns.Msg)) {
			time.Sleep(3 * time.Second)
			says(0, t, 1)(n, asked, send)
		}, silent, first, 0, 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, d := peers{first: c.one, second: c.two}.client()
				began := time.Now()
				a, err := client.Ask(t.Context(), question(t, first, second))
				if err != nil || a.Number != 7 || a.From.String() != c.from || time.Since(began) != c.after {
					t.Fatalf("%+v, %v after %s", a, err, time.Since(began))
				}
				if m := read(t, a.Message, nil); m.Rcode != c.code {
					t.Errorf("%v", m)
				}
				if name == "the first answers" && len(d.calls) != 1 {
					t.Errorf("asked %v", d.calls)
				}
			})
		})
	}
}

// TestNobodyAnswers: it is over when the time is, whoever was asked.
func TestNobodyAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, d := peers{first: silent}.client()
		began := time.Now()
		if a, err := client.Ask(t.Context(), question(t, first)); err == nil || a.Number != 7 || time.Since(began) != 4*time.Second {
			t.Errorf("%+v, %v after %s", a, err, time.Since(began))
		}
		synctest.Wait()
		d.mu.Lock()
		defer d.mu.Unlock()
		if len(d.calls) != 2 || len(d.ids) != 2 {
			t.Errorf("a single resolver was asked %v under %v", d.calls, d.ids)
		}
	})
	if _, err := (&Client{}).Ask(t.Context(), question(t)); err == nil {
		t.Error("nobody was asked, and answered")
	}
}

// TestForged: an answer under another id, or to another question, is passed over. After too many of them the question goes over TCP.
func TestForged(t *testing.T) {
	lie := func(change func(*dns.Msg)) func(*dns.Msg, func(*dns.Msg)) {
		return func(asked *dns.Msg, send func(*dns.Msg)) {
			m := new(dns.Msg)
			m.SetReply(asked)
			m.Answer = []dns.RR{record(t, "www.example.org. 60 A 192.0.2.66")}
			change(m)
			send(m)
		}
	}
	lies := map[string]func(*dns.Msg, func(*dns.Msg)){
		"the id":       lie(func(m *dns.Msg) { m.Id++ }),
		"the name":     lie(func(m *dns.Msg) { m.Question[0].Name = "other.example.org." }),
		"the type":     lie(func(m *dns.Msg) { m.Question[0].Qtype = dns.TypeTXT }),
		"the class":    lie(func(m *dns.Msg) { m.Question[0].Qclass = dns.ClassCHAOS }),
		"no question":  lie(func(m *dns.Msg) { m.Question = nil }),
		"the question": lie(func(m *dns.Msg) { m.Response = false }),
	}
	for name, lie := range lies {
		client, d := peers{first: func(_ string, asked *dns.Msg, send func(*dns.Msg)) {
			lie(asked, send)
			says(0, t, 1)("", asked, send)
		}}.client()
		a, err := client.Ask(t.Context(), question(t, first))
		if err != nil || len(d.calls) != 1 {
			t.Fatalf("%s: %v, asked %v", name, err, d.calls)
		}
		if m := read(t, a.Message, nil); len(m.Answer) != 1 || m.Answer[0].Header().Rrtype != dns.TypeTXT {
			t.Errorf("%s: %v", name, m)
		}
	}
	client, d := peers{first: func(network string, asked *dns.Msg, send func(*dns.Msg)) {
		if network == "tcp" {
			says(0, t, 1)("", asked, send)
			return
		}
		for range maxForged {
			lies["the id"](asked, send)
		}
	}}.client()
	if a, err := client.Ask(t.Context(), question(t, first)); err != nil || len(d.calls) != 2 || d.calls[1] != "tcp "+first {
		t.Errorf("%+v, %v, asked %v", a, err, d.calls)
	}
}

// TestTruncated: an answer that does not fit into a datagram comes over TCP, if the guest takes more than a datagram.
func TestTruncated(t *testing.T) {
	tell := func(tcp bool) func(string, *dns.Msg, func(*dns.Msg)) {
		return func(network string, asked *dns.Msg, send func(*dns.Msg)) {
			m := new(dns.Msg)
			m.SetReply(asked)
			if network == "udp" {
				m.Truncated = true
			} else if m.Answer = many(t, 300); !tcp {
				return
			}
			send(m)
		}
	}
	for name, c := range map[string]struct {
		most, records, calls int
		tcp                  bool
	}{
		"the guest takes more":            {1400, 300, 2, true},
		"the guest takes no more":         {1232, 0, 1, true},
		"the resolver does not speak TCP": {1400, 0, 2, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			client, d := peers{first: tell(c.tcp)}.client()
			a := question(t, first)
			a.Most = c.most
			got, err := client.Ask(t.Context(), a)
			if err != nil && c.tcp || len(d.calls) < c.calls {
				t.Fatalf("%s: %v, asked %v", name, err, d.calls)
			}
			if err == nil {
				if m := read(t, got.Message, nil); len(m.Answer) != c.records || m.Truncated != (c.records == 0) {
					t.Errorf("%s: %d records, truncated %v", name, len(m.Answer), m.Truncated)
				}
			}
		})
	}
}

// TestAskReally asks resolvers over the loopback device: what another socket sends does not count.
func TestAskReally(t *testing.T) {
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	other, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var ports atomic.Pointer[map[string]bool]
	ports.Store(&map[string]bool{})
	s := &dns.Server{PacketConn: server, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, asked *dns.Msg) {
		next := map[string]bool{w.RemoteAddr().String(): true}
		for at := range *ports.Load() {
			next[at] = true
		}
		ports.Store(&next)
		forged := new(dns.Msg)
		forged.SetReply(asked)
		forged.Answer = many(t, 9)
		if b, err := forged.Pack(); err == nil {
			_, _ = other.WriteTo(b, w.RemoteAddr())
		}
		m := new(dns.Msg)
		m.SetReply(asked)
		m.Answer = many(t, 1)
		_ = w.WriteMsg(m)
	})}
	done := make(chan error)
	go func() { done <- s.ActivateAndServe() }()
	for range 5 {
		a, err := (&Client{}).Ask(t.Context(), question(t, server.LocalAddr().String()))
		if err != nil {
			t.Fatal(err)
		}
		if m := read(t, a.Message, nil); len(m.Answer) != 1 {
			t.Errorf("what another sent counts: %v", m)
		}
	}
	if n := len(*ports.Load()); n != 5 {
		t.Errorf("%d source ports for 5 questions", n)
	}
	if err := s.Shutdown(); err != nil {
		t.Error(err)
	}
	_ = other.Close()
	<-done
}
