// SPDX-License-Identifier: Apache-2.0

package openflow

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// A Version is a version of the OpenFlow protocol as it stands in messages.
type Version uint8

// The versions that this package speaks.
const (
	OpenFlow13 Version = 4
	OpenFlow14 Version = 5
)

// String returns the name that Open vSwitch uses in Bridge.protocols.
func (v Version) String() string {
	switch v {
	case OpenFlow13:
		return "OpenFlow13"
	case OpenFlow14:
		return "OpenFlow14"
	}
	return fmt.Sprintf("OpenFlow version %d", uint8(v))
}

// Message types, the same in 1.3 and 1.4 unless noted.
const (
	typeHello            = 0
	typeError            = 1
	typeEchoRequest      = 2
	typeEchoReply        = 3
	typeExperimenter     = 4
	typeFeaturesRequest  = 5
	typeFeaturesReply    = 6
	typeGetConfigRequest = 7
	typeGetConfigReply   = 8
	typeSetConfig        = 9
	typePacketIn         = 10
	typeFlowRemoved      = 11
	typePortStatus       = 12
	typePacketOut        = 13
	typeFlowMod          = 14
	typeGroupMod         = 15
	typePortMod          = 16
	typeMultipartRequest = 18
	typeMultipartReply   = 19
	typeBarrierRequest   = 20
	typeBarrierReply     = 21
	typeRoleRequest      = 24
	typeRoleReply        = 25
	typeGetAsyncRequest  = 26
	typeGetAsyncReply    = 27
	typeSetAsync         = 28
	typeMeterMod         = 29
	typeBundleControl    = 33 // 1.4; in 1.3 an ONF experimenter message
	typeBundleAdd        = 34 // likewise
)

// ONF's experimenter messages for bundles in OpenFlow 1.3.
const (
	onfBundleControl = 2300
	onfBundleAdd     = 2301
)

const headerLen = 8

// A Message is something that is sent to the switch. The messages of this
// package are FlowMod, GroupMod, MeterMod and PacketOut.
type Message interface {
	// AppendMessage appends the message with its header.
	AppendMessage(b []byte, v Version, xid uint32) ([]byte, error)
	// AppendText appends the message in a form for people.
	AppendText(b []byte) []byte
}

// beginMessage appends a header of which the length is filled in by
// endMessage.
func beginMessage(b []byte, v Version, typ uint8, xid uint32) ([]byte, int) {
	start := len(b)
	b = append(b, byte(v), typ, 0, 0)
	return binary.BigEndian.AppendUint32(b, xid), start
}

func endMessage(b []byte, start int) ([]byte, error) {
	n := len(b) - start
	if n > maxMessage {
		return b, errTooLong
	}
	binary.BigEndian.PutUint16(b[start+2:], uint16(n))
	return b, nil
}

// appendSimple appends a message that is a header and a body.
func appendSimple(b []byte, v Version, typ uint8, xid uint32, body []byte) []byte {
	n := headerLen + len(body)
	b = append(b, byte(v), typ, byte(n>>8), byte(n))
	b = binary.BigEndian.AppendUint32(b, xid)
	return append(b, body...)
}

// errTooLong reports a message or action beyond 64 KiB; callers replace it by
// an error that names what is too long.
var errTooLong = errors.New("openflow: does not fit into a message of 64 KiB")

// ErrMalformed is wrapped by every error about bytes that are not OpenFlow.
var ErrMalformed = errors.New("malformed")

func malformed(what, format string, args ...any) error {
	return fmt.Errorf("openflow: %s: %w: "+format, append([]any{what, ErrMalformed}, args...)...)
}

// head is the header of a message.
type head struct {
	version Version
	typ     uint8
	length  int
	xid     uint32
}

func parseHead(b []byte) head {
	return head{
		version: Version(b[0]), typ: b[1],
		length: int(binary.BigEndian.Uint16(b[2:])), xid: binary.BigEndian.Uint32(b[4:]),
	}
}

// appendHello appends a hello that offers the versions given.
func appendHello(b []byte, versions []Version, xid uint32) []byte {
	highest, bitmap := Version(0), uint32(0)
	for _, v := range versions {
		highest = max(highest, v)
		bitmap |= 1 << v
	}
	body := binary.BigEndian.AppendUint32([]byte{0, 1, 0, 8}, bitmap)
	return appendSimple(b, highest, typeHello, xid, body)
}

// decodeHello returns the bitmap of the versions that a hello offers. Without
// a bitmap the peer speaks every version up to that of the header.
func decodeHello(h head, body []byte) uint32 {
	for len(body) >= 4 {
		typ, payload, rest, ok := cutProp(body)
		if !ok {
			break
		}
		if typ == 1 && len(payload) >= 4 {
			return binary.BigEndian.Uint32(payload)
		}
		body = rest
	}
	return uint32(1)<<(uint(h.version&31)+1) - 1
}

// negotiate returns the highest version of ours that theirs, a bitmap, has.
func negotiate(ours []Version, theirs uint32) (Version, bool) {
	best := Version(0)
	for _, v := range ours {
		if theirs&(1<<v) != 0 {
			best = max(best, v)
		}
	}
	return best, best != 0
}
