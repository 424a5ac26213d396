// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// vlanLinks are the VLAN sub-interfaces of a VM's eth0. Kernels without 802.1Q have no such links, so they are made of taps, which
// the VM's kernel uses as links of its own, and of a loop that puts tags on what goes out and takes them off what comes in.
type vlanLinks struct {
	wire  *probe
	taps  map[uint16]*os.File
	ended []chan struct{}
}

// openVLANs makes links of a VM, by VLAN, called eth0.<vlan>. They have no addresses and are down.
func openVLANs(netns string, vlans ...uint16) (*vlanLinks, error) {
	const all = unix.ETH_P_ALL>>8 | unix.ETH_P_ALL<<8&0xff00 // in network byte order
	wire, err := openSocket(netns, "eth0", all)
	if err != nil {
		return nil, err
	}
	// The kernel takes the tag out of a frame and tells it beside.
	if err := unix.SetsockoptInt(wire.fd, unix.SOL_PACKET, unix.PACKET_AUXDATA, 1); err != nil {
		return nil, fmt.Errorf("asking for VLAN tags: %w", err)
	}
	l := &vlanLinks{wire: wire, taps: map[uint16]*os.File{}}
	for _, vlan := range vlans {
		if l.taps[vlan], err = openTap(netns, fmt.Sprintf("eth0.%d", vlan)); err != nil {
			return nil, err
		}
	}
	for _, vlan := range vlans {
		ended := make(chan struct{})
		l.ended = append(l.ended, ended)
		go l.outward(vlan, ended)
	}
	go l.inward()
	return l, nil
}

// openTap makes a tap in a namespace.
func openTap(netns, link string) (*os.File, error) {
	var fd int
	made := make(chan error)
	go func() {
		runtime.LockOSThread() // for ever: see openProbe
		made <- func() error {
			err := enter(netns)
			if err != nil {
				return err
			}
			if fd, err = unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0); err != nil {
				return err
			}
			ifr, err := unix.NewIfreq(link)
			if err != nil {
				return err
			}
			ifr.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
			return unix.IoctlIfreq(fd, unix.TUNSETIFF, ifr)
		}()
	}()
	if err := <-made; err != nil {
		return nil, fmt.Errorf("making the tap %s in %s: %w", link, netns, err)
	}
	return os.NewFile(uintptr(fd), link), nil
}

func (l *vlanLinks) outward(vlan uint16, ended chan struct{}) {
	defer close(ended)
	buf := make([]byte, 2048)
	for {
		n, err := l.taps[vlan].Read(buf)
		if errors.Is(err, os.ErrClosed) {
			return
		}
		if err == nil && n >= 14 {
			_ = l.wire.send(tagged(buf[:n:n], vlan)) // lost, as on any link
		}
	}
}

func (l *vlanLinks) inward() {
	defer close(l.wire.done)
	buf, oob := make([]byte, 2048), make([]byte, unix.CmsgSpace(int(unsafe.Sizeof(unix.TpacketAuxdata{}))))
	for !l.wire.stop.Load() {
		n, oobn, _, from, err := unix.Recvmsg(l.wire.fd, buf, oob, 0)
		if ll, ok := from.(*unix.SockaddrLinklayer); err != nil || !ok || ll.Pkttype == unix.PACKET_OUTGOING {
			continue
		}
		if tap := l.taps[tagOf(oob[:oobn])]; tap != nil {
			_, _ = tap.Write(buf[:n]) // a link that is down takes nothing
		}
	}
}

// tagOf is the VLAN that the kernel tells beside a frame, 0 for none.
func tagOf(oob []byte) uint16 {
	list, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return 0
	}
	for _, m := range list {
		if m.Header.Level == unix.SOL_PACKET && m.Header.Type == unix.PACKET_AUXDATA && len(m.Data) >= 20 {
			if binary.NativeEndian.Uint32(m.Data)&unix.TP_STATUS_VLAN_VALID != 0 {
				return binary.NativeEndian.Uint16(m.Data[16:]) & 0xfff
			}
		}
	}
	return 0
}

func (l *vlanLinks) close() {
	l.wire.close()
	for _, tap := range l.taps {
		_ = tap.Close()
	}
	for _, ended := range l.ended {
		<-ended
	}
}
