// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/patchbay-sdn/patchbay/lab"
)

const (
	monitoring = "../deploy/monitoring/"
	// metricsPort is where the agent of the first host is scraped, on its loopback.
	metricsPort = "127.0.0.1:9107"
	// Waiting times of alerts are divided by forPart and windows by windowPart, so that hours become minutes.
	forPart, windowPart = 60, 30
)

// TestAlerts has a real Prometheus scrape an agent and evaluate deploy/monitoring/alerts.yaml, and breaks one thing after the
// other. Every alert has to fire from a fault that is really there, no alert that has nothing to do with it may, and all are
// silent again when it is mended. At the end every query of the dashboard has to have data.
func TestAlerts(t *testing.T) {
	overrides := []string{
		"patchbay.metrics_listen=" + metricsPort,
		// So that a call to a server that hangs fails in time for a test.
		"DEFAULT.rpc_response_timeout=2", "agent.report_interval=2",
	}
	x := &alerts{onCall: newOnCall(t, overrides...), overrides: overrides, fired: map[string]string{}}
	x.startPrometheus()
	a, b := x.vms["a"], x.vms["b"]
	late, many := x.portFor("late"), x.portFor("many")
	ofport := x.vsctl(1, "get", "Interface", b.Tap, "ofport")

	x.silent(10*time.Second, "nothing is wrong")
	x.broken(trouble{
		name:  "the agent is frozen",
		seed:  func() { x.freeze(1) },
		heal:  func() { x.thaw(1) },
		fires: []string{"PatchbayAgentDown"},
	})
	x.broken(trouble{
		name: "who reads the agent's log hangs",
		seed: x.blockLog, heal: x.unblockLog,
		fires: []string{"PatchbayLoopStuck"},
		may:   []string{"PatchbayAgentDown", "PatchbayFlowsContested", "PatchbayNotReady", "PatchbayNotInSync"}, // it is restarted first, and flows are deleted so that it has something to say
	})
	x.broken(trouble{
		name: "ovs-vswitchd is killed",
		seed: x.killSwitch, heal: x.startSwitch,
		fires: []string{"PatchbayBridgeDown", "PatchbayNotReady", "PatchbayNotInSync"},
	})
	x.broken(trouble{
		name: "ovsdb-server is stopped",
		seed: func() {
			if err := x.l.Host(1).Switch().StopDB(x.ctx); err != nil {
				x.t.Fatal(err)
			}
		},
		heal:  x.startSwitch,
		fires: []string{"PatchbaySwitchDown"},
		may:   []string{"PatchbayNotReady", "PatchbayNotInSync"},
	})
	var resume func()
	x.broken(trouble{
		name:  "neutron-server hangs",
		seed:  func() { resume = x.pauseServer(x.t) },
		heal:  func() { resume() },
		fires: []string{"PatchbayServerDown", "PatchbayCallsFail", "PatchbayNotInSync"},
	})
	x.broken(trouble{
		name: "the broker is away for half a minute, and a port is plugged in",
		seed: func() {
			x.ctl("stop_app")
			x.plugBare(late)
			x.waitFor("PatchbayBrokerDown")
			time.Sleep(32 * time.Second)
			x.ctl("start_app")
		},
		heal:  func() { x.unplugBare(late) },
		fires: []string{"PatchbayWiringSlow"},
		may:   []string{"PatchbayBrokerDown", "PatchbayNotInSync", "PatchbayPortsNotWired", "PatchbayCallsFail", "PatchbayServerDown"},
	})
	x.broken(trouble{
		name: "a port is bound to another host, and an interface has no device",
		seed: func() {
			x.update(a, attributes{"binding:host_id": "hv2"})
			x.l.Host(1).Switch().Vsctl(x.ctx, "--no-wait", "add-port", "br-int", "tapnowhere", "--", "set", "Interface", "tapnowhere", //nolint:errcheck // it says that it failed
				"external_ids:iface-id=0f0f0f0f-0000-4000-8000-000000000000", `external_ids:attached-mac="fa:16:3e:00:00:01"`)
		},
		heal: func() {
			x.update(a, attributes{"binding:host_id": "hv1"})
			x.vsctl(1, "del-port", "br-int", "tapnowhere")
		},
		fires: []string{"PatchbayDeadPorts", "PatchbayPortsNotWired"},
		may:   []string{"PatchbayNotInSync"},
	})
	x.broken(trouble{
		name: "somebody deletes the same flow again and again",
		during: func() {
			x.ofctl(1, "--strict", "del-flows", "br-int", "table=60,priority=100,in_port="+ofport)
		},
		fires: []string{"PatchbayFlowsContested"},
		may:   []string{"PatchbayNotInSync", "PatchbayNotReady"}, // while its repair waits
	})
	x.broken(trouble{
		name: "a table of the switch is full",
		seed: func() {
			x.vsctl(1, "--", "--id=@t", "create", "Flow_Table", "flow_limit=1", "overflow_policy=refuse", "--", "set", "Bridge", "br-int", "flow_tables:82=@t")
			x.plugBare(many)
		},
		heal: func() {
			x.vsctl(1, "clear", "Bridge", "br-int", "flow_tables")
			x.unplugBare(many)
		},
		fires: []string{"PatchbayBundlesFail"},
		may:   []string{"PatchbayNotReady", "PatchbayNotInSync", "PatchbayPortsNotWired"},
	})
	x.complete()
	t.Run("dashboard", x.dashboard)
}

// trouble is one thing that goes wrong.
type trouble struct {
	name       string
	seed, heal func()
	during     func() // is done again and again until the alerts have fired
	// fires are the alerts that have to fire, may those that may: the same fault is the cause of them, too.
	fires, may []string
}

// alerts is a lab that is looked after by Prometheus.
type alerts struct {
	*onCall
	overrides []string
	api       string            // of Prometheus
	began     time.Time         // when it began to look
	all       []string          // alerts that there are
	fired     map[string]string // by which fault
	drain     chan bool         // whether the agent's log is read; closed at the end
}

func (x *alerts) startPrometheus() {
	x.t.Helper()
	if _, err := lab.Install(x.ctx, "prometheus"); err != nil {
		x.t.Fatal(err)
	}
	dir := x.t.TempDir()
	text, err := os.ReadFile(monitoring + "alerts.yaml")
	if err != nil {
		x.t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`- alert: (\w+)`).FindAllStringSubmatch(string(text), -1) {
		x.all = append(x.all, m[1])
	}
	rules := shorten(string(text))
	config := `
global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}
rule_files: [` + filepath.Join(dir, "rules.yaml") + `]
scrape_configs: [{job_name: hosts, static_configs: [{targets: ["` + metricsPort + `"]}]}]
`
	for name, text := range map[string]string{"rules.yaml": rules, "prometheus.yaml": config} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			x.t.Fatal(err)
		}
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		x.t.Fatal(err)
	}
	h := x.l.Host(1)
	listen := h.MgmtIP() + ":9090"
	x.api = "http://" + listen + "/api/v1/"
	cmd := h.Command(x.ctx, "prometheus", "--config.file="+filepath.Join(dir, "prometheus.yaml"), "--web.listen-address="+listen,
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--log.level=warn")
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		x.t.Fatalf("starting Prometheus: %v", err)
	}
	x.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = log.Close()
	})
	x.began = time.Now()
	if !x.eventually(wired, func() bool {
		var ready struct{ Status string }
		return x.ask("status/buildinfo", &ready) == nil && x.samples("patchbay_build_info") == 1
	}) {
		text, _ := os.ReadFile(log.Name())
		x.t.Fatalf("Prometheus has no data of the agent:\n%s", text)
	}
}

// shorten divides the times in rules.
func shorten(rules string) string {
	divide := func(of string, by int) string {
		d, err := time.ParseDuration(strings.Replace(of, "1d", "24h", 1))
		if err != nil {
			panic(err)
		}
		return strconv.Itoa(int(d.Seconds())/by) + "s"
	}
	rules = regexp.MustCompile(`(?m)(^ +for: )(\w+)$`).ReplaceAllStringFunc(rules, func(s string) string {
		head, of, _ := strings.Cut(s, ": ")
		return head + ": " + divide(of, forPart)
	})
	return regexp.MustCompile(`\[(\w+)\]`).ReplaceAllStringFunc(rules, func(s string) string {
		return "[" + divide(strings.Trim(s, "[]"), windowPart) + "]"
	})
}

// ask asks Prometheus.
func (x *alerts) ask(path string, into any) error {
	resp, err := (&http.Client{Timeout: 10 * time.Second}).Get(x.api + path) //nolint:noctx // the client has a timeout
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s %w\n%s", path, resp.Status, err, body)
	}
	return json.Unmarshal(body, &struct {
		Data any `json:"data"`
	}{into})
}

func (x *alerts) get(path string, into any) {
	x.t.Helper()
	if err := x.ask(path, into); err != nil {
		x.t.Fatal(err)
	}
}

// samples counts the values of a query that are numbers.
func (x *alerts) samples(expr string) int {
	x.t.Helper()
	var data struct{ Result []struct{ Value [2]any } }
	x.get("query?query="+url.QueryEscape(expr), &data)
	n := 0
	for _, r := range data.Result {
		if r.Value[1] != "NaN" {
			n++
		}
	}
	return n
}

// firing are the alerts that fire, with what they say. More tells how many others are on the way to it.
func (x *alerts) firing() (now map[string]string, more int) {
	x.t.Helper()
	var data struct {
		Alerts []struct {
			State               string
			Labels, Annotations map[string]string
		}
	}
	x.get("alerts", &data)
	now = map[string]string{}
	for _, a := range data.Alerts {
		if a.State == "firing" {
			now[a.Labels["alertname"]] = a.Annotations["summary"]
		} else {
			more++
		}
	}
	return now, more
}

// seen takes down what fires now, and says whether nothing does or is about to.
func (x *alerts) seen(into map[string]string) (silent bool) {
	now, more := x.firing()
	for name, says := range now {
		into[name] = says
		if strings.Contains(says, "no value") || strings.Contains(says, "error") || !strings.Contains(says, metricsPort) {
			x.t.Errorf("%s says %q", name, says)
		}
	}
	return len(now)+more == 0
}

func (x *alerts) silent(long time.Duration, when string) {
	x.t.Helper()
	for end := time.Now().Add(long); time.Now().Before(end); time.Sleep(time.Second) {
		if now, _ := x.firing(); len(now) > 0 {
			x.t.Fatalf("%s, but alerts fire: %v", when, now)
		}
	}
}

// fireTime and quietTime bound how long an alert may take to fire and to be silent again: the longest that any of them takes.
const fireTime, quietTime = 70 * time.Second, 90 * time.Second

func (x *alerts) waitFor(name string) {
	x.t.Helper()
	seen := map[string]string{}
	if !x.eventually(fireTime, func() bool { x.seen(seen); return seen[name] != "" }) {
		x.t.Errorf("%s does not fire", name)
		return
	}
	x.note(name, seen[name], x.t.Name())
}

func (x *alerts) note(name, says, fault string) {
	if x.fired[name] == "" && says != "" {
		_, fault, _ = strings.Cut(fault, "/")
		x.fired[name] = strings.ReplaceAll(fault, "_", " ")
		x.rows = append(x.rows, [2]string{x.fired[name], name + ": " + says})
	}
}

func (x *alerts) broken(f trouble) {
	x.t.Run(f.name, func(t *testing.T) {
		outer := x.t
		x.t = t
		defer func() { x.t = outer }()
		began := time.Now()
		if f.seed != nil {
			f.seed()
		}
		seen := map[string]string{}
		missing := slices.Clone(f.fires)
		if !x.eventually(fireTime, func() bool {
			if f.during != nil {
				f.during()
				time.Sleep(100 * time.Millisecond)
			}
			x.seen(seen)
			missing = slices.DeleteFunc(missing, func(name string) bool { return seen[name] != "" })
			return len(missing) == 0
		}) {
			t.Errorf("do not fire: %s", strings.Join(missing, ", "))
		}
		for _, name := range f.fires {
			x.note(name, seen[name], t.Name())
		}
		took := time.Since(began)
		if f.heal != nil {
			f.heal()
		}
		healed := time.Now()
		if !x.eventually(quietTime, func() bool { return x.seen(seen) }) {
			now, more := x.firing()
			t.Fatalf("still firing: %v, and about to fire: %d", now, more)
		}
		t.Logf("fired after %.1f s, silent %.1f s after it was mended: %s", took.Seconds(), time.Since(healed).Seconds(),
			strings.Join(slices.Sorted(maps.Keys(seen)), ", "))
		for name := range seen {
			if !slices.Contains(f.fires, name) && !slices.Contains(f.may, name) {
				t.Errorf("%s has nothing to do with it, and fires: %s", name, seen[name])
			}
		}
	})
}

// complete checks that every alert has fired.
func (x *alerts) complete() {
	x.t.Helper()
	// It takes a mistake in the agent, or another configuration, to fire these; TestAlertsFire of package admin does it by the metrics.
	mistakes := []string{"PatchbayPanic", "PatchbayQuarantined", "PatchbaySettingUnmet"}
	for _, name := range x.all {
		if x.fired[name] == "" && !slices.Contains(mistakes, name) {
			x.t.Errorf("%s was fired by nothing", name)
		}
	}
	x.print("fault", "alert")
}

// blockLog restarts the agent with a pipe for its log, reads it for a while, and stops reading. The loop waits when it has
// something to say and the pipe is full.
func (x *alerts) blockLog() {
	h := x.l.Host(1)
	path := filepath.Join(h.Dir(), "agent", "log")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		x.t.Fatal(err)
	}
	pipe, err := os.OpenFile(path, os.O_RDWR, 0) // for writing too, so that it opens before the agent
	if err != nil {
		x.t.Fatal(err)
	}
	raw, err := pipe.SyscallConn()
	if err != nil {
		x.t.Fatal(err)
	}
	if err := raw.Control(func(fd uintptr) {
		_, err = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, 4096) // a dozen lines
	}); err != nil {
		x.t.Fatal(err)
	}
	if err != nil {
		x.t.Fatal(err)
	}
	x.drain = make(chan bool)
	go func() {
		defer func() { _ = pipe.Close() }()
		reads := true
		for buf := make([]byte, 4096); ; {
			select {
			case more, open := <-x.drain:
				if !open {
					return
				}
				reads = more
			default:
			}
			if !reads {
				time.Sleep(tick)
				continue
			}
			_ = pipe.SetReadDeadline(time.Now().Add(tick))
			if _, err := pipe.Read(buf); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
				return
			}
		}
	}()
	x.restart("DEFAULT.log_file="+path, "DEFAULT.debug=true")
	x.drain <- false
	if !x.eventually(settled, func() bool {
		x.ofctl(1, "del-flows", "br-int", "table=72") // many at once: what is changed again and again is named less often
		out, _ := x.patchbay(1, "status")
		return strings.Contains(out, "does not answer")
	}) {
		x.t.Error("the loop goes on although nobody reads its log")
	}
}

func (x *alerts) unblockLog() { x.drain <- true }

// restart restarts the first host's agent with more options than it has.
func (x *alerts) restart(more ...string) {
	x.t.Helper()
	h := x.l.Host(1)
	if err := h.StopAgent(x.ctx); err != nil {
		x.t.Fatal(err)
	}
	if err := h.StartAgent(x.ctx, lab.Patchbay, append(append([]string{filtering}, x.overrides...), more...)...); err != nil {
		x.t.Fatal(err)
	}
}
