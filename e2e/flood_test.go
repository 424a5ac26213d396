// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"
	amqp "github.com/rabbitmq/amqp091-go" //nolint:depguard // sends what no client of oslo/messaging sends

	"github.com/patchbay-sdn/patchbay/internal/inspect"
	"github.com/patchbay-sdn/patchbay/lab"
	"github.com/patchbay-sdn/patchbay/lab/sim"
	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

const (
	floodPushes  = 100_000
	floodBody    = 200_000_000
	floodMembers = 200 // of the remote group that the ports' rules refer to
	floodResting = 20  // ports that are there all the time
	floodProbes  = 60  // ports that are plugged in, one after the other, at most
	quietProbes  = 15
	// slowdown is how many times longer the wiring of a port may take during the flood.
	slowdown = 3
	// longestTurn is how long the agent's loop may be busy with one turn, on a machine that does other work, too.
	longestTurn = time.Second
	// floodGrowth is what the bounds of docs/explanation/messaging.md allow: messages that wait for the handler and for the loop, and as
	// much again that is not collected yet.
	floodGrowth = 2 * (64 + 8) << 20
)

// TestFlood publishes 100,000 pushes at once and a body of 200 MB through the exchanges of the server, and plugs ports in
// meanwhile. The pushes are made from real ones of the simulated server: ports of other hosts, members of a remote group that
// move from one address to another, and messages that cannot be read. Times run from before ovs-vsctl is called until the server
// has the port ACTIVE. Memory is the agent's VmHWM.
func TestFlood(t *testing.T) {
	f := newFlood(t)
	quiet := f.wireSome(quietProbes, nil)
	peak := f.memory("VmHWM:")

	quietCalls := f.calls.take()
	list, ch := bodies(f.templates()), f.dial()
	before := f.totals()
	runtime.GC() // of this process, which the server is in
	// The agent is stopped until the broker has all of it: then it comes as fast as the broker can deliver.
	f.signal(syscall.SIGSTOP)
	began := time.Now()
	err := f.publish(ch, list)
	sent := time.Since(began)
	f.signal(syscall.SIGCONT)
	stopped := time.Since(began)
	if err != nil {
		t.Fatal(err)
	}
	began = time.Now()
	f.calls.take()
	f.waitFor("the flood to begin", func() bool { return f.totals().Messages > before.Messages+100 })
	during := f.wireSome(floodProbes, func() bool { return f.waiting() == 0 })
	f.waitFor("the end of the flood", func() bool { return f.waiting() == 0 })
	took := time.Since(began)
	floodCalls := f.calls.take()
	f.waitFor("the agent to be in sync", func() bool { return f.status().InSync })
	after := f.wireSome(quietProbes, nil)
	flooded, most := f.memory("VmHWM:"), f.limit()
	end := f.totals()

	log, err := os.ReadFile(f.host.AgentLog(lab.Patchbay))
	if err != nil {
		t.Fatal(err)
	}
	parts := stages(log)[floodResting:]
	fmt.Printf("\n%-28s %6s %10s %10s %10s   agent's own medians: details, switch, report\n", "plug to ACTIVE", "ports", "median", "9 of 10", "longest")
	for _, r := range []struct {
		name  string
		times []time.Duration
	}{{"quiet", quiet}, {"during the flood", during}, {"after it", after}} {
		fmt.Printf("%-28s %6d %10s %10s %10s   %s\n", r.name, len(r.times), ms(quantile(r.times, 0.5)), ms(quantile(r.times, 0.9)), ms(quantile(r.times, 1)), medians(parts[:len(r.times)]))
		parts = parts[len(r.times):]
	}
	base := quantile(append(append([]time.Duration(nil), quiet...), after...), 0.5)
	ratio := float64(quantile(during, 0.5)) / float64(base)
	fmt.Printf("%d pushes and a body of %d bytes, sent in %.1f s, handled in %.1f s; wiring took %.2f times its quiet time (bound %d); load %s\n", floodPushes, floodBody, sent.Seconds(), took.Seconds(), ratio, slowdown, loadAverage())
	fmt.Printf("a call of somebody else through the same broker: %s quiet, %s during the flood (medians)\n", ms(quantile(quietCalls, 0.5)), ms(quantile(floodCalls, 0.5)))
	fmt.Printf("memory: at most %d MiB before, %d MiB with the flood; growth bound %d MiB, the unit's MemoryMax %d MiB\n", peak>>20, flooded>>20, floodGrowth>>20, most>>20)
	fmt.Printf("agent: %d messages, %d dropped, %d resyncs; the loop was busy for %.1f s in %d turns, the longest %.1f ms\n", end.Messages-before.Messages, end.Dropped-before.Dropped,
		end.Resyncs-before.Resyncs, end.BusySeconds-before.BusySeconds, end.Steps-before.Steps, 1000*end.LongestSeconds)

	if len(during) < 5 {
		t.Errorf("%d ports were wired during the flood, too few to judge", len(during))
	}
	if ratio >= slowdown {
		t.Errorf("wiring took %.2f times its quiet time", ratio)
	}
	if flooded >= most {
		t.Errorf("the agent had %d bytes, its unit allows %d", flooded, most)
	}
	if flooded-peak > floodGrowth {
		t.Errorf("the flood cost %d bytes, bound %d", flooded-peak, floodGrowth)
	}
	if n := end.Messages + end.Dropped - before.Messages - before.Dropped; n < floodPushes {
		t.Errorf("%d of %d messages were seen", n, floodPushes)
	}
	// The signal may have stopped the process in the middle of a turn: the clock by which that one is measured went on.
	if d := time.Duration(end.LongestSeconds * float64(time.Second)); d > longestTurn && (d < sent || d > stopped+longestTurn) {
		t.Errorf("a turn of the loop took %s, bound %s", d, longestTurn)
	}
	if end.Resyncs == before.Resyncs {
		t.Error("the body that was dropped caused no resync")
	}
	if n := bytes.Count(log, []byte("connection to the broker lost, reconnecting")); n > 0 {
		t.Errorf("the broker was lost %d times", n)
	}
	if n := bytes.Count(log, []byte("\n")); n > 1000 {
		t.Errorf("the agent wrote %d lines into its log", n)
	}
	if !bytes.Contains(log, []byte("message too large, dropped; resyncing")) {
		t.Error("the log does not tell of the large message")
	}
}

type deluge struct {
	*onCall
	server *sim.Server
	host   *lab.Host
	made   *sim.Populated
	ch     *amqp.Channel
	queue  string
	probes []*sim.Port
	calls  roundTrips
}

func newFlood(t *testing.T) *deluge {
	t.Helper()
	t.Setenv(lab.EnvServer, string(lab.NoServer))
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	t.Cleanup(cancel)
	l := lab.New(t, 1)
	f := &deluge{onCall: &onCall{cloud: &cloud{l: l, ctx: ctx}, t: t}, host: l.Host(1)}
	// The lab's broker has little memory, and RabbitMQ takes no message over 128 MiB unless told so.
	f.ctl("set_vm_memory_high_watermark", "absolute", "4GB")
	f.ctl("eval", "application:set_env(rabbit, max_message_size, 536870912).")
	var err error
	if f.server, err = sim.Start(ctx, sim.Config{URL: l.TransportURL(), API: l.APIAddr(), Log: t.Logf}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.server.Close(context.WithoutCancel(ctx)) })
	f.server.AddAgent(f.host.Name(), netip.MustParseAddr(f.host.LocalIP()))
	f.made, err = f.server.Populate(ctx, sim.Population{
		Project: lab.Project, Host: f.host.Name(), Ports: floodResting + floodProbes + 2*quietProbes, Groups: 1, Members: floodMembers,
		Segment: sim.Segment{NetworkType: "vlan", PhysicalNetwork: "physnet1", SegmentationID: 200},
	})
	if err != nil {
		t.Fatal(err)
	}
	f.plugIn(f.made.Local[:floodResting]...)
	f.probes = f.made.Local[floodResting:]
	if err := f.host.StartAgent(ctx, lab.Patchbay, filtering, "agent.l2_population=false", "agent.arp_responder=false"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.host.StopAgent(context.WithoutCancel(ctx)) })
	f.waitFor("the ports to be wired", func() bool { return f.active(f.made.Local[:floodResting]...) && f.status().InSync })
	f.ch = f.dial()
	f.echo()
	queues, err := l.Broker().Queues(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range queues {
		if strings.HasPrefix(q.Name, "neutron-openvswitch-agent_fanout_") {
			f.queue = q.Name
		}
	}
	return f
}

func (f *deluge) signal(s syscall.Signal) {
	f.t.Helper()
	if err := f.host.SignalAgent(s); err != nil {
		f.t.Fatal(err)
	}
}

func (f *deluge) plugIn(list ...*sim.Port) {
	f.t.Helper()
	var add []ports.Port
	for _, p := range list {
		add = append(add, ports.Port{ID: p.ID, MACAddress: p.MAC})
	}
	if err := f.host.PlugMany(f.ctx, add); err != nil {
		f.t.Fatal(err)
	}
}

func (f *deluge) active(list ...*sim.Port) bool {
	for _, p := range list {
		if f.server.Status(p.ID) != "ACTIVE" {
			return false
		}
	}
	return true
}

func (f *deluge) waitFor(what string, holds func() bool) {
	f.t.Helper()
	if !f.eventually(2*time.Minute, holds) {
		f.t.Fatalf("waited in vain for %s", what)
	}
}

// wireSome plugs in one port after the other, at most so many, and not after over holds. A port that was not done by then does
// not count.
func (f *deluge) wireSome(count int, over func() bool) (times []time.Duration) {
	f.t.Helper()
	for range count {
		p := f.probes[0]
		f.probes = f.probes[1:]
		began := time.Now()
		f.plugIn(p)
		for !f.active(p) {
			if time.Since(began) > time.Minute {
				f.t.Fatalf("port %s is not ACTIVE after a minute", p.ID)
			}
			time.Sleep(500 * time.Microsecond)
		}
		took := time.Since(began)
		if over != nil && over() {
			break
		}
		times = append(times, took)
		time.Sleep(50 * time.Millisecond)
	}
	return times
}

func (f *deluge) status() (s inspect.Status) {
	f.t.Helper()
	if err := json.Unmarshal([]byte(fetch(f.t, f.overSocket(), "http://agent/v1/status")), &s); err != nil {
		f.t.Fatal(err)
	}
	return s
}

func (f *deluge) totals() inspect.Totals { return f.status().Totals }

// waiting is how many messages the broker keeps for the agent.
func (f *deluge) waiting() int {
	f.t.Helper()
	q, err := f.ch.QueueDeclarePassive(f.queue, false, false, false, false, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	return q.Messages
}

// memory is a figure of the agent's process in bytes.
func (f *deluge) memory(field string) int64 { f.t.Helper(); return memoryOf(f.t, f.host, field) }

// memoryOf is a figure of the process of a host's agent in bytes.
func memoryOf(t *testing.T, h *lab.Host, field string) int64 {
	t.Helper()
	_, pid := h.Agent()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	kb := regexp.MustCompile(`(?m)^` + field + `\s+(\d+) kB$`).FindSubmatch(text)
	if kb == nil {
		t.Fatalf("no %s in the process's status", field)
	}
	n, err := strconv.ParseInt(string(kb[1]), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n << 10
}

// limit is the unit's MemoryMax in bytes.
func (f *deluge) limit() int64 {
	f.t.Helper()
	text, err := os.ReadFile("../deploy/systemd/50-patchbay.conf")
	if err != nil {
		f.t.Fatal(err)
	}
	g := regexp.MustCompile(`(?m)^MemoryMax=(\d+)G$`).FindSubmatch(text)
	if g == nil {
		f.t.Fatal("the unit has no MemoryMax in gigabytes")
	}
	n, err := strconv.ParseInt(string(g[1]), 10, 64)
	if err != nil {
		f.t.Fatal(err)
	}
	return n << 30
}

const portExchange = "neutron-vo-Port-1.7_fanout"

// template is a real push, and what differs from one to the next.
type template struct {
	body []byte
	port *sim.Port
}

// templates are what the server pushes about a member of the remote group, for each, and about a port of no group that matters.
func (f *deluge) templates() []template {
	f.t.Helper()
	q, err := f.ch.QueueDeclare("", false, true, true, false, nil)
	if err == nil {
		err = f.ch.QueueBind(q.Name, "", portExchange, false, nil)
	}
	if err != nil {
		f.t.Fatal(err)
	}
	host, owner, none := sim.Elsewhere, "compute:nova", []string{}
	stranger, err := f.server.CreatePort(f.ctx, sim.PortSpec{
		Project: &f.made.Network.Project, NetworkID: &f.made.Network.ID, Host: &host, DeviceOwner: &owner, Groups: &none,
	})
	if err != nil {
		f.t.Fatal(err)
	}
	list := []*sim.Port{stranger}
	for range floodMembers {
		p, err := f.server.AddMember(f.ctx, f.made, 0)
		if err != nil {
			f.t.Fatal(err)
		}
		list = append(list, p)
	}
	var out []template
	for _, p := range list {
		var d amqp.Delivery
		f.waitFor("a push", func() bool {
			d, _, err = f.ch.Get(q.Name, true)
			return err == nil && bytes.Contains(d.Body, []byte(p.ID))
		})
		out = append(out, template{d.Body, p})
	}
	if _, err := f.ch.QueueDelete(q.Name, false, false, false); err != nil {
		f.t.Fatal(err)
	}
	f.waitFor("the agent to know the members", func() bool { return f.waiting() == 0 && f.status().InSync })
	return out
}

var (
	uniqueID = regexp.MustCompile(`_unique_id\\":\s*\\"[0-9a-f]{32}`)
	revision = regexp.MustCompile(`revision_number\\":\s*(\d+)`)
)

// push makes the n-th push of a template: another message about another revision. A stranger is another port each time, a
// member has another address.
func (m template) push(n int, stranger bool) []byte {
	body := uniqueID.ReplaceAll(m.body, fmt.Appendf(nil, `_unique_id\":\"%032x`, n+1))
	body = revision.ReplaceAll(body, fmt.Appendf(nil, `revision_number\":%d`, 100+n))
	if stranger {
		return bytes.ReplaceAll(body, []byte(m.port.ID), fmt.Appendf(nil, "0f0f0f0f-0000-4000-8000-%012x", n))
	}
	address := m.port.FixedIPs[0].IP.String()
	return bytes.ReplaceAll(body, []byte(address+`\"`), fmt.Appendf(nil, `10.67.%d.%d\"`, n/250%250, n%250+1))
}

// bodies are the flood: six of ten about ports elsewhere, three about members, one that cannot be read; and the large body
// among them. They are made before, so that making them takes no processor from those who are measured.
func bodies(templates []template) [][]byte {
	unreadable := [][]byte{
		[]byte("not json"), []byte(`{"oslo.version":"2.0","oslo.message":17}`), bytes.Repeat([]byte{0xff}, 3000),
		[]byte(`{"oslo.version":"2.0","oslo.message":"{\"method\":\"push\",\"args\":{\"resource_list\":[{}],\"event_type\":\"updated\"}}"}`),
	}
	members := templates[1:]
	list := make([][]byte, 0, floodPushes+1)
	for n := range floodPushes {
		switch n % 10 {
		case 0:
			list = append(list, unreadable[n/10%len(unreadable)])
		case 1, 2, 3:
			list = append(list, members[n%len(members)].push(n, false))
		default:
			list = append(list, templates[0].push(n, true))
		}
		if n == floodPushes/2 {
			list = append(list, make([]byte, floodBody))
		}
	}
	return list
}

func (f *deluge) dial() *amqp.Channel {
	f.t.Helper()
	conn, err := amqp.Dial(regexp.MustCompile("^rabbit:").ReplaceAllString(f.l.TransportURL(), "amqp:"))
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = conn.Close() })
	ch, err := conn.Channel()
	if err != nil {
		f.t.Fatal(err)
	}
	return ch
}

func (f *deluge) publish(ch *amqp.Channel, list [][]byte) error {
	for n, body := range list {
		err := ch.PublishWithContext(f.ctx, portExchange, "", false, false, amqp.Publishing{ContentType: "application/json", ContentEncoding: "utf-8", Body: body})
		if err != nil {
			return fmt.Errorf("publishing the %d-th push: %w", n, err)
		}
	}
	// A channel that the broker has closed shows only now.
	_, err := ch.QueueDeclarePassive(f.queue, false, false, false, false, nil)
	return err
}

func loadAverage() string {
	text, _ := os.ReadFile("/proc/loadavg")
	return strings.Join(strings.Fields(string(text))[:3], " ")
}

var upLine = regexp.MustCompile(`port is up .* details=(\S+) switch=(\S+) report=(\S+)`)

// stages are the times that the agent names for each port that it has wired, in that order.
func stages(log []byte) (list [][3]time.Duration) {
	for _, m := range upLine.FindAllSubmatch(log, -1) {
		var s [3]time.Duration
		for i := range s {
			s[i], _ = time.ParseDuration(string(m[i+1]))
		}
		list = append(list, s)
	}
	return list
}

func medians(of [][3]time.Duration) string {
	var texts []string
	for i := range 3 {
		var times []time.Duration
		for _, s := range of {
			times = append(times, s[i])
		}
		texts = append(texts, ms(quantile(times, 0.5)))
	}
	return strings.Join(texts, ", ")
}

// roundTrips are the times of calls that have nothing to do with the agent.
type roundTrips struct {
	mu    sync.Mutex
	times []time.Duration
}

func (r *roundTrips) take() []time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	times := r.times
	r.times = nil
	return times
}

// echo calls a method that answers at once, again and again, to see what the broker takes for it.
func (f *deluge) echo() {
	f.t.Helper()
	url, err := messaging.ParseURL(f.l.TransportURL())
	if err != nil {
		f.t.Fatal(err)
	}
	open := func(program string) *messaging.Client {
		c, err := messaging.Open(messaging.Config{URL: url, Exchange: "neutron", Program: program, Host: "echo"})
		if err != nil {
			f.t.Fatal(err)
		}
		return c
	}
	server, client := open("echo-server"), open("echo-client")
	handler := func(context.Context, *messaging.Message) (any, error) { return true, nil }
	if err := server.Serve(f.ctx, messaging.Service{Topics: []string{"echo"}, Shared: true, Handler: handler}); err != nil {
		f.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(f.ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			began := time.Now()
			if client.Call(ctx, messaging.Target{Topic: "echo"}, "echo", nil, nil) == nil {
				f.calls.mu.Lock()
				f.calls.times = append(f.calls.times, time.Since(began))
				f.calls.mu.Unlock()
			}
			time.Sleep(20 * time.Millisecond)
		}
	})
	f.t.Cleanup(func() {
		cancel()
		wg.Wait()
		_ = client.Close(context.WithoutCancel(f.ctx))
		_ = server.Close(context.WithoutCancel(f.ctx))
	})
}
