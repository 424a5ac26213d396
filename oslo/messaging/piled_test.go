// SPDX-License-Identifier: Apache-2.0

package messaging

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// piled is a connection that has messages waiting for its reader, as many as prefetch allows. The kernel and the broker have no part in it.
type piled struct {
	net.Conn
	flood   atomic.Bool
	message []byte // the frames of one
	tagAt   int    // where the tag of the delivery is in them
	idAt    int    // where the message's id is
	tag     uint64 // of the last one
	left    int
	rest    []byte        // of a message that did not fit
	room    chan struct{} // has a token for each message that may be sent
}

// Read implements net.Conn.
func (p *piled) Read(b []byte) (n int, err error) {
	if !p.flood.Load() {
		return p.Conn.Read(b)
	}
	for n < len(b) {
		if len(p.rest) == 0 {
			if p.left == 0 && n == 0 {
				p.flood.Store(false)
				return p.Conn.Read(b)
			}
			if p.left == 0 || n > 0 && len(p.room) == 0 {
				return n, nil
			}
			<-p.room
			p.left--
			p.tag++
			copy(p.message[p.tagAt:], memJoin(p.tag))
			copy(p.message[p.idAt:], fmt.Appendf(nil, "%032x", p.tag))
			p.rest = p.message
		}
		k := copy(b[n:], p.rest)
		p.rest, n = p.rest[k:], n+k
	}
	return n, nil
}

// Write implements net.Conn. What the client says during the flood are acknowledgements.
func (p *piled) Write(b []byte) (int, error) {
	if p.flood.Load() {
		return len(b), nil
	}
	return p.Conn.Write(b)
}

// BenchmarkPiledPush is what the client does with a push that waits, until a handler has it.
func BenchmarkPiledPush(b *testing.B) {
	broker, line := newMemBroker(), &piled{left: b.N, room: make(chan struct{}, servicePrefetch)}
	cfg := testConfig(b, "rabbit://u:p@h:5672/")
	cfg.Hub = "hub"
	cfg.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := broker.dial(ctx, network, addr)
		line.Conn = conn
		return line, err
	}
	c, err := Open(cfg)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = c.Close(context.Background()) }()
	handled, all := 0, make(chan struct{})
	const topic = "neutron-vo-Port-1.7"
	err = c.Serve(b.Context(), Service{Topics: []string{topic}, Handler: func(_ context.Context, m *Message) (any, error) {
		if handled++; handled == 1 && m.Method != "first" {
			b.Error("the flood began before the message that wakes the reader")
		}
		if handled == b.N+1 {
			close(all)
		}
		if handled > 1 {
			line.room <- struct{}{}
		}
		return nil, nil
	}})
	if err != nil {
		b.Fatal(err)
	}
	body := somePush(b)
	line.prepare(broker, c.layout.privateQ, topic+"_fanout", body)
	for range cap(line.room) {
		line.room <- struct{}{}
	}
	time.Sleep(50 * time.Millisecond) // until the reader waits at the broker's end
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	b.ResetTimer()
	before := cpuTime(b)
	line.flood.Store(true)
	broker.put(c.layout.privateQ, topic+"_fanout", "", nil, rawRequest(b, "id", "first", "", ""))
	<-all
	b.ReportMetric(float64((cpuTime(b)-before).Microseconds())/float64(b.N), "cpu-µs/op")
	b.StopTimer()
}

// prepare makes the frames of a push to a queue, as RabbitMQ sends them.
func (p *piled) prepare(b *memBroker, queue, exchange string, body []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	k := b.queues[queue].consumers[0]
	p.tag = k.conn.tags[k.channel] + 1
	properties := memJoin(uint16(1<<15|1<<14|1<<13|1<<12|1<<11), "application/json", "utf-8", uint32(0), byte(2), byte(0))
	header := memJoin(uint16(60), uint16(0), uint64(len(body)), properties)
	deliver := memMethod(k.channel, 60, 60, k.tag, uint64(0), byte(0), exchange, "")
	p.tagAt = 7 + 4 + 1 + len(k.tag)
	p.message = append(deliver, memContent(k.channel, memMessage{header: header, body: body})...)
	p.idAt = bytes.Index(p.message, []byte(strings.Repeat("0", 32)))
}

// somePush is a push of the size that neutron-server sends about a port.
func somePush(b *testing.B) []byte {
	b.Helper()
	data, fields := map[string]any{}, map[string]any{}
	for i := range 40 {
		data[fmt.Sprint("field_", i)] = "0f0f0f0f-0000-4000-8000-000000000000"
	}
	for i := range 24 {
		fields[fmt.Sprint("field", i)] = "value"
	}
	args := map[string]any{"event_type": "updated", "resource_list": []any{map[string]any{"versioned_object.name": "Port", "versioned_object.data": data}}}
	body, err := request(Target{Version: "1.1"}, "push", args, fields, strings.Repeat("0", 32), "", "")
	if err != nil {
		b.Fatal(err)
	}
	return body
}

// cpuTime is what this process has used: other work of the machine counts in the time of the clock.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		b.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
