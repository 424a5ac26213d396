// SPDX-License-Identifier: Apache-2.0

package ovsdb

import (
	"context"
	"encoding/json"
	"net"
)

// SetDial replaces how the client reaches its server, and takes the chance out of its backoff.
func (c *Client) SetDial(dial func(context.Context) (net.Conn, error)) {
	c.dial = dial
	c.jitter = func() float64 { return 0.5 }
}

// Advance decodes the text of updates like a notification, or like a whole dump.
func (v *View) Advance(text []byte, whole bool) (*Batch, error) {
	var updates tableUpdates
	if err := json.Unmarshal(text, &updates); err != nil {
		return nil, err
	}
	return v.advance(updates, whole)
}

// JSON returns the operations of the transaction as they are sent.
func (t *Tx) JSON() ([]string, error) {
	var out []string
	for _, s := range steps([]*Tx{t}) {
		text, err := json.Marshal(s.wire)
		if err != nil {
			return nil, err
		}
		out = append(out, string(text))
	}
	return out, t.err
}

// ManagerTarget returns the target of the Manager row for an endpoint.
func ManagerTarget(text string) (string, error) {
	e, err := parseEndpoint(text, SSL{})
	return e.managerTarget(), err
}
