// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-sdn/patchbay/internal/inspect"
)

// Counters come from the database when somebody asks about ports. A database that refuses or says nothing costs a moment
// and the counters, not the answer.
func TestCounters(t *testing.T) {
	for name, statistics := range map[string]func(context.Context) (map[string]map[string]int, error){
		"answers": func(context.Context) (map[string]map[string]int, error) {
			return map[string]map[string]int{"p0": {"rx_packets": 1, "rx_bytes": 2, "rx_dropped": 3, "tx_packets": 4, "tx_bytes": 5, "tx_dropped": 6, "collisions": 7}}, nil
		},
		"refuses": func(context.Context) (map[string]map[string]int, error) { return nil, errors.New("no") },
		"is silent": func(ctx context.Context) (map[string]map[string]int, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		},
		"is not there": nil,
	} {
		t.Run("the database "+name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, sw, batch := filtering(t, &cloud{}, nil, 2)
				a.cfg.Statistics = statistics
				running(t, a)
				sw.changes <- batch
				wait(time.Second)
				start := time.Now()
				ports, err := a.Ports(t.Context())
				if err != nil || len(ports) != 2 || time.Since(start) > countersTime {
					t.Fatalf("%d ports after %v, %v", len(ports), time.Since(start), err)
				}
				var want *inspect.Counters
				if name == "answers" {
					want = &inspect.Counters{RxPackets: 1, RxBytes: 2, RxDropped: 3, TxPackets: 4, TxBytes: 5, TxDropped: 6}
				}
				if diff := cmp.Diff([]*inspect.Counters{want, nil}, []*inspect.Counters{ports[0].Counters, ports[1].Counters}); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}
