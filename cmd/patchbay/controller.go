// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"log/slog"
	"net"
	"strconv"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/options"
)

// holdController keeps the address at which bridges look for their controller. The rows name it, as the Python agent's do, but
// nobody is needed there: bridges are programmed by their management sockets, which only root can open. At the address anybody
// could listen who has a process on the host, and would be handed the bridges. So it is taken, and callers are hung up on.
// Wait returns when ctx has ended.
func holdController(ctx context.Context, o *options.Options, log *slog.Logger) (wait func()) {
	addr := net.JoinHostPort(o.OVS.OFListenAddress, strconv.Itoa(o.OVS.OFListenPort))
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		log.Warn("the address at which bridges look for their controller cannot be held", "addr", addr, "err", err)
		return func() {}
	}
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer stop()
		for ctx.Err() == nil {
			conn, err := l.Accept()
			if err != nil {
				// Out of file descriptors, if it has not been closed.
				pause(ctx, time.Second)
				continue
			}
			_ = conn.Close()
		}
	}()
	return func() { <-done }
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
