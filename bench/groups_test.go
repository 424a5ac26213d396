// SPDX-License-Identifier: Apache-2.0

//go:build bench

package bench

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"

	"github.com/patchbay-sdn/patchbay/lab"
	"github.com/patchbay-sdn/patchbay/lab/sim"
	"github.com/patchbay-sdn/patchbay/openflow"
)

const (
	localPorts = 10
	// changes are the members that come and go, one after the other; medians are shown. The Python agent takes its time.
	changes       = 9
	pythonChanges = 3
	// Of one member's change: one local VLAN, one direction, one ethertype, two states of connections.
	flowsOfAMember = 2
)

// syncLimit and changeLimit bound what is waited for; the Python agent is slow with large groups.
var (
	syncLimit   = limit("PATCHBAY_BENCH_SYNC", 10*time.Minute)
	changeLimit = limit("PATCHBAY_BENCH_CHANGE", 3*time.Minute)
)

func limit(variable string, otherwise time.Duration) time.Duration {
	if d, err := time.ParseDuration(os.Getenv(variable)); err == nil {
		return d
	}
	return otherwise
}

// sizes are the numbers that a variable names, or the others.
func sizes(t *testing.T, variable string, otherwise ...int) []int {
	t.Helper()
	var list []int
	for _, word := range strings.Fields(strings.ReplaceAll(os.Getenv(variable), ",", " ")) {
		var n int
		if _, err := fmt.Sscan(word, &n); err != nil {
			t.Fatalf("%s: %v", variable, err)
		}
		list = append(list, n)
	}
	if len(list) == 0 {
		return otherwise
	}
	return list
}

// groupRun is what one agent made of a remote group of one size.
type groupRun struct {
	members       int
	kind          lab.AgentKind
	flows         int           // of the integration bridge, in sync
	sync, syncCPU time.Duration // from the start of the process until all ports are ACTIVE
	add, remove   memberChange
	rss, peak     int64
	note          string
}

// memberChange is what one member that comes or goes costs.
type memberChange struct {
	flows, most int           // that changed: median and most
	last        time.Duration // from the push to the last flow
	cpu         time.Duration
}

// TestGroups measures how the cost of a member grows with its group, on a simulated server. The network is a vlan and
// l2population is off: nothing but the group tells the agent of the members. Every agent and size begins on a switch without
// traces, with the ports plugged.
//
//   - The time of a change runs from before the server puts it into its model, to the last change of a flow on the
//     integration bridge, as a flow monitor sees it.
//   - Changes of flows are what the monitor tells: added, deleted, or modified, which includes other cookies.
//   - CPU is that of the agent and its helpers until they have come to rest.
//
// PATCHBAY_BENCH_MEMBERS=10,1000 and PATCHBAY_BENCH_AGENT=patchbay measure only these; PATCHBAY_BENCH_SYNC and
// PATCHBAY_BENCH_CHANGE are how long is waited for one start and one change, 10m and 3m otherwise.
func TestGroups(t *testing.T) {
	host, s := simulatedHost(t)
	began, before := time.Now(), loadAverage()
	var all []groupRun
	for i, n := range sizes(t, "PATCHBAY_BENCH_MEMBERS", 10, 100, 1000, 10_000) {
		made := populate(t, s, host, localPorts, n, 200+i)
		for _, kind := range agents() {
			g := &groupBench{server: s, host: host, made: made, run: groupRun{members: n, kind: kind}}
			if !t.Run(fmt.Sprintf("%s/%d", kind, n), g.measure) {
				t.Logf("%s with %d members failed", kind, n)
			}
			all = append(all, g.run)
		}
	}
	printGroups(all, fmt.Sprintf("%d local ports, one remote group; load average before %s, after %s; took %s",
		localPorts, before, loadAverage(), time.Since(began).Round(time.Second)))
	judgeGroups(t, all)
}

// simulatedHost returns a host of a lab with a simulated server.
func simulatedHost(t *testing.T) (*lab.Host, *sim.Server) {
	t.Helper()
	t.Setenv(lab.EnvServer, string(lab.NoServer))
	l := lab.New(t, 1)
	s, err := sim.Start(t.Context(), sim.Config{URL: l.TransportURL(), API: l.APIAddr(), Log: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	return l.Host(1), s
}

// populate makes local ports of one group on a VLAN, which lets in a remote group.
func populate(t *testing.T, s *sim.Server, host *lab.Host, local, members, vlan int) *sim.Populated {
	t.Helper()
	s.AddAgent(host.Name(), netip.MustParseAddr(host.LocalIP()))
	made, err := s.Populate(t.Context(), sim.Population{
		Project: lab.Project, Host: host.Name(), Ports: local, Groups: 1, Members: members,
		Segment: sim.Segment{NetworkType: "vlan", PhysicalNetwork: "physnet1", SegmentationID: vlan},
	})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// agents are those to measure: both, or the one that PATCHBAY_BENCH_AGENT names.
func agents() []lab.AgentKind {
	if only := os.Getenv("PATCHBAY_BENCH_AGENT"); only != "" {
		return []lab.AgentKind{lab.AgentKind(only)}
	}
	return []lab.AgentKind{lab.Patchbay, lab.Python}
}

type groupBench struct {
	server *sim.Server
	host   *lab.Host
	made   *sim.Populated
	run    groupRun
	flows  *flowWatch
}

func (g *groupBench) measure(t *testing.T) {
	ctx := t.Context()
	if err := g.host.StopAgent(ctx); err != nil {
		t.Fatal(err)
	}
	g.reset(t, g.host.PlugMany)
	t.Cleanup(func() {
		if err := g.host.StopAgent(context.Background()); err != nil {
			t.Error(err)
		}
	})
	began := time.Now()
	if err := g.host.StartAgent(ctx, g.run.kind,
		"securitygroup.firewall_driver=openvswitch", "securitygroup.enable_security_group=true",
		"agent.l2_population=false", "agent.arp_responder=false", "agent.tunnel_types=vxlan",
		"ovs.of_request_timeout=300", // a bundle of ten thousand flows takes the Python agent longer than the 10 s it waits
	); err != nil {
		t.Fatal(err)
	}
	if !g.active(ctx, began.Add(syncLimit)) {
		g.run.sync, g.run.note = syncLimit, "not in sync within "+syncLimit.String()
		return
	}
	g.run.sync = time.Since(began)
	g.quiet(t, syncLimit)
	g.run.syncCPU = cpu(t, g.host)
	g.watch(t)
	list, err := g.flows.conn.Flows(ctx, openflow.Filter{Table: openflow.AllTables})
	if err != nil {
		t.Fatal(err)
	}
	g.run.flows = len(list)
	g.changes(t)
	if g.flows.missed() {
		g.run.note += "more flows changed than were counted"
	}
	g.run.rss, g.run.peak = rss(t, g.host), peak(t, g.host)
}

// reset gives the host a switch without any agent's traces, with the local ports plugged and DOWN.
func (g *groupBench) reset(t *testing.T, plug func(context.Context, []ports.Port) error) []ports.Port {
	t.Helper()
	ctx := t.Context()
	if _, err := g.host.Switch().Vsctl(ctx, "--if-exists", "del-br", "br-int", "--", "--if-exists", "del-br", "br-tun", "--",
		"--if-exists", "del-br", "br-ex"); err != nil {
		t.Fatal(err)
	}
	if err := g.host.EnsureSwitch(ctx); err != nil {
		t.Fatal(err)
	}
	var list []ports.Port
	for _, p := range g.made.Local {
		if err := g.server.SetStatus(ctx, p.ID, "DOWN"); err != nil {
			t.Fatal(err)
		}
		list = append(list, ports.Port{ID: p.ID, MACAddress: p.MAC})
	}
	if err := plug(ctx, list); err != nil {
		t.Fatal(err)
	}
	return list
}

func (g *groupBench) active(ctx context.Context, until time.Time) bool {
	for time.Now().Before(until) && ctx.Err() == nil {
		waiting := slices.ContainsFunc(g.made.Local, func(p *sim.Port) bool { return g.server.Status(p.ID) != "ACTIVE" })
		if !waiting {
			return true
		}
		time.Sleep(10 * time.Millisecond)
	}
	return false
}

// quiet waits until the agent does nothing any more, and tells whether it came to that.
func (g *groupBench) quiet(t *testing.T, atMost time.Duration) bool {
	t.Helper()
	// The Python agent looks every two seconds.
	window, allowed := 500*time.Millisecond, 10*time.Millisecond
	if g.run.kind == lab.Python {
		window, allowed = 3*time.Second, 100*time.Millisecond
	}
	for until, last := time.Now().Add(atMost), cpu(t, g.host); time.Now().Before(until); {
		time.Sleep(window)
		now := cpu(t, g.host)
		if now-last <= allowed {
			return true
		}
		last = now
	}
	return false
}

func (g *groupBench) watch(t *testing.T) {
	t.Helper()
	w, err := watchFlows(t.Context(), g.host.Switch().MgmtSocket("br-int"))
	if err != nil {
		t.Fatal(err)
	}
	g.flows = w
	t.Cleanup(w.close)
}

// changes lets members come and go.
func (g *groupBench) changes(t *testing.T) {
	var adds, removes []memberChange
	times := map[lab.AgentKind]int{lab.Patchbay: changes, lab.Python: pythonChanges}[g.run.kind]
	for range times {
		var p *sim.Port
		one, err := g.change(t, func(ctx context.Context) (err error) {
			p, err = g.server.AddMember(ctx, g.made, 0)
			return err
		})
		adds = append(adds, one)
		if err != nil {
			g.run.note = "member added: " + err.Error()
			break
		}
		one, err = g.change(t, func(ctx context.Context) error { return g.server.DeletePort(ctx, p.ID) })
		removes = append(removes, one)
		if err != nil {
			g.run.note = "member removed: " + err.Error()
			break
		}
		if one.last > changeLimit/10 {
			break // once is enough of this
		}
	}
	g.run.add, g.run.remove = middle(adds), middle(removes)
	t.Logf("added %+v, removed %+v", adds, removes)
}

// change makes one change and returns what the agent made of it, when it has come to rest. With an error it is what the
// agent had made of it when the time was over.
func (g *groupBench) change(t *testing.T, do func(context.Context) error) (memberChange, error) {
	used := cpu(t, g.host)
	g.flows.begin()
	began := time.Now()
	if err := do(t.Context()); err != nil {
		return memberChange{}, err
	}
	for g.flows.changed() == 0 {
		if time.Since(began) > changeLimit {
			return memberChange{}, fmt.Errorf("no flow within %v", changeLimit)
		}
		time.Sleep(time.Millisecond)
	}
	rests := g.quiet(t, changeLimit)
	n, last := g.flows.end()
	c := memberChange{flows: n, most: n, last: last.Sub(began), cpu: cpu(t, g.host) - used}
	if !rests {
		return c, fmt.Errorf("no rest within %v, figures are of that time", changeLimit)
	}
	return c, nil
}

// middle takes the medians.
func middle(list []memberChange) memberChange {
	if len(list) == 0 {
		return memberChange{}
	}
	pick := func(f func(memberChange) int64) int64 {
		var all []int64
		for _, c := range list {
			all = append(all, f(c))
		}
		slices.Sort(all)
		return all[len(all)/2]
	}
	return memberChange{
		flows: int(pick(func(c memberChange) int64 { return int64(c.flows) })),
		most:  slices.MaxFunc(list, func(a, b memberChange) int { return a.flows - b.flows }).flows,
		last:  time.Duration(pick(func(c memberChange) int64 { return int64(c.last) })),
		cpu:   time.Duration(pick(func(c memberChange) int64 { return int64(c.cpu) })),
	}
}

// flowWatch counts what happens to the flows of a bridge.
type flowWatch struct {
	conn *openflow.Conn
	done chan struct{}

	mu      sync.Mutex
	counted int
	last    time.Time
	lost    bool // there were more
}

func watchFlows(ctx context.Context, socket string) (*flowWatch, error) {
	conn, err := openflow.Dial(ctx, "unix:"+socket, openflow.Config{Versions: []openflow.Version{openflow.OpenFlow14}, Events: 1 << 16})
	if err != nil {
		return nil, err
	}
	w := &flowWatch{conn: conn, done: make(chan struct{})}
	go w.read()
	if err := conn.Monitor(ctx, 1, openflow.Filter{Table: openflow.AllTables}, false); err != nil {
		w.close()
		return nil, errors.Join(errors.New("monitoring the flows"), err)
	}
	return w, nil
}

func (w *flowWatch) read() {
	defer close(w.done)
	for e := range w.conn.Events() {
		w.mu.Lock()
		switch e := e.(type) {
		case openflow.EventsLost:
			w.lost = true
		case *openflow.MonitorUpdate:
			for _, f := range e.Updates {
				switch f.Event {
				case openflow.FlowAdded, openflow.FlowDeleted, openflow.FlowModified:
					w.counted, w.last = w.counted+1, time.Now()
				case openflow.FlowsPaused:
					w.lost = true // what comes and goes meanwhile is never told
				}
			}
		}
		w.mu.Unlock()
	}
}

func (w *flowWatch) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counted, w.last = 0, time.Time{}
}

func (w *flowWatch) changed() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.counted
}

func (w *flowWatch) end() (int, time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.counted, w.last
}

func (w *flowWatch) missed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lost
}

func (w *flowWatch) close() {
	_ = w.conn.Close()
	<-w.done
}

func mib(n int64) string {
	if n == 0 {
		return "–"
	}
	return fmt.Sprintf("%d MiB", n>>20)
}

func printGroups(all []groupRun, about string) {
	fmt.Printf("\n%s\n\n", about)
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 1, ' ', 0)
	cells := func(c ...string) { fmt.Fprintln(out, "| "+strings.Join(c, "\t| ")+"\t|") }
	head := []string{
		"members", "agent", "flows", "start → all ACTIVE", "its CPU", "member added: flows", "applied after", "CPU",
		"removed: flows", "applied after", "CPU", "RSS", "its peak", "note",
	}
	cells(head...)
	cells(strings.Split(strings.Repeat("---,", len(head)-1)+"---", ",")...)
	for _, r := range all {
		change := func(c memberChange) []string {
			if c.flows == 0 {
				return []string{"–", "–", "–"}
			}
			return []string{fmt.Sprint(c.flows), ms(c.last), ms(c.cpu)}
		}
		row := []string{fmt.Sprint(r.members), string(r.kind), fmt.Sprint(r.flows), or(ms(r.sync)), or(ms(r.syncCPU))}
		row = append(append(row, change(r.add)...), change(r.remove)...)
		cells(append(row, mib(r.rss), mib(r.peak), r.note)...)
	}
	_ = out.Flush()
}

// judgeGroups holds the figures against their targets.
func judgeGroups(t *testing.T, all []groupRun) {
	python := map[int]groupRun{}
	for _, r := range all {
		if r.kind == lab.Python {
			python[r.members] = r
		}
	}
	say := t.Logf
	if asserting() {
		say = t.Errorf
	}
	for _, r := range all {
		if r.kind != lab.Patchbay {
			continue
		}
		for what, c := range map[string]memberChange{"added": r.add, "removed": r.remove} {
			if c.flows == 0 || c.most > flowsOfAMember {
				say("%d members, one %s: %d flows changed, target 1 to %d", r.members, what, c.most, flowsOfAMember)
			}
			if c.last > 20*time.Millisecond {
				say("%d members, one %s: applied after %s, target 20 ms", r.members, what, ms(c.last))
			}
			p := python[r.members].add
			if what == "removed" {
				p = python[r.members].remove
			}
			if p.cpu > 0 && p.cpu < 50*c.cpu {
				say("%d members, one %s: CPU %s beside Python's %s, target 1/50", r.members, what, ms(c.cpu), ms(p.cpu))
			}
		}
		if r.rss > 120<<20 {
			say("%d members: RSS %d MiB, target 120", r.members, r.rss>>20)
		}
	}
}
