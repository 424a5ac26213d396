// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/binary"
	"maps"
	"slices"

	"github.com/patchbay-sdn/patchbay/openflow"
)

// The fake's meters. A flow needs the meter that it refers to, and goes with it, as in Open vSwitch.

// Errors about meters.
const (
	ofMeterFailed               = 12
	ofMeterExists, ofMeterWrong = 1, 3
)

// fakeMeters is how many meters a bridge of the fake can have. There are so many that their ids do not collide: they are made from
// what the meters are for.
const fakeMeters = 1 << 24

func meterFeatures() []byte {
	b := binary.BigEndian.AppendUint32(nil, fakeMeters)
	b = binary.BigEndian.AppendUint32(b, 1<<1) // drop
	b = binary.BigEndian.AppendUint32(b, uint32(openflow.MeterKbps|openflow.MeterPktps|openflow.MeterBurst))
	return append(b, 1, 0, 0, 0)
}

// meterMod takes a message about a meter; it returns the code of an error, or 0.
func (o *fakeOVS) meterMod(bridge string, body []byte) byte {
	be := binary.BigEndian
	m := openflow.MeterDesc{Flags: openflow.MeterFlags(be.Uint16(body[2:])), ID: be.Uint32(body[4:])}
	for k := body[8:]; len(k) >= 16; k = k[16:] {
		m.Bands = append(m.Bands, openflow.Band{Rate: be.Uint32(k[4:]), Burst: be.Uint32(k[8:])})
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.meters[bridge] == nil {
		o.meters[bridge] = map[uint32]openflow.MeterDesc{}
	}
	_, there := o.meters[bridge][m.ID]
	switch command := be.Uint16(body); {
	case command == 0 && there:
		return ofMeterExists
	case command == 1 && !there:
		return ofMeterWrong
	case command < 2:
		o.meters[bridge][m.ID] = m
		return 0
	}
	delete(o.meters[bridge], m.ID)
	var gone []flowMod
	for k, e := range o.flows[bridge] {
		if id, ok := meterOf(e); ok && id == m.ID {
			delete(o.flows[bridge], k)
			gone = append(gone, flowMod{key: k})
		}
	}
	if len(gone) > 0 && o.committed != nil {
		o.committed(bridge, gone, false)
	}
	return 0
}

func (o *fakeOVS) dumpMeters(bridge string) []byte {
	var b []byte
	for _, m := range o.allMeters(bridge) {
		b = binary.BigEndian.AppendUint16(b, uint16(8+16*len(m.Bands)))
		b = binary.BigEndian.AppendUint16(b, uint16(m.Flags))
		b = binary.BigEndian.AppendUint32(b, m.ID)
		for _, k := range m.Bands {
			b = binary.BigEndian.AppendUint32(append(b, 0, 1, 0, 16), k.Rate)
			b = append(binary.BigEndian.AppendUint32(b, k.Burst), 0, 0, 0, 0)
		}
	}
	return b
}

// allMeters are the meters of a bridge.
func (o *fakeOVS) allMeters(bridge string) []openflow.MeterDesc {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.SortedFunc(maps.Values(o.meters[bridge]), func(a, b openflow.MeterDesc) int { return int(a.ID) - int(b.ID) })
}

// meterOf is the meter that a flow refers to.
func meterOf(e openflow.Entry) (uint32, bool) {
	if e.IsZero() {
		return 0, false
	}
	f, err := e.Flow()
	if err != nil {
		return 0, false
	}
	for _, a := range f.Actions {
		if m, ok := a.(openflow.Meter); ok {
			return uint32(m), true
		}
	}
	return 0, false
}
