// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"fmt"
	"net"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Notifier tells the service manager how the agent is, over the socket that systemd names in the environment. Without
// one every method does nothing, so that the agent need not know how it was started.
type Notifier struct {
	socket   string
	watchdog time.Duration
}

// NewNotifier reads the environment, given as a lookup function such as os.Getenv, for the process with the given id.
func NewNotifier(getenv func(string) string, pid int) *Notifier {
	n := &Notifier{socket: getenv("NOTIFY_SOCKET")}
	if p := getenv("WATCHDOG_PID"); p != "" && p != strconv.Itoa(pid) {
		return n // the watchdog was set for a parent of ours
	}
	if us, err := strconv.ParseInt(getenv("WATCHDOG_USEC"), 10, 64); err == nil && us > 0 {
		n.watchdog = time.Duration(us) * time.Microsecond
	}
	return n
}

// WatchdogInterval is how often Watchdog has to be called, or 0 when the manager does not watch.
func (n *Notifier) WatchdogInterval() time.Duration { return n.watchdog / 2 }

// Ready says that the agent does its work, with a line for `systemctl status`.
func (n *Notifier) Ready(status string) error { return n.send("READY=1\nSTATUS=" + status) }

// Reloading says that the configuration is being read again; Ready ends it.
func (n *Notifier) Reloading() error {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return fmt.Errorf("reading the clock: %w", err)
	}
	return n.send(fmt.Sprintf("RELOADING=1\nMONOTONIC_USEC=%d", ts.Nano()/1000))
}

// Stopping says that the agent is on its way out.
func (n *Notifier) Stopping() error { return n.send("STOPPING=1") }

// Watchdog says that the loop goes round.
func (n *Notifier) Watchdog() error { return n.send("WATCHDOG=1") }

func (n *Notifier) send(state string) error {
	if n.socket == "" {
		return nil
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: n.socket, Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("notifying the service manager: %w", err)
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetWriteDeadline(time.Now().Add(time.Second)); err != nil {
		return fmt.Errorf("notifying the service manager: %w", err)
	}
	if _, err := conn.Write([]byte(state)); err != nil {
		return fmt.Errorf("notifying the service manager: %w", err)
	}
	return nil
}
