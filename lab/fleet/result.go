// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Result is what a run has measured.
type Result struct {
	Agents   int     `json:"agents"`
	Ports    int     `json:"ports_each"`
	Span     int     `json:"hosts_of_a_network"`
	Network  string  `json:"network"`
	Seed     uint64  `json:"seed"`
	Rate     float64 `json:"messages_to_all_per_second_wanted"`
	Layout   string  `json:"layout"`
	Query    string  `json:"transport_options,omitempty"`
	RabbitMQ string  `json:"rabbitmq"`
	Seconds  float64 `json:"seconds"`

	Start   Start    `json:"start"`
	Rest    Rest     `json:"rest"`
	Changes Changes  `json:"changes"`
	Storms  []Storm  `json:"storms,omitempty"`
	Settled float64  `json:"settled_after_seconds"`
	Flows   Flows    `json:"flows"`
	Series  []Second `json:"series"`
}

// Cost is what was used in a time.
type Cost struct {
	Seconds       float64 `json:"seconds"`
	BrokerSeconds float64 `json:"broker_cpu_seconds"`
	FleetSeconds  float64 `json:"fleet_cpu_seconds"`
	Calls         int64   `json:"calls"`
	FailedCalls   int64   `json:"failed_calls"`
	Deliveries    int64   `json:"deliveries"`
	Warnings      int64   `json:"warnings"`
}

func (c Cost) String() string {
	per := func(n int64) float64 { return float64(n) / max(c.Seconds, 1e-9) }
	return fmt.Sprintf("%.1f s, %.0f deliveries/s, %.1f calls/s (%d failed), broker %.2f cores, fleet %.2f cores, %d warnings",
		c.Seconds, per(c.Deliveries), per(c.Calls), c.FailedCalls, c.BrokerSeconds/c.Seconds, c.FleetSeconds/c.Seconds, c.Warnings)
}

// Start is what it took to start all agents.
type Start struct {
	Cost
	InSync             float64 `json:"all_in_sync_after_seconds"`
	BrokerCPUPerAgent  float64 `json:"broker_cpu_ms_per_agent"`
	BrokerBytes        int64   `json:"broker_bytes_over_empty_per_agent"`
	FleetCPUPerAgent   float64 `json:"fleet_cpu_ms_per_agent"`
	HeapPerAgent       int64   `json:"heap_and_stack_bytes_per_agent"`
	ResidentPerAgent   int64   `json:"resident_bytes_per_agent"`
	GoroutinesPerAgent float64 `json:"goroutines_per_agent"`
	Bindings           float64 `json:"bindings_per_agent"`
	Channels           float64 `json:"channels_per_agent"`
	// Methods are the calls of each method, of all agents.
	Methods map[string]int `json:"calls_by_method"`
}

// Rest is what agents cost that have nothing to do.
type Rest struct {
	Cost
	FleetCPUPerAgent  float64 `json:"fleet_cpu_ms_per_second_and_agent"`
	BrokerCPUPerAgent float64 `json:"broker_cpu_ms_per_second_and_agent"`
}

// Changes is how changes went.
type Changes struct {
	Cost
	Count     int                    `json:"count"`
	Pushes    int64                  `json:"messages_to_all"`
	By        map[string]int         `json:"by_kind"`
	Times     map[string]Percentiles `json:"change_to_flow"`
	All       Percentiles            `json:"change_to_flow_all"`
	Confirm   Percentiles            `json:"message_to_all_confirmed"` // after so long, to the server
	Disturbed Percentiles            `json:"change_to_flow_beside_faults"`
	// Unseen are changes whose flow nobody has seen come or go: mostly those that another change overtook.
	Unseen int   `json:"unseen"`
	Depth  Depth `json:"queues"`
}

// Storm is how one went.
type Storm struct {
	Cost
	Name    string   `json:"name"`
	What    string   `json:"what"`
	Lasted  float64  `json:"lasted_seconds"`
	InSync  float64  `json:"all_in_sync_after_seconds"` // since the storm began
	Busiest int64    `json:"most_calls_in_a_second"`
	Peak    int64    `json:"broker_bytes_highest"`
	Before  Held     `json:"before"`
	After   Held     `json:"after"`
	Grown   []string `json:"grown,omitempty"`
	Boots   *Boots   `json:"boots,omitempty"`
	// Methods are the calls of each method, Failed those that failed.
	Methods map[string]int `json:"calls_by_method"`
	Failed  map[string]int `json:"failed_calls_by_method"`
	// Series has a row for each second, counted from the beginning of the storm until all agents were in sync.
	Series []Second `json:"series"`
}

// Held is what agents and broker hold when all is quiet.
type Held struct {
	Heap        int64   `json:"heap_and_stack_bytes_per_agent"`
	Resident    int64   `json:"resident_bytes_per_agent"`
	Goroutines  float64 `json:"goroutines_per_agent"`
	BrokerBytes int64   `json:"broker_bytes"`
	Depth       Depth   `json:"queues"`
}

// Depth is what waits in the broker's queues.
type Depth struct {
	Queues   int `json:"count"`
	Consumed int `json:"consumed"`
	Messages int `json:"messages"`
	Sent     int `json:"sent"` // of these, not calls and not answers to calls
	Longest  int `json:"longest"`
}

// Flows is how the flows of all switches compare.
type Flows struct {
	Hosts   int      `json:"hosts"`
	Flows   int      `json:"flows"`
	Wrong   int      `json:"wrong"`
	Where   int      `json:"hosts_with_wrong_flows"`
	Samples []string `json:"samples,omitempty"`
	Seconds float64  `json:"seconds"`
}

// Percentiles of times, in milliseconds.
type Percentiles struct {
	N   int     `json:"n"`
	P50 float64 `json:"p50_ms"`
	P90 float64 `json:"p90_ms"`
	P99 float64 `json:"p99_ms"`
	Max float64 `json:"max_ms"`
}

func percentiles(list []time.Duration) Percentiles {
	if len(list) == 0 {
		return Percentiles{}
	}
	sorted := slices.Sorted(slices.Values(list))
	at := func(q float64) float64 {
		return float64(sorted[int(math.Ceil(q*float64(len(sorted))))-1].Microseconds()) / 1000
	}
	return Percentiles{len(sorted), at(0.5), at(0.9), at(0.99), at(1)}
}

func (p Percentiles) String() string {
	if p.N == 0 {
		return "none"
	}
	return fmt.Sprintf("p50 %s  p90 %s  p99 %s  max %s  (n %d)", ms(p.P50), ms(p.P90), ms(p.P99), ms(p.Max), p.N)
}

func ms(v float64) string {
	if v < 10 {
		return fmt.Sprintf("%.1f ms", v)
	}
	return fmt.Sprintf("%.0f ms", v)
}

func mib(n int64) float64 { return float64(n) / (1 << 20) }

// Write prints the result as a table.
func (r *Result) Write(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(what, format string, args ...any) { fmt.Fprintf(t, "%s\t%s\n", what, fmt.Sprintf(format, args...)) }
	row("fleet", "%d agents, %d ports each at the start, %s networks on %d hosts; layout %s, RabbitMQ %s; seed %d", r.Agents, r.Ports, r.Network, r.Span, strings.TrimSpace(r.Layout+" "+r.Query), r.RabbitMQ, r.Seed)
	s := r.Start
	row("start", "all in sync after %.1f s (%.0f agents/s); %d calls, %d deliveries", s.InSync, float64(r.Agents)/s.InSync, s.Calls, s.Deliveries)
	row("  broker, per agent", "%.1f ms of CPU, %.0f KiB, %.2f bindings, %.2f channels", s.BrokerCPUPerAgent, float64(s.BrokerBytes)/1024, s.Bindings, s.Channels)
	row("  agent with switch", "%.1f ms of CPU, %.2f MiB of heap and stacks, %.2f MiB resident, %.1f goroutines", s.FleetCPUPerAgent, mib(s.HeapPerAgent), mib(s.ResidentPerAgent), s.GoroutinesPerAgent)
	if r.Rest.Seconds > 0 {
		row("rest", "agent with switch %.3f ms of CPU a second, broker %.3f", r.Rest.FleetCPUPerAgent, r.Rest.BrokerCPUPerAgent)
	}
	if c := r.Changes; c.Count > 0 {
		row("changes", "%d (%s), %.1f messages to all a second", c.Count, counted(c.By), float64(c.Pushes)/c.Seconds)
		row("  cost", "%s", c.Cost)
		for _, kind := range sortedNames(c.Times) {
			row("  "+kind+" to flow", "%s", c.Times[kind])
		}
		row("  change to flow", "%s", c.All)
		row("  beside faults", "%s", c.Disturbed)
		row("  to all, confirmed", "%s", c.Confirm)
		row("  not seen", "%d", c.Unseen)
		row("  queues", "%d with %d messages, the longest has %d", c.Depth.Queues, c.Depth.Messages, c.Depth.Longest)
	}
	for _, s := range r.Storms {
		s.write(row, r.Agents)
	}
	row("flows", "%d on %d hosts compared with a fresh start in %.0f s: %d wrong flows on %d hosts", r.Flows.Flows, r.Flows.Hosts, r.Flows.Seconds, r.Flows.Wrong, r.Flows.Where)
	for _, line := range r.Flows.Samples {
		row("", "%s", line)
	}
	row("run", "%.0f s", r.Seconds)
	return t.Flush()
}

// Faults are what must not be after a run: wrong flows, and what grew in a storm.
func (r *Result) Faults() error {
	var errs []error
	if r.Flows.Wrong > 0 {
		errs = append(errs, fmt.Errorf("%d wrong flows on %d hosts", r.Flows.Wrong, r.Flows.Where))
	}
	for _, s := range r.Storms {
		for _, what := range s.Grown {
			errs = append(errs, fmt.Errorf("storm %s: grown: %s", s.Name, what))
		}
	}
	return errors.Join(errs...)
}

// write prints how a storm went.
func (s *Storm) write(row func(what, format string, args ...any), agents int) {
	row("storm: "+s.Name, "all in sync after %.1f s, %.1f s after its end; %s", s.InSync, max(0, s.InSync-s.Lasted), s.What)
	row("  cost", "%s", s.Cost)
	row("  calls", "%d, %.1f an agent, at most %d in a second: %s", s.Calls, float64(s.Calls)/float64(agents), s.Busiest, sparkline(s.Series))
	if s.Boots != nil {
		for _, p := range s.Boots.Phases {
			row("  "+p.Name, "%.2f boots a second for %.0f s; to ACTIVE %s; %d not ACTIVE and %d messages waiting at the end; broker %.2f cores", p.Rate, p.Seconds, p.ToActive, p.Waiting, p.Depth.Messages,
				p.BrokerSeconds/p.Cost.Seconds)
		}
	}
	row("  broker", "%.0f MiB before, %.0f at most, %.0f after; %d queues with a consumer before, %d after, %d of nobody", mib(s.Before.BrokerBytes), mib(s.Peak), mib(s.After.BrokerBytes),
		s.Before.Depth.Consumed, s.After.Depth.Consumed, s.After.Depth.Queues-s.After.Depth.Consumed)
	row("  agent with switch", "%.2f MiB of heap and stacks before, %.2f after; %.1f goroutines before, %.1f after", mib(s.Before.Heap), mib(s.After.Heap), s.Before.Goroutines, s.After.Goroutines)
	what := "nothing"
	if len(s.Grown) > 0 {
		what = strings.Join(s.Grown, ", ")
	}
	row("  grown", "%s", what)
}

// sparkline draws the calls of each second, at most 60 of them; of a longer time each stroke is the most of several seconds.
func sparkline(series []Second) string {
	const strokes, width = "▁▂▃▄▅▆▇█", 60
	most, each := busiest(series), max(1, (len(series)+width-1)/width)
	var b strings.Builder
	for part := range slices.Chunk(series, each) {
		level := 0
		if most > 0 {
			level = int(busiest(part) * 7 / most)
		}
		b.WriteRune([]rune(strokes)[level])
	}
	return b.String()
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return line
}
