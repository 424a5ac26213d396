// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"context"
	"encoding/json"
	"net"
	"sync"
)

// RPC is a JSON-RPC 1.0 server as ovsdb-server and the control sockets of Open vSwitch are. What it answers is up to whoever makes
// one: Database answers from its rows, tests of protocol faults as they like.
type RPC struct {
	// Handle answers a request: a result, or the text of an error. Silence leaves it without an answer.
	Handle func(c *RPCConn, method string, params []json.RawMessage) (result any, refusal string)
	// Done, if set, is called after a request was answered.
	Done func(c *RPCConn, method string)
	// Gone, if set, is called when a connection has ended.
	Gone func(c *RPCConn)

	mu    sync.Mutex
	down  error
	conns []*RPCConn
	wg    sync.WaitGroup
}

// Silence as a result leaves a request without an answer.
type Silence struct{}

// RPCConn is the server's end of one connection.
type RPCConn struct {
	net.Conn
	N int // which connection it is, from 1

	mu sync.Mutex
}

// Dial connects to the server without a socket.
func (r *RPC) Dial(context.Context) (net.Conn, error) {
	ours, theirs := net.Pipe()
	if err := r.begin(ours); err != nil {
		_, _ = ours.Close(), theirs.Close()
		return nil, err
	}
	return theirs, nil
}

// Accept serves the connections of a listener until it is closed.
func (r *RPC) Accept(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		if r.begin(conn) != nil {
			_ = conn.Close()
		}
	}
}

func (r *RPC) begin(conn net.Conn) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.down != nil {
		return r.down
	}
	c := &RPCConn{Conn: conn, N: len(r.conns) + 1}
	r.conns = append(r.conns, c)
	r.wg.Go(func() { r.serve(c) })
	return nil
}

func (r *RPC) serve(c *RPCConn) {
	defer func() {
		_ = c.Close()
		if r.Gone != nil {
			r.Gone(c)
		}
	}()
	for dec := json.NewDecoder(c); ; {
		var m struct {
			ID     json.RawMessage   `json:"id"`
			Method string            `json:"method"`
			Params []json.RawMessage `json:"params"`
		}
		if dec.Decode(&m) != nil {
			return
		}
		if m.Method == "" {
			continue // the answer to an echo of ours
		}
		result, refusal := r.Handle(c, m.Method, m.Params)
		if _, silent := result.(Silence); silent {
			continue
		}
		answer := map[string]any{"id": m.ID, "result": result, "error": nil}
		if refusal != "" {
			answer["result"], answer["error"] = nil, refusal
		}
		c.Send(answer)
		if r.Done != nil {
			r.Done(c, m.Method)
		}
	}
}

// Send sends a message.
func (c *RPCConn) Send(m any) {
	text, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	c.SendText(string(text))
}

// Notify sends a message that is no answer and wants none.
func (c *RPCConn) Notify(method string, params ...any) {
	c.Send(map[string]any{"id": nil, "method": method, "params": params})
}

// SendText sends a text as it is, sensible or not.
func (c *RPCConn) SendText(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, _ = c.Write([]byte(text))
}

// Last returns the newest connection.
func (r *RPC) Last() *RPCConn {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.conns[len(r.conns)-1]
}

// SetDown has new connections fail, until it is called with nil.
func (r *RPC) SetDown(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.down = err
}

// Close breaks all connections and waits for them.
func (r *RPC) Close() {
	r.mu.Lock()
	for _, c := range r.conns {
		_ = c.Conn.Close()
	}
	r.mu.Unlock()
	r.wg.Wait()
}
