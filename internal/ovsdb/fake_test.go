// SPDX-License-Identifier: Apache-2.0

package ovsdb_test

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"sync"

	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
)

// fakeServer speaks the protocol over in-memory connections, message by message, and does what a test tells it: answer,
// refuse, stay silent, send nonsense. It has no database behind; the real one proves that part.
type fakeServer struct {
	// handle answers a request: result or error text. Silent leaves it without an answer.
	handle func(conn *fakeConn, method string, params []json.RawMessage) (result any, refusal string)

	mu    sync.Mutex
	down  error // what dialling fails with
	conns []*fakeConn
	wg    sync.WaitGroup
}

type silence struct{}

type fakeConn struct {
	net.Conn
	n  int // which connection it is, from 1
	mu sync.Mutex
}

var errDown = errors.New("fake server is down")

func (s *fakeServer) dial(context.Context) (net.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down != nil {
		return nil, s.down
	}
	ours, theirs := net.Pipe()
	c := &fakeConn{Conn: ours, n: len(s.conns) + 1}
	s.conns = append(s.conns, c)
	s.wg.Go(func() { s.serve(c) })
	return theirs, nil
}

func (s *fakeServer) serve(c *fakeConn) {
	dec := json.NewDecoder(c)
	for {
		var m struct {
			ID     json.RawMessage   `json:"id"`
			Method string            `json:"method"`
			Params []json.RawMessage `json:"params"`
		}
		if err := dec.Decode(&m); err != nil {
			_ = c.Close()
			return
		}
		if m.Method == "" {
			continue // the answer to an echo of ours
		}
		result, refusal := s.handle(c, m.Method, m.Params)
		if _, ok := result.(silence); ok {
			continue
		}
		if refusal != "" {
			c.send(map[string]any{"id": m.ID, "result": nil, "error": refusal})
		} else {
			c.send(map[string]any{"id": m.ID, "result": result, "error": nil})
		}
	}
}

func (c *fakeConn) send(m any) {
	text, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	c.sendText(string(text))
}

func (c *fakeConn) sendText(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, _ = c.Write([]byte(text))
}

// update notifies of changes as monitor_cond_since does.
func (c *fakeConn) update(txn, updates string) {
	c.send(map[string]any{"id": nil, "method": "update3", "params": []any{"patchbay", txn, json.RawMessage(updates)}})
}

// last returns the newest connection.
func (s *fakeServer) last() *fakeConn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conns[len(s.conns)-1]
}

func (s *fakeServer) setDown(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = err
}

// dump answers monitor_cond_since with all rows.
func dump(txn, updates string) any { return []any{false, txn, json.RawMessage(updates)} }

func newFakeClient(s *fakeServer, cfg ovsdb.Config) *ovsdb.Client {
	cfg.Endpoint = "unix:/fake"
	c, err := ovsdb.New(cfg)
	if err != nil {
		panic(err)
	}
	c.SetDial(s.dial)
	return c
}
