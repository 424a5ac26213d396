// SPDX-License-Identifier: Apache-2.0

package openflow

import (
	"bytes"
	"encoding/hex"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

type vector struct {
	text  string // one line of flows.txt
	wire  []byte // the flow_mod that ovs-ofctl makes of it
	print string // ovs-ofctl's own print of that
}

func readVectors(t testing.TB, hexFile string) []vector {
	t.Helper()
	flows := readLines(t, "testdata/flows.txt")
	lines := readLines(t, hexFile)
	if len(flows) != len(lines) {
		t.Fatalf("%d flows, %d vectors in %s", len(flows), len(lines), hexFile)
	}
	vs := make([]vector, len(flows))
	for i, line := range lines {
		h, print, ok := strings.Cut(line, "\t")
		wire, err := hex.DecodeString(h)
		if !ok || err != nil {
			t.Fatalf("%s:%d: %v", hexFile, i+1, err)
		}
		vs[i] = vector{flows[i], wire, print}
	}
	return vs
}

func readLines(t testing.TB, name string) []string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(data)), "\n")
}

var goldenFiles = []struct {
	version Version
	file    string
}{{OpenFlow13, "testdata/of13.hex"}, {OpenFlow14, "testdata/of14.hex"}}

// Bytes to entry to bytes, and bytes to values to bytes.
func TestGoldenWire(t *testing.T) {
	for _, g := range goldenFiles {
		for i, v := range readVectors(t, g.file) {
			xid := uint32(i + 1)
			m, err := decodeFlowMod(v.wire)
			if err != nil {
				t.Fatalf("%s: %s: %v", g.file, v.text, err)
			}
			got, err := m.AppendMessage(nil, g.version, xid)
			if err != nil || !bytes.Equal(got, v.wire) {
				t.Errorf("%s: %s\n got %x\nwant %x (%v)", g.file, v.text, got, v.wire, err)
			}
			f, err := m.Entry.Flow()
			if err != nil {
				t.Fatalf("%s: %s: %v", g.file, v.text, err)
			}
			e, err := f.Entry()
			if err != nil {
				t.Fatalf("%s: %s: %v", g.file, v.text, err)
			}
			if e != m.Entry {
				t.Errorf("%s: %s\n got %x\nwant %x", g.file, v.text, e.s, m.Entry.s)
			}
			if strings.Contains(f.String(), "raw(") {
				t.Errorf("%s: not decoded: %s", v.text, f.String())
			}
		}
	}
}

// Our text of the bytes is ovs-ofctl's.
func TestGoldenPrint(t *testing.T) {
	for i, v := range readVectors(t, "testdata/of14.hex") {
		m, err := decodeFlowMod(v.wire)
		if err != nil {
			t.Fatal(err)
		}
		f, err := m.Entry.Flow()
		if err != nil {
			t.Fatal(err)
		}
		_, want, _ := strings.Cut(v.print, "priority=")
		want, wantActions, _ := strings.Cut(want, " actions=")
		_, want, _ = strings.Cut(want, ",")
		want, _, _ = strings.Cut(want, " ")
		if got := f.Match.String(); got != want {
			t.Errorf("match %d: %s", i+1, cmp.Diff(want, got))
		}
		if got := string(AppendActions(nil, f.Actions)); got != wantActions {
			t.Errorf("actions %d: %s", i+1, cmp.Diff(wantActions, got))
		}
	}
}

// ovs-ofctl's text, parsed by us, gives ovs-ofctl's bytes; and so does our own
// text of them.
func TestGoldenText(t *testing.T) {
	for _, g := range goldenFiles {
		for i, v := range readVectors(t, g.file) {
			f, err := ParseFlow(v.text)
			if err != nil {
				t.Errorf("%v", err)
				continue
			}
			m, err := NewFlowMod(Add, &f)
			if err != nil {
				t.Errorf("%s: %v", v.text, err)
				continue
			}
			got, err := m.AppendMessage(nil, g.version, uint32(i+1))
			if err != nil || !bytes.Equal(got, v.wire) {
				t.Errorf("%s: %s\n got %x\nwant %x (%v)", g.file, v.text, got, v.wire, err)
			}
			again, err := ParseFlow(m.Entry.String())
			if err != nil {
				t.Errorf("our own text: %v", err)
				continue
			}
			e, err := again.Entry()
			if err != nil || e != m.Entry {
				t.Errorf("%s: own text %s gives other bytes (%v)", v.text, m.Entry, err)
			}
		}
	}
}
