// SPDX-License-Identifier: Apache-2.0

package openflow

import (
	"bytes"
	"encoding/hex"
	"runtime"
	"strings"
	"testing"
	"time"
)

// Every decoder is under one of these targets:
//
//	FuzzMessage       all messages and multipart replies
//	FuzzActions       instructions, and with them matches and actions
//	FuzzText          the parser of ovs-ofctl's syntax
//
// They hold that nothing panics, that what was decoded encodes to the same
// bytes, and that time and memory stay in proportion to the input.

func seedMessages(f *testing.F) {
	for _, file := range []string{"testdata/msgs4.txt", "testdata/msgs5.txt"} {
		for _, line := range readLines(f, file) {
			_, digits, _ := strings.Cut(line, "\t")
			if b, err := hex.DecodeString(digits); err == nil {
				f.Add(b)
			}
		}
	}
	for _, g := range goldenFiles {
		for _, v := range readVectors(f, g.file) {
			f.Add(v.wire)
			m, err := decodeFlowMod(v.wire)
			if err != nil {
				f.Fatal(err)
			}
			reply := appendMultipart(nil, g.version, mpFlow, 1, appendFlowStat(nil, m.Entry))
			reply[1] = typeMultipartReply
			f.Add(reply)
		}
	}
}

func FuzzMessage(f *testing.F) {
	seedMessages(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > maxMessage {
			return
		}
		v, err := decodeAny(b)
		if err != nil {
			return
		}
		if m, ok := v.(FlowMod); ok {
			checkEntry(t, m.Entry)
		}
		_ = describeSafe(v)
		// The same bytes through a connection's dispatch.
		in := &inbox{
			version: Version(b[0]), pending: &pending{waiters: map[uint32]waiter{parseHead(b).xid: newParts(mpFlow)}},
			echoes: make(chan []byte, 1), packetIns: make(chan *PacketIn, 1), events: make(chan Event, 2),
		}
		_ = in.dispatch(parseHead(b), bytes.Clone(b[headerLen:]))
	})
}

func describeSafe(v any) string {
	if list, ok := v.([]TableStats); ok && len(list) == 0 {
		return ""
	}
	return describe(v)
}

// checkEntry holds that an entry survives decoding and encoding.
func checkEntry(t *testing.T, e Entry) {
	t.Helper()
	fl, err := e.Flow()
	_ = e.String()
	_ = e.Key().Compare(e.Key())
	if err != nil {
		return
	}
	again, err := fl.Entry()
	if err != nil {
		return // e.g. a field given twice, which only a switch would send
	}
	back, err := again.Flow()
	if err != nil {
		t.Fatalf("%x: %v", again.s, err)
	}
	twice, err := back.Entry()
	if err != nil || twice != again {
		t.Fatalf("%x\n%x: %v", again.s, twice.s, err)
	}
}

func FuzzActions(f *testing.F) {
	for _, v := range readVectors(f, "testdata/of14.hex") {
		m, err := decodeFlowMod(v.wire)
		if err != nil {
			f.Fatal(err)
		}
		f.Add([]byte(m.Entry.s[keyHead:keyHead+m.Entry.matchLen()]), []byte(m.Entry.value()[valueHead:]))
	}
	f.Fuzz(func(t *testing.T, match, ins []byte) {
		if len(match)+len(ins) > maxMessage {
			return
		}
		m, err := decodeTerms(match)
		if err == nil {
			_ = m.String()
		}
		list, err := decodeInstructions(ins)
		_ = AppendActions(nil, list)
		if err != nil {
			return
		}
		again, err := appendInstructions(nil, list)
		if err != nil {
			return // instructions in an order or number that we do not write
		}
		if canonicalOrder(list) && !bytes.Equal(again, ins) && countApply(ins) <= 1 {
			t.Fatalf("%x\n%x", ins, again)
		}
	})
}

// canonicalOrder reports whether the list is ordered as we would encode it.
func canonicalOrder(list []Action) bool {
	last := 0
	for _, a := range list {
		r := instructionRank(a)
		if r < last {
			return false
		}
		last = r
	}
	return true
}

// countApply counts apply instructions, two if one is empty: we merge and drop
// those.
func countApply(b []byte) int {
	n := 0
	for len(b) >= 8 {
		k, err := actionLen(b, "")
		if err != nil {
			break
		}
		if b[1] == insApplyActions && b[0] == 0 {
			n++
			if k == 8 {
				n++
			}
		}
		b = b[k:]
	}
	return n
}

func FuzzText(f *testing.F) {
	for _, line := range readLines(f, "testdata/flows.txt") {
		f.Add(line)
	}
	f.Add("table=0,raw(0x00011a0412345678),actions=raw(0xffff001000002320ff00000000000000)")
	f.Fuzz(func(t *testing.T, s string) {
		if len(s) > maxMessage {
			return
		}
		fl, err := ParseFlow(s)
		if err != nil {
			return
		}
		e, err := fl.Entry()
		if err != nil {
			return
		}
		checkEntry(t, e)
	})
}

// Decoding costs time and memory in proportion to its input, even when the
// input is made to cost as much as possible.
func TestDecodeIsBounded(t *testing.T) {
	inputs := map[string][]byte{}
	for name, unit := range map[string]string{
		"empty terms":    "00000000",
		"short terms":    "00010004",
		"outputs":        "",
		"nested clones":  "",
		"learn specs":    "",
		"conjunctions":   "",
		"write in write": "",
	} {
		if unit != "" {
			b, err := hex.DecodeString(unit)
			if err != nil {
				t.Fatal(err)
			}
			inputs[name] = matchOnly(bytes.Repeat(b, 60000/len(b)))
		}
	}
	var outputs, conjunctions []Action
	for i := range 3900 {
		outputs = append(outputs, Output(i+1))
		conjunctions = append(conjunctions, Conjunction{ID: uint32(i), Clause: 1, Of: 2})
	}
	inputs["outputs"] = mustMod(t, Flow{Actions: outputs})
	inputs["conjunctions"] = mustMod(t, Flow{Actions: conjunctions})
	learn := Learn{}
	for range 6000 {
		learn.Specs = append(learn.Specs, LearnOutput(InPort16.All()))
	}
	inputs["learn specs"] = mustMod(t, Flow{Actions: []Action{learn}})
	// Clones in clones, far deeper than we follow.
	nest := []byte{}
	for range 3000 {
		nest = append([]byte{0xff, 0xff, byte((len(nest) + 16) >> 8), byte(len(nest) + 16), 0, 0, 0x23, 0x20, 0, nxClone, 0, 0, 0, 0, 0, 0}, nest...)
	}
	apply := append([]byte{0, insApplyActions, byte((len(nest) + 8) >> 8), byte(len(nest) + 8), 0, 0, 0, 0}, nest...)
	inputs["nested clones"] = append(mustMod(t, Flow{}), apply...)

	for name, b := range inputs {
		if len(b) == 0 {
			continue
		}
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		began := time.Now()
		v, err := decodeAny(b)
		if m, ok := v.(FlowMod); ok && err == nil {
			_, _ = m.Entry.Flow()
		}
		took := time.Since(began)
		runtime.ReadMemStats(&after)
		alloc := after.TotalAlloc - before.TotalAlloc
		t.Logf("%-14s %6d bytes: %8d allocated (%.1fx), %v", name, len(b), alloc, float64(alloc)/float64(len(b)), took)
		if alloc > 40*uint64(len(b))+4096 {
			t.Errorf("%s: %d bytes allocated for %d", name, alloc, len(b))
		}
		if took > time.Second {
			t.Errorf("%s: %v for %d bytes", name, took, len(b))
		}
	}
}

// matchOnly returns a flow_mod with these bytes as match.
func matchOnly(terms []byte) []byte {
	b := make([]byte, headerLen+40)
	b[0], b[1] = byte(OpenFlow14), typeFlowMod
	return appendMatch(b, terms)
}

func mustMod(t *testing.T, f Flow) []byte {
	t.Helper()
	e, err := f.Entry()
	if err != nil {
		t.Fatal(err)
	}
	b, err := AddFlow(e).AppendMessage(nil, OpenFlow14, 1)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
