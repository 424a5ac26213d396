// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"slices"
	"testing"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv6"

	"github.com/patchbay-sdn/patchbay/internal/datagram"
	"github.com/patchbay-sdn/patchbay/internal/extension"
)

// TestBadFrames: a frame that is cut, a fragment, or one whose lengths lie is malformed.
func TestBadFrames(t *testing.T) {
	four, six := ask4(t, "255.255.255.255", kind4(dhcpv4.MessageTypeDiscover)), ask6(dhcpv6.MessageTypeSolicit, identity())
	for _, whole := range [][]byte{four, six} {
		if _, err := datagram.Read(whole); err != nil {
			t.Fatalf("%x: %v", whole, err)
		}
		if f, err := datagram.Read(append(slices.Clone(whole), 1, 2, 3)); err != nil || len(f.Bytes()) != len(whole) {
			t.Errorf("padding of Ethernet: %v, %d bytes of %d", err, len(f.Bytes()), len(whole))
		}
		for n := range whole {
			if _, err := datagram.Read(whole[:n]); err == nil {
				t.Errorf("a frame is read of which %d of %d bytes are there", n, len(whole))
			}
		}
	}
	for name, change := range map[string]func(b []byte){
		"more fragments":             func(b []byte) { b[20] = 0x20 },
		"a later fragment":           func(b []byte) { b[21] = 1 },
		"a header of 16 bytes":       func(b []byte) { b[14] = 0x44 },
		"a header beyond the packet": func(b []byte) { b[14] = 0x4f; b[16], b[17] = 0, 60 },
		"version 6 in IPv4":          func(b []byte) { b[14] = 0x65 },
		"TCP":                        func(b []byte) { b[23] = 6 },
		"ARP":                        func(b []byte) { b[13] = 6 },
		"a UDP length of 7":          func(b []byte) { b[38], b[39] = 0, 7 },
		"a UDP length beyond":        func(b []byte) { b[38] = 0xff },
	} {
		b := slices.Clone(four)
		change(b)
		if answer, _, outcome := aClient().answer(b); answer != nil || outcome != extension.Malformed {
			t.Errorf("%s: the outcome is %s", name, outcome)
		}
	}
}

// TestEncode: values of options as users write them.
func TestEncode(t *testing.T) {
	for _, c := range []struct {
		name, value string
		v6          bool
		want        string // "": an error
	}{
		{"mtu", "1400", false, "\x05\x78"}, {"mtu", "70000", false, ""}, {"26", "1400", false, "\x05\x78"}, {"T1", "3600s", false, "\x00\x00\x0e\x10"},
		{"router", "10.0.0.1, 10.0.0.2", false, "\x0a\x00\x00\x01\x0a\x00\x00\x02"}, {"router", "fe80::1", false, ""}, {"dns-server", "10.0.0.1", true, ""},
		{"domain-search", "a.b,c", false, "\x01a\x01b\x00\x01c\x00"}, {"classless-static-route", "10.0.0.0/8,10.1.1.1", false, "\x08\x0a\x0a\x01\x01\x01"},
		{"classless-static-route", "10.0.0.0/8", false, ""}, {"classless-static-route", "fd00::/8,fd00::1", false, ""}, {"249", "0.0.0.0/0,10.1.1.1", false, "\x00\x0a\x01\x01\x01"},
		{"224", "7", false, "\x07"}, {"224", "300", false, "\x01\x2c"}, {"224", "70000", false, "\x00\x01\x11\x70"}, {"224", "words", false, "words"}, {"224", "0a:0b", false, "\x0a\x0b"},
		{"ntp-server", "[fd00::1]", true, "\x00\x01\x00\x10\xfd\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01"}, {"bootfile-param", "a,bc", true, "\x00\x01a\x00\x02bc"},
		{"no-such", "x", false, ""},
	} {
		names := names4
		if c.v6 {
			names = names6
		}
		k, err := find(names, c.name)
		var got []byte
		if err == nil {
			got, err = encode(k.form, c.value, c.v6)
		}
		if string(got) != c.want || (err != nil) != (c.want == "") {
			t.Errorf("%s %q: %x, %v; want %x", c.name, c.value, got, err, c.want)
		}
	}
}
