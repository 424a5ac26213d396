// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/inspect"
)

// countersTime bounds how long who asks about ports waits for their counters.
const countersTime = 2 * time.Second

// readCounters reads the interfaces' counters, beside the loop. Without an answer there are none: nobody is kept from looking at
// ports because the database is away.
func readCounters(ctx context.Context, read func(context.Context) (map[string]map[string]int, error)) func(name string) *inspect.Counters {
	if read == nil {
		return func(string) *inspect.Counters { return nil }
	}
	ctx, cancel := context.WithTimeout(ctx, countersTime)
	defer cancel()
	all, _ := read(ctx)
	return func(name string) *inspect.Counters {
		s := all[name]
		if s == nil {
			return nil
		}
		return &inspect.Counters{
			RxPackets: int64(s["rx_packets"]), RxBytes: int64(s["rx_bytes"]), RxDropped: int64(s["rx_dropped"]),
			TxPackets: int64(s["tx_packets"]), TxBytes: int64(s["tx_bytes"]), TxDropped: int64(s["tx_dropped"]),
		}
	}
}
