// SPDX-License-Identifier: Apache-2.0

package world

import (
	"encoding/hex"
	"testing"
)

// TestBLAKE2b: with a block of which every word counts. The sum is of Python's hashlib.
func TestBLAKE2b(t *testing.T) {
	block := make([]byte, 128)
	for i := range block {
		block[i] = byte(i + 1)
	}
	if got := hex.EncodeToString(blake2b(string(block), 20)); got != "2bc0dfda4a8c62cfb0cc1cb340e2235111121627" {
		t.Errorf("%s", got)
	}
}
