// SPDX-License-Identifier: Apache-2.0

package tape

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/patchbay-sdn/patchbay/internal/effect"
	"github.com/patchbay-sdn/patchbay/internal/resolver"
	"github.com/patchbay-sdn/patchbay/openflow"
)

// TestResolverAnswer: an answer of a resolver is read as it was recorded, with the connection of the packet that it is for.
func TestResolverAnswer(t *testing.T) {
	c, f, link := &encoder{}, newFlight("hv1"), &conn{}
	want := effect.ResolverAnswered{
		Extension: 3, Bridge: "br-int", Conn: link, Err: errors.New("nobody answers"),
		Answer: resolver.Answer{Number: 7, Message: []byte{1, 2, 3}, From: netip.MustParseAddrPort("192.0.2.53:53")},
	}
	var conns []effect.Conn
	for _, e := range []effect.Event{effect.PacketIn{Bridge: "br-int", Conn: link, Packet: &openflow.PacketIn{}}, want} {
		d, err := c.document(e)
		if err != nil {
			t.Fatal(err)
		}
		again, err := f.event(&d)
		if err != nil {
			t.Fatal(err)
		}
		switch again := again.(type) {
		case effect.PacketIn:
			conns = append(conns, again.Conn)
		case effect.ResolverAnswered:
			conns = append(conns, again.Conn)
			if again.Extension != 3 || again.Bridge != "br-int" || again.Answer.Number != 7 || string(again.Answer.Message) != "\x01\x02\x03" || again.Answer.From != want.Answer.From ||
				again.Err == nil || again.Err.Error() != "nobody answers" {
				t.Errorf("%+v", again)
			}
		}
	}
	if len(conns) != 2 || conns[0] != conns[1] {
		t.Errorf("connections %v", conns)
	}
}

// TestPacketsUnheard: a failed connection for packets is read as it was recorded.
func TestPacketsUnheard(t *testing.T) {
	d, err := (&encoder{}).document(effect.PacketsUnheard{Bridge: "br-int", Err: errors.New("no")})
	if err != nil {
		t.Fatal(err)
	}
	f := newFlight("hv1")
	again, err := f.event(&d)
	if got, ok := again.(effect.PacketsUnheard); err != nil || !ok || got.Bridge != "br-int" || got.Err == nil || got.Err.Error() != "no" {
		t.Errorf("%+v, %v", again, err)
	}
}
