// SPDX-License-Identifier: Apache-2.0

//go:build integration

package fleet

import (
	"context"
	"strings"
	"testing"
	"time"
)

// A few agents on a real broker that is killed, with changes before and after.
func TestFleet(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	f, err := New(ctx, Config{Agents: 6, Span: 3, Rate: 10, For: 3 * time.Second, Seed: 1, Storms: []string{"broker", "restart"}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := f.Close(context.WithoutCancel(ctx)); err != nil {
			t.Error(err)
		}
	}()
	r, err := f.Run(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if r.Flows.Wrong != 0 || r.Flows.Hosts != 6 {
		t.Errorf("%d wrong flows on %d of %d hosts:\n%s", r.Flows.Wrong, r.Flows.Where, r.Flows.Hosts, strings.Join(r.Flows.Samples, "\n"))
	}
	c := &r.Changes
	for what, n := range map[string]float64{
		"deliveries at the start": float64(r.Start.Deliveries), "CPU of the broker": r.Start.BrokerSeconds, "messages to all": float64(c.Pushes), "changes": float64(c.Count),
		"changes that were seen": float64(c.All.N + c.Disturbed.N), "storms": float64(len(r.Storms)),
	} {
		if n <= 0 {
			t.Errorf("not measured: %s", what)
		}
	}
	if c.Pushes < 10 || len(r.Storms) != 2 {
		t.Errorf("%d messages and %d storms", c.Pushes, len(r.Storms))
	}
}
