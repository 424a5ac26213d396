// SPDX-License-Identifier: Apache-2.0

package openflow

import (
	"context"
	"encoding/binary"
	"sync"
)

// reply waits for one message.
type reply struct {
	want uint8 // message type
	done chan struct{}
	head head
	body []byte
	err  error
}

func newReply(want uint8) *reply { return &reply{want: want, done: make(chan struct{})} }

func (r *reply) deliver(h head, body []byte) bool {
	if h.typ != r.want {
		r.err = malformed("reply", "type %d instead of %d", h.typ, r.want)
	}
	r.head, r.body = h, body
	close(r.done)
	return true
}

func (r *reply) fail(err error) {
	r.err = err
	close(r.done)
}

// request sends a message that has one reply and returns the reply's body.
func (c *Conn) request(ctx context.Context, typ uint8, body []byte, want uint8) ([]byte, error) {
	ctx, cancel := c.cfg.bound(ctx)
	defer cancel()
	r := newReply(want)
	xid, err := c.pending.start(r)
	if err != nil {
		return nil, err
	}
	if err := c.write(ctx, appendSimple(nil, c.version, typ, xid, body)); err != nil {
		c.pending.forget(xid)
		return nil, err
	}
	if err := c.pending.await(ctx, xid, r.done); err != nil {
		return nil, err
	}
	return r.body, r.err
}

// Barrier waits until the switch has done all that was sent before.
func (c *Conn) Barrier(ctx context.Context) error {
	_, err := c.request(ctx, typeBarrierRequest, nil, typeBarrierReply)
	return err
}

// Echo asks the switch for a sign of life.
func (c *Conn) Echo(ctx context.Context) error {
	_, err := c.request(ctx, typeEchoRequest, nil, typeEchoReply)
	return err
}

// SetRole sets the role of this controller and returns the role that the
// switch gave it. The generation counts only for primary and secondary.
func (c *Conn) SetRole(ctx context.Context, r Role, generation uint64) (Role, error) {
	msg := appendRole(nil, c.version, 0, r, generation)
	b, err := c.request(ctx, typeRoleRequest, msg[headerLen:], typeRoleReply)
	if err != nil {
		return 0, err
	}
	return decodeRole(b)
}

// Async returns which asynchronous messages the switch sends.
func (c *Conn) Async(ctx context.Context) (Async, error) {
	b, err := c.request(ctx, typeGetAsyncRequest, nil, typeGetAsyncReply)
	if err != nil {
		return Async{}, err
	}
	return decodeAsync(c.version, b)
}

// SetAsync chooses which asynchronous messages the switch sends.
func (c *Conn) SetAsync(ctx context.Context, a Async) error {
	return c.Send(ctx, []Message{setAsync(a)})
}

// SwitchConfig returns the configuration of the switch for this connection.
func (c *Conn) SwitchConfig(ctx context.Context) (SwitchConfig, error) {
	b, err := c.request(ctx, typeGetConfigRequest, nil, typeGetConfigReply)
	if err != nil {
		return SwitchConfig{}, err
	}
	return decodeConfig(b)
}

// SetSwitchConfig sets the configuration of the switch for this connection. On
// a management socket a MissSendLen above 0 makes asynchronous messages come.
func (c *Conn) SetSwitchConfig(ctx context.Context, s SwitchConfig) error {
	return c.Send(ctx, []Message{setConfig(s)})
}

// EnablePacketIns makes the switch send packet-ins, with userdata and
// continuation, port changes and removed flows. The id is the one that
// Controller actions address; 0 is the usual one. With another one nothing
// comes but packets of Controller actions: such a connection is beside the
// usual one.
func (c *Conn) EnablePacketIns(ctx context.Context, id uint16) error {
	msgs := []Message{setConfig(SwitchConfig{MissSendLen: 0xffff}), setPacketInFormat()}
	if id != 0 {
		actions := uint32(1 << ReasonAction)
		msgs = append(msgs, setControllerID(id), setAsync(Async{PacketIn: [2]uint32{actions, actions}}))
	}
	return c.Send(ctx, msgs)
}

// parts waits for the parts of a multipart reply and hands them to the
// goroutine that made the request. Its queue has no limit, so that a slow user
// never stops the reader; it can hold no more than one reply.
type parts struct {
	typ   uint16
	mu    sync.Mutex
	queue [][]byte
	more  bool // false after the last part
	err   error
	ready chan struct{} // has a token if there may be something to take
}

func newParts(typ uint16) *parts {
	return &parts{typ: typ, more: true, ready: make(chan struct{}, 1)}
}

func (p *parts) deliver(h head, body []byte) (last bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if h.typ != typeMultipartReply {
		p.err = malformed("reply", "type %d instead of %d", h.typ, typeMultipartReply)
	} else if typ, more, rest, err := cutMultipart(body); err != nil {
		p.err = err
	} else if typ != p.typ {
		p.err = malformed("multipart reply", "type %d instead of %d", typ, p.typ)
	} else {
		p.more = more
		p.queue = append(p.queue, rest)
	}
	p.wake()
	return p.err != nil || !p.more
}

func (p *parts) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = err
	p.wake()
}

func (p *parts) wake() {
	select {
	case p.ready <- struct{}{}:
	default:
	}
}

// take returns the parts that have come, and whether more will.
func (p *parts) take() (list [][]byte, more bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	list, p.queue = p.queue, nil
	return list, p.more, p.err
}

// multipart sends a request and calls f with every part of the reply. When f
// fails, the rest of the reply is dropped.
func (c *Conn) multipart(ctx context.Context, typ uint16, body []byte, f func([]byte) error) error {
	ctx, cancel := c.cfg.bound(ctx)
	defer cancel()
	p := newParts(typ)
	xid, err := c.pending.start(p)
	if err != nil {
		return err
	}
	if err := c.write(ctx, appendMultipart(nil, c.version, typ, xid, body)); err != nil {
		c.pending.forget(xid)
		return err
	}
	for {
		if err := c.pending.await(ctx, xid, p.ready); err != nil {
			return err
		}
		list, more, err := p.take()
		for _, part := range list {
			if err := f(part); err != nil {
				c.pending.forget(xid)
				return err
			}
		}
		if err != nil || !more {
			return err
		}
	}
}

// DumpFlows calls f with every flow that fl selects, as the reply comes in.
// The FlowStat is reused and points into the message; f may use the
// connection. When f fails the dump ends with its error. A flow that cannot be
// decoded is never an error: FlowStat keeps the bytes.
func (c *Conn) DumpFlows(ctx context.Context, fl Filter, f func(*FlowStat) error) error {
	body, err := fl.append(nil)
	if err != nil {
		return err
	}
	var s FlowStat
	return c.multipart(ctx, mpFlow, body, func(b []byte) error {
		for len(b) > 0 {
			var err error
			if b, err = cutFlowStat(b, &s); err != nil {
				return err
			}
			if err = f(&s); err != nil {
				return err
			}
		}
		return nil
	})
}

// Flows returns every flow that fl selects.
func (c *Conn) Flows(ctx context.Context, fl Filter) ([]Entry, error) {
	var list []Entry
	err := c.DumpFlows(ctx, fl, func(s *FlowStat) error {
		list = append(list, s.Entry())
		return nil
	})
	return list, err
}

// collect sends a multipart request and gathers what decode finds in the parts.
func collect[T any](ctx context.Context, c *Conn, typ uint16, body []byte,
	decode func([]byte, []T) ([]T, error),
) ([]T, error) {
	var list []T
	err := c.multipart(ctx, typ, body, func(b []byte) (err error) {
		list, err = decode(b, list)
		return err
	})
	return list, err
}

// Aggregate counts the flows that fl selects and sums up their counters.
func (c *Conn) Aggregate(ctx context.Context, fl Filter) (Aggregate, error) {
	body, err := fl.append(nil)
	if err != nil {
		return Aggregate{}, err
	}
	var a Aggregate
	err = c.multipart(ctx, mpAggregate, body, func(b []byte) (err error) {
		a, err = decodeAggregate(b)
		return err
	})
	return a, err
}

// Desc returns the description of the switch.
func (c *Conn) Desc(ctx context.Context) (Desc, error) {
	var d Desc
	err := c.multipart(ctx, mpDesc, nil, func(b []byte) (err error) {
		d, err = decodeDesc(b)
		return err
	})
	return d, err
}

// Tables returns the counters of all tables.
func (c *Conn) Tables(ctx context.Context) ([]TableStats, error) {
	return collect(ctx, c, mpTable, nil, decodeTableStats)
}

// Ports returns the ports of the bridge.
func (c *Conn) Ports(ctx context.Context) ([]PortDesc, error) {
	return collect(ctx, c, mpPortDesc, nil, func(b []byte, list []PortDesc) ([]PortDesc, error) {
		return decodePorts(c.version, b, list)
	})
}

// Groups returns all groups.
func (c *Conn) Groups(ctx context.Context) ([]GroupDesc, error) {
	return collect(ctx, c, mpGroupDesc, nil, decodeGroups)
}

// GroupStats returns the counters of all groups.
func (c *Conn) GroupStats(ctx context.Context) ([]GroupStats, error) {
	return collect(ctx, c, mpGroup, idBody(AllGroups), decodeGroupStats)
}

// Meters returns all meters.
func (c *Conn) Meters(ctx context.Context) ([]MeterDesc, error) {
	return collect(ctx, c, mpMeterConfig, idBody(AllMeters), decodeMeters)
}

// MeterStats returns the counters of all meters.
func (c *Conn) MeterStats(ctx context.Context) ([]MeterCounters, error) {
	return collect(ctx, c, mpMeter, idBody(AllMeters), decodeMeterStats)
}

// MeterFeatures says which meters the switch can have.
func (c *Conn) MeterFeatures(ctx context.Context) (MeterFeatures, error) {
	var m MeterFeatures
	err := c.multipart(ctx, mpMeterFeature, nil, func(b []byte) (err error) {
		m, err = decodeMeterFeatures(b)
		return err
	})
	return m, err
}

// idBody is a group or meter id and padding.
func idBody(id uint32) []byte {
	return append(binary.BigEndian.AppendUint32(nil, id), 0, 0, 0, 0)
}
