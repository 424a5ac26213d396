// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/options"
)

// holdController keeps the address at which bridges look for their controller. The rows name it, as the Python agent's do, but
// nobody is needed there: bridges are programmed by their management sockets, which only root can open. At the address anybody
// could listen who has a process on the host, and would be handed the bridges. So it is taken, and callers are hung up on.
// Inherited are listeners of the service manager, who has the address also while no agent runs; all are served.
// Wait returns when ctx has ended.
func holdController(ctx context.Context, o *options.Options, inherited []net.Listener, log *slog.Logger) (wait func()) {
	addr, _ := netip.ParseAddr(o.OVS.OFListenAddress) // the option is an address
	want := netip.AddrPortFrom(addr, uint16(o.OVS.OFListenPort))
	held, ours := false, inherited
	for _, l := range inherited {
		if listensAt(l, want) {
			held = true
			continue
		}
		log.Warn("the socket from systemd is not of_listen_address: set ListenStream of patchbay-controller.socket",
			"listens", l.Addr().String(), "controller", want.String())
	}
	if !held {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", want.String())
		if err != nil {
			log.Warn("of_listen_address not opened", "addr", want.String(), "err", err)
		} else {
			ours = append(ours, l)
		}
	}
	var wg sync.WaitGroup
	for _, l := range ours {
		wg.Go(func() { hangUp(ctx, l) })
	}
	return wg.Wait
}

func listensAt(l net.Listener, want netip.AddrPort) bool {
	a, ok := l.Addr().(*net.TCPAddr)
	return ok && netip.AddrPortFrom(a.AddrPort().Addr().Unmap(), a.AddrPort().Port()) == want
}

// hangUp closes every connection at once, until ctx ends.
func hangUp(ctx context.Context, l net.Listener) {
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
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
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
