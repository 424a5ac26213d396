// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"bytes"
	"strings"
	"testing"
)

// TestRequests: a seed makes the same requests, no frame is too long for a port, and each way to spoil one is in the mix.
func TestRequests(t *testing.T) {
	const count = 5000
	a, b, by := NewRequests(3), NewRequests(3), map[string]int{}
	differ := func(i int, x, y Frame) {
		t.Helper()
		if x.Kind != y.Kind || !bytes.Equal(x.Bytes, y.Bytes) {
			t.Fatalf("request %d differs: %s %x and %s %x", i, x.Kind, x.Bytes, y.Kind, y.Bytes)
		}
		if by[x.Kind]++; len(x.Bytes) > 1414 {
			t.Fatalf("%s: a frame of %d bytes", x.Kind, len(x.Bytes))
		}
	}
	told := 0
	for i := range count {
		x := a.DHCP(party(1), party(2).MAC)
		differ(i, x, b.DHCP(party(1), party(2).MAC))
		if bytes.Contains(x.Bytes, []byte(Said)) {
			told++
		}
		differ(i, a.DNS(party(1)), b.DNS(party(1)))
		kind, text := a.HTTP("another")
		if same, again := b.HTTP("another"); kind != same || !bytes.Equal(text, again) {
			t.Fatalf("request %d differs: %s and %s", i, kind, same)
		}
		by[kind]++
	}
	for _, of := range []string{"dhcp4", "dhcp6", "dns", "http"} {
		for _, how := range []string{"cut", "changed", "filled", "repeated", "edge", "longer", "random", "empty"} {
			if n := by[of+" "+how]; n < count/500 {
				t.Errorf("%d requests are %s %s", n, of, how)
			}
		}
	}
	if len(by) < 4*8+11 || told < count/2 {
		t.Errorf("%d kinds, %d of %d DHCP requests say where they are from: %s", len(by), told, count, strings.Join(Kinds(), ", "))
	}
}
