// SPDX-License-Identifier: Apache-2.0

package messaging

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"
)

func frame(kind byte, channel uint16, payload []byte) []byte {
	b := binary.BigEndian.AppendUint16([]byte{kind}, channel)
	b = binary.BigEndian.AppendUint32(b, uint32(len(payload))) //nolint:gosec // of a test
	return append(append(b, payload...), frameEnd)
}

func deliverFrame(channel uint16, tag string, number uint64) []byte {
	p := []byte{0, classBasic, 0, basicDeliver, byte(len(tag))}
	p = binary.BigEndian.AppendUint64(append(p, tag...), number)
	return frame(frameMethod, channel, append(p, 0, 1, 'x', 1, 'k')) // not redelivered, exchange, key
}

func headerFrame(channel uint16, size int, more string) []byte {
	p := binary.BigEndian.AppendUint64([]byte{0, classBasic, 0, 0}, uint64(size)) //nolint:gosec // of a test
	return frame(frameHeader, channel, append(p, more...))
}

// bodyFrames cuts a body into frames.
func bodyFrames(channel uint16, body []byte, size int) [][]byte {
	var list [][]byte
	for len(body) > 0 {
		n := min(len(body), size)
		list = append(list, frame(frameBody, channel, body[:n]))
		body = body[n:]
	}
	return list
}

// passed is what the library gets to read of a stream.
func passed(t interface{ Fatal(args ...any) }, in *intake, r io.Reader) []byte {
	out, err := io.ReadAll(newFrames(bufio.NewReaderSize(r, readAhead), in))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestFrames: messages on several channels come in interleaved and in pieces of any size; those over the bound are replaced by
// their end, and everything else passes unchanged.
func TestFrames(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const limit = 20_000
		in := newIntake()
		tags := []string{"", "1", "a longer tag"}
		var streams, wants [][][]byte
		refused := map[deliveryKey]int64{}
		for i, tag := range tags {
			channel := uint16(i + 1) //nolint:gosec // small
			in.admit(tag, limit)
			held := 0
			var stream, want [][]byte
			for n := range rapid.IntRange(0, 4).Draw(t, "messages") {
				key := deliveryKey{tag, uint64(n + 1)} //nolint:gosec // small
				body := bytes.Repeat([]byte{byte('a' + n)}, rapid.SampledFrom([]int{0, 1, tailKept - 1, tailKept, tailKept + 1, limit, limit + 1, 300_000}).Draw(t, "size"))
				copy(body[max(0, len(body)-3):], "end")
				size := rapid.SampledFrom([]int{100, 4000, 131_064}).Draw(t, "frame")
				head := [][]byte{deliverFrame(channel, tag, key.delivery)}
				stream = append(append(stream, head[0], headerFrame(channel, len(body), "props")), bodyFrames(channel, body, size)...)
				if held+len(body) <= limit {
					held += len(body)
					want = append(append(want, head[0], headerFrame(channel, len(body), "props")), bodyFrames(channel, body, size)...)
					continue
				}
				refused[key] = int64(len(body))
				tail := body[max(0, len(body)-tailKept):]
				held += len(tail)
				want = append(append(want, head[0], headerFrame(channel, len(tail), "props")), bodyFrames(channel, tail, tailKept)...)
			}
			streams, wants = append(streams, stream), append(wants, want)
		}
		heartbeat := frame(8, 0, nil)
		stream := []byte(nil)
		for len(streams[0])+len(streams[1])+len(streams[2]) > 0 {
			i := rapid.IntRange(0, 2).Draw(t, "channel")
			if len(streams[i]) > 0 {
				stream, streams[i] = append(stream, streams[i][0]...), streams[i][1:]
			} else {
				stream = append(stream, heartbeat...)
			}
		}
		var r io.Reader = bytes.NewReader(stream)
		if rapid.Bool().Draw(t, "in pieces") {
			r = iotest.HalfReader(r)
		}
		out := passed(t, in, r)
		// Order among channels may change, since a replaced body comes with its last frame; order within one may not.
		got := make([][]byte, len(tags))
		for len(out) > 0 {
			n := frameHead + int(binary.BigEndian.Uint32(out[3:])) + 1
			if channel := binary.BigEndian.Uint16(out[1:]); channel > 0 {
				got[channel-1] = append(got[channel-1], out[:n]...)
			}
			out = out[n:]
		}
		for i, want := range wants {
			if !bytes.Equal(got[i], bytes.Join(want, nil)) {
				t.Fatalf("channel %d: %d bytes passed, want %d", i+1, len(got[i]), len(bytes.Join(want, nil)))
			}
		}
		for key, size := range refused {
			var large *TooLargeError
			if err := in.verdict(key); !errors.As(err, &large) || large.Size != size || large.Limit != limit {
				t.Fatalf("%v of %d bytes: %v", key, size, err)
			}
			if err := in.verdict(key); err != nil {
				t.Fatalf("said twice: %v", err)
			}
		}
		if len(in.refused) > 0 {
			t.Fatalf("refused besides: %v", in.refused)
		}
	})
}

// A message counts until it is released.
func TestIntakeCountsWhatWaits(t *testing.T) {
	in := newIntake()
	in.admit("1", 100)
	key := func(n uint64) deliveryKey { return deliveryKey{"1", n} }
	if !in.accept(key(1), 60) || in.accept(key(2), 41) {
		t.Error("101 bytes of 100 are accepted")
	}
	in.release("1", 60)
	in.release("1", 41)
	if !in.accept(key(3), 100) {
		t.Errorf("%d bytes are held after all was released", in.held["1"])
	}
	in.release("1", 100)
	in.admit("1", 5000)
	if in.accept(key(5), 10_000) || in.held["1"] != tailKept { // only the end of it is kept
		t.Errorf("%d bytes are held of what was refused", in.held["1"])
	}
	if in.accept(key(6), 5000-tailKept+1) || in.accept(deliveryKey{"2", 7}, 1) {
		t.Error("5001 bytes of 5000 are accepted, or some of nobody")
	}
	in.leave("1")
	if in.accept(key(4), 1) {
		t.Error("a consumer that has ended accepts messages")
	}
	in.release("1", 100)
	if len(in.held)+len(in.limit) > 0 {
		t.Errorf("left of a consumer that has ended: %v %v", in.held, in.limit)
	}
}

// TestFramesThatAreNoDelivery: only the body of a delivery can be refused, on the channel of that delivery.
func TestFramesThatAreNoDelivery(t *testing.T) {
	const limit = 10
	large := bytes.Repeat([]byte("x"), 100)
	returned := frame(frameMethod, 1, []byte{0, classBasic, 0, 50, 0, 0})
	short := frame(frameHeader, 1, bytes.Repeat([]byte{0xff}, headerStart-1))
	bare := frame(frameMethod, 1, binary.BigEndian.AppendUint64([]byte{0, classBasic, 0, basicDeliver, 1, '1'}, 9)) // ends with the number
	cut := frame(frameMethod, 1, []byte{0, classBasic, 0, basicDeliver, 1, '1', 0, 0})
	refusedLarge := slices.Concat(headerFrame(1, len(large), ""), frame(frameBody, 1, large))
	for name, c := range map[string]struct {
		stream  [][]byte
		want    []byte // nil: all of it, unchanged
		refused int
	}{
		"a message that came back":          {[][]byte{deliverFrame(1, "1", 1), headerFrame(1, 3, ""), frame(frameBody, 1, []byte("abc")), returned, refusedLarge}, nil, 0},
		"one that came back first":          {[][]byte{returned, refusedLarge}, nil, 0},
		"on a channel that has nothing":     {[][]byte{refusedLarge}, nil, 0},
		"a header that is too short":        {[][]byte{deliverFrame(1, "1", 1), short, frame(frameBody, 1, large)}, nil, 0},
		"a delivery that is too short":      {[][]byte{cut, refusedLarge}, nil, 0},
		"a method of four bytes":            {[][]byte{frame(frameMethod, 1, []byte{0, classBasic, 0, basicDeliver}), refusedLarge}, nil, 0},
		"a class that is not basic":         {[][]byte{frame(frameMethod, 1, append([]byte{0, 50, 0, basicDeliver, 1, '1'}, make([]byte, 8)...)), refusedLarge}, nil, 0},
		"channels that end in the same":     {[][]byte{deliverFrame(257, "1", 1), deliverFrame(1, "big", 1), headerFrame(257, 100, ""), frame(frameBody, 257, large), refusedLarge}, slices.Concat(deliverFrame(257, "1", 1), deliverFrame(1, "big", 1), headerFrame(257, 100, ""), frame(frameBody, 257, large), refusedLarge), 1},
		"a delivery that has nothing else":  {[][]byte{bare, refusedLarge}, slices.Concat(bare, refusedLarge), 1},
		"an empty body of one that is gone": {[][]byte{deliverFrame(1, "gone", 1), headerFrame(1, 0, ""), deliverFrame(1, "big", 2), refusedLarge}, nil, 0},
	} {
		in := newIntake()
		in.admit("1", limit)
		in.admit("big", 1000)
		stream := bytes.Join(c.stream, nil)
		want := stream
		if c.want != nil {
			want = c.want
		}
		if got := passed(t, in, bytes.NewReader(stream)); !bytes.Equal(got, want) || len(in.refused) != c.refused {
			t.Errorf("%s: %d bytes passed of %d, refused %v", name, len(got), len(want), in.refused)
		}
	}
	// A stream that breaks off anywhere ends with the reason.
	broken := errors.New("broken")
	stream := slices.Concat(deliverFrame(1, "1", 1), headerFrame(1, len(large), "props"), frame(frameBody, 1, large[:50]), frame(frameBody, 1, large[50:]), frame(8, 0, nil))
	for n := range len(stream) {
		in := newIntake()
		in.admit("1", limit)
		r := io.MultiReader(bytes.NewReader(stream[:n]), iotest.ErrReader(broken))
		if _, err := io.ReadAll(newFrames(bufio.NewReaderSize(r, readAhead), in)); !errors.Is(err, broken) {
			t.Fatalf("after %d bytes: %v", n, err)
		}
	}
	// More than there can be.
	in := newIntake()
	in.admit("1", limit)
	huge := frame(frameHeader, 1, []byte{0, classBasic, 0, 0, 0xff, 0, 0, 0, 0, 0, 0, 0})
	if _, err := io.ReadAll(newFrames(bufio.NewReaderSize(bytes.NewReader(slices.Concat(deliverFrame(1, "1", 1), huge)), readAhead), in)); err == nil {
		t.Error("a body of 2^64 bytes is waited for")
	}
}

func TestAnswers(t *testing.T) {
	id := newID()
	body, err := reply(id, newID(), map[string]string{"_msg_id": newID()}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for tail, want := range map[string]string{
		string(body): id, `{\"_msg_id\": \"` + id + `\", \"_unique_id\": \"` + newID() + `\"}"}`: id,
		`_msg_id/` + id + `:`: id, "_msg_id`" + id + "g": id, `_msg_id@` + id + `G`: id, `_msg_id:` + id[1:]: "",
		"": "", "_msg_id": "", `_msg_id: "12"`: "", `_msg_id` + id + "0": "",
	} {
		if got := answers([]byte(tail)); got != want {
			t.Errorf("%s: %q, want %q", tail, got, want)
		}
	}
}

// FuzzFrames: whatever the peer sends, nothing panics, and nothing is changed while nothing is refused.
func FuzzFrames(f *testing.F) {
	f.Add(bytes.Join([][]byte{deliverFrame(1, "1", 1), headerFrame(1, 3, ""), frame(frameBody, 1, []byte("abc")), frame(8, 0, nil)}, nil))
	f.Add(bytes.Join([][]byte{deliverFrame(1, "1", 1), headerFrame(1, 100, ""), frame(frameBody, 1, make([]byte, 100))}, nil))
	f.Add([]byte("AMQP\x00\x00\x09\x01"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		for _, limit := range []int64{10, 1 << 62} {
			in := newIntake()
			in.admit("1", limit)
			out, _ := io.ReadAll(newFrames(bufio.NewReaderSize(bytes.NewReader(stream), readAhead), in))
			// The last frame may be missing when it is cut off.
			if len(in.refused) == 0 && limit > 10 && !bytes.HasPrefix(stream, out) && !swallowed(stream) {
				t.Errorf("%x became %x", stream, out)
			}
		}
	})
}

// swallowed tells whether the stream has a delivery for another consumer than the one there is.
func swallowed(stream []byte) bool {
	return bytes.Contains(stream, []byte{0, classBasic, 0, basicDeliver}) && !bytes.Contains(stream, []byte{0, classBasic, 0, basicDeliver, 1, '1'})
}
