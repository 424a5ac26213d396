// SPDX-License-Identifier: Apache-2.0

package openflow

import (
	"net"
	"syscall"
)

// sendBuffer is how much of a bundle may wait in the kernel, so that on a busy
// machine the switch does not wait for us to be scheduled after every 200 KiB.
const sendBuffer = 4 << 20

// growSendBuffer enlarges the send buffer of a connection as far as the process
// may. It is only about speed: what is refused is left.
func growSendBuffer(nc net.Conn) {
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		// Beyond the system's limit only with CAP_NET_ADMIN.
		if syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_SNDBUFFORCE, sendBuffer) != nil {
			_ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_SNDBUF, sendBuffer)
		}
	})
}
