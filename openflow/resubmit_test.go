// SPDX-License-Identifier: Apache-2.0

package openflow

import (
	"bytes"
	"testing"
)

// AsFrom has to be written as others write it, or flows that do the same would not be equal: NXAST_RESUBMIT, port 7.
func TestAsFrom(t *testing.T) {
	got, err := AsFrom(7).appendWire(nil)
	want := []byte{0xff, 0xff, 0, 16, 0, 0, 0x23, 0x20, 0, 1, 0, 7, 0, 0, 0, 0}
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("% x (%v), want % x", got, err, want)
	}
	if text := string(AppendActions(nil, []Action{AsFrom(7)})); text != "resubmit:7" {
		t.Errorf("as text: %s", text)
	}
	e, err := (&Flow{Actions: []Action{AsFrom(7)}}).Entry()
	if err != nil {
		t.Fatal(err)
	}
	f, err := e.Flow()
	if err != nil || len(f.Actions) != 1 || f.Actions[0] != AsFrom(7) {
		t.Errorf("read back: %v, %v", f.Actions, err)
	}
}
