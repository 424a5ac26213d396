// SPDX-License-Identifier: Apache-2.0

package metaproxy

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/patchbay-sdn/patchbay/internal/netlink"
	"github.com/patchbay-sdn/patchbay/openflow"
)

// Host is the kernel of the host that the process is on.
type Host struct{}

// struct ifaddrmsg of linux/if_addr.h: family, length of the prefix, flags, scope, index.
const (
	addrLen             = 8
	addrBits, addrIndex = 1, 4
)

// Look reads a device; one that does not exist has no index.
func (Host) Look(ctx context.Context, device string) (Link, error) {
	s, err := netlink.Open(ctx, unix.NETLINK_ROUTE, 0)
	if err != nil {
		return Link{}, fmt.Errorf("reading device %s: %w", device, err)
	}
	defer s.Close()
	var out Link
	err = s.Dump(linkRequest(unix.RTM_GETLINK, device), func(m netlink.Message) {
		if l, ok := netlink.ParseLink(m); ok && l.Name == device {
			out.Index, out.Up = l.Index, l.Flags&unix.IFF_UP != 0
			copy(out.MAC[:], l.Address)
		}
	})
	switch {
	case errors.Is(err, syscall.ENODEV):
		return Link{}, nil
	case err != nil:
		return Link{}, fmt.Errorf("reading device %s: %w", device, err)
	}
	b := netlink.Request(unix.RTM_GETADDR, unix.NLM_F_REQUEST|unix.NLM_F_DUMP, addrLen)
	b[netlink.HeaderLen] = unix.AF_INET
	err = s.Dump(netlink.Finish(b), func(m netlink.Message) {
		if index, a, ok := parseAddress(m); ok && index == out.Index && a.IsValid() {
			out.Addresses = append(out.Addresses, a)
		}
	})
	if err != nil {
		return Link{}, fmt.Errorf("reading addresses of %s: %w", device, err)
	}
	return out, nil
}

// Change makes one change of a device.
func (Host) Change(ctx context.Context, device string, index int, c Change) error {
	s, err := netlink.Open(ctx, unix.NETLINK_ROUTE, 0)
	if err != nil {
		return fmt.Errorf("%s: %w", c.Line(device), err)
	}
	defer s.Close()
	err = s.Change([][]byte{changeRequest(index, c)}, func(_ int, err error) error { return err })
	if err != nil && !(c.Add.IsValid() && errors.Is(err, syscall.EEXIST)) {
		return fmt.Errorf("%s: %w", c.Line(device), err)
	}
	return nil
}

// Watch calls changed when the link or an address of the device may have changed, until ctx ends.
func (Host) Watch(ctx context.Context, device string, changed func()) error {
	s, err := netlink.Open(ctx, unix.NETLINK_ROUTE, unix.RTMGRP_LINK|unix.RTMGRP_IPV4_IFADDR)
	if err != nil {
		return fmt.Errorf("following device %s: %w", device, err)
	}
	defer s.Close()
	changed() // what happened before is not told
	index := 0
	return s.Follow(func(m netlink.Message) {
		if l, ok := netlink.ParseLink(m); ok && l.Name == device {
			index = l.Index
			changed()
		}
		if at, _, ok := parseAddress(m); ok && (at == index || index == 0) {
			changed()
		}
	}, changed)
}

// Listen listens on an address, for what comes by the device and by no other.
func (Host) Listen(ctx context.Context, device string, at netip.AddrPort) (net.Listener, error) {
	config := net.ListenConfig{KeepAlive: -1, Control: func(_, _ string, c syscall.RawConn) error {
		var bound error
		err := c.Control(func(fd uintptr) { bound = unix.BindToDevice(int(fd), device) })
		return errors.Join(err, bound)
	}}
	return config.Listen(ctx, "tcp4", at.String())
}

// linkRequest asks about a device by its name.
func linkRequest(kind uint16, device string) []byte {
	b := netlink.Request(kind, unix.NLM_F_REQUEST|unix.NLM_F_ACK, netlink.LinkLen)
	return netlink.Finish(netlink.AppendAttr(b, unix.IFLA_IFNAME, append([]byte(device), 0)))
}

func changeRequest(index int, c Change) []byte {
	number := binary.NativeEndian.AppendUint32(nil, uint32(index)) //nolint:gosec // indices are positive
	if c.Add.IsValid() || c.Delete.IsValid() {
		kind, flags, prefix := uint16(unix.RTM_NEWADDR), uint16(unix.NLM_F_CREATE|unix.NLM_F_EXCL), c.Add
		if c.Delete.IsValid() {
			kind, flags, prefix = unix.RTM_DELADDR, 0, c.Delete
		}
		b := netlink.Request(kind, unix.NLM_F_REQUEST|unix.NLM_F_ACK|flags, addrLen)
		fixed := b[netlink.HeaderLen:]
		fixed[0], fixed[addrBits] = unix.AF_INET, byte(prefix.Bits())
		copy(fixed[addrIndex:], number)
		b = netlink.AppendAttr(b, unix.IFA_LOCAL, prefix.Addr().AsSlice())
		return netlink.Finish(netlink.AppendAttr(b, unix.IFA_ADDRESS, prefix.Addr().AsSlice()))
	}
	b := netlink.Request(unix.RTM_NEWLINK, unix.NLM_F_REQUEST|unix.NLM_F_ACK, netlink.LinkLen)
	copy(b[netlink.HeaderLen+4:], number)
	if c.Up {
		binary.NativeEndian.PutUint32(b[netlink.HeaderLen+8:], unix.IFF_UP)
		binary.NativeEndian.PutUint32(b[netlink.HeaderLen+12:], unix.IFF_UP)
	}
	if c.MAC != (openflow.MAC{}) {
		b = netlink.AppendAttr(b, unix.IFLA_ADDRESS, c.MAC[:])
	}
	return netlink.Finish(b)
}

// parseAddress reads a message about an IPv4 address: the index of its device, and the address.
func parseAddress(m netlink.Message) (index int, a netip.Prefix, ok bool) {
	b := m.Payload
	if (m.Kind != unix.RTM_NEWADDR && m.Kind != unix.RTM_DELADDR) || len(b) < addrLen || b[0] != unix.AF_INET {
		return 0, a, false
	}
	netlink.Attributes(b[addrLen:], func(kind uint16, value []byte) bool {
		if ip, good := netip.AddrFromSlice(value); kind == unix.IFA_LOCAL && good {
			a = netip.PrefixFrom(ip, int(b[addrBits]))
		}
		return true
	})
	return int(binary.NativeEndian.Uint32(b[addrIndex:])), a, true
}
