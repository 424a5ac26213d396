// SPDX-License-Identifier: Apache-2.0

package openflow

import (
	"bytes"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// Whatever order a match is written in, decoding and encoding give the same
// bytes, and so does the text.
func TestFlowRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := newGen(rapid.Uint64().Draw(t, "seed"))
		f := g.flow()
		e, err := f.Entry()
		if err != nil {
			t.Fatalf("%s: %v", f.String(), err)
		}
		back, err := e.Flow()
		if err != nil {
			t.Fatalf("%s: %v", f.String(), err)
		}
		if s := back.String(); strings.Contains(s, "raw(") {
			t.Fatalf("not decoded: %s", s)
		}
		e2, err := back.Entry()
		if err != nil || e2 != e {
			t.Fatalf("%s\n%x\n%x (%v)", f.String(), e.s, e2.s, err)
		}
		parsed, err := ParseFlow(back.String())
		if err != nil {
			t.Fatal(err)
		}
		e3, err := parsed.Entry()
		if err != nil || e3 != e {
			t.Fatalf("text %s\n   gives %s\n%x\n%x (%v)", back.String(), parsed.String(), e.s, e3.s, err)
		}
		for _, v := range []Version{OpenFlow13, OpenFlow14} {
			msg, err := AddFlow(e).AppendMessage(nil, v, 7)
			if err != nil {
				t.Fatal(err)
			}
			m, err := decodeFlowMod(msg)
			if err != nil || m.Entry != e {
				t.Fatalf("%s: %v", f.String(), err)
			}
		}
	})
}

// FlowStat keeps the entry of a flow that the switch dumps.
func TestFlowStatRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := newGen(rapid.Uint64().Draw(t, "seed"))
		f := g.flow()
		e, err := f.Entry()
		if err != nil {
			t.Fatal(err)
		}
		wire := appendFlowStat(nil, e)
		var s FlowStat
		rest, err := cutFlowStat(wire, &s)
		if err != nil || len(rest) != 0 || s.Entry() != e {
			t.Fatalf("%s: %v", f.String(), err)
		}
		want := map[Key]Entry{e.Key(): e}
		got, found, same, _ := s.Lookup(want, nil)
		if got != e || !found || !same {
			t.Fatal("not found")
		}
		other := e.WithCookie(e.Cookie() + 1)
		got, found, same, _ = s.Lookup(map[Key]Entry{e.Key(): other}, nil)
		if got != other || !found || same || !other.SameActions(e) {
			t.Fatal("cookie not seen")
		}
	})
}

// appendFlowStat encodes a flow as a switch dumps it.
func appendFlowStat(b []byte, e Entry) []byte {
	msg, err := AddFlow(e).AppendMessage(nil, OpenFlow14, 0)
	if err != nil {
		panic(err)
	}
	body := msg[headerLen:]
	start := len(b)
	b = append(b, 0, 0, e.Table(), 0)
	b = appendZeros(b, 8)         // duration
	b = append(b, body[22:24]...) // priority
	b = append(b, body[18:22]...) // timeouts
	b = append(b, body[36:40]...) // flags, importance
	b = append(b, 0, 0)           // padding
	b = append(b, body[:8]...)    // cookie
	b = appendZeros(b, 16)        // counters
	b = append(b, body[40:]...)   // match, instructions
	n := len(b) - start
	b[start], b[start+1] = byte(n>>8), byte(n)
	return bytes.Clone(b)
}
