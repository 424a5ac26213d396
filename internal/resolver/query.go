// SPDX-License-Identifier: Apache-2.0

// Package resolver reads the DNS queries of guests, asks resolvers for the answers, and makes of them what a guest is sent.
//
// In: the bytes of a query, which nobody has checked. Out: a [Query] of plain values, or the code to refuse it with ([Read]). [Client.Ask] asks; it is the
// only function that waits. [Query.Answer] turns what a resolver said into the message for the guest.
//
// A resolver never sees a guest's message, and a guest never sees a resolver's: both are written anew from what was understood of the other. Every
// question goes out with an id of its own, by a socket of its own, and an answer counts if id, question and sender are those that were asked.
package resolver

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/miekg/dns"
)

// Bounds of messages, in bytes. A query is a name and some flags; what is longer is none.
const (
	MaxQuery   = 1232
	leastReply = 512  // what every client takes over UDP
	edns       = 1232 // what resolvers are told to send over UDP: no fragments on any path of IPv6; the rest comes over TCP
)

// Question is what is asked for.
type Question struct {
	Name        string // absolute, as it was written
	Type, Class uint16
}

// Kind returns the name of the type that is asked for.
func (q Question) Kind() string { return dns.Type(q.Type).String() }

// Query is a query of a guest.
type Query struct {
	Question
	ID               uint16 // the guest's
	RecursionDesired bool
	CheckingDisabled bool
	AuthenticData    bool
	// EDNS: the guest takes answers of Size bytes, and with DNSSEC signatures.
	EDNS, DNSSEC bool
	Size         int
}

// Codes with which queries are refused, besides 0 for one that may be asked.
const (
	FormatError = dns.RcodeFormatError
	ServFail    = dns.RcodeServerFailure
	NotImp      = dns.RcodeNotImplemented
	Refused     = dns.RcodeRefused
	badVersion  = dns.RcodeBadVers
)

var errMessage = errors.New("not a DNS query")

// Read reads a query. With a code it is one, and may not be asked; with an error it gets no answer at all: it is none, or an answer itself.
func Read(b []byte) (q Query, code int, err error) {
	var m dns.Msg
	if len(b) > MaxQuery {
		return q, 0, errMessage
	}
	if err := unpack(&m, b); err != nil {
		return q, 0, err
	}
	if m.Response || len(m.Question) != 1 || len(m.Answer)+len(m.Ns)+len(m.Extra) != records(b) || m.Len() > len(b) { // the parser takes what is cut
		return q, 0, errMessage
	}
	asked := m.Question[0]
	q = Query{
		Question: Question{Name: asked.Name, Type: asked.Qtype, Class: asked.Qclass}, ID: m.Id,
		RecursionDesired: m.RecursionDesired, CheckingDisabled: m.CheckingDisabled, AuthenticData: m.AuthenticatedData, Size: leastReply,
	}
	opt := m.IsEdns0()
	if opt != nil {
		q.EDNS, q.DNSSEC, q.Size = true, opt.Do(), max(int(opt.UDPSize()), leastReply)
	}
	switch {
	case m.Opcode != dns.OpcodeQuery:
		return q, NotImp, nil
	case opt != nil && opt.Version() != 0:
		return q, badVersion, nil
	case len(m.Answer) > 0 || len(m.Ns) > 0 || len(m.Extra) > 1 || len(m.Extra) == 1 && opt == nil:
		return q, FormatError, nil
	case asked.Qclass != dns.ClassINET: // others are about the resolver itself
		return q, Refused, nil
	case asked.Qtype == dns.TypeAXFR, asked.Qtype == dns.TypeIXFR, asked.Qtype == dns.TypeMAILA, asked.Qtype == dns.TypeMAILB, asked.Qtype == dns.TypeOPT:
		return q, Refused, nil // whole zones, and what is no question
	}
	return q, 0, nil
}

// records returns how many records the header of a message promises, besides questions.
func records(b []byte) (n int) {
	for _, at := range []int{6, 8, 10} {
		n += int(binary.BigEndian.Uint16(b[at:]))
	}
	return n
}

// unpack reads a message. A panic of the parser is an error.
func unpack(m *dns.Msg, b []byte) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: the parser panics: %v", errMessage, p)
		}
	}()
	if err := m.Unpack(b); err != nil {
		return fmt.Errorf("%w: %w", errMessage, err)
	}
	return nil
}

// Refuse returns the answer to a query that says no more than a code.
func (q Query) Refuse(code int) ([]byte, error) {
	m := q.reply(&dns.Msg{MsgHdr: dns.MsgHdr{Rcode: code, RecursionAvailable: true}})
	return m.Pack()
}

// Answer returns the answer to a query, made from that of a resolver, in at most so many bytes. What does not fit is left out, and the answer says so.
func (q Query) Answer(from []byte, most int) ([]byte, error) {
	var m dns.Msg
	if err := unpack(&m, from); err != nil {
		return nil, err
	}
	if !q.answeredBy(&m) {
		return nil, fmt.Errorf("%w: the answer is to another question", errMessage)
	}
	reply := q.reply(&m)
	reply.Truncate(min(q.Size, most))
	out, err := reply.Pack()
	if err == nil && len(out) > most { // no record fits at all
		reply.Truncated, reply.Answer, reply.Ns, reply.Extra = true, nil, nil, nil
		return reply.Pack()
	}
	return out, err
}

// reply returns a message for the guest with what another one says. EDNS is between neighbours: the resolver's options stay here.
func (q Query) reply(m *dns.Msg) *dns.Msg {
	out := &dns.Msg{
		MsgHdr: dns.MsgHdr{
			Id: q.ID, Response: true, Authoritative: m.Authoritative, RecursionDesired: q.RecursionDesired, RecursionAvailable: m.RecursionAvailable,
			AuthenticatedData: m.AuthenticatedData, CheckingDisabled: q.CheckingDisabled, Truncated: m.Truncated, Rcode: m.Rcode,
		},
		Question: []dns.Question{{Name: q.Name, Qtype: q.Type, Qclass: q.Class}}, Answer: m.Answer, Ns: m.Ns,
	}
	for _, rr := range m.Extra {
		if _, is := rr.(*dns.OPT); !is && rr.Header().Rrtype != dns.TypeTSIG && rr.Header().Rrtype != dns.TypeSIG {
			out.Extra = append(out.Extra, rr)
		}
	}
	if q.EDNS {
		out.SetEdns0(edns, q.DNSSEC)
	} else if out.Rcode > 0xf { // needs EDNS to be said
		out.Rcode = ServFail
	}
	return out
}

// answeredBy returns whether a message is an answer to the question.
func (q Query) answeredBy(m *dns.Msg) bool {
	if !m.Response || m.Opcode != dns.OpcodeQuery || len(m.Question) != 1 {
		return false
	}
	asked := m.Question[0]
	return asked.Qtype == q.Type && asked.Qclass == q.Class && strings.EqualFold(asked.Name, q.Name)
}

// ask returns the message that a resolver gets.
func (q Query) ask(id uint16) ([]byte, error) {
	m := &dns.Msg{
		MsgHdr:   dns.MsgHdr{Id: id, RecursionDesired: q.RecursionDesired, CheckingDisabled: q.CheckingDisabled, AuthenticatedData: q.AuthenticData},
		Question: []dns.Question{{Name: q.Name, Qtype: q.Type, Qclass: q.Class}},
	}
	if q.EDNS {
		m.SetEdns0(edns, q.DNSSEC)
	}
	return m.Pack()
}
