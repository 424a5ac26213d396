// SPDX-License-Identifier: Apache-2.0

package core

import (
	"time"

	"github.com/patchbay-sdn/patchbay/internal/effect"
	"github.com/patchbay-sdn/patchbay/internal/extension"
)

// extensions are the capabilities beside the core, and where their calls stand. It is owned by the loop.
type extensions struct {
	extension.Set
	calls calls
}

func newExtensions(set extension.Set) extensions { return extensions{Set: set, calls: newCalls()} }

// resync says that messages may have been lost: everything is asked for again.
func (x *extensions) resync() {
	x.Set.Resync()
	for c := range x.calls.running {
		x.calls.running[c] = false
	}
}

// onTime tells the extensions whose deadline has passed.
func (a *Core) onTime(now time.Time) {
	for _, ext := range a.extensions.Set {
		if ext.Timed == nil {
			continue
		}
		if at := ext.Timed.Deadline(); !at.IsZero() && !at.After(now) {
			ext.Timed.OnTime(now)
			a.memory.stale = true
		}
	}
}

// minTimer bounds how often an extension is told that its deadline has passed.
const minTimer = 50 * time.Millisecond

// tend does what the extensions list: the loop goes round at their deadlines, and, once a server is known, calls are made.
func (a *Core) tend() {
	now := a.turn.now()
	for _, ext := range a.extensions.Set {
		if ext.Timed == nil {
			continue
		}
		if at := ext.Timed.Deadline(); !at.IsZero() {
			a.turn.wakeUp(now.Add(max(at.Sub(now), minTimer)))
		}
	}
	if a.versions != nil {
		a.startCalls(now)
	}
}

// packetCame has the extensions answer a packet.
func (a *Core) packetCame(e effect.PacketIn) {
	if answer := a.extensions.OnPacket(e.Bridge, e.Packet); len(answer) > 0 {
		a.turn.start(effect.SendPackets{Bridge: e.Bridge, Conn: e.Conn, Messages: answer})
	}
}
