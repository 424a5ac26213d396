// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/patchbay-sdn/patchbay/internal/inspect"
)

// metric describes one metric: what is scraped and what docs/operations.md says are both made from the list in metrics.
type metric struct {
	name   string
	help   string
	kind   prometheus.ValueType // Untyped stands for a histogram
	labels []string
	// emit calls put for every value of the metric.
	emit func(s *inspect.Status, put func(value float64, labels ...string))
}

const (
	gauge     = prometheus.GaugeValue
	counter   = prometheus.CounterValue
	histogram = prometheus.UntypedValue
)

// aliveMetric is there even when the agent's loop does not answer; the others are not.
const aliveMetric = "patchbay_alive"

// wiredMetric is the one histogram.
const wiredMetric = "patchbay_port_wired_seconds"

// metrics is all of them. They are read from one answer of the loop to a scrape; nothing is counted for their sake elsewhere.
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
	bridge := []string{"bridge"}
	return []metric{
		{aliveMetric, "1 when the agent's loop answered the scrape in time, else 0", gauge, nil, value(func(*inspect.Status) float64 { return 1 })},
		{"patchbay_info", "1, with the version and host of the agent", gauge, []string{"version", "host"}, func(s *inspect.Status, put put) { put(1, s.Version, s.Host) }},
		{"patchbay_start_time_seconds", "when the agent was started, since 1970", gauge, nil, value(func(s *inspect.Status) float64 { return float64(s.Started.Unix()) })},
		{"patchbay_in_sync", "1 when everything is as the server wants it, and the server knows", gauge, nil, value(func(s *inspect.Status) float64 { return truth(s.InSync) })},
		{"patchbay_ready", "1 when the switch has everything that is known to be wanted: what readyz says", gauge, nil, value(func(s *inspect.Status) float64 { ok, _ := Ready(s); return truth(ok) })},
		{"patchbay_connected", "1 while the peer (switch, broker, server) can be reached", gauge, []string{"peer"}, func(s *inspect.Status, put put) {
			put(truth(s.Switch.Up), "switch")
			put(truth(s.Broker.Up), "broker")
			put(truth(s.Server.Up), "server")
		}},
		{"patchbay_ports", "ports plugged in here, by state", gauge, []string{"state"}, func(s *inspect.Status, put put) {
			for _, state := range portStates() {
				put(float64(s.Ports[state]), state)
			}
		}},
		{"patchbay_pending", "work that is not done: rows, flows, reports; and what the server has not told: details, items", gauge, []string{"what"}, func(s *inspect.Status, put put) {
			p := s.Pending
			put(float64(p.Rows), "rows")
			put(float64(p.Flows), "flows")
			put(float64(p.Details), "details")
			put(float64(p.Items), "items")
			put(float64(p.Reports), "reports")
		}},
		{"patchbay_advisories", "known holes of the switch, and peers that are not verified: what status marks with an exclamation mark", gauge, nil, value(func(s *inspect.Status) float64 { return float64(len(s.Advisories)) })},
		{"patchbay_bridge_connected", "1 while the bridge can be programmed", gauge, bridge, bridges(func(b *inspect.Bridge) float64 { return truth(b.Connected) })},
		{"patchbay_flows_wanted", "flows that the bridge should have", gauge, bridge, bridges(func(b *inspect.Bridge) float64 { return float64(b.Wanted) })},
		{"patchbay_flows_present", "flows that the bridge has, whoever made them", gauge, bridge, bridges(func(b *inspect.Bridge) float64 { return float64(b.Present) })},
		{"patchbay_flows_foreign", "flows on the bridge that are nobody's of ours; those that the switch has learned for us are not counted", gauge, bridge, bridges(func(b *inspect.Bridge) float64 { return float64(b.Foreign) })},
		{"patchbay_flows_changed_total", "flows that the agent added, changed or deleted", counter, bridge, bridges(func(b *inspect.Bridge) float64 { return float64(b.Changed) })},
		{"patchbay_flows_repaired_total", "flows that somebody else changed and the agent put right", counter, bridge, bridges(func(b *inspect.Bridge) float64 { return float64(b.Repaired) })},
		{"patchbay_flows_refused_total", "bundles of flows that the switch did not take", counter, nil, total(func(t *inspect.Totals) uint64 { return t.FlowsRefused })},
		{"patchbay_rows_failed_total", "transactions that the switch's database did not take, or that somebody else was faster than", counter, nil, total(func(t *inspect.Totals) uint64 { return t.RowsFailed })},
		{"patchbay_rounds_total", "rounds of changes to the switch", counter, nil, total(func(t *inspect.Totals) uint64 { return t.Rounds })},
		{"patchbay_round_seconds_total", "how long these rounds took together", counter, nil, value(func(s *inspect.Status) float64 { return s.Totals.RoundSeconds })},
		{"patchbay_calls_total", "questions and reports to the server that came to an end", counter, nil, total(func(t *inspect.Totals) uint64 { return t.Calls })},
		{"patchbay_calls_failed_total", "of these, those that failed", counter, nil, total(func(t *inspect.Totals) uint64 { return t.CallsFailed })},
		{"patchbay_ports_plugged_open_total", "ports that were plugged in without isolation (os-vif's isolate_vif): they heard every network of the host until the agent's first write", counter, nil, total(func(t *inspect.Totals) uint64 { return t.PluggedOpen })},
		{"patchbay_messages_total", "messages from the server, by whether they concern this host (here, elsewhere)", counter, []string{"about"}, func(s *inspect.Status, put put) {
			put(float64(s.Totals.Messages-s.Totals.Foreign), "here")
			put(float64(s.Totals.Foreign), "elsewhere")
		}},
		{"patchbay_messages_dropped_total", "messages that were dropped because they could not be decoded or were too large", counter, nil, total(func(t *inspect.Totals) uint64 { return t.Dropped })},
		{"patchbay_resyncs_total", "times that everything was asked for again, because messages may have been missed", counter, nil, total(func(t *inspect.Totals) uint64 { return t.Resyncs })},
		{"patchbay_panics_total", "panics that cost one object, event or extension and not the agent", counter, nil, total(func(t *inspect.Totals) uint64 { return t.Panics })},
		{"patchbay_quarantined", "objects, extensions and steps that a panic or an error has put aside: what `status` lists", gauge, nil, value(func(s *inspect.Status) float64 { return float64(len(s.Held)) })},
		{"patchbay_log_lines_total", "warnings and errors in the log", counter, []string{"level"}, func(s *inspect.Status, put put) {
			put(float64(s.Totals.Warnings), "warning")
			put(float64(s.Totals.Errors), "error")
		}},
		{"patchbay_loop_turns_total", "turns of the agent's loop", counter, nil, total(func(t *inspect.Totals) uint64 { return t.Turns })},
		{"patchbay_loop_busy_seconds_total", "how long the loop was busy", counter, nil, value(func(s *inspect.Status) float64 { return s.Totals.BusySeconds })},
		{"patchbay_loop_longest_turn_seconds", "the longest turn of the loop since the start", gauge, nil, value(func(s *inspect.Status) float64 { return s.Totals.LongestSeconds })},
		{wiredMetric, "time from plugging a port in until the server knew that it is up", histogram, nil, nil},
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
			h := s.Totals.Wired
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
