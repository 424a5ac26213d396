// SPDX-License-Identifier: Apache-2.0

package openflow

import (
	"encoding/binary"
	"time"
)

// MeterFlags say in what a meter counts.
type MeterFlags uint16

// Flags of a meter. Exactly one of MeterKbps and MeterPktps is needed.
const (
	MeterKbps  MeterFlags = 1 << 0 // rates in kbit/s, bursts in kbit
	MeterPktps MeterFlags = 1 << 1 // rates in packets/s, bursts in packets
	MeterBurst MeterFlags = 1 << 2 // the bands' bursts count
	MeterStats MeterFlags = 1 << 3
)

var meterFlagNames = []flagName{
	{uint64(MeterKbps), "kbps"}, {uint64(MeterPktps), "pktps"}, {uint64(MeterBurst), "burst"}, {uint64(MeterStats), "stats"},
}

// A Band is one limit of a meter: packets beyond it are dropped, or remarked
// if it is a DSCP band.
type Band struct {
	Rate  uint32
	Burst uint32
	// Remark makes the band raise the drop precedence by Precedence instead of
	// dropping.
	Remark     bool
	Precedence uint8
}

// A MeterDesc is a meter and its limits.
type MeterDesc struct {
	ID    uint32
	Flags MeterFlags
	Bands []Band
}

// A MeterMod adds, changes or deletes a meter. Only Add, Modify and Delete are
// used of the commands. A bundle cannot hold it.
type MeterMod struct {
	Command Command
	Meter   MeterDesc
}

// AllMeters as the id of a meter to delete or list stands for every meter.
const AllMeters = 0xffffffff

const (
	bandDrop = 1
	bandDSCP = 2
)

// AppendMessage appends the message with its header.
func (m MeterMod) AppendMessage(b []byte, v Version, xid uint32) ([]byte, error) {
	b, start := beginMessage(b, v, typeMeterMod, xid)
	cmd := uint16(0)
	switch m.Command {
	case Modify, ModifyStrict:
		cmd = 1
	case Delete, DeleteStrict:
		cmd = 2
	}
	b = binary.BigEndian.AppendUint16(b, cmd)
	b = binary.BigEndian.AppendUint16(b, uint16(m.Meter.Flags))
	b = binary.BigEndian.AppendUint32(b, m.Meter.ID)
	for _, k := range m.Meter.Bands {
		typ := uint16(bandDrop)
		if k.Remark {
			typ = bandDSCP
		}
		b = append(b, byte(typ>>8), byte(typ), 0, 16)
		b = binary.BigEndian.AppendUint32(b, k.Rate)
		b = binary.BigEndian.AppendUint32(b, k.Burst)
		b = append(b, k.Precedence, 0, 0, 0)
	}
	return endMessage(b, start)
}

// AppendText appends the meter in ovs-ofctl syntax.
func (m MeterMod) AppendText(b []byte) []byte {
	b = append(append(b, m.Command.String()...), ' ')
	return m.Meter.AppendText(b)
}

// AppendText appends the meter in ovs-ofctl syntax.
func (m MeterDesc) AppendText(b []byte) []byte {
	b = appendDec(append(b, "meter="...), uint64(m.ID))
	for _, n := range meterFlagNames {
		if m.Flags&MeterFlags(n.bit) != 0 {
			b = append(append(b, ','), n.name...)
		}
	}
	for _, k := range m.Bands {
		if k.Remark {
			b = append(b, ",band=type=dscp_remark,rate="...)
		} else {
			b = append(b, ",band=type=drop,rate="...)
		}
		b = appendDec(b, uint64(k.Rate))
		if k.Burst != 0 {
			b = appendDec(append(b, ",burst_size="...), uint64(k.Burst))
		}
		if k.Remark {
			b = appendDec(append(b, ",prec_level="...), uint64(k.Precedence))
		}
	}
	return b
}

func decodeMeters(b []byte, list []MeterDesc) ([]MeterDesc, error) {
	be := binary.BigEndian
	err := eachItem(b, "meter", 8, 0, func(b []byte) error {
		m := MeterDesc{Flags: MeterFlags(be.Uint16(b[2:])), ID: be.Uint32(b[4:])}
		err := eachItem(b[8:], "band", 16, 2, func(k []byte) error {
			m.Bands = append(m.Bands, Band{
				Rate: be.Uint32(k[4:]), Burst: be.Uint32(k[8:]),
				Remark: be.Uint16(k) == bandDSCP, Precedence: k[12],
			})
			return nil
		})
		if err == nil {
			list = append(list, m)
		}
		return err
	})
	return list, err
}

// MeterCounters are the counters of a meter.
type MeterCounters struct {
	ID             uint32
	Flows          uint32
	Packets, Bytes uint64 // that came in
	Duration       time.Duration
	Bands          []BandCounters // that hit the limits
}

// BandCounters count what a band acted on.
type BandCounters struct{ Packets, Bytes uint64 }

func decodeMeterStats(b []byte, list []MeterCounters) ([]MeterCounters, error) {
	be := binary.BigEndian
	err := eachItem(b, "meter stats", 40, 4, func(b []byte) error {
		m := MeterCounters{
			ID: be.Uint32(b), Flows: be.Uint32(b[12:]), Packets: be.Uint64(b[16:]), Bytes: be.Uint64(b[24:]),
			Duration: duration(be.Uint32(b[32:]), be.Uint32(b[36:])),
		}
		for k := b[40:]; len(k) >= 16; k = k[16:] {
			m.Bands = append(m.Bands, BandCounters{Packets: be.Uint64(k), Bytes: be.Uint64(k[8:])})
		}
		list = append(list, m)
		return nil
	})
	return list, err
}

// MeterFeatures say what meters the switch can have.
type MeterFeatures struct {
	Max          uint32 // number of meters, 0 if the datapath has none
	BandTypes    uint32
	Capabilities MeterFlags
	MaxBands     uint8
}

func decodeMeterFeatures(b []byte) (MeterFeatures, error) {
	if len(b) < 16 {
		return MeterFeatures{}, malformed("meter features", "%d bytes", len(b))
	}
	be := binary.BigEndian
	return MeterFeatures{
		Max: be.Uint32(b), BandTypes: be.Uint32(b[4:]), Capabilities: MeterFlags(be.Uint32(b[8:])), MaxBands: b[12],
	}, nil
}
