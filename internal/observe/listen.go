// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// firstSocket is the first descriptor that a service manager hands over, and maxSockets more than a unit of ours has.
const (
	firstSocket = 3
	maxSockets  = 16
)

// Listeners takes the listening sockets that the service manager has opened for the process with the given id: those of systemd's
// socket units. Each can be taken once. The manager keeps them open when the agent closes its own.
func Listeners(getenv func(string) string, pid int) ([]net.Listener, error) {
	if getenv("LISTEN_PID") != strconv.Itoa(pid) {
		return nil, nil // none, or for a parent of ours
	}
	n, err := strconv.Atoi(getenv("LISTEN_FDS"))
	if err != nil || n < 0 || n > maxSockets {
		return nil, fmt.Errorf("LISTEN_FDS is %q", getenv("LISTEN_FDS"))
	}
	var out []net.Listener
	var errs []error
	for fd := firstSocket; fd < firstSocket+n; fd++ {
		unix.CloseOnExec(fd)
		f := os.NewFile(uintptr(fd), "LISTEN_FD_"+strconv.Itoa(fd))
		if f == nil {
			errs = append(errs, fmt.Errorf("descriptor %d is not open", fd))
			continue
		}
		l, err := net.FileListener(f) // a copy
		errs = append(errs, err, f.Close())
		if err == nil {
			out = append(out, l)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return out, fmt.Errorf("taking the sockets of the service manager: %w", err)
	}
	return out, nil
}
