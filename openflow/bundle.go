// SPDX-License-Identifier: Apache-2.0

package openflow

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
)

// A Failure is a message that the switch refused.
type Failure struct {
	Index   int // in the list given
	Message Message
	Err     *Error
}

func (f Failure) text() string { return string(f.Message.AppendText(nil)) }

// A SendError lists the messages of a Send that the switch refused. The others
// were done.
type SendError struct{ Failures []Failure }

func (e *SendError) Error() string {
	f := e.Failures[0]
	more := ""
	if n := len(e.Failures) - 1; n > 0 {
		more = fmt.Sprintf(" (and %d more)", n)
	}
	return fmt.Sprintf("openflow: %s: %v%s", f.text(), f.Err, more)
}

func (e *SendError) Unwrap() error { return e.Failures[0].Err }

// A BundleError says that a bundle was not applied, and which message is to
// blame.
type BundleError struct {
	// Failures are the messages that the switch refused. Of those it can only
	// check when it commits (missing meter or group, overlap) it names the
	// first. Empty if the bundle itself was refused.
	Failures []Failure
	// Err is the error of the bundle if no message is to blame.
	Err error
	// Applied is how many messages earlier bundles of the same Commit have
	// applied: always 0 without Config.MaxBundle.
	Applied int
}

func (e *BundleError) Error() string {
	if len(e.Failures) == 0 {
		return fmt.Sprintf("openflow: bundle: %v", e.Err)
	}
	f := e.Failures[0]
	more := ""
	if n := len(e.Failures) - 1; n > 0 {
		more = fmt.Sprintf(" (and %d more)", n)
	}
	return fmt.Sprintf("openflow: bundle not applied: %s: %v%s", f.text(), f.Err, more)
}

func (e *BundleError) Unwrap() error {
	if len(e.Failures) == 0 {
		return e.Err
	}
	return e.Failures[0].Err
}

// ErrMeterInBundle is returned for a bundle that holds a MeterMod.
var ErrMeterInBundle = errors.New("openflow: a bundle cannot hold meters: send them before the flows that use them")

// Send sends messages one after the other and waits until the switch has done
// them. It is not atomic: what is refused is reported by *SendError, the rest
// is done.
func (c *Conn) Send(ctx context.Context, msgs []Message) error {
	if len(msgs) == 0 {
		return nil
	}
	ctx, cancel := c.cfg.bound(ctx)
	defer cancel()
	b, err := c.pending.openBatch(len(msgs))
	if err != nil {
		return err
	}
	defer c.pending.closeBatch(b)
	w := chunkWriter{c: c, ctx: ctx}
	for i, m := range msgs {
		w.buf, err = m.AppendMessage(w.buf, c.version, b.first+uint32(i))
		if err != nil {
			return fmt.Errorf("%s: %w", m.AppendText(nil), err)
		}
		if err = w.flushFull(); err != nil {
			return err
		}
	}
	if err = w.flush(); err != nil {
		return err
	}
	if err = c.Barrier(ctx); err != nil {
		return err
	}
	if list := c.pending.failures(b, msgs); list != nil {
		return &SendError{list}
	}
	return nil
}

// chunkWriter collects messages and writes them in large chunks.
type chunkWriter struct {
	c   *Conn
	ctx context.Context
	buf []byte
}

// flushFull writes what has been collected once it is a chunk.
func (w *chunkWriter) flushFull() error {
	if len(w.buf) < writeChunk {
		return nil
	}
	return w.flush()
}

func (w *chunkWriter) flush() error {
	if len(w.buf) == 0 {
		return nil
	}
	err := w.c.write(w.ctx, w.buf)
	w.buf = w.buf[:0]
	return err
}

const (
	bundleOpen    = 0
	bundleClose   = 2
	bundleCommit  = 4
	bundleDiscard = 6

	bundleAtomicOrdered = 3
)

// appendBundleHead appends the head of a bundle message.
func appendBundleHead(b []byte, v Version, add bool, xid, id uint32, typ uint16) []byte {
	if v >= OpenFlow14 {
		t := uint8(typeBundleControl)
		if add {
			t = typeBundleAdd
		}
		b = append(b, byte(v), t, 0, 16)
		b = binary.BigEndian.AppendUint32(b, xid)
	} else {
		t := uint32(onfBundleControl)
		if add {
			t = onfBundleAdd
		}
		b = append(b, byte(v), typeExperimenter, 0, 24)
		b = binary.BigEndian.AppendUint32(b, xid)
		b = binary.BigEndian.AppendUint32(b, experimenterONF)
		b = binary.BigEndian.AppendUint32(b, t)
	}
	b = binary.BigEndian.AppendUint32(b, id)
	b = binary.BigEndian.AppendUint16(b, typ)
	return binary.BigEndian.AppendUint16(b, bundleAtomicOrdered)
}

// appendBundleAdd appends a message wrapped for a bundle.
func appendBundleAdd(b []byte, v Version, xid, id uint32, m Message) ([]byte, error) {
	start := len(b)
	b = appendBundleHead(b, v, true, xid, id, 0)
	b, err := m.AppendMessage(b, v, xid)
	if err != nil {
		return b[:start], err
	}
	if b, err = endMessage(b, start); err != nil {
		return b[:start], err
	}
	return b, nil
}

// Commit applies messages, in order, as one atomic step: packets see all of
// them or none. If the switch refuses any, none is applied and the error is a
// *BundleError that names it. A *ConnError means that the connection broke and
// that either all or none was applied.
//
// Messages may be FlowMod, GroupMod and PacketOut. With Config.MaxBundle a
// long list is split and only the parts are atomic.
func (c *Conn) Commit(ctx context.Context, msgs []Message) error {
	for _, m := range msgs {
		if _, ok := m.(MeterMod); ok {
			return ErrMeterInBundle
		}
	}
	size := c.cfg.MaxBundle
	if size <= 0 {
		size = len(msgs)
	}
	for done := 0; done < len(msgs); {
		part := msgs[done:min(done+size, len(msgs))]
		if err := c.commit(ctx, part); err != nil {
			var be *BundleError
			if errors.As(err, &be) {
				be.Applied = done
				for i := range be.Failures {
					be.Failures[i].Index += done
				}
			}
			return err
		}
		done += len(part)
	}
	return nil
}

func (c *Conn) commit(ctx context.Context, msgs []Message) error {
	ctx, cancel := c.cfg.bound(ctx)
	defer cancel()
	b, err := c.pending.openBatch(len(msgs))
	if err != nil {
		return err
	}
	defer c.pending.closeBatch(b)
	// The id of the first message names the bundle: unique on this connection.
	bc := bundleConn{c, ctx, b.first}

	// Open, adds and close go out in one stream. An add that fails does not
	// spoil the bundle for the switch, which would commit the others: so the
	// errors are looked at when the close has been answered.
	w := chunkWriter{c: c, ctx: ctx}
	open, err := bc.start(&w, bundleOpen)
	if err != nil {
		return err
	}
	for i, m := range msgs {
		w.buf, err = appendBundleAdd(w.buf, c.version, b.first+uint32(i), bc.id, m)
		if err != nil {
			// Nothing is known to the switch yet but an open bundle.
			_ = w.flush()
			_ = bc.do(bundleDiscard)
			return fmt.Errorf("%s: %w", m.AppendText(nil), err)
		}
		if err = w.flushFull(); err != nil {
			return err
		}
	}
	closing, err := bc.start(&w, bundleClose)
	if err != nil {
		return err
	}
	if err = w.flush(); err != nil {
		return err
	}
	if err = bc.wait(open); err != nil {
		return bundleFailure(nil, err)
	}
	closeErr := bc.wait(closing)
	if list := c.pending.failures(b, msgs); list != nil || closeErr != nil {
		if c.Err() == nil && ctx.Err() == nil {
			_ = bc.do(bundleDiscard)
		}
		return bundleFailure(list, closeErr)
	}
	if err = bc.do(bundleCommit); err != nil {
		return bundleFailure(c.pending.failures(b, msgs), err)
	}
	return nil
}

// bundleFailure makes a BundleError, unless the connection or the context is
// the reason.
func bundleFailure(list []Failure, err error) error {
	var sw *Error
	if len(list) == 0 && !errors.As(err, &sw) {
		return err
	}
	return &BundleError{Failures: list, Err: err}
}

// bundleConn sends the control messages of one bundle.
type bundleConn struct {
	c   *Conn
	ctx context.Context
	id  uint32
}

// pendingControl is a bundle control message under way.
type pendingControl struct {
	xid uint32
	*reply
}

// start queues a control message.
func (bc bundleConn) start(w *chunkWriter, typ uint16) (pendingControl, error) {
	want := uint8(typeBundleControl)
	if bc.c.version < OpenFlow14 {
		want = typeExperimenter
	}
	r := newReply(want)
	xid, err := bc.c.pending.start(r)
	if err != nil {
		return pendingControl{}, err
	}
	w.buf = appendBundleHead(w.buf, bc.c.version, false, xid, bc.id, typ)
	return pendingControl{xid, r}, nil
}

func (bc bundleConn) wait(p pendingControl) error {
	if err := bc.c.pending.await(bc.ctx, p.xid, p.done); err != nil {
		return err
	}
	return p.err
}

// do sends a control message and waits for the answer.
func (bc bundleConn) do(typ uint16) error {
	w := chunkWriter{c: bc.c, ctx: bc.ctx}
	p, err := bc.start(&w, typ)
	if err != nil {
		return err
	}
	if err := w.flush(); err != nil {
		bc.c.pending.forget(p.xid)
		return err
	}
	return bc.wait(p)
}
