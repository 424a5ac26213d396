// SPDX-License-Identifier: Apache-2.0

package ovsdb

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxMessage bounds one message from the server. A dump of 1,000 ports has less than 1 MiB.
	maxMessage = 256 << 20
	// writeTimeout bounds how long the server may leave our bytes unread.
	writeTimeout = 10 * time.Second
)

// session is one JSON-RPC 1.0 connection as RFC 7047 uses it. Everything the server sends is handled in its order by the
// one goroutine that runs serve; notifications and the done functions of calls must therefore not block.
type session struct {
	conn   net.Conn
	notify func(method string, params json.RawMessage) error

	received atomic.Int64 // number of messages, to see a silent server
	ended    chan struct{}

	writing sync.Mutex // not mu, so that reading and closing go on while the server is slow to take our bytes

	mu      sync.Mutex // guards the rest
	pending map[string]*call
	nextID  uint64
	err     error
}

type call struct {
	// done runs in the reader's order, before anything the server sent later. An error ends the session.
	done  func(result json.RawMessage) error
	reply chan error
}

type message struct {
	Method string          `json:"method,omitempty"`
	Params json.RawMessage `json:"params,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
	Error  json.RawMessage `json:"error,omitempty"`
	ID     json.RawMessage `json:"id"`
}

func newSession(conn net.Conn, notify func(string, json.RawMessage) error) *session {
	return &session{conn: conn, notify: notify, ended: make(chan struct{}), pending: map[string]*call{}}
}

// serve reads until the connection ends and returns why. With a probe interval greater than 0 it asks a silent server for
// an echo, and ends the connection when that is not answered either.
func (s *session) serve(ctx context.Context, probe time.Duration) error {
	stop := context.AfterFunc(ctx, func() { s.close(ctx.Err()) })
	var wg sync.WaitGroup
	if probe > 0 {
		wg.Go(func() { s.probe(probe) })
	}
	s.close(s.read())
	stop()
	wg.Wait()
	return s.err
}

// close ends the session for the reason given first. All calls fail with it.
func (s *session) close(reason error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return
	}
	s.err = reason
	close(s.ended)
	_ = s.conn.Close()
	for id, c := range s.pending {
		delete(s.pending, id)
		c.reply <- fmt.Errorf("%w: %w", ErrDisconnected, reason)
	}
}

func (s *session) read() error {
	limited := &boundedReader{r: s.conn}
	dec := json.NewDecoder(limited)
	for {
		limited.left = maxMessage
		var m message
		if err := dec.Decode(&m); err != nil {
			return fmt.Errorf("reading from the database: %w", err)
		}
		s.received.Add(1)
		if err := s.dispatch(&m); err != nil {
			return err
		}
	}
}

func (s *session) dispatch(m *message) error {
	switch {
	case m.Method == "echo" && !isNull(m.ID):
		return s.write(time.Now().Add(writeTimeout), map[string]any{"id": m.ID, "result": m.Params, "error": nil})
	case m.Method != "":
		return s.notify(m.Method, m.Params)
	}
	s.mu.Lock()
	c := s.pending[string(m.ID)]
	delete(s.pending, string(m.ID))
	s.mu.Unlock()
	if c == nil {
		return nil // the caller gave up
	}
	if !isNull(m.Error) {
		c.reply <- &rpcError{text: string(m.Error)}
		return nil
	}
	if err := c.done(m.Result); err != nil {
		c.reply <- err
		return err
	}
	c.reply <- nil
	return nil
}

// call sends a request and waits until done has handled its result.
func (s *session) call(ctx context.Context, method string, params any, done func(json.RawMessage) error) error {
	c := &call{done: done, reply: make(chan error, 1)}
	s.mu.Lock()
	if s.err != nil {
		defer s.mu.Unlock()
		return fmt.Errorf("%w: %w", ErrDisconnected, s.err)
	}
	s.nextID++
	id := strconv.FormatUint(s.nextID, 10)
	s.pending[id] = c
	s.mu.Unlock()

	deadline := time.Now().Add(writeTimeout)
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	if err := s.write(deadline, map[string]any{"id": json.RawMessage(id), "method": method, "params": params}); err != nil {
		s.forget(id)
		return err
	}
	select {
	case err := <-c.reply:
		return err
	case <-ctx.Done():
		if !s.forget(id) {
			return <-c.reply // the answer is being handled right now
		}
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return fmt.Errorf("waiting for the answer to %s: %w", method, ErrTimedOut)
		}
		return fmt.Errorf("waiting for the answer to %s: %w", method, ctx.Err())
	}
}

// forget makes sure that the call is not answered any more. It returns false when that is under way or done.
func (s *session) forget(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.pending[id]
	delete(s.pending, id)
	return ok
}

func (s *session) write(deadline time.Time, m map[string]any) error {
	text, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("encoding a message: %w", err)
	}
	s.writing.Lock()
	if err = s.conn.SetWriteDeadline(deadline); err == nil {
		_, err = s.conn.Write(text)
	}
	s.writing.Unlock()
	if err != nil {
		// Part of the message may be out; nothing sensible can follow.
		s.close(fmt.Errorf("writing to the database: %w", err))
		return fmt.Errorf("%w: %w", ErrDisconnected, err)
	}
	return nil
}

func (s *session) probe(interval time.Duration) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	seen, asked := s.received.Load(), false
	for {
		select {
		case <-s.ended:
			return
		case <-tick.C:
		}
		now := s.received.Load()
		switch {
		case now != seen:
			seen, asked = now, false
		case asked:
			s.close(fmt.Errorf("no message from ovsdb-server for %v", 2*interval))
			return
		default:
			asked = true
			// The answer counts as received; nobody waits for it.
			_ = s.write(time.Now().Add(writeTimeout), map[string]any{"id": "echo", "method": "echo", "params": []string{}})
		}
	}
}

// rpcError is the server's refusal of a whole request.
type rpcError struct{ text string }

func (e *rpcError) Error() string { return "ovsdb-server rejected the request: " + e.text }

func isNull(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

// boundedReader fails when one message is longer than allowed, instead of buffering without end.
type boundedReader struct {
	r    io.Reader
	left int64
}

func (b *boundedReader) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, fmt.Errorf("message longer than %d bytes", maxMessage)
	}
	n, err := b.r.Read(p)
	b.left -= int64(n)
	return n, err
}
