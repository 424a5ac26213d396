// SPDX-License-Identifier: Apache-2.0

// Package netlink speaks with the kernel: a socket with deadlines, and messages as bytes.
//
// In: requests, made with [Request], [AppendAttr] and [Finish]. Out: packets of messages, cut by [Next] and [Attributes]. What messages mean
// their users know.
package netlink

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// callTimeout bounds one request to the kernel.
	callTimeout = 15 * time.Second
	// batch is how many requests are on their way at once.
	batch = 32
)

// Socket is one netlink socket in the network namespace of the thread. As a file it has deadlines. It lives as long as one call of its user.
type Socket struct {
	ctx  context.Context //nolint:containedctx // lives as long as one call
	file *os.File
	buf  []byte
	seq  uint32
	stop func() bool
}

// Open opens a socket of a protocol, such as NETLINK_ROUTE, which hears of groups of changes.
func Open(ctx context.Context, protocol int, groups uint32) (*Socket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, protocol)
	if err != nil {
		return nil, fmt.Errorf("opening netlink: %w", err)
	}
	if groups != 0 {
		if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups}); err != nil {
			_ = unix.Close(fd)
			return nil, fmt.Errorf("binding netlink: %w", err)
		}
	}
	file := os.NewFile(uintptr(fd), "netlink")
	// Larger than the 32 KiB that the kernel puts into one message of a dump.
	s := &Socket{ctx: ctx, file: file, buf: make([]byte, 64<<10)}
	s.stop = context.AfterFunc(ctx, func() { _ = file.SetDeadline(time.Unix(1, 0)) })
	return s, nil
}

// Close closes the socket.
func (s *Socket) Close() {
	s.stop()
	_ = s.file.Close()
}

// Dump sends a request for a list, and calls take for each message of the list. It ends with the list, or with the first error.
func (s *Socket) Dump(request []byte, take func(Message)) error {
	s.seq++
	SetSeq(request, s.seq)
	if err := s.send(request); err != nil {
		return err
	}
	for {
		packet, err := s.receive()
		if err != nil {
			return err
		}
		for m := range messages(packet) {
			switch {
			case m.Seq != s.seq:
			case m.Kind == unix.NLMSG_DONE || m.Kind == unix.NLMSG_ERROR:
				return m.Errno()
			default:
				take(m)
			}
		}
	}
}

// Change sends requests that are each acknowledged, and calls done with the outcome of each. It ends with the first error that done returns.
func (s *Socket) Change(requests [][]byte, done func(i int, err error) error) error {
	for from := 0; from < len(requests); from += batch {
		sent := requests[from:min(from+batch, len(requests))]
		first := s.seq + 1
		var packet []byte
		for _, r := range sent {
			s.seq++
			SetSeq(r, s.seq)
			packet = append(packet, r...)
		}
		if err := s.send(packet); err != nil {
			return err
		}
		for waiting := len(sent); waiting > 0; {
			packet, err := s.receive()
			if err != nil {
				return err
			}
			for m := range messages(packet) {
				i := m.Seq - first
				if m.Kind != unix.NLMSG_ERROR || i >= uint32(len(sent)) {
					continue
				}
				waiting--
				if err := done(from+int(i), m.Errno()); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// Follow calls take for each message that the kernel sends by itself, until the context ends or the socket fails. Lost is called when the kernel has
// dropped messages, because nobody read them in time.
func (s *Socket) Follow(take func(Message), lost func()) error {
	for {
		if err := s.file.SetReadDeadline(time.Time{}); err != nil {
			return fmt.Errorf("setting a deadline: %w", err)
		}
		if err := s.ctx.Err(); err != nil {
			return err
		}
		n, err := s.file.Read(s.buf)
		if errors.Is(err, syscall.ENOBUFS) {
			lost()
			continue
		}
		if err != nil {
			return s.fail("reading from netlink", err)
		}
		for m := range messages(s.buf[:n]) {
			take(m)
		}
	}
}

func (s *Socket) send(packet []byte) error {
	if err := s.extend(); err != nil {
		return err
	}
	if _, err := s.file.Write(packet); err != nil {
		return s.fail("writing to netlink", err)
	}
	return nil
}

// receive returns one packet; it is valid until the next.
func (s *Socket) receive() ([]byte, error) {
	if err := s.extend(); err != nil {
		return nil, err
	}
	n, err := s.file.Read(s.buf)
	if err != nil {
		return nil, s.fail("reading from netlink", err)
	}
	return s.buf[:n], nil
}

func (s *Socket) extend() error {
	if err := s.file.SetDeadline(time.Now().Add(callTimeout)); err != nil {
		return fmt.Errorf("setting a deadline: %w", err)
	}
	// Ended in between: the deadline in the past that AfterFunc set may have been overwritten just now.
	return s.ctx.Err()
}

func (s *Socket) fail(what string, err error) error {
	if s.ctx.Err() != nil {
		err = s.ctx.Err()
	}
	return fmt.Errorf("%s: %w", what, err)
}
