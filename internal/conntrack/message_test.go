// SPDX-License-Identifier: Apache-2.0

package conntrack

import (
	"bytes"
	"encoding/binary"
	"errors"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func newEntry(family byte, tuple, id []byte, zone uint16, mark uint32) []byte {
	b := newRequest(kindNew, 0, family)
	b = appendAttr(b, attrTupleOrig|nested, tuple)
	if mark != 0 {
		b = appendAttr(b, attrMark, binary.BigEndian.AppendUint32(nil, mark))
	}
	b = appendAttr(b, attrID, id)
	if zone != 0 {
		b = appendAttr(b, attrZone, binary.BigEndian.AppendUint16(nil, zone))
	}
	return finish(b)
}

func TestConnection(t *testing.T) {
	tuple, id := []byte("12345678"), []byte("abcd")
	packet := append(newEntry(unix.AF_INET, tuple, id, 7, 0x11), newEntry(unix.AF_INET6, tuple[:5], id, 0, 0)...)
	m, rest, ok := nextMessage(packet)
	if !ok || m.kind != kindNew {
		t.Fatalf("first message: %+v, %v", m, ok)
	}
	c, ok := parseConnection(m.payload)
	if !ok || c.family != unix.AF_INET || c.zone != 7 || c.mark != 0x11 || !bytes.Equal(c.tuple, tuple) || !bytes.Equal(c.id, id) {
		t.Fatalf("first: %+v, %v", c, ok)
	}
	// What would be asked to be removed is what was told.
	asked, _, ok := nextMessage(deleteRequest(c))
	if !ok || asked.kind != kindDelete {
		t.Fatalf("request: %+v, %v", asked, ok)
	}
	again, ok := parseConnection(asked.payload)
	if !ok || again.family != c.family || again.zone != 7 || !bytes.Equal(again.tuple, tuple) || !bytes.Equal(again.id, id) {
		t.Fatalf("request: %+v, %v", again, ok)
	}
	if m, rest, ok = nextMessage(rest); !ok {
		t.Fatal("no second message")
	}
	if c, ok = parseConnection(m.payload); !ok || c.family != unix.AF_INET6 || c.zone != 0 || c.mark != 0 || len(c.tuple) != 5 {
		t.Fatalf("second: %+v, %v", c, ok)
	}
	if _, _, ok = nextMessage(rest); ok {
		t.Fatal("a third message")
	}
}

func TestErrno(t *testing.T) {
	payload := func(n int32) []byte { return binary.NativeEndian.AppendUint32(nil, uint32(n)) }
	if err := (message{kind: unix.NLMSG_ERROR, payload: payload(0)}).errno(); err != nil {
		t.Errorf("success: %v", err)
	}
	if err := (message{kind: unix.NLMSG_ERROR, payload: payload(-int32(syscall.ENOENT))}).errno(); !errors.Is(err, syscall.ENOENT) {
		t.Errorf("failure: %v", err)
	}
	if err := (message{kind: unix.NLMSG_DONE}).errno(); err != nil {
		t.Errorf("end: %v", err)
	}
	if err := (message{kind: unix.NLMSG_ERROR}).errno(); err == nil {
		t.Error("an error without a number is none")
	}
}

func FuzzConnection(f *testing.F) {
	f.Add(newEntry(unix.AF_INET, []byte("12345678"), []byte("abcd"), 7, 1))
	f.Add(append(newEntry(unix.AF_INET6, []byte("1"), []byte("abcd"), 0, 0), finish(newRequest(unix.NLMSG_DONE, 0, 0))...))
	f.Fuzz(func(t *testing.T, packet []byte) {
		for {
			m, rest, ok := nextMessage(packet)
			if !ok {
				return
			}
			if len(rest) >= len(packet) {
				t.Fatal("no progress")
			}
			packet = rest
			_ = m.errno()
			if d, ok := describe(finish(append(newRequest(kindDelete, 0, 0), m.payload...))); ok && (!d.Src.IsValid() || !d.Dst.IsValid()) {
				t.Fatalf("described without addresses: %+v", d)
			}
			c, ok := parseConnection(m.payload)
			if !ok {
				continue
			}
			asked, _, ok := nextMessage(deleteRequest(c))
			if !ok {
				t.Fatalf("%+v became no message", c)
			}
			again, ok := parseConnection(asked.payload)
			if !ok || !bytes.Equal(again.tuple, c.tuple) || !bytes.Equal(again.id, c.id) || again.zone != c.zone || again.family != c.family {
				t.Fatalf("%+v became %+v", c, again)
			}
		}
	})
}
