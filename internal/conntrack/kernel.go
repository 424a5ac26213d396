// SPDX-License-Identifier: Apache-2.0

package conntrack

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/patchbay-sdn/patchbay/internal/netlink"
)

// kernel removes connections of the kernel's table, in the network namespace of the process. What is to be removed is
// listed first, marks compared by the kernel, and then removed one by one, by what the kernel itself had told: addresses
// (without looking into them, so every protocol works), zone and identity. Removal by a filter in one request would be
// shorter, but kernels before 6.8 do not know zones there, and would remove the marked connections of all zones.
type kernel struct{}

func (k kernel) FlushZone(ctx context.Context, zone uint16) error {
	if _, err := k.remove(ctx, selection{zones: []uint16{zone}}); err != nil {
		return fmt.Errorf("flushing zone %d: %w", zone, err)
	}
	return nil
}

func (k kernel) Marked(ctx context.Context, zone uint16) ([]Connection, error) {
	s, err := open(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing revoked connections of zone %d: %w", zone, err)
	}
	defer s.Close()
	requests, _, err := list(s, selection{zones: []uint16{zone}, mark: revokedMark})
	if err != nil {
		return nil, fmt.Errorf("listing revoked connections of zone %d: %w", zone, err)
	}
	list := make([]Connection, 0, len(requests))
	for _, r := range requests {
		if c, ok := describe(r); ok {
			list = append(list, c)
		}
	}
	return list, nil
}

func (k kernel) Release(ctx context.Context, zone uint16, connections []Connection) (int, error) {
	s, err := open(ctx)
	if err != nil {
		return 0, fmt.Errorf("releasing connections of zone %d: %w", zone, err)
	}
	defer s.Close()
	requests := make([][]byte, 0, len(connections))
	for _, c := range connections {
		if m, _, ok := netlink.Next([]byte(c.raw)); ok {
			if raw, ok := parseConnection(m.Payload); ok {
				requests = append(requests, unmarkRequest(raw))
			}
		}
	}
	n, err := change(s, requests)
	if err != nil {
		err = fmt.Errorf("releasing connections of zone %d: %w", zone, err)
	}
	return n, err
}

// RemoveFromKernel removes the connections of some zones of the kernel's table that match, whatever the datapath of bridges is: iptables has its
// own there. The kernel's table is listed once for all zones. It returns how many connections there were.
func RemoveFromKernel(ctx context.Context, zones []uint16, match func(zone uint16, c Connection) bool) (int, error) {
	n, err := kernel{}.remove(ctx, selection{zones: zones, match: match})
	if err != nil {
		err = fmt.Errorf("removing connections of %d zones: %w", len(zones), err)
	}
	return n, err
}

// selection says which connections are meant: those of the zones that have the mark and match.
type selection struct {
	zones []uint16
	mark  uint32                               // 0: any
	match func(zone uint16, c Connection) bool // nil: all
}

// remove removes the selected connections.
func (k kernel) remove(ctx context.Context, which selection) (int, error) {
	s, err := open(ctx)
	if err != nil {
		return 0, err
	}
	defer s.Close()
	removed := 0
	for range maxPasses {
		requests, more, err := list(s, which)
		if err != nil {
			return removed, err
		}
		n, err := change(s, requests)
		removed += n
		if err != nil || !more || n == 0 {
			return removed, err
		}
	}
	return removed, nil
}

// list returns requests to delete the selected connections, at most maxHeld; more says that there are more.
func list(s *netlink.Socket, which selection) (requests [][]byte, more bool, err error) {
	zones := map[uint16]bool{}
	for _, z := range which.zones {
		zones[z] = true
	}
	err = s.Dump(listRequest(which.zones, which.mark), func(m netlink.Message) {
		if m.Kind != kindNew {
			return
		}
		c, ok := parseConnection(m.Payload)
		switch {
		case !ok || !zones[c.zone] || c.mark&which.mark != which.mark:
		case len(requests) == maxHeld:
			more = true
		default:
			requests = which.appendMatching(requests, c)
		}
	})
	if err != nil {
		return nil, false, fmt.Errorf("listing connections: %w", err)
	}
	return requests, more, nil
}

// appendMatching adds the request to delete a connection, if it matches.
func (w *selection) appendMatching(requests [][]byte, c connection) [][]byte {
	request := deleteRequest(c)
	if w.match != nil {
		if about, ok := describe(request); !ok || !w.match(c.zone, about) {
			return requests
		}
	}
	return append(requests, request)
}

// change sends requests to delete or change connections and returns how many of them were still there.
func change(s *netlink.Socket, requests [][]byte) (n int, err error) {
	err = s.Change(requests, func(_ int, err error) error {
		switch {
		case err == nil:
			n++
		case !errors.Is(err, syscall.ENOENT): // else it has ended by itself, or another took its place
			return fmt.Errorf("changing a connection: %w", err)
		}
		return nil
	})
	return n, err
}

func open(ctx context.Context) (*netlink.Socket, error) {
	return netlink.Open(ctx, unix.NETLINK_NETFILTER, 0)
}
