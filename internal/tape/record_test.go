// SPDX-License-Identifier: Apache-2.0

package tape

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/conntrack"
	"github.com/patchbay-sdn/patchbay/internal/core"
	"github.com/patchbay-sdn/patchbay/internal/dataplane"
	"github.com/patchbay-sdn/patchbay/internal/delta"
	"github.com/patchbay-sdn/patchbay/internal/effect"
	"github.com/patchbay-sdn/patchbay/internal/iptables"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/world"
	"github.com/patchbay-sdn/patchbay/openflow"
	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

func header() Header {
	return HeaderOf(&core.Config{Host: "hv1", World: world.Config{IntegrationBridge: "br-int"}}, nil, time.Now())
}

// message is an input that takes up about so many bytes, and compresses badly.
func message(n int) Input {
	noise := make([]byte, n/2)
	_, _ = rand.Read(noise) // it does not fail
	m := &messaging.Message{Topic: "t", Method: "m", Args: []byte(`{"a":"` + hex.EncodeToString(noise) + `"}`)}
	return Took(time.Now(), effect.Message{Message: m}, nil)
}

// record makes a recorder, and returns what it logs.
func record(t *testing.T, limit int64) (*Recorder, *[]string) {
	t.Helper()
	var said []string
	return NewRecorder(filepath.Join(t.TempDir(), "patchbay.tape"), limit, func(msg string, args ...any) { said = append(said, fmt.Sprint(append([]any{msg}, args...)...)) }), &said
}

// lines reads a tape.
func lines(t *testing.T, path string) (events int, end string) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	r, err := NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	p := NewPlayer(r, nil)
	for {
		l, err := p.line()
		if errors.Is(err, io.EOF) {
			return events, end
		}
		if err != nil {
			t.Fatal(err)
		}
		events += len(l.Events)
		end += l.End
	}
}

// What was put is on disk when the recorder is closed, and soon if it is not: the agent may be killed.
func TestRecorder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, said := record(t, 1<<20)
		r.Begin(header())
		for range 10 {
			r.Put(message(100))
		}
		time.Sleep(3 * flushPause)
		if n, end := lines(t, r.path); n != 10 || end != "" {
			t.Errorf("%d events on disk, end %q", n, end)
		}
		r.Put(message(100))
		r.Close()
		if n, end := lines(t, r.path); n != 11 || end != "" || len(*said) > 0 {
			t.Errorf("%d events on disk, end %q, %v", n, end, *said)
		}
		info, err := os.Stat(r.path)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%v, %v", info, err)
		}
		// The next agent keeps the tape of this one.
		next := NewRecorder(r.path, 1<<20, func(string, ...any) {})
		next.Begin(header())
		next.Close()
		if n, _ := lines(t, Previous(r.path)); n != 11 {
			t.Errorf("%d events of the agent before", n)
		}
	})
}

// A tape that is full says so, and takes no more of the disk or the memory.
func TestTapeIsFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 100 << 10
		r, said := record(t, limit)
		r.Begin(header())
		for range 300 {
			r.Put(message(2000))
			time.Sleep(flushPause)
		}
		time.Sleep(time.Minute)
		r.Put(message(100))
		if waiting, _ := r.take(); len(waiting) > 0 {
			t.Error("inputs wait for nobody")
		}
		r.Close()
		n, end := lines(t, r.path)
		info, err := os.Stat(r.path)
		if err != nil {
			t.Fatal(err)
		}
		// What one write of the compressor holds comes on top.
		if end != endFull || n < 10 || n > 290 || info.Size() > limit+128<<10 || len(*said) != 1 || !strings.Contains((*said)[0], endFull) {
			t.Errorf("%d events, %d bytes, end %q, %v", n, info.Size(), end, *said)
		}
	})
}

// Many messages within a moment are written before the pause is over.
func TestManyInputsAreWrittenAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, said := record(t, 1<<20)
		r.Begin(header())
		for n := range 2 * maxWaiting {
			r.Put(message(8))
			if n%(maxWaiting/2) == 0 {
				synctest.Wait()
			}
		}
		r.Close()
		if n, end := lines(t, r.path); n != 2*maxWaiting || end != "" || len(*said) > 0 {
			t.Errorf("%d events, end %q, %v", n, end, *said)
		}
	})
}

// A disk that stands still costs the tape, not the memory.
func TestSlowDisk(t *testing.T) {
	r, _ := record(t, 1<<20)
	for range maxWaiting + 10 { // nobody writes
		r.Put(message(8))
	}
	if len(r.waiting) != maxWaiting {
		t.Errorf("%d wait", len(r.waiting))
	}
	r.Begin(header())
	r.Close()
	if _, end := lines(t, r.path); end != endBehind {
		t.Errorf("end %q", end)
	}
}

// A directory that is not there keeps nobody from anything.
func TestNoDisk(t *testing.T) {
	said := ""
	r := NewRecorder(filepath.Join(t.TempDir(), "none", "patchbay.tape"), 1<<20, func(msg string, _ ...any) { said = msg })
	r.Begin(header())
	r.Put(message(8))
	r.Close()
	if said == "" {
		t.Error("nothing is said")
	}
	var none *Recorder
	none.Begin(header())
	none.Put(message(8))
	none.Close()
}

// What decisions ask of errors is the same of an error of a tape.
func TestFailures(t *testing.T) {
	remote := &messaging.RemoteError{Class: "DBConnectionError", Message: "Can't connect\nmore"}
	for _, err := range []error{
		errors.New("plain"),
		fmt.Errorf("asking: %w", remote),
		fmt.Errorf("a: %w", errors.Join(ovsdb.ErrConflict, &openflow.ConnError{Err: io.EOF})),
		&openflow.BundleError{Failures: []openflow.Failure{{Index: 3, Message: openflow.MeterMod{}, Err: &openflow.Error{Type: 1}}}},
		&openflow.SendError{Failures: []openflow.Failure{{Index: 2, Message: openflow.MeterMod{}, Err: &openflow.Error{Type: 1}}}},
		&iptables.RefusedError{Line: "-A x", Err: io.EOF},
		&effect.Panic{What: "w", Value: 7, Where: "here"},
		&neutron.DecodePanic{Kind: "Port", Value: "x"},
		fmt.Errorf("b: %w", conntrack.ErrNoLimits),
	} {
		text, bad := marshal(failureOf(err))
		if bad != nil {
			t.Fatal(bad)
		}
		d, bad := of[*failure](&document{Of: text})
		if bad != nil {
			t.Fatal(bad)
		}
		got := d.err()
		if got.Error() != err.Error() {
			t.Errorf("%q, not %q", got, err)
		}
		for name, known := range named() {
			if errors.Is(got, known) != errors.Is(err, known) {
				t.Errorf("%v: %s", err, name)
			}
		}
		if errors.Is(got, messaging.Class("DBConnectionError")) != errors.Is(err, messaging.Class("DBConnectionError")) {
			t.Errorf("%v: class", err)
		}
		same[*openflow.BundleError](t, err, got, func(e *openflow.BundleError) any { return fmt.Sprint(indexes(e.Failures)) })
		same[*openflow.SendError](t, err, got, func(e *openflow.SendError) any { return fmt.Sprint(indexes(e.Failures)) })
		same[*openflow.ConnError](t, err, got, func(*openflow.ConnError) any { return nil })
		same[*iptables.RefusedError](t, err, got, func(e *iptables.RefusedError) any { return e.Line })
		same[*effect.Panic](t, err, got, func(e *effect.Panic) any { return e.What + e.Where + e.Error() })
		same[*neutron.DecodePanic](t, err, got, func(e *neutron.DecodePanic) any { return e.Error() })
		same[*messaging.RemoteError](t, err, got, func(e *messaging.RemoteError) any { return e.Error() })
	}
}

func same[T error](t *testing.T, want, got error, of func(T) any) {
	t.Helper()
	var a, b T
	switch x, y := errors.As(want, &a), errors.As(got, &b); {
	case x != y:
		t.Errorf("%v: %T %v, not %v", want, a, y, x)
	case x && of(a) != of(b):
		t.Errorf("%v: %v, not %v", want, of(b), of(a))
	}
}

// The copy of a round that waits to be written does not change when the round runs.
func TestRoundIsCopied(t *testing.T) {
	port := world.PortObject("p")
	round := &dataplane.Round{Bundles: []dataplane.Bundle{{Bridge: "br-int", Changes: []delta.Change{{Owner: port}, {Owner: world.BridgeObject("b")}}}}}
	round.Bundles[0].Conn = broken{}
	now := time.Now()
	in := Stepped(now, nil, effect.Effects{Do: []effect.Effect{effect.Apply{Round: round}}})
	before := since(now, in.effects).String()
	round.Owners, round.Rows = []world.Object{port}, []*ovsdb.Tx{ovsdb.NewTx(ovsdb.NewView())}
	round.Run(t.Context(), dataplane.Switch{Rows: refusing{}})
	if len(round.Bundles[0].Changes) != 1 {
		t.Fatal("the round kept what failed")
	}
	if after := since(now, in.effects).String(); after != before {
		t.Errorf("%s\n%s", before, after)
	}
}

// A commit names new rows anew, so that several transactions can be sent as one. The copy has the names of before.
func TestRowsAreCopied(t *testing.T) {
	rows := ovsdb.NewRehearsal(&ovsdb.Batch{Kind: ovsdb.Initial, OpenVSwitch: []ovsdb.Diff[ovsdb.OpenVSwitch]{{New: &ovsdb.OpenVSwitch{UUID: "root"}}}})
	var tx *ovsdb.Tx
	rows.Look(func(v *ovsdb.View) { tx = ovsdb.NewTx(v) })
	tx.EnsureBridge(ovsdb.BridgeSpec{Name: "br-int"})
	round := &dataplane.Round{Owners: []world.Object{world.BridgeObject("br-int")}, Rows: []*ovsdb.Tx{tx}}
	now := time.Now()
	in := Stepped(now, nil, effect.Effects{Do: []effect.Effect{effect.Apply{Round: round}}})
	before := since(now, in.effects).String()
	rows.CommitAll(t.Context(), round.Rows)
	if after := since(now, in.effects).String(); after != before || !strings.Contains(before, `"row1"`) {
		t.Errorf("%s\n%s", before, after)
	}
}

type broken struct{ dataplane.Conn }

func (broken) Commit(context.Context, []openflow.Message) error { return io.EOF }
func (broken) Send(context.Context, []openflow.Message) error   { return nil }

type refusing struct{}

func (refusing) CommitAll(_ context.Context, txs []*ovsdb.Tx) (ovsdb.Result, []error) {
	errs := make([]error, len(txs))
	for i := range errs {
		errs[i] = ovsdb.ErrConflict
	}
	return ovsdb.Result{}, errs
}

// Of a long text a tape has the beginning in words. The checksum is of all of it, in format 1 with all flows in words.
func TestLongOutcomes(t *testing.T) {
	now := time.Now()
	effects := func(last uint16) effect.Effects {
		var list []delta.Change
		for i := range 200 {
			priority := uint16(i)
			if i == 199 {
				priority = last
			}
			f := openflow.Flow{Priority: priority, Actions: []openflow.Action{openflow.Output(7)}}
			e, err := f.Entry()
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, delta.Change{Owner: world.PortObject("p"), Key: e.Key(), Entry: e})
		}
		return effect.Effects{Do: []effect.Effect{effect.Apply{Round: &dataplane.Round{Bundles: []dataplane.Bundle{{Bridge: "br-int", Changes: list}}}}}}
	}
	for format := 1; format <= Format; format++ {
		var a, b, again line
		a.outcome(format, now, effects(1000))
		b.outcome(format, now, effects(1001))
		again.outcome(format, now, effects(1000))
		text := effects(1000).String()
		if len(text) < 2*maxOut || a.Out != text[:maxOut] || b.Out != a.Out {
			t.Errorf("format %d: %d bytes, of which the tape has\n%s", format, len(text), a.Out)
		}
		if a.Sum == b.Sum || a.Sum != again.Sum || (a.Sum == sum([]byte(text))) != (format == 1) {
			t.Errorf("format %d: checksums %s, %s for another flow, %s again, %s of the words", format, a.Sum, b.Sum, again.Sum, sum([]byte(text)))
		}
	}
}

// What the loop pays for a recorded step: the copy of a round, and its place in the list.
func TestCostOfRecording(t *testing.T) {
	r, _ := record(t, 1<<20)
	r.waiting = make([]Input, 0, maxWaiting)
	events, now := []effect.Event{effect.ReportDue{}}, time.Now()
	idle := effect.Effects{Do: []effect.Effect{effect.Dial{Bridge: "br-int"}}}
	if n := testing.AllocsPerRun(1000, func() { r.Put(Stepped(now, events, idle)) }); n > 0 {
		t.Errorf("%v allocations a step", n)
	}
	busy := effect.Effects{Do: []effect.Effect{effect.Apply{Round: &dataplane.Round{Bundles: make([]dataplane.Bundle, 2)}}}}
	busy.Do[0].(effect.Apply).Bundles[0].Changes = make([]delta.Change, 500)
	if n := testing.AllocsPerRun(1000, func() { r.Put(Stepped(now, events, busy)) }); n > 5 {
		t.Errorf("%v allocations a step with a round of two bundles", n)
	}
}

func BenchmarkOutcome(b *testing.B) {
	f, err := openflow.ParseFlow("table=82,priority=70,ct_state=+est-rel-rpl,ip,reg6=0x1,reg5=0x7,nw_src=10.0.0.7,actions=conjunction(12,1/2)")
	if err != nil {
		b.Fatal(err)
	}
	e, err := f.Entry()
	if err != nil {
		b.Fatal(err)
	}
	changes := make([]delta.Change, 4500)
	for i := range changes {
		changes[i] = delta.Change{Owner: world.PortObject("0d3bb8b5-6e0c-4e9f-9d7e-1c0a5a3f0d11"), Key: e.Key(), Entry: e}
	}
	out := effect.Effects{Do: []effect.Effect{effect.Apply{Round: &dataplane.Round{Bundles: []dataplane.Bundle{{Changes: changes}}}}}}
	for format := 1; format <= Format; format++ {
		b.Run(fmt.Sprintf("format %d", format), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				(&line{}).outcome(format, time.Time{}, out)
			}
		})
	}
}

func BenchmarkRecording(b *testing.B) {
	r := NewRecorder("", 0, nil)
	r.waiting = make([]Input, 0, maxWaiting)
	events, now := []effect.Event{effect.ReportDue{}}, time.Now()
	busy := effect.Effects{Do: []effect.Effect{effect.Apply{Round: &dataplane.Round{Bundles: make([]dataplane.Bundle, 2)}}}}
	busy.Do[0].(effect.Apply).Bundles[0].Changes = make([]delta.Change, 500)
	for name, out := range map[string]effect.Effects{"nothing": {}, "round of 500 flows": busy} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r.waiting = r.waiting[:0]
				r.Put(Stepped(now, events, out))
			}
		})
	}
}

// Masking replaces strings that are secrets, and nothing else.
func TestMask(t *testing.T) {
	m := Masking{
		Clean: func(b []byte) []byte {
			return bytes.ReplaceAll(bytes.ReplaceAll(b, []byte("hunter2"), []byte("***")), []byte("tape"), []byte("***"))
		},
		Secret: func(name string) bool { return strings.Contains(name, "password") }, Hidden: "***",
	}
	for text, want := range map[string]string{
		`{"a":1.50,"b":["x","hunter2 <y>"],"c":null}`:                 `{"a":1.50,"b":["x","*** <y>"],"c":null}`,
		`{"password":"x","b":"y"}`:                                    `{"password":"***","b":"y"}`,
		`{"password":["x"],"password":7,"b":"y","the_password":"\""}`: `{"password":["x"],"password":7,"b":"y","the_password":"***"}`,
		`{"password":""}`:                                             `{"password":""}`,
		`{"a":"password","b":"x"}`:                                    `{"a":"password","b":"x"}`,
		`{"a\"hunter2":{"p":"\\"}}`:                                   `{"a\"***":{"p":"\\"}}`,
		`"unfinished`:                                                 `"unfinished`,
		`{"patchbay_tape":1,"began":"the tape"}`:                      `{"patchbay_tape":1,"began":"the ***"}`,
	} {
		if got := string(m.line([]byte(text))); got != want {
			t.Errorf("%s\n got %s\nwant %s", text, got, want)
		}
	}
}

// From the first secret on checksums are those of the copy. Of a text that the tape has the beginning of, the last line goes: half a secret may be in it.
func TestMaskedSums(t *testing.T) {
	m := Masking{Clean: func(b []byte) []byte { return bytes.ReplaceAll(b, []byte("hunter2"), []byte("***")) }, Secret: func(string) bool { return false }, Hidden: "***"}
	step := func(in, out string) string {
		l := line{At: 7, Events: []document{{Kind: in}}}
		if l.Out = out[:min(len(out), maxOut)]; out != "" {
			l.Sum = sum([]byte(out))
		}
		text, err := marshal(l)
		if err != nil {
			t.Fatal(err)
		}
		return string(text) + "\n"
	}
	long := strings.Repeat("dial hunter2\n", maxOut)
	from := step("hunter2", "dial hunter2\n") + step("b", "") + step("b", "dial x\n") + step("b", long)
	var out bytes.Buffer
	if err := m.Mask(strings.NewReader(from), &out); err != nil {
		t.Fatal(err)
	}
	rest := out.String()
	var lines [4]line
	for i, text := range strings.SplitAfter(rest, "\n")[:4] {
		if err := json.Unmarshal([]byte(text), &lines[i]); err != nil {
			t.Fatal(err)
		}
	}
	if l := lines[0]; l.Cut || l.Out != "dial ***\n" || l.Sum != sum([]byte(l.Out)) || l.At != 7 || l.Events[0].Kind != "***" {
		t.Errorf("%+v", l)
	}
	if lines[1].Sum != "" || lines[2].Cut || lines[2].Out != "dial x\n" || lines[2].Sum != sum([]byte("dial x\n")) {
		t.Errorf("%+v", lines)
	}
	l := lines[3]
	if !l.Cut || l.Sum != sum([]byte(l.Out)) || l.Out != strings.Repeat("dial ***\n", maxOut/len("dial hunter2\n")) || l.At != 7 || len(l.Events) != 1 {
		t.Errorf("%+v", l)
	}
	// Without a secret the copy is the tape.
	out.Reset()
	if plain := step("a", "dial x\n") + step("a", strings.Repeat("dial x\n", maxOut)); m.Mask(strings.NewReader(plain), &out) != nil || out.String() != plain {
		t.Errorf("got\n%s", out.String())
	}
	// Masked twice it is the same.
	out.Reset()
	if m.Mask(strings.NewReader(rest), &out) != nil || out.String() != rest {
		t.Errorf("masked again:\n%s", out.String())
	}
}

// What is no tape is refused.
func TestNoTape(t *testing.T) {
	for _, text := range []string{"", "x", "{}\n", "\x1f\x8bx", `{"patchbay_tape":99}` + "\n"} {
		if _, err := NewReader(strings.NewReader(text)); err == nil {
			t.Errorf("%q is a tape", text)
		}
	}
}
