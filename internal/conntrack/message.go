// SPDX-License-Identifier: Apache-2.0

package conntrack

import (
	"encoding/binary"
	"net/netip"
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

	// Within a tuple: addresses and protocol, and within those.
	attrTupleIP    = 1
	attrTupleProto = 2

	attrIPv4Src, attrIPv4Dst, attrIPv6Src, attrIPv6Dst = 1, 2, 3, 4

	attrProtoNum                                 = 1
	attrProtoSrc, attrProtoDst                   = 2, 3
	attrICMPID, attrICMPType, attrICMPCode       = 4, 5, 6
	attrICMPv6ID, attrICMPv6Type, attrICMPv6Code = 7, 8, 9

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
func parseConnection(b []byte) (c connection, ok bool) {
	if len(b) < genLen {
		return connection{}, false
	}
	c.family = b[0]
	good := attributes(b[genLen:], func(kind uint16, value []byte) bool {
		switch kind {
		case attrTupleOrig:
			c.tuple = value
		case attrID:
			c.id = value
		case attrZone:
			return number16(value, &c.zone)
		case attrMark:
			if len(value) != 4 {
				return false
			}
			c.mark = binary.BigEndian.Uint32(value)
		}
		return true
	})
	return c, good && len(c.tuple) > 0
}

// attributes calls take for each attribute until it returns false, and says whether all were read.
func attributes(b []byte, take func(kind uint16, value []byte) bool) bool {
	for len(b) >= attrLen {
		n := int(binary.NativeEndian.Uint16(b))
		if n < attrLen || n > len(b) || !take(binary.NativeEndian.Uint16(b[2:])&attrType, b[attrLen:n]) {
			return false
		}
		b = b[min(align(n), len(b)):]
	}
	return true
}

func number16(value []byte, n *uint16) bool {
	if len(value) != 2 {
		return false
	}
	*n = binary.BigEndian.Uint16(value)
	return true
}

func number8(value []byte, n *uint8) bool {
	if len(value) != 1 {
		return false
	}
	*n = value[0]
	return true
}

func address(value []byte, a *netip.Addr) (ok bool) {
	*a, ok = netip.AddrFromSlice(value)
	return ok
}

// describe says which connection a request to delete is about, and keeps the request in it.
func describe(request []byte) (Connection, bool) {
	m, _, ok := nextMessage(request)
	if !ok {
		return Connection{}, false
	}
	raw, ok := parseConnection(m.payload)
	if !ok {
		return Connection{}, false
	}
	c := Connection{raw: string(request)}
	ok = attributes(raw.tuple, func(kind uint16, value []byte) bool {
		switch kind {
		case attrTupleIP:
			return attributes(value, func(kind uint16, value []byte) bool {
				switch kind {
				case attrIPv4Src, attrIPv6Src:
					return address(value, &c.Src)
				case attrIPv4Dst, attrIPv6Dst:
					return address(value, &c.Dst)
				}
				return true
			})
		case attrTupleProto:
			return attributes(value, c.describeProtocol)
		}
		return true
	})
	return c, ok && c.Src.IsValid() && c.Dst.IsValid()
}

func (c *Connection) describeProtocol(kind uint16, value []byte) bool {
	switch kind {
	case attrProtoNum:
		return number8(value, &c.Protocol)
	case attrProtoSrc:
		return number16(value, &c.SrcPort)
	case attrProtoDst:
		return number16(value, &c.DstPort)
	case attrICMPID, attrICMPv6ID:
		return number16(value, &c.ICMPID)
	case attrICMPType, attrICMPv6Type:
		return number8(value, &c.ICMPType)
	case attrICMPCode, attrICMPv6Code:
		return number8(value, &c.ICMPCode)
	}
	return true
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

// unmarkRequest asks to take the mark off the entry, leaving the other bits as they are.
func unmarkRequest(c connection) []byte {
	b := newRequest(kindNew, unix.NLM_F_REQUEST|unix.NLM_F_ACK, c.family)
	b = appendAttr(b, attrTupleOrig|nested, c.tuple)
	b = appendAttr(b, attrZone, binary.BigEndian.AppendUint16(nil, c.zone))
	b = appendAttr(b, attrMark, binary.BigEndian.AppendUint32(nil, 0))
	b = appendAttr(b, attrMarkMask, binary.BigEndian.AppendUint32(nil, revokedMark))
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
