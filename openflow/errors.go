// SPDX-License-Identifier: Apache-2.0

package openflow

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// An Error is an error message of the switch.
type Error struct {
	Type, Code   uint16
	Experimenter uint32 // 0 for the errors of the standard; else Code is 0
	// Data is the beginning of the message that the switch objects to.
	Data []byte
}

// Name returns the name that Open vSwitch gives to the error, such as
// OFPBMC_BAD_PREREQ, the same for every version of OpenFlow.
func (e *Error) Name() string {
	if e.Experimenter != 0 {
		if n := experimenterErrorName(e.Experimenter, e.Type); n != "" {
			return n
		}
		return fmt.Sprintf("error %d of experimenter %#x", e.Type, e.Experimenter)
	}
	if n := errorName(e.Type, e.Code); n != "" {
		return n
	}
	if n := niciraErrors10[uint32(e.Type)<<16|uint32(e.Code)]; n != "" {
		return n
	}
	return fmt.Sprintf("error %d/%d", e.Type, e.Code)
}

func (e *Error) Error() string { return "switch: " + e.Name() }

// IsError reports whether err is or wraps an error of the switch with one of
// the names given.
func IsError(err error, names ...string) bool {
	var e *Error
	if !errors.As(err, &e) {
		return false
	}
	have := e.Name()
	for _, n := range names {
		if n == have {
			return true
		}
	}
	return false
}

// maxErrorData is how much of an offending message is kept: its header and
// more than enough to see what it was.
const maxErrorData = 64

// errorExperimenter is the type of errors that carry an experimenter id.
const errorExperimenter = 0xffff

// decodeError decodes the body of an error message.
func decodeError(b []byte) (*Error, error) {
	if len(b) < 4 {
		return nil, malformed("error", "%d bytes", len(b))
	}
	e := &Error{Type: binary.BigEndian.Uint16(b), Code: binary.BigEndian.Uint16(b[2:])}
	b = b[4:]
	switch {
	case e.Type == errorExperimenter:
		if len(b) < 4 {
			return nil, malformed("error", "experimenter id missing")
		}
		e.Type, e.Code = e.Code, 0
		e.Experimenter = binary.BigEndian.Uint32(b)
		b = b[4:]
	case e.Type == nxVendorError && len(b) >= 8 && binary.BigEndian.Uint32(b) == experimenterNicira:
		// OpenFlow 1.0's way to carry a vendor's error, which Open vSwitch
		// uses for flow monitor requests in every version.
		e.Type, e.Code = binary.BigEndian.Uint16(b[4:]), binary.BigEndian.Uint16(b[6:])
		b = b[8:]
	}
	if len(b) > maxErrorData {
		b = b[:maxErrorData]
	}
	e.Data = append([]byte(nil), b...)
	return e, nil
}

const nxVendorError = 0xb0c2

// ErrClosed is the reason why a request failed on a connection that was closed
// by its user.
var ErrClosed = errors.New("openflow: connection closed")

// A ConnError says that a request failed because the connection broke. What
// the switch did of the request is not known.
type ConnError struct{ Err error }

func (e *ConnError) Error() string { return "openflow: connection lost: " + e.Err.Error() }
func (e *ConnError) Unwrap() error { return e.Err }
