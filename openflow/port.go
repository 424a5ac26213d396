// SPDX-License-Identifier: Apache-2.0

package openflow

import "encoding/binary"

// PortDesc describes a port of the switch.
type PortDesc struct {
	Port      uint32
	Name      string
	HW        MAC
	Config    uint32 // PortDown and others
	State     uint32 // LinkDown and others
	CurrSpeed uint32 // kbit/s
	MaxSpeed  uint32 // kbit/s
}

// Bits of PortDesc's Config and State.
const (
	PortDown = 1 << 0
	LinkDown = 1 << 0
)

// cutPort decodes the first port of b.
func cutPort(v Version, b []byte) (p PortDesc, rest []byte, err error) {
	be := binary.BigEndian
	n := 64 // 1.3: fixed
	if v >= OpenFlow14 {
		if len(b) < 40 {
			return p, nil, malformed("port", "%d bytes", len(b))
		}
		if n = int(be.Uint16(b[4:])); n < 40 {
			return p, nil, malformed("port", "length %d", n)
		}
	}
	if n > len(b) {
		return p, nil, malformed("port", "%d bytes of %d", len(b), n)
	}
	p = PortDesc{
		Port: be.Uint32(b), HW: MAC(b[8:14]), Name: cString(b[16:32]),
		Config: be.Uint32(b[32:]), State: be.Uint32(b[36:]),
	}
	if v < OpenFlow14 {
		p.CurrSpeed, p.MaxSpeed = be.Uint32(b[56:]), be.Uint32(b[60:])
		return p, b[n:], nil
	}
	for props := b[40:n]; len(props) > 0; {
		typ, payload, next, ok := cutProp(props)
		if !ok {
			return p, nil, malformed("port", "property of %d bytes", len(props))
		}
		if typ == 0 && len(payload) >= 28 {
			p.CurrSpeed, p.MaxSpeed = be.Uint32(payload[20:]), be.Uint32(payload[24:])
		}
		props = next
	}
	return p, b[n:], nil
}

func decodePorts(v Version, b []byte, list []PortDesc) ([]PortDesc, error) {
	for len(b) > 0 {
		p, rest, err := cutPort(v, b)
		if err != nil {
			return list, err
		}
		list, b = append(list, p), rest
	}
	return list, nil
}

// A PortChange says what happened to a port.
type PortChange uint8

// What can happen to a port.
const (
	PortAdded PortChange = iota
	PortRemoved
	PortModified
)

// PortStatus is the event that a port came, went or changed.
type PortStatus struct {
	Change PortChange
	Port   PortDesc
}

func decodePortStatus(v Version, b []byte) (*PortStatus, error) {
	if len(b) < 8 {
		return nil, malformed("port status", "%d bytes", len(b))
	}
	p, _, err := cutPort(v, b[8:])
	return &PortStatus{Change: PortChange(b[0]), Port: p}, err
}
