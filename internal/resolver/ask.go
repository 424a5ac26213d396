// SPDX-License-Identifier: Apache-2.0

package resolver

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/miekg/dns"
)

// Ask is a question for resolvers. It has plain values only.
type Ask struct {
	Number  uint64 // by which who asks knows the answer again
	Query   Query
	Most    int              // bytes of the longest answer that is of use
	Servers []netip.AddrPort // in this order
	Timeout time.Duration    // for all of them together
}

// String prints everything.
func (a Ask) String() string {
	return fmt.Sprintf("question %d, %+v, at most %d bytes, to %v within %s", a.Number, a.Query, a.Most, a.Servers, a.Timeout)
}

// Answer is what a resolver said to a question.
type Answer struct {
	Number  uint64
	Message []byte // as [Query.Answer] takes it
	From    netip.AddrPort
}

// Client asks resolvers. The zero value works.
type Client struct {
	// Dial connects to a resolver; nil: from the host.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// maxForged is how many packets of a resolver's address may be no answer to the question before it is asked over TCP, where nobody else can answer.
const maxForged = 8

// Ask asks resolvers one after the other: the next one as soon as one fails, or after its share of the time. One that was asked may still answer
// then. The first answer that says something counts; without one, a resolver's refusal does. A single resolver is asked twice.
func (c *Client) Ask(ctx context.Context, a Ask) (Answer, error) {
	if len(a.Servers) == 0 {
		return Answer{Number: a.Number}, errors.New("there is no resolver to ask")
	}
	var beside sync.WaitGroup
	defer beside.Wait()
	ctx, cancel := context.WithTimeout(ctx, a.Timeout)
	defer cancel()
	type outcome struct {
		Answer
		decides bool
		err     error
	}
	attempts := max(2, len(a.Servers))
	ended := make(chan outcome, attempts)
	share := time.NewTicker(max(a.Timeout/time.Duration(attempts), time.Millisecond))
	defer share.Stop()
	begun, running := 0, 0
	begin := func() {
		if begun == attempts {
			return
		}
		server := a.Servers[begun%len(a.Servers)]
		begun++
		running++
		beside.Go(func() {
			o := outcome{Answer: Answer{Number: a.Number, From: server}}
			o.Message, o.decides, o.err = c.one(ctx, &a, server)
			ended <- o
		})
	}
	refused, errs := outcome{}, []error(nil)
	for begin(); running > 0; {
		select {
		case o := <-ended:
			running--
			switch {
			case o.err == nil && o.decides:
				return o.Answer, nil
			case o.err == nil:
				refused = o
			default:
				errs = append(errs, fmt.Errorf("asking %s: %w", o.From, o.err))
			}
			begin()
		case <-share.C:
			begin()
		}
	}
	if refused.Message != nil {
		return refused.Answer, nil
	}
	return Answer{Number: a.Number}, errors.Join(errs...)
}

// one asks one resolver, over UDP and, if the answer does not fit or others answer in its place, over TCP. Decides: no other needs to be asked.
func (c *Client) one(ctx context.Context, a *Ask, server netip.AddrPort) (message []byte, decides bool, err error) {
	m, message, err := c.exchange(ctx, a, server, "udp")
	told := leastReply
	if a.Query.EDNS {
		told = edns
	}
	if errors.Is(err, errForged) || err == nil && m.Truncated && a.Most > told {
		whole, text, failed := c.exchange(ctx, a, server, "tcp")
		if failed == nil {
			m, message, err = whole, text, nil
		}
	}
	if err != nil {
		return nil, false, err
	}
	switch m.Rcode {
	case dns.RcodeServerFailure, dns.RcodeRefused, dns.RcodeNotImplemented, dns.RcodeFormatError:
		return message, false, nil
	}
	return message, true, nil
}

var errForged = errors.New("others send answers in the resolver's name")

// exchange sends a question by a socket of its own, and returns the answer to it.
func (c *Client) exchange(ctx context.Context, a *Ask, server netip.AddrPort, network string) (*dns.Msg, []byte, error) {
	var id [2]byte
	_, _ = rand.Read(id[:]) // never fails
	number := binary.BigEndian.Uint16(id[:])
	question, err := a.Query.ask(number)
	if err != nil {
		return nil, nil, err
	}
	conn, err := c.dial(ctx, network, server.String())
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = conn.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if network == "tcp" {
		return overTCP(conn, a, number, question)
	}
	return overUDP(conn, a, number, question)
}

func (c *Client) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if c.Dial != nil {
		return c.Dial(ctx, network, address)
	}
	return (&net.Dialer{}).DialContext(ctx, network, address)
}

// overUDP exchanges messages over a socket that is connected, so that the kernel drops what others send. What comes and is no answer is passed over.
func overUDP(conn net.Conn, a *Ask, number uint16, question []byte) (*dns.Msg, []byte, error) {
	if _, err := conn.Write(question); err != nil {
		return nil, nil, err
	}
	buffer := make([]byte, 1<<12)
	for range maxForged {
		n, err := conn.Read(buffer)
		if err != nil {
			return nil, nil, err
		}
		if m := a.answer(buffer[:n], number); m != nil {
			return m, append([]byte(nil), buffer[:n]...), nil
		}
	}
	return nil, nil, errForged
}

func overTCP(conn net.Conn, a *Ask, number uint16, question []byte) (*dns.Msg, []byte, error) {
	if _, err := conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(question))), question...)); err != nil { //nolint:gosec // it is short
		return nil, nil, err
	}
	var length [2]byte
	if _, err := io.ReadFull(conn, length[:]); err != nil {
		return nil, nil, err
	}
	message := make([]byte, binary.BigEndian.Uint16(length[:]))
	if _, err := io.ReadFull(conn, message); err != nil {
		return nil, nil, err
	}
	m := a.answer(message, number)
	if m == nil {
		return nil, nil, errMessage
	}
	return m, message, nil
}

// answer reads a message, and returns it if it answers the question that was sent under an id.
func (a *Ask) answer(message []byte, id uint16) *dns.Msg {
	var m dns.Msg
	if unpack(&m, message) != nil || m.Id != id || !a.Query.answeredBy(&m) {
		return nil
	}
	return &m
}
