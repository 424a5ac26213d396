// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"context"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/patchbay-sdn/patchbay/internal/inspect"
)

// metric describes one metric: what is scraped and what docs/reference/metrics.md says are both made from the list in metrics.
type metric struct {
	name   string
	help   string
	kind   prometheus.ValueType
	labels []string
	// emit calls put for every value of the metric.
	emit      func(s *inspect.Status, put func(value float64, labels ...string))
	durations func(s *inspect.Status) inspect.Histogram // of a histogram, instead of emit
}

const (
	gauge     = prometheus.GaugeValue
	counter   = prometheus.CounterValue
	histogram = prometheus.UntypedValue // stands for one
)

// aliveMetric is there even when the agent's loop does not answer; the others are not.
const aliveMetric = "patchbay_alive"

// metrics returns all metrics. They are read from one answer of the loop to a scrape.
func metrics() []metric {
	type put = func(float64, ...string)
	value := func(get func(*inspect.Status) float64) func(*inspect.Status, put) {
		return func(s *inspect.Status, put put) { put(get(s)) }
	}
	total := func(get func(*inspect.Totals) uint64) func(*inspect.Status, put) {
		return func(s *inspect.Status, put put) { put(float64(get(&s.Totals))) }
	}
	bridges := func(get func(*inspect.Bridge) float64) func(*inspect.Status, put) {
		return func(s *inspect.Status, put put) {
			for i := range s.Bridges {
				put(get(&s.Bridges[i]), s.Bridges[i].Name)
			}
		}
	}
	results := func(get func(*inspect.Totals) (all, failed uint64)) func(*inspect.Status, put) {
		return func(s *inspect.Status, put put) {
			all, failed := get(&s.Totals)
			put(float64(all-failed), "success")
			put(float64(failed), "error")
		}
	}
	bridge, result := []string{"bridge"}, []string{"result"}
	return []metric{
		{aliveMetric, "1 when the agent's loop answered the scrape in time, else 0", gauge, nil, value(func(*inspect.Status) float64 { return 1 }), nil},
		{"patchbay_build_info", "1, with the version of the agent, its Go release and its host", gauge, []string{"version", "goversion", "host"}, func(s *inspect.Status, put put) { put(1, s.Version, runtime.Version(), s.Host) }, nil},
		{"patchbay_start_time_seconds", "Unix time at which the agent started", gauge, nil, value(func(s *inspect.Status) float64 { return float64(s.Started.Unix()) }), nil},
		{"patchbay_in_sync", "1 when the switch has everything that the server wants, and the server knows it", gauge, nil, value(func(s *inspect.Status) float64 { return truth(s.InSync) }), nil},
		{"patchbay_ready", "1 when readyz answers 200: the switch has everything that the agent knows to be wanted", gauge, nil, value(func(s *inspect.Status) float64 { ok, _ := Ready(s); return truth(ok) }), nil},
		{"patchbay_connected", "1 while the peer (switch, broker, server) answers", gauge, []string{"peer"}, func(s *inspect.Status, put put) {
			put(truth(s.Switch.Up), "switch")
			put(truth(s.Broker.Up), "broker")
			put(truth(s.Server.Up), "server")
		}, nil},
		{"patchbay_ports", "ports of this host, by state", gauge, []string{"state"}, func(s *inspect.Status, put put) {
			for _, state := range portStates() {
				put(float64(s.Ports[state]), state)
			}
		}, nil},
		{"patchbay_pending", "work that is not done: rows and flows to write, ports and groups to pull, reports to send", gauge, []string{"what"}, func(s *inspect.Status, put put) {
			put(float64(s.Pending.Rows), "rows")
			put(float64(s.Pending.Flows), "flows")
			put(float64(s.Pending.Details), "ports")
			put(float64(s.Pending.Items), "groups")
			put(float64(s.Pending.Reports), "reports")
		}, nil},
		{"patchbay_networks_awaited", "tunnelled networks whose forwarding entries the server may still send, for 30 s after the report of a port; patchbay_in_sync does not wait for them", gauge, nil, value(func(s *inspect.Status) float64 { return float64(len(s.Awaited)) }), nil},
		{"patchbay_advisories", "what leaves a way in and status marks with an exclamation mark: published vulnerabilities of the switch, fragments that it lets out, a broker whose certificate is not verified", gauge, nil, value(func(s *inspect.Status) float64 { return float64(len(s.Advisories)) }), nil},
		{"patchbay_configuration_unmet", "settings that are not so: extensions that Patchbay does not have (extension), a tunnel endpoint that no interface has (local_ip), log files that cannot be opened (log)", gauge, []string{"kind"}, unmet, nil},
		{"patchbay_bridge_connected", "1 while the OpenFlow connection to the bridge is up", gauge, bridge, bridges(func(b *inspect.Bridge) float64 { return truth(b.Connected) }), nil},
		{"patchbay_flows_wanted", "flows that the bridge should have", gauge, bridge, bridges(func(b *inspect.Bridge) float64 { return float64(b.Wanted) }), nil},
		{"patchbay_flows_present", "flows that the bridge has, of any program", gauge, bridge, bridges(func(b *inspect.Bridge) float64 { return float64(b.Present) }), nil},
		{"patchbay_flows_foreign", "flows of other programs on the bridge; flows that the switch learned for the agent are not counted", gauge, bridge, bridges(func(b *inspect.Bridge) float64 { return float64(b.Foreign) }), nil},
		{"patchbay_flows_changed_total", "flows that the agent added, changed or deleted", counter, bridge, bridges(func(b *inspect.Bridge) float64 { return float64(b.Changed) }), nil},
		{"patchbay_flows_repaired_total", "flows that another program changed and the agent restored", counter, bridge, bridges(func(b *inspect.Bridge) float64 { return float64(b.Repaired) }), nil},
		{"patchbay_iptables_lines_total", "lines that the agent wrote to iptables and ipset, with firewall_driver = iptables_hybrid", counter, nil, total(func(t *inspect.Totals) uint64 { return t.RulesWritten }), nil},
		{"patchbay_bundles_failed_total", "OpenFlow bundles that failed", counter, nil, total(func(t *inspect.Totals) uint64 { return t.FlowsRefused }), nil},
		{"patchbay_transactions_failed_total", "OVSDB transactions that failed, conflicts with other programs included", counter, nil, total(func(t *inspect.Totals) uint64 { return t.RowsFailed }), nil},
		{"patchbay_apply_total", "rounds of changes to the switch, by result (success, error)", counter, result, results(func(t *inspect.Totals) (uint64, uint64) { return t.Apply.Count, t.ApplyFailed }), nil},
		{"patchbay_apply_duration_seconds", "duration of a round of changes to the switch", histogram, nil, nil, func(s *inspect.Status) inspect.Histogram { return s.Totals.Apply }},
		{"patchbay_calls_total", "RPC calls to neutron-server that ended, by result (success, error)", counter, result, results(func(t *inspect.Totals) (uint64, uint64) { return t.Calls, t.CallsFailed }), nil},
		{"patchbay_ports_plugged_open_total", "ports plugged in without isolation (os-vif's isolate_vif): they received packets of every network of the host until the agent's first write", counter, nil, total(func(t *inspect.Totals) uint64 { return t.PluggedOpen }), nil},
		{"patchbay_messages_total", "messages from neutron-server, by whether they are about this host (local, remote)", counter, []string{"scope"}, func(s *inspect.Status, put put) {
			put(float64(s.Totals.Messages-s.Totals.Foreign), "local")
			put(float64(s.Totals.Foreign), "remote")
		}, nil},
		{"patchbay_messages_dropped_total", "messages that were dropped because they could not be decoded or handled, or were too large", counter, nil, total(func(t *inspect.Totals) uint64 { return t.Dropped }), nil},
		{"patchbay_resyncs_total", "times that the agent pulled everything again because messages may have been lost", counter, nil, total(func(t *inspect.Totals) uint64 { return t.Resyncs }), nil},
		{"patchbay_packets_total", "packets that flows of an extension sent to the agent, by what became of them: answered, logged, ignored (needs no answer), refused, malformed, limited (too many), unanswered (no resolver answered), failed (panic), unclaimed (of no extension)", counter, []string{"extension", "outcome"}, func(s *inspect.Status, put put) {
			for extension, outcomes := range s.Totals.Packets {
				for outcome, n := range outcomes {
					put(float64(n), extension, outcome)
				}
			}
		}, nil},
		{"patchbay_metadata_requests_total", "metadata requests of VMs, by result: answered (by Nova), unknown (of no VM here), limited (too many), refused, unreachable (Nova is away), timeout", counter, []string{"result"}, func(s *inspect.Status, put put) {
			for result, n := range s.Totals.Requests {
				put(float64(n), result)
			}
		}, nil},
		{"patchbay_panics_total", "panics that the agent recovered from; each affects one object, event or extension", counter, nil, total(func(t *inspect.Totals) uint64 { return t.Panics }), nil},
		{"patchbay_quarantined", "objects, extensions and steps in quarantine after a panic or an error: what `status` lists", gauge, nil, value(func(s *inspect.Status) float64 { return float64(len(s.Held)) }), nil},
		{"patchbay_log_lines_total", "warnings and errors in the log", counter, []string{"level"}, func(s *inspect.Status, put put) {
			put(float64(s.Totals.Warnings), "warning")
			put(float64(s.Totals.Errors), "error")
		}, nil},
		{"patchbay_loop_steps_total", "steps of the agent's loop", counter, nil, total(func(t *inspect.Totals) uint64 { return t.Steps }), nil},
		{"patchbay_loop_busy_seconds_total", "time that the loop was busy", counter, nil, value(func(s *inspect.Status) float64 { return s.Totals.BusySeconds }), nil},
		{"patchbay_loop_longest_step_seconds", "the longest step of the loop since the start", gauge, nil, value(func(s *inspect.Status) float64 { return s.Totals.LongestSeconds }), nil},
		{"patchbay_port_wired_seconds", "time from plugging a port in until the server confirmed that it is up", histogram, nil, nil, func(s *inspect.Status) inspect.Histogram { return s.Totals.Wired }},
	}
}

// portStates are the words for the states of a port, so that a state without ports is a zero and not a gap.
func portStates() []string {
	return []string{"wired", "waiting", "dead", "down", "failed", "moved", "elsewhere", "ancillary"}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// collector reads the metrics from a source for one scrape.
type collector struct {
	src   inspect.Source
	ctx   context.Context //nolint:containedctx // of the scrape; the interface of collectors has no place for it
	list  []metric
	descs []*prometheus.Desc
}

// Metrics answers scrapes, with the process's own figures (memory, processor, goroutines) besides the agent's.
func Metrics(src inspect.Source) http.Handler {
	list := metrics()
	var descs []*prometheus.Desc
	for _, m := range list {
		descs = append(descs, prometheus.NewDesc(m.name, m.help, m.labels, nil))
	}
	process := prometheus.NewRegistry()
	process.MustRegister(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), collectors.NewGoCollector())
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), patience(r.Header.Get("X-Prometheus-Scrape-Timeout-Seconds")))
		defer cancel()
		own := prometheus.NewRegistry()
		own.MustRegister(&collector{src, ctx, list, descs})
		promhttp.HandlerFor(prometheus.Gatherers{own, process}, promhttp.HandlerOpts{}).ServeHTTP(w, r)
	})
}

// patience is how long a scrape waits for the loop: less than who scrapes waits for the scrape. One that is given up would
// say that the agent is gone, and not that its loop is stuck.
func patience(scrape string) time.Duration {
	limit := askTime
	if s, err := strconv.ParseFloat(scrape, 64); err == nil && s > 0 && s < askTime.Seconds() {
		limit = time.Duration(s * float64(time.Second))
	}
	return limit - limit/10
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(to chan<- prometheus.Metric) {
	s, err := c.src.Status(c.ctx)
	for i, m := range c.list {
		switch {
		case err != nil && m.name == aliveMetric:
			to <- prometheus.MustNewConstMetric(c.descs[i], m.kind, 0)
		case err != nil:
		case m.kind == histogram:
			h := m.durations(&s)
			buckets := make(map[float64]uint64, len(h.Buckets))
			for _, b := range h.Buckets {
				buckets[b.Below] = b.Count
			}
			to <- prometheus.MustNewConstHistogram(c.descs[i], h.Count, h.Seconds, buckets)
		default:
			m.emit(&s, func(value float64, labels ...string) {
				for i := range labels {
					labels[i] = strings.ToValidUTF8(labels[i], "?") // anything else is no label, and the whole scrape would fail
				}
				to <- prometheus.MustNewConstMetric(c.descs[i], m.kind, value, labels...)
			})
		}
	}
}

// unmet counts what the configuration asks for and is not so, by its kind.
func unmet(s *inspect.Status, put func(float64, ...string)) {
	for _, kind := range []string{inspect.UnmetExtension, inspect.UnmetLocalIP, inspect.UnmetLog} {
		n := 0
		for _, u := range s.Unmet {
			if u.Kind == kind {
				n++
			}
		}
		put(float64(n), kind)
	}
}
