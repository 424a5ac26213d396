// SPDX-License-Identifier: Apache-2.0

//go:build parity

package live

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/patchbay-sdn/patchbay/lab"
	"github.com/patchbay-sdn/patchbay/parity"
)

const (
	acceptedFile = "../accepted.md"
	// maxRecording is the size that keeps a recording readable.
	maxRecording = 48 << 10
)

// testdata is where recordings are read and written: RECORDINGS, or the place in the repository.
func testdata() string {
	if dir := os.Getenv("RECORDINGS"); dir != "" {
		return dir
	}
	return "../testdata"
}

// chosen are the scenarios that SCENARIO, a regular expression, names; all without it.
func chosen(t *testing.T) []*scenario {
	t.Helper()
	re, err := regexp.Compile(os.Getenv("SCENARIO"))
	if err != nil {
		t.Fatal(err)
	}
	var list []*scenario
	release := releaseOf(t)
	for _, s := range scenarios() {
		switch {
		case !re.MatchString(s.name) && !re.MatchString(s.config.name):
		case release >= 29 && slices.Contains(refusedBy29(), strings.TrimPrefix(strings.TrimPrefix(s.name, "fw-"), "hybrid-")):
			t.Logf("%s is left out: the server of Neutron %d refuses a step of it", s.name, release)
		default:
			list = append(list, s)
		}
	}
	if len(list) == 0 {
		t.Fatalf("no scenario is called like %q", re)
	}
	// Scenarios of one configuration follow each other.
	slices.SortStableFunc(list, func(a, b *scenario) int { return strings.Compare(a.config.name, b.config.name) })
	return list
}

// refusedBy29 are scenarios, with each firewall, that have a port with the address pair ::/0. The server refuses it since 29, because of the
// multicast addresses in it.
func refusedBy29() []string {
	return []string{"address-pair-for-everything", "pair-everything-ipv6", "remote-member-everything"}
}

// TestScenariosAreDescribed needs no server.
func TestScenariosAreDescribed(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range scenarios() {
		if seen[s.name] {
			t.Errorf("%s: the name is taken", s.name)
		}
		seen[s.name] = true
		if len(s.doc) < 40 || s.hosts < 1 || s.hosts > s.config.hosts {
			t.Errorf("%s: no description, or hosts that its configuration does not have", s.name)
		}
		if !slices.ContainsFunc(s.steps, func(s step) bool { return s.checkpoint != "" }) {
			t.Errorf("%s: no checkpoint", s.name)
		}
	}
	firewall, hybrid := 0, 0
	for name := range seen {
		if strings.HasPrefix(name, "fw-") {
			firewall++
		}
		if strings.HasPrefix(name, "hybrid-") {
			hybrid++
		}
	}
	for _, name := range refusedBy29() {
		if !seen[name] && !seen["fw-"+name] {
			t.Errorf("%s is refused, and there is no such scenario", name)
		}
	}
	if others := len(seen) - firewall - hybrid; firewall < 60 || hybrid < 60 || others < 40 {
		t.Errorf("%d scenarios of the firewall, %d of iptables_hybrid, %d others; 60, 60 and 40 are promised", firewall, hybrid, others)
	}
}

// TestParity plays the scenarios with both agents. With RECORD it writes the recordings, too, of what the Python agent does.
func TestParity(t *testing.T) {
	list := chosen(t)
	c := newCloud(t)
	if os.Getenv("RECORD") != "" {
		c.done = recorder(t)
	}
	python := c.playAll(t, lab.Python, list)
	c.done = nil
	patchbay := c.playAll(t, lab.Patchbay, list)
	report(t, list, python, patchbay, accepted(t))
}

// TestAgainstRecordings plays the scenarios with Patchbay only and compares with what the Python agent did when it was
// recorded.
func TestAgainstRecordings(t *testing.T) { againstRecordings(t, lab.Patchbay, accepted(t)) }

func againstRecordings(t *testing.T, kind lab.AgentKind, a *rules) {
	t.Helper()
	list := chosen(t)
	recorded := map[string]*result{}
	for _, s := range list {
		for _, name := range []string{s.name, "config-" + s.config.name} {
			r, err := parity.Load(testdata(), name)
			if err != nil {
				t.Fatal(err)
			}
			recorded[name] = &result{stages: r.Stages}
		}
	}
	c := newCloud(t)
	report(t, list, recorded, c.playAll(t, kind, list), a)
}

// TestPythonAgainstRecordings plays the scenarios with the Python agent and compares with its recordings.
func TestPythonAgainstRecordings(t *testing.T) { againstRecordings(t, lab.Python, nil) }

// TestRepeat plays the scenarios with the Python agent twice: what differs then is noise that normalisation has missed.
func TestRepeat(t *testing.T) {
	list := chosen(t)
	c := newCloud(t)
	report(t, list, c.playAll(t, lab.Python, list), c.playAll(t, lab.Python, list), nil)
}

// TestRecord plays the scenarios with the Python agent and writes the recordings.
func TestRecord(t *testing.T) {
	list := chosen(t)
	c := newCloud(t)
	c.done = recorder(t)
	c.playAll(t, lab.Python, list)
}

// recorder writes the results of scenarios, each after that of its configuration.
func recorder(t *testing.T) func(*scenario, *result) {
	var base *parity.Recording
	of := installed(t)
	return func(s *scenario, r *result) {
		one := recording(s, r)
		one.Recorded = of
		if one.IsConfig() {
			base = one
			save(t, one, nil)
		} else {
			save(t, one, base.Base(one.Hosts))
		}
	}
}

// installed says of which packages a recording of today is.
func installed(t *testing.T) parity.Recorded {
	t.Helper()
	version := func(name string) string {
		out, err := exec.CommandContext(t.Context(), "dpkg-query", "-W", "-f", "${Version}", name).Output()
		if err != nil {
			t.Fatalf("dpkg-query cannot tell the version of %s: %v", name, err)
		}
		return string(out)
	}
	agent := version("neutron-openvswitch-agent")
	_, upstream, found := strings.Cut(agent, ":") // without the epoch
	if !found {
		upstream = agent
	}
	release, _, _ := strings.Cut(upstream, ".")
	return parity.Recorded{
		Release: release, Agent: "neutron-openvswitch-agent " + agent, Switch: "openvswitch-switch " + version("openvswitch-switch"),
		Date: time.Now().UTC().Format(time.DateOnly),
	}
}

func recording(s *scenario, r *result) *parity.Recording {
	rec := &parity.Recording{Meta: parity.Meta{
		Name: s.name, Doc: s.doc, Config: s.config.name, Overrides: s.config.options("hv1"), Names: r.names,
	}, Stages: r.stages}
	if s.noise != nil {
		rec.Noise = s.noise.String()
	}
	for n := range s.hosts {
		rec.Hosts = append(rec.Hosts, fmt.Sprintf("hv%d", n+1))
	}
	return rec
}

func save(t *testing.T, r *parity.Recording, base parity.Snapshot) {
	t.Helper()
	if err := r.Save(testdata(), base); err != nil {
		t.Error(err)
		return
	}
	info, err := os.Stat(filepath.Join(testdata(), r.Name+".txtar"))
	if err != nil {
		t.Error(err)
		return
	}
	t.Logf("recorded %s, %d bytes", r.Name, info.Size())
	if info.Size() > maxRecording {
		t.Errorf("%s has %d bytes, more than %d", r.Name, info.Size(), maxRecording)
	}
	// What was written must read back as it was.
	back, err := parity.Load(testdata(), r.Name)
	if err != nil {
		t.Error(err)
		return
	}
	for i := range back.Stages {
		for _, d := range parity.Compare(r.Stages[i].Want, back.Stages[i].Want, nil).Differences {
			t.Errorf("%s, %s does not read back: %s", r.Name, r.Stages[i].Checkpoint, d)
		}
	}
}

// rules is what is accepted: the differences, and where and how many.
type rules struct {
	accepted *parity.Accepted
	pins     *parity.Pins
	later    *later
}

func accepted(t *testing.T) *rules {
	t.Helper()
	a, err := parity.LoadAccepted(acceptedFile)
	if err != nil {
		t.Fatal(err)
	}
	pins, err := parity.LoadPins(filepath.Join("../testdata", parity.PinsFile))
	if err != nil {
		t.Fatal(err)
	}
	release := releaseOf(t)
	return &rules{a.For(release), pins, laterOf(t, release)}
}

// releaseOf returns the release of the Python agent and the server: 21, or the one that is asked for.
func releaseOf(t *testing.T) int {
	t.Helper()
	release, err := strconv.Atoi(cmp.Or(os.Getenv(lab.EnvRelease), "21"))
	if err != nil {
		t.Fatal(err)
	}
	return release
}

// compare is [parity.Compare] at a checkpoint, and says in words where more is accepted than is pinned. The API's lines are not
// pinned: no replay has them; the one rule that explains some names its scenario and checkpoint. Without rules nothing is accepted.
func (r *rules) compare(scenario, checkpoint string, want, have parity.Snapshot) (d parity.Diff, wrong []string) {
	if r == nil {
		return parity.Compare(want, have, nil), nil
	}
	d = parity.Compare(want, have, r.accepted.At(scenario, checkpoint))
	byHost := map[string]parity.Diff{}
	for _, x := range d.Differences {
		host, _, _ := strings.Cut(x.Line, " ")
		own := byHost[host]
		own.Differences = append(own.Differences, x)
		byHost[host] = own
	}
	delete(byHost, "api")
	for _, host := range slices.Sorted(maps.Keys(byHost)) {
		at, counts, later := parity.Place{Scenario: scenario, Checkpoint: checkpoint, Host: host}, byHost[host].Counts(), map[string]parity.Count{}
		for id, c := range counts {
			if !r.accepted.Recorded(id) {
				later[id] = c
				delete(counts, id)
			}
		}
		wrong = slices.Concat(wrong, r.pins.AtMost(at, counts), r.later.check(at, later))
	}
	return d, wrong
}

func configs(list []*scenario) []*config {
	var all []*config
	for _, s := range list {
		if !slices.Contains(all, s.config) {
			all = append(all, s.config)
		}
	}
	return all
}

// start is the pseudo scenario in which the agents of a configuration start.
func (c *config) start() *scenario {
	return &scenario{name: "config-" + c.name, config: c, hosts: c.hosts, doc: "The agents start on switches that no agent has seen. " + c.doc}
}

// playAll plays the scenarios, which are in the order of their configurations, and returns the results by name. A scenario
// that could not be played has none.
func (c *cloud) playAll(t *testing.T, kind lab.AgentKind, list []*scenario) map[string]*result {
	t.Helper()
	results := map[string]*result{}
	began := time.Now()
	for _, cfg := range configs(list) {
		of := slices.DeleteFunc(slices.Clone(list), func(s *scenario) bool { return s.config != cfg })
		c.playConfig(t, kind, cfg, of, results)
	}
	t.Logf("%s: %d scenarios in %v", kind, len(list), time.Since(began).Round(time.Second))
	return results
}

func (c *cloud) playConfig(t *testing.T, kind lab.AgentKind, cfg *config, list []*scenario, results map[string]*result) {
	t.Helper()
	ctx := t.Context()
	defer func() {
		if err := c.stop(context.WithoutCancel(ctx)); err != nil {
			t.Error(err)
		}
	}()
	var base parity.Snapshot
	fresh := false
	for _, s := range list {
		if !fresh {
			if err := c.stop(ctx); err != nil {
				t.Error(err)
				return
			}
			r, err := c.begin(ctx, kind, cfg)
			if err != nil {
				t.Errorf("starting %s agents for %s: %v", kind, cfg.name, err)
				return
			}
			t.Logf("%-9s %-34s %5.1f s", kind, "config-"+cfg.name, r.took.Seconds())
			if results["config-"+cfg.name] == nil {
				results["config-"+cfg.name] = r
				c.finished(cfg.start(), r)
			}
			base = r.stages[len(r.stages)-1].Want.Select(isState)
		}
		own := base.Select(func(line string) bool {
			host, _, _ := strings.Cut(line, " ")
			return slices.Contains(c.newPlay(kind, s).hostNames(), host)
		})
		r, err := c.newPlay(kind, s).run(ctx, own)
		fresh = err == nil && c.tidied(t, cfg, r.leftover.Differences)
		if err != nil {
			t.Error(err)
			continue
		}
		results[s.name] = r
		c.finished(s, r)
		t.Logf("%-9s %-34s %5.1f s", kind, s.name, r.took.Seconds())
		if !fresh {
			var b strings.Builder
			r.leftover.Write(&b)
			t.Logf("%s leaves after %s:\n%s", kind, s.name, b.String())
		}
	}
}

// firstRound is how long the Python agent, alive in the API already, takes for its first round.
const firstRound = 5 * time.Second

// tidied says whether all is as it was at rest, after taking away what is known to be left behind.
func (c *cloud) tidied(t *testing.T, cfg *config, left []parity.Difference) bool {
	t.Helper()
	for _, d := range left {
		known := slices.ContainsFunc(cfg.leaves, func(table string) bool { return strings.Contains(d.Line, " br-int table="+table+" ") })
		if d.Missing || !known {
			return false
		}
	}
	if len(left) == 0 {
		return true
	}
	for _, h := range c.hosts[:cfg.hosts] {
		for _, table := range cfg.leaves {
			if _, err := h.Switch().Ofctl(t.Context(), "-O", "OpenFlow13", "del-flows", "br-int", "table="+table); err != nil {
				t.Error(err)
				return false
			}
		}
	}
	return true
}

// begin starts the agents of a configuration and waits until they rest.
func (c *cloud) begin(ctx context.Context, kind lab.AgentKind, cfg *config) (*result, error) {
	began := time.Now()
	if err := c.start(ctx, kind, cfg); err != nil {
		return nil, err
	}
	p := c.newPlay(kind, cfg.start())
	p.steps = []string{"agents start"}
	if kind == lab.Python {
		if err := wait(ctx, firstRound); err != nil {
			return nil, err
		}
	}
	for deadline := time.Now().Add(3 * time.Minute); !c.synced(cfg) && time.Now().Before(deadline); {
		if err := wait(ctx, 200*time.Millisecond); err != nil {
			return nil, err
		}
	}
	if err := p.check(ctx, "start", nil); err != nil {
		return nil, err
	}
	if len(cfg.use) > 0 {
		p.scenario.steps = cfg.use
		if _, err := p.run(ctx, nil); err != nil {
			return nil, err
		}
	}
	return &result{stages: p.stages, names: p.recordedNames(), took: time.Since(began)}, nil
}

// report prints the table and fails the test for every difference that nothing explains.
func report(t *testing.T, list []*scenario, want, have map[string]*result, a *rules) {
	t.Helper()
	var names []string
	for _, cfg := range configs(list) {
		names = append(names, "config-"+cfg.name)
	}
	for _, s := range list {
		names = append(names, s.name)
	}
	var table, details strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "scenario\tlines compared\taccepted\tunexplained")
	total := [3]int{}
	var explained []string // scenarios
	for _, name := range names {
		lines, accepted, unexplained := 0, 0, 0
		if want[name] == nil || have[name] == nil {
			fmt.Fprintf(w, "%s\tnot played\t\t1\n", name)
			total[2]++
			continue
		}
		for i, s := range want[name].stages {
			if i >= len(have[name].stages) {
				fmt.Fprintf(&details, "%s: no checkpoint %q\n", name, s.Checkpoint)
				unexplained++
				break
			}
			d, wrong := a.compare(name, s.Checkpoint, s.Want, have[name].stages[i].Want)
			bad := len(d.Unexplained())
			lines, accepted, unexplained = lines+d.Compared, accepted+len(d.Differences)-bad, unexplained+bad+len(wrong)
			if bad > 0 {
				fmt.Fprintf(&details, "%s, %s (- first, + second):\n", name, s.Checkpoint)
				d.Write(&details)
			}
			for _, w := range wrong {
				fmt.Fprintln(&details, w)
			}
			showExplained(&details, name, s.Checkpoint, d)
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\n", name, lines, accepted, unexplained)
		if unexplained == 0 {
			explained = append(explained, name)
		}
		total = [3]int{total[0] + lines, total[1] + accepted, total[2] + unexplained}
	}
	fmt.Fprintf(w, "%d scenarios\t%d\t%d\t%d\n", len(list), total[0], total[1], total[2])
	_ = w.Flush()
	if a != nil {
		if err := a.later.end(&table, explained); err != nil {
			t.Error(err)
		}
	}
	// Not through t.Log: the table is the product.
	fmt.Printf("\n%s\n%s", details.String(), table.String())
	if total[2] > 0 {
		t.Errorf("%d unexplained differences", total[2])
	}
}
