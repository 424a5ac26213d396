// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/dvr"
	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/fake"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/observe"
	"github.com/patchbay-sdn/patchbay/internal/pipeline"
	"github.com/patchbay-sdn/patchbay/internal/qos"
	"github.com/patchbay-sdn/patchbay/internal/runner"
	"github.com/patchbay-sdn/patchbay/internal/snapshot"
	"github.com/patchbay-sdn/patchbay/internal/trunk"
	"github.com/patchbay-sdn/patchbay/internal/world"
	"github.com/patchbay-sdn/patchbay/openflow"
	"github.com/patchbay-sdn/patchbay/oslo/messaging"
	"github.com/patchbay-sdn/patchbay/parity"
)

var (
	crashes   = flag.Int("crashes", 25, "crashes of an agent in random histories")
	crashSeed = flag.Uint64("crashseed", 1, "seed of the histories; 0: new ones")
)

// TestCrashes lets an agent, with all extensions or without, live through random histories and crash in the middle, and checks four things. A history goes
// from rest to rest; between them up to two things change, the broker and the server may be away, calls fail, the switch may
// lose its flows, the snapshot may be cut short, changed or of another version; the agent dies at a random step, or at a
// random time, and is started again.
//
//  1. Right in the end: all flows, meters and rows are those that a fresh agent makes on a switch where the same is plugged in, and
//     that has no flows, meters, queues or limits.
//  2. Never empty: a flow that is right before, after, and whichever of the changes are known, stays from the moment it is
//     there and is not touched; only the switch itself may lose it. A port that comes under filters
//     is closed until they are known: from that change on its own flows are left out, and what only it needs.
//  3. Never open: every flow of the integration bridge is at any time one that is right for some of the changes; its default
//     is to drop; no interface is let in without the flow that leads to its filters, and none is in a network.
//  4. Back without a server: after the switch lost its flows, those of 2 are there again while the server is still away,
//     if there is a snapshot to be trusted.
func TestCrashes(t *testing.T) {
	const perHistory = 3
	playHistories(t, seedOf(t, *crashSeed), (*crashes+perHistory-1)/perHistory, func(t *testing.T, rnd *rand.Rand, _ int) {
		h := newCrashHistory(t, rnd)
		h.rest()
		for range perHistory {
			h.play()
		}
		h.end()
	})
}

// seedOf returns the seed of a flag, or a new one for 0, and tells it.
func seedOf(t *testing.T, seed uint64) uint64 {
	t.Helper()
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("seed %d", seed)
	return seed
}

// playHistories plays histories beside each other, each in a time of its own, with what happens drawn from the seed and its number.
func playHistories(t *testing.T, seed uint64, histories int, play func(t *testing.T, rnd *rand.Rand, n int)) {
	t.Helper()
	for n := range histories {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { play(t, rand.New(rand.NewPCG(seed, uint64(n))), n) })
		})
	}
}

// crashHistory is a host over the lives of its agents.
type crashHistory struct {
	t     *testing.T
	rnd   *rand.Rand
	cfg   world.Config
	more  []extension.New
	ovs   *fakeOVS
	truth *truth
	dir   string // of the snapshot

	revision int
	number   int // of rules and incarnations

	life    *life
	region  *region
	agent   *Agent
	session *ovsSession
	cancel  func()
	done    chan error
	story   []string

	taped bool
	tapes []*keptTape // of each life, if they are kept

	watch *crashWatch
	ready func(*Agent) // called before an agent runs
	says  *watched     // the agent, about itself
	// restVLANs is what local VLANs stood for at the last rest.
	restVLANs    map[uint16]string
	owners       map[bridgeKey]world.Object // of flows at the last rest
	forgot       int                        // how many bundles there had been when what the server had said was lost; -1: it was not
	applied      map[string]int             // how many bundles there had been when a change was made, by its name
	filteredFrom map[string]int             // how many bundles there had been when a port came under filters
}

func newCrashHistory(t *testing.T, rnd *rand.Rand) *crashHistory {
	return newTapedHistory(t, rnd, false)
}

// newTapedHistory is newCrashHistory, and may keep tapes of what agents are told.
func newTapedHistory(t *testing.T, rnd *rand.Rand, taped bool) *crashHistory {
	h := &crashHistory{taped: taped, t: t, rnd: rnd, ovs: newFakeOVS(), truth: newTruth(), dir: t.TempDir(), watch: &crashWatch{}}
	filter := rnd.IntN(3) > 0
	h.cfg = world.Config{
		Host: "hv1", IntegrationBridge: "br-int", TunnelBridge: "br-tun", IntPatch: "patch-tun", TunPatch: "patch-int",
		Physical: map[string]string{"physnet1": "br-ex"}, LocalIP: netip.MustParseAddr("10.0.0.1"), TunnelTypes: []string{"vxlan", "gre"},
		L2Population: rnd.IntN(2) == 0, Filter: filter, FilterTables: filter, FailClosed: filter, AntiSpoof: !filter,
	}
	h.cfg.ARPResponder = h.cfg.L2Population
	if rnd.IntN(3) > 0 {
		h.more = []extension.New{dvr.New, trunk.New, qos.New}
	}
	h.ovs.rows["Bridge"][rowID("br-ex")] = map[string]any{"_uuid": rowID("br-ex"), "name": "br-ex"} // the operator's
	h.ovs.mu.Lock()
	h.ovs.run()
	h.ovs.mu.Unlock()
	for _, id := range slices.Concat([]string{"A", "B", "C", "D", "E", trunkParent}, regionSubPorts) {
		h.truth.ports[id] = h.drawPort(id)
	}
	for range 4 {
		id, rule := h.drawRule()
		h.truth.rules[id] = rule
	}
	for _, id := range regionPolicies {
		h.truth.policies[id] = map[string]any{"id": id, "name": id, "revision_number": 0, "rules": h.drawLimits()}
	}
	h.live(0, false)
	wait(time.Second) // for the bridges
	for i, id := range []string{"A", "B"} {
		h.ovs.plug(id, 0, 10+i)
	}
	if rnd.IntN(2) == 0 && len(h.more) > 0 {
		h.region.mu.Lock()
		h.truth.subPorts["7"] = 1
		h.region.mu.Unlock()
		h.ovs.boot(0)
	}
	return h
}

// macOf is the address of a port, by the first letter of its id.
func macOf(port string) string { return "fa:16:3e:00:00:0" + strings.ToLower(port[:1]) }

func (h *crashHistory) note(format string, args ...any) {
	h.story = append(h.story, fmt.Sprintf(format, args...))
}

// fail ends the test with the history that led there.
func (h *crashHistory) fail(format string, args ...any) {
	h.t.Helper()
	h.t.Fatalf("%s\nafter: %s", fmt.Sprintf(format, args...), strings.Join(h.story, "; "))
}

// live starts an agent. With a limit it dies at that step.
func (h *crashHistory) live(limit int, away bool) {
	dir := h.dir
	h.life = newLife(limit, func() { h.dir = copyState(h.t, dir) })
	if h.taped {
		kept := &keptTape{}
		h.life.tape = kept
		h.tapes = append(h.tapes, kept)
	}
	seed := h.rnd.Uint64()
	h.life.late = time.Duration(rand.New(rand.NewPCG(seed, 4)).IntN(3)) * 5 * time.Millisecond
	h.region = &region{life: h.life, truth: h.truth, rnd: rand.New(rand.NewPCG(seed, 2)), away: away, ready: h.prepare}
	h.agent, h.session, h.cancel, h.done = startOn(h.t, h.cfg, h.ovs, h.region, filepath.Join(dir, "snapshot"), h.more...)
}

// prepare looks at an agent before it runs.
func (h *crashHistory) prepare(a *Agent) {
	if h.ready != nil {
		h.ready(a)
	}
	if a.cfg.probe.f == nil { // else panics are injected, and extensions answer now one thing and now another
		watchGate(h.t, a)
	}
	h.says = watchAgent(a, h.says)
	h.watch.names(h.says)
}

func startOn(t *testing.T, cfg world.Config, ovs *fakeOVS, r *region, file string, more ...extension.New) (*Agent, *ovsSession, func(), chan error) {
	t.Helper()
	return startLogged(t, cfg, ovs, r, file, slog.New(slog.DiscardHandler), more...)
}

func startLogged(t *testing.T, cfg world.Config, ovs *fakeOVS, r *region, file string, log *slog.Logger, more ...extension.New) (*Agent, *ovsSession, func(), chan error) {
	t.Helper()
	return startAgent(t, cfg, ovs, r.life, func(onEvent func(messaging.Event)) Broker { r.onEvent = onEvent; return r }, r.ready, file, log, more...)
}

// startAgent runs an agent on a switch, with what connect makes of a broker. ready is called before it runs.
func startAgent(t *testing.T, cfg world.Config, ovs *fakeOVS, l *life, connect func(func(messaging.Event)) Broker, ready func(*Agent), file string, log *slog.Logger, more ...extension.New) (*Agent, *ovsSession, func(), chan error) {
	t.Helper()
	sw := ovs.session(l)
	if kept, ok := l.tape.(*keptTape); ok {
		kept.makers = more
	}
	a, err := New(Config{
		Host: "hv1", ReportInterval: 30 * time.Second, PortsPerReport: 20, Log: log, World: cfg, Snapshot: file, Extensions: more,
		Version: "test", Configurations: ofAgent(cfg), probe: &probe{}, Tape: l.tape, Progress: func(Progress) {},
		Settings: pipeline.Settings{DatapathType: "netdev", MACTableSize: 50000, VXLANPort: 4789, DontFragment: true},
		Notifier: observe.NewNotifier(func(string) string { return "" }, 1), Rules: l.rules, RulesConfig: rulesConfig(l.rules),
		Link: runner.Supervised(func(ctx context.Context, bridge string) (*openflow.Conn, error) { return ovs.dial(ctx, l, bridge) }),
	}, sw, func(onEvent func(messaging.Event)) (Broker, error) { return connect(onEvent), nil })
	if err != nil {
		t.Fatal(err)
	}
	if ready != nil {
		ready(a)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	return a, sw, cancel, done
}

// bury waits until a dead agent is gone.
func (h *crashHistory) bury() {
	h.life.crash()
	h.cancel()
	if err := <-h.done; err != nil {
		h.fail("the agent ended with %v", err)
	}
	h.ovs.leave(h.session)
}

func (h *crashHistory) end() { h.bury() }

// copyState is the state directory as a crash leaves it: what is written afterwards does not count.
func copyState(t *testing.T, dir string) string {
	to := t.TempDir()
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Error(err)
	}
	for _, f := range files {
		data, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			continue // renamed meanwhile
		}
		if err := os.WriteFile(filepath.Join(to, f.Name()), data, 0o600); err != nil {
			t.Error(err)
		}
	}
	return to
}

// restTime is long enough for everything: pauses between attempts, the wait for forwarding entries, the snapshot.
const restTime = 100 * time.Second

// untilRest waits until an agent says that it is at rest, and still does a moment later.
func (h *crashHistory) untilRest(w *watched) {
	h.t.Helper()
	for still, end := 0, time.Now().Add(restTime); still < 2; {
		wait(time.Second)
		still++
		if rests, missing := w.atRest(); !rests {
			if still = 0; time.Now().After(end) {
				h.fail("after %s the agent is not at rest: %s", restTime, strings.Join(missing, "; "))
			}
		}
	}
}

// rest lets everything happen that is to happen, without further trouble, and checks the result.
func (h *crashHistory) rest() {
	h.t.Helper()
	h.region.chance(nil)
	h.region.back()
	h.untilRest(h.says)
	ovs := h.ovs.clone()
	ovs.strip()
	_, names := h.fresh(h.truth, ovs)
	got, want := described(h.ovs, vlansOf(h.agent)), described(ovs, names.vlans)
	if diff := difference(got, want); diff != "" {
		h.fail("flows, meters and rows are not those of a fresh start:\n%s", diff)
	}
	h.region.chance(rand.New(rand.NewPCG(h.rnd.Uint64(), 3)))
}

// fresh are the flows that a fresh agent without trouble makes on a switch that has none.
func (h *crashHistory) fresh(t *truth, ovs *fakeOVS) (map[bridgeKey]openflow.Entry, numbering) {
	h.t.Helper()
	l := newLife(0, func() {})
	var says *watched
	r := &region{life: l, truth: t, ready: func(a *Agent) { says = watchAgent(a, nil) }}
	a, sw, cancel, done := startOn(h.t, h.cfg, ovs, r, "", h.more...)
	h.untilRest(says)
	flows, names := ovs.all(), ovs.numbering(vlansOf(a))
	l.crash()
	cancel()
	<-done
	ovs.leave(sw)
	return flows, names
}

// strip takes away what agents have written about limits and trunks.
func (o *fakeOVS) strip() {
	if o.plugged(trunkParent) == 0 {
		delete(o.rows["Bridge"], rowID(trunkBridge))
	}
	for id, port := range o.rows["Port"] {
		if slices.ContainsFunc([]string{"tpi-", "tpt-", "spi-", "spt-"}, func(p string) bool { return strings.HasPrefix(textOf(port["name"]), p) }) {
			for _, br := range o.rows["Bridge"] {
				br["ports"] = mutate(br["ports"], false, []any{"uuid", id})
			}
		}
	}
	o.run()
	clear(o.rows["QoS"])
	clear(o.rows["Queue"])
	for _, port := range o.rows["Port"] {
		delete(port, "qos")
		if port["other_config"] != nil {
			kept := entriesOf(port["other_config"])
			maps.DeleteFunc(kept, func(k string, _ any) bool { return strings.HasSuffix(k, "gress") })
			port["other_config"] = mapValue(kept)
		}
	}
	for _, i := range o.rows["Interface"] {
		delete(i, "ingress_policing_rate")
		delete(i, "ingress_policing_burst")
		if ids := entriesOf(i["external_ids"]); ids["trunk_id"] != nil {
			maps.DeleteFunc(ids, func(k string, _ any) bool { return k == "trunk_id" || k == "bridge_name" || k == "subport_ids" })
			i["external_ids"] = mapValue(ids)
		}
	}
}

// described are the flows, meters and rows of a switch, without the numbers of a run.
func described(o *fakeOVS, vlans map[uint16]string) map[string]bool {
	view := o.view()
	names := parity.NewNames()
	for vlan, name := range vlans {
		names.VLAN(vlan, name)
	}
	names.Learn(view)
	out := map[string]bool{}
	// What is written down about a port's network stays when it is switched off.
	written := regexp.MustCompile(`^Port \S+ other_config:(net_uuid|network_type|physical_network|segmentation_id|tag)=`)
	lines := slices.Concat(names.Rows(view), names.Meters("br-int", o.allMeters("br-int")))
	flows := map[string][]openflow.Flow{}
	for k, e := range o.all() {
		f, err := e.Flow()
		if err != nil {
			panic(err)
		}
		flows[k.bridge] = append(flows[k.bridge], f)
	}
	for bridge, list := range flows {
		lines = append(lines, names.Flows(bridge, list)...)
	}
	for _, line := range lines {
		if !written.MatchString(line) {
			out[line] = true
		}
	}
	return out
}

func vlansOf(a *Agent) map[uint16]string {
	out := map[uint16]string{}
	for _, s := range a.world().Segments.All() {
		out[s.VLAN] = s.Key.String()
	}
	return out
}

var vlanNumbers = regexp.MustCompile(`(dl_vlan=|reg6=|ct_zone=|set_field:)(0x[0-9a-f]+|\d+)(->vlan_vid|->reg6)?`)

// rename writes local VLANs by what they stand for.
func rename(line string, name func(vlan uint16) string) string {
	return vlanNumbers.ReplaceAllStringFunc(line, func(s string) string {
		m := vlanNumbers.FindStringSubmatch(s)
		if m[1] == "set_field:" && m[3] == "" {
			return s
		}
		var n uint16
		if _, err := fmt.Sscanf(m[2], "%v", &n); err != nil {
			return s
		}
		if m[3] == "->vlan_vid" {
			n &^= 0x1000
		}
		if text := name(n); text != "" {
			return m[1] + text + m[3]
		}
		return s
	})
}

func difference(got, want map[string]bool) string {
	var lines []string
	for line := range got {
		if !want[line] {
			lines = append(lines, "only after the history: "+line)
		}
	}
	for line := range want {
		if !got[line] {
			lines = append(lines, "only fresh: "+line)
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// crashWatch looks at everything that happens to the flows between two rests.
type crashWatch struct {
	mu   sync.Mutex
	log  []crashCommit
	says *watched
}

func (w *crashWatch) names(says *watched) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.says = says
}

// length is how many bundles there have been.
func (w *crashWatch) length() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.log)
}

// crashCommit is one bundle, with what was there after it.
type crashCommit struct {
	bridge string
	mods   []flowMod
	wiped  bool
	after  map[openflow.Key]openflow.Entry
	tagged map[int]string // ports of VMs that are in a network then, as far as the database says, by the number of their interface
	names  numbering
	open   map[string]bool // ports that have no filters as far as the agent knows
}

// begin writes down what happens from now on.
func (w *crashWatch) begin(o *fakeOVS) {
	o.mu.Lock()
	defer o.mu.Unlock()
	w.log = nil
	ports := o.givenPorts(map[int]string{}) // flows may still name an interface that goes before the first bundle
	o.committed = func(bridge string, mods []flowMod, wiped bool) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.says.mu.Lock()
		defer w.says.mu.Unlock()
		ports = o.givenPorts(maps.Clone(ports)) // the switch gives no number twice
		w.log = append(w.log, crashCommit{bridge, mods, wiped, maps.Clone(o.flows[bridge]), o.inNetworks(), numbering{w.says.vlans, ports}, w.says.open})
	}
}

// change is something that happens in the cloud or on the host. The same change can be made to several clouds.
type change struct {
	name string
	make func(t *truth, o *fakeOVS)
	tell func(r *region)
	anew int // the number of a port that is plugged in anew
}

// play goes from one rest to the next, with a crash in between.
func (h *crashHistory) play() {
	before := h.ovs.all()
	base, baseTruth := h.ovs.clone(), h.truth.clone()
	h.begin(before)
	// Faults while the agent lives.
	h.life.mu.Lock()
	h.life.limit = h.life.steps + 1 + h.rnd.IntN(60)
	h.life.mu.Unlock()
	changes := []change{h.drawChange()}
	if h.rnd.IntN(2) == 0 {
		changes = append(changes, h.drawChange())
	}
	todo := slices.Clone(changes)
	act := func() {
		switch n := h.rnd.IntN(6); {
		case n < 3 && len(todo) > 0:
			h.apply(todo[0])
			todo = todo[1:]
		case n == 3:
			h.note("the switch restarts")
			h.ovs.restart()
			h.life.drop()
		case n == 4:
			h.note("the broker leaves")
			h.region.leave()
		case n == 5:
			h.note("the broker is back")
			h.region.back()
		}
		wait(time.Duration(h.rnd.IntN(3000)) * time.Millisecond)
	}
	for range 1 + h.rnd.IntN(3) {
		act()
	}
	h.note("crash")
	h.bury()
	// Faults while there is none.
	trusted := h.damage()
	if !trusted {
		h.forgot = h.watch.length()
	}
	for range h.rnd.IntN(3) {
		act()
	}
	if h.rnd.IntN(3) == 0 {
		h.note("the switch restarts")
		h.ovs.restart()
	}
	away := h.rnd.IntN(2) == 0
	limit := 0
	if h.rnd.IntN(3) == 0 {
		limit = 1 + h.rnd.IntN(80) // it crashes again
	}
	h.note("start, server away: %v, crash at step %d", away, limit)
	h.live(limit, away)
	var static map[bridgeKey]openflow.Entry
	if away && limit == 0 && trusted {
		wait(20 * time.Second)
		static = h.ovs.all()
	}
	for range h.rnd.IntN(3) {
		act()
	}
	if limit > 0 {
		select {
		case <-h.life.died:
		case <-time.After(time.Duration(h.rnd.IntN(5000)) * time.Millisecond):
		}
		h.note("crash")
		h.bury()
		h.live(0, h.rnd.IntN(2) == 0)
	}
	for _, c := range todo {
		h.apply(c)
	}
	wait(time.Duration(h.rnd.IntN(2000)) * time.Millisecond)
	h.rest()
	h.check(before, base, baseTruth, changes, static)
}

// begin writes down what happens from now on, and who wants the flows that are there.
func (h *crashHistory) begin(before map[bridgeKey]openflow.Entry) {
	h.restVLANs, h.applied, h.owners, h.forgot = vlansOf(h.agent), map[string]int{}, map[bridgeKey]world.Object{}, -1
	h.filteredFrom = map[string]int{}
	for k := range before {
		h.owners[k], _, _ = h.agent.Why(k.bridge, k.key)
	}
	h.watch.begin(h.ovs)
}

func (h *crashHistory) apply(c change) {
	h.note("%s", c.name)
	if _, twice := h.applied[c.name]; !twice {
		h.applied[c.name] = h.watch.length()
	}
	h.region.mu.Lock()
	before := h.truth.clone()
	c.make(h.truth, h.ovs)
	for id, p := range h.truth.ports {
		if _, known := h.filteredFrom[id]; !known && checked(p) && !checked(before.ports[id]) {
			h.filteredFrom[id] = h.applied[c.name]
		}
	}
	h.region.mu.Unlock()
	if c.tell != nil {
		c.tell(h.region)
		if h.rnd.IntN(3) == 0 {
			c.tell(h.region)
		}
	}
}

// damage does something to the snapshot, and says whether it can still be trusted.
func (h *crashHistory) damage() bool {
	path := filepath.Join(h.dir, "snapshot")
	data, err := os.ReadFile(path)
	if err != nil {
		return false
	}
	write := func(path string, data []byte) {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			h.t.Fatal(err)
		}
	}
	what, trusted := "kept", false
	switch h.rnd.IntN(10) {
	case 0:
		what = "cut short"
		write(path, data[:h.rnd.IntN(len(data))])
	case 1:
		what = "changed"
		bad := slices.Clone(data)
		bad[len(bad)/2+h.rnd.IntN(len(bad)/2)] ^= 1 << h.rnd.IntN(8)
		write(path, bad)
	case 2:
		what = "of another version"
		if err := snapshot.Save(path, world.MemoryVersion+1, &world.Memory{}, time.Now()); err != nil {
			h.t.Fatal(err)
		}
	case 3:
		what = "gone"
		if err := os.Remove(path); err != nil {
			h.t.Fatal(err)
		}
	case 4:
		what, trusted = "being written anew", true
		write(path+".new-1", data[:h.rnd.IntN(len(data))])
	default:
		trusted = true
	}
	h.note("the snapshot is %s", what)
	return trusted
}

// check holds what happened since the last rest against what may happen.
func (h *crashHistory) check(before map[bridgeKey]openflow.Entry, base *fakeOVS, baseTruth *truth, changes []change, static map[bridgeKey]openflow.Entry) {
	h.t.Helper()
	steady, may := h.right(before, base, baseTruth, changes)
	h.neverEmpty(before, steady, h.comesUnderFilters(baseTruth), h.fromStrangers(baseTruth, changes))
	h.neverOpen(may, baseTruth)
	for k, e := range steady {
		if static != nil && static[k] != e {
			h.fail("without a server, from the snapshot, there is no %s %s", k.bridge, e)
		}
	}
}

// right are the flows that are right all the time, whichever of the changes are known, and the pieces of those that are for some of them.
func (h *crashHistory) right(before map[bridgeKey]openflow.Entry, base *fakeOVS, baseTruth *truth, changes []change) (steady map[bridgeKey]openflow.Entry, may map[string]bool) {
	h.t.Helper()
	steady, may = before, map[string]bool{}
	allow := func(flows map[bridgeKey]openflow.Entry, names numbering) {
		for k, e := range flows {
			if k.bridge == "br-int" {
				for _, p := range names.pieces(e) {
					may[p] = true
				}
			}
		}
	}
	allow(before, base.numbering(h.restVLANs))
	after := h.ovs.all()
	for subset := range 1 << len(changes) {
		t, o := baseTruth.clone(), base.clone()
		for i, c := range changes {
			if subset&(1<<i) != 0 {
				c.make(t, o)
			}
		}
		flows, names := h.fresh(t, o.clone())
		allow(flows, names)
		steady = both(steady, flows)
		if h.withGhosts(t, baseTruth) {
			allow(h.fresh(t, o.clone()))
		}
		if h.withOldRules(t, baseTruth) {
			allow(h.fresh(t, o))
		}
	}
	steady = both(steady, after)
	allow(after, h.ovs.numbering(vlansOf(h.agent)))
	return steady, may
}

// fromStrangers are the numbers of ports whose flows need not stay, and from which bundle on: of one that is plugged in anew under the
// number that it had, of one that was switched off and is switched on, whose groups were not in force meanwhile, and of one that is or was
// switched off when an agent begins without memory: nobody knows whose the number was, and the port must not inherit another's filters.
func (h *crashHistory) fromStrangers(before *truth, changes []change) map[uint64]int {
	numbers := map[uint64]int{}
	from := func(number, bundle int) {
		if since, is := numbers[uint64(number)]; !is || bundle < since { // the first of several reasons
			numbers[uint64(number)] = bundle
		}
	}
	for id, p := range h.truth.ports {
		if p["admin_state_up"] == true && before.ports[id]["admin_state_up"] == false {
			for _, n := range h.ovs.numbers(id) {
				from(n, h.applied["change "+id])
			}
		}
		if h.forgot >= 0 && (p["admin_state_up"] == false || before.ports[id]["admin_state_up"] == false) {
			for _, n := range h.ovs.numbers(id) {
				from(n, h.forgot)
			}
		}
	}
	for _, c := range changes {
		if c.anew != 0 {
			from(c.anew, h.applied[c.name])
		}
	}
	return numbers
}

// withGhosts adds what changed ports were and are as ports of other hosts: a port is known as a member of its new groups while
// its old ones are in force on it, as long as the new ones have not been told.
func (h *crashHistory) withGhosts(t, before *truth) bool {
	for id, p := range h.truth.ports {
		if p["revision_number"] == before.ports[id]["revision_number"] {
			continue
		}
		for i, ghost := range []map[string]any{p, before.ports[id]} {
			ghost = maps.Clone(ghost)
			ghost["id"] = fmt.Sprint(id, i)
			t.ports[id+fmt.Sprint(i)] = ghost
		}
	}
	return len(t.ports) > len(before.ports)
}

// withOldRules gives changed ports the groups and the policy that they had: they stay in force on a port until the new ones are known, in
// whatever network it is then.
func (h *crashHistory) withOldRules(t, before *truth) (any bool) {
	for id, had := range before.ports {
		p := t.ports[id]
		if p["revision_number"] == had["revision_number"] {
			continue
		}
		p = maps.Clone(p)
		for _, what := range []string{"security_group_ids", "qos_policy_id"} {
			if fmt.Sprint(p[what]) != fmt.Sprint(had[what]) {
				p[what], any = had[what], true
			}
		}
		t.ports[id] = p
	}
	return any
}

// checked says whether a port has filters.
func checked(p map[string]any) bool {
	return p["device_owner"] == "compute:nova" && fmt.Sprint(p["security"]) == fmt.Sprint(fake.Wrapped(map[string]any{"port_security_enabled": true}))
}

// span is from one bundle on, and before another one.
type span struct{ from, until int }

func (s span) has(bundle int) bool { return bundle >= s.from && bundle < s.until }

// comesUnderFilters are ports that came under filters, and in which bundles they are closed: until their filters are known. With its only
// port a segment goes, and what is known of it, until another port is in the network.
func (h *crashHistory) comesUnderFilters(before *truth) map[world.Object]span {
	out := map[world.Object]span{}
	for id, since := range h.filteredFrom {
		if !h.cfg.Filter {
			continue
		}
		out[world.PortObject(id)] = span{since, math.MaxInt}
		network := before.ports[id]["network_id"]
		alone := span{since, h.another(before, id, network)}
		for _, o := range h.owners {
			goes := false
			switch o := o.(type) {
			case world.SegmentObject:
				goes = o.Network == network
			case world.StationObject:
				goes = o.Segment.Network == network
			case world.PeerObject:
				goes = o.Segment.Network == network
			case world.TunnelObject:
				goes = h.cfg.L2Population && o.Type == networkType(network)
			}
			if goes && alone.has(since) {
				out[o] = alone
			}
		}
	}
	return out
}

// another is the bundle by whose end a port of the network other than one was in it: 0 for one that had flows before.
func (h *crashHistory) another(before *truth, than string, network any) int {
	first := math.MaxInt
	for id, p := range before.ports {
		_, anew := h.applied["plug anew "+id] // one that waits for its filters has no segment yet
		if id == than || anew || p["network_id"] != network || len(h.ovs.numbers(id)) == 0 {
			continue
		}
		for _, o := range h.owners {
			if o == world.PortObject(id) {
				return 0
			}
		}
		// A sub-port whose VM is started later.
		for n, c := range h.watch.log {
			if slices.Contains(slices.Collect(maps.Values(c.tagged)), id) {
				first = min(first, n)
				break
			}
		}
	}
	return first
}

// networkType is the type of a network.
func networkType(network any) string {
	for _, s := range regionSegments() {
		if s.network == network {
			return s.kind
		}
	}
	return ""
}

func both(a, b map[bridgeKey]openflow.Entry) map[bridgeKey]openflow.Entry {
	out := map[bridgeKey]openflow.Entry{}
	for k, e := range a {
		if b[k] == e {
			out[k] = e
		}
	}
	return out
}

// neverEmpty looks for flows that are right all the time and are touched. Those of what is closed for a while may go from then on, and
// those from the numbers of strangers.
func (h *crashHistory) neverEmpty(before, steady map[bridgeKey]openflow.Entry, closed map[world.Object]span, strangers map[uint64]int) {
	h.t.Helper()
	mayGo := func(k bridgeKey, bundle int) bool {
		if when, is := closed[h.owners[k]]; is && when.has(bundle) {
			return true
		}
		f, err := before[k].Flow()
		if err != nil {
			h.t.Fatal(err)
		}
		from, ok := f.Match.Lookup(openflow.InPort)
		since, is := strangers[from.Value.Lo]
		return ok && is && bundle >= since
	}
	there := map[bridgeKey]bool{}
	for k, e := range before {
		there[k] = steady[k] == e
	}
	for i, c := range h.watch.log {
		if c.wiped {
			for k := range there {
				if k.bridge == c.bridge {
					delete(there, k)
				}
			}
		}
		for _, m := range c.mods {
			k := bridgeKey{c.bridge, m.key}
			e, right := steady[k]
			if there[k] && !mayGo(k, i) {
				h.fail("bundle %d of %d: a flow that is right all the time is touched: %s of %s, now %s", i, len(h.watch.log), e, h.owners[k], m.entry)
			}
			there[k] = right && m.entry == e // after a loss it may come bit by bit
		}
	}
}

// neverOpen looks for flows that were never right, and for filtered ports that are let in or reached without their filters. A port
// that has none may be in its network before its flows are there: it waits for nothing. It has none as long as the agent has not heard of any.
func (h *crashHistory) neverOpen(may map[string]bool, before *truth) {
	h.t.Helper()
	for i, c := range h.watch.log {
		if c.bridge != "br-int" {
			continue
		}
		for _, m := range c.mods {
			if m.entry.IsZero() {
				continue
			}
			for _, p := range c.names.pieces(m.entry) {
				if !may[p] {
					h.fail("bundle %d of %d: never right: %s", i, len(h.watch.log), p)
				}
			}
		}
		if !h.cfg.Filter || len(c.after) == 0 {
			continue
		}
		admitted, led := map[string]bool{}, map[string]bool{}
		closed := false
		for _, e := range c.after {
			f, err := e.Flow()
			if err != nil {
				h.t.Fatal(err)
			}
			switch {
			case f.Table == 0 && f.Priority == 0 && len(f.Match) == 0:
				closed = len(f.Actions) == 0
			case f.Table == 0 && f.Priority == 1:
				admitted[f.Match.String()] = true
			case f.Table == 60 && f.Priority == 100:
				led[f.Match.String()] = true
			}
		}
		if !closed {
			h.fail("bundle %d of %d: the integration bridge is open", i, len(h.watch.log))
		}
		for port := range admitted {
			var n int
			_, _ = fmt.Sscanf(port, "in_port=%d", &n)
			if (n > 0 && n < givenFrom || isVM(c.names.ports[n])) && !led[port] {
				h.fail("bundle %d of %d: %s is let in without filters", i, len(h.watch.log), port)
			}
		}
		for n, id := range c.tagged {
			if (checked(before.ports[id]) || checked(h.truth.ports[id]) && !c.open[id]) && !led[fmt.Sprintf("in_port=%d", n)] {
				h.fail("bundle %d of %d: port %s, %d, is reached without filters", i, len(h.watch.log), id, n)
			}
		}
	}
}

// filteredHistory is at rest with two filtered ports.
func filteredHistory(t *testing.T) *crashHistory {
	h := newCrashHistory(t, rand.New(rand.NewPCG(1, 1)))
	h.bury()
	for _, id := range []string{"A", "B"} {
		h.truth.ports[id]["admin_state_up"], h.truth.ports[id]["device_owner"] = true, "compute:nova"
	}
	h.cfg.Filter, h.cfg.FilterTables, h.cfg.FailClosed, h.cfg.AntiSpoof = true, true, true, false
	h.live(0, false)
	h.region.chance(nil)
	wait(restTime)
	return h
}

// A port that gets the number of another one, which was unplugged while no agent lived, gets nothing else of it.
func TestANumberIsNoInheritance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := filteredHistory(t)
		let := func() (in, off []string) {
			for k, e := range h.ovs.all() {
				if text := e.String(); k.bridge == "br-int" && strings.Contains(text, "in_port=10,") {
					in = append(in, text)
				} else if k.bridge == "br-int" && strings.Contains(text, "in_port=11,") {
					off = append(off, text)
				}
			}
			return in, off
		}
		before, neighbour := let()
		if len(before) == 0 || len(neighbour) == 0 {
			t.Fatalf("%v, %v", before, neighbour)
		}
		h.bury()
		h.ovs.plug("C", 1, 10)
		h.ovs.unplug("A")
		h.live(0, true)
		wait(5 * time.Second)
		if after, others := let(); len(after) > 0 || len(others) != len(neighbour) {
			t.Errorf("without a server, the port that took over number 10 has %v; its neighbour %d of %d flows", after, len(others), len(neighbour))
		}
		h.end()
	})
}

// Without memory, ports are taken out of their networks if the switch has lost their filters, and left alone if it has them.
func TestPortsAreKeptApart(t *testing.T) {
	for _, restarted := range []bool{true, false} {
		t.Run(fmt.Sprint("switch restarted: ", restarted), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := filteredHistory(t)
				tags := func() string {
					h.ovs.mu.Lock()
					defer h.ovs.mu.Unlock()
					text := map[string]string{}
					for _, row := range h.ovs.rows["Port"] {
						if name := textOf(row["name"]); name == "tapA" || name == "tapB" {
							text[name] = textOf(row["tag"]) + textOf(row["vlan_mode"])
						}
					}
					return fmt.Sprint(text)
				}
				before, want := tags(), fmt.Sprintf("map[tapA:%[1]dtrunk tapB:%[1]dtrunk]", world.DeadVLAN)
				h.bury()
				h.dir = t.TempDir()
				if restarted {
					h.ovs.restart()
				} else {
					want = before
				}
				h.live(0, true)
				wait(5 * time.Second)
				if got := tags(); got != want {
					t.Errorf("without a server: %s, want %s", got, want)
				}
				h.region.chance(nil)
				h.region.back()
				wait(restTime)
				if got := tags(); got != before {
					t.Errorf("in the end: %s, want %s", got, before)
				}
				h.end()
			})
		})
	}
}

func pick[T any](r *rand.Rand, list ...T) T { return list[r.IntN(len(list))] }

func some[T any](r *rand.Rand, list ...T) []T {
	out := []T{}
	for _, x := range list {
		if r.IntN(2) == 0 {
			out = append(out, x)
		}
	}
	return out
}

func (h *crashHistory) drawPort(id string) map[string]any {
	h.revision++
	s := regionSegments()[h.rnd.IntN(len(regionSegments()))]
	var number any
	if s.id >= 0 {
		number = s.id
	}
	// What becomes of the tunnels of a network whose only port is off depends on whether it ever was on, here as with Python.
	up := s.kind != "local" || h.rnd.IntN(2) == 0
	ips, pairs := []any{}, []any{}
	for _, ip := range some(h.rnd, fmt.Sprint("10.0.0.1", id[0]), "2001:db8::"+strings.ToLower(id), "10.0.0.99") {
		ips = append(ips, fake.Wrapped(map[string]any{"ip_address": ip, "subnet_id": "s" + s.network}))
	}
	owner := pick(h.rnd, "compute:nova", "compute:nova", "network:dhcp")
	if len(h.more) > 0 && h.rnd.IntN(2) == 0 { // of each kind there is one here, so that it does not matter which is told first
		owner = map[string]string{"A": "network:router_interface_distributed", "B": "network:router_centralized_snat"}[id]
		owner = cmp.Or(owner, "compute:nova")
	}
	if h.rnd.IntN(4) == 0 {
		pairs = append(pairs, fake.Wrapped(map[string]any{"mac_address": "00:00:5e:00:01:0" + strings.ToLower(id), "ip_address": pick(h.rnd, "10.9.0.0/16", "0.0.0.0/0")}))
	}
	return map[string]any{
		"id": id, "network_id": s.network, "mac_address": macOf(id), "admin_state_up": up, "revision_number": h.revision,
		"device_owner": owner, "status": "ACTIVE", "qos_policy_id": pick[any](h.rnd, nil, "q1", "q2"),
		"security":  fake.Wrapped(map[string]any{"port_security_enabled": h.rnd.IntN(5) > 0}),
		"fixed_ips": ips, "allowed_address_pairs": pairs, "security_group_ids": some(h.rnd, regionGroups...),
		"bindings": []any{fake.Wrapped(map[string]any{"host": "hv1", "status": "ACTIVE", "profile": "{}"})},
		"binding_levels": []any{fake.Wrapped(map[string]any{"host": "hv1", "level": 0, "segment": fake.Wrapped(map[string]any{
			"network_type": s.kind, "physical_network": s.physnet, "segmentation_id": number,
		})})},
	}
}

func (h *crashHistory) drawRule() (string, map[string]any) {
	h.number++
	id := fmt.Sprint("r", h.number)
	rule := map[string]any{
		"id": id, "security_group_id": pick(h.rnd, regionGroups...), "direction": pick(h.rnd, "ingress", "ingress", "egress"), "ethertype": "IPv4",
	}
	switch h.rnd.IntN(4) {
	case 0:
		rule["remote_group_id"] = pick(h.rnd, regionGroups...)
	case 1:
		rule["remote_address_group_id"] = pick(h.rnd, regionLists...)
	case 2:
		rule["remote_ip_prefix"] = "10.0.0.0/8"
	}
	switch h.rnd.IntN(3) {
	case 0:
		rule["protocol"] = "icmp"
	case 1:
		rule["protocol"], rule["port_range_min"], rule["port_range_max"] = "tcp", 80+h.rnd.IntN(5), 85+h.rnd.IntN(9)
	}
	return id, rule
}

// drawMore draws a change that only extensions care about.
func (h *crashHistory) drawMore() change {
	h.revision++
	switch h.rnd.IntN(7) {
	case 4, 5:
		h.number++
		incarnation, off := h.number, h.ovs.plugged(trunkParent) != 0
		if off && h.rnd.IntN(2) == 0 {
			return change{name: "halt the VM with a trunk", make: func(_ *truth, o *fakeOVS) { o.halt() }}
		}
		return change{name: "boot the VM with a trunk", make: func(_ *truth, o *fakeOVS) { o.boot(incarnation) }}
	case 6:
		id, vlan := pick(h.rnd, regionSubPorts...), 1+h.rnd.IntN(2)
		was, gone := h.truth.subPorts[id]
		return change{name: fmt.Sprint("sub-port ", id, " gone: ", gone), make: func(t *truth, _ *fakeOVS) {
			if delete(t.subPorts, id); !gone {
				t.subPorts[id] = vlan
			}
		}, tell: func(r *region) {
			if gone {
				r.push(neutron.KindSubPort, neutron.Deleted, subPort(id, was))
			} else {
				r.push(neutron.KindSubPort, neutron.Created, subPort(id, vlan))
			}
		}}
	case 0, 1:
		id := pick(h.rnd, regionPolicies...)
		data := map[string]any{"id": id, "name": id, "revision_number": h.revision, "rules": h.drawLimits()}
		return change{name: fmt.Sprint("change policy ", id, " to ", data["rules"]), make: func(t *truth, _ *fakeOVS) {
			if t.policies[id]["revision_number"].(int) < data["revision_number"].(int) {
				t.policies[id] = data
			}
		}, tell: func(r *region) { r.push(neutron.KindQosPolicy, neutron.Updated, data) }}
	case 2:
		id := pick(h.rnd, regionSegments()...).network
		data := map[string]any{"id": id, "revision_number": h.revision, "qos_policy_id": pick[any](h.rnd, nil, "q1", "q2")}
		return change{name: fmt.Sprint("change network ", id, " to ", data["qos_policy_id"]), make: func(t *truth, _ *fakeOVS) {
			if t.network(id)["revision_number"].(int) < data["revision_number"].(int) {
				t.networks[id] = data
			}
		}, tell: func(r *region) { r.push(neutron.KindNetwork, neutron.Updated, data) }}
	}
	host := pick(h.rnd, "hv2", "hv3")
	gone := h.truth.routers[host] != ""
	return change{name: fmt.Sprint("routers of ", host, " gone: ", gone), make: func(t *truth, _ *fakeOVS) {
		if delete(t.routers, host); !gone {
			t.routers[host] = "fa:16:3f:00:01:0" + host[2:]
		}
	}, tell: func(r *region) {
		r.mu.Lock()
		list := r.truth.routerAddresses()
		r.mu.Unlock()
		r.send(neutron.TopicDVRUpdate, "dvr_mac_address_update", map[string]any{"dvr_macs": list})
	}}
}

// drawLimits draws the rules of a policy.
func (h *crashHistory) drawLimits() []any {
	way := func() string { return pick(h.rnd, "ingress", "egress") }
	rules := []any{}
	for _, kind := range some(h.rnd, "QosDscpMarkingRule", "QosBandwidthLimitRule", "QosPacketRateLimitRule", "QosMinimumBandwidthRule") {
		data := map[string]map[string]any{
			"QosDscpMarkingRule":      {"dscp_mark": 2 * h.rnd.IntN(4)},
			"QosBandwidthLimitRule":   {"max_kbps": 1000 * (1 + h.rnd.IntN(2)), "max_burst_kbps": 100 * h.rnd.IntN(2), "direction": way()},
			"QosPacketRateLimitRule":  {"max_kpps": 1 + h.rnd.IntN(2), "max_burst_kpps": h.rnd.IntN(2), "direction": way()},
			"QosMinimumBandwidthRule": {"min_kbps": 1000 * (1 + h.rnd.IntN(2)), "direction": way()},
		}[kind]
		rules = append(rules, map[string]any{"versioned_object.name": kind, "versioned_object.data": data})
	}
	return rules
}

// drawChange draws what happens next, as the cloud is now.
func (h *crashHistory) drawChange() change {
	id := pick(h.rnd, "A", "B", "C")
	h.number++
	incarnation, number := h.number, pick(h.rnd, 10, 20, 30)+int(id[0]-'A')
	if len(h.more) > 0 && h.rnd.IntN(3) == 0 {
		return h.drawMore()
	}
	switch h.rnd.IntN(9) {
	case 0, 1:
		if h.ovs.plugged(id) == 0 {
			return change{name: fmt.Sprint("plug ", id), make: func(_ *truth, o *fakeOVS) {
				if o.plugged(id) == 0 {
					o.plug(id, incarnation, number)
				}
			}}
		}
		return change{name: fmt.Sprint("unplug ", id), make: func(_ *truth, o *fakeOVS) { o.unplug(id) }}
	case 2:
		return change{name: fmt.Sprint("plug anew ", id), make: func(_ *truth, o *fakeOVS) { o.plug(id, incarnation, number) }, anew: number}
	case 3, 4:
		id := pick(h.rnd, "A", "B", "C", "D", "E")
		p := h.drawPort(id)
		return change{name: fmt.Sprint("change ", id), make: func(t *truth, _ *fakeOVS) {
			if had := t.ports[id]; had == nil || had["revision_number"].(int) < p["revision_number"].(int) {
				t.ports[id] = p
			}
		}, tell: func(r *region) {
			r.mu.Lock()
			data := r.truth.asTold(p)
			r.mu.Unlock()
			r.push(neutron.KindPort, neutron.Updated, data)
		}}
	case 5:
		id, rule := h.drawRule()
		return change{name: fmt.Sprint("add rule ", id), make: func(t *truth, _ *fakeOVS) { t.rules[id] = rule }, tell: func(r *region) {
			r.push(neutron.KindSecurityGroupRule, neutron.Updated, rule)
		}}
	case 6:
		if len(h.truth.rules) > 0 {
			id := pick(h.rnd, slices.Sorted(maps.Keys(h.truth.rules))...)
			group := h.truth.rules[id]["security_group_id"]
			return change{name: fmt.Sprint("drop rule ", id), make: func(t *truth, _ *fakeOVS) { delete(t.rules, id) }, tell: func(r *region) {
				r.push(neutron.KindSecurityGroupRule, neutron.Deleted, map[string]any{"id": id, "security_group_id": group})
			}}
		}
	case 7:
		id := pick(h.rnd, regionLists...)
		h.revision++
		list := []any{}
		for _, x := range some(h.rnd, "192.0.2.0/24", "10.0.0.99", "0.0.0.0/0") {
			list = append(list, fake.Wrapped(map[string]any{"address": x}))
		}
		data := map[string]any{"id": id, "revision_number": h.revision, "addresses": list}
		return change{name: fmt.Sprint("change addresses ", id), make: func(t *truth, _ *fakeOVS) { t.addresses[id] = data }, tell: func(r *region) {
			r.push(neutron.KindAddressGroup, neutron.Updated, data)
		}}
	}
	s := regionSegments()[h.rnd.IntN(2)]
	endpoint := pick(h.rnd, "10.0.0.2", "10.0.0.3")
	line := fmt.Sprintf("%s %d %s %s fa:16:3e:22:22:0%s 10.0.0.7%s", s.network, s.id, s.kind, endpoint, endpoint[7:], endpoint[7:])
	gone := h.truth.stations[line]
	return change{name: fmt.Sprint("station ", line, " gone: ", gone), make: func(t *truth, _ *fakeOVS) {
		if gone {
			delete(t.stations, line)
			delete(t.tunnels, s.kind+" "+endpoint)
		} else {
			t.stations[line], t.tunnels[s.kind+" "+endpoint] = true, true
		}
	}, tell: func(r *region) {
		tunnel := map[string]any{"tunnel_ip": endpoint, "tunnel_type": s.kind}
		if gone {
			r.send(neutron.TopicTunnelDelete, "tunnel_delete", tunnel)
			r.send(neutron.TopicL2Population, "remove_fdb_entries", fdb([]string{line}))
		} else {
			r.send(neutron.TopicTunnelUpdate, "tunnel_update", tunnel)
			r.send(neutron.TopicL2Population, "add_fdb_entries", fdb([]string{line}))
		}
	}}
}
