// SPDX-License-Identifier: Apache-2.0

package conntrack

import (
	"bytes"
	"encoding/binary"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/patchbay-sdn/patchbay/internal/netlink"
)

func newEntry(family byte, tuple, id []byte, zone uint16, mark uint32) []byte {
	b := newRequest(kindNew, 0, family)
	b = netlink.AppendAttr(b, attrTupleOrig|nested, tuple)
	if mark != 0 {
		b = netlink.AppendAttr(b, attrMark, binary.BigEndian.AppendUint32(nil, mark))
	}
	b = netlink.AppendAttr(b, attrID, id)
	if zone != 0 {
		b = netlink.AppendAttr(b, attrZone, binary.BigEndian.AppendUint16(nil, zone))
	}
	return netlink.Finish(b)
}

func TestConnection(t *testing.T) {
	tuple, id := []byte("12345678"), []byte("abcd")
	packet := append(newEntry(unix.AF_INET, tuple, id, 7, 0x11), newEntry(unix.AF_INET6, tuple[:5], id, 0, 0)...)
	m, rest, ok := netlink.Next(packet)
	if !ok || m.Kind != kindNew {
		t.Fatalf("first message: %+v, %v", m, ok)
	}
	c, ok := parseConnection(m.Payload)
	if !ok || c.family != unix.AF_INET || c.zone != 7 || c.mark != 0x11 || !bytes.Equal(c.tuple, tuple) || !bytes.Equal(c.id, id) {
		t.Fatalf("first: %+v, %v", c, ok)
	}
	// What would be asked to be removed is what was told.
	asked, _, ok := netlink.Next(deleteRequest(c))
	if !ok || asked.Kind != kindDelete {
		t.Fatalf("request: %+v, %v", asked, ok)
	}
	again, ok := parseConnection(asked.Payload)
	if !ok || again.family != c.family || again.zone != 7 || !bytes.Equal(again.tuple, tuple) || !bytes.Equal(again.id, id) {
		t.Fatalf("request: %+v, %v", again, ok)
	}
	if m, rest, ok = netlink.Next(rest); !ok {
		t.Fatal("no second message")
	}
	if c, ok = parseConnection(m.Payload); !ok || c.family != unix.AF_INET6 || c.zone != 0 || c.mark != 0 || len(c.tuple) != 5 {
		t.Fatalf("second: %+v, %v", c, ok)
	}
	if _, _, ok = netlink.Next(rest); ok {
		t.Fatal("a third message")
	}
}

func FuzzConnection(f *testing.F) {
	f.Add(newEntry(unix.AF_INET, []byte("12345678"), []byte("abcd"), 7, 1))
	f.Add(append(newEntry(unix.AF_INET6, []byte("1"), []byte("abcd"), 0, 0), netlink.Finish(newRequest(unix.NLMSG_DONE, 0, 0))...))
	f.Fuzz(func(t *testing.T, packet []byte) {
		for {
			m, rest, ok := netlink.Next(packet)
			if !ok {
				return
			}
			if len(rest) >= len(packet) {
				t.Fatal("no progress")
			}
			packet = rest
			_ = m.Errno()
			if d, ok := describe(netlink.Finish(append(newRequest(kindDelete, 0, 0), m.Payload...))); ok && (!d.Src.IsValid() || !d.Dst.IsValid()) {
				t.Fatalf("described without addresses: %+v", d)
			}
			c, ok := parseConnection(m.Payload)
			if !ok {
				continue
			}
			asked, _, ok := netlink.Next(deleteRequest(c))
			if !ok {
				t.Fatalf("%+v became no message", c)
			}
			again, ok := parseConnection(asked.Payload)
			if !ok || !bytes.Equal(again.tuple, c.tuple) || !bytes.Equal(again.id, c.id) || again.zone != c.zone || again.family != c.family {
				t.Fatalf("%+v became %+v", c, again)
			}
		}
	})
}
