// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/security/rules"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"

	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	dry "github.com/patchbay-sdn/patchbay/internal/plan"
	"github.com/patchbay-sdn/patchbay/lab"
	"github.com/patchbay-sdn/patchbay/openflow"
)

// TestPlan compares what `patchbay plan` prints with what then happens.
//
// The first host has 20 ports with security groups on two networks, and the Python agent; on the second are more members
// of the groups. Plan runs beside the Python agent, under traffic: meanwhile no flow changes and none is younger than
// before, the database writes nothing, the broker has the same queues and sees nothing of ours but questions. Then the
// Python agent is stopped and Patchbay started: the differences are those that were printed. Beside Patchbay there are none.
//
// The third host has never had an agent: what a start makes there refers to ports and bridges that do not exist yet.
func TestPlan(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	x := &planRun{cloud: &cloud{l: lab.New(t, 3), ctx: ctx}}
	h := x.l.Host(1)
	for _, host := range []*lab.Host{h, x.l.Host(2)} {
		if err := host.StartAgent(ctx, lab.Python, filtering); err != nil {
			t.Fatal(err)
		}
	}
	stop := x.populate(t)
	defer stop()
	x.quiet(t, h)

	var printed *dry.Plan
	if !t.Run("nothing changes beside the Python agent", func(t *testing.T) {
		x.unchanged(t, h, func() { printed = x.plan(t, h, 1) })
	}) || printed == nil {
		t.FailNow()
	}
	t.Run("what is printed happens", func(t *testing.T) {
		before := x.state(t, h)
		if err := h.StopAgent(ctx); err != nil {
			t.Fatal(err)
		}
		if err := h.StartAgent(ctx, lab.Patchbay, filtering); err != nil {
			t.Fatal(err)
		}
		x.inSync(t, h)
		x.same(t, printed, before, x.state(t, h))
	})
	t.Run("nothing is left beside Patchbay", func(t *testing.T) {
		x.unchanged(t, h, func() { x.plan(t, h, 0) })
		x.plan(t, h, 0, "--offline")
	})
	t.Run("a host without an agent", func(t *testing.T) {
		h := x.l.Host(3)
		before := x.state(t, h)
		printed := x.plan(t, h, 1)
		if err := h.StartAgent(ctx, lab.Patchbay); err != nil {
			t.Fatal(err)
		}
		x.inSync(t, h)
		x.same(t, printed, before, x.state(t, h))
		x.plan(t, h, 0)
	})
}

type planRun struct{ *cloud }

// populate makes networks, groups and ports, and begins to send packets, until the function that it returns is called.
func (x *planRun) populate(t *testing.T) func() {
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	overlay, err := x.l.CreateNetwork(x.ctx, lab.Network{Name: "overlay", Type: "vxlan", CIDR: "10.1.0.0/24"})
	must(err)
	wire, err := x.l.CreateNetwork(x.ctx, lab.Network{Name: "wire", Type: "vlan", PhysicalNetwork: "physnet1", CIDR: "10.2.0.0/24"})
	must(err)
	web, err := x.l.CreateGroup(x.ctx, "web")
	must(err)
	db, err := x.l.CreateGroup(x.ctx, "db")
	must(err)
	must(x.l.Allow(x.ctx, web, "icmp"))
	for _, o := range []rules.CreateOpts{
		{SecGroupID: web, Protocol: "tcp", PortRangeMin: 80, PortRangeMax: 90, RemoteIPPrefix: "10.0.0.0/8"},
		{SecGroupID: db, Protocol: "tcp", PortRangeMin: 5432, PortRangeMax: 5432, RemoteGroupID: web},
		{SecGroupID: db, RemoteGroupID: db},
	} {
		o.Direction, o.EtherType, o.ProjectID = rules.DirIngress, rules.EtherType4, lab.Project
		_, err := rules.Create(x.ctx, x.l.Neutron(), o).Extract()
		must(err)
	}
	var vms []*lab.VM
	for host, count := range map[int]int{1: 5, 2: 2} {
		h := x.l.Host(host)
		var quiet []ports.Port
		for _, network := range []string{overlay.ID, wire.ID} {
			for _, group := range []string{web, db} {
				extra := map[string]any{"security_groups": []string{group}}
				if group == web && network == overlay.ID { // one of these is a VM that sends
					vm, err := h.Plug(x.ctx, lab.Port{NetworkID: network, Name: "vm" + strconv.Itoa(host), Extra: extra})
					must(err)
					vms = append(vms, vm)
					more, err := x.l.CreatePorts(x.ctx, h, lab.Port{NetworkID: network, Extra: extra}, count-1)
					must(err)
					quiet = append(quiet, more...)
					continue
				}
				more, err := x.l.CreatePorts(x.ctx, h, lab.Port{NetworkID: network, Extra: extra}, count)
				must(err)
				quiet = append(quiet, more...)
			}
		}
		must(h.PlugMany(x.ctx, quiet))
		for _, p := range quiet {
			must(x.l.WaitActive(x.ctx, p.ID))
		}
	}
	must(vms[0].WaitPing(x.ctx, vms[1].IPs[0]))
	sending, stop := context.WithCancel(x.ctx)
	var wg sync.WaitGroup
	wg.Go(func() { _ = vms[0].Command(sending, "ping", "-q", "-i", "0.05", vms[1].IPs[0]).Run() })
	return func() { stop(); wg.Wait() }
}

// plan runs the command, and demands a status.
func (x *planRun) plan(t *testing.T, h *lab.Host, status int, flags ...string) *dry.Plan {
	t.Helper()
	run := func(flags ...string) []byte {
		binary, err := filepath.Abs("../bin/patchbay")
		if err != nil {
			t.Fatal(err)
		}
		cmd := h.Command(x.ctx, binary, slices.Concat([]string{"plan"}, flags, h.AgentFiles())...)
		var out, errOut bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errOut
		err = cmd.Run()
		var exit *exec.ExitError
		if got := 0; err != nil && (!errors.As(err, &exit) || exit.ExitCode() != status) || err == nil && status != got {
			t.Errorf("plan: %v, wanted status %d\n%s%s", err, status, errOut.String(), out.String())
		}
		if errOut.Len() > 0 {
			t.Errorf("plan complains: %s", errOut.String())
		}
		return out.Bytes()
	}
	p := &dry.Plan{}
	if err := json.Unmarshal(run(append(flags, "--json")...), p); err != nil {
		t.Fatal(err)
	}
	t.Logf("%s: %.2f s, %d flows and %d ports compared, %d rows and %d flows would change; assumed %+v", h.Name(), p.Seconds,
		p.Compared.Flows, p.Compared.Ports, len(p.Rows), len(p.Flows), p.Assumed)
	text := run(flags...)
	for line := range bytes.Lines(text) {
		if len(line) > 240 {
			line = append(line[:240:240], "…\n"...)
		}
		fmt.Print("  | ", string(line))
	}
	return p
}

// hostState is a host's switch.
type hostState struct {
	view  *ovsdb.View
	flows map[string]map[openflow.Key]openflow.Entry
	stats map[string]map[openflow.Key]openflow.FlowStat
	at    time.Time // before it was read
}

// state reads the rows and flows of a host, without flows that packets taught the switch.
func (c *cloud) state(t *testing.T, h *lab.Host) *hostState {
	t.Helper()
	s := &hostState{
		view: ovsdb.NewView(), at: time.Now(), flows: map[string]map[openflow.Key]openflow.Entry{},
		stats: map[string]map[openflow.Key]openflow.FlowStat{},
	}
	db, err := ovsdb.New(ovsdb.Config{Endpoint: "unix:" + h.Switch().DBSocket()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(c.ctx)
	over := make(chan struct{})
	go func() { defer close(over); db.Run(ctx) }()
	s.view.Apply(<-db.Changes())
	stop()
	<-over
	for _, br := range bridges {
		if s.view.BridgeByName(br) == nil {
			continue
		}
		of, err := openflow.Dial(c.ctx, "unix:"+h.Switch().MgmtSocket(br), openflow.Config{})
		if err != nil {
			t.Fatal(err)
		}
		s.flows[br], s.stats[br] = map[openflow.Key]openflow.Entry{}, map[openflow.Key]openflow.FlowStat{}
		err = of.DumpFlows(c.ctx, openflow.Filter{Table: openflow.AllTables}, func(f *openflow.FlowStat) error {
			e := f.Entry()
			if flow, err := e.Flow(); err != nil || flow.HardTimeout != 0 || flow.IdleTimeout != 0 {
				return err // learned from packets
			}
			s.flows[br][e.Key()], s.stats[br][e.Key()] = e, *f
			return nil
		})
		if err = errors.Join(err, of.Close()); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// unchanged demands that nothing changes while something is done.
func (x *planRun) unchanged(t *testing.T, h *lab.Host, do func()) {
	t.Helper()
	file := filepath.Join(h.Switch().Dir(), "conf.db")
	size := func() int64 {
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	queues := func() (names []string) {
		list, err := x.l.Broker().Queues(x.ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range list {
			if !strings.HasPrefix(q.Name, "amq.gen") { // the firehose's own
				names = append(names, q.Name)
			}
		}
		slices.Sort(names)
		return names
	}
	tracing, stop := context.WithCancel(x.ctx)
	defer stop()
	hose, err := x.l.Broker().Trace(tracing)
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	list, err := x.l.Broker().Connections(x.ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range list {
		known[c.Name] = true
	}
	called := map[string]int{}
	heard := make(chan struct{})
	go func() {
		defer close(heard)
		for p := range hose {
			var envelope struct {
				Message string `json:"oslo.message"`
			}
			var m struct {
				Method string `json:"method"`
			}
			if known[p.Connection] || json.Unmarshal(p.Body, &envelope) != nil || json.Unmarshal([]byte(envelope.Message), &m) != nil {
				continue
			}
			if m.Method != "" { // without one it is an answer, of a server that has opened one more connection
				called[m.Method]++
			}
		}
	}()
	beforeQueues, beforeSize, before := queues(), size(), x.state(t, h)
	do()
	after := x.state(t, h)
	if got := size(); got != beforeSize {
		t.Errorf("the database wrote %d bytes", got-beforeSize)
	}
	if got := queues(); !slices.Equal(got, beforeQueues) {
		t.Errorf("queues of the broker\n%v\nwere\n%v", got, beforeQueues)
	}
	stop()
	<-heard
	for method := range called {
		if method != "has_alive_neutron_server" && method != "bulk_pull" && method != "get_networks" {
			t.Errorf("the server was asked %s", method)
		}
	}
	if called["bulk_pull"] == 0 {
		t.Error("nothing of ours was seen on the broker: the check would see nothing else either")
	}
	if rows := ovsdb.Compare(before.view, after.view); len(rows) > 0 {
		t.Errorf("rows changed: %+v", rows)
	}
	passed, packets, flows := after.at.Sub(before.at), uint64(0), 0
	for br, all := range before.stats {
		if len(all) != len(after.stats[br]) {
			t.Errorf("%s had %d flows and has %d", br, len(all), len(after.stats[br]))
		}
		for k, was := range all {
			flows++
			is, ok := after.stats[br][k]
			switch {
			case !ok || before.flows[br][k] != after.flows[br][k]:
				t.Errorf("%s: flow changed: %s", br, k)
			case is.Packets < was.Packets || is.Duration < was.Duration+passed-time.Second:
				t.Errorf("%s: flow was touched: %s had %d packets in %v, has %d in %v after %v", br, k, was.Packets, was.Duration,
					is.Packets, is.Duration, passed)
			}
			packets += is.Packets - was.Packets
		}
	}
	if packets == 0 {
		t.Error("no packet came by: counters prove nothing")
	}
	t.Logf("%d flows untouched for %.1f s while %d packets were counted; calls %v", flows, passed.Seconds(), packets, called)
}

// inSync waits until Patchbay has written down what it knows, and the flows have come to rest.
func (x *planRun) inSync(t *testing.T, h *lab.Host) {
	t.Helper()
	file := filepath.Join(h.Dir(), "agent", "state", "patchbay.snapshot")
	if !x.eventually(settled, func() bool { _, err := os.Stat(file); return err == nil }) {
		t.Fatalf("%s has no snapshot", h.Name())
	}
	x.quiet(t, h)
}

// quiet waits until the flows and rows of a host have not changed for some time.
func (x *planRun) quiet(t *testing.T, h *lab.Host) {
	t.Helper()
	before, since := x.state(t, h), time.Now()
	if !x.eventually(settled, func() bool {
		time.Sleep(time.Second)
		if after := x.state(t, h); len(differences(before, after)) > 0 {
			before, since = after, time.Now()
		}
		return time.Since(since) > 10*time.Second
	}) {
		t.Fatalf("%s does not come to rest", h.Name())
	}
}

// same demands that what was printed is what happened.
func (x *planRun) same(t *testing.T, p *dry.Plan, before, after *hostState) {
	t.Helper()
	var printed []string
	for _, f := range p.Flows {
		printed = append(printed, flowText(f.Change, f.Bridge, f.Table, f.Priority, f.Match, f.Before, f.Actions))
		if f.Reason == "" || f.Change != "removed" && f.Owner == "" {
			t.Errorf("no reason is given for %+v", f)
		}
	}
	for _, r := range p.Rows {
		printed = append(printed, rowText(r.RowChange))
	}
	slices.Sort(printed)
	happened := differences(before, after)
	shown := 0
	for _, l := range printed {
		if _, ok := slices.BinarySearch(happened, l); !ok {
			if shown++; shown < 20 {
				t.Errorf("printed, and did not happen: %s", l)
			}
		}
	}
	for _, l := range happened {
		if _, ok := slices.BinarySearch(printed, l); !ok {
			if shown++; shown < 40 {
				t.Errorf("happened, and was not printed: %s", l)
			}
		}
	}
	if len(printed) == 0 || len(printed) != len(happened) {
		t.Errorf("%d differences were printed, %d happened", len(printed), len(happened))
	}
	t.Logf("%d differences of rows and flows printed, %d happened, %d of them not as printed", len(printed), len(happened), shown)
}

func flowText(change, bridge string, table uint8, priority uint16, match, before, actions string) string {
	return fmt.Sprintf("%s flow %s table=%d priority=%d %s before=%s actions=%s", change, bridge, table, priority, match, before, actions)
}

func rowText(r ovsdb.RowChange) string {
	return fmt.Sprintf("%s row %s %s on %q %v", r.Change, r.Table, r.Name, r.Bridge, r.Values)
}

var portNumber = regexp.MustCompile(`\b(in_port=|output:)(\d+)\b`)

// differences lists what changed from one state to another, sorted. Ports that are new stand there by their names.
func differences(before, after *hostState) []string {
	var out []string
	for _, r := range ovsdb.Compare(before.view, after.view) {
		out = append(out, rowText(r))
	}
	for _, br := range bridges {
		fresh := map[string]string{}
		for i := range after.view.Interfaces() {
			p := after.view.PortOf(i.UUID)
			if b := after.view.BridgeOf(p.UUID); b != nil && b.Name == br && before.view.Interface(i.UUID) == nil && i.OFPort != nil {
				fresh[strconv.Itoa(*i.OFPort)] = i.Name
			}
		}
		text := func(e openflow.Entry) (match, actions string) {
			f, err := e.Flow()
			if err != nil {
				return err.Error(), ""
			}
			named := func(s string) string {
				return portNumber.ReplaceAllStringFunc(s, func(m string) string {
					sub := portNumber.FindStringSubmatch(m)
					if name := fresh[sub[2]]; name != "" {
						return sub[1] + strconv.Quote(name)
					}
					return m
				})
			}
			return named(f.Match.String()), named(string(openflow.AppendActions(nil, f.Actions)))
		}
		keys := maps.Clone(before.flows[br])
		if keys == nil {
			keys = map[openflow.Key]openflow.Entry{}
		}
		maps.Copy(keys, after.flows[br])
		for k := range keys {
			was, is := before.flows[br][k], after.flows[br][k]
			switch {
			case was.IsZero():
				match, actions := text(is)
				out = append(out, flowText("added", br, k.Table(), k.Priority(), match, "", actions))
			case is.IsZero():
				match, actions := text(was)
				out = append(out, flowText("removed", br, k.Table(), k.Priority(), match, "", actions))
			case !was.SameActions(is):
				match, actions := text(is)
				_, old := text(was)
				out = append(out, flowText("changed", br, k.Table(), k.Priority(), match, old, actions))
			}
		}
	}
	slices.Sort(out)
	return out
}
