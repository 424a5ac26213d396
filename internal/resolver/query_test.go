// SPDX-License-Identifier: Apache-2.0

package resolver

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"
)

// ofGuest returns a query as a guest sends it.
func ofGuest(t testing.TB, change ...func(*dns.Msg)) []byte {
	t.Helper()
	m := new(dns.Msg)
	m.SetQuestion("www.Example.org.", dns.TypeA)
	m.Id = 4711
	for _, f := range change {
		f(m)
	}
	b, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func record(t testing.TB, text string) dns.RR {
	t.Helper()
	rr, err := dns.NewRR(text)
	if err != nil {
		t.Fatal(err)
	}
	return rr
}

// TestRead: what a guest may ask is read, what it may not gets a code, and what is no query gets nothing.
func TestRead(t *testing.T) {
	q, code, err := Read(ofGuest(t, func(m *dns.Msg) { m.SetEdns0(4096, true); m.CheckingDisabled, m.AuthenticatedData = true, true }))
	want := Query{Question: Question{"www.Example.org.", dns.TypeA, dns.ClassINET}, ID: 4711, RecursionDesired: true, CheckingDisabled: true, AuthenticData: true, EDNS: true, DNSSEC: true, Size: 4096}
	if q != want || code != 0 || err != nil {
		t.Errorf("%+v, %d, %v", q, code, err)
	}
	if q, code, err = Read(ofGuest(t)); q.EDNS || q.Size != 512 || code != 0 || err != nil {
		t.Errorf("%+v, %d, %v", q, code, err)
	}
	if q, _, _ = Read(ofGuest(t, func(m *dns.Msg) { m.SetEdns0(100, false) })); q.Size != 512 {
		t.Errorf("answers of %d bytes, though everybody takes 512", q.Size)
	}
	for name, c := range map[string]struct {
		change func(*dns.Msg)
		code   int
	}{
		"an update":            {func(m *dns.Msg) { m.Opcode = dns.OpcodeUpdate }, NotImp},
		"a notification":       {func(m *dns.Msg) { m.Opcode = dns.OpcodeNotify }, NotImp},
		"a later EDNS":         {func(m *dns.Msg) { m.SetEdns0(1232, false); m.IsEdns0().SetVersion(1) }, badVersion},
		"with an answer":       {func(m *dns.Msg) { m.Answer = []dns.RR{record(t, "x. A 192.0.2.1")} }, FormatError},
		"with an authority":    {func(m *dns.Msg) { m.Ns = []dns.RR{record(t, "x. NS y.")} }, FormatError},
		"with another record":  {func(m *dns.Msg) { m.Extra = []dns.RR{record(t, "x. A 192.0.2.1")} }, FormatError},
		"a zone":               {func(m *dns.Msg) { m.Question[0].Qtype = dns.TypeAXFR }, Refused},
		"a part of a zone":     {func(m *dns.Msg) { m.Question[0].Qtype = dns.TypeIXFR }, Refused},
		"the resolver's class": {func(m *dns.Msg) { m.SetQuestion("version.bind.", dns.TypeTXT); m.Question[0].Qclass = dns.ClassCHAOS }, Refused},
		"any class":            {func(m *dns.Msg) { m.Question[0].Qclass = dns.ClassANY }, Refused},
	} {
		if _, code, err := Read(ofGuest(t, c.change)); err != nil || code != c.code {
			t.Errorf("%s: code %d, %v; want %d", name, code, err, c.code)
		}
	}
	for name, b := range map[string][]byte{
		"an answer":      ofGuest(t, func(m *dns.Msg) { m.Response = true }),
		"no question":    ofGuest(t, func(m *dns.Msg) { m.Question = nil }),
		"two questions":  ofGuest(t, func(m *dns.Msg) { m.Question = append(m.Question, m.Question[0]) }),
		"a long one":     append(ofGuest(t), make([]byte, MaxQuery)...),
		"nothing":        nil,
		"a name of ever": append(ofGuest(t)[:12], 0xc0, 12, 0, 1, 0, 1),
	} {
		if q, code, err := Read(b); err == nil {
			t.Errorf("%s is read: %+v, code %d", name, q, code)
		}
	}
	for _, whole := range [][]byte{ofGuest(t), ofGuest(t, func(m *dns.Msg) { m.SetEdns0(1232, false) })} {
		for n := range whole {
			if q, code, err := Read(whole[:n]); err == nil {
				t.Errorf("%d of %d bytes are read: %+v, code %d", n, len(whole), q, code)
			}
		}
	}
}

// ofResolver returns an answer as a resolver sends it.
func ofResolver(t testing.TB, q Query, change ...func(*dns.Msg)) []byte {
	t.Helper()
	text, err := q.ask(99)
	if err != nil {
		t.Fatal(err)
	}
	asked, m := new(dns.Msg), new(dns.Msg)
	if err := asked.Unpack(text); err != nil {
		t.Fatal(err)
	}
	m.SetReply(asked)
	m.RecursionAvailable = true
	for _, f := range change {
		f(m)
	}
	b, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func many(t testing.TB, n int) []dns.RR {
	var out []dns.RR
	for i := range n {
		out = append(out, record(t, fmt.Sprintf("www.example.org. 60 TXT %q", strings.Repeat("x", 50)+fmt.Sprint(i))))
	}
	return out
}

func read(t testing.TB, b []byte, err error) *dns.Msg {
	t.Helper()
	m := new(dns.Msg)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Unpack(b); err != nil {
		t.Fatal(err)
	}
	return m
}

// TestAnswer: the guest gets what the resolver said under its own id, in as many bytes as it takes and the network carries.
func TestAnswer(t *testing.T) {
	q, _, _ := Read(ofGuest(t, func(m *dns.Msg) { m.SetEdns0(4096, true) }))
	plain, _, _ := Read(ofGuest(t))
	b, err := q.Answer(ofResolver(t, q, func(m *dns.Msg) {
		m.Answer, m.AuthenticatedData = []dns.RR{record(t, "www.example.org. 60 A 192.0.2.7")}, true
		m.SetEdns0(512, true)
		m.IsEdns0().Option = append(m.IsEdns0().Option, &dns.EDNS0_COOKIE{Code: dns.EDNS0COOKIE, Cookie: "0102030405060708"})
	}), 1472)
	m := read(t, b, err)
	if m.Id != 4711 || !m.Response || !m.RecursionAvailable || !m.AuthenticatedData || len(m.Answer) != 1 || m.Question[0].Name != "www.Example.org." || m.IsEdns0() == nil || !m.IsEdns0().Do() || len(m.IsEdns0().Option) != 0 || len(m.Extra) != 1 {
		t.Errorf("%v", m)
	}
	b, err = plain.Answer(ofResolver(t, plain, func(m *dns.Msg) {
		m.SetEdns0(1232, false)
		m.Rcode = dns.RcodeNameError
		m.Ns = []dns.RR{record(t, "org. 60 SOA a. b. 1 2 3 4 5")}
	}), 1472)
	if m = read(t, b, err); m.Rcode != dns.RcodeNameError || len(m.Ns) != 1 || m.IsEdns0() != nil || m.Truncated {
		t.Errorf("%v", m)
	}
	long := ofResolver(t, q, func(m *dns.Msg) { m.Answer = many(t, 30) })
	for most, want := range map[int]int{4096: 30, 1472: 0, 1232: 0, 512: 0, 300: 0} {
		b, err := q.Answer(long, most)
		m := read(t, b, err)
		if len(b) > most || most >= 512 && want == 0 && len(b) < most-100 || want > 0 && len(m.Answer) != want || m.Truncated != (len(m.Answer) < 30) {
			t.Errorf("of %d bytes %d are used, with %d records, truncated %v", most, len(b), len(m.Answer), m.Truncated)
		}
	}
	b, err = plain.Answer(ofResolver(t, plain, func(m *dns.Msg) { m.Answer = many(t, 30) }), 1472)
	if m = read(t, b, err); len(b) > 512 || len(b) < 412 || !m.Truncated {
		t.Errorf("%d bytes to a guest without EDNS, truncated %v", len(b), m.Truncated)
	}
	b, err = plain.Answer(ofResolver(t, plain, func(m *dns.Msg) { m.Truncated = true }), 1472)
	if m = read(t, b, err); !m.Truncated {
		t.Error("that the resolver left something out is not passed on")
	}
	for name, change := range map[string]func(*dns.Msg){
		"another name":  func(m *dns.Msg) { m.Question[0].Name = "evil.example.org." },
		"another type":  func(m *dns.Msg) { m.Question[0].Qtype = dns.TypeAAAA },
		"another class": func(m *dns.Msg) { m.Question[0].Qclass = dns.ClassCHAOS },
		"no question":   func(m *dns.Msg) { m.Question = nil },
		"a query":       func(m *dns.Msg) { m.Response = false },
	} {
		if b, err := q.Answer(ofResolver(t, q, change), 1472); err == nil {
			t.Errorf("%s is passed on: %v", name, read(t, b, nil))
		}
	}
	b, err = plain.Refuse(ServFail)
	if m = read(t, b, err); m.Id != 4711 || m.Rcode != ServFail || !m.Response || len(m.Question) != 1 {
		t.Errorf("%v", m)
	}
	q, code, _ := Read(ofGuest(t, func(m *dns.Msg) { m.SetEdns0(1232, false); m.IsEdns0().SetVersion(1) }))
	b, err = q.Refuse(code)
	if m = read(t, b, err); m.Rcode != badVersion {
		t.Errorf("%v", m)
	}
}

// FuzzRead: whatever a guest and a resolver send, nothing panics; what is asked can be asked, and what is answered fits.
func FuzzRead(f *testing.F) {
	q, _, _ := Read(ofGuest(f, func(m *dns.Msg) { m.SetEdns0(4096, true) }))
	f.Add(ofGuest(f), ofResolver(f, q), 512)
	f.Add(ofGuest(f, func(m *dns.Msg) { m.SetEdns0(4096, true) }), ofResolver(f, q, func(m *dns.Msg) { m.Answer = many(f, 30) }), 1232)
	f.Add(slices.Concat(ofGuest(f)[:12], []byte{0xc0, 12, 0, 1, 0, 1}), []byte{0}, 100)
	f.Fuzz(func(t *testing.T, guest, resolver []byte, most int) {
		q, code, err := Read(guest)
		if err != nil {
			return
		}
		if code != 0 {
			_, _ = q.Refuse(code)
			return
		}
		if _, err := q.ask(1); err != nil {
			t.Errorf("%+v cannot be asked: %v", q, err)
		}
		room := max(most, leastReply)
		if b, err := q.Answer(resolver, room); err == nil && len(b) > room {
			t.Errorf("%d bytes of %d", len(b), room)
		}
	})
}
