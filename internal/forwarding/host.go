// SPDX-License-Identifier: Apache-2.0

package forwarding

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/patchbay-sdn/patchbay/internal/netlink"
	"github.com/patchbay-sdn/patchbay/openflow"
)

// Host is the kernel of the host that the process is on.
type Host struct{}

// Sizes and places of linux/neighbour.h and linux/rtnetlink.h, in bytes after a message's header.
const (
	// struct ndmsg: family, three bytes of padding, index, state, flags, type.
	neighLen                           = 12
	neighIndex, neighState, neighFlags = 4, 8, 10
	linkIndex                          = 4 // of a struct ifinfomsg
)

// Read reads the tables of devices.
func (Host) Read(ctx context.Context, devices []string) (Tables, error) {
	index, err := indices(devices)
	if err != nil {
		return nil, fmt.Errorf("reading forwarding tables: %w", err)
	}
	s, err := netlink.Open(ctx, unix.NETLINK_ROUTE, 0)
	if err != nil {
		return nil, fmt.Errorf("reading forwarding tables: %w", err)
	}
	defer s.Close()
	out := Tables{}
	for device, i := range index {
		out[device] = []openflow.MAC{}
		err := s.Dump(dumpRequest(i), func(m netlink.Message) {
			if mac, ok := parseEntry(m, i); ok && !slices.Contains(out[device], mac) {
				out[device] = append(out[device], mac)
			}
		})
		if err != nil {
			return nil, fmt.Errorf("reading the forwarding table of %s: %w", device, err)
		}
	}
	return out, nil
}

// Change makes changes. One that fails keeps no other from being made. To delete what is not there is no failure.
func (Host) Change(ctx context.Context, c Changes) error {
	var devices []string
	for _, e := range slices.Concat(c.Add, c.Delete) {
		devices = append(devices, e.Device)
	}
	index, err := indices(devices)
	if err != nil {
		return fmt.Errorf("changing forwarding tables: %w", err)
	}
	s, err := netlink.Open(ctx, unix.NETLINK_ROUTE, 0)
	if err != nil {
		return fmt.Errorf("changing forwarding tables: %w", err)
	}
	defer s.Close()
	var requests [][]byte
	var entries []Entry
	var failed []error
	add := func(e Entry, kind, flags uint16) {
		i, ok := index[e.Device]
		switch {
		case ok:
			requests, entries = append(requests, entryRequest(kind, flags, i, e.MAC)), append(entries, e)
		case kind == unix.RTM_NEWNEIGH:
			failed = append(failed, &NoDeviceError{e.Device})
		}
	}
	for _, e := range c.Delete {
		add(e, unix.RTM_DELNEIGH, 0)
	}
	deletions := len(requests)
	for _, e := range c.Add {
		add(e, unix.RTM_NEWNEIGH, unix.NLM_F_CREATE)
	}
	err = s.Change(requests, func(i int, err error) error {
		gone := i < deletions && (errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ENODEV))
		if err != nil && !gone {
			failed = append(failed, fmt.Errorf("entry %s: %w", entries[i], err))
		}
		return nil
	})
	if err = errors.Join(append(failed, err)...); err != nil {
		return fmt.Errorf("changing forwarding tables: %w", err)
	}
	return nil
}

// Watch calls changed with the name of each of the devices whose link comes, changes or goes, until ctx ends; with no name if changes were lost.
func (Host) Watch(ctx context.Context, devices []string, changed func(device string)) error {
	s, err := netlink.Open(ctx, unix.NETLINK_ROUTE, unix.RTMGRP_LINK)
	if err != nil {
		return fmt.Errorf("following links: %w", err)
	}
	defer s.Close()
	changed("") // what happened before is not told
	return s.Follow(func(m netlink.Message) {
		if link, ok := netlink.ParseLink(m); ok && slices.Contains(devices, link.Name) {
			changed(link.Name)
		}
	}, func() { changed("") })
}

// indices returns the indices of the devices that exist.
func indices(devices []string) (map[string]int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(fd) }()
	out := map[string]int{}
	for _, device := range devices {
		request, err := unix.NewIfreq(device)
		if err != nil {
			continue // no device can have the name
		}
		switch err := unix.IoctlIfreq(fd, unix.SIOCGIFINDEX, request); {
		case err == nil:
			out[device] = int(request.Uint32())
		case !errors.Is(err, syscall.ENODEV):
			return nil, fmt.Errorf("looking for device %s: %w", device, err)
		}
	}
	return out, nil
}

// dumpRequest asks for the table of one device. The kernel takes the index from a struct ifinfomsg.
func dumpRequest(index int) []byte {
	b := netlink.Request(unix.RTM_GETNEIGH, unix.NLM_F_REQUEST|unix.NLM_F_DUMP, netlink.LinkLen)
	b[netlink.HeaderLen] = unix.AF_BRIDGE
	binary.NativeEndian.PutUint32(b[netlink.HeaderLen+linkIndex:], uint32(index)) //nolint:gosec // indices are positive
	return netlink.Finish(b)
}

// entryRequest asks to add or delete an entry.
func entryRequest(kind, flags uint16, index int, mac openflow.MAC) []byte {
	b := netlink.Request(kind, unix.NLM_F_REQUEST|unix.NLM_F_ACK|flags, neighLen)
	fixed := b[netlink.HeaderLen:]
	fixed[0] = unix.AF_BRIDGE
	binary.NativeEndian.PutUint32(fixed[neighIndex:], uint32(index)) //nolint:gosec // indices are positive
	binary.NativeEndian.PutUint16(fixed[neighState:], unix.NUD_PERMANENT)
	fixed[neighFlags] = unix.NTF_SELF
	return netlink.Finish(netlink.AppendAttr(b, unix.NDA_LLADDR, mac[:]))
}

// parseEntry reads an entry that could be one of ours: permanent, the device's own, unicast, for no VLAN and no tunnel.
func parseEntry(m netlink.Message, index int) (mac openflow.MAC, ok bool) {
	b := m.Payload
	if m.Kind != unix.RTM_NEWNEIGH || len(b) < neighLen || b[0] != unix.AF_BRIDGE || binary.NativeEndian.Uint32(b[neighIndex:]) != uint32(index) { //nolint:gosec // indices are positive
		return mac, false
	}
	if b[neighFlags]&unix.NTF_SELF == 0 || binary.NativeEndian.Uint16(b[neighState:])&unix.NUD_PERMANENT == 0 {
		return mac, false
	}
	found := false
	good := netlink.Attributes(b[neighLen:], func(kind uint16, value []byte) bool {
		switch kind {
		case unix.NDA_LLADDR:
			found = len(value) == len(mac)
			copy(mac[:], value)
		case unix.NDA_VLAN, unix.NDA_DST, unix.NDA_VNI:
			return false
		}
		return true
	})
	return mac, good && found && Unicast(mac)
}

// Unicast returns whether an address is one of a single station.
func Unicast(mac openflow.MAC) bool { return mac[0]&1 == 0 && mac != openflow.MAC{} }
