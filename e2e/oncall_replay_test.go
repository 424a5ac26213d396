// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// tapesOf are the faults whose tapes are kept, with their names: go test ./cmd/patchbay -run TestTapes plays them everywhere. -update records them anew.
var tapesOf = map[string]string{
	"Is this host as the server wants it, and if not, why?": "broker-away",
	"What does this port wait for?":                         "port-waits",
}

// tapesDir is where they are.
const tapesDir = "../cmd/patchbay/testdata/tapes"

// elsewhere is a place that has a binary and bundles, and nothing else: its commands run as nobody, without network and environment.
type elsewhere struct {
	dir           string
	steps, events int
	played        int
	bundle        string // the last one
}

func newElsewhere(t *testing.T) *elsewhere {
	t.Helper()
	e := &elsewhere{dir: t.TempDir()}
	data, err := os.ReadFile(program(t, "PATCHBAY_BIN", "patchbay"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(e.dir, "patchbay"), string(data), 0o755)
	for dir := e.dir; dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return e
}

func (e *elsewhere) run(t *testing.T, args ...string) (out []byte, status int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "unshare", append([]string{"--net", "setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "env", "-i", "./patchbay"}, args...)...)
	cmd.Dir = e.dir
	out, _ = cmd.Output() // the status says it
	return out, cmd.ProcessState.ExitCode()
}

// login gives the first host's agent a password of its own. That of the lab is a word that is in names and ids too, and masked there: decisions about
// masked names are others.
func (x *onCall) login() {
	x.t.Helper()
	x.ctl("add_user", "oncall", "a-password-of-its-own")
	x.ctl("set_permissions", "oncall", ".*", ".*", ".*")
	_, rest, _ := strings.Cut(x.l.TransportURL(), "@")
	x.transport = "DEFAULT.transport_url=rabbit://oncall:a-password-of-its-own@" + rest
	if err := x.l.Host(1).StopAgent(x.ctx); err != nil {
		x.t.Fatal(err)
	}
	x.startAgent(1)
}

// onDisk is after what time an agent has its inputs on the disk.
const onDisk = 3 * time.Second

// replays collects a bundle of the first host and makes the agent's decisions again elsewhere. previous: those of the agent that ran before.
func (x *onCall) replays(t *testing.T, q question) {
	t.Helper()
	e := x.away
	x.wait(onDisk)
	e.bundle = fmt.Sprintf("fault%d.tar.gz", len(x.read))
	path := filepath.Join(e.dir, e.bundle)
	if out, status := x.patchbay(1, "support-bundle", path); status > 1 {
		t.Fatalf("support-bundle: status %d\n%s", status, out)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	args := []string{"replay", e.bundle}
	if q.previous {
		args = append(args, "--previous")
	}
	var doc struct {
		Steps, Events int
		Same          bool
	}
	out, status := e.run(t, append(args, "-o", "json")...)
	if err := json.Unmarshal(out, &doc); err != nil || status != 0 || !doc.Same || doc.Steps < 10 {
		t.Errorf("replay of the fault %q: status %d, %v\n%s", q.ask, status, err, out)
	}
	e.played, e.steps, e.events = e.played+1, e.steps+doc.Steps, e.events+doc.Events
	if name := tapesOf[q.ask]; name != "" && *update && !t.Failed() {
		kept := filepath.Join(tapesDir, name+".tape")
		if err := os.Remove(kept); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		named := filepath.Join(e.dir, name+".tar.gz")
		if err := os.Link(path, named); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.CommandContext(t.Context(), filepath.Join(e.dir, "patchbay"), "replay", named, "--test", tapesDir).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
}

// otherwise holds that a replay can fail: a bundle of which one step was recorded with other decisions is found out.
func (e *elsewhere) otherwise(t *testing.T) {
	t.Helper()
	plain := []byte(untar(t, filepath.Join(e.dir, e.bundle))["tape.gz"])
	at := regexp.MustCompile(`"sum":"([^"]+)"`).FindAllSubmatchIndex(plain, -1)
	if len(at) < 10 {
		t.Fatalf("the tape has %d sums", len(at))
	}
	middle := at[len(at)/2][2]
	plain[middle] = map[bool]byte{true: '1', false: '0'}[plain[middle] == '0']
	write(t, filepath.Join(e.dir, "changed.tape"), string(plain), 0o644)
	if out, status := e.run(t, "replay", "changed.tape"); status != 1 || !strings.Contains(string(out), "makes other decisions than were recorded") {
		t.Errorf("a changed tape: status %d\n%s", status, out)
	}
	fmt.Printf("\n%d bundles replayed elsewhere, as nobody and without network: %d steps, %d events, all decisions the same; a changed one is found out\n", e.played, e.steps, e.events)
}
