// SPDX-License-Identifier: Apache-2.0

// Package dnsforward is the extension dns_forwarder: it answers the DNS queries of guests on this host by asking resolvers that the host reaches, so that
// networks without a router or a DHCP agent have name resolution.
//
// Its inputs are ports, packets, and the answers of resolvers. Its outputs are flows (flows.go), which send queries of a port to the agent, questions
// for resolvers (package resolver), and packets. It knows nothing of the server but ports, which the snapshot has: it goes on while the server is away.
//
// The port by which a packet came says whose it is. What the packet says about its sender is only compared with what the port may send. A question has
// a number of its own; the answer goes to the port, the address and the id that the number stands for, if the port is still there.
package dnsforward

import (
	"net/netip"
	"slices"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/datagram"
	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/pipeline"
	"github.com/patchbay-sdn/patchbay/internal/resolver"
	"github.com/patchbay-sdn/patchbay/internal/world"
	of "github.com/patchbay-sdn/patchbay/openflow"
)

// name is that in agent.extensions.
const name = "dns_forwarder"

// Bounds of what guests may have of the agent.
const (
	// packetRate and packetBurst bound the queries of a port. A guest that looks up the parts of a web page asks some dozens of names at once.
	packetRate  = 50
	packetBurst = 100
	// portQuestions and hostQuestions bound the questions that wait for an answer. Each has a socket or two.
	portQuestions = 32
	hostQuestions = 512
	// fewQuestions is what a port may have while half of the host's questions wait: some ports of one tenant must not take them all.
	fewQuestions = 4
	// smallestMTU is assumed for a device whose MTU is not known: that of IPv6.
	smallestMTU = 1280
	// largestAnswer bounds what is asked for over TCP.
	largestAnswer = 8 << 10
)

// Config is what the extension reads of the options.
type Config struct {
	Listen   []netip.AddrPort `json:"listen"`   // where guests ask
	Upstream []netip.AddrPort `json:"upstream"` // resolvers to ask, in this order
	Timeout  time.Duration    `json:"timeout"`  // for all of them together
}

// Forwarder is the extension. It belongs to the agent's loop.
type Forwarder struct {
	w   *world.World
	cfg Config

	ports   map[string]int // of guests, by id: how many questions wait
	meters  *extension.PortMeters
	dirty   map[world.Object]bool
	waiting map[uint64]question // by number
	asked   map[question]uint64 // numbers of those
	next    uint64
	asks    []resolver.Ask
	last    map[string]last // by port
}

// question is a query of a guest that waits for an answer.
type question struct {
	port         string
	ofport       uint32
	mac, to      neutron.MAC // of the guest, and where it sent the query
	guest, local netip.AddrPort
	query        resolver.Query
}

// last is the last query of a port.
type last struct {
	kind    string
	at      time.Time
	outcome extension.Outcome
	from    netip.AddrPort // who answered
	err     error          // why nobody did
}

// New returns the maker of the extension.
func New(cfg Config) extension.New {
	return func(w *world.World) extension.Extension {
		return &Forwarder{
			w: w, cfg: cfg, ports: map[string]int{}, meters: extension.NewPortMeters(w, name), dirty: map[world.Object]bool{},
			waiting: map[uint64]question{}, asked: map[question]uint64{}, last: map[string]last{},
		}
	}
}

// Name implements extension.Extension.
func (*Forwarder) Name() string { return name }

// PacketBound implements extension.Bounded.
func (*Forwarder) PacketBound() extension.Bound {
	return extension.Bound{Rate: packetRate, Burst: packetBurst}
}

// Resolve implements extension.Extension.
func (d *Forwarder) Resolve(changed []world.Object) []world.Object {
	for _, o := range changed {
		if id, ok := world.PortID(o); ok {
			d.settle(id)
		}
	}
	if d.meters.Renewed() {
		for id := range d.ports {
			d.meters.Number(id)
			d.dirty[world.PortObject(id)] = true
		}
	}
	d.meters.Forget()
	return extension.TakeDirty(d.dirty)
}

// settle notes whether a port is a guest's.
func (d *Forwarder) settle(id string) {
	if len(d.cfg.Upstream) == 0 || !extension.IsGuest(d.w.Port(id)) {
		d.meters.Release(id)
		delete(d.ports, id)
		delete(d.last, id)
		return
	}
	d.ports[id] += 0
	d.meters.Number(id)
}

// OnPacket implements extension.PacketHandler.
func (d *Forwarder) OnPacket(p extension.Packet) ([]of.Message, extension.Outcome) {
	at := d.w.Port(p.Key)
	if _, known := d.ports[p.Key]; !known || !extension.IsGuest(at) || at.VIF.OFPort != p.InPort() || p.Bridge != d.w.Config.IntegrationBridge {
		return nil, extension.Refused // a flow of before, which is about to go
	}
	if s, err := datagram.ReadSolicitation(p.PacketIn.Packet); err == nil {
		if s.SrcMAC != at.VIF.MAC || !maySend(at, s.Src) || !d.answersFor(at, s.Target) {
			return nil, extension.Refused
		}
		return send(p.InPort(), s.Answer(neutron.MAC(extension.ServiceMAC()))), extension.Answered
	}
	f, err := datagram.Read(p.PacketIn.Packet)
	if err != nil {
		return nil, extension.Malformed
	}
	answer, kind, outcome := d.query(p.Key, at, &f)
	d.last[p.Key] = last{kind: kind, at: d.w.Time, outcome: outcome}
	return answer, outcome
}

// maySend returns whether a port may send under an address. Who may send under any gets answers under any: they go to its port alone.
func maySend(p *world.Port, ip netip.Addr) bool {
	if ip.IsMulticast() || ip.IsUnspecified() {
		return false
	}
	if !p.Details.PortSecurityEnabled() {
		return true
	}
	_, ips := pipeline.Senders(p)
	return slices.ContainsFunc(ips, func(own netip.Prefix) bool { return own.Contains(ip) })
}

// query takes a datagram of a port: it is answered, or resolvers are asked.
func (d *Forwarder) query(id string, at *world.Port, f *datagram.Frame) (answer []of.Message, kind string, outcome extension.Outcome) {
	q := question{
		port: id, ofport: at.VIF.OFPort, mac: f.SrcMAC, to: f.DstMAC, guest: netip.AddrPortFrom(f.Src, f.SrcPort), local: netip.AddrPortFrom(f.Dst, f.DstPort),
	}
	if f.SrcMAC != at.VIF.MAC || f.DstMAC[0]&1 != 0 || f.SrcPort == 0 || !maySend(at, f.Src) || !slices.Contains(d.cfg.Listen, q.local) {
		return nil, "", extension.Refused
	}
	var code int
	var err error
	if q.query, code, err = resolver.Read(f.Payload); err != nil {
		return nil, "", extension.Malformed
	}
	kind = q.query.Kind()
	switch {
	case code != 0:
		if answer, err = q.refuse(code); err != nil {
			return nil, kind, extension.Malformed
		}
		return answer, kind, extension.Refused
	case d.asked[q] != 0:
		return nil, kind, extension.Ignored // sent again, and the answer is on its way
	case d.ports[id] >= d.most() || len(d.waiting) >= hostQuestions:
		return nil, kind, extension.Limited
	}
	d.next++
	d.waiting[d.next], d.asked[q] = q, d.next
	d.ports[id]++
	d.asks = append(d.asks, resolver.Ask{Number: d.next, Query: q.query, Most: min(d.room(at, f.Src), q.query.Size), Servers: d.cfg.Upstream, Timeout: d.cfg.Timeout})
	return nil, kind, extension.Asked
}

// most returns how many questions of a port may wait.
func (d *Forwarder) most() int {
	if len(d.waiting) < hostQuestions/2 {
		return portQuestions
	}
	return fewQuestions
}

// room returns how many bytes of an answer the device of a port takes in one packet.
func (d *Forwarder) room(p *world.Port, to netip.Addr) int {
	mtu, header := smallestMTU, datagram.IPv4Len
	if row := d.w.View.Interface(p.VIF.Interface); row != nil && row.MTU != nil && *row.MTU > 0 {
		mtu = *row.MTU
	}
	if to.Is6() {
		header = datagram.IPv6Len
	}
	return min(mtu-header-datagram.UDPLen, largestAnswer)
}

// Asks implements extension.Asker.
func (d *Forwarder) Asks() []resolver.Ask {
	out := d.asks
	d.asks = nil
	return out
}

// OnAnswer implements extension.Asker. It is the port as it is now that counts: a number may have become another's meanwhile.
func (d *Forwarder) OnAnswer(a resolver.Answer, failed error) ([]of.Message, extension.Outcome) {
	q, known := d.waiting[a.Number]
	if !known {
		return nil, extension.Refused
	}
	delete(d.waiting, a.Number)
	delete(d.asked, q)
	n, here := d.ports[q.port]
	if !here {
		return nil, extension.Refused
	}
	d.ports[q.port] = max(n-1, 0)
	at := d.w.Port(q.port)
	if !extension.IsGuest(at) || at.VIF.OFPort != q.ofport || at.VIF.MAC != q.mac || !maySend(at, q.guest.Addr()) {
		return nil, extension.Refused
	}
	answer, outcome := q.answer(a, failed, d.room(at, q.guest.Addr()))
	d.last[q.port] = last{kind: q.query.Kind(), at: d.w.Time, outcome: outcome, from: a.From, err: failed}
	return answer, outcome
}

// answer returns what a guest is sent: what a resolver said, or that none did.
func (q *question) answer(a resolver.Answer, failed error, most int) ([]of.Message, extension.Outcome) {
	if failed == nil {
		if payload, err := q.query.Answer(a.Message, most); err == nil {
			return q.send(payload), extension.Answered
		}
	}
	answer, err := q.refuse(resolver.ServFail)
	if err != nil {
		return nil, extension.Malformed
	}
	return answer, extension.Unanswered
}

// refuse answers a query with a code.
func (q *question) refuse(code int) ([]of.Message, error) {
	payload, err := q.query.Refuse(code)
	if err != nil {
		return nil, err
	}
	return q.send(payload), nil
}

// send sends a payload to the guest, from where it asked.
func (q *question) send(payload []byte) []of.Message {
	f := datagram.Frame{
		SrcMAC: q.to, DstMAC: q.mac, Src: q.local.Addr(), Dst: q.guest.Addr(), SrcPort: q.local.Port(), DstPort: q.guest.Port(), Payload: payload,
	}
	return send(q.ofport, f.Bytes())
}

func send(ofport uint32, packet []byte) []of.Message {
	return []of.Message{of.PacketOut{Packet: packet, Actions: []of.Action{of.Output(ofport)}}}
}
