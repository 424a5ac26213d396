// SPDX-License-Identifier: Apache-2.0

package runner

import (
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
}

func (c *packetConn) PacketIns() <-chan *openflow.PacketIn { return c.packets }

// TestOnePortCostsNoOther: of a flood of one port as many packets reach the loop as the bound allows, another's reach it all, and what was dropped is counted.
func TestOnePortCostsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []effect.PacketIn
		r := New(Config{}, func(e effect.Event) { got = append(got, e.(effect.PacketIn)) })
		c := &packetConn{packets: make(chan *openflow.PacketIn)}
		done := make(chan struct{})
		go func() {
			r.takePackets("br-int", c, map[string]extension.Bound{"dhcp": extension.DefaultBound(), "log": {Rate: 1000, Burst: 100}})
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
