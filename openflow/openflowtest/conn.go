// SPDX-License-Identifier: Apache-2.0

package openflowtest

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"sync"

	"github.com/patchbay-sdn/patchbay/openflow"
)

// Types of messages, of OpenFlow 1.4.
const (
	TypeHello           = 0
	TypeError           = 1
	TypeEchoRequest     = 2
	TypeEchoReply       = 3
	TypeExperimenter    = 4
	TypeFeaturesRequest = 5
	TypeFeaturesReply   = 6
	TypeSetConfig       = 9
	TypePacketIn        = 10
	TypePacketOut       = 13
	TypeFlowMod         = 14
	TypeMultipart       = 18
	TypeMultipartReply  = 19
	TypeBarrierRequest  = 20
	TypeBarrierReply    = 21
	TypeMeterMod        = 29
	TypeBundleControl   = 33
	TypeBundleAdd       = 34
)

// Kinds of multipart messages, the first two bytes of their bodies.
const (
	MultipartFlows         = 1
	MultipartAggregate     = 2
	MultipartMeters        = 10
	MultipartMeterFeatures = 11
	MultipartFlowMonitor   = 16
)

// BundleCommit is the kind of a bundle control message, bytes 4 and 5 of its body, that commits.
const BundleCommit = 4

const (
	bundleOpen, bundleDiscard          = 0, 6
	meterAdd, meterModify, meterDelete = 0, 1, 2
)

// Message is one from the peer.
type Message struct {
	Version openflow.Version
	Type    uint8
	XID     uint32
	Body    []byte // after the header
}

// Kind is the kind of a multipart request.
func (m Message) Kind() uint16 { return binary.BigEndian.Uint16(m.Body) }

// Commits says whether the message commits a bundle.
func (m Message) Commits() bool {
	return m.Type == TypeBundleControl && len(m.Body) >= 8 && binary.BigEndian.Uint16(m.Body[4:]) == BundleCommit
}

// Gate stands before a connection. It is asked about every message before it is handled, and with done about bundles and meters
// after they were, before the answer. False breaks the connection there.
type Gate func(m Message, done bool) bool

// Conn is the switch's end of one connection.
type Conn struct {
	sw      *Switch
	nc      net.Conn
	gate    Gate
	version openflow.Version
	bundles map[uint32][]change

	// Of the switch, under its lock.
	monitors map[uint32]monitor
	pending  []update                        // for the monitors, until the change is whole
	told     bool                            // that the changes of this connection are its own
	paused   bool                            // reports are held back
	held     map[openflow.Key]openflow.Entry // flows that changed since, as they were when the pause began

	// A queue, so that whoever changes flows never waits for one who watches them.
	mu    sync.Mutex
	queue [][]byte
	ready chan struct{}
	ended chan struct{}
	once  sync.Once
}

// Serve speaks on one connection until it ends.
func (s *Switch) Serve(nc net.Conn, gate Gate) {
	if gate == nil {
		gate = func(Message, bool) bool { return true }
	}
	c := &Conn{
		sw: s, nc: nc, gate: gate, version: openflow.OpenFlow14, bundles: map[uint32][]change{},
		monitors: map[uint32]monitor{}, ready: make(chan struct{}, 1), ended: make(chan struct{}),
	}
	s.mu.Lock()
	s.conns[c] = true
	s.mu.Unlock()
	var wg sync.WaitGroup
	wg.Go(c.write)
	defer func() {
		s.mu.Lock()
		delete(s.conns, c)
		s.mu.Unlock()
		c.Close()
		wg.Wait()
	}()
	var hello []byte
	if s.Hello != 0 {
		hello = binary.BigEndian.AppendUint32([]byte{0, 1, 0, 8}, s.Hello)
	}
	c.Send(TypeHello, 1, hello...)
	for r := bufio.NewReader(nc); ; {
		m, err := readMessage(r)
		if err != nil {
			return
		}
		s.mu.Lock()
		before := s.before
		s.mu.Unlock()
		if before != nil && before(c, m) {
			continue
		}
		if !gate(m, false) || !c.handle(m) {
			return
		}
	}
}

func readMessage(r *bufio.Reader) (Message, error) {
	head := make([]byte, 8)
	if _, err := io.ReadFull(r, head); err != nil {
		return Message{}, err
	}
	n := int(binary.BigEndian.Uint16(head[2:]))
	if n < 8 {
		return Message{}, io.ErrUnexpectedEOF
	}
	m := Message{openflow.Version(head[0]), head[1], binary.BigEndian.Uint32(head[4:]), make([]byte, n-8)}
	_, err := io.ReadFull(r, m.Body)
	return m, err
}

// write is the goroutine that writes what is queued.
func (c *Conn) write() {
	for {
		select {
		case <-c.ended:
			return
		case <-c.ready:
		}
		c.mu.Lock()
		list := c.queue
		c.queue = nil
		c.mu.Unlock()
		for _, b := range list {
			if _, err := c.nc.Write(b); err != nil {
				c.Close()
				return
			}
		}
	}
}

// Write sends bytes as they are, sensible or not.
func (c *Conn) Write(b []byte) {
	c.mu.Lock()
	c.queue = append(c.queue, b)
	c.mu.Unlock()
	select {
	case c.ready <- struct{}{}:
	default:
	}
}

// Send sends a message.
func (c *Conn) Send(typ uint8, xid uint32, body ...byte) {
	b := binary.BigEndian.AppendUint16([]byte{byte(c.version), typ}, uint16(8+len(body)))
	c.Write(append(binary.BigEndian.AppendUint32(b, xid), body...))
}

// SendError sends an error about the message with that transaction id.
func (c *Conn) SendError(xid uint32, e *openflow.Error) {
	b := binary.BigEndian.AppendUint16(nil, e.Type)
	b = binary.BigEndian.AppendUint16(b, e.Code)
	c.Send(TypeError, xid, append(b, e.Data...)...)
}

// Close breaks the connection. What is queued is lost.
func (c *Conn) Close() {
	c.once.Do(func() {
		close(c.ended)
		_ = c.nc.Close()
	})
}

// handle answers one message. False breaks the connection.
func (c *Conn) handle(m Message) bool {
	switch m.Type {
	case TypeHello:
		return c.hello(m)
	case TypeEchoRequest:
		c.Send(TypeEchoReply, m.XID, m.Body...)
	case TypeFeaturesRequest:
		c.Send(TypeFeaturesReply, m.XID, append(binary.BigEndian.AppendUint64(nil, c.sw.DatapathID), make([]byte, 16)...)...)
	case TypeBarrierRequest:
		c.Send(TypeBarrierReply, m.XID)
	case TypeFlowMod:
		mod, ok := decodeFlowMod(m.Body)
		if !ok {
			c.SendError(m.XID, badLength().err())
			break
		}
		c.sw.mu.Lock()
		_, err := c.sw.apply(c, []change{{m.XID, mod}})
		c.sw.mu.Unlock()
		if err != nil {
			c.SendError(m.XID, err)
		}
	case TypeMeterMod:
		return c.meterMod(m)
	case TypeMultipart:
		c.multipart(m)
	case TypeBundleAdd:
		c.bundleAdd(m)
	case TypeBundleControl:
		return c.bundleControl(m)
	case TypeEchoReply, TypeSetConfig, TypeExperimenter, TypePacketOut: // nothing to do, nothing to answer
	default:
		c.SendError(m.XID, badType().err())
	}
	return true
}

// hello agrees on the highest version that both have.
func (c *Conn) hello(m Message) bool {
	theirs := uint32(1)<<(m.Version+1) - 1
	if len(m.Body) >= 8 && m.Body[1] == 1 {
		theirs = binary.BigEndian.Uint32(m.Body[4:])
	}
	ours := c.sw.Hello
	if ours == 0 {
		ours = 1<<(openflow.OpenFlow14+1) - 1
	}
	for v := openflow.OpenFlow14; v > 0; v-- {
		if ours&theirs&(1<<v) != 0 {
			c.version = v
			return true
		}
	}
	c.SendError(m.XID, incompatible().err())
	return true
}

func (c *Conn) meterMod(m Message) bool {
	if len(m.Body) < 8 {
		c.SendError(m.XID, badLength().err())
		return true
	}
	command, meter := decodeMeterMod(m.Body)
	c.sw.mu.Lock()
	err := c.sw.meterMod(command, meter)
	c.sw.mu.Unlock()
	if !c.gate(m, true) {
		return false
	}
	if err != nil {
		c.SendError(m.XID, err)
	}
	return true
}

func (c *Conn) bundleAdd(m Message) {
	id, ok := uint32(0), len(m.Body) >= 16
	if ok {
		id = binary.BigEndian.Uint32(m.Body)
	}
	if _, open := c.bundles[id]; !ok || !open {
		c.SendError(m.XID, unknownBundle().err())
		return
	}
	mod, ok := decodeFlowMod(m.Body[16:])
	var err *openflow.Error
	switch {
	case m.Body[9] != TypeFlowMod:
		err = badType().err()
	case !ok:
		err = badLength().err()
	case mod.Command < openflow.Delete && mod.Entry.Table() >= internalTable:
		err = badTable().err()
	}
	if err != nil {
		c.SendError(m.XID, err)
		return
	}
	c.bundles[id] = append(c.bundles[id], change{m.XID, mod})
}

func (c *Conn) bundleControl(m Message) bool {
	if len(m.Body) < 8 {
		c.SendError(m.XID, badLength().err())
		return true
	}
	id := binary.BigEndian.Uint32(m.Body)
	list, open := c.bundles[id]
	switch kind := binary.BigEndian.Uint16(m.Body[4:]); {
	case kind == bundleOpen && open:
		c.SendError(m.XID, bundleExists().err())
		return true
	case kind == bundleOpen:
		c.bundles[id] = []change{}
	case !open:
		c.SendError(m.XID, unknownBundle().err())
		return true
	case kind == BundleCommit:
		delete(c.bundles, id)
		c.sw.mu.Lock()
		i, err := c.sw.apply(c, list)
		c.sw.mu.Unlock()
		if err != nil {
			c.SendError(list[i].xid, err)
			c.SendError(m.XID, bundleMsgFailed().err())
			return true
		}
		if !c.gate(m, true) {
			return false // done, and nobody is told
		}
	case kind == bundleDiscard:
		delete(c.bundles, id)
	}
	reply := append([]byte(nil), m.Body...)
	reply[5]++
	c.Send(TypeBundleControl, m.XID, reply...)
	return true
}

// flowsInPart is how many flows a part of a dump has.
const flowsInPart = 50

func (c *Conn) multipart(m Message) {
	if len(m.Body) < 8 {
		c.SendError(m.XID, badLength().err())
		return
	}
	kind, body := m.Kind(), m.Body[8:]
	switch kind {
	case MultipartFlows, MultipartAggregate:
		f, ok := decodeFlowsRequest(body)
		if !ok {
			c.SendError(m.XID, badLength().err())
			return
		}
		c.sw.mu.Lock()
		list := c.sw.selects(f)
		c.sw.mu.Unlock()
		if kind == MultipartAggregate {
			c.part(m.XID, kind, false, append(binary.BigEndian.AppendUint32(make([]byte, 16), uint32(len(list))), 0, 0, 0, 0))
			return
		}
		for len(list) > flowsInPart {
			c.part(m.XID, kind, true, encodeStats(list[:flowsInPart]))
			list = list[flowsInPart:]
		}
		c.part(m.XID, kind, false, encodeStats(list))
	case MultipartMeters:
		c.part(m.XID, kind, false, encodeMeters(c.sw.Meters()))
	case MultipartMeterFeatures:
		c.part(m.XID, kind, false, encodeMeterFeatures(c.sw.MaxMeters))
	case MultipartFlowMonitor:
		c.monitor(m.XID, body)
	default:
		c.SendError(m.XID, badMultipart().err())
	}
}

// part sends a part of a multipart reply.
func (c *Conn) part(xid uint32, kind uint16, more bool, body []byte) {
	head := []byte{byte(kind >> 8), byte(kind), 0, 0, 0, 0, 0, 0}
	if more {
		head[3] = 1
	}
	c.Send(TypeMultipartReply, xid, append(head, body...)...)
}
