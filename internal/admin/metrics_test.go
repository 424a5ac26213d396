// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/patchbay-sdn/patchbay/internal/inspect"
)

var update = flag.Bool("update", false, "write generated parts of files")

const (
	docsPath  = "../../docs/reference/metrics.md"
	docsBegin = "<!-- This table is generated: go test ./internal/admin -run TestMetricsDocs -update -->\n"
	docsEnd   = "<!-- end of the generated table -->\n"
)

// metricsTable is the part of docs/reference/metrics.md that lists the metrics.
func metricsTable() string {
	var b strings.Builder
	b.WriteString("| metric | type | labels | meaning |\n|---|---|---|---|\n")
	for _, m := range metrics() {
		kind := map[prometheus.ValueType]string{gauge: "gauge", counter: "counter", histogram: "histogram"}[m.kind]
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", m.name, kind, strings.Join(m.labels, ", "), m.help)
	}
	return b.String()
}

// What docs/reference/metrics.md says about metrics is what there is.
func TestMetricsDocs(t *testing.T) {
	data, err := os.ReadFile(docsPath)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(data), docsBegin)
	have, after, ended := strings.Cut(rest, docsEnd)
	if !found || !ended {
		t.Fatalf("%s lacks the marks of the table of metrics", docsPath)
	}
	want := metricsTable()
	if *update {
		if err := os.WriteFile(docsPath, []byte(before+docsBegin+want+docsEnd+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("run go test ./internal/admin -run TestMetricsDocs -update\n%s", diff)
	}
}

var sample = regexp.MustCompile(`(?m)^(patchbay_\w+)(\{[^}]*\})? (\S+)$`)

func TestMetrics(t *testing.T) {
	src := example()
	src.status.Totals = inspect.Totals{Messages: 10, Foreign: 7, Wired: inspect.Histogram{
		Count: 3, Seconds: 4.5, Buckets: []inspect.Bucket{{Below: 1, Count: 2}, {Below: 5, Count: 3}},
	}, Calls: 5, CallsFailed: 1, Apply: inspect.NewHistogram(.1, 1), Packets: map[string]map[string]uint64{"dhcp": {"answered": 8}}, Requests: map[string]uint64{"answered": 6}}
	src.status.Totals.Apply.Observe(200 * time.Millisecond)
	src.status.Awaited = []inspect.Awaited{{Network: "n1"}, {Network: "n2"}}
	src.status.Unmet = []inspect.Unmet{{Kind: inspect.UnmetExtension, Detail: "taas"}, {Kind: inspect.UnmetExtension, Detail: "log"}}
	s := New(src, Options{Metrics: Metrics(src)})
	code, text := request(s, "/metrics")
	if code != 200 {
		t.Fatal(code, text)
	}
	got := map[string]string{}
	for _, m := range sample.FindAllStringSubmatch(text, -1) {
		got[m[1]+m[2]] = m[3]
	}
	for name, want := range map[string]string{
		"patchbay_alive": "1", "patchbay_in_sync": "1", "patchbay_ready": "1", `patchbay_build_info{goversion="` + runtime.Version() + `",host="hv1",version="1"}`: "1",
		`patchbay_connected{peer="switch"}`: "1", `patchbay_connected{peer="broker"}`: "0",
		`patchbay_ports{state="wired"}`: "1", `patchbay_ports{state="dead"}`: "0",
		`patchbay_messages_total{scope="remote"}`: "7", `patchbay_messages_total{scope="local"}`: "3",
		`patchbay_port_wired_seconds_bucket{le="1"}`: "2", "patchbay_port_wired_seconds_count": "3",
		`patchbay_calls_total{result="success"}`: "4", `patchbay_calls_total{result="error"}`: "1", `patchbay_apply_total{result="success"}`: "1",
		`patchbay_apply_duration_seconds_bucket{le="0.1"}`: "0", `patchbay_apply_duration_seconds_bucket{le="1"}`: "1",
		`patchbay_bridge_connected{bridge="br-int"}`: "1", "patchbay_networks_awaited": "2",
		`patchbay_packets_total{extension="dhcp",outcome="answered"}`: "8", `patchbay_metadata_requests_total{result="answered"}`: "6",
		`patchbay_configuration_unmet{kind="extension"}`: "2", `patchbay_configuration_unmet{kind="local_ip"}`: "0",
	} {
		if got[name] != want {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
	}
	// All that are declared are there.
	for _, m := range metrics() {
		if !strings.Contains(text, "# HELP "+m.name+" ") {
			t.Errorf("%s is not scraped", m.name)
		}
	}
	src.err = errors.New("the agent's loop does not answer")
	_, text = request(s, "/metrics")
	if !strings.Contains(text, "\npatchbay_alive 0\n") || strings.Contains(text, "patchbay_in_sync ") {
		t.Errorf("a loop that does not answer:\n%s", text)
	}
}

// A loop that does not answer is told before the scrape is given up, however little time there is.
func TestStuckLoopIsScraped(t *testing.T) {
	src := example()
	src.blocked = make(chan struct{})
	defer close(src.blocked)
	s := New(src, Options{Metrics: Metrics(src)})
	r := httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody)
	r.Header.Set("X-Prometheus-Scrape-Timeout-Seconds", "0.2")
	w := httptest.NewRecorder()
	began := time.Now()
	s.ServeHTTP(w, r)
	if took := time.Since(began); took > time.Second || !strings.Contains(w.Body.String(), "\npatchbay_alive 0\n") {
		t.Errorf("after %s:\n%s", took, w.Body)
	}
	for text, want := range map[string]time.Duration{"": askTime, "x": askTime, "-1": askTime, "NaN": askTime, "1e300": askTime, "10": askTime, "2": 2 * time.Second} {
		if got := patience(text); got >= want || got < want/2 {
			t.Errorf("%q: %s", text, got)
		}
	}
}

// FuzzMetrics: whatever who scrapes asks for, and whatever the names on the host are, there is an answer.
func FuzzMetrics(f *testing.F) {
	f.Add("text/plain", "gzip", "10", "hv1", "br-int")
	f.Add("application/openmetrics-text;version=1.0.0,*/*;q=0.1", "zstd;q=1,gzip", "1e-9", "\xff\x00", "br\n\"}")
	f.Add("application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited", "", "-Inf", "", "{le=\"1\"}")
	f.Fuzz(func(t *testing.T, accept, encoding, timeout, host, bridge string) {
		src := example()
		src.status.Host, src.status.Bridges[0].Name = host, bridge
		r := httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody)
		r.Header = http.Header{"Accept": {accept}, "Accept-Encoding": {encoding}, "X-Prometheus-Scrape-Timeout-Seconds": {timeout}}
		w := httptest.NewRecorder()
		NewHealth(src, Metrics(src)).ServeHTTP(w, r)
		if w.Code != http.StatusOK || w.Body.Len() == 0 {
			t.Errorf("%d: %s", w.Code, w.Body)
		}
	})
}

// Over TCP there is health, and nothing that tells about ports.
func TestHealthAlone(t *testing.T) {
	src := example()
	s := NewHealth(src, Metrics(src))
	for path, want := range map[string]int{"/livez": 200, "/readyz": 200, "/metrics": 200, "/v1/ports": 404, "/v1/config": 404, "/v1/flows": 404, "/": 404} {
		if code, _ := request(s, path); code != want {
			t.Errorf("%s: %d, want %d", path, code, want)
		}
	}
}

// Every metric that the dashboard and the alerts name exists.
func TestDashboardAndAlerts(t *testing.T) {
	var known []string
	for _, m := range metrics() {
		known = append(known, m.name)
		if m.kind == histogram {
			known = append(known, m.name+"_bucket", m.name+"_sum", m.name+"_count")
		}
	}
	for _, path := range []string{"../../deploy/monitoring/dashboard.json", "../../deploy/monitoring/alerts.yaml"} {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		names := regexp.MustCompile(`patchbay_\w+`).FindAllString(string(data), -1)
		if len(names) < 10 {
			t.Errorf("%s names %d metrics", path, len(names))
		}
		for _, name := range names {
			if !slices.Contains(known, name) {
				t.Errorf("%s: there is no %s", path, name)
			}
		}
	}
}

// Each alert leads to its section of the page that says what to do.
func TestAlertsHaveRunbooks(t *testing.T) {
	read := func(path string) string {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	const page = "docs/how-to/answer-an-alert.md"
	var sections, alerts []string
	for _, m := range regexp.MustCompile(`(?m)^## (\w+)$`).FindAllStringSubmatch(read("../../"+page), -1) {
		sections = append(sections, m[1])
	}
	for rule := range strings.SplitSeq(read(alertsPath), "- alert: ") {
		name, rest, _ := strings.Cut(rule, "\n")
		if !strings.HasPrefix(name, "Patchbay") {
			continue
		}
		alerts = append(alerts, name)
		if link := `runbook_url: "https://github.com/patchbay-sdn/patchbay/blob/main/` + page + "#" + strings.ToLower(name) + `"`; !strings.Contains(rest, link) {
			t.Errorf("%s has no %s", name, link)
		}
	}
	if len(alerts) < 10 || !slices.Equal(alerts, sections) {
		t.Errorf("%s has sections for %q, want %q", page, sections, alerts)
	}
}

// alertsPath is where the alerts are.
const alertsPath = "../../deploy/monitoring/alerts.yaml"

// Each alert fires when what it is about is wrong, and none on a host that is well. The series are what an agent shows.
func TestAlertsFire(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is missing: bin/lab install prometheus")
	}
	if out, err := exec.CommandContext(t.Context(), promtool, "check", "rules", alertsPath).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	well := map[string]string{
		`up`: "1x60", `patchbay_build_info{version="1"}`: "1x60",
		`patchbay_alive`: "1x60", `patchbay_bridge_connected{bridge="br-int"}`: "1x60", `patchbay_connected{peer="switch"}`: "1x60",
		`patchbay_connected{peer="broker"}`: "1x60", `patchbay_connected{peer="server"}`: "1x60", `patchbay_ready`: "1x60", `patchbay_in_sync`: "1x60",
		`patchbay_ports{state="wired"}`: "5x60", `patchbay_ports{state="dead"}`: "0x60", `patchbay_ports{state="waiting"}`: "0x60",
		`patchbay_bundles_failed_total`: "0x60", `patchbay_flows_repaired_total{bridge="br-int"}`: "0x60",
		`patchbay_port_wired_seconds_bucket{le="10"}`: "0+1x60", `patchbay_port_wired_seconds_bucket{le="+Inf"}`: "0+1x60",
		`patchbay_calls_total{result="success"}`: "0+2x60", `patchbay_calls_total{result="error"}`: "0x60", `patchbay_panics_total`: "0x60", `patchbay_quarantined`: "0x60",
		`patchbay_configuration_unmet{kind="extension"}`: "0x60",
	}
	// What is different where something is wrong.
	wrong := map[string]map[string]string{
		"PatchbayAgentDown":      {`up`: "1x10 0x50", `patchbay_build_info{version="1"}`: "1x10 stale"},
		"PatchbayLoopStuck":      {`patchbay_alive`: "0x60"},
		"PatchbayBridgeDown":     {`patchbay_bridge_connected{bridge="br-int"}`: "0x60"},
		"PatchbaySwitchDown":     {`patchbay_connected{peer="switch"}`: "0x60"},
		"PatchbayBrokerDown":     {`patchbay_connected{peer="broker"}`: "0x60", `patchbay_connected{peer="server"}`: "0x60"},
		"PatchbayServerDown":     {`patchbay_connected{peer="server"}`: "0x60"},
		"PatchbayNotReady":       {`patchbay_ready`: "0x60"},
		"PatchbayNotInSync":      {`patchbay_in_sync`: "0x60"},
		"PatchbayPortsNotWired":  {`patchbay_ports{state="waiting"}`: "2x60"},
		"PatchbayDeadPorts":      {`patchbay_ports{state="dead"}`: "1x60"},
		"PatchbayBundlesFail":    {`patchbay_bundles_failed_total`: "0+1x60"},
		"PatchbayFlowsContested": {`patchbay_flows_repaired_total{bridge="br-int"}`: "0+2x60"}, // one flow, as slowly as it gets
		"PatchbayWiringSlow":     {`patchbay_port_wired_seconds_bucket{le="10"}`: "0x60", `patchbay_port_wired_seconds_bucket{le="60"}`: "0+1x60"},
		"PatchbayCallsFail":      {`patchbay_calls_total{result="error"}`: "0+1x60"},
		"PatchbayPanic":          {`patchbay_panics_total`: "0x45 1x15"},
		"PatchbayQuarantined":    {`patchbay_quarantined`: "1x60"},
		"PatchbaySettingUnmet":   {`patchbay_configuration_unmet{kind="extension"}`: "1x60"},
	}
	data, err := os.ReadFile(alertsPath)
	if err != nil {
		t.Fatal(err)
	}
	var alerts []string
	for _, m := range regexp.MustCompile(`- alert: (\w+)`).FindAllStringSubmatch(string(data), -1) {
		alerts = append(alerts, m[1])
	}
	if len(alerts) != len(wrong) {
		t.Errorf("%d alerts, %d faults: each has to be fired once", len(alerts), len(wrong))
	}
	rules, err := filepath.Abs(alertsPath)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "rule_files: [%s]\ntests:\n", rules)
	add := func(different map[string]string, name string, fires bool) {
		fmt.Fprintf(&b, "- interval: 1m\n  name: %s\n  input_series:\n", name)
		series := maps.Clone(well)
		maps.Copy(series, different)
		for _, s := range slices.Sorted(maps.Keys(series)) {
			metric, labels, _ := strings.Cut(strings.TrimSuffix(s, "}"), "{")
			if labels != "" {
				labels += ","
			}
			fmt.Fprintf(&b, "  - {series: '%s{%sinstance=\"hv1\"}', values: '%s'}\n", metric, labels, series[s])
		}
		fmt.Fprintf(&b, "  promql_expr_test:\n  - {expr: 'count(ALERTS{alertstate=\"firing\",alertname=\"%s\"}) or vector(0)', eval_time: 50m, exp_samples: [{labels: '{}', value: %d}]}\n",
			name, map[bool]int{true: 1}[fires])
	}
	for _, name := range alerts {
		add(wrong[name], name, true)
		add(nil, name, false)
	}
	file := filepath.Join(t.TempDir(), "tests.yaml")
	if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), promtool, "test", "rules", file).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
