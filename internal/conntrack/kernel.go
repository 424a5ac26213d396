// SPDX-License-Identifier: Apache-2.0

package conntrack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
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
	s, err := openNetlink(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing revoked connections of zone %d: %w", zone, err)
	}
	defer s.close()
	requests, _, err := s.list(zone, revokedMark, nil)
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
	s, err := openNetlink(ctx)
	if err != nil {
		return 0, fmt.Errorf("releasing connections of zone %d: %w", zone, err)
	}
	defer s.close()
	requests := make([][]byte, 0, len(connections))
	for _, c := range connections {
		if m, _, ok := nextMessage([]byte(c.raw)); ok {
			if raw, ok := parseConnection(m.payload); ok {
				requests = append(requests, unmarkRequest(raw))
			}
		}
	}
	n, err := s.change(requests)
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
	s, err := openNetlink(ctx)
	if err != nil {
		return 0, err
	}
	defer s.close()
	removed := 0
	for range maxPasses {
		requests, more, err := s.list(zone, mark, match)
		if err != nil {
			return removed, err
		}
		n, err := s.change(requests)
		removed += n
		if err != nil || !more || n == 0 {
			return removed, err
		}
	}
	return removed, nil
}

// netlink is one socket of the kernel's conntrack. As a file it has deadlines.
type netlink struct {
	ctx  context.Context //nolint:containedctx // lives as long as one call of the Remover
	file *os.File
	buf  []byte
	seq  uint32
	stop func() bool
}

func openNetlink(ctx context.Context) (*netlink, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("opening netlink: %w", err)
	}
	file := os.NewFile(uintptr(fd), "netlink")
	// Larger than the 32 KiB that the kernel puts into one message of a dump.
	s := &netlink{ctx: ctx, file: file, buf: make([]byte, 64<<10)}
	s.stop = context.AfterFunc(ctx, func() { _ = file.SetDeadline(time.Unix(1, 0)) })
	return s, nil
}

func (s *netlink) close() {
	s.stop()
	_ = s.file.Close()
}

// list returns requests to delete the connections of the zone, at most maxHeld; more says that there are more. With a
// mark, only those that have it; with match, only those that do.
func (s *netlink) list(zone uint16, mark uint32, match func(Connection) bool) (requests [][]byte, more bool, err error) {
	// Kernels from 6.8 on send only the zone asked for, others all zones.
	if err := s.send(listRequest(s.nextSeq(), zone, mark)); err != nil {
		return nil, false, err
	}
	for done := false; !done; {
		msgs, err := s.receive()
		if err != nil {
			return nil, false, err
		}
		for done = false; !done; {
			var m message
			var ok bool
			if m, msgs, ok = nextMessage(msgs); !ok {
				break
			}
			if m.seq != s.seq {
				continue
			}
			switch m.kind {
			case unix.NLMSG_DONE, unix.NLMSG_ERROR:
				if err := m.errno(); err != nil {
					return nil, false, fmt.Errorf("listing connections: %w", err)
				}
				done = true
			case kindNew:
				c, ok := parseConnection(m.payload)
				switch {
				case !ok || c.zone != zone || c.mark&mark != mark:
				case len(requests) == maxHeld:
					more = true
				default:
					requests = appendMatching(requests, deleteRequest(c), match)
				}
			}
		}
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
func (s *netlink) change(requests [][]byte) (int, error) {
	removed := 0
	for len(requests) > 0 {
		n := min(batch, len(requests))
		first := s.seq + 1
		var packet []byte
		for _, r := range requests[:n] {
			setSeq(r, s.nextSeq())
			packet = append(packet, r...)
		}
		requests = requests[n:]
		if err := s.send(packet); err != nil {
			return removed, err
		}
		for waiting := n; waiting > 0; {
			msgs, err := s.receive()
			if err != nil {
				return removed, err
			}
			for {
				var m message
				var ok bool
				if m, msgs, ok = nextMessage(msgs); !ok {
					break
				}
				if m.kind != unix.NLMSG_ERROR || m.seq-first >= uint32(n) {
					continue
				}
				waiting--
				switch err := m.errno(); {
				case err == nil:
					removed++
				case errors.Is(err, syscall.ENOENT): // it has ended by itself, or another took its place
				default:
					return removed, fmt.Errorf("changing a connection: %w", err)
				}
			}
		}
	}
	return removed, nil
}

func (s *netlink) nextSeq() uint32 {
	s.seq++
	return s.seq
}

func (s *netlink) send(packet []byte) error {
	if err := s.extend(); err != nil {
		return err
	}
	if _, err := s.file.Write(packet); err != nil {
		return s.fail("writing to netlink", err)
	}
	return nil
}

// receive returns one packet; it is valid until the next.
func (s *netlink) receive() ([]byte, error) {
	if err := s.extend(); err != nil {
		return nil, err
	}
	n, err := s.file.Read(s.buf)
	if err != nil {
		return nil, s.fail("reading from netlink", err)
	}
	return s.buf[:n], nil
}

func (s *netlink) extend() error {
	if err := s.file.SetDeadline(time.Now().Add(callTimeout)); err != nil {
		return fmt.Errorf("setting a deadline: %w", err)
	}
	// Ended in between: the deadline in the past that AfterFunc set may have been overwritten just now.
	return s.ctx.Err()
}

func (s *netlink) fail(what string, err error) error {
	if s.ctx.Err() != nil {
		err = s.ctx.Err()
	}
	return fmt.Errorf("%s: %w", what, err)
}
