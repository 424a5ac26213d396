// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf16"
	"unicode/utf8"
)

// NewLogger returns a logger that writes one line a record to w:
//
//	2026-11-15 00:16:15.123 4711 INFO patchbay [-] in sync ports=12 dur=84ms
//
// that is oslo.log's default format (time, process, level, name, no request) with slog's attributes after the message.
// Level may change while the logger is in use.
func NewLogger(w io.Writer, level slog.Leveler) *slog.Logger {
	return slog.New(&lineHandler{out: &lockedWriter{w: w}, level: level, pid: strconv.Itoa(os.Getpid())})
}

type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

// lineHandler is a slog.Handler; attributes of With are rendered once, when they are given.
type lineHandler struct {
	out    *lockedWriter
	level  slog.Leveler
	pid    string
	attrs  string // rendered, each with a leading space
	prefix string // of open groups, with a trailing dot
}

// Enabled implements slog.Handler.
func (h *lineHandler) Enabled(_ context.Context, l slog.Level) bool { return l >= h.level.Level() }

// Handle implements slog.Handler.
func (h *lineHandler) Handle(_ context.Context, r slog.Record) error {
	b := make([]byte, 0, 256)
	b = r.Time.AppendFormat(b, "2006-01-02 15:04:05.000")
	b = append(b, ' ')
	b = append(b, h.pid...)
	b = append(b, ' ')
	b = append(b, levelName(r.Level)...)
	b = append(b, " patchbay [-] "...)
	b = append(b, oneLine(r.Message)...)
	b = append(b, h.attrs...)
	r.Attrs(func(a slog.Attr) bool {
		b = appendAttr(b, h.prefix, a)
		return true
	})
	b = append(b, '\n')
	h.out.mu.Lock()
	defer h.out.mu.Unlock()
	_, err := h.out.w.Write(b)
	return err
}

// WithAttrs implements slog.Handler.
func (h *lineHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	c := *h
	b := []byte(h.attrs)
	for _, a := range attrs {
		b = appendAttr(b, h.prefix, a)
	}
	c.attrs = string(b)
	return &c
}

// WithGroup implements slog.Handler.
func (h *lineHandler) WithGroup(name string) slog.Handler {
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

// NewJSONLogger returns a logger that writes records as JSON, one a line. What encoding/json leaves as it is, but [NewLogger] would not, is
// escaped too.
func NewJSONLogger(w io.Writer, level slog.Leveler) *slog.Logger {
	return slog.New(slog.NewJSONHandler(&escapingWriter{w}, &slog.HandlerOptions{Level: level}))
}

// escapingWriter takes whole lines of JSON, in which characters beyond ASCII stand in strings only.
type escapingWriter struct{ to io.Writer }

// Write implements io.Writer.
func (e *escapingWriter) Write(b []byte) (int, error) {
	line := strings.TrimSuffix(string(b), "\n")
	if printable(line) {
		return e.to.Write(b)
	}
	var out strings.Builder
	for _, r := range line {
		switch {
		case strconv.IsPrint(r):
			out.WriteRune(r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&out, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&out, `\u%04x`, r)
		}
	}
	if _, err := io.WriteString(e.to, out.String()+"\n"); err != nil {
		return 0, err
	}
	return len(b), nil
}
