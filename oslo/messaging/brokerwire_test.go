// SPDX-License-Identifier: Apache-2.0

package messaging

import (
	"encoding/binary"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// memArgs are the arguments of a method, read one after the other.
type memArgs struct{ b []byte }

func (a *memArgs) take(n int) []byte { v := a.b[:n]; a.b = a.b[n:]; return v }
func (a *memArgs) short() uint16     { return binary.BigEndian.Uint16(a.take(2)) }
func (a *memArgs) long() uint32      { return binary.BigEndian.Uint32(a.take(4)) }
func (a *memArgs) longlong() uint64  { return binary.BigEndian.Uint64(a.take(8)) }
func (a *memArgs) bits() byte        { return a.take(1)[0] }
func (a *memArgs) text() string      { return string(a.take(int(a.take(1)[0]))) }
func (a *memArgs) longText() string  { return string(a.take(int(a.long()))) }

func (a *memArgs) table() amqp.Table {
	t := amqp.Table{}
	in := memArgs{a.take(int(a.long()))}
	for len(in.b) > 0 {
		name := in.text()
		switch kind := in.bits(); kind {
		case 'S':
			t[name] = in.longText()
		case 't':
			t[name] = in.bits() != 0
		case 'l':
			t[name] = int64(in.longlong())
		case 'I':
			t[name] = int32(in.long())
		case 'T':
			t[name] = time.Unix(int64(in.longlong()), 0)
		case 'F':
			t[name] = in.table()
		default:
			panic(fmt.Sprintf("table field %s of kind %c", name, kind))
		}
	}
	return t
}

func memText(s string) []byte { return append([]byte{byte(len(s))}, s...) }

func memJoin(parts ...any) []byte {
	var out []byte
	for _, p := range parts {
		switch p := p.(type) {
		case string:
			out = append(out, memText(p)...)
		case []byte:
			out = append(out, p...)
		case byte:
			out = append(out, p)
		case uint16:
			out = binary.BigEndian.AppendUint16(out, p)
		case uint32:
			out = binary.BigEndian.AppendUint32(out, p)
		case uint64:
			out = binary.BigEndian.AppendUint64(out, p)
		}
	}
	return out
}

func memFrame(kind byte, channel uint16, payload []byte) []byte {
	return memJoin(kind, channel, uint32(len(payload)), payload, byte(0xCE))
}

func memContent(channel uint16, m memMessage) []byte {
	frames := memFrame(2, channel, m.header)
	if len(m.body) > 0 {
		frames = append(frames, memFrame(3, channel, m.body)...)
	}
	return frames
}

func memMethod(channel, class, method uint16, args ...any) []byte {
	return memFrame(1, channel, memJoin(class, method, memJoin(args...)))
}
