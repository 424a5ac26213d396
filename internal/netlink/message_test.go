// SPDX-License-Identifier: Apache-2.0

package netlink

import (
	"encoding/binary"
	"errors"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func TestErrno(t *testing.T) {
	payload := func(n int32) []byte { return binary.NativeEndian.AppendUint32(nil, uint32(n)) }
	if err := (Message{Kind: unix.NLMSG_ERROR, Payload: payload(0)}).Errno(); err != nil {
		t.Errorf("success: %v", err)
	}
	if err := (Message{Kind: unix.NLMSG_ERROR, Payload: payload(-int32(syscall.ENOENT))}).Errno(); !errors.Is(err, syscall.ENOENT) {
		t.Errorf("failure: %v", err)
	}
	if err := (Message{Kind: unix.NLMSG_DONE}).Errno(); err != nil {
		t.Errorf("end: %v", err)
	}
	if err := (Message{Kind: unix.NLMSG_ERROR}).Errno(); err == nil {
		t.Error("an error without a number is none")
	}
}
