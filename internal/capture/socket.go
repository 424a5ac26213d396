// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Frame is a frame that passed the interface.
type Frame struct {
	Time time.Time
	// Sent says that this host sent it out of the interface, to the VM. Otherwise it came in, from the VM.
	Sent bool
	Data []byte
}

// Socket reads frames of one interface.
type Socket struct {
	fd  int
	buf []byte
	oob []byte
}

// maxFrame is the largest frame: segmentation is often left to the receiver.
const maxFrame = 1<<16 + 64

// Open begins to read the frames of an interface. It needs CAP_NET_RAW.
func Open(name string) (*Socket, error) {
	i, err := net.InterfaceByName(name)
	if err != nil {
		return nil, fmt.Errorf("interface %s is not in this network namespace, or not in the kernel at all, as with DPDK: %w", name, err)
	}
	all := binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, unix.ETH_P_ALL)) // in the order of the network
	// Protocol 0: nothing comes before the socket is bound to the interface.
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("opening a packet socket, which needs CAP_NET_RAW: %w", err)
	}
	s := &Socket{fd: fd, buf: make([]byte, maxFrame), oob: make([]byte, unix.CmsgSpace(int(unsafe.Sizeof(unix.TpacketAuxdata{}))))}
	// VLAN tags are beside the frame, not in it.
	err = unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_AUXDATA, 1)
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: i.Index})
	}
	if err != nil {
		s.Close()
		return nil, fmt.Errorf("reading the frames of %s: %w", name, err)
	}
	return s, nil
}

// Close ends it.
func (s *Socket) Close() { _ = unix.Close(s.fd) }

// patience is how long one wait for a frame lasts, so that the end of a context is noticed.
const patience = 100 * time.Millisecond

// Next returns the next frame, or the context's error when it ends.
func (s *Socket) Next(ctx context.Context) (Frame, error) {
	for {
		if err := ctx.Err(); err != nil {
			return Frame{}, err
		}
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLIN}}, int(patience.Milliseconds())) //nolint:gosec // a descriptor
		if err != nil && !errors.Is(err, unix.EINTR) {
			return Frame{}, os.NewSyscallError("poll", err)
		}
		if n <= 0 {
			continue
		}
		length, oobLength, _, from, err := unix.Recvmsg(s.fd, s.buf, s.oob, unix.MSG_DONTWAIT)
		switch {
		case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return Frame{}, fmt.Errorf("reading a frame; the interface may be gone: %w", os.NewSyscallError("recvmsg", err))
		}
		link, _ := from.(*unix.SockaddrLinklayer) // what else
		f := Frame{Time: time.Now(), Sent: link != nil && link.Pkttype == unix.PACKET_OUTGOING, Data: slices.Clone(s.buf[:length])}
		f.Data = tagged(f.Data, s.oob[:oobLength])
		return f, nil
	}
}

// Missed returns how many frames the kernel has thrown away because nobody read them, since it was asked last.
func (s *Socket) Missed() int {
	stats, err := unix.GetsockoptTpacketStats(s.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err != nil {
		return 0
	}
	return int(stats.Drops)
}

// tagged puts the VLAN tag back into a frame from which the kernel took it.
func tagged(data, oob []byte) []byte {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil || len(data) < 12 {
		return data
	}
	for _, m := range messages {
		if m.Header.Level != unix.SOL_PACKET || m.Header.Type != unix.PACKET_AUXDATA || len(m.Data) < int(unsafe.Sizeof(unix.TpacketAuxdata{})) {
			continue
		}
		aux := (*unix.TpacketAuxdata)(unsafe.Pointer(&m.Data[0]))
		if aux.Status&unix.TP_STATUS_VLAN_VALID == 0 {
			continue
		}
		kind := uint16(unix.ETH_P_8021Q)
		if aux.Status&unix.TP_STATUS_VLAN_TPID_VALID != 0 {
			kind = aux.Vlan_tpid
		}
		tag := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, kind), aux.Vlan_tci)
		data = slices.Insert(data, 12, tag...)
	}
	return data
}
