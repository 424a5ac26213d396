// SPDX-License-Identifier: Apache-2.0

package options

import (
	"log/slog"

	"github.com/patchbay-sdn/patchbay/oslo/config"
)

// Logging is where log records go, as the options of the log together have it.
type Logging struct {
	Level   slog.Level // the least one that is logged at all
	Outputs []LogOutput
	// Unmet completes sentences that begin with log_config_append, about what of that file cannot be followed.
	Unmet []string
}

// LogOutput is a place that records go to.
type LogOutput struct {
	To string // LogFile, LogStdout, …
	// Path is that of a file or of the system log's socket; an address with port is a system log over UDP.
	Path       string
	Facility   string     // of the system log and the journal
	Format     string     // LogText, LogJSON or LogFluent
	DateFormat string     // of Python's time.strftime; "": oslo.log's default
	Level      slog.Level // the least one that goes there
}

// The places and forms of records.
const (
	LogFile    = "file"
	LogStdout  = "stdout"
	LogStderr  = "stderr"
	LogSyslog  = "syslog"
	LogJournal = "journal"

	LogText   = "text"
	LogJSON   = "json"
	LogFluent = "fluent"
)

// everything is a level below all others.
const everything = slog.LevelDebug - 100

// Logging works out where records go. A Python logging configuration replaces the other options, as it does for the Python agent; where
// it cannot be read at all, they count.
func (o *Options) Logging() Logging {
	if o.Log.Config == "" {
		return o.Log.outputs()
	}
	settings, err := readSettings(o.Log.Config)
	if err != nil {
		out := o.Log.outputs()
		_, p := diagnose(err)
		out.Unmet = []string{"names a file that cannot be used, so the other options of the log count: " + p.Sentence}
		return out
	}
	return pythonLogging(settings)
}

// outputs is where records go without a Python logging configuration.
func (l *Log) outputs() Logging {
	out := Logging{Level: slog.LevelInfo}
	if l.Debug {
		out.Level = slog.LevelDebug
	}
	format := LogText
	if l.JSON {
		format = LogJSON
	}
	add := func(wanted bool, to, path string) {
		if wanted {
			out.Outputs = append(out.Outputs, LogOutput{To: to, Path: path, Facility: l.Facility, Format: format, DateFormat: l.DateFormat, Level: everything})
		}
	}
	add(l.File != "", LogFile, l.File)
	add(l.Syslog, LogSyslog, systemLog)
	add(l.Journal, LogJournal, "")
	add(l.Stderr || len(out.Outputs) == 0, LogStderr, "")
	return out
}

// PacketLog is where the extension log writes its lines besides the agent's own log, and whether they go to that, too: to the file that the options name and
// nowhere else; without one to the agent's log, and, if that goes elsewhere, to the journal or the system log.
func (o *Options) PacketLog() (to *LogOutput, own bool) {
	own = o.NetworkLog.OutputFile == ""
	out := LogOutput{To: LogSyslog, Path: systemLog, Facility: o.Log.Facility, Format: LogText, DateFormat: o.Log.DateFormat, Level: slog.LevelInfo}
	switch {
	case !own:
		out.To, out.Path = LogFile, o.NetworkLog.OutputFile
	case o.Log.Journal:
		out.To, out.Path = LogJournal, ""
	}
	for _, l := range o.Logging().Outputs {
		if own && (l.To == LogSyslog || l.To == LogJournal) {
			return nil, true
		}
	}
	return &out, own
}

// systemLog is the socket of the system log.
const systemLog = "/dev/log"

// readSettings reads a file of sections and options that no schema describes.
func readSettings(path string) ([]config.Setting, error) {
	none, err := config.NewSchema()
	if err != nil {
		return nil, err
	}
	conf, err := config.Inspect(none, config.Input{DefaultFiles: []string{path}, DefaultDirs: []string{}})
	if err != nil {
		return nil, err
	}
	return conf.Unknown(), nil
}

// adviseLogging lists what of the log's configuration cannot be followed.
func (o *Options) adviseLogging() []Problem {
	var out []Problem
	for _, sentence := range o.Logging().Unmet {
		out = append(out, o.at("DEFAULT", "log_config_append", "%s", sentence))
	}
	return out
}
