// SPDX-License-Identifier: Apache-2.0

package conntrack

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/patchbay-sdn/patchbay/internal/netlink"
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

	genLen = 4 // struct nfgenmsg: family, version, resource id
	nested = unix.NLA_F_NESTED
)

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
	good := netlink.Attributes(b[genLen:], func(kind uint16, value []byte) bool {
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
	m, _, ok := netlink.Next(request)
	if !ok {
		return Connection{}, false
	}
	raw, ok := parseConnection(m.Payload)
	if !ok {
		return Connection{}, false
	}
	c := Connection{raw: string(request)}
	ok = netlink.Attributes(raw.tuple, func(kind uint16, value []byte) bool {
		switch kind {
		case attrTupleIP:
			return netlink.Attributes(value, func(kind uint16, value []byte) bool {
				switch kind {
				case attrIPv4Src, attrIPv6Src:
					return address(value, &c.Src)
				case attrIPv4Dst, attrIPv6Dst:
					return address(value, &c.Dst)
				}
				return true
			})
		case attrTupleProto:
			return netlink.Attributes(value, c.describeProtocol)
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

// listRequest asks for the entries that have the mark. Kernels from 6.8 on send those of one zone, if it is only one; others send all zones.
func listRequest(zones []uint16, mark uint32) []byte {
	b := newRequest(kindGet, unix.NLM_F_REQUEST|unix.NLM_F_DUMP, unix.AF_UNSPEC)
	if mark != 0 {
		b = netlink.AppendAttr(b, attrMark, binary.BigEndian.AppendUint32(nil, mark))
		b = netlink.AppendAttr(b, attrMarkMask, binary.BigEndian.AppendUint32(nil, mark))
	}
	if len(zones) == 1 {
		b = netlink.AppendAttr(b, attrZone, binary.BigEndian.AppendUint16(nil, zones[0]))
	}
	return netlink.Finish(b)
}

// deleteRequest asks to remove the entry, if it still is the one that was listed.
func deleteRequest(c connection) []byte {
	b := newRequest(kindDelete, unix.NLM_F_REQUEST|unix.NLM_F_ACK, c.family)
	b = netlink.AppendAttr(b, attrTupleOrig|nested, c.tuple)
	b = netlink.AppendAttr(b, attrZone, binary.BigEndian.AppendUint16(nil, c.zone))
	if len(c.id) > 0 {
		b = netlink.AppendAttr(b, attrID, c.id)
	}
	return netlink.Finish(b)
}

// unmarkRequest asks to take the mark off the entry, leaving the other bits as they are.
func unmarkRequest(c connection) []byte {
	b := newRequest(kindNew, unix.NLM_F_REQUEST|unix.NLM_F_ACK, c.family)
	b = netlink.AppendAttr(b, attrTupleOrig|nested, c.tuple)
	b = netlink.AppendAttr(b, attrZone, binary.BigEndian.AppendUint16(nil, c.zone))
	b = netlink.AppendAttr(b, attrMark, binary.BigEndian.AppendUint32(nil, 0))
	b = netlink.AppendAttr(b, attrMarkMask, binary.BigEndian.AppendUint32(nil, revokedMark))
	return netlink.Finish(b)
}

func newRequest(kind, flags uint16, family byte) []byte {
	b := netlink.Request(kind, flags, genLen)
	b[netlink.HeaderLen] = family
	return b
}
