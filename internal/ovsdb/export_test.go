// SPDX-License-Identifier: Apache-2.0

package ovsdb

import (
	"bytes"
	"encoding/json"
	"net"
	"time"
)

// NoJitter takes the chance out of a client's backoff.
func (c *Client) NoJitter() { c.jitter = func() float64 { return 0.5 } }

// Advance decodes the text of updates like a notification, or like a whole dump.
func (v *View) Advance(text []byte, whole bool) (*Batch, error) {
	var updates tableUpdates
	if err := json.Unmarshal(text, &updates); err != nil {
		return nil, err
	}
	return v.advance(updates, whole)
}

// OnThisHost returns the address of an endpoint, and whether it is one of this host.
func OnThisHost(text string) (string, bool, error) {
	e, err := parseEndpoint(text, SSL{})
	return e.address, e.onThisHost(), err
}

// Feed lets a client that waits for the answer to its subscription read the bytes until they end or make no sense.
func Feed(text []byte) error {
	c, err := New(Config{Endpoint: "unix:/fake"})
	if err != nil {
		return err
	}
	s := newSession(&oneWay{r: bytes.NewReader(text)}, c.notified)
	s.pending["1"] = &call{done: func(raw json.RawMessage) error { return c.subscribed(s, raw) }, reply: make(chan error, 1)}
	s.pending["2"] = &call{done: func(raw json.RawMessage) error {
		_, err := decodeResults(raw)
		return err
	}, reply: make(chan error, 1)}
	return s.read()
}

// oneWay is a connection whose other end has said all it will say.
type oneWay struct {
	net.Conn
	r *bytes.Reader
}

func (o *oneWay) Read(p []byte) (int, error)       { return o.r.Read(p) }
func (o *oneWay) Write(p []byte) (int, error)      { return len(p), nil }
func (o *oneWay) Close() error                     { return nil }
func (o *oneWay) SetWriteDeadline(time.Time) error { return nil }
