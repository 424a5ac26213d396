// SPDX-License-Identifier: Apache-2.0

//go:build bench

package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"

	"github.com/patchbay-sdn/patchbay/lab"
	"github.com/patchbay-sdn/patchbay/lab/broker"
	"github.com/patchbay-sdn/patchbay/lab/ovn"
	"github.com/patchbay-sdn/patchbay/lab/vswitch"
)

// TestPeers compares what wires filtered ports: Patchbay, the Python agent, and ovn-controller, which operators choose
// instead. `make bench-peers` runs it.
//
//   - The ports are those of one default security group: what a port sends is allowed, and what comes from members. The same
//     ports, with the same addresses, are logical ports of an OVN on a switch of its own, with the access lists that
//     Neutron's OVN driver makes of such a group (package lab/ovn). Everything about them is known to the servers before.
//   - Ports are up when the server has told that they are ACTIVE; with OVN, when the northbound database has told that they
//     are up.
//   - The server's part is the time, between plug and up, in which at least one call of the agent was not answered, from
//     the broker's copy of the call to that of its answer; reports of the agent's own state do not count. For OVN it is the
//     time from the last word of ovn-controller, in the southbound database, to the northbound one.
//   - What is left is the agent's part, with all that the switch and its database take.
//
// PATCHBAY_BENCH_AGENT=patchbay leaves the Python agent out.
func TestPeers(t *testing.T) {
	if _, err := lab.Install(t.Context(), ovn.Packages()...); err != nil {
		t.Fatal(err)
	}
	b, about := newBench(t)
	b.table.beside = "ovn-controller"
	b.overrides = []string{"securitygroup.firewall_driver=openvswitch", "securitygroup.enable_security_group=true"}
	began, before := time.Now(), loadAverage()
	defer func() {
		b.table.print(os.Stdout, fmt.Sprintf("%s; load average before %s, after %s; took %s", about, before, loadAverage(), time.Since(began).Round(time.Second)))
	}()
	b.prepare(t)
	p := &peers{bench: b, calls: &callLog{from: b.host.MgmtIP()}, one: map[string][]figures{}, all: map[string][]figures{}, size: map[string]int64{}}
	published, err := b.lab.Broker().Trace(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	go p.calls.read(published)
	p.startOVN(t)
	turn := func(name string, plug func(*testing.T, []ports.Port) figures) {
		plug(t, b.pool[:1]) // in sync when it answers to this
		for range singles {
			p.one[name] = append(p.one[name], plug(t, b.pool[:1]))
		}
		o := plug(t, b.pool[:b.many])
		p.all[name] = append(p.all[name], o)
		p.size[name] = max(p.size[name], o.rss)
		t.Logf("%s: one port %v, %d ports %+v", name, p.one[name], b.many, o)
	}
	for range runs(3) {
		b.use(t, lab.Patchbay)
		turn(string(lab.Patchbay), p.plugAgent)
		turn(controllerName, p.plugOVN)
	}
	if os.Getenv("PATCHBAY_BENCH_AGENT") != string(lab.Patchbay) {
		b.use(t, lab.Python)
		turn(string(lab.Python), p.plugAgent)
	}
	p.judge(t)
}

const controllerName = "ovn-controller"

type peers struct {
	*bench
	calls *callLog
	ovn   *ovn.Node
	sw    *vswitch.Switch
	north *ovn.Watch
	south *ovn.Watch

	one, all map[string][]figures
	size     map[string]int64
}

// figures are what some ports at once led to.
type figures struct {
	up     time.Duration // from plug to the last port
	server time.Duration // of it
	cpu    time.Duration
	rss    int64
}

func (p figures) own() time.Duration { return p.up - p.server }

func (p *peers) startOVN(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	p.sw = vswitch.New(t)
	n, err := ovn.Start(ctx, ovn.Config{Dir: p.sw.Dir() + "/ovn", Switch: p.sw, Name: "peer"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	p.ovn = n
	var list []ovn.Port
	for _, port := range p.pool[:p.many] {
		one := ovn.Port{Name: port.ID, MAC: port.MACAddress}
		for _, ip := range port.FixedIPs {
			one.IPs = append(one.IPs, ip.IPAddress)
		}
		list = append(list, one)
	}
	if err := n.AddGroup(ctx, network, list); err != nil {
		t.Fatal(err)
	}
	for view, w := range map[ovn.View]**ovn.Watch{ovn.Northbound: &p.north, ovn.Southbound: &p.south} {
		if *w, err = n.Watch(context.Background(), view); err != nil {
			t.Fatal(err)
		}
		t.Cleanup((*w).Close)
	}
}

func names(list []ports.Port) []string {
	out := make([]string, len(list))
	for i, p := range list {
		out[i] = p.ID
	}
	return out
}

func (p *peers) plugOVN(t *testing.T, list []ports.Port) figures {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	proc := fmt.Sprintf("/proc/%d", p.ovn.Controller())
	used, began := spent(proc), time.Now()
	if err := lab.PlugInto(ctx, p.sw, list); err != nil {
		t.Fatal(err)
	}
	said, err := p.south.Wait(ctx, true, names(list)...)
	if err != nil {
		t.Fatal(err)
	}
	up, err := p.north.Wait(ctx, true, names(list)...)
	if err != nil {
		t.Fatal(err)
	}
	p.settle(t)
	o := figures{up: up.Sub(began), server: up.Sub(said), cpu: spent(proc) - used, rss: resident(t, p.ovn.Controller(), "VmRSS:")}
	if err := lab.UnplugFrom(ctx, p.sw, list); err != nil {
		t.Fatal(err)
	}
	if _, err := p.north.Wait(ctx, false, names(list)...); err != nil {
		t.Fatal(err)
	}
	p.settle(t)
	return o
}

func (p *peers) plugAgent(t *testing.T, list []ports.Port) figures {
	t.Helper()
	used, began := cpu(t, p.host), time.Now()
	if err := p.host.PlugMany(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	_, up := p.wait(t, "ACTIVE", list)
	p.settle(t)
	o := figures{up: up.Sub(began), server: p.calls.unanswered(began, up), cpu: cpu(t, p.host) - used, rss: rss(t, p.host)}
	p.unplug(t, list)
	p.settle(t)
	return o
}

func (p *peers) judge(t *testing.T) {
	t.Helper()
	all := func(name string, what func(figures) time.Duration, of map[string][]figures) time.Duration {
		var list []time.Duration
		for _, o := range of[name] {
			list = append(list, what(o))
		}
		return median(list)
	}
	add := func(what string, of map[string][]figures, value func(figures) time.Duration, limit float64, target string) {
		python, other, patchbay := all(string(lab.Python), value, of), all(controllerName, value, of), all(string(lab.Patchbay), value, of)
		text, ratio := times(patchbay, other)
		p.table.add(t, row{
			what: what, python: ms(python), beside: ms(other), patchbay: ms(patchbay),
			ratio: text, target: target, met: ratio <= limit,
		})
	}
	up, server, own := func(o figures) time.Duration { return o.up }, func(o figures) time.Duration { return o.server }, figures.own
	add("one port, plug → up", p.one, up, 0, "")
	add("of it the server's part", p.one, server, 0, "")
	add("the rest", p.one, own, 0, "")
	many := fmt.Sprintf("%d ports at once, ", p.many)
	add(many+"all up", p.all, up, 0, "")
	add(many+"of it the server's part", p.all, server, 0, "")
	add(many+"the rest", p.all, own, 2, "≤ 2 × ovn-controller")
	add(many+"agent CPU", p.all, func(o figures) time.Duration { return o.cpu }, 1, "≤ ovn-controller")
	p.table.add(t, row{
		what: fmt.Sprintf("RSS with %d ports", p.many), python: mib(p.size[string(lab.Python)]), beside: mib(p.size[controllerName]),
		patchbay: mib(p.size[string(lab.Patchbay)]),
	})
}

// callLog knows when the calls of one host were made and answered.
type callLog struct {
	from string // the host's address

	mu    sync.Mutex
	calls []call
	open  map[string]int // in calls, by the id of the message
}

type call struct{ asked, answered time.Time }

func (c *callLog) read(published <-chan broker.Published) {
	c.open = map[string]int{}
	for m := range published {
		c.take(m)
	}
}

func (c *callLog) take(m broker.Published) {
	id, method := rpc(m)
	if id == "" {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if method == "" {
		if i, ok := c.open[id]; ok {
			c.calls[i].answered = m.At
			delete(c.open, id)
		}
		return
	}
	if method != "report_state" && strings.HasPrefix(m.Connection, c.from+":") {
		c.open[id] = len(c.calls)
		c.calls = append(c.calls, call{asked: m.At})
	}
}

// rpc returns the id of a call or of an answer, which casts have none of, and the method of a call or a cast.
func rpc(m broker.Published) (id, method string) {
	var envelope struct {
		Message string `json:"oslo.message"`
	}
	var head struct {
		ID     string `json:"_msg_id"`
		Method string `json:"method"`
	}
	if json.Unmarshal(m.Body, &envelope) != nil || json.Unmarshal([]byte(envelope.Message), &head) != nil {
		return "", ""
	}
	return head.ID, head.Method
}

// unanswered is how much of a time at least one call waited for its answer.
func (c *callLog) unanswered(from, to time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	var total time.Duration
	counted := from
	for _, one := range c.calls { // in the order of asking
		if one.asked.Before(from) {
			continue // about something else
		}
		begin, end := one.asked, one.answered
		if end.IsZero() || end.After(to) {
			end = to
		}
		if begin.Before(counted) {
			begin = counted
		}
		if end.After(begin) {
			total += end.Sub(begin)
			counted = end
		}
	}
	return total
}
