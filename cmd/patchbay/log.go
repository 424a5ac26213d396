// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"syscall"

	"github.com/patchbay-sdn/patchbay/internal/observe"
	"github.com/patchbay-sdn/patchbay/internal/options"
)

// journalSocket is where the journal takes records with fields.
const journalSocket = "/run/systemd/journal/socket"

// openLog opens what the options name. What cannot be opened is tried again; until then records go to standard error, so that no log
// keeps the agent from starting. Level is set to that of the options.
func openLog(o *options.Options, level *slog.LevelVar) (*slog.Logger, logFiles) {
	plan := o.Logging()
	level.Set(plan.Level)
	var outputs []observe.Output
	var files logFiles
	var late []slog.Attr
	for _, to := range plan.Outputs {
		layout, ok := observe.Layout(cmp.Or(to.DateFormat, "%F %T"))
		if !ok {
			late = append(late, slog.String("log_date_format", to.DateFormat))
		}
		sink, file := openSink(&to)
		if file != nil {
			files = append(files, file)
		}
		outputs = append(outputs, observe.Output{Sink: sink, Format: logFormat(to.Format), Level: atLeast{level, to.Level}, Layout: layout})
	}
	log := observe.New(outputs)
	if err := files.Err(); err != nil {
		log.Warn("log file not opened, logging to standard error, retrying", "err", err)
	}
	for _, a := range late {
		log.Warn("log_date_format not supported, using the default form", "format", a.Value.String())
	}
	return log, files
}

// logFiles are the files that records go to.
type logFiles []*observe.LogFile

// Err is why one of them cannot be opened.
func (l logFiles) Err() error {
	var errs []error
	for _, f := range l {
		errs = append(errs, f.Err())
	}
	return errors.Join(errs...)
}

func (l logFiles) close() {
	for _, f := range l {
		_ = f.Close() // nobody is left to tell
	}
}

// openSink opens a place that records go to, and returns the file if it is one.
func openSink(to *options.LogOutput) (observe.Sink, *observe.LogFile) {
	facility, ok := observe.Facility(to.Facility)
	if !ok {
		facility, _ = observe.Facility("USER") // oslo.log's default
	}
	switch to.To {
	case options.LogFile:
		f := observe.OpenLogFile(to.Path, os.Stderr)
		return observe.Stream(f, false), f
	case options.LogSyslog:
		network := "unixgram"
		if _, _, err := net.SplitHostPort(to.Path); err == nil {
			network = "udp"
		}
		return observe.Syslog(network, to.Path, options.Program, facility, os.Stderr), nil
	case options.LogJournal:
		return observe.Journal(journalSocket, options.Program, facility, os.Stderr), nil
	case options.LogStdout:
		return stream(os.Stdout), nil
	}
	return stream(os.Stderr), nil
}

// stream is a standard stream; with priorities where systemd has connected it to the journal.
func stream(f *os.File) observe.Sink {
	var st syscall.Stat_t
	journal := syscall.Fstat(int(f.Fd()), &st) == nil && observe.InJournal(os.Getenv, st.Dev, st.Ino)
	return observe.Stream(io.Writer(f), journal)
}

func logFormat(name string) observe.Format {
	switch name {
	case options.LogJSON:
		return observe.JSON
	case options.LogFluent:
		return observe.Fluent
	}
	return observe.Text
}

// atLeast is the higher one of the log's level, which may change, and an output's own.
type atLeast struct {
	of  slog.Leveler
	own slog.Level
}

// Level implements slog.Leveler.
func (l atLeast) Level() slog.Level { return max(l.of.Level(), l.own) }
