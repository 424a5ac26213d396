// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/patchbay-sdn/patchbay/lab"
)

// packetRates is the table of packet rate limits, PACKET_RATE_LIMIT of Neutron 22 and later.
const packetRates = 58

// TestQoS gives VMs policies through the API and measures what their packets make of it: marks in a capture on the far VM,
// rates under load, and that a restart of the agents changes nothing.
func TestQoS(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	q := &qosCloud{cloud: &cloud{l: lab.New(t, 2), ctx: ctx}}
	q.start(t)
	net, err := q.l.CreateNetwork(ctx, lab.Network{Name: "qos", Type: "vxlan"})
	if err != nil {
		t.Fatal(err)
	}
	q.near, q.far = q.boot(t, net, 1, "near"), q.boot(t, net, 2, "far")
	if err := q.near.WaitPing(ctx, q.far.IPs[0]); err != nil {
		t.Fatal(err)
	}
	defer q.print()

	q.step(t, "without a policy", 0, 0, 20000, 0)
	mark := q.policy(t, "dscp_marking_rule", attributes{"dscp_mark": 26})
	q.give(t, q.near.PortID, mark)
	q.wait(t, q.near, 0, "set_field:26->ip_dscp")
	q.step(t, "DSCP 26 on what it sends", 26, 0, 200, 0)
	q.changeRule(t, mark, attributes{"dscp_mark": 46})
	q.wait(t, q.near, 0, "set_field:46->ip_dscp")
	q.step(t, "DSCP 46, the rule changed", 46, 0, 200, 0)

	for _, direction := range []string{"egress", "ingress"} {
		vm := map[string]*lab.VM{"egress": q.near, "ingress": q.far}[direction]
		limit := q.policy(t, "packet_rate_limit_rule", attributes{"max_kpps": 1, "direction": direction})
		q.give(t, q.near.PortID, nil)
		q.give(t, vm.PortID, limit)
		q.wait(t, vm, packetRates, "meter:")
		q.step(t, "at most 1,000 packets/s, "+direction, 0, 1000, 4000, 0)
		q.restart(t)
		q.step(t, "the same after a restart of the agents", 0, 1000, 4000, 0)
		q.changeRule(t, limit, attributes{"max_kpps": 2})
		q.eventuallyMeter(t, vm, "rate=2000")
		q.step(t, "at most 2,000 packets/s, the rule changed", 0, 2000, 5000, 0)
		q.give(t, vm.PortID, nil)
		q.gone(t, vm, packetRates, "meter:")
		q.eventuallyMeter(t, vm, "")
	}
	q.bandwidth(t)
	q.metered(t)
}

// qosCloud is two VMs on two hosts.
type qosCloud struct {
	*cloud
	near, far *lab.VM
	rows      []string
	options   []string // of the agents, besides the extension
}

func (q *qosCloud) start(t *testing.T) {
	t.Helper()
	q.eachHost(t, func(h *lab.Host) error {
		return h.StartAgent(q.ctx, lab.Patchbay, append([]string{"agent.extensions=qos"}, q.options...)...)
	})
}

// restart starts the agents anew, and checks that this changes no flow: all of them go on counting.
func (q *qosCloud) restart(t *testing.T) {
	t.Helper()
	before := q.flowCount(t)
	q.eachHost(t, func(h *lab.Host) error { return h.StopAgent(q.ctx) })
	q.start(t)
	time.Sleep(3 * time.Second)
	if after := q.flowCount(t); after != before {
		t.Errorf("%d flows with meters after a restart, %d before", after, before)
	}
}

func (q *qosCloud) flowCount(t *testing.T) int {
	t.Helper()
	n := 0
	for i := 1; i <= 2; i++ {
		flows, err := q.l.Host(i).Flows(q.ctx, "br-int")
		if err != nil {
			t.Fatal(err)
		}
		n += strings.Count(flows, "meter:")
	}
	return n
}

func (q *qosCloud) boot(t *testing.T, n lab.Network, host int, name string) *lab.VM {
	t.Helper()
	vm, err := q.l.Host(host).Plug(q.ctx, lab.Port{NetworkID: n.ID, Name: name})
	if err == nil {
		err = q.l.WaitActive(q.ctx, vm.PortID)
	}
	if err != nil {
		t.Fatal(err)
	}
	return vm
}

// qosRule is a rule of a policy.
type qosRule struct{ policy, kind, id string }

// policy makes a policy with one rule.
func (c *cloud) policy(t *testing.T, kind string, says attributes) *qosRule {
	t.Helper()
	var made struct{ Policy identified }
	c.post(t, "qos/policies", attributes{"policy": attributes{"name": kind, "tenant_id": lab.Project}}, &made)
	return c.addRule(t, made.Policy.ID, kind, says)
}

// addRule gives a policy one more rule.
func (c *cloud) addRule(t *testing.T, policy, kind string, says attributes) *qosRule {
	t.Helper()
	answer := map[string]identified{}
	c.post(t, "qos/policies/"+policy+"/"+kind+"s", attributes{kind: says}, &answer)
	return &qosRule{policy: policy, kind: kind, id: answer[kind].ID}
}

func (c *cloud) changeRule(t *testing.T, r *qosRule, says attributes) {
	t.Helper()
	if err := c.tryRule(r, says); err != nil {
		t.Fatal(err)
	}
}

func (c *cloud) tryRule(r *qosRule, says attributes) error {
	return c.try(http.MethodPut, "qos/policies/"+r.policy+"/"+r.kind+"s/"+r.id, attributes{r.kind: says}, nil)
}

// give has a port get the policy of a rule; nil takes it away.
func (c *cloud) give(t *testing.T, port string, r *qosRule) {
	t.Helper()
	var id any
	if r != nil {
		id = r.policy
	}
	c.request(t, http.MethodPut, "ports/"+port, attributes{"port": attributes{"qos_policy_id": id}}, nil)
}

// host is where a VM is.
func (q *qosCloud) host(vm *lab.VM) *lab.Host {
	if vm == q.near {
		return q.l.Host(1)
	}
	return q.l.Host(2)
}

func (q *qosCloud) wait(t *testing.T, vm *lab.VM, table int, part string) {
	t.Helper()
	q.look(t, vm, table, part, true)
}

func (q *qosCloud) gone(t *testing.T, vm *lab.VM, table int, part string) {
	t.Helper()
	q.look(t, vm, table, part, false)
}

func (q *qosCloud) look(t *testing.T, vm *lab.VM, table int, part string, want bool) {
	t.Helper()
	var flows string
	if !q.eventually(wired, func() bool {
		var err error
		flows, err = q.host(vm).Flows(q.ctx, "br-int")
		found := false
		for line := range strings.SplitSeq(flows, "\n") {
			in := strings.Contains(line, fmt.Sprintf(" table=%d,", table)) || table == 0 && !strings.Contains(line, " table=")
			found = found || in && strings.Contains(line, part)
		}
		return err == nil && found == want
	}) {
		t.Fatalf("flows with %q in table %d: not %v in time:\n%s", part, table, want, flows)
	}
}

// eventuallyMeter waits for a meter that says something, or for there to be none.
func (q *qosCloud) eventuallyMeter(t *testing.T, vm *lab.VM, part string) {
	t.Helper()
	var meters string
	if !q.eventually(wired, func() bool {
		var err error
		meters, err = q.host(vm).Switch().Ofctl(q.ctx, "-O", "OpenFlow13", "dump-meters", "br-int")
		if part == "" {
			return err == nil && !strings.Contains(meters, "rate=")
		}
		return err == nil && strings.Contains(meters, part)
	}) {
		t.Fatalf("meters: %q, want %q", meters, part)
	}
}

// step sends packets at a rate and counts what arrives: all of it under the DSCP mark, and at the limit if there is one. The
// bucket of a new meter is full, so it counts from the third second on.
func (q *qosCloud) step(t *testing.T, what string, dscp uint8, limit, rate int, bytes int) float64 {
	t.Helper()
	warm, span := time.Duration(0), 2*time.Second
	if limit > 0 {
		warm, span = 3*time.Second, 6*time.Second
	}
	c, err := q.count(t)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	sent, stop := q.load(t, rate, bytes)
	time.Sleep(warm)
	n0, _, b0, at0 := c.now()
	s0 := sent()
	time.Sleep(span)
	n1, marks, b1, at1 := c.now()
	s1 := sent()
	stop()
	seconds := at1.Sub(at0).Seconds()
	got, offered := float64(n1-n0)/seconds, float64(s1-s0)/seconds
	mbit := float64(b1-b0) * 8 / seconds / 1e6
	q.rows = append(q.rows, fmt.Sprintf("%s\t%.0f\t%.0f\t%.2f\t%v", what, offered, got, mbit, marks))
	if limit > 0 && (offered < 1.5*float64(limit) || got < 0.9*float64(limit) || got > 1.1*float64(limit)) {
		t.Errorf("%s: %.0f packets/s of %.0f arrive, want %d within 10 %%", what, got, offered, limit)
	}
	if limit == 0 && bytes == 0 && got < 0.8*offered {
		t.Errorf("%s: %.0f packets/s of %.0f arrive", what, got, offered)
	}
	for mark := range marks {
		if mark != dscp {
			t.Errorf("%s: packets with DSCP %d, want %d", what, mark, dscp)
		}
	}
	return mbit
}

// load sends datagrams from near to far.
func (q *qosCloud) load(t *testing.T, rate, bytes int) (sent func() int, stop func()) {
	t.Helper()
	p, err := openSender(q.near.Netns, "eth0")
	if err != nil {
		t.Fatal(err)
	}
	payload := make([]byte, max(bytes, 30))
	frame := packet(header{
		ethTo: q.far.MAC, ethFrom: q.near.MAC, from: q.near.IPs[0], to: q.far.IPs[0], proto: protoUDP, hops: 64,
	}, datagram(loadPort, loadPort, payload))
	var mu sync.Mutex
	n, over := 0, make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		began := time.Now()
		for i := 0; ; i++ {
			select {
			case <-over:
				return
			default:
			}
			if due := began.Add(time.Duration(i) * time.Second / time.Duration(rate)); time.Until(due) > time.Millisecond {
				time.Sleep(time.Until(due))
			}
			if p.send(frame) == nil {
				mu.Lock()
				n++
				mu.Unlock()
			}
		}
	})
	return func() int { mu.Lock(); defer mu.Unlock(); return n }, func() {
		close(over)
		wg.Wait()
		_ = unix.Close(p.fd)
	}
}

const loadPort = 7777

// counter counts the datagrams of the load that arrive.
type counter struct {
	p    *probe
	mu   sync.Mutex
	n, b int
	dscp map[uint8]int
}

func (q *qosCloud) count(t *testing.T) (*counter, error) {
	t.Helper()
	p, err := openSocket(q.far.Netns, "eth0", unix.ETH_P_IP>>8|unix.ETH_P_IP<<8&0xff00)
	if err != nil {
		return nil, err
	}
	c := &counter{p: p, dscp: map[uint8]int{}}
	go func() {
		defer close(p.done)
		buf := make([]byte, 2048)
		for !p.stop.Load() {
			n, from, err := unix.Recvfrom(p.fd, buf, 0)
			if ll, ok := from.(*unix.SockaddrLinklayer); err != nil || !ok || ll.Pkttype == unix.PACKET_OUTGOING {
				continue
			}
			if n >= 42 && buf[23] == protoUDP && binary.BigEndian.Uint16(buf[36:]) == loadPort {
				c.mu.Lock()
				c.n, c.b = c.n+1, c.b+n
				c.dscp[buf[15]>>2]++
				c.mu.Unlock()
			}
		}
	}()
	return c, nil
}

func (c *counter) now() (n int, dscp map[uint8]int, b int, at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	marks := map[uint8]int{}
	for k, v := range c.dscp {
		marks[k] = v
	}
	return c.n, marks, c.b, time.Now()
}

func (c *counter) close() { c.p.close() }

// bandwidth has both directions limited, and looks at the rows. What a VM receives is limited by a queue of the kernel, which
// this machine has; what it sends is policed where the kernel hands packets to its own switch, which it has not.
func (q *qosCloud) bandwidth(t *testing.T) {
	free := q.step(t, "1,000 bytes each, without a limit", 0, 0, 3000, 1000)
	in := q.policy(t, "bandwidth_limit_rule", attributes{"max_kbps": 4000, "max_burst_kbps": 400, "direction": "ingress"})
	q.give(t, q.far.PortID, in)
	q.row(t, q.far, `queues: \{0=`, "--columns=queues", "list", "QoS")
	q.row(t, q.far, `max-rate="4000000"`, "--columns=other_config", "list", "Queue")
	if got := q.step(t, "at most 4 Mbit/s to the far VM", 0, 0, 3000, 1000); got > 4.4 || got < 3 {
		t.Errorf("%.2f Mbit/s arrive of %.2f, want 4 within 10 %%", got, free)
	}
	q.give(t, q.far.PortID, nil)
	q.row(t, q.far, "^$", "list", "QoS")
	q.row(t, q.far, "^$", "list", "Queue")

	out := q.policy(t, "bandwidth_limit_rule", attributes{"max_kbps": 3000, "direction": "egress"})
	q.give(t, q.near.PortID, out)
	q.row(t, q.near, `ingress_policing_rate: 3000`, "--columns=ingress_policing_rate", "list", "Interface", q.near.Tap)
	q.row(t, q.near, `ingress_policing_burst: 2400`, "--columns=ingress_policing_burst", "list", "Interface", q.near.Tap)
	q.give(t, q.near.PortID, nil)
	q.row(t, q.near, `ingress_policing_rate: 0`, "--columns=ingress_policing_rate", "list", "Interface", q.near.Tap)
}

// metered limits bandwidth by meters, which count what passes the switch: in both directions, over a restart. What limited it before is gone.
func (q *qosCloud) metered(t *testing.T) {
	for _, direction := range []string{"egress", "ingress"} {
		vm := map[string]*lab.VM{"egress": q.near, "ingress": q.far}[direction]
		limit := q.policy(t, "bandwidth_limit_rule", attributes{"max_kbps": 4000, "max_burst_kbps": 400, "direction": direction})
		q.give(t, vm.PortID, limit)
		if direction == "egress" { // the agents are the ones without the option, and then those with it
			q.row(t, vm, `ingress_policing_rate: 4000`, "--columns=ingress_policing_rate", "list", "Interface", vm.Tap)
			q.options = []string{"ovs.qos_meter_bandwidth=true"}
			q.eachHost(t, func(h *lab.Host) error { return h.StopAgent(q.ctx) })
			q.start(t)
		}
		q.wait(t, vm, 59, "meter:")
		q.row(t, vm, `ingress_policing_rate: 0`, "--columns=ingress_policing_rate", "list", "Interface", vm.Tap)
		q.row(t, vm, "^$", "list", "QoS")
		for _, what := range []string{"at most 4 Mbit/s by a meter, " + direction, "the same after a restart of the agents"} {
			if got := q.step(t, what, 0, 0, 3000, 1000); got > 4.8 || got < 3.2 {
				t.Errorf("%s: %.2f Mbit/s arrive, want 4 within 20 %%", what, got)
			}
			q.restart(t)
		}
		q.give(t, vm.PortID, nil)
		q.gone(t, vm, 59, "meter:")
		q.eventuallyMeter(t, vm, "")
	}
}

// row waits for the database to say something.
func (q *qosCloud) row(t *testing.T, vm *lab.VM, want string, words ...string) {
	t.Helper()
	var got string
	if !q.eventually(wired, func() bool {
		var err error
		got, err = q.host(vm).Switch().Vsctl(q.ctx, words...)
		got = strings.ReplaceAll(strings.Join(strings.Fields(got), " "), " :", ":")
		return err == nil && regexp.MustCompile(want).MatchString(got)
	}) {
		t.Errorf("%v: %q, want %s", words, got, want)
	}
}

func (q *qosCloud) print() {
	printTable("what\tpackets/s sent\tarrived\tMbit/s\tDSCP of packets", q.rows)
}
