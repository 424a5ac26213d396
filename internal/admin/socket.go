// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/user"
	"strconv"
	"sync"
	"syscall"
	"time"

	stdlog "log" //nolint:depguard // net/http takes no other logger
)

// socketMode lets the owner and the group in, and nobody else.
const socketMode = 0o660

// Listen opens the socket at path. One that a dead agent left there is replaced; one on which somebody answers is not.
// Group, if not empty, is the name or number of the group that may use it.
func Listen(ctx context.Context, path, group string) (net.Listener, error) {
	gid, err := groupID(group)
	if err != nil {
		return nil, err
	}
	if err := removeStale(ctx, path); err != nil {
		return nil, err
	}
	// Until its mode is set only its owner may connect: connecting takes the right to write, which umasks keep from others.
	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("opening the socket: %w", err)
	}
	if err := errors.Join(giveTo(path, gid), os.Chmod(path, socketMode)); err != nil {
		_ = l.Close()
		return nil, fmt.Errorf("opening the socket: %w", err)
	}
	return l, nil
}

// noGroup leaves the socket to the agent's own group.
const noGroup = -1

func giveTo(path string, gid int) error {
	if gid == noGroup {
		return nil
	}
	return os.Chown(path, -1, gid)
}

func groupID(name string) (int, error) {
	if name == "" {
		return noGroup, nil
	}
	if n, err := strconv.Atoi(name); err == nil {
		return n, nil
	}
	g, err := user.LookupGroup(name)
	if err != nil {
		return 0, fmt.Errorf("the group of the socket: %w", err)
	}
	return strconv.Atoi(g.Gid)
}

// removeStale makes room for a socket, unless somebody listens on the one that is there.
func removeStale(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("looking for a socket: %w", err)
	case info.Mode()&fs.ModeSocket == 0:
		return fmt.Errorf("%s is there, and is not a socket", path)
	}
	conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "unix", path)
	if err == nil {
		_ = conn.Close()
		return fmt.Errorf("another agent answers on %s", path)
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("looking who listens: %w", err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing a dead agent's socket: %w", err)
	}
	return nil
}

// bounded is a listener with room for so many connections at a time; the others wait in the kernel's queue.
type bounded struct {
	net.Listener
	room chan struct{}
}

// Accept implements net.Listener.
func (b *bounded) Accept() (net.Conn, error) {
	b.room <- struct{}{}
	c, err := b.Listener.Accept()
	if err != nil {
		<-b.room
		return nil, err
	}
	return &counted{Conn: c, leave: sync.OnceFunc(func() { <-b.room })}, nil
}

type counted struct {
	net.Conn
	leave func()
}

// Close implements net.Conn.
func (c *counted) Close() error {
	c.leave()
	return c.Conn.Close()
}

// discardLog keeps complaints of net/http about clients out of the agent's log.
func discardLog() *stdlog.Logger { return slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug) }
