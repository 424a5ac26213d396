// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/patchbay-sdn/patchbay/internal/inspect"
)

// A region of six hosts, each a shell in which `patchbay` is a script: hv1 and hv2 run Patchbay of two versions, hv3 is not in sync, hv4 runs
// the Python agent, hv5 refuses an option, and hv6 is not reached.
func sixHosts(t *testing.T) (flags []string, dir string) {
	t.Helper()
	dir = t.TempDir()
	status := func(version string, reasons ...string) string {
		b, err := json.Marshal(inspect.Status{
			Version: version, Started: noon, InSync: len(reasons) == 0, Reasons: reasons, Ports: map[string]int{"wired": 7},
			Bridges: []inspect.Bridge{{Name: "br-int", Repaired: 2}, {Name: "br-tun", Repaired: 1}},
		})
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	script := `#!/bin/sh
case "$HOST $1 $2" in
hv6*) echo "ssh: connect to host hv6: no route" >&2; exit 255 ;;
*"status -o") [ "$4" != --wait ] || { [ "$HOST" != "$SICK" ] || { printf '{\n "reasons": [\n  "a reason"\n ]\n}\n'; exit 1; }; exit 0; } ;;
esac
case "$HOST $1 $2" in
hv1*status*) echo '` + status("1.0.0") + `' ;;
hv2*status*) echo '` + status("0.9.0") + `' ;;
hv3*status*) echo '` + status("1.0.0", "the broker cannot be reached") + `'; exit 1 ;;
*status*) echo "patchbay: no agent answers: there is no socket" >&2; exit 3 ;;
hv5*check*) printf '{\n "errors":1,"warnings":0,\n "findings":[{"severity":"error","message":"extensions names sfc"},{"severity":"warning","message":"no"}]\n}\n'; exit 1 ;;
*check*) echo '{"errors":0,"warnings":2,"findings":[]}' ;;
hv5*plan*) echo "the agent would not start" >&2; exit 4 ;;
hv3*plan*) printf '{\n "complete":false,"missing":["the server does not answer"],"rows":[],"flows":[]\n}\n'; exit 4 ;;
hv2*plan*) echo '{"complete":true,"rows":[],"flows":[],"compared":{"ports":7}}' ;;
*plan*) echo '{"complete":true,"rows":[{}],"flows":[{},{}],"compared":{"ports":7}}'; exit 1 ;;
esac
`
	files := map[string]string{
		"patchbay": script,
		"connect":  "#!/bin/sh\nexport HOST=$1; exec sh -c \"$2\"\n",
		"hosts":    "hv1\nhv2\nhv3\nhv4\nhv5\nhv6\n",
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return []string{"--hosts", filepath.Join(dir, "hosts"), "--connect", "connect {host}", "--parallel", "2"}, dir
}

func TestFleetLooks(t *testing.T) {
	flags, _ := sixHosts(t)
	for _, c := range []struct {
		command string
		want    []string // lines, with single blanks
	}{
		{"status", []string{
			"hv1 in sync 1.0.0", "hv2 in sync 0.9.0", "hv3 not in sync 1.0.0", "7 wired 3 0 the broker cannot be reached", "hv4 no Patchbay runs", "hv6 not reached",
			"6 hosts: 2 in sync, 2 no Patchbay runs, 1 not in sync, 1 not reached versions: 2 1.0.0, 1 0.9.0",
		}},
		{"check", []string{"hv1 would start 0 2", "hv5 would not start 1 0 extensions names sfc", "hv6 not reached", "6 hosts: 4 would start, 1 not reached, 1 would not start"}},
		{"plan", []string{"hv1 planned 1 2 0 7", "hv2 nothing would change 0 0 0 7", "hv3 incomplete 0 0 0 0 the server does not answer", "hv5 failed", "the agent would not start", "changes on all hosts together: 2 rows, 4 flows, 0 rules of iptables"}},
	} {
		out, status := run(t, append([]string{"fleet", c.command}, flags...)...)
		text := strings.Join(strings.Fields(strings.ReplaceAll(out, "\n", " ")), " ")
		for _, want := range c.want {
			if status != exitFinding || !strings.Contains(text, want) {
				t.Errorf("%s: status %d, no %q in\n%s", c.command, status, want, out)
			}
		}
		if out, _ := run(t, append([]string{"fleet", c.command, "-o", "json"}, flags...)...); !json.Valid([]byte(out)) {
			t.Errorf("%s: %s", c.command, out)
		}
	}
	page, status := run(t, append([]string{"fleet", "status", "-o", "html"}, flags...)...)
	for _, want := range []string{
		"<title>6 hosts: 2 in sync, 1 not in sync, 2 no Patchbay runs, 1 not reached</title>", `<li class="fine" title="in sync"><b>hv1</b>1.0.0</li>`,
		`<li class="off" title="no Patchbay runs`, `<li class="bad" title="not in sync: the broker cannot be reached"><b>hv3</b>1.0.0</li>`, "2 with 1.0.0 · 1 with 0.9.0",
	} {
		if status != exitFinding || !strings.Contains(page, want) {
			t.Errorf("status %d, no %q in\n%s", status, want, page)
		}
	}
	if out, status := run(t, "fleet", "status", "--hosts", "/none"); status != exitFailed {
		t.Errorf("status %d: %s", status, out)
	}
}

// A canary that is not well goes back by itself and nothing else is touched; then the fleet follows, but for hosts that refuse.
func TestFleetSwitches(t *testing.T) {
	flags, dir := sixHosts(t)
	log := filepath.Join(dir, "done")
	flags = append(flags, "--to", "echo to $HOST >>"+log, "--back", "echo back $HOST >>"+log, "--pause", "1ms", "--batch", "3", "--stop-on", "9",
		"--record", filepath.Join(dir, "record"), "--log", filepath.Join(dir, "log"), "--after", "test -n \"$PATCHBAY_HOSTS\"")
	change := func(more ...string) (string, int, string) {
		out, status := run(t, append(append([]string{"fleet", "switch"}, flags...), more...)...)
		done, _ := os.ReadFile(log) // there may be none
		return out, status, strings.ReplaceAll(strings.TrimSpace(string(done)), "\n", ", ")
	}
	out, status, done := change("--dry-run")
	if status != 0 || done != "" || !strings.Contains(out, "batch 1: hv1\nbatch 2: hv2 hv3 hv4\n") || !strings.Contains(out, "patchbay status -o json --wait 1m") {
		t.Errorf("status %d, done %s:\n%s", status, done, out)
	}
	t.Setenv("SICK", "hv1")
	out, status, done = change("--stop-on", "1")
	if status != exitFinding || done != "to hv1, back hv1" || !strings.Contains(out, "taken back  a reason") {
		t.Errorf("status %d, done %s:\n%s", status, done, out)
	}
	t.Setenv("SICK", "")
	out, status, done = change()
	for _, want := range []string{"hv1   switched", "hv2   switched", "hv4   switched", "hv3   refused   its plan is not complete: the server does not answer",
		"hv5   refused   its configuration is refused: extensions names sfc", "hv6   refused   not reached: ", "stopped: 3 of the hosts could not be switched"} {
		if status != exitFinding || !strings.Contains(out, want) {
			t.Errorf("status %d, no %q in\n%s", status, want, out)
		}
	}
	if strings.Count(done, "back") != 1 || strings.Contains(done, "to hv5") || strings.Contains(done, "to hv3") {
		t.Errorf("done: %s", done)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "log")); err != nil || !strings.Contains(string(text), "hv1                  taken back to its old agent") {
		t.Errorf("%v: the log is\n%s", err, text)
	}
	// Back: without a plan.
	if _, status, done = change("--record", filepath.Join(dir, "back"), "--check", "test $HOST != hv6", "--plan", "", "--to", "echo home $HOST >>"+log); status != exitFinding || strings.Count(done, "home") != 5 {
		t.Errorf("back: status %d, done: %s", status, done)
	}
	if _, status, _ := change("--back", ""); status != exitUsage {
		t.Errorf("a switch without a way back: status %d", status)
	}
}
