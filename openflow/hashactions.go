// SPDX-License-Identifier: Apache-2.0

package openflow

import "encoding/binary"

var hashFields = []string{
	"eth_src", "symmetric_l4", "symmetric_l3l4", "symmetric_l3l4+udp",
	"nw_src", "nw_dst", "symmetric_l3",
}

var (
	multipathAlgorithms = []string{"modulo_n", "hash_threshold", "hrw", "iter_hash"}
	bundleAlgorithms    = []string{"active_backup", "hrw"}
)

func appendName(b []byte, names []string, i uint16) []byte {
	if int(i) < len(names) {
		return append(b, names[i]...)
	}
	return appendDec(b, uint64(i))
}

// Multipath writes to a field the number of a link chosen by hashing the
// packet.
type Multipath struct {
	Fields    uint16 // what is hashed, in ovs-ofctl's order of names
	Basis     uint16
	Algorithm uint16
	Links     uint16
	Arg       uint32
	To        Bits
}

func (a Multipath) appendWire(b []byte) ([]byte, error) {
	if !a.To.valid() || a.Links == 0 {
		return b, badAction(a, "bits or links out of range")
	}
	b, start := beginNX(b, nxMultipath)
	b = binary.BigEndian.AppendUint16(b, a.Fields)
	b = binary.BigEndian.AppendUint16(b, a.Basis)
	b = append(b, 0, 0)
	b = binary.BigEndian.AppendUint16(b, a.Algorithm)
	b = binary.BigEndian.AppendUint16(b, a.Links-1)
	b = binary.BigEndian.AppendUint32(b, a.Arg)
	b = append(b, 0, 0)
	b = binary.BigEndian.AppendUint16(b, a.To.ofsNBits())
	b = binary.BigEndian.AppendUint32(b, a.To.Field.info().nxmHdr)
	return endAction(b, start)
}

func (a Multipath) appendText(b []byte) []byte {
	b = appendName(append(b, "multipath("...), hashFields, a.Fields)
	b = appendDec(append(b, ','), uint64(a.Basis))
	b = appendName(append(b, ','), multipathAlgorithms, a.Algorithm)
	b = appendDec(append(b, ','), uint64(a.Links))
	b = appendDec(append(b, ','), uint64(a.Arg))
	return append(a.To.appendText(append(b, ',')), ')')
}

func decodeMultipath(b []byte) Action {
	if len(b) != 32 {
		return nil
	}
	be := binary.BigEndian
	return Multipath{
		Fields: be.Uint16(b[10:]), Basis: be.Uint16(b[12:]), Algorithm: be.Uint16(b[16:]),
		Links: be.Uint16(b[18:]) + 1, Arg: be.Uint32(b[20:]),
		To: unpackBits(be.Uint16(b[26:]), be.Uint32(b[28:])),
	}
}

// Choose sends the packet to one of several ports, or writes the chosen port
// to a field: bundle(…) and bundle_load(…) in ovs-ofctl.
type Choose struct {
	Fields    uint16
	Basis     uint16
	Algorithm uint16
	Ports     []uint16
	To        Bits // zero to output
}

func (a Choose) appendWire(b []byte) ([]byte, error) {
	sub := uint16(nxBundle)
	if a.To.Len != 0 {
		if sub = nxBundleLoad; !a.To.valid() {
			return b, badAction(a, "bits out of range")
		}
	}
	b, start := beginNX(b, sub)
	b = binary.BigEndian.AppendUint16(b, a.Algorithm)
	b = binary.BigEndian.AppendUint16(b, a.Fields)
	b = binary.BigEndian.AppendUint16(b, a.Basis)
	b = binary.BigEndian.AppendUint32(b, InPort16.info().nxmHdr)
	b = binary.BigEndian.AppendUint16(b, uint16(len(a.Ports)))
	if sub == nxBundleLoad {
		b = binary.BigEndian.AppendUint16(b, a.To.ofsNBits())
		b = binary.BigEndian.AppendUint32(b, a.To.Field.info().nxmHdr)
	} else {
		b = appendZeros(b, 6)
	}
	b = appendZeros(b, 4)
	for _, p := range a.Ports {
		b = binary.BigEndian.AppendUint16(b, p)
	}
	return endAction(b, start)
}

func (a Choose) appendText(b []byte) []byte {
	name := "bundle("
	if a.To.Len != 0 {
		name = "bundle_load("
	}
	b = appendName(append(b, name...), hashFields, a.Fields)
	b = appendDec(append(b, ','), uint64(a.Basis))
	b = appendName(append(b, ','), bundleAlgorithms, a.Algorithm)
	b = append(b, ",ofport,"...)
	if a.To.Len != 0 {
		b = append(a.To.appendText(b), ',')
	}
	b = append(b, "members:"...)
	for i, p := range a.Ports {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendPort(b, port32(p))
	}
	return append(b, ')')
}

func decodeBundleAction(sub uint16, b []byte) Action {
	be := binary.BigEndian
	if len(b) < 32 || be.Uint32(b[16:]) != InPort16.info().nxmHdr {
		return nil
	}
	n := int(be.Uint16(b[20:]))
	if 32+2*n > len(b) {
		return nil
	}
	a := Choose{Algorithm: be.Uint16(b[10:]), Fields: be.Uint16(b[12:]), Basis: be.Uint16(b[14:])}
	if sub == nxBundleLoad {
		a.To = unpackBits(be.Uint16(b[22:]), be.Uint32(b[24:]))
	}
	a.Ports = make([]uint16, n)
	for i := range a.Ports {
		a.Ports[i] = be.Uint16(b[32+2*i:])
	}
	return a
}
