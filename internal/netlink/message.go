// SPDX-License-Identifier: Apache-2.0

package netlink

import (
	"encoding/binary"
	"iter"
	"syscall"

	"golang.org/x/sys/unix"
)

// HeaderLen is the length of a message's header.
const HeaderLen = unix.NLMSG_HDRLEN

const (
	attrLen  = 4
	attrType = 0x3fff // without the bits for nesting and byte order
)

// Message is one netlink message. Payload is what follows its header.
type Message struct {
	Kind    uint16
	Seq     uint32
	Payload []byte
}

// Next cuts the first message off a packet.
func Next(b []byte) (m Message, rest []byte, ok bool) {
	if len(b) < HeaderLen {
		return Message{}, nil, false
	}
	n := uint64(binary.NativeEndian.Uint32(b))
	if n < HeaderLen || n > uint64(len(b)) {
		return Message{}, nil, false
	}
	m = Message{Kind: binary.NativeEndian.Uint16(b[4:]), Seq: binary.NativeEndian.Uint32(b[8:]), Payload: b[HeaderLen:n]}
	return m, b[min(align(int(n)), len(b)):], true
}

// messages ranges over the messages of a packet.
func messages(packet []byte) iter.Seq[Message] {
	return func(yield func(Message) bool) {
		for {
			m, rest, ok := Next(packet)
			if !ok || !yield(m) {
				return
			}
			packet = rest
		}
	}
}

// Errno returns the outcome that an NLMSG_ERROR or NLMSG_DONE tells; nil for success.
func (m Message) Errno() error {
	if len(m.Payload) < 4 {
		if m.Kind == unix.NLMSG_DONE {
			return nil
		}
		return syscall.EBADMSG
	}
	// The kernel's number is negative.
	if n := binary.NativeEndian.Uint32(m.Payload); n != 0 {
		return syscall.Errno(-n)
	}
	return nil
}

// Attributes calls take for each attribute until it returns false, and returns whether all were read.
func Attributes(b []byte, take func(kind uint16, value []byte) bool) bool {
	for len(b) >= attrLen {
		n := int(binary.NativeEndian.Uint16(b))
		if n < attrLen || n > len(b) || !take(binary.NativeEndian.Uint16(b[2:])&attrType, b[attrLen:n]) {
			return false
		}
		b = b[min(align(n), len(b)):]
	}
	return true
}

// Request begins a message: its header, and a fixed part of the given length, which is zero.
func Request(kind, flags uint16, fixed int) []byte {
	b := make([]byte, HeaderLen+fixed, 128)
	binary.NativeEndian.PutUint16(b[4:], kind)
	binary.NativeEndian.PutUint16(b[6:], flags)
	return b
}

// SetSeq numbers a message.
func SetSeq(b []byte, seq uint32) { binary.NativeEndian.PutUint32(b[8:], seq) }

// Finish writes the length of a message that is complete.
func Finish(b []byte) []byte {
	binary.NativeEndian.PutUint32(b, uint32(len(b)))
	return b
}

// AppendAttr adds an attribute to a message.
func AppendAttr(b []byte, kind uint16, value []byte) []byte {
	b = binary.NativeEndian.AppendUint16(b, uint16(attrLen+len(value)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = append(b, value...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

func align(n int) int { return (n + 3) &^ 3 }
