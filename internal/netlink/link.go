// SPDX-License-Identifier: Apache-2.0

package netlink

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// LinkLen is the length of a struct ifinfomsg of linux/rtnetlink.h: family, padding, type, index, flags, change.
const LinkLen = 16

// Link is what a message tells about the link of a network device.
type Link struct {
	Index   int
	Flags   uint32
	Name    string
	Address []byte
}

// ParseLink reads a message about a link: it came, changed or went.
func ParseLink(m Message) (l Link, ok bool) {
	if (m.Kind != unix.RTM_NEWLINK && m.Kind != unix.RTM_DELLINK) || len(m.Payload) < LinkLen {
		return Link{}, false
	}
	l.Index, l.Flags = int(int32(binary.NativeEndian.Uint32(m.Payload[4:]))), binary.NativeEndian.Uint32(m.Payload[8:]) //nolint:gosec // the kernel's own type
	Attributes(m.Payload[LinkLen:], func(kind uint16, value []byte) bool {
		switch {
		case kind == unix.IFLA_IFNAME && len(value) > 0:
			l.Name = string(value[:len(value)-1]) // without the zero at its end
		case kind == unix.IFLA_ADDRESS:
			l.Address = value
		}
		return true
	})
	return l, true
}
