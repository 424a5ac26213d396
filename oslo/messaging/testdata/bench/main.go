// SPDX-License-Identifier: Apache-2.0

// Command bench is the Go side of the throughput comparison: an echo server, or a client that makes calls and prints
// the seconds and CPU seconds they took. It is a program of its own so that its CPU time is its own, and so that it is
// compiled as users compile it.
//
//	bench server URL TOPIC
//	bench client URL TOPIC N WORKERS
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

func main() {
	if err := run(os.Args[1], os.Args[2], os.Args[3], os.Args[4:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(mode, url, topic string, rest []string) error {
	u, err := messaging.ParseURL(url)
	if err != nil {
		return err
	}
	c, err := messaging.Open(messaging.Config{
		URL: u, Exchange: "neutron", Rabbit: messaging.DefaultRabbit(), Program: "bench", Host: "bench-" + mode,
		Context: func(context.Context) map[string]any {
			return map[string]any{"is_admin": true, "request_id": "req-x"}
		},
	})
	if err != nil {
		return err
	}
	ctx := context.Background()
	defer c.Close(ctx)
	if mode == "server" {
		if err := c.Serve(ctx, messaging.Service{Topics: []string{topic}, Shared: true, Concurrency: 16, Handler: echo}); err != nil {
			return err
		}
		fmt.Println(`"ready"`)
		_, err := io.Copy(io.Discard, os.Stdin)
		return err
	}
	n, _ := strconv.Atoi(rest[0])
	workers, _ := strconv.Atoi(rest[1])
	return client(ctx, c, topic, int64(n), workers)
}

func echo(_ context.Context, m *messaging.Message) (any, error) {
	var args struct{ Value json.RawMessage }
	err := json.Unmarshal(m.Args, &args)
	return args.Value, err
}

type payload struct {
	Port string `json:"port"`
	List []int  `json:"list"`
}

func client(ctx context.Context, c *messaging.Client, topic string, n int64, workers int) error {
	value := payload{Port: strings.Repeat("x", 200)}
	for i := range 20 {
		value.List = append(value.List, i)
	}
	to := messaging.Target{Topic: topic, Version: "1.0"}
	call := func() error {
		var got payload
		return c.Call(ctx, to, "echo", map[string]any{"value": value}, &got)
	}
	if err := call(); err != nil {
		return err
	}
	var left atomic.Int64
	left.Store(n)
	var wg sync.WaitGroup
	var failed atomic.Pointer[error]
	began, cpu := time.Now(), cpuSeconds()
	for range workers {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				if err := call(); err != nil {
					failed.Store(&err)
					return
				}
			}
		})
	}
	wg.Wait()
	if e := failed.Load(); e != nil {
		return *e
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]float64{
		"seconds": time.Since(began).Seconds(), "cpu": cpuSeconds() - cpu,
	})
}

func cpuSeconds() float64 {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}
