// SPDX-License-Identifier: Apache-2.0

package tape

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/core"
	"github.com/patchbay-sdn/patchbay/internal/effect"
	"github.com/patchbay-sdn/patchbay/internal/extension"
)

// Reader reads a tape.
type Reader struct {
	Header Header
	lines  *bufio.Reader
}

// NewReader reads the header of a tape, compressed or not.
func NewReader(from io.Reader) (*Reader, error) {
	r, err := open(from)
	if err != nil {
		return nil, err
	}
	text, err := r.next()
	if err == nil {
		err = json.Unmarshal(text, &r.Header)
	}
	switch {
	case err != nil || r.Header.Format == 0:
		return nil, errors.Join(errors.New("this is no tape of an agent"), err)
	case r.Header.Format > Format:
		return nil, fmt.Errorf("the tape has format %d, and this version reads up to %d", r.Header.Format, Format)
	}
	return r, nil
}

// open returns a reader of lines, compressed or not.
func open(from io.Reader) (*Reader, error) {
	r := &Reader{lines: bufio.NewReaderSize(from, 1<<16)}
	if magic, err := r.lines.Peek(2); err == nil && magic[0] == 0x1f && magic[1] == 0x8b {
		z, err := gzip.NewReader(r.lines)
		if err != nil {
			return nil, fmt.Errorf("reading the tape: %w", err)
		}
		r.lines = bufio.NewReaderSize(z, 1<<16)
	}
	return r, nil
}

// maxText bounds a line. One with all flows of a large host has some megabytes.
const maxText = 1 << 30

// next returns the text of the next line. A tape of an agent that still runs, or was killed, ends in the middle of one.
func (r *Reader) next() ([]byte, error) {
	var text []byte
	for {
		part, err := r.lines.ReadSlice('\n')
		text = append(text, part...)
		switch {
		case err == nil:
			return text, nil
		case errors.Is(err, bufio.ErrBufferFull) && len(text) < maxText:
			continue
		case errors.Is(err, bufio.ErrBufferFull):
			return nil, fmt.Errorf("a line of the tape has over %d bytes", maxText)
		case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
			return nil, io.EOF
		}
		return nil, fmt.Errorf("reading the tape: %w", err)
	}
}

// Step is a step that was played.
type Step struct {
	N      int       // from 1
	At     time.Time // of the tape
	Events []string  // in words
	Took   int       // events that were taken since the step before, besides
	Out    string    // what is decided now
	// Recorded is the beginning of what was decided then, if it was something else.
	Recorded string
	Same     bool
	Partly   bool // of a masked tape: only the beginning of what was decided is known
}

// Player makes the decisions of a tape again.
type Player struct {
	Recorder *core.Recorder
	tape     *Reader
	core     *core.Core
	flight   flight
	n        int
	at       time.Time
	end      string
	ahead    *line   // the next one, if it was looked at
	lines    []*line // of the last step, with what is decided now
}

// NewPlayer returns a player at the beginning of a tape. Makers are of the extensions that the header names.
func NewPlayer(tape *Reader, makers []extension.New) *Player {
	p := &Player{tape: tape, Recorder: &core.Recorder{}, flight: newFlight(tape.Header.Config.Host), at: tape.Header.Began}
	cfg, saved := tape.Header.begin()
	cfg.Extensions, cfg.Recorder = makers, p.Recorder
	cfg.Log = slog.New(then{p.Recorder.Handler(slog.DiscardHandler), p})
	p.core = core.New(cfg, saved, p.at)
	return p
}

// Host returns the host of the agent that recorded.
func (p *Player) Host() string { return p.tape.Header.Config.Host }

// Version returns the version of the agent that recorded.
func (p *Player) Version() string { return p.tape.Header.Config.Version }

// Began returns when the agent started.
func (p *Player) Began() time.Time { return p.tape.Header.Began }

// Core returns the core after the steps so far.
func (p *Player) Core() *core.Core { return p.core }

// At returns the time of the last step.
func (p *Player) At() time.Time { return p.at }

// End returns why the tape ends, after the last step; "" for one that just ends.
func (p *Player) End() string { return p.end }

// Peek returns the time of what comes next, if the tape goes on.
func (p *Player) Peek() (time.Time, bool) {
	l, err := p.line()
	if p.ahead = l; err != nil {
		return time.Time{}, false
	}
	return p.Began().Add(l.At), l.End == ""
}

// line returns the next line.
func (p *Player) line() (*line, error) {
	if l := p.ahead; l != nil {
		p.ahead = nil
		return l, nil
	}
	text, err := p.tape.next()
	if err != nil {
		return nil, err
	}
	l := &line{}
	if err := json.Unmarshal(text, l); err != nil {
		return nil, fmt.Errorf("the tape cannot be read after step %d: %w", p.n, err)
	}
	return l, nil
}

// Next makes the next step. After the last one the error is [io.EOF].
func (p *Player) Next() (Step, error) {
	s := Step{N: p.n + 1}
	p.lines = nil
	for {
		l, err := p.line()
		if err != nil {
			return s, err
		}
		p.lines = append(p.lines, l)
		if l.End != "" {
			p.end = l.End
			return s, io.EOF
		}
		p.at = p.tape.Header.Began.Add(l.At)
		events := make([]effect.Event, len(l.Events))
		for i := range l.Events {
			if events[i], err = p.flight.event(&l.Events[i]); err != nil {
				return s, fmt.Errorf("step %d: %w", s.N, err)
			}
			s.Events = append(s.Events, l.Events[i].words())
		}
		if l.Take {
			p.core.Take(p.at, events...)
			s.Took += len(events)
			continue
		}
		out := p.core.Step(p.at, events...)
		p.flight.started(out.Do)
		p.n++
		s.At, s.Out = p.at, since(p.at, out).String()
		then := *l
		l.outcome(p.tape.Header.Format, p.at, out)
		s.Partly = then.Cut
		if s.Same = then.Sum == l.Sum || then.Cut && strings.HasPrefix(s.Out, then.Out); !s.Same {
			s.Recorded = then.Out
		}
		return s, nil
	}
}

// words says in a few words what happened.
func (d *document) words() string {
	text := d.Kind
	switch d.Kind {
	case kindMessage:
		m, _ := of[messageDoc](d) // it was read before
		text += " " + m.Method + " of " + m.Topic
	case kindPulled:
		p, _ := of[pulledDoc](d)
		text += fmt.Sprintf(" %s %d of %d", p.Batch.Kind, len(p.Ports)+len(p.Groups)+len(p.Members)+len(p.Addresses)+len(p.Tunnels)+len(p.Objects), len(p.Batch.IDs))
	case kindBroker:
		b, _ := of[brokerDoc](d)
		text += " " + b.What
	case kindCalled, kindDevice, kindStateReported:
		text = strings.TrimSpace(text + " " + d.Text)
	}
	if d.Bridge != "" {
		text += " " + d.Bridge
	}
	if d.Err != nil {
		text += ": " + d.Err.Text
	}
	return text
}

// then writes log lines with the time of the tape.
type then struct {
	slog.Handler
	p *Player
}

// Handle implements slog.Handler.
func (h then) Handle(ctx context.Context, rec slog.Record) error {
	rec.Time = h.p.at
	return h.Handler.Handle(ctx, rec)
}

// Restate writes the tape from the beginning, compressed, with what is decided now in place of what was decided then.
func (p *Player) Restate(to io.Writer) error {
	z := gzip.NewWriter(to)
	w, err := NewWriter(z, p.tape.Header)
	for err == nil {
		if _, err = p.Next(); err == nil || errors.Is(err, io.EOF) {
			for _, l := range p.lines {
				err = errors.Join(err, w.put(l))
			}
		}
	}
	if !errors.Is(err, io.EOF) {
		return err
	}
	return z.Close()
}

// Shorten copies a tape up to a step, compressed.
func Shorten(from io.Reader, to io.Writer, steps int) error {
	r, err := open(from)
	if err != nil {
		return err
	}
	z := gzip.NewWriter(to)
	for n := -1; n < steps; { // the header is no step
		text, err := r.next()
		if errors.Is(err, io.EOF) {
			break
		}
		var l line
		if err == nil {
			err = json.Unmarshal(text, &l)
		}
		if err == nil {
			_, err = z.Write(text)
		}
		if err != nil {
			return fmt.Errorf("copying the tape: %w", err)
		}
		if !l.Take {
			n++
		}
	}
	return z.Close()
}
