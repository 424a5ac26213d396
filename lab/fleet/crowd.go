// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"time"

	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// Crowd is the agents of many hosts with tunnels, each over a switch in memory, beside a server that is there already.
type Crowd struct{ of *Fleet }

// crowdPause separates the starts of agents: each asks the server some questions.
const crowdPause = 50 * time.Millisecond

// NewCrowd starts n agents at a server's broker.
func NewCrowd(ctx context.Context, transport string, n int) (*Crowd, error) {
	url, err := messaging.ParseURL(transport)
	if err != nil {
		return nil, fmt.Errorf("the broker's address: %w", err)
	}
	c := &Crowd{&Fleet{cfg: Config{Layout: Hub}, url: url, times: newTimes()}}
	c.of.log = slog.New(countingHandler{&c.of.counts})
	for i := range n {
		h := newHost(i+1, nil, vxlan)
		c.of.hosts = append(c.of.hosts, h)
		if err := h.start(ctx, c.of); err != nil {
			return nil, errors.Join(fmt.Errorf("starting the agent of %s: %w", h.name, err), c.Close(ctx))
		}
		select {
		case <-time.After(crowdPause):
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), c.Close(ctx))
		}
	}
	return c, nil
}

// Close ends the agents, as a stop does.
func (c *Crowd) Close(ctx context.Context) error {
	var waits []func()
	for _, h := range c.of.hosts {
		waits = append(waits, h.end(false))
	}
	for _, wait := range waits {
		wait()
	}
	return c.of.Close(ctx)
}

// Name returns the name of a host.
func (c *Crowd) Name(host int) string { return c.of.hosts[host].name }

// Plug plugs a port in.
func (c *Crowd) Plug(host int, id, mac string) {
	h, v := c.of.hosts[host], &vm{id: id, mac: mac}
	h.number(v)
	h.plug(v)
}

// Unplug plugs a port out.
func (c *Crowd) Unplug(host int, id string) { c.of.hosts[host].unplug(&vm{id: id}) }

// InSync returns how many agents are in sync, and why the first of the others is not.
func (c *Crowd) InSync(ctx context.Context) (n int, why string) {
	for _, h := range c.of.hosts {
		ok, reason := h.inSync(ctx)
		if ok {
			n++
		} else if why == "" {
			why = h.name + ": " + reason
		}
	}
	return n, why
}

// Calls returns how many calls of each method are over so far, and how many of them failed.
func (c *Crowd) Calls() (all, failed map[string]int) { return c.of.counts.methods() }

var toMAC = regexp.MustCompile(`dl_dst=([0-9a-f:]{17})(?:,|$)`)

// Reached returns the MAC addresses to which a host sends through a tunnel to one other host, sorted.
func (c *Crowd) Reached(host int) []string {
	found := map[string]bool{}
	if s := c.of.hosts[host].ovs.Switches()[tunnels]; s != nil {
		for k := range s.Flows() {
			if m := toMAC.FindStringSubmatch(k.String()); m != nil && k.Table() == unicast {
				found[m[1]] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// unicast is the table of a tunnel bridge with the addresses that forwarding entries name.
const unicast = 20
