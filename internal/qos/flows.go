// SPDX-License-Identifier: Apache-2.0

package qos

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/pipeline"
	"github.com/patchbay-sdn/patchbay/internal/world"
	of "github.com/patchbay-sdn/patchbay/openflow"
)

// The kinds of rules, and their directions seen from the port.
const (
	bandwidthLimit   = "QosBandwidthLimitRule"
	packetRateLimit  = "QosPacketRateLimitRule"
	dscpMarking      = "QosDscpMarkingRule"
	minimumBandwidth = "QosMinimumBandwidthRule"
	minimumRate      = "QosMinimumPacketRateRule" // for placement only; nothing enforces it

	ingress = "ingress"
	egress  = "egress"
)

const (
	entry       = 0 // table of every bridge
	typeIPv4    = 0x0800
	typeIPv6    = 0x86dd
	defaultRate = 0 // number of the queue that everything goes through which was not given another
)

// Registers in which a packet remembers that it has been here: it is looked up in table 0 once more afterwards.
var (
	marked = of.Reg(2) // for DSCP
	queued = of.Reg(3) // for limits of bandwidth
	named  = of.Reg(4) // for minimum bandwidth
)

// find returns the rule of a kind and direction; nil if there is none. Rules without a direction are about what a port sends.
func find(rules []neutron.QosRule, kind, direction string) *neutron.QosRule {
	i := slices.IndexFunc(rules, func(r neutron.QosRule) bool {
		return r.Kind == kind && (r.Direction == direction || r.Direction == "" && direction == egress)
	})
	if i < 0 {
		return nil
	}
	return &rules[i]
}

// Compile implements extension.Extension.
func (q *QoS) Compile(o world.Object, want *pipeline.Want) {
	switch o := o.(type) {
	case world.BridgeObject:
		if br := string(o); br == q.w.Config.IntegrationBridge {
			want.Flow(br, "packets go through the queue that limits their receiver", of.Flow{
				Table: entry, Priority: 200, Match: of.Match{of.Num(queued, 0)},
				Actions: []of.Action{of.SetQueue(defaultRate), of.Load{Value: 1, To: queued.Bits(0, 0)}, of.To(entry)},
			})
		}
	case world.PortObject:
		q.port(string(o), want)
	case world.ExtensionObject:
		switch key, _ := own.Key(o); key {
		case uplinks:
			want.Rows = append(want.Rows, q.uplinks())
		case leftovers:
			want.Rows = append(want.Rows, noLeftovers())
		}
	}
}

// port compiles what the policy of a port means for it.
func (q *QoS) port(id string, want *pipeline.Want) {
	rules, known, waiting := q.rules(id)
	if waiting != "" {
		want.Waiting = "the rules of QoS policy " + waiting
	}
	if !known {
		return
	}
	p := q.w.Port(id)
	row := limits{port: p.VIF.Port, iface: p.VIF.Interface, name: p.VIF.Name, id: id, meters: map[meterKey]uint32{}}
	if i := q.w.View.Interface(p.VIF.Interface); i != nil {
		row.policed = strings.HasPrefix(i.Type, "dpdkvhostuser")
	}
	row.egress, row.ingress = find(rules, bandwidthLimit, egress), find(rules, bandwidthLimit, ingress)
	_, counted := q.w.MaxMeters[q.w.Config.IntegrationBridge]
	row.unsure, row.held = !counted, !counted && q.bandwidth
	for _, key := range meterKeys(id) {
		rule, meter := metered(rules, key, q.bandwidth), q.meters[key]
		if rule == nil || meter == 0 {
			continue
		}
		q.limit(p, rule, key, meter, want)
		row.meters[key] = meter
		switch {
		case key.counts == packets:
		case key.direction == egress:
			row.egress = nil
		default:
			row.ingress = nil
		}
	}
	want.Rows = append(want.Rows, row.spec())
	if rule := find(rules, dscpMarking, egress); rule != nil && rule.DSCPMark != nil {
		q.markDSCP(p, *rule.DSCPMark, want)
	}
	if q.policed[id] != (minimumClaim{}) {
		q.favour(p, want)
	}
}

// markDSCP writes a DSCP mark into what a port sends.
func (q *QoS) markDSCP(p *world.Port, dscp int, want *pipeline.Want) {
	for _, version := range []uint64{typeIPv4, typeIPv6} {
		want.Flow(q.w.Config.IntegrationBridge, fmt.Sprintf("what the port sends is marked with DSCP %d", dscp), of.Flow{
			Table: entry, Priority: 65535,
			Match: of.Match{of.FromPort(p.VIF.OFPort), of.Num(marked, 0), of.Num(of.EthType, version)},
			Actions: []of.Action{
				of.Set(marked, of.Uint(1)), of.Set(of.IPDSCP, of.Uint(uint64(dscp))),
				of.AsFrom(uint16(p.VIF.OFPort)),
			},
		})
	}
}

// favour names the sender of packets to the physical bridges, which put them into its queue.
func (q *QoS) favour(p *world.Port, want *pipeline.Want) {
	number := p.VIF.OFPort // numbers of the integration bridge are given once, so they do for queues
	const reason = "the port has a minimum of bandwidth"
	again := []of.Action{of.Load{Value: 1, To: named.Bits(0, 0)}, of.To(entry)}
	want.Flow(q.w.Config.IntegrationBridge, reason, of.Flow{
		Table: entry, Priority: 200, Match: of.Match{of.FromPort(number), of.Num(named, 0)},
		Actions: append([]of.Action{of.Set(of.PktMark, of.Uint(uint64(number)))}, again...),
	})
	for _, bridge := range q.physical() {
		for _, patch := range q.patches(bridge) {
			want.Flow(bridge, reason, of.Flow{
				Table: entry, Priority: 200,
				Match:   of.Match{of.FromPort(patch), of.Num(of.PktMark, uint64(number)), of.Num(named, 0)},
				Actions: append([]of.Action{of.SetQueue(number)}, again...),
			})
		}
	}
}

// limit sends the packets of a port through a meter.
func (q *QoS) limit(p *world.Port, rule *neutron.QosRule, key meterKey, meter uint32, want *pipeline.Want) {
	br := q.w.Config.IntegrationBridge
	way := map[string]string{egress: "from", ingress: "to"}[key.direction]
	reason := fmt.Sprintf("at most %d packets/s %s the port", rule.MaxKpps*si, way)
	desc := of.MeterDesc{ID: meter, Flags: of.MeterPktps, Bands: []of.Band{{Rate: uint32(rule.MaxKpps) * si, Burst: uint32(rule.MaxBurstKpps) * si}}}
	table, next := uint8(pipeline.TableRateLimit), uint8(pipeline.TableBandwidth)
	if key.counts == bits {
		reason = fmt.Sprintf("at most %d kbit/s %s the port", rule.MaxKbps, way)
		desc = of.MeterDesc{ID: meter, Flags: of.MeterKbps, Bands: []of.Band{{Rate: uint32(rule.MaxKbps), Burst: uint32(rule.MaxBurstKbps)}}} //nolint:gosec // Neutron bounds both
		table, next = pipeline.TableBandwidth, pipeline.TableTransient
	}
	if desc.Bands[0].Burst > 0 {
		desc.Flags |= of.MeterBurst
	}
	want.Meters = append(want.Meters, pipeline.Meter{Bridge: br, Reason: reason, MeterDesc: desc})
	match := of.Match{of.FromPort(p.VIF.OFPort), of.HW(of.EthSrc, of.MAC(p.VIF.MAC))}
	if key.direction == ingress {
		match = of.Match{of.VLAN(p.Wiring.VLAN), of.HW(of.EthDst, of.MAC(p.VIF.MAC))}
	}
	want.Flow(br, reason, of.Flow{Table: table, Priority: 100, Match: match, Actions: []of.Action{of.Meter(meter), of.GotoTable(next)}})
}

// What meters count, as their keys in the database begin.
const (
	packets = "pps"
	bits    = "bps"
)

// meterKey is what a meter is for.
type meterKey struct{ port, counts, direction string }

// meterKeys are the meters that a port can have.
func meterKeys(port string) []meterKey {
	return []meterKey{{port, packets, egress}, {port, packets, ingress}, {port, bits, egress}, {port, bits, ingress}}
}

// metered returns the rule whose limit is a meter, of bandwidth only where that is asked for; nil if there is none. A rate of 0 is no limit.
func metered(rules []neutron.QosRule, key meterKey, bandwidth bool) *neutron.QosRule {
	if key.counts == packets {
		return find(rules, packetRateLimit, key.direction)
	}
	if rule := find(rules, bandwidthLimit, key.direction); bandwidth && rule != nil && rule.MaxKbps > 0 {
		return rule
	}
	return nil
}

// keys are those under which the id of a meter stands in other_config of a port: since Neutron 22, and that of 20 and 21, which have meters for packets only.
func (k meterKey) keys() []string {
	key := k.port + "_" + k.direction
	if k.counts == bits {
		return []string{bits + "_" + key}
	}
	return []string{packets + "_" + key, key}
}

// number gives the meters of a port their ids, and takes them back. One that is written down on the port stays; another is
// made from what the meter is for, so that it does not depend on what came first.
func (q *QoS) number(id string) {
	rules, known, _ := q.rules(id)
	for _, key := range meterKeys(id) {
		most, counted := q.w.MaxMeters[q.w.Config.IntegrationBridge]
		switch {
		case !counted:
		case metered(rules, key, q.bandwidth) == nil || most == 0:
			if known || q.w.Port(id) == nil {
				q.w.MeterIDs.Release(q.meters[key], key.use())
				delete(q.meters, key)
			}
		case q.meters[key] == 0 || q.meters[key] > most:
			q.w.MeterIDs.Release(q.meters[key], key.use())
			q.meters[key] = q.newMeter(key, most)
		}
	}
}

// newMeter chooses the id of a meter. Ids under both keys are those of two agents that had the host one after the other: the one under the newer
// key counts, whatever the order in which rows are read.
func (q *QoS) newMeter(key meterKey, most uint32) uint32 {
	taken := map[uint32]bool{}
	written := make([]uint32, len(key.keys()))
	for p := range q.w.View.Ports() {
		for k, v := range p.OtherConfig {
			n := meterID(k, v)
			if i := slices.Index(key.keys(), k); n != 0 && i >= 0 {
				written[i] = max(written[i], n)
			} else {
				taken[n] = true
			}
		}
	}
	for _, n := range written {
		if n != 0 && n <= most && !taken[n] && q.w.MeterIDs.Free(n, key.use()) {
			q.w.MeterIDs[n] = key.use()
			return n
		}
	}
	return q.w.MeterIDs.Choose(key.use(), most, func(n uint32) bool { return taken[n] })
}

func (k meterKey) use() world.MeterUse {
	use := world.MeterUse{Extension: name, For: k.port + k.direction}
	if k.counts == bits {
		use.For = bits + use.For
	}
	return use
}

// meterID reads an id that is written down on a port, under a key that ends in a direction; 0 if it is none.
func meterID(key, value string) uint32 {
	if !hasDirection(key) {
		return 0
	}
	n, err := strconv.ParseUint(value, 10, 32)
	if err != nil {
		return 0
	}
	return uint32(n)
}
