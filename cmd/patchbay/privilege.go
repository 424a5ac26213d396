// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// atSecure is the key, in what the kernel hands a new program, of whether it got privileges by being executed.
const atSecure = 23

// privilegedFile says whether the binary has capabilities of its own, as in a container. They are the daemon's: whoever may run the file
// would have them for every other command, so such a file is nothing but the daemon, whatever it is called by. Capabilities that a
// service manager or an operator gives to the process are another matter.
func privilegedFile() bool {
	vector, err := unix.Auxv()
	if err != nil {
		return true // it cannot be told
	}
	for _, pair := range vector {
		if pair[0] == atSecure {
			return pair[1] != 0
		}
	}
	return false
}

// noDumps has the kernel never write the memory of this process to a file: the broker's password is in it, and LimitCORE does not count
// where a core dump goes to a program. A process that health checks look into stays dumpable, and is bounded in [showConnections].
func noDumps() error {
	if privilegedFile() {
		return nil
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("switching core dumps off: %w", err)
	}
	return nil
}
