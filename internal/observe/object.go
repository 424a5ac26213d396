// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"
)

// jsonRecord has the keys of oslo.log's JSONFormatter. A record of Patchbay has neither a request nor a traceback.
type jsonRecord struct {
	Message         string         `json:"message"`
	ASCTime         string         `json:"asctime"`
	Name            string         `json:"name"`
	Msg             string         `json:"msg"`
	Args            []string       `json:"args"`
	LevelName       string         `json:"levelname"`
	LevelNo         int            `json:"levelno"`
	PathName        string         `json:"pathname"`
	FileName        string         `json:"filename"`
	Module          string         `json:"module"`
	LineNo          int            `json:"lineno"`
	FuncName        string         `json:"funcname"`
	Created         float64        `json:"created"`
	Msecs           float64        `json:"msecs"`
	RelativeCreated float64        `json:"relative_created"`
	Thread          int            `json:"thread"`
	ThreadName      string         `json:"thread_name"`
	ProcessName     string         `json:"process_name"`
	Process         int            `json:"process"`
	Traceback       *string        `json:"traceback"`
	HostName        string         `json:"hostname"`
	ErrorSummary    string         `json:"error_summary"`
	Context         map[string]any `json:"context"`
	Extra           map[string]any `json:"extra"`
}

// fluentRecord has the keys of oslo.log's FluentFormatter.
type fluentRecord struct {
	Message      string         `json:"message"`
	Time         string         `json:"time"`
	Name         string         `json:"name"`
	Level        string         `json:"level"`
	FileName     string         `json:"filename"`
	LineNo       int            `json:"lineno"`
	Module       string         `json:"module"`
	FuncName     string         `json:"funcname"`
	ProcessName  string         `json:"process_name"`
	CmdLine      string         `json:"cmdline"`
	HostName     string         `json:"hostname"`
	Traceback    *string        `json:"traceback"`
	ErrorSummary string         `json:"error_summary"`
	Context      map[string]any `json:"context"`
	Extra        map[string]any `json:"extra"`
}

// The names that Python gives where there is nothing else to say.
const (
	loggerName  = "patchbay"
	mainThread  = "MainThread"
	mainProcess = "MainProcess"
)

// object is the record as a JSON object on one line. The attributes are in extra, each as a value, and behind the message as text.
func (h *handler) object(r *slog.Record) []byte {
	at := place(r.PC)
	message := oneLine(r.Message) + h.attrs
	extra := make(map[string]any, len(h.extra))
	for _, a := range h.extra {
		extra[a.Key] = plainValue(a.Value)
	}
	var doc any
	if h.output.Format == Fluent {
		doc = fluentRecord{
			Message: message, Time: r.Time.Format(h.output.Layout), Name: h.name, Level: levelName(r.Level), FileName: filepath.Base(at.File),
			LineNo: at.Line, Module: module(at.File), FuncName: function(at.Function), ProcessName: mainProcess, CmdLine: h.me.command,
			HostName: h.me.host, Context: map[string]any{}, Extra: extra,
		}
	} else {
		doc = jsonRecord{
			Message: message, ASCTime: r.Time.Format(h.output.Layout), Name: h.name, Msg: r.Message, Args: []string{},
			LevelName: levelName(r.Level), LevelNo: levelNumber(r.Level), PathName: at.File, FileName: filepath.Base(at.File),
			Module: module(at.File), LineNo: at.Line, FuncName: function(at.Function), Created: float64(r.Time.UnixMicro()) / 1e6,
			Msecs: float64(r.Time.Nanosecond()/int(time.Microsecond)) / 1e3, RelativeCreated: float64(r.Time.Sub(h.me.began).Microseconds()) / 1e3,
			ThreadName: mainThread, ProcessName: mainProcess, Process: h.me.pid, HostName: h.me.host,
			Context: map[string]any{}, Extra: extra,
		}
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(doc); err != nil {
		return h.text(r) // cannot be: the document has only strings, numbers and booleans
	}
	return escape(strings.TrimSuffix(b.String(), "\n"))
}

// flat returns the attributes that one is, with the names of its groups.
func flat(prefix string, a slog.Attr) []slog.Attr {
	v := a.Value.Resolve()
	if a.Equal(slog.Attr{}) {
		return nil
	}
	if v.Kind() != slog.KindGroup {
		return []slog.Attr{{Key: prefix + a.Key, Value: v}}
	}
	if a.Key != "" {
		prefix += a.Key + "."
	}
	var out []slog.Attr
	for _, g := range v.Group() {
		out = append(out, flat(prefix, g)...)
	}
	return out
}

// plainValue is a value that every parser of JSON knows.
func plainValue(v slog.Value) any {
	switch v.Kind() {
	case slog.KindBool:
		return v.Bool()
	case slog.KindInt64:
		return v.Int64()
	case slog.KindUint64:
		return v.Uint64()
	case slog.KindFloat64:
		if f := v.Float64(); !math.IsNaN(f) && !math.IsInf(f, 0) {
			return f
		}
	}
	return v.String()
}

// levelNumber is Python's number of a level.
func levelNumber(l slog.Level) int {
	return map[string]int{"ERROR": 40, "WARNING": 30, "INFO": 20, "DEBUG": 10}[levelName(l)]
}

// place is where a record was made.
func place(pc uintptr) runtime.Frame {
	if pc == 0 {
		return runtime.Frame{}
	}
	frame, _ := runtime.CallersFrames([]uintptr{pc}).Next()
	return frame
}

func module(file string) string { return strings.TrimSuffix(filepath.Base(file), ".go") }

// function is the name of a function without its package.
func function(name string) string { return name[strings.LastIndexByte(name, '/')+1:] }

// escape takes a line of JSON, in which characters beyond ASCII stand in strings only. What encoding/json leaves as it is, but a terminal
// may obey, is escaped.
func escape(line string) []byte {
	if printable(line) {
		return []byte(line)
	}
	var out bytes.Buffer
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
	return out.Bytes()
}
