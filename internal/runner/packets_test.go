// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/effect"
	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/openflow"
)

// packetConn is a connection over which packets come.
type packetConn struct {
	effect.Conn
	packets chan *openflow.PacketIn
	done    chan struct{}
	id      uint16
	err     error
	closed  bool
}

func (c *packetConn) PacketIns() <-chan *openflow.PacketIn { return c.packets }

// EnablePacketIns notes the controller id.
func (c *packetConn) EnablePacketIns(_ context.Context, id uint16) error {
	c.id = id
	return c.err
}

func (c *packetConn) Done() <-chan struct{} { return c.done }

func (c *packetConn) Close() error {
	c.closed = true
	return nil
}

// TestPacketConns: a further connection has its controller id, its packets are answered by the one that changes flows, one that cannot be had is closed, so that
// there is another one, the loop is told of the second failure in a row, and all end with the one that changes flows.
func TestPacketConns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []effect.PacketIn
		var unheard []string
		links := make(chan Link)
		var kept context.Context
		r := New(Config{PacketLink: func(ctx context.Context, bridge string) <-chan Link {
			if kept = ctx; bridge != "br-int" {
				t.Errorf("a connection to %s", bridge)
			}
			return links
		}}, func(e effect.Event) {
			if e, ok := e.(effect.PacketsUnheard); ok {
				unheard = append(unheard, e.Err.Error())
				return
			}
			got = append(got, e.(effect.PacketIn))
		})
		main := &packetConn{done: make(chan struct{})}
		over := make(chan struct{})
		go func() {
			r.keepPacketConn(t.Context(), "br-int", main, 3, map[string]extension.Bound{"dhcp": extension.DefaultBound()})
			close(over)
		}()
		refused := &packetConn{err: errors.New("no")}
		links <- Link{Err: errors.New("away")}
		links <- Link{Conn: refused}
		for range 2 { // the second in place of the first, which has ended
			c := &packetConn{packets: make(chan *openflow.PacketIn)}
			links <- Link{Conn: c}
			c.packets <- &openflow.PacketIn{Userdata: []byte("dhcp x")}
			close(c.packets)
			synctest.Wait()
			if c.id != 3 || c.closed {
				t.Errorf("controller id %d, closed %v", c.id, c.closed)
			}
			links <- Link{Err: errors.New("ended")} // the first failure after it worked
		}
		if !slices.Equal(unheard, []string{"no"}) {
			t.Errorf("the loop was told %q", unheard)
		}
		if !refused.closed || kept.Err() != nil {
			t.Errorf("closed %v, %v", refused.closed, kept.Err())
		}
		close(main.done)
		<-kept.Done()
		close(links)
		<-over
		if len(got) != 2 || got[1].Conn != effect.Conn(main) || got[1].Bridge != "br-int" {
			t.Errorf("%+v", got)
		}
	})
}

// TestOnePortCostsNoOther: of a flood of one port as many packets reach the loop as the bound allows, another's reach it all, and what was dropped is counted.
func TestOnePortCostsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []effect.PacketIn
		r := New(Config{}, func(e effect.Event) { got = append(got, e.(effect.PacketIn)) })
		c := &packetConn{packets: make(chan *openflow.PacketIn)}
		done := make(chan struct{})
		go func() {
			r.takePackets("br-int", c, c, map[string]extension.Bound{"dhcp": extension.DefaultBound(), "log": {Rate: 1000, Burst: 100}})
			close(done)
		}()
		send := func(from string, n int) {
			for range n {
				c.packets <- &openflow.PacketIn{Userdata: []byte(from)}
			}
		}
		send("dhcp bad", 10000)
		send("dhcp good", 4)
		send("log busy", 150)
		time.Sleep(time.Second)
		send("dhcp bad", 1)
		close(c.packets)
		<-done
		if want := extension.PacketBurst + 4 + 100 + 1; len(got) != want {
			t.Errorf("%d packets reached the loop, want %d", len(got), want)
		}
		if last := got[len(got)-1]; last.Limited != 10000-extension.PacketBurst {
			t.Errorf("%d packets are counted as dropped, want %d", last.Limited, 10000-extension.PacketBurst)
		}
	})
}
