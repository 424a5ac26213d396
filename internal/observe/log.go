// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// Format is the form of a record.
type Format int

// The formats. Each is one of oslo.log's, so that what parses the Python agent's log parses this one.
const (
	Text   Format = iota // ContextFormatter
	JSON                 // JSONFormatter, of use_json
	Fluent               // FluentFormatter
)

// Record is one record in its form, without the end of the line.
type Record struct {
	Level slog.Level
	PC    uintptr // where it was made
	Name  string  // of the logger
	Text  []byte
}

// Sink is a place that records go to. One record is written at a time.
type Sink interface{ Put(Record) error }

// Output is a sink, and what goes there.
type Output struct {
	Sink   Sink
	Format Format
	// Level is the least one that goes there.
	Level slog.Leveler
	// Layout is that of times, as package time has them; empty: oslo.log's default.
	Layout string
}

// NewLogger returns a logger that writes one line a record to w:
//
//	2026-11-15 00:16:15.123 4711 INFO patchbay [-] in sync ports=12 dur=84ms
//
// that is oslo.log's default format (time, process, level, name, no request) with slog's attributes after the message.
// Level may change while the logger is in use.
func NewLogger(w io.Writer, level slog.Leveler) *slog.Logger {
	return New([]Output{{Sink: Stream(w, false), Level: level}})
}

// New returns a logger that writes every record to all outputs. Without any it writes nothing.
func New(outputs []Output) *slog.Logger {
	me := thisProcess()
	var all []slog.Handler
	for _, o := range outputs {
		if o.Layout == "" {
			o.Layout = defaultLayout
		}
		all = append(all, &handler{out: &locked{Sink: o.Sink}, output: o, me: me, name: loggerName})
	}
	return slog.New(slog.NewMultiHandler(all...))
}

const defaultLayout = "2006-01-02 15:04:05"

// process is what records say of this process.
type process struct {
	pid     int
	host    string
	command string
	began   time.Time
}

func thisProcess() *process {
	host, _ := os.Hostname() // empty in the records, then
	return &process{pid: os.Getpid(), host: host, command: strings.Join(os.Args, " "), began: time.Now()}
}

// locked has one record written at a time.
type locked struct {
	mu sync.Mutex
	Sink
}

// handler is a slog.Handler; attributes of With are rendered once, when they are given.
type handler struct {
	out    *locked
	output Output
	me     *process
	name   string // of the logger
	attrs  string // rendered, each with a leading space
	extra  []slog.Attr
	prefix string // of open groups, with a trailing dot
}

// Enabled implements slog.Handler.
func (h *handler) Enabled(_ context.Context, l slog.Level) bool { return l >= h.output.Level.Level() }

// Handle implements slog.Handler.
func (h *handler) Handle(_ context.Context, r slog.Record) error {
	c := h.with(r.NumAttrs(), r.Attrs)
	var line []byte
	if h.output.Format == Text {
		line = c.text(&r)
	} else {
		line = c.object(&r)
	}
	h.out.mu.Lock()
	defer h.out.mu.Unlock()
	return h.out.Put(Record{Level: r.Level, PC: r.PC, Name: h.name, Text: line})
}

// text is the record as oslo.log's ContextFormatter writes one without a request.
func (h *handler) text(r *slog.Record) []byte {
	b := make([]byte, 0, 256)
	b = r.Time.AppendFormat(b, h.output.Layout)
	b = r.Time.AppendFormat(b, ".000 ")
	b = strconv.AppendInt(b, int64(h.me.pid), 10)
	b = append(b, ' ')
	b = append(b, levelName(r.Level)...)
	b = append(b, ' ')
	b = append(b, h.name...)
	b = append(b, " [-] "...)
	b = append(b, oneLine(r.Message)...)
	return append(b, h.attrs...)
}

// nameKey is the key of an attribute that is the logger's name. No other begins with this.
const nameKey = "\x00logger"

// Named returns a logger whose records have another name than this program's, where it is one of [New].
func Named(l *slog.Logger, name string) *slog.Logger { return l.With(slog.String(nameKey, name)) }

// with returns the handler with further attributes.
func (h *handler) with(n int, each func(func(slog.Attr) bool)) *handler {
	c := *h
	if n == 0 {
		return &c
	}
	b := []byte(h.attrs)
	each(func(a slog.Attr) bool {
		if a.Key == nameKey {
			c.name = a.Value.String()
			return true
		}
		if h.output.Format != Text {
			c.extra = append(c.extra[:len(c.extra):len(c.extra)], flat(h.prefix, a)...)
		}
		b = appendAttr(b, h.prefix, a)
		return true
	})
	c.attrs = string(b)
	return &c
}

// WithAttrs implements slog.Handler.
func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return h.with(len(attrs), func(take func(slog.Attr) bool) {
		for _, a := range attrs {
			take(a)
		}
	})
}

// WithGroup implements slog.Handler.
func (h *handler) WithGroup(name string) slog.Handler {
	c := *h
	c.prefix = h.prefix + name + "."
	return &c
}

func levelName(l slog.Level) string {
	switch {
	case l >= slog.LevelError:
		return "ERROR"
	case l >= slog.LevelWarn:
		return "WARNING"
	case l >= slog.LevelInfo:
		return "INFO"
	default:
		return "DEBUG"
	}
}

func appendAttr(b []byte, prefix string, a slog.Attr) []byte {
	v := a.Value.Resolve()
	if a.Equal(slog.Attr{}) {
		return b
	}
	if v.Kind() == slog.KindGroup {
		if a.Key != "" {
			prefix += a.Key + "."
		}
		for _, g := range v.Group() {
			b = appendAttr(b, prefix, g)
		}
		return b
	}
	b = append(b, ' ')
	b = append(b, prefix...)
	b = append(b, a.Key...)
	b = append(b, '=')
	s := v.String()
	if v.Kind() == slog.KindDuration {
		s = v.Duration().Round(time.Microsecond).String()
	}
	if s == "" || strings.ContainsAny(s, " \"=") || !printable(s) {
		return strconv.AppendQuote(b, s)
	}
	return append(b, s...)
}

// oneLine keeps text that came from outside from forging a log line of its own, and from being obeyed by a terminal.
func oneLine(s string) string {
	if printable(s) {
		return s
	}
	quoted := strconv.Quote(s)
	return quoted[1 : len(quoted)-1]
}

// printable says whether text is shown as it is: it has no control characters, neither of ASCII nor of Unicode, which terminals obey,
// nothing that turns the direction of writing or takes no room, and no bytes that are no text. strconv.Quote escapes just these.
func printable(s string) bool {
	for i, r := range s {
		if !strconv.IsPrint(r) || r == utf8.RuneError && !strings.HasPrefix(s[i:], string(utf8.RuneError)) {
			return false
		}
	}
	return true
}
