// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/lab"
	"github.com/patchbay-sdn/patchbay/lab/daemon"
)

var update = flag.Bool("update", false, "write the recording of TestFleet into its page")

// envOld names an older binary of Patchbay.
const envOld = "PATCHBAY_OLD_BIN"

// fleetPage shows what TestFleet prints.
const fleetPage = "../docs/how-to/switch-a-fleet.md"

// TestFleet moves a region of six hosts to Patchbay with `patchbay fleet`, over ssh, while the VMs of all hosts send packets to each other. hv1 and
// hv2 run the Python agent, hv3 an older Patchbay, hv4 this one, hv5 the Python agent with an option that Patchbay refuses, and hv6 cannot be
// reached. The first canary gets a wrong address of the broker: it is not well, and is taken back by itself. In the end all hosts run this version.
// What the terminal shows is the recording in docs/how-to/switch-a-fleet.md.
func TestFleet(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), handoverTime)
	defer cancel()
	start := time.Now()
	patience(t)
	x := &region{smoke: &smoke{filtered: &filtered{agent: lab.Patchbay, cloud: &cloud{ctx: ctx, round: round{name: "fleet"}}}}}
	t.Cleanup(func() { x.print(time.Since(start)) })
	x.dir = t.TempDir()
	sshRuns(t)
	x.l = lab.New(t, 6)
	t.Cleanup(x.filtered.close)
	t.Cleanup(x.endSSH)
	if !x.step(t, "six hosts, three kinds of agent", x.start) || !x.step(t, "VMs are wired", x.prepare) {
		return
	}
	x.step(t, "the region is switched", func(t *testing.T) { x.during(t, lossless, func() { x.operate(t) }, x.lanes()...) })
	fmt.Printf("\n%s\n", x.shown.String())
	fmt.Printf("fleet: %d of %d packets lost, %d of %d forbidden ones passed, %d hosts switched, %d taken back\n",
		x.row.due-x.row.came, x.row.due, x.row.passed, x.row.bad, x.switched, x.back)
	x.documented(t)
}

// region is six hosts, each with an ssh server, and the terminal of whoever switches them.
type region struct {
	*smoke
	ring           []*vm            // one on each host
	dir            string           // where the operator works
	old, ours      string           // binaries
	servers        []*daemon.Daemon // of ssh
	shown          strings.Builder
	switched, back int
}

func (x *region) start(t *testing.T) {
	x.ours, x.old = program(t, lab.EnvBinary, "patchbay"), program(t, envOld, "patchbay-old")
	x.serveSSH(t)
	x.eachHost(t, func(h *lab.Host) error {
		switch h.Name() {
		case "hv3", "hv4":
			return nil // after the others: the binary is the process's
		case "hv5":
			return h.StartAgent(x.ctx, lab.Python, filtering, "agent.extensions=sfc")
		}
		return h.StartAgent(x.ctx, lab.Python, filtering)
	})
	for n, bin := range map[int]string{3: x.old, 4: x.ours} {
		t.Setenv(lab.EnvBinary, bin)
		if err := x.l.Host(n).StartAgent(x.ctx, lab.Patchbay, filtering); err != nil {
			t.Fatal(err)
		}
	}
}

// prepare plugs a VM into each host. All have the same group, and send to the next.
func (x *region) prepare(t *testing.T) {
	x.networks(t)
	x.group = x.filtered.group(t, "door")
	for _, version := range []int{4, 6} {
		x.allow(t, x.group, directed(attributes{}, "egress", version), directed(ranged("udp", doorPort, doorPort), "ingress", version))
	}
	for host := range x.l.Hosts() {
		v := x.blue.add(host+1, host+1)
		v.name, v.extra = "vm"+strconv.Itoa(host+1), attributes{"security_groups": []string{x.group}}
		x.ring = append(x.ring, v)
	}
	x.plugPlanned(t)
	for _, l := range x.lanes() {
		if l.due {
			x.arrives(t, l, true)
		}
	}
	x.says("%d VMs", len(x.ring))
}

// lanes go from each VM to the next: a connection that lasts, new ones, and packets that no rule allows.
func (x *region) lanes() []*lane {
	var all []*lane
	of := &handover{smoke: x.smoke}
	for i, v := range x.ring {
		next := x.ring[(i+1)%len(x.ring)]
		all = append(all, x.to(v, next, doorPort, true), of.fresh(v, next, 4+2*(i%2), doorPort, true), x.to(v, next, shutPort, false))
	}
	return all
}

// operate is what the operator types, and what has to come of it.
func (x *region) operate(t *testing.T) {
	const (
		fleet  = "patchbay fleet "
		listed = " --hosts hosts.txt"
		change = fleet + "switch" + listed + " --canary 1 --batch 3 --pause 2s --stop-on 3 --to 'lab-agent patchbay' --back 'lab-agent python'"
	)
	x.types(t, fleet+"status"+listed, 1, `hv1 +no Patchbay runs`, `hv3 +in sync`, `hv4 +in sync`, `hv6 +not reached`, `6 hosts: 3 no Patchbay runs, 2 in sync, 1 not reached`, `versions: 1 \S+, 1 \S+`)
	x.types(t, fleet+"check"+listed, 1, `hv1 +would start`, `hv5 +would not start.*sfc`, `hv6 +not reached`)
	x.types(t, fleet+"plan"+listed, 1, `hv1 +planned`, `hv2 +planned`, `hv5 +\S+.*sfc`, `hv6 +not reached`, `changes on all hosts together: \d+ rows`)
	x.types(t, change+" --dry-run", 0, `batch 1: hv1\nbatch 2: hv2 hv3 hv4\nbatch 3: hv5 hv6`)

	x.comments("The first try has a mistake in it: Patchbay gets a wrong address of the broker.")
	done := x.pythonSays(t, pythonTakenOver, x.l.Host(1))
	x.types(t, strings.NewReplacer("'lab-agent patchbay'", "'lab-agent patchbay DEFAULT.transport_url=rabbit://nobody@127.0.0.1:1'", "--stop-on 3", "--verify 'patchbay status -o json --wait 10s'").Replace(change), 1,
		`hv1 +not well: .*broker`, `hv1 +taken back to its old agent`, `hv1 +taken back`, `hv2 +not begun`)
	x.agents(t, "python", "python", "patchbay", "patchbay", "python", "python")
	x.back++
	done()

	x.types(t, change, 1, `hv1 +switched`, `hv2 +switched`, `hv3 +switched`, `hv4 +switched`, `hv5 +refused +its configuration is refused: .*sfc`, `hv6 +refused +not reached`)
	x.agents(t, "patchbay", "patchbay", "patchbay", "patchbay", "python", "python")
	x.comments("hv6 is repaired. hv5 loses the option that Patchbay has not:")
	x.listen(t, x.l.Host(6))
	x.types(t, "ssh hv5 sed -i --follow-symlinks /^extensions/d /etc/neutron/plugins/ml2/openvswitch_agent.ini", 0)
	x.types(t, change, 0, `hv5 +switched`, `hv6 +switched`, `6 hosts: 6 switched`)
	x.agents(t, "patchbay", "patchbay", "patchbay", "patchbay", "patchbay", "patchbay")
	x.inSync(t)
	x.types(t, fleet+"status"+listed, 0, `6 hosts: 6 in sync\nversions: 6 \S+\n`)
	x.switched = 6
}

// types runs a command line as the operator does, and shows what the terminal would. What it prints has to match.
func (x *region) types(t *testing.T, line string, status int, want ...string) {
	t.Helper()
	cmd := exec.CommandContext(x.ctx, "sh", "-c", line)
	cmd.Dir = x.dir
	cmd.Env = append(os.Environ(), "PATH="+filepath.Join(x.dir, "bin")+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	fmt.Fprintf(&x.shown, "$ %s\n%s", line, strings.ReplaceAll(string(out), x.l.Dir(), "/lab"))
	if code := cmd.ProcessState.ExitCode(); code != status {
		fmt.Printf("\n%s\n", x.shown.String())
		t.Fatalf("%s: %v, want status %d\n%s", line, err, status, out)
	}
	for _, w := range want {
		if !regexp.MustCompile(w).Match(out) {
			t.Fatalf("%s: nothing matches %q in\n%s", line, w, out)
		}
	}
}

func (x *region) comments(text string) { fmt.Fprintf(&x.shown, "# %s\n", text) }

// agents holds the agents that run against those that should.
func (x *region) agents(t *testing.T, want ...lab.AgentKind) {
	t.Helper()
	for i, h := range x.l.Hosts() {
		if kind, _ := h.Agent(); kind != want[i] {
			t.Fatalf("on %s runs %q, want %s", h.Name(), kind, want[i])
		}
	}
}

// documented holds the recording in the page against what was typed. With -update the page gets the new one.
func (x *region) documented(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile(fleetPage)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- recorded by make e2e-fleet -->\n\n```console\n", "```\n\n<!-- end of the recording -->"
	before, rest, ok := strings.Cut(string(text), begin)
	old, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the recording", fleetPage)
	}
	if *update {
		if t.Failed() {
			return
		}
		if err := os.WriteFile(fleetPage, []byte(before+begin+x.shown.String()+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	typed := regexp.MustCompile(`(?m)^[$#] .*`)
	if got, want := typed.FindAllString(old, -1), typed.FindAllString(x.shown.String(), -1); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("%s has other commands: write it anew with make e2e-fleet TESTFLAGS=-update\n%s", fleetPage, strings.Join(want, "\n"))
	}
}
