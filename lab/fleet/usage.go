// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/patchbay-sdn/patchbay/lab/sim/region"
)

// usage is what the broker and this process have used so far.
type usage struct {
	mu     sync.Mutex
	pid    int
	before time.Duration // of brokers that were killed
	last   time.Duration // of this one, when it was looked at last
	series []Second
	peak   int64 // of the broker's memory
}

// Second is what happened in one second of a run.
type Second struct {
	At            float64 `json:"at"` // seconds since the start
	Calls         int64   `json:"calls"`
	Deliveries    int64   `json:"deliveries"`
	BrokerSeconds float64 `json:"broker_cpu"`
	FleetSeconds  float64 `json:"fleet_cpu"`
	BrokerBytes   int64   `json:"broker_bytes"`
	FleetBytes    int64   `json:"fleet_bytes"`
}

// follow has another process be the broker.
func (u *usage) follow(pid int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.before, u.last, u.pid = u.before+u.last, 0, pid
}

// broker is the CPU time of the broker, and its memory. While there is none, it is that of the last look.
func (u *usage) broker() (time.Duration, int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if d, ok := cpuOf(u.pid); ok {
		u.last = max(d, u.last)
	}
	rss := residentOf(u.pid)
	u.peak = max(u.peak, rss)
	return u.before + u.last, rss
}

// takePeak is the broker's largest memory since it was called last.
func (u *usage) takePeak() int64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	p := u.peak
	u.peak = 0
	return p
}

// ticks a second of the kernel's accounting, on every Linux that Go runs on.
const ticks = 100

// cpuOf is the CPU time of a process.
func cpuOf(pid int) (time.Duration, bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, false
	}
	// The name in parentheses may hold blanks.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 13 {
		return 0, false
	}
	user, _ := strconv.ParseInt(fields[11], 10, 64)
	system, _ := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * time.Second / ticks, true
}

// residentOf is the memory of a process, in bytes.
func residentOf(pid int) int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(text))
	if len(fields) < 2 {
		return 0
	}
	pages, _ := strconv.ParseInt(fields[1], 10, 64)
	return pages * int64(os.Getpagesize())
}

// ownCPU is the CPU time of this process: all agents with their switches, and the server.
func ownCPU() time.Duration {
	var r syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &r) != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// reading is a moment of a run.
type reading struct {
	at                               time.Time
	broker, fleet                    time.Duration
	brokerBytes                      int64
	calls, failed, deliveries, warns int64
}

func (u *usage) now(c *counts) reading {
	cpu, rss := u.broker()
	return reading{
		at: time.Now(), broker: cpu, fleet: ownCPU(), brokerBytes: rss, calls: c.calls.Load(), failed: c.failed.Load(),
		deliveries: c.deliveries.Load(), warns: c.warnings.Load() + c.errors.Load(),
	}
}

// since is what was used between two moments.
func (r reading) since(before reading) Cost {
	d := r.at.Sub(before.at).Seconds()
	return Cost{
		Seconds: d, BrokerSeconds: (r.broker - before.broker).Seconds(), FleetSeconds: (r.fleet - before.fleet).Seconds(),
		Calls: r.calls - before.calls, FailedCalls: r.failed - before.failed, Deliveries: r.deliveries - before.deliveries, Warnings: r.warns - before.warns,
	}
}

// sampling notes what happens until stop is called.
func (f *Fleet) sampling(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() { f.sample(ctx) })
	return func() { cancel(); done.Wait() }
}

// sample notes every second what happens, until ctx ends.
func (f *Fleet) sample(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for before := f.usage.now(&f.counts); ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := f.usage.now(&f.counts)
		c := now.since(before)
		before = now
		f.usage.mu.Lock()
		f.usage.series = append(f.usage.series, Second{
			At: now.at.Sub(f.began).Seconds(), Calls: c.Calls, Deliveries: c.Deliveries, BrokerSeconds: c.BrokerSeconds, FleetSeconds: c.FleetSeconds,
			BrokerBytes: now.brokerBytes, FleetBytes: residentOf(os.Getpid()),
		})
		f.usage.mu.Unlock()
	}
}

// seriesSince is what happened in each second since a moment, counted from it.
func (f *Fleet) seriesSince(since time.Time) (out []Second) {
	f.usage.mu.Lock()
	defer f.usage.mu.Unlock()
	began := since.Sub(f.began).Seconds()
	for _, s := range f.usage.series {
		if s.At > began {
			s.At -= began
			out = append(out, s)
		}
	}
	return out
}

// busiest is the largest number of calls in one second.
func busiest(series []Second) (most int64) {
	for _, s := range series {
		most = max(most, s.Calls)
	}
	return most
}

// memory is what this process has taken, in bytes, after a collection of garbage.
func memory() (heap, resident int64) {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse), residentOf(os.Getpid()) //nolint:gosec // both are far below
}

// depth is how many messages wait for somebody in the broker's queues: in all, in the longest, and those that agents are sent. Those of agents that crashed
// wait for nobody.
func (f *Fleet) depth(ctx context.Context) (Depth, error) {
	queues, err := f.broker.Queues(ctx)
	d := Depth{Queues: len(queues)}
	for _, q := range queues {
		if q.Consumers == 0 {
			continue
		}
		d.Consumed++
		if q.Type == "stream" {
			continue // it keeps what all have read
		}
		d.Messages, d.Longest = d.Messages+q.Messages, max(d.Longest, q.Messages)
		if !isOfCalls(q.Name) {
			d.Sent += q.Messages
		}
	}
	return d, err
}

// isOfCalls says whether a queue has calls of agents or the answers to them. Thousands of agents report their state at any time: such queues are never empty.
func isOfCalls(queue string) bool {
	topic, _, _ := strings.Cut(queue, ".")
	return strings.HasPrefix(queue, "reply_") || slices.Contains(region.Topics(), topic)
}
