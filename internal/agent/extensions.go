// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/openflow"
)

// extensions are the capabilities beside the core, and where their questions and tasks stand. It is owned by the loop.
type extensions struct {
	extension.Set
	// running are on their way. False: the outcome does not count, because news may have been missed since, or because nobody wanted
	// it for a while and news were not listened to.
	running map[errand]bool
	pulls   int // of these, calls that ask for objects
	retries retries[errand]
	// alone are objects that are asked for one by one, because a question that named several was refused.
	alone map[errand]bool
}

// errand is something that an extension wants to be asked or done: an object, or a task if it has no kind.
type errand struct {
	extension int // its place in the list
	kind      neutron.Kind
	id        string
}

func newExtensions(set extension.Set) extensions {
	return extensions{Set: set, running: map[errand]bool{}, retries: retries[errand]{}, alone: map[errand]bool{}}
}

// pulled: the server's answer about objects that an extension misses. taskEnded: work that one had to be done is done or
// failed. packetIn: a flow sent a packet to the controller.
type (
	pulled struct {
		errands []errand // of one extension and kind
		found   []neutron.Primitive
		err     error
	}
	taskEnded struct {
		errand errand
		result any
		err    error
	}
	packetIn struct {
		bridge string
		conn   Conn
		packet *openflow.PacketIn
	}
)

// doubt says that news may have been missed: everything is asked for again.
func (x *extensions) doubt() {
	x.Set.Doubt()
	for e := range x.running {
		x.running[e] = false
	}
}

// maxTasks bounds how many tasks are done at a time.
const maxTasks = 8

// tend has done what the extensions list: the server is asked for what they miss, and their tasks are started.
func (a *Agent) tend(ctx context.Context) {
	x := &a.extensions
	if a.versions == nil || len(x.Set) == 0 {
		return
	}
	now := time.Now()
	listed := map[errand]bool{}
	// ready says whether an errand can be run now.
	ready := func(e errand) bool {
		listed[e] = true
		if _, on := x.running[e]; on {
			return false
		}
		if x.retries.waiting(e, now) {
			a.wakeUp(x.retries[e].at)
			return false
		}
		return true
	}
	for i, ext := range x.Set {
		missing := map[neutron.Kind][]errand{}
		for _, item := range ext.Missing() {
			if e := (errand{i, item.Kind, item.ID}); ready(e) {
				missing[item.Kind] = append(missing[item.Kind], e)
			}
		}
		for _, errands := range missing {
			for _, question := range x.questions(errands) {
				if x.pulls < maxAsking && !a.database.away {
					a.pull(ctx, question)
				}
			}
		}
		for _, task := range ext.Due() {
			if task.At.After(now) {
				a.wakeUp(task.At)
				continue
			}
			if e := (errand{extension: i, id: task.ID}); ready(e) && len(x.running)-x.pulls < maxTasks {
				x.running[e] = true
				a.work.Go(func() {
					ended := taskEnded{errand: e}
					ended.err = a.aside("task of extension "+ext.Name()+", "+task.ID, func() (err error) {
						ended.result, err = task.Run(ctx, a.server)
						return err
					})
					a.inbox.put(ended)
				})
			}
		}
	}
	for e := range x.running {
		x.running[e] = x.running[e] && listed[e]
	}
	for e := range x.retries {
		if _, on := x.running[e]; !listed[e] && !on {
			x.retries.forget(e)
			delete(x.alone, e)
		}
	}
	if len(x.retries) == 0 {
		a.repeats.forget(notTold)
		a.repeats.forget(taskFailed)
	}
}

// What lasts while an errand fails.
const (
	notTold    = "the server does not tell what an extension needs, asking again"
	taskFailed = "a task of an extension failed, trying again"
)

// questions puts objects together into questions.
func (x *extensions) questions(errands []errand) [][]errand {
	return together(errands, func(e errand) int {
		if x.alone[e] {
			return 1
		}
		return maxPerCall
	})
}

func (a *Agent) pull(ctx context.Context, question []errand) {
	ids := make([]string, len(question))
	for i, e := range question {
		a.extensions.running[e] = true
		ids[i] = e.id
	}
	a.extensions.pulls++
	versions := a.versions
	a.work.Go(func() {
		e := pulled{errands: question}
		e.err = a.aside("asking for what an extension needs", func() (err error) {
			e.found, err = a.server.BulkPull(ctx, versions, question[0].kind, map[string]any{"id": ids})
			return err
		})
		a.inbox.put(e)
	})
}

func (e pulled) ids() []string {
	ids := make([]string, len(e.errands))
	for i, errand := range e.errands {
		ids[i] = errand.id
	}
	return ids
}

// objectsCame takes the server's answer to an extension's question, or that there is none.
func (a *Agent) objectsCame(e pulled) {
	x := &a.extensions
	now := time.Now()
	ids := e.ids()
	counts := true
	for _, errand := range e.errands {
		counts = counts && x.running[errand]
		delete(x.running, errand)
	}
	a.heard(e.err)
	if !counts {
		return // what is still missing is asked for again
	}
	ext, kind := x.Set[e.errands[0].extension], e.errands[0].kind
	if refused(e.err) && len(e.errands) > 1 {
		for _, errand := range e.errands {
			x.alone[errand] = true // one of them may be what the server stumbles over
			x.retries[errand] = retry{at: now}
		}
		return
	}
	if e.err != nil {
		for _, errand := range e.errands {
			x.retries.unanswered(errand, now, e.err)
		}
		a.repeats.log(a.log, slog.LevelWarn, notTold, "extension", ext.Name(), "kind", string(kind), "first", ids[0], "of", len(ids), "err", e.err)
		return
	}
	for _, errand := range e.errands {
		x.retries.fail(errand, now) // counts only if it is still missing
	}
	if err := ext.Answer(kind, ids, e.found); err != nil {
		a.repeats.log(a.log, slog.LevelWarn, "the server tells what cannot be read", "extension", ext.Name(), "err", err)
	}
	a.memory.stale = true
}

// taskDone takes the outcome of a task. Whether it has to be done again the extension says by listing it.
func (a *Agent) taskDone(e taskEnded) {
	x := &a.extensions
	counts := x.running[e.errand]
	if delete(x.running, e.errand); !counts {
		return // if it is still due it is done again
	}
	x.retries.unanswered(e.errand, time.Now(), e.err)
	ext := x.Set[e.errand.extension]
	if e.err != nil {
		a.repeats.log(a.log, slog.LevelWarn, taskFailed, "extension", ext.Name(), "task", e.errand.id, "err", e.err)
	}
	ext.Done(e.errand.id, e.result, e.err)
	a.memory.stale = true
}

// idle says whether no extension waits for anything.
func (x *extensions) idle() bool {
	now := time.Now()
	isDue := func(t extension.Task) bool { return !t.At.After(now) }
	return len(x.running) == 0 && !slices.ContainsFunc(x.Set, func(e extension.Extension) bool {
		return len(e.Missing()) > 0 || slices.ContainsFunc(e.Due(), isDue)
	})
}

// greet finds out what a newly connected bridge can do for extensions, and has packets passed on that flows send to the
// controller. It runs beside the loop.
func (a *Agent) greet(ctx context.Context, e *dumped) error {
	if len(a.extensions.Set) == 0 {
		return nil
	}
	if features, err := e.conn.MeterFeatures(ctx); err == nil { // else it has none
		e.maxMeters = features.Max
	}
	if !a.extensions.Listens().Packets {
		return nil
	}
	if err := e.conn.EnablePacketIns(ctx, 0); err != nil {
		return err
	}
	bridge, conn := e.bridge, e.conn
	a.work.Go(func() {
		for p := range conn.PacketIns() {
			a.inbox.put(packetIn{bridge, conn, p})
		}
	})
	return nil
}

// packetCame has the extensions answer a packet.
func (a *Agent) packetCame(ctx context.Context, e packetIn) {
	answer := a.extensions.Packet(e.bridge, e.packet)
	if len(answer) == 0 {
		return
	}
	a.work.Go(func() { _ = a.aside("answering a packet", func() error { return e.conn.Send(ctx, answer) }) }) // a packet that is lost is asked for again by who needs it
}
