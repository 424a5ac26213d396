// SPDX-License-Identifier: Apache-2.0

//go:build bench

package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/dvr"
	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/qos"
	"github.com/patchbay-sdn/patchbay/internal/trunk"
	"github.com/patchbay-sdn/patchbay/internal/world"
	"github.com/patchbay-sdn/patchbay/lab"
	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

const (
	replayed = 10_000 // pushes
	atOnce   = 50     // of them on their way to the broker
	trickled = 100    // a second, when they come one by one
)

// recorded is a push about a port that is bound and ACTIVE, as neutron-server sent it.
func recorded(t testing.TB) (args, fields map[string]any) {
	t.Helper()
	file, err := os.Open(filepath.Join("..", "internal", "neutron", "testdata", "transcript.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	for s := bufio.NewReader(file); ; {
		line, err := s.ReadBytes('\n')
		if err != nil {
			t.Fatal("the transcript has no push of an ACTIVE port")
		}
		var entry struct {
			Exchange string         `json:"exchange"`
			Message  map[string]any `json:"message"`
		}
		if err := json.Unmarshal(line, &entry); err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(entry.Exchange, "neutron-vo-Port-") {
			continue
		}
		args := entry.Message["args"].(map[string]any)
		object := args["resource_list"].([]any)[0].(map[string]any)
		if object["versioned_object.data"].(map[string]any)["status"] != "ACTIVE" {
			continue
		}
		fields = map[string]any{}
		for k, v := range entry.Message {
			if name, ok := strings.CutPrefix(k, "_context_"); ok {
				fields[name] = v
			}
		}
		return args, fields
	}
}

// pusher sends news about a port of another host.
func (b *bench) pusher(t *testing.T) (send func() error, args map[string]any) {
	t.Helper()
	args, fields := recorded(t)
	url, err := messaging.ParseURL(b.lab.TransportURL())
	if err != nil {
		t.Fatal(err)
	}
	client, err := messaging.Open(messaging.Config{
		URL: url, Exchange: "neutron", Rabbit: messaging.DefaultRabbit(), Program: "bench", Host: "bench",
		Context: func(context.Context) map[string]any { return fields },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close(context.Background()) })
	_, versions, err := neutron.Negotiate(t.Context(), neutron.NewServer(client, "bench"))
	if err != nil {
		t.Fatal(err)
	}
	topic, _ := versions.Topic(neutron.KindPort)
	target := messaging.Target{Topic: topic, Fanout: true, Version: "1.1"}
	return func() error { return client.Cast(t.Context(), target, "push", args) }, args
}

// replay sends many pushes and tells the CPU time that the agent takes for them. They pile up while the agent is held, so that it
// works through them without waiting for the sender. How the Python agent's figure was taken is not known.
func (b *bench) replay(t *testing.T, send func() error) time.Duration {
	t.Helper()
	b.hold(t, true)
	before := cpu(t, b.host)
	var senders sync.WaitGroup
	for range atOnce {
		senders.Go(func() {
			for range replayed / atOnce {
				if err := send(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	senders.Wait()
	b.hold(t, false)
	return b.rest(t) - before
}

// pushes replays news about a port of another host through the broker.
func (b *bench) pushes(t *testing.T) {
	b.use(t, lab.Patchbay)
	send, args := b.pusher(t)
	b.replay(t, send)
	warm := rss(t, b.host)
	each := b.replay(t, send) / replayed
	grown := rss(t, b.host) - warm
	b.table.add(t, row{
		what: "push about a foreign port, agent CPU", python: "1570 µs (earlier run)", patchbay: fmt.Sprintf("%.1f µs", float64(each)/1e3),
		target: "≤ 50 µs", met: each <= 50*time.Microsecond,
	})
	before, tick := cpu(t, b.host), time.NewTicker(time.Second/trickled)
	defer tick.Stop()
	for range 10 * trickled {
		<-tick.C
		if err := send(); err != nil {
			t.Fatal(err)
		}
	}
	each = (b.rest(t) - before) / (10 * trickled)
	b.table.add(t, row{
		what: fmt.Sprintf("the same one by one, %d a second: waking up included", trickled), patchbay: fmt.Sprintf("%.1f µs", float64(each)/1e3), target: "none", met: true,
	})
	// The resident set moves by pages that the collector has not given back yet; the heap itself is looked at below.
	b.table.add(t, row{
		what: fmt.Sprintf("RSS grown by %d such pushes, a push", replayed), python: "20.7 KiB (earlier run)", patchbay: fmt.Sprintf("%d B", max(grown, 0)/replayed),
		target: "≤ 200 B", met: grown/replayed <= 200,
	})
	kept := heapKept(t, args)
	b.table.add(t, row{
		what: "heap kept by a push, after collection", patchbay: fmt.Sprintf("%d B", kept), target: "0 B", met: kept <= 0,
	})
}

// hold stops the agent's process, or lets it go on.
func (b *bench) hold(t *testing.T, on bool) {
	t.Helper()
	signal := syscall.SIGCONT
	if on {
		signal = syscall.SIGSTOP
	}
	_, pid := b.host.Agent()
	if err := syscall.Kill(pid, signal); err != nil {
		t.Fatal(err)
	}
}

// rest waits until the agent has stopped working, and tells its CPU time.
func (b *bench) rest(t *testing.T) time.Duration {
	t.Helper()
	for last := cpu(t, b.host); ; {
		time.Sleep(500 * time.Millisecond)
		now := cpu(t, b.host)
		if now-last < 5*time.Millisecond {
			return now
		}
		last = now
	}
}

// heapKept is how much the heap grows with a push about a foreign port, in bytes.
func heapKept(t testing.TB, args map[string]any) int64 {
	t.Helper()
	wire, err := json.Marshal(args)
	if err != nil {
		t.Fatal(err)
	}
	w := world.New(world.Config{Host: "hv1", IntegrationBridge: "br-int"})
	take := func() {
		decoded, err := neutron.DecodeMessage("neutron-vo-Port-1.7", "push", wire)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Push(decoded.(*neutron.Push), time.Now()); err != nil {
			t.Fatal(err)
		}
		w.Resolve()
	}
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	take()
	before := heap()
	for range replayed {
		take()
	}
	after := heap()
	runtime.KeepAlive(w)
	return max(after-before, 0) / replayed
}

// BenchmarkForeignPush is what the agent's loop does with a push about a port of another host.
func BenchmarkForeignPush(b *testing.B) {
	args, _ := recorded(b)
	wire, err := json.Marshal(args)
	if err != nil {
		b.Fatal(err)
	}
	for name, more := range map[string][]extension.New{"off": nil, "on": {dvr.New, trunk.New, qos.New}} {
		b.Run("extensions "+name, func(b *testing.B) {
			w := world.New(world.Config{Host: "hv1", IntegrationBridge: "br-int"})
			set := extension.Make(w, more)
			b.ReportAllocs()
			for b.Loop() {
				decoded, err := neutron.DecodeMessage("neutron-vo-Port-1.7", "push", wire)
				if err != nil {
					b.Fatal(err)
				}
				push := decoded.(*neutron.Push)
				if err := errors.Join(w.Push(push, time.Now()), set.OnPush(push)); err != nil {
					b.Fatal(err)
				}
				set.Resolve(w.Resolve())
			}
		})
	}
}

// size looks at memory with many ports, and at an agent with nothing to do.
func (b *bench) size(t *testing.T) {
	b.use(t, lab.Patchbay)
	list := b.fill(t, filled)
	if err := b.host.PlugMany(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	b.wait(t, "ACTIVE", list)
	time.Sleep(5 * time.Second)
	idle := time.Minute
	if d, err := time.ParseDuration(os.Getenv("PATCHBAY_BENCH_IDLE")); err == nil {
		idle = d
	}
	logged, used := lines(t, b.host), cpu(t, b.host)
	time.Sleep(idle)
	logged, used = lines(t, b.host)-logged, cpu(t, b.host)-used
	mib := float64(rss(t, b.host)) / (1 << 20)
	b.table.add(t, row{
		what: fmt.Sprintf("RSS with %d ports", filled), python: "304 MiB (earlier run)", patchbay: fmt.Sprintf("%.1f MiB", mib),
		target: "≤ 30 MiB", met: mib <= 30,
	})
	share := 100 * float64(used) / float64(idle)
	b.table.add(t, row{
		what: fmt.Sprintf("idle for %v, CPU", idle), python: "0.3 – 0.4 % (earlier run)", patchbay: fmt.Sprintf("%.3f %%", share),
		target: "≤ 0.05 %", met: share <= 0.05,
	})
	b.table.add(t, row{
		what: fmt.Sprintf("idle for %v, log lines", idle), python: "some every 2 s", patchbay: fmt.Sprint(logged), target: "0", met: logged == 0,
	})
	b.unplug(t, list)
}
