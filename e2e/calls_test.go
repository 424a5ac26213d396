// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/patchbay-sdn/patchbay/lab/broker"
)

// calls are the RPC calls that agents make, and their answers, as the broker sees them.
type calls struct {
	mu   sync.Mutex
	list []call
	open map[string]int // calls by message id, until they are answered
}

// call is one call. Answered is zero while it is not.
type call struct {
	host         int
	method       string
	at, answered time.Time
}

// layer3 is the topic at which layer-3 agents ask the server, which are not what is looked at.
const layer3 = "q-l3-plugin"

// heartbeat is the call that an agent makes whether anything happens or not.
const heartbeat = "report_state"

// watch takes down what is published from now on, until ctx ends.
func (c *calls) watch(ctx context.Context, b *broker.Broker) error {
	c.mu.Lock()
	if c.open == nil {
		c.open = map[string]int{}
	}
	c.mu.Unlock()
	published, err := b.Trace(ctx)
	if err != nil {
		return err
	}
	go func() {
		for p := range published {
			c.take(p)
		}
	}()
	return nil
}

func (c *calls) take(p broker.Published) {
	var envelope struct {
		Message string `json:"oslo.message"`
	}
	var m struct {
		Method string `json:"method"`
		ID     string `json:"_msg_id"`
		ReplyQ string `json:"_reply_q"`
	}
	if json.Unmarshal(p.Body, &envelope) != nil || json.Unmarshal([]byte(envelope.Message), &m) != nil || m.ID == "" {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if m.Method == "" { // an answer
		if i, ok := c.open[m.ID]; ok {
			c.list[i].answered = p.At
			delete(c.open, m.ID)
		}
		return
	}
	if host := hostOf(p.Connection); host > 0 && m.ReplyQ != "" && !slices.Contains(p.Keys, layer3) {
		c.open[m.ID] = len(c.list)
		c.list = append(c.list, call{host: host, method: m.Method, at: p.At})
	}
}

// hostOf is the number of the host that a connection comes from: the lab gives hosts the addresses from 11 on.
func hostOf(connection string) int {
	from, _, _ := strings.Cut(connection, " ")
	a, err := netip.ParseAddrPort(from)
	if err != nil || !a.Addr().Is4() {
		return 0
	}
	return int(a.Addr().As4()[3]) - 10
}

// since are the calls of a host, or with 0 of all, from a time on.
func (c *calls) since(began time.Time, host int) []call {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []call
	for _, x := range c.list {
		if !x.at.Before(began) && (host == 0 || host == x.host) {
			out = append(out, x)
		}
	}
	return out
}

// calm says that for some time nothing was asked and nothing is open, except heartbeats.
func (c *calls) calm(d time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, x := range slices.Backward(c.list) {
		if x.method == heartbeat {
			continue
		}
		if time.Since(x.at) > time.Minute {
			return true // later ones that nobody answers any more are given up
		}
		if x.answered.IsZero() || time.Since(x.answered) < d {
			return false
		}
	}
	return true
}

// peak is the largest number of calls within a second.
func peak(list []call) int {
	most, first := 0, 0
	for i := range list {
		for list[i].at.Sub(list[first].at) >= time.Second {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

// synced is how long after a start the last question was answered, and for how long of that time the agent waited for the
// server.
func synced(list []call, began time.Time) (after, waited time.Duration) {
	answered := slices.DeleteFunc(slices.Clone(list), func(x call) bool { return x.answered.IsZero() })
	for _, x := range answered {
		if x.method != heartbeat {
			after = max(after, x.answered.Sub(began))
		}
	}
	return after, openFor(answered, began, began.Add(after))
}

// callTime is how long an agent waits for an answer before it asks again.
const callTime = time.Minute

// openFor is for how long of a time at least one question was open. The calls are in the order in which they were made.
func openFor(list []call, from, to time.Time) (d time.Duration) {
	for _, x := range list {
		end := x.answered
		if end.IsZero() {
			end = x.at.Add(callTime)
		}
		if end.After(to) {
			end = to
		}
		if x.at.After(from) {
			from = x.at
		}
		if x.method != heartbeat && end.After(from) {
			d += end.Sub(from)
			from = end
		}
	}
	return d
}
