// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"fmt"
	"runtime"
	"time"
)

// held is what agents and broker hold, as soon as no message to an agent waits any more.
func (f *Fleet) held(ctx context.Context, part string) (Held, error) {
	began, n := time.Now(), int64(f.cfg.Agents)
	for {
		depth, err := f.depth(ctx)
		if err != nil {
			return Held{}, err
		}
		if depth.Sent == 0 {
			heap, resident := memory()
			_, rss := f.usage.broker()
			return Held{Heap: heap / n, Resident: resident / n, Goroutines: float64(runtime.NumGoroutine()) / float64(n), BrokerBytes: rss, Depth: depth}, nil
		}
		if time.Since(began) > f.cfg.Settle {
			return Held{}, fmt.Errorf("%d messages to agents wait in the broker's queues after %s", depth.Sent, f.cfg.Settle)
		}
		f.tell(part, fmt.Sprintf("%d messages to agents wait", depth.Sent), false, time.Since(began))
		if err := pause(ctx, time.Second); err != nil {
			return Held{}, err
		}
	}
}

// What is there after a storm may be more than before by so much. A few rules and ports more are there, maps keep the room that they needed once, and calls are on their way.
const (
	heapGrowth      = 1.25
	heapSlack       = 64 << 10
	goroutinesSlack = 2
)

// grown names what an agent has more of after a storm than before. The memory of the broker is none of it: its node keeps what a storm needed.
func grown(before, after Held) (list []string) {
	if limit := int64(float64(before.Heap)*heapGrowth) + heapSlack; after.Heap > limit {
		list = append(list, fmt.Sprintf("heap and stacks of an agent from %d to %d KiB", before.Heap>>10, after.Heap>>10))
	}
	if after.Goroutines > before.Goroutines+goroutinesSlack {
		list = append(list, fmt.Sprintf("goroutines of an agent from %.1f to %.1f", before.Goroutines, after.Goroutines))
	}
	if after.Depth.Consumed > before.Depth.Consumed {
		list = append(list, fmt.Sprintf("queues with a consumer from %d to %d", before.Depth.Consumed, after.Depth.Consumed))
	}
	return list
}
