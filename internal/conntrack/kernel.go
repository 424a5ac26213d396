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
	if _, err := k.remove(ctx, zone, 0, nil); err != nil {
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
	requests, _, err := list(s, zone, revokedMark, nil)
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

// RemoveFromKernel removes the connections of a zone of the kernel's table that match, whatever the datapath of bridges is: iptables has its own
// there. It returns how many there were.
func RemoveFromKernel(ctx context.Context, zone uint16, match func(Connection) bool) (int, error) {
	n, err := kernel{}.remove(ctx, zone, 0, match)
	if err != nil {
		err = fmt.Errorf("removing connections of zone %d: %w", zone, err)
	}
	return n, err
}

// remove removes the connections of a zone that have a mark and match; 0 and nil: all of them.
func (k kernel) remove(ctx context.Context, zone uint16, mark uint32, match func(Connection) bool) (int, error) {
	s, err := open(ctx)
	if err != nil {
		return 0, err
	}
	defer s.Close()
	removed := 0
	for range maxPasses {
		requests, more, err := list(s, zone, mark, match)
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

// list returns requests to delete the connections of the zone, at most maxHeld; more says that there are more. With a
// mark, only those that have it; with match, only those that do.
func list(s *netlink.Socket, zone uint16, mark uint32, match func(Connection) bool) (requests [][]byte, more bool, err error) {
	// Kernels from 6.8 on send only the zone asked for, others all zones.
	err = s.Dump(listRequest(zone, mark), func(m netlink.Message) {
		if m.Kind != kindNew {
			return
		}
		c, ok := parseConnection(m.Payload)
		switch {
		case !ok || c.zone != zone || c.mark&mark != mark:
		case len(requests) == maxHeld:
			more = true
		default:
			requests = appendMatching(requests, deleteRequest(c), match)
		}
	})
	if err != nil {
		return nil, false, fmt.Errorf("listing connections: %w", err)
	}
	return requests, more, nil
}

// appendMatching adds a request, if what it is about matches.
func appendMatching(requests [][]byte, request []byte, match func(Connection) bool) [][]byte {
	if match != nil {
		if c, ok := describe(request); !ok || !match(c) {
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
