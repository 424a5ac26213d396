// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/lab"
)

// TestMigrate moves VMs between two hosts as Nova does for a live migration, with the Python agent of a release and then with Patchbay. The target host has an
// inactive binding and the VM's interface; the VM stops on the one host, its binding on the other is activated, and it goes on there with the announcements of
// QEMU. A peer on each host sends to it throughout, and the VM answers what reaches it. What counts is for how long a peer has no answer: with
// Patchbay not longer than with the Python agent.
func TestMigrate(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), migrateTime)
	defer cancel()
	patience(t)
	m := &migration{filtered: &filtered{agent: lab.Python, cloud: &cloud{ctx: ctx, round: round{name: "migrate"}}}}
	m.l = lab.New(t, 2)
	t.Cleanup(m.filtered.close)
	m.startAgents(t, m.agent)
	m.prepare(t)
	defer m.print()
	for _, kind := range []lab.AgentKind{lab.Python, lab.Patchbay} {
		if kind != m.agent {
			m.agent = kind
			m.startAgents(t, kind)
		}
		for _, c := range m.cases {
			c.reached(t, m)
			for range migrations {
				m.move(t, c, 3-c.vm.host)
			}
		}
	}
	m.judge(t)
}

const (
	migrateTime = 7 * time.Minute
	// migrations is how often a VM moves with each agent: there and back again.
	migrations = 2
	// askEvery is how often a peer sends.
	askEvery = 5 * time.Millisecond
	// prewired is what the target's agent has before the VM stops, as a copy of its memory takes longer.
	prewired = 6 * time.Second
	// pythonReports is what the Python agent gets to report the port after that: it looks for changes every 2 s.
	pythonReports = 10 * time.Second
)

type migration struct {
	*filtered
	cases []*walk
	rows  []walked
}

// walk is a VM that moves, and its peers, one on each host.
type walk struct {
	vm    *vm
	kind  string
	peers []*vm
}

// walked is one migration.
type walked struct {
	agent    lab.AgentKind
	kind     string
	to       int
	answered time.Duration // how long the server took for the activation
	outage   []time.Duration
	active   time.Duration
}

func (m *migration) prepare(t *testing.T) {
	m.open = m.filtered.group(t, "open")
	m.allow(t, m.open, everything()...)
	number := 0
	for _, kind := range []string{"vxlan", "vlan"} {
		n := &network{Network: lab.Network{Name: kind, Type: kind}}
		if kind == "vlan" {
			n.PhysicalNetwork = "physnet1"
		}
		if err := m.create(n); err != nil {
			t.Fatal(err)
		}
		m.nets = append(m.nets, n)
		add := func(name string, host int) *vm {
			number++
			v := n.add(number, host)
			v.name, v.extra = kind+"-"+name, attributes{"security_groups": []string{m.open}}
			return v
		}
		m.cases = append(m.cases, &walk{kind: kind, vm: add("walker", 1), peers: []*vm{add("peer1", 1), add("peer2", 2)}})
	}
	m.plugPlanned(t)
}

// reached waits until both peers get answers.
func (c *walk) reached(t *testing.T, m *migration) {
	t.Helper()
	for _, p := range c.peers {
		if !m.eventually(settled, func() bool {
			a := m.asks(c)
			m.wait(200 * time.Millisecond)
			return a.end(m)[slices.Index(c.peers, p)] < 100*time.Millisecond
		}) {
			t.Fatalf("%s gets no answers of %s", p.name, c.vm.name)
		}
	}
}

// move has a VM go on on another host.
func (m *migration) move(t *testing.T, c *walk, to int) {
	t.Helper()
	from := *c.vm
	h := m.l.Host(to)
	row := walked{agent: m.agent, kind: c.kind, to: to}
	m.prefer(t)
	bindings := "ports/" + from.PortID + "/bindings"
	m.request(t, http.MethodPost, bindings, map[string]any{"binding": map[string]any{"host": h.Name()}}, nil)
	m.update(t, &from, attributes{"binding:profile": map[string]string{"migrating_to": h.Name()}})
	twin, err := from.Twin(m.ctx, h)
	if err != nil {
		t.Fatal(err)
	}
	there := &vm{VM: twin, net: from.net, name: from.name, host: to, v4: from.v4, v6: from.v6, extra: from.extra}
	if err := m.hush(there); err != nil {
		t.Fatal(err)
	}
	if there.probe, err = openProbe(twin.Netns, "eth0"); err != nil {
		t.Fatal(err)
	}
	if err := twin.Insert(m.ctx, false); err != nil {
		t.Fatal(err)
	}
	m.wait(prewired)
	a := m.asks(c)
	m.wait(time.Second)
	// The VM has stopped on the one host, and goes on on the other at once.
	a.runsOn(there)
	stopped := time.Now()
	announced := m.announces(there)
	m.request(t, http.MethodPut, bindings+"/"+h.Name()+"/activate", nil, nil)
	row.answered = time.Since(stopped)
	c.vm.VM, c.vm.host, c.vm.probe = there.VM, to, there.probe
	m.eventually(back, func() bool { return a.lately(500 * time.Millisecond) })
	announced()
	from.probe.close()
	if err := from.Unplug(m.ctx, false); err != nil {
		t.Fatal(err)
	}
	m.request(t, http.MethodDelete, bindings+"/"+m.l.Host(from.host).Name(), nil, nil)
	if m.agent == lab.Patchbay {
		m.waitStatus(t, c.vm, "ACTIVE")
	}
	// The Python agent of 29 takes the port for one that migrates back to the first host as long as that has an inactive binding, and does not report it.
	if m.eventually(pythonReports, func() bool { return m.status(t, c.vm) == "ACTIVE" }) {
		row.active = time.Since(stopped)
	}
	m.wait(time.Second)
	row.outage = a.end(m)
	m.rows = append(m.rows, row)
	t.Log(row)
}

// announces sends what QEMU sends when a VM goes on: five RARP frames, 50 ms apart at first and 100 ms more each time. The returned function waits for the last.
func (m *migration) announces(v *vm) func() {
	var wg sync.WaitGroup
	frames := make([][]byte, 5)
	for i := range frames {
		frames[i] = rarp(v.MAC, m.token())
	}
	wg.Go(func() {
		for i, f := range frames {
			_ = v.probe.send(f)
			time.Sleep(time.Duration(50+100*i) * time.Millisecond)
		}
	})
	return wg.Wait
}

func rarp(mac string, k token) []byte {
	f := arp(3, broadcast, mac, mac, "0.0.0.0", mac, "0.0.0.0", k)
	f[12], f[13] = 0x80, 0x35
	return f
}

// asking is the packets of peers, and the answers of the VM where it runs.
type asking struct {
	c    *walk
	next token
	mu   sync.Mutex
	vm   *vm
	sent []inquiry
	stop func()
}

// inquiry is a packet of each peer, with the token of its answer.
type inquiry struct {
	at        time.Time
	ask, hear []token
	echoed    []bool
}

// asks begins to send.
func (m *migration) asks(c *walk) *asking {
	here := *c.vm // the VM itself changes its host later
	a := &asking{c: c, vm: &here, next: m.token() << 32}
	a.stop = every(askEvery, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		q := inquiry{at: time.Now(), echoed: make([]bool, len(c.peers))}
		for i, p := range c.peers {
			a.next += 2
			q.ask, q.hear = append(q.ask, a.next), append(q.hear, a.next+1)
			talk := conn{from: p, to: a.vm, version: 4, proto: protoUDP, own: 20000 + uint16(i), port: 7}
			_ = p.probe.send(talk.first(q.ask[i]))
		}
		a.sent = append(a.sent, q)
		a.echo()
	})
	return a
}

// echo answers what has reached the VM.
func (a *asking) echo() {
	for j := range a.sent[max(0, len(a.sent)-200):] {
		q := &a.sent[max(0, len(a.sent)-200)+j]
		for i, p := range a.c.peers {
			if !q.echoed[i] && a.vm.heard(q.ask[i]) > 0 {
				q.echoed[i] = true
				talk := conn{from: p, to: a.vm, version: 4, proto: protoUDP, own: 20000 + uint16(i), port: 7}
				_ = a.vm.probe.send(talk.reply(q.hear[i]))
			}
		}
	}
}

func (a *asking) runsOn(v *vm) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.echo()
	a.vm = v
}

// lately says whether all peers have got all answers for some time.
func (a *asking) lately(d time.Duration) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	for _, q := range a.sent {
		age := now.Sub(q.at)
		if age > d || age < 50*time.Millisecond {
			continue
		}
		for i, p := range a.c.peers {
			if p.heard(q.hear[i]) == 0 {
				return false
			}
		}
	}
	return true
}

// end stops sending, and returns for each peer the longest time from a packet with an answer to the next one with an answer.
func (a *asking) end(m *migration) []time.Duration {
	m.wait(200 * time.Millisecond)
	a.stop()
	var out []time.Duration
	for i, p := range a.c.peers {
		longest := time.Duration(0)
		last := a.sent[0].at
		for _, q := range a.sent {
			if p.heard(q.hear[i]) > 0 {
				longest, last = max(longest, q.at.Sub(last)), q.at
			}
		}
		if end := a.sent[len(a.sent)-1].at.Sub(last); end > silence {
			longest = max(longest, end)
		}
		out = append(out, longest)
	}
	return out
}

// judge holds the outages of Patchbay against those of the Python agent, by network type: the longest, and the one in the middle.
func (m *migration) judge(t *testing.T) {
	t.Helper()
	for _, c := range m.cases {
		by := map[lab.AgentKind][]time.Duration{}
		for _, r := range m.rows {
			if r.kind == c.kind {
				by[r.agent] = append(by[r.agent], r.outage...)
			}
		}
		for _, list := range by {
			slices.Sort(list)
		}
		ours, theirs := by[lab.Patchbay], by[lab.Python]
		fmt.Printf("%s: outage of %d peers' views, median and longest: Python agent %d and %d ms, Patchbay %d and %d ms\n", c.kind, len(ours),
			theirs[len(theirs)/2].Milliseconds(), theirs[len(theirs)-1].Milliseconds(), ours[len(ours)/2].Milliseconds(), ours[len(ours)-1].Milliseconds())
		if ours[len(ours)-1] > theirs[len(theirs)-1] || ours[len(ours)/2] > theirs[len(theirs)/2] {
			t.Errorf("%s: outages with Patchbay %v, with the Python agent %v: wanted none longer", c.kind, ours, theirs)
		}
	}
}

func (r walked) String() string {
	s := fmt.Sprintf("%s\t%s\thv%d\t%d ms", r.agent, r.kind, r.to, r.answered.Milliseconds())
	for _, d := range r.outage {
		s += "\t" + strconv.FormatInt(d.Milliseconds(), 10) + " ms"
	}
	if r.active == 0 {
		return s + fmt.Sprintf("\tnot in %v", pythonReports)
	}
	return s + fmt.Sprintf("\t%d ms", r.active.Milliseconds())
}

func (m *migration) print() {
	printTable("\nagent\tnetwork\tto\tserver answers after\toutage seen by peer on hv1\ton hv2\tACTIVE after", m.rows)
}
