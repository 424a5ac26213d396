// SPDX-License-Identifier: Apache-2.0

package messaging

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"sync"
)

// TooLargeError says that a message was refused for its size. Of a refused message only the end was kept, so what it said is
// not known.
type TooLargeError struct {
	Size  int64 // bytes of the body; after decompression where that was too much, and then at least so many
	Limit int64 // the bytes that a body may have, or all unhandled ones of a queue together
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("the message has %d bytes, and with those that wait %d are accepted", e.Size, e.Limit)
}

// intake bounds the bytes of messages that have been received and not been handled yet, for each consumer. The AMQP library
// puts a body of any size together in memory before anybody can look at it, and prefetch counts messages, not bytes. So the
// frames are looked at before the library has them: the header of a message has the size of its body.
type intake struct {
	mu      sync.Mutex
	limit   map[string]int64 // by consumer tag
	held    map[string]int64 // bytes that are received or announced, and not released
	refused map[deliveryKey]int64
}

// deliveryKey names a delivery of one connection; consumer tags are not used twice on it.
type deliveryKey struct {
	consumer string
	delivery uint64
}

func newIntake() *intake {
	return &intake{limit: map[string]int64{}, held: map[string]int64{}, refused: map[deliveryKey]int64{}}
}

// admit sets the bound of a consumer that is about to begin.
func (i *intake) admit(consumer string, limit int64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.limit[consumer] = limit
}

// leave ends a consumer.
func (i *intake) leave(consumer string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.limit, consumer)
	delete(i.held, consumer)
}

// accept decides about a body that is about to come.
func (i *intake) accept(k deliveryKey, size uint64) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	limit, known := i.limit[k.consumer]
	if !known { // it has ended, and nobody reads what the broker still sends
		return false
	}
	if size > uint64(limit) || i.held[k.consumer] > limit-int64(size) { //nolint:gosec // the first condition bounds it
		i.refused[k] = int64(min(size, math.MaxInt64)) //nolint:gosec // bounded
		i.held[k.consumer] += int64(min(size, tailKept))
		return false
	}
	i.held[k.consumer] += int64(size) //nolint:gosec // bounded by the limit
	return true
}

// verdict says whether a delivery was refused. It says so once.
func (i *intake) verdict(k deliveryKey) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	size, refused := i.refused[k]
	if !refused {
		return nil
	}
	delete(i.refused, k)
	return &TooLargeError{Size: size, Limit: i.limit[k.consumer]}
}

// release takes back the bytes of a delivery, or of what came in its place.
func (i *intake) release(consumer string, size int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if _, ok := i.held[consumer]; ok {
		i.held[consumer] -= int64(size)
	}
}

// tailKept is how much of the end of a refused body is handed on: a reply says there which call it answers.
const tailKept = 4096

// AMQP 0-9-1 frames: type, channel, size of the payload, payload, end.
const (
	frameMethod = 1
	frameHeader = 2
	frameBody   = 3
	frameHead   = 7
	frameEnd    = 0xce

	classBasic   = 60
	basicDeliver = 60
	// A delivery begins with class, method and the consumer's tag, a length and at most 255 bytes, then its own number.
	deliverStart = 2 + 2 + 1
	// A header begins with class, weight and the size of the body.
	headerStart = 2 + 2 + 8
)

// frames passes AMQP frames on as they come, except that a body that the intake refuses is swallowed: in its place goes its
// end, at most tailKept bytes, under a header that says so.
type frames struct {
	in       *bufio.Reader
	intake   *intake
	left     int64  // bytes of the current frame that are still to be passed on
	out      []byte // bytes to be passed on before anything else is read
	channels map[uint16]*content
}

// content is the delivery that is coming in on a channel.
type content struct {
	key     deliveryKey
	deliver bool  // the last method was a delivery
	skip    int64 // bytes of the refused body that are still to come
	tail    []byte
}

func newFrames(in *bufio.Reader, i *intake) *frames {
	return &frames{in: in, intake: i, channels: map[uint16]*content{}}
}

// Read implements io.Reader.
func (f *frames) Read(b []byte) (int, error) {
	for {
		if len(f.out) > 0 {
			n := copy(b, f.out)
			f.out = f.out[n:]
			return n, nil
		}
		if f.left > 0 {
			n, err := f.in.Read(b[:min(int64(len(b)), f.left)])
			f.left -= int64(n)
			return n, err
		}
		if err := f.next(); err != nil {
			return 0, err
		}
	}
}

// next looks at the beginning of a frame and decides what becomes of it. What does not look like a frame is passed on: the
// library says what is wrong with it.
func (f *frames) next() error {
	head, err := f.in.Peek(frameHead)
	if err != nil {
		if n := f.in.Buffered(); n > 0 {
			f.left = int64(n) // the rest of a broken stream
			return nil
		}
		return err
	}
	kind, channel, size := head[0], binary.BigEndian.Uint16(head[1:]), int64(binary.BigEndian.Uint32(head[3:]))
	f.left = frameHead + size + 1
	switch kind {
	case frameMethod:
		return f.method(channel, size)
	case frameHeader:
		return f.header(channel, size)
	case frameBody:
		if c := f.channels[channel]; c != nil && c.skip > 0 {
			f.left = 0
			return f.swallow(c, size)
		}
	}
	return nil
}

// method notes which delivery comes next on the channel.
func (f *frames) method(channel uint16, size int64) error {
	payload, err := f.payload(min(size, deliverStart+255+8))
	if err != nil {
		return err
	}
	c := f.channels[channel]
	if c == nil {
		c = &content{}
		f.channels[channel] = c
	}
	c.deliver = false
	if len(payload) < deliverStart || binary.BigEndian.Uint16(payload) != classBasic || binary.BigEndian.Uint16(payload[2:]) != basicDeliver {
		return nil
	}
	rest := payload[deliverStart:]
	n := int(payload[deliverStart-1])
	if len(rest) < n+8 {
		return nil
	}
	c.key = deliveryKey{string(rest[:n]), binary.BigEndian.Uint64(rest[n:])}
	c.deliver = true
	return nil
}

// header decides about the body that follows.
func (f *frames) header(channel uint16, size int64) error {
	c := f.channels[channel]
	if c == nil || !c.deliver || size < headerStart {
		return nil
	}
	payload, err := f.payload(headerStart)
	if err != nil {
		return err
	}
	body := binary.BigEndian.Uint64(payload[4:])
	if f.intake.accept(c.key, body) {
		return nil
	}
	if body > math.MaxInt64 {
		return fmt.Errorf("a message is announced with %d bytes", body)
	}
	c.skip, c.tail = int64(body), make([]byte, 0, 2*tailKept) //nolint:gosec // checked above
	if body == 0 {
		return nil
	}
	changed := make([]byte, frameHead+headerStart)
	if _, err := io.ReadFull(f.in, changed); err != nil {
		return err
	}
	binary.BigEndian.PutUint64(changed[frameHead+4:], min(body, tailKept))
	f.out = changed
	f.left = size - headerStart + 1
	return nil
}

// swallow reads one frame of a refused body, and puts its end in its place when it was the last one.
func (f *frames) swallow(c *content, size int64) error {
	var head [frameHead]byte
	if _, err := io.ReadFull(f.in, head[:]); err != nil {
		return err
	}
	for left := size; left > 0; {
		part, err := f.in.Peek(int(min(left, tailKept)))
		if err != nil {
			return err
		}
		if len(c.tail)+len(part) > cap(c.tail) {
			c.tail = c.tail[:copy(c.tail, c.tail[len(c.tail)-min(len(c.tail), tailKept):])]
		}
		c.tail = append(c.tail, part...)
		left -= int64(len(part))
		if _, err := f.in.Discard(len(part)); err != nil {
			return err
		}
	}
	var end [1]byte
	if _, err := io.ReadFull(f.in, end[:]); err != nil {
		return err
	}
	if c.skip -= size; c.skip > 0 {
		return nil
	}
	tail := c.tail[max(0, len(c.tail)-tailKept):]
	out := append(make([]byte, 0, frameHead+len(tail)+1), head[:]...)
	binary.BigEndian.PutUint32(out[3:], uint32(len(tail))) //nolint:gosec // at most tailKept
	f.out = append(append(out, tail...), frameEnd)
	c.skip, c.tail = 0, nil
	return nil
}

// payload is the beginning of the frame's payload; nothing is taken.
func (f *frames) payload(n int64) ([]byte, error) {
	b, err := f.in.Peek(frameHead + int(n))
	if err != nil {
		return nil, err
	}
	return b[frameHead:], nil
}
