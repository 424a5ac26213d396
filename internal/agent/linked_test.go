// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-sdn/patchbay/openflow"
)

// politeSwitch says hello, tells its features and leaves every other question unanswered.
func politeSwitch(nc net.Conn) {
	const hello, featuresRequest, featuresReply = 0, 5, 6
	for {
		head := make([]byte, 8)
		if _, err := io.ReadFull(nc, head); err != nil {
			return
		}
		if _, err := io.CopyN(io.Discard, nc, int64(binary.BigEndian.Uint16(head[2:]))-8); err != nil {
			return
		}
		answer := head
		switch head[1] {
		case hello:
			binary.BigEndian.PutUint16(answer[2:], 8)
		case featuresRequest:
			answer = slices.Concat(head, make([]byte, 24))
			answer[1] = featuresReply
			binary.BigEndian.PutUint16(answer[2:], 32)
		default:
			continue
		}
		if _, err := nc.Write(answer); err != nil {
			return
		}
	}
}

// A bridge that is set up anew by the switch breaks its connection at once, often before its flows are asked for.
func TestABridgeThatIsLostAsSoonAsItIsFound(t *testing.T) {
	ours, theirs := net.Pipe()
	go politeSwitch(theirs)
	conn, err := openflow.NewConn(t.Context(), ours, openflow.Config{})
	if err != nil {
		t.Fatal(err)
	}
	a := &Agent{inbox: newMailbox[any](), wiring: newWiring(), wake: time.NewTimer(time.Hour)}
	a.bridgeLinked(t.Context(), linked{"br-int", Link{Conn: conn}})
	a.bridgeLinked(t.Context(), linked{"br-int", Link{Err: errors.New("gone")}})
	_ = conn.Close()
	a.work.Wait() // the race detector looks at who used the connection
	for _, e := range a.inbox.take() {
		if d, ok := e.(dumped); !ok || d.conn != conn || d.err == nil {
			t.Errorf("got %+v, want the failed question to the connection that was lost", e)
		}
	}
}

// hung is a connection on which nothing happens.
type hung struct {
	Conn
	closed bool
}

func (h *hung) Close() error { h.closed = true; return nil }

// A bundle that failed with its connection says nothing about the next connection, whose dump may be in by then.
func TestABundleOfALostConnection(t *testing.T) {
	before, after := &hung{}, &hung{}
	a := &Agent{wiring: newWiring()}
	b := a.bridge("br-int")
	b.conn = after
	b.tracker.Have(nil)
	a.bundleFailed(bundle{name: "br-int", conn: before, err: errors.New("gone")}, time.Now())
	if !b.tracker.Known() || after.closed {
		t.Error("what is known over the new connection is forgotten, and nobody asks again")
	}
	a.bundleFailed(bundle{name: "br-int", conn: after, err: context.DeadlineExceeded}, time.Now())
	if b.tracker.Known() || !after.closed {
		t.Error("a connection without an answer is kept, and what the switch has is not known")
	}
}

// A bridge is tried often however long it has been away: once its switch is back it waits for flows.
func TestABridgeThatWasAwayForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tried []time.Time
		began := time.Now()
		links := Supervised(func(context.Context, string) (*openflow.Conn, error) {
			tried = append(tried, time.Now())
			return nil, errors.New("nobody listens")
		})(t.Context(), "br-int")
		if l := <-links; l.Err == nil || l.Conn != nil {
			t.Errorf("a link of nobody: %+v", l)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		for i, at := range tried {
			if i > 0 && at.Sub(tried[i-1]) > 250*time.Millisecond {
				t.Fatalf("nobody tried for %v, %v after the switch was lost", at.Sub(tried[i-1]), at.Sub(began))
			}
		}
		if n := len(tried); n < 240 || n > 420 {
			t.Errorf("%d attempts in a minute", n)
		}
	})
}
