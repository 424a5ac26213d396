// SPDX-License-Identifier: Apache-2.0

package messaging

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"pgregory.net/rapid"
)

// TestDebts: whatever order deliveries are handled in, none is acknowledged before it is handled, each is once, and an acknowledgement
// of several names one that is not acknowledged yet: the broker closes the channel otherwise.
func TestDebts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		handled, acked, most := map[uint64]bool{}, map[uint64]bool{}, uint64(0)
		ack := func(tag uint64) {
			if !handled[tag] || acked[tag] {
				t.Fatalf("delivery %d is acknowledged: handled %t, acknowledged before %t", tag, handled[tag], acked[tag])
			}
			acked[tag] = true
		}
		d := &debts{beyond: map[uint64]bool{}, ack: func(tag uint64, multiple bool) error {
			ack(tag)
			for before := uint64(1); multiple && before < tag; before++ {
				if !acked[before] {
					ack(before)
				}
			}
			return nil
		}}
		var inHand []uint64
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch step := rapid.SampledFrom([]string{"deliver", "owe", "settle", "pay"}).Draw(t, "step"); {
			case step == "deliver":
				most++
				inHand = append(inHand, most)
			case step == "pay":
				d.pay()
				for tag := range handled {
					if !acked[tag] {
						t.Fatalf("delivery %d is handled, and not acknowledged", tag)
					}
				}
			case len(inHand) > 0:
				i := rapid.IntRange(0, len(inHand)-1).Draw(t, "which")
				tag := inHand[i]
				inHand = slices.Delete(inHand, i, i+1)
				handled[tag] = true
				if step == "owe" {
					d.owe(tag)
				} else {
					ack(tag)
					d.settle(tag)
				}
			}
		}
		if len(inHand) == 0 && len(d.beyond) > 0 {
			t.Fatalf("%d deliveries are kept that nobody waits for", len(d.beyond))
		}
	})
}

// TestOneChannel: a client that calls and serves has one channel. A push in hand is not acknowledged with the replies that came after it.
func TestOneChannel(t *testing.T) {
	inMemory(t, func(t *testing.T, b *memBroker) {
		server := b.client(t, "s1", nil)
		server.serve(Service{Topics: []string{"calls"}, Shared: true})
		first := b.client(t, "hv0", withHub) // makes the hub
		first.serve(Service{Topics: []string{"t", "u"}})
		time.Sleep(2 * firstCheck) // and looks for it once more
		before := b.count("channel.open")
		c := b.client(t, "hv1", withHub)
		call := func(ctx context.Context) {
			if err := c.Call(ctx, Target{Topic: "calls"}, "m", nil, nil); err != nil {
				t.Error(err)
			}
		}
		call(context.Background())
		release := make(chan struct{})
		c.serve(Service{Topics: []string{"t", "u"}, Handler: func(ctx context.Context, _ *Message) (any, error) {
			call(ctx)
			<-release
			return nil, nil
		}})
		if _, err := c.RemoveLeftovers(context.Background(), []string{"x"}, "hv1"); err != nil {
			t.Error(err)
		}
		time.Sleep(2 * firstCheck)
		cast(t, server, Target{Topic: "u", Fanout: true}, "all")
		time.Sleep(2 * ackDelay)
		settle()
		inHand := func(queue string) (n int) {
			b.do(func() { n = len(b.queues[queue].consumers[0].unacked) })
			return n
		}
		if pushes, replies := inHand(c.layout.privateQ), inHand(c.layout.replyQ); pushes != 1 || replies != 0 {
			t.Errorf("%d pushes and %d replies are not acknowledged", pushes, replies)
		}
		close(release)
		time.Sleep(2 * ackDelay)
		settle()
		if n := inHand(c.layout.privateQ); n != 0 {
			t.Errorf("%d pushes are not acknowledged", n)
		}
		b.do(func() {
			if n := len(b.conns[len(b.conns)-1].open); n != 1 {
				t.Errorf("%d channels", n)
			}
		})
		c.wantEvents("Connected")
		c.close()
		if n := b.count("channel.open") - before; n != 2 {
			t.Errorf("%d channels were opened, want one, and one to look for the hub and for leftovers", n)
		}
		first.close()
		server.close()
	})
}

// TestMainChannelIsClosed: what shared a channel that the broker has closed goes on, on channels that are separate from then on.
func TestMainChannelIsClosed(t *testing.T) {
	inMemory(t, func(t *testing.T, b *memBroker) {
		server := b.client(t, "s1", nil)
		server.serve(Service{Topics: []string{"calls"}, Shared: true})
		var h heard
		c := b.client(t, "hv1", nil)
		if err := c.Call(context.Background(), Target{Topic: "calls"}, "m", nil, nil); err != nil {
			t.Fatal(err)
		}
		c.serve(Service{Topics: []string{"t"}, Handler: h.handle})
		for i := range 3 {
			before := b.count("basic.consume")
			b.do(func() { b.refuse["basic.publish neutron gone"] = []refuse{{amqp.NotFound, "no exchange"}} })
			cast(t, c, Target{Topic: "gone"}, "m")
			settle()
			want := 2 // the reply queue and the private one
			if i > 0 {
				want = 0
			}
			if n := b.count("basic.consume") - before; n != want {
				t.Errorf("attempt %d: %d consumers were set up again, want %d", i, n, want)
			}
			method := fmt.Sprint("m", i)
			cast(t, server, Target{Topic: "t", Fanout: true}, method)
			h.want(t, method+" t fanout=true directed=false")
			if err := c.Call(context.Background(), Target{Topic: "calls"}, method, nil, nil); err != nil {
				t.Error(err)
			}
		}
		if got := server.methods(); !slices.Equal(got, []string{"m", "m0", "m1", "m2"}) {
			t.Errorf("the server ran %q", got)
		}
		c.wantEvents("Connected")
		c.close()
		server.close()
	})
}

// TestRefusedAgainAndAgain: a queue that cannot be bound disturbs the replies once, not with each attempt.
func TestRefusedAgainAndAgain(t *testing.T) {
	inMemory(t, func(t *testing.T, b *memBroker) {
		server := b.client(t, "s1", nil)
		server.serve(Service{Topics: []string{"calls"}, Shared: true})
		c := b.client(t, "hv1", nil)
		if err := c.Call(context.Background(), Target{Topic: "calls"}, "m", nil, nil); err != nil {
			t.Fatal(err)
		}
		what := "queue.bind " + c.layout.privateQ + " t_fanout t"
		b.do(func() { b.refuse[what] = slices.Repeat([]refuse{{amqp.ResourceError, "busy"}}, 5) })
		c.serve(Service{Topics: []string{"t"}})
		b.wantSaid(t, what, 7) // on the main channel, five times on another one, and then for good
		b.wantSaid(t, "basic.consume "+c.layout.replyQ, 2)
		if err := c.Call(context.Background(), Target{Topic: "calls"}, "m", nil, nil); err != nil {
			t.Error(err)
		}
		c.close()
		server.close()
	})
}

// TestMessagesBesideDeclarations: no declaration gets between the frames of a message.
func TestMessagesBesideDeclarations(t *testing.T) {
	inMemory(t, func(t *testing.T, b *memBroker) {
		c := b.client(t, "hv1", nil)
		c.serve(Service{Topics: []string{"t"}})
		args := map[string]any{"long": strings.Repeat("x", 300_000)} // three frames
		done := make(chan struct{})
		var sent sync.WaitGroup
		for range 8 {
			sent.Go(func() {
				for {
					select {
					case <-done:
						return
					default:
						if err := c.Cast(context.Background(), Target{Topic: "t"}, "m", args); err != nil {
							t.Error(err)
							return
						}
					}
				}
			})
		}
		for i := range 50 {
			c.serve(Service{Topics: []string{"t", fmt.Sprint("u", i)}})
		}
		close(done)
		sent.Wait()
		b.wantSaid(t, "UNEXPECTED_FRAME", 0)
		c.wantEvents("Connected")
		c.close()
	})
}
