// SPDX-License-Identifier: Apache-2.0

package core

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/effect"
	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/resolver"
	"github.com/patchbay-sdn/patchbay/internal/world"
	"github.com/patchbay-sdn/patchbay/openflow"
)

// asker is an extension that asks a question for each packet.
type asker struct {
	idle
	next  uint64
	asks  []resolver.Ask
	fails bool
}

func (*asker) Name() string { return "asker" }

func (a *asker) OnPacket(extension.Packet) ([]openflow.Message, extension.Outcome) {
	a.next++
	a.asks = append(a.asks, resolver.Ask{Number: a.next})
	return nil, extension.Asked
}

func (a *asker) Asks() []resolver.Ask {
	out := a.asks
	a.asks = nil
	return out
}

func (a *asker) OnAnswer(r resolver.Answer, err error) ([]openflow.Message, extension.Outcome) {
	if a.fails {
		panic("no")
	}
	if err != nil {
		return nil, extension.Unanswered
	}
	return []openflow.Message{openflow.PacketOut{Packet: r.Message}}, extension.Answered
}

// TestAnswersComeLater: a packet is a question, the answer is sent by the connection that the packet came by, and the packet is counted once, then.
func TestAnswersComeLater(t *testing.T) {
	x, now := &asker{}, time.Unix(1000, 0)
	a := New(Config{
		Log: slog.New(slog.DiscardHandler), Recorder: &Recorder{},
		Extensions: []extension.New{func(*world.World) extension.Extension { return &greeter{} }, func(*world.World) extension.Extension { return x }},
	}, nil, now)
	first, second := &hung{}, &hung{}
	do := func(e effect.Event) []effect.Effect {
		a.turn.begin(now)
		a.event(e)
		return a.turn.take().Do
	}
	var asked []effect.AskResolver
	for _, conn := range []*hung{first, second, second} {
		list := do(effect.PacketIn{Bridge: "br-int", Conn: conn, Packet: &openflow.PacketIn{Userdata: []byte("asker x")}})
		if len(list) != 1 {
			t.Fatalf("%v", list)
		}
		asked = append(asked, list[0].(effect.AskResolver))
	}
	if len(a.extensions.packetTotals()["asker"]) != 0 {
		t.Errorf("counted before the answer: %v", a.extensions.packetTotals())
	}
	come := func(i int, err error) []effect.Effect {
		e := asked[i]
		return do(effect.ResolverAnswered{Extension: e.Extension, Bridge: e.Bridge, Conn: e.Conn, Answer: resolver.Answer{Number: e.Ask.Number, Message: []byte{byte(i)}}, Err: err})
	}
	list := come(1, nil)
	if len(list) != 1 || list[0].(effect.SendPackets).Conn != effect.Conn(second) || list[0].(effect.SendPackets).Messages[0].(openflow.PacketOut).Packet[0] != 1 {
		t.Errorf("%v", list)
	}
	if list := come(0, errors.New("nobody answers")); len(list) != 0 {
		t.Errorf("%v", list)
	}
	x.fails = true
	if list := come(2, nil); len(list) != 0 {
		t.Errorf("%v", list)
	}
	got := a.extensions.packetTotals()["asker"]
	if len(got) != 3 || got["answered"] != 1 || got["unanswered"] != 1 || got["failed"] != 1 {
		t.Errorf("counted %v", got)
	}
}
