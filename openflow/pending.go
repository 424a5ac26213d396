// SPDX-License-Identifier: Apache-2.0

package openflow

import (
	"context"
	"slices"
	"sync"
)

// A waiter receives the replies to one request. Its methods are called by the
// reader and must not block.
type waiter interface {
	// deliver takes a reply, whose body it may keep, and says whether it was
	// the last one.
	deliver(h head, body []byte) (last bool)
	// fail ends the wait.
	fail(err error)
}

// batch collects the errors about messages with consecutive transaction ids.
type batch struct {
	first, n uint32
	errs     []batchError
}

type batchError struct {
	index int
	err   *Error
}

// pending are the requests of a connection that are under way, by their
// transaction ids.
type pending struct {
	done chan struct{} // closed when err is set

	mu       sync.Mutex
	err      error // why the connection ended
	nextXID  uint32
	waiters  map[uint32]waiter
	batches  []*batch
	monitors *monitorWait // the monitor request under way
}

// end records why the connection ended and returns whether it is the first to
// do so, and who has to be told.
func (p *pending) end(err error) (waiters map[uint32]waiter, first bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return nil, false
	}
	p.err = err
	if p.monitors != nil {
		p.monitors.err = &ConnError{err} // read under the lock, as soon as the barrier behind it is answered
	}
	waiters = p.waiters
	p.waiters, p.batches, p.monitors = nil, nil, nil
	close(p.done)
	return waiters, true
}

// reply hands a message to the one who waits for it.
func (p *pending) reply(h head, body []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w := p.waiters[h.xid]; w != nil && w.deliver(h, body) {
		delete(p.waiters, h.xid)
	}
}

// refuse hands an error to the one whose message it is about.
func (p *pending) refuse(xid uint32, e *Error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w := p.waiters[xid]; w != nil {
		w.fail(e)
		delete(p.waiters, xid)
		return
	}
	for _, b := range p.batches {
		if i := xid - b.first; i < b.n {
			b.errs = append(b.errs, batchError{int(i), e})
			return
		}
	}
	// Open vSwitch builds the error about a monitor request from a wrong place
	// of its memory: the transaction id may be anything, mostly 0, the code is
	// not always the right one, and the data is none of our business.
	if p.monitors != nil && p.monitors.err == nil {
		e.Data = nil
		p.monitors.err = e
	}
}

// start registers a waiter under a new transaction id.
func (p *pending) start(w waiter) (uint32, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return 0, &ConnError{p.err}
	}
	xid := p.reserve(1)
	p.waiters[xid] = w
	return xid, nil
}

func (p *pending) forget(xid uint32) {
	p.mu.Lock()
	delete(p.waiters, xid)
	p.mu.Unlock()
}

// await waits for done. When ctx ends first, the waiter is forgotten.
func (p *pending) await(ctx context.Context, xid uint32, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		p.forget(xid)
		return context.Cause(ctx)
	}
}

// openBatch reserves transaction ids for n messages and collects the errors
// about them. The caller must close it.
func (p *pending) openBatch(n int) (*batch, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return nil, &ConnError{p.err}
	}
	b := &batch{first: p.reserve(uint32(n)), n: uint32(n)}
	p.batches = append(p.batches, b)
	return b, nil
}

func (p *pending) closeBatch(b *batch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.batches = slices.DeleteFunc(p.batches, func(x *batch) bool { return x == b })
}

// failures returns the errors that have come, one for each message.
func (p *pending) failures(b *batch, msgs []Message) []Failure {
	p.mu.Lock()
	defer p.mu.Unlock()
	var list []Failure
	for _, e := range b.errs {
		if e.index < len(msgs) {
			list = append(list, Failure{e.index, msgs[e.index], e.err})
		}
	}
	return list
}

// reserve takes n consecutive transaction ids and returns the first. Ids are
// never 0, which the switch uses for what it sends on its own.
func (p *pending) reserve(n uint32) uint32 {
	if p.nextXID > ^uint32(0)-n-1 {
		p.nextXID = 1
	}
	first := p.nextXID
	p.nextXID += n
	return first
}
