// SPDX-License-Identifier: Apache-2.0

package core

import (
	"log/slog"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/effect"
	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/pace"
	"github.com/patchbay-sdn/patchbay/internal/pull"
	"github.com/patchbay-sdn/patchbay/internal/world"
	"github.com/patchbay-sdn/patchbay/openflow"
)

// extensions are the capabilities beside the core, and where their calls stand.
type extensions struct {
	extension.Set
	room
	// running are the calls on their way. False: the outcome does not count, because messages may have been lost since, or because the
	// extension did not list the call for a while.
	running map[effect.CallKey]bool
	retries pace.Backoff[effect.CallKey]
	packets map[packetKey]uint64 // that flows sent here
	tables
	services
}

// packetKey is by what packets are counted.
type packetKey struct {
	extension string
	outcome   extension.Outcome
}

// newExtensions makes the extensions, and guards them.
func newExtensions(k *containment, r *resyncing) extensions {
	set := extension.Make(k.world, k.cfg.Extensions)
	for i, e := range set {
		set[i] = guard(e, k, r)
	}
	return extensions{
		Set: set, room: k.room, running: map[effect.CallKey]bool{}, retries: pace.Backoff[effect.CallKey]{}, packets: map[packetKey]uint64{},
		tables: newTables(k.room, set), services: newServices(k.room, set),
	}
}

// guards ranges over what guards the extensions.
func (x *extensions) guards(yield func(int, *guarded) bool) {
	for i, e := range x.Set {
		if g, ok := e.Extension.(*guarded); ok && !yield(i, g) {
			return
		}
	}
}

// repair has extensions work out everything again that have failed to. It returns those whose questions of before count no more.
func (x *extensions) repair() (again []pull.Owner) {
	for i, g := range x.guards {
		if !g.retry() {
			continue
		}
		again = append(again, pull.Extensions+pull.Owner(i))
		for k := range x.running {
			x.running[k] = x.running[k] && k.Extension != i
		}
	}
	return again
}

// resync says that messages may have been lost: everything is asked for again.
func (x *extensions) resync() {
	x.Set.Resync()
	for k := range x.running {
		x.running[k] = false
	}
}

// onTime tells the extensions whose deadline has passed, and returns whether there are any.
func (x *extensions) onTime() (called bool) {
	now := x.now()
	for _, ext := range x.Set {
		if ext.Timed == nil {
			continue
		}
		if at := ext.Timed.Deadline(); !at.IsZero() && !at.After(now) {
			ext.Timed.OnTime(now)
			called = true
		}
	}
	return called
}

// minTimer bounds how often an extension is told that its deadline has passed.
const minTimer = 50 * time.Millisecond

// tend does what the extensions list: the log has their warnings, the loop goes round at their deadlines, and, once a server is known, calls are made.
func (x *extensions) tend(registered bool) {
	now := x.now()
	for _, ext := range x.Set {
		if ext.Warner != nil {
			for _, sentence := range ext.Warner.Warnings() {
				x.log.repeat(slog.LevelWarn, "extension cannot apply an object of neutron-server, see warning", "extension", ext.Name(), "warning", sentence)
			}
		}
		if ext.Timed == nil {
			continue
		}
		if at := ext.Timed.Deadline(); !at.IsZero() {
			x.wakeUp(now.Add(max(at.Sub(now), minTimer)))
		}
	}
	if registered {
		x.startCalls(now)
	}
}

// maxCalls bounds how many calls of extensions are on their way at a time.
const maxCalls = 8

// callFailed lasts while a call fails.
const callFailed = "call of an extension failed, retrying"

// startCalls makes the calls that the extensions list.
func (x *extensions) startCalls(now time.Time) {
	listed := map[effect.CallKey]bool{}
	for i, ext := range x.Set {
		for _, call := range ext.Calls() {
			k := effect.CallKey{Extension: i, Key: call.Key}
			listed[k] = true
			if _, on := x.running[k]; on || len(x.running) >= maxCalls {
				continue
			}
			if x.retries.Waiting(k, now) {
				x.wakeUp(x.retries[k].At)
				continue
			}
			x.running[k] = true
			x.start(effect.CallExtension{CallKey: k, Name: ext.Name(), Run: call.Run})
		}
	}
	for k := range x.running {
		x.running[k] = x.running[k] && listed[k]
	}
	for k := range x.retries {
		if _, on := x.running[k]; !listed[k] && !on {
			x.retries.Forget(k)
		}
	}
	if len(x.retries) == 0 {
		x.log.forget(callFailed)
	}
}

// awaited counts the calls on their way without which the agent is not in sync.
func (x *extensions) awaited() int {
	n := len(x.running)
	if n == 0 {
		return 0
	}
	for i, ext := range x.Set {
		for _, call := range ext.Calls() {
			if _, on := x.running[effect.CallKey{Extension: i, Key: call.Key}]; on && call.Background {
				n--
			}
		}
	}
	return n
}

// callDone takes the outcome of a call, and returns whether it counts. Whether it has to be made again the extension says by listing it.
func (x *extensions) callDone(e effect.Called) bool {
	counts := x.running[e.CallKey]
	if delete(x.running, e.CallKey); !counts {
		return false // if it is still listed it is made again
	}
	x.retries.FailCall(e.CallKey, x.now(), e.Err == nil || refused(e.Err)) // an answer is not asked for again soon, either
	ext := x.Set[e.Extension]
	if e.Err != nil {
		x.log.repeat(slog.LevelWarn, callFailed, "extension", ext.Name(), "call", e.Key.String(), "err", e.Err)
	}
	ext.Caller.OnCall(e.Key, e.Result, e.Err)
	return true
}

// ended takes the outcome of a call, of work on forwarding tables or of a question to resolvers, or how a service is, and returns whether something worth remembering may have changed.
func (x *extensions) ended(e effect.Event) bool {
	switch e := e.(type) {
	case effect.Called:
		return x.callDone(e)
	case effect.Served:
		x.served(e)
		return false
	case effect.ResolverAnswered:
		x.answerCame(e)
		return false
	}
	return x.tablesEnded(e)
}

// callLost takes that the outcome of a call could not be taken.
func (x *extensions) callLost(k effect.CallKey) {
	delete(x.running, k)
	x.retries.Fail(k, x.now())
}

// packetCame has the extension answer whose flow sent a packet.
func (x *extensions) packetCame(e effect.PacketIn) {
	r := x.OnPacket(e.Bridge, e.Packet)
	if e.Limited > 0 {
		x.packets[packetKey{r.Name, extension.Limited}] += e.Limited
	}
	x.packetEnds(r.Name, r.Outcome, e.Bridge, e.Conn, r.Answer)
	for _, a := range r.Asks {
		x.start(effect.AskResolver{Extension: r.Member, Bridge: e.Bridge, Conn: e.Conn, Ask: a})
	}
	if len(r.Records) > 0 {
		x.start(effect.WriteRecords{Extension: r.Name, At: x.now(), Lines: r.Records})
	}
}

// answerCame has the extension answer whose question was answered. The answer leaves by the connection that the packet came by, or not at all: on a
// new one ofports may be others'.
func (x *extensions) answerCame(e effect.ResolverAnswered) {
	ext := x.Set[e.Extension]
	answer, outcome := ext.Asker.OnAnswer(e.Answer, e.Err)
	x.packetEnds(ext.Name(), outcome, e.Bridge, e.Conn, answer)
}

// packetEnds counts a packet, and sends what it is answered with.
func (x *extensions) packetEnds(name string, outcome extension.Outcome, bridge string, conn effect.Conn, answer []openflow.Message) {
	if outcome != extension.Asked {
		x.packets[packetKey{name, outcome}]++
	}
	if len(answer) > 0 {
		x.start(effect.SendPackets{Bridge: bridge, Conn: conn, Messages: answer})
	}
}

// packetTotals returns how many packets came, by extension and outcome.
func (x *extensions) packetTotals() map[string]map[string]uint64 {
	out := map[string]map[string]uint64{}
	for k, n := range x.packets {
		if out[k.extension] == nil {
			out[k.extension] = map[string]uint64{}
		}
		out[k.extension][string(k.outcome)] = n
	}
	return out
}

// load gives the extensions what an earlier run saved.
func (x *extensions) load(m *world.Memory) {
	if err := x.Load(m.Extensions); err != nil {
		x.log.Warn("snapshot of an extension not usable, starting without it", "err", err)
	}
}

// save adds what the extensions know to what is written down.
func (x *extensions) save(m *world.Memory) {
	var err error
	if m.Extensions, err = x.Save(); err != nil {
		x.log.repeat(slog.LevelWarn, "state of an extension not encoded, snapshot written without it", "err", err)
	}
}
