// SPDX-License-Identifier: Apache-2.0

package tape

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/core"
	"github.com/patchbay-sdn/patchbay/internal/effect"
	"github.com/patchbay-sdn/patchbay/internal/iptables"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/pipeline"
	"github.com/patchbay-sdn/patchbay/internal/world"
)

// Format is the number of the format that [Writer] writes. A checksum of format 1 is of a text with all flows in words: see [effect.Effects.Text].
const Format = 2

// formatName is that of the header's first field, by which a tape is known.
const formatName = "patchbay_tape"

// Header is the first line: what a core begins with.
type Header struct {
	Format int       `json:"patchbay_tape"`
	Began  time.Time `json:"began"`
	Config Config    `json:"config"`
	// Extensions is how to make the extensions again. Who makes them writes and reads it.
	Extensions json.RawMessage `json:"extensions,omitempty"`
	// Memory is what an earlier run wrote down, at a time.
	Memory  *world.Memory `json:"memory,omitempty"`
	Written time.Time     `json:"written,omitzero"`
}

// Config is [core.Config], as far as decisions depend on it and it is data.
type Config struct {
	Host           string
	Version        string
	Configurations neutron.Configurations
	ImpliedRP      string `json:",omitempty"` // of Configurations, which leave it out
	ReportInterval time.Duration
	PortsPerReport int
	World          world.Config
	Settings       pipeline.Settings
	FDBGrace       time.Duration
	Conntrack      bool
	ConntrackLimit uint32
	Limits         bool
	DropFragments  bool `json:",omitempty"`
	Rules          *iptables.Config
	Snapshot       bool
	Progress       bool
	Seed           uint64
}

// HeaderOf returns the header of a core that begins.
func HeaderOf(c *core.Config, saved *core.Saved, now time.Time) Header {
	h := Header{Format: Format, Began: now, Config: Config{
		c.Host, c.Version, c.Configurations, c.Configurations.ImpliedRP, c.ReportInterval, c.PortsPerReport, c.World, c.Settings, c.FDBGrace, c.Conntrack,
		c.ConntrackLimit, c.Limits, c.DropFragments, c.Rules, c.Snapshot, c.Progress, c.Seed,
	}}
	if saved != nil {
		h.Memory, h.Written = saved.Memory, saved.Written
	}
	return h
}

// begin returns what the core of a header begins with.
func (h *Header) begin() (core.Config, *core.Saved) {
	c := h.Config
	c.Configurations.ImpliedRP = c.ImpliedRP
	cfg := core.Config{
		Host: c.Host, Version: c.Version, Configurations: c.Configurations, ReportInterval: c.ReportInterval, PortsPerReport: c.PortsPerReport, World: c.World,
		Settings: c.Settings, FDBGrace: c.FDBGrace, Conntrack: c.Conntrack, ConntrackLimit: c.ConntrackLimit, Limits: c.Limits, DropFragments: c.DropFragments, Rules: c.Rules,
		Snapshot: c.Snapshot, Progress: c.Progress, Seed: c.Seed,
	}
	if h.Memory == nil {
		return cfg, nil
	}
	return cfg, &core.Saved{Memory: h.Memory, Written: h.Written}
}

// line is a step, or events that were taken before one.
type line struct {
	At     time.Duration `json:"at"`             // since Began, as the clock runs that nobody sets
	Take   bool          `json:"take,omitempty"` // no step follows yet
	Events []document    `json:"in,omitempty"`
	Out    string        `json:"out,omitempty"` // the beginning of what effects print
	Sum    string        `json:"sum,omitempty"` // of all that they print; "" for nothing
	Cut    bool          `json:"cut,omitempty"` // Sum is of Out alone: see [Masking.Mask]
	// End says why the tape ends here.
	End string `json:"end,omitempty"`
}

// maxOut is how much of the effects' text is kept, in bytes: a difference shows in it, and thousands of flows need not.
const maxOut = 4096

// outcome sets what was decided, as a format has it.
func (l *line) outcome(format int, now time.Time, out effect.Effects) {
	words := maxOut
	if format == 1 {
		words = math.MaxInt
	}
	text := since(now, out).Text(words)
	if l.Out, l.Sum, l.Cut = string(text[:min(len(text), maxOut)]), "", false; len(text) > 0 {
		l.Sum = sum(text)
	}
}

func sum(text []byte) string {
	s := sha256.Sum256(text)
	return hex.EncodeToString(s[:8])
}

// Input is a step, or events that are taken before one.
type Input struct {
	now     time.Time
	events  []effect.Event
	step    bool
	passed  *neutron.Push // what the one event is, if it is that
	effects effect.Effects
}

// Took returns the input of [core.Core.Take]. Passed is what that returns: of such a push only what the core remembers is written.
func Took(now time.Time, e effect.Event, passed *neutron.Push) Input {
	return Input{now: now, events: []effect.Event{e}, passed: passed}
}

// Stepped returns the input of [core.Core.Step], and what it led to. Effects that change when they are carried out are copied: it has to be called
// before.
func Stepped(now time.Time, events []effect.Event, out effect.Effects) Input {
	for i, e := range out.Do {
		if a, ok := e.(effect.Apply); ok {
			round := *a.Round
			round.Rows = slices.Clone(round.Rows)
			for j, tx := range round.Rows {
				round.Rows[j] = tx.Printed()
			}
			round.Bundles = slices.Clone(round.Bundles)
			for j := range round.Bundles {
				round.Bundles[j].Changes = slices.Clone(round.Bundles[j].Changes)
			}
			out.Do = slices.Clone(out.Do)
			out.Do[i] = effect.Apply{Round: &round}
		}
	}
	return Input{now: now, events: events, step: true, effects: out}
}

// since returns effects with times since the step: the time of day jumps when somebody sets the clock.
func since(now time.Time, out effect.Effects) effect.Effects {
	zero := time.Unix(0, 0)
	if !out.Wake.IsZero() {
		out.Wake = zero.Add(out.Wake.Sub(now))
	}
	for i, e := range out.Do {
		if s, ok := e.(effect.Save); ok {
			out.Do = slices.Clone(out.Do)
			s.At = zero.Add(s.At.Sub(now))
			out.Do[i] = s
		}
	}
	return out
}

// Writer writes lines.
type Writer struct {
	to    io.Writer
	began time.Time
	enc   encoder
	short []byte // room for a line of a passed push
}

// NewWriter writes the header, and returns a writer of what follows.
func NewWriter(to io.Writer, h Header) (*Writer, error) {
	w := &Writer{to: to, began: h.Began}
	return w, w.put(h)
}

// Write writes an input.
func (w *Writer) Write(in Input) error {
	l := line{At: in.now.Sub(w.began), Take: !in.step}
	if in.passed != nil {
		if w.short = passed(w.short[:0], l.At, in.events[0].(effect.Message), in.passed); len(w.short) > 0 {
			return w.write(w.short)
		}
	}
	for _, e := range in.events {
		d, err := w.enc.document(e)
		if err != nil {
			return err
		}
		l.Events = append(l.Events, d)
	}
	if in.step {
		l.outcome(Format, in.now, in.effects)
	}
	return w.put(l)
}

// End writes why the tape ends, at a time.
func (w *Writer) End(now time.Time, why string) error {
	return w.put(line{At: now.Sub(w.began), Take: true, End: why})
}

func (w *Writer) put(v any) error {
	text, err := marshal(v)
	if err != nil {
		return fmt.Errorf("writing the tape: %w", err)
	}
	return w.write(append(text, '\n'))
}

func (w *Writer) write(line []byte) error {
	if _, err := w.to.Write(line); err != nil {
		return fmt.Errorf("writing the tape: %w", err)
	}
	return nil
}

// marshal is json.Marshal, without changing characters that only matter in HTML: raw JSON stays as it was.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimRight(b.Bytes(), "\n"), nil
}
