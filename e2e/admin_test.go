// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"

	"github.com/patchbay-sdn/patchbay/internal/inspect"
	"github.com/patchbay-sdn/patchbay/lab"
)

// Secrets that are planted on a host. The first is a password as it is, the second the same in a URL.
var planted = []string{"pl4nted/pa$word", "pl4nted%2Fpa%24word", "planted-profiler-key", "planted-key-password", "planted-ipsec-key", "planted-token", "planted-in-rows"}

// TestSecrets plants secrets wherever an agent and its switch have them, has the broker refuse the agent, and looks for them
// in everything that a host says about itself.
func TestSecrets(t *testing.T) {
	x := newOnCall(t)
	h := x.l.Host(1)
	x.ctl("add_user", "planted", planted[0])
	x.ctl("set_permissions", "planted", ".*", ".*", ".*")
	if err := h.StopAgent(x.ctx); err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(x.l.TransportURL(), "@")
	if err := h.StartAgent(x.ctx, lab.Patchbay, filtering, "patchbay.metrics_listen="+metricsPort, "DEFAULT.debug=true", "agent.report_interval=2",
		"DEFAULT.log_file="+filepath.Join(h.Dir(), "agent", "own.log"),
		"DEFAULT.transport_url=rabbit://planted:"+planted[1]+"@"+rest,
		"profiler.hmac_keys="+planted[2], "oslo_messaging_rabbit.ssl_key_password="+planted[3]); err != nil {
		t.Fatal(err)
	}
	x.vsctl(1, "--may-exist", "add-br", "br-under", "--", "add-port", "br-under", "ipsec0", "--", "set", "Interface", "ipsec0", "type=gre",
		"options:remote_ip=192.0.2.7", "options:psk="+planted[4])
	x.vsctl(1, "set", "Open_vSwitch", ".", "external_ids:api_token="+planted[5])
	x.vsctl(1, "set", "Bridge", "br-int", "external_ids:admin_password="+planted[6])
	x.says([]string{"status"}, 0, "in sync")

	// The broker refuses it for a while: errors about a login are where passwords turn up.
	x.ctl("change_password", "planted", "another")
	x.ctl("close_all_user_connections", "planted", "test")
	x.says([]string{"status"}, 1, "the broker cannot be reached")
	said := x.everything("refused")
	x.ctl("change_password", "planted", planted[0])
	// The pauses between refusals double, since most need somebody's hand: the last of half a minute is as long as what comes next.
	if !x.eventually(2*time.Minute, func() bool { _, status := x.patchbay(1, "status"); return status == 0 }) {
		t.Error("the agent does not come back after its password is right again")
	}
	for name, text := range x.everything("well") {
		said[name] = text
	}
	for name, text := range said {
		for _, s := range planted {
			if i := strings.Index(text, s); i >= 0 {
				t.Errorf("%s tells %q: …%s…", name, s, text[max(0, i-80):min(len(text), i+40)])
			}
		}
	}
	for name, part := range map[string]string{
		"well bundle ovs-vsctl-show.txt": "Bridge br-int", "well bundle ovsdb-Interface.txt": "psk=***",
		"well bundle ovsdb-Bridge.txt": "admin_password=***", "well bundle flows-br-int.txt": "table=60",
		"well bundle log.txt": "port is up", "well bundle ovsdb-Open_vSwitch.txt": "api_token=***",
		"well patchbay config show": "transport_url", "refused log": "connection to the broker failed, retrying", "well /metrics": "patchbay_alive 1",
	} {
		if !strings.Contains(said[name], part) {
			t.Errorf("%s does not have %q:\n%.600s", name, part, said[name])
		}
	}
	if missing := said["well bundle missing.txt"]; missing != "" {
		t.Errorf("missing in the bundle of a whole host:\n%s", missing)
	}
	bytes := 0
	for _, text := range said {
		bytes += len(text)
	}
	fmt.Printf("%d answers, %d bytes, %d secrets planted, none found unless said otherwise\n", len(said), bytes, len(planted))
}

// everything is all that a host says, by who says it.
func (x *onCall) everything(when string) map[string]string {
	x.t.Helper()
	h := x.l.Host(1)
	said := map[string]string{}
	dir := x.t.TempDir()
	page, archive := filepath.Join(dir, "map.html"), filepath.Join(dir, "bundle.tar.gz")
	for _, args := range [][]string{
		{"status"}, {"status", "--json"}, {"ports"}, {"ports", "--json"}, {"port", x.vms["a"].PortID}, {"networks"}, {"tunnels"}, {"groups"}, {"group", "open"},
		{"flows", "br-int", "--owner"}, {"flows", "br-tun"}, {"events"}, {"events", "--json"}, {"config", "show"}, {"config", "show", "--all", "--json"},
		append([]string{"config", "check"}, h.AgentFiles()...), append([]string{"plan"}, h.AgentFiles()...),
		{"explain", x.vms["a"].PortID}, {"trace", x.vms["a"].PortID, x.vms["b"].PortID, "-v"}, {"map", "--file", page}, {"support-bundle", archive},
	} {
		out, status := x.patchbay(1, args...)
		if status == 2 {
			x.t.Errorf("patchbay %s is not a command of today, so what it says was not searched: %s", strings.Join(args, " "), out)
		}
		said[when+" patchbay "+strings.Join(args[:min(2, len(args))], " ")] += out
	}
	for name, path := range map[string]string{"map": page, "log": filepath.Join(h.Dir(), "agent", "own.log"), "standard error": h.AgentLog(lab.Patchbay)} {
		text, err := os.ReadFile(path)
		if err != nil {
			x.t.Error(err)
		}
		said[when+" "+name] = string(text)
	}
	files := untar(x.t, archive)
	if len(files["tape.gz"]) < 1000 {
		x.t.Errorf("the tape of the bundle has %d bytes", len(files["tape.gz"]))
	}
	for name, text := range files {
		said[when+" bundle "+name] = text
	}
	client := x.overSocket()
	for _, path := range []string{"status", "ports", "networks", "tunnels", "groups", "bridges", "flows", "events", "config", "map"} {
		said[when+" /v1/"+path] = fetch(x.t, client, "http://agent/v1/"+path)
	}
	said[when+" /metrics"] = fetch(x.t, client, "http://agent/metrics")
	out, err := h.Command(x.ctx, "curl", "-sS", "http://"+metricsPort+"/metrics", "http://"+metricsPort+"/readyz").CombinedOutput()
	if err != nil {
		x.t.Errorf("metrics over TCP: %v\n%s", err, out)
	}
	said[when+" metrics over TCP"] = string(out)
	return said
}

// untar returns the files of a support bundle, all of them decompressed.
func untar(t *testing.T, path string) map[string]string {
	t.Helper()
	bundle, err := inspect.ReadBundle(path)
	if err != nil {
		t.Fatal(err)
	}
	files, err := bundle.Texts()
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// socket is the first host's admin socket.
func (x *onCall) socket() string {
	return filepath.Join(x.l.Host(1).Dir(), "agent", "state", "patchbay.sock")
}

func (x *onCall) overSocket() *http.Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", x.socket())
	}
	return &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}, Timeout: time.Minute}
}

func fetch(t *testing.T, c *http.Client, url string) string {
	t.Helper()
	resp, err := c.Get(url) //nolint:noctx // the client has a timeout
	if err != nil {
		t.Error(err)
		return ""
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("%s: %s %v", url, resp.Status, err)
	}
	return string(text)
}

const (
	crowd   = 200 // readers that hardly read
	probes  = 30  // ports that are plugged in, one after the other
	resting = 100 // ports that are there all the time
)

// TestAdminLoad plugs ports in one after the other, first alone and then while a crowd reads the longest answers as slowly as it
// is let, others scrape, and others send nonsense. Wiring must not take longer for it, and the agent must be as before afterwards.
func TestAdminLoad(t *testing.T) {
	x := newOnCall(t, "patchbay.metrics_listen="+metricsPort)
	many, err := x.l.CreatePorts(x.ctx, x.l.Host(1), lab.Port{NetworkID: x.network.ID, Name: "rest", Extra: attributes{"security_groups": []string{x.open}}}, resting)
	if err != nil {
		t.Fatal(err)
	}
	if err := x.l.Host(1).PlugMany(x.ctx, many); err != nil {
		t.Fatal(err)
	}
	x.says([]string{"status"}, 0, "in sync")
	before := x.agentStatus()

	alone := x.took(x.wire("alone", probes))
	stop, counts := x.mob()
	time.Sleep(2 * time.Second) // until all of them are there
	wired := x.wire("loaded", probes)
	began := time.Now()
	during := x.agentStatus()
	asked := time.Since(began)
	stop()
	loaded := x.took(wired)
	after := x.took(x.wire("after", probes))
	x.says([]string{"status"}, 0, "in sync")
	end := x.agentStatus()

	fmt.Printf("\n%-22s %10s %10s %10s\n", "plug to reported", "median", "9 of 10", "longest")
	for _, r := range []struct {
		name  string
		times []time.Duration
	}{{"alone", alone}, {fmt.Sprintf("%d slow readers", crowd), loaded}, {"after them", after}} {
		fmt.Printf("%-22s %10s %10s %10s\n", r.name, ms(quantile(r.times, 0.5)), ms(quantile(r.times, 0.9)), ms(quantile(r.times, 1)))
	}
	fmt.Printf("%s; longest turn of the loop %.1f ms before, %.1f ms with them; the status was answered in %s meanwhile\n", counts(),
		1000*before.Totals.LongestSeconds, 1000*during.Totals.LongestSeconds, ms(asked))
	if asked > 5*time.Second {
		t.Errorf("slow readers keep operators from the status for %s", asked)
	}
	// The machine is busier with them, too: what is not allowed is to wait for a reader, which would be seconds.
	if a, l := quantile(alone, 0.5), quantile(loaded, 0.5); l > 2*a+30*time.Millisecond {
		t.Errorf("wiring took %s with slow readers, %s without", l, a)
	}
	if l := quantile(loaded, 1); l > 5*time.Second {
		t.Errorf("a port waited %s while readers did not read", l)
	}
	if end.PID != before.PID || end.Totals.Errors != before.Totals.Errors {
		t.Errorf("pid %d and %d, %d and %d errors in the log", before.PID, end.PID, before.Totals.Errors, end.Totals.Errors)
	}
}

func ms(d time.Duration) string { return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000) }

func quantile(times []time.Duration, q float64) time.Duration {
	sorted := slices.Sorted(slices.Values(times))
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

func (x *onCall) agentStatus() inspect.Status {
	x.t.Helper()
	var s inspect.Status
	if err := json.Unmarshal([]byte(fetch(x.t, x.overSocket(), "http://agent/v1/status")), &s); err != nil {
		x.t.Fatal(err)
	}
	return s
}

// wire plugs ports in one after the other.
func (x *onCall) wire(name string, count int) []ports.Port {
	x.t.Helper()
	made, err := x.l.CreatePorts(x.ctx, x.l.Host(1), lab.Port{NetworkID: x.network.ID, Name: name, Extra: attributes{"security_groups": []string{x.open}}}, count)
	if err != nil {
		x.t.Fatal(err)
	}
	for i := range made {
		if err := x.l.Host(1).PlugMany(x.ctx, made[i:i+1]); err != nil {
			x.t.Fatal(err)
		}
		if err := x.l.WaitActive(x.ctx, made[i].ID); err != nil {
			x.t.Fatal(err)
		}
	}
	return made
}

// took is how long each of the ports took until the server knew it, by the agent's own clock. They are unplugged and deleted.
func (x *onCall) took(made []ports.Port) []time.Duration {
	x.t.Helper()
	var times []time.Duration
	var list []inspect.Port
	if err := json.Unmarshal([]byte(fetch(x.t, x.overSocket(), "http://agent/v1/ports")), &list); err != nil {
		x.t.Fatal(err)
	}
	ours := map[string]bool{}
	for _, p := range made {
		ours[p.ID] = true
	}
	for _, p := range list {
		if ours[p.ID] {
			times = append(times, p.Timeline.Reported.Sub(p.Timeline.Plugged))
		}
	}
	if len(times) != len(made) {
		x.t.Fatalf("%d of %d ports have a timeline", len(times), len(made))
	}
	if err := x.l.Host(1).UnplugMany(x.ctx, made); err != nil {
		x.t.Fatal(err)
	}
	for _, p := range made {
		if err := ports.Delete(x.ctx, x.l.Neutron(), p.ID).Err; err != nil {
			x.t.Fatal(err)
		}
	}
	return times
}

// mob is the crowd, on the socket and, as far as that is open to all, on TCP. Stop ends it; counts says what it got.
func (x *onCall) mob() (stop func(), counts func() string) {
	ctx, cancel := context.WithCancel(x.ctx)
	var wg sync.WaitGroup
	var read, scrapes, nonsense atomic.Int64
	long := []string{"/v1/flows", "/v1/ports", "/v1/map", "/v1/events", "/v1/flows?bridge=br-int"}
	for i := range crowd {
		wg.Go(func() {
			for ctx.Err() == nil {
				conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "unix", x.socket())
				if err != nil {
					time.Sleep(100 * time.Millisecond) // the queue of the socket is full
					continue
				}
				_, _ = io.WriteString(conn, "GET "+long[i%len(long)]+" HTTP/1.1\r\nHost: a\r\n\r\n")
				buf := make([]byte, 512)
				for ctx.Err() == nil {
					_ = conn.SetReadDeadline(time.Now().Add(time.Second))
					n, err := conn.Read(buf)
					read.Add(int64(n))
					if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
						break
					}
					time.Sleep(500 * time.Millisecond)
				}
				_ = conn.Close()
			}
		})
	}
	// In the host's namespace, where its loopback is.
	wg.Go(func() {
		for ctx.Err() == nil {
			if x.l.Host(1).Command(ctx, "curl", "-sS", "-o", "/dev/null", "http://"+metricsPort+"/metrics").Run() == nil {
				scrapes.Add(1)
			}
			time.Sleep(100 * time.Millisecond)
		}
	})
	for range 5 {
		wg.Go(func() {
			for ctx.Err() == nil {
				if conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "unix", x.socket()); err == nil {
					junk := make([]byte, 4000)
					_, _ = rand.Read(junk)
					_, _ = conn.Write(append([]byte("GET /"), junk...))
					_ = conn.Close()
					nonsense.Add(1)
				}
				time.Sleep(50 * time.Millisecond)
			}
		})
	}
	stop = func() { cancel(); wg.Wait() }
	return stop, func() string {
		return fmt.Sprintf("%d slow readers took %d bytes, %d scrapes, %d pieces of nonsense", crowd, read.Load(), scrapes.Load(), nonsense.Load())
	}
}
