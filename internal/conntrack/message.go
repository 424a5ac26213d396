// SPDX-License-Identifier: Apache-2.0

package conntrack

import (
	"encoding/binary"
	"syscall"

	"golang.org/x/sys/unix"
)

// Numbers of linux/netfilter/nfnetlink_conntrack.h that x/sys does not have.
const (
	subsysConntrack = 1
	kindNew         = subsysConntrack << 8
	kindGet         = subsysConntrack<<8 | 1
	kindDelete      = subsysConntrack<<8 | 2

	attrTupleOrig = 1
	attrMark      = 8
	attrID        = 12
	attrZone      = 18
	attrMarkMask  = 21

	headerLen = unix.NLMSG_HDRLEN
	genLen    = 4 // struct nfgenmsg: family, version, resource id
	attrLen   = 4
	attrType  = 0x3fff // without the bits for nesting and byte order
	nested    = unix.NLA_F_NESTED
)

// message is one netlink message; payload is what follows its header.
type message struct {
	kind    uint16
	seq     uint32
	payload []byte
}

// nextMessage cuts the first message off a packet.
func nextMessage(b []byte) (m message, rest []byte, ok bool) {
	if len(b) < headerLen {
		return message{}, nil, false
	}
	n := uint64(binary.NativeEndian.Uint32(b))
	if n < headerLen || n > uint64(len(b)) {
		return message{}, nil, false
	}
	m = message{kind: binary.NativeEndian.Uint16(b[4:]), seq: binary.NativeEndian.Uint32(b[8:]), payload: b[headerLen:n]}
	return m, b[min(align(int(n)), len(b)):], true
}

// errno is the outcome that an NLMSG_ERROR or NLMSG_DONE tells; nil for success.
func (m message) errno() error {
	if len(m.payload) < 4 {
		if m.kind == unix.NLMSG_DONE {
			return nil
		}
		return syscall.EBADMSG
	}
	// The kernel's number is negative.
	if n := binary.NativeEndian.Uint32(m.payload); n != 0 {
		return syscall.Errno(-n)
	}
	return nil
}

// connection is what has to be known of an entry to remove it.
type connection struct {
	family byte
	tuple  []byte // the attribute's content, as the kernel sent it
	id     []byte
	zone   uint16
	mark   uint32
}

// parseConnection reads the payload of a message about an entry. What it returns refers to b.
func parseConnection(b []byte) (connection, bool) {
	if len(b) < genLen {
		return connection{}, false
	}
	c := connection{family: b[0]}
	for b = b[genLen:]; len(b) >= attrLen; {
		n := int(binary.NativeEndian.Uint16(b))
		if n < attrLen || n > len(b) {
			return connection{}, false
		}
		value := b[attrLen:n]
		switch binary.NativeEndian.Uint16(b[2:]) & attrType {
		case attrTupleOrig:
			c.tuple = value
		case attrID:
			c.id = value
		case attrZone:
			if len(value) != 2 {
				return connection{}, false
			}
			c.zone = binary.BigEndian.Uint16(value)
		case attrMark:
			if len(value) != 4 {
				return connection{}, false
			}
			c.mark = binary.BigEndian.Uint32(value)
		}
		b = b[min(align(n), len(b)):]
	}
	return c, len(c.tuple) > 0
}

// listRequest asks for the entries that have the mark, those of all zones where the kernel does not know better.
func listRequest(seq uint32, zone uint16, mark uint32) []byte {
	b := newRequest(kindGet, unix.NLM_F_REQUEST|unix.NLM_F_DUMP, unix.AF_UNSPEC)
	if mark != 0 {
		b = appendAttr(b, attrMark, binary.BigEndian.AppendUint32(nil, mark))
		b = appendAttr(b, attrMarkMask, binary.BigEndian.AppendUint32(nil, mark))
	}
	b = appendAttr(b, attrZone, binary.BigEndian.AppendUint16(nil, zone))
	setSeq(b, seq)
	return finish(b)
}

// deleteRequest asks to remove the entry, if it still is the one that was listed.
func deleteRequest(c connection) []byte {
	b := newRequest(kindDelete, unix.NLM_F_REQUEST|unix.NLM_F_ACK, c.family)
	b = appendAttr(b, attrTupleOrig|nested, c.tuple)
	b = appendAttr(b, attrZone, binary.BigEndian.AppendUint16(nil, c.zone))
	if len(c.id) > 0 {
		b = appendAttr(b, attrID, c.id)
	}
	return finish(b)
}

func newRequest(kind, flags uint16, family byte) []byte {
	b := make([]byte, headerLen+genLen, 128)
	binary.NativeEndian.PutUint16(b[4:], kind)
	binary.NativeEndian.PutUint16(b[6:], flags)
	b[headerLen] = family
	return b
}

func setSeq(b []byte, seq uint32) { binary.NativeEndian.PutUint32(b[8:], seq) }

func finish(b []byte) []byte {
	binary.NativeEndian.PutUint32(b, uint32(len(b)))
	return b
}

func appendAttr(b []byte, kind uint16, value []byte) []byte {
	b = binary.NativeEndian.AppendUint16(b, uint16(attrLen+len(value)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = append(b, value...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

func align(n int) int { return (n + 3) &^ 3 }
