// SPDX-License-Identifier: Apache-2.0

package options

import (
	"fmt"
	"log/slog"
	"net"
	"regexp"
	"slices"
	"strings"

	"github.com/patchbay-sdn/patchbay/oslo/config"
)

// agentLogger is the logger that the Python agent writes to. A configuration is read as that logger would be served.
const agentLogger = "neutron.plugins.ml2.drivers.openvswitch.agent"

// pythonFile is a file of Python's logging.config, by section and lower-case name.
type pythonFile map[string]map[string]string

// pythonLogging works out where the records of the Python agent would go: to the handlers of its logger and of those above, as long as
// they hand records on. A handler that Patchbay has no equal for is replaced by standard output, and named.
func pythonLogging(settings []config.Setting) Logging {
	f := pythonFile{}
	for _, s := range settings {
		section := strings.TrimSpace(s.Section)
		if f[section] == nil {
			f[section] = map[string]string{}
		}
		f[section][strings.ToLower(s.Key)] = s.Value
	}
	if f["loggers"] == nil {
		return Logging{Level: slog.LevelInfo, Outputs: []LogOutput{{To: LogStdout, Format: LogText, Level: everything}},
			Unmet: []string{"names a file without the section [loggers]; the log goes to standard output."}}
	}
	chain := f.chain()
	out := Logging{Level: f.level(chain)}
	for _, logger := range chain {
		for _, name := range words(logger["handlers"]) {
			to, unmet := f.handler(name)
			if to.To != "" && !slices.Contains(out.Outputs, to) {
				out.Outputs = append(out.Outputs, to)
			}
			if unmet != "" {
				out.Unmet = append(out.Unmet, unmet)
			}
		}
	}
	return out
}

// chain returns the loggers that get the agent's records, the nearest first.
func (f pythonFile) chain() []map[string]string {
	var found []map[string]string
	for _, key := range words(f["loggers"]["keys"]) {
		logger := f["logger_"+key]
		name := logger["qualname"]
		_, below := strings.CutPrefix(agentLogger+".", name+".")
		if key == "root" || name != "" && below {
			found = append(found, logger)
		}
	}
	slices.SortStableFunc(found, func(a, b map[string]string) int { return len(b["qualname"]) - len(a["qualname"]) })
	for i, logger := range found {
		if logger["propagate"] == "0" {
			return found[:i+1]
		}
	}
	return found
}

// level is that of the nearest logger that has one.
func (f pythonFile) level(chain []map[string]string) slog.Level {
	for _, logger := range chain {
		if l, ok := pythonLevel(logger["level"]); ok {
			return l
		}
	}
	return slog.LevelWarn // Python's
}

// pythonLevel is a level that is set; NOTSET is none.
func pythonLevel(name string) (slog.Level, bool) {
	l, ok := map[string]slog.Level{
		"DEBUG": slog.LevelDebug, "INFO": slog.LevelInfo, "WARNING": slog.LevelWarn, "WARN": slog.LevelWarn,
		"ERROR": slog.LevelError, "CRITICAL": slog.LevelError + 4, "FATAL": slog.LevelError + 4,
	}[strings.ToUpper(strings.TrimSpace(name))]
	return l, ok
}

// handler returns the place that a handler writes to, none for one that writes nowhere, and what of it cannot be followed.
func (f pythonFile) handler(name string) (to LogOutput, unmet string) {
	h := f["handler_"+name]
	class := h["class"][strings.LastIndexByte(h["class"], '.')+1:]
	to = LogOutput{Level: everything}
	if l, ok := pythonLevel(h["level"]); ok {
		to.Level = l
	}
	args := h["args"] + " " + h["kwargs"]
	first := ""
	if s := quoted.FindStringSubmatch(args); s != nil {
		first = s[1] + s[2]
	}
	switch class {
	case "NullHandler":
		return LogOutput{}, ""
	case "StreamHandler", "ColorHandler":
		if to.To = LogStderr; strings.Contains(args, "sys.stdout") {
			to.To = LogStdout
		}
	case "FileHandler", "WatchedFileHandler":
		to.To, to.Path = LogFile, first
	case "RotatingFileHandler", "TimedRotatingFileHandler":
		to.To, to.Path = LogFile, first
		unmet = fmt.Sprintf("has the handler %s, a %s: Patchbay writes the file and does not rotate it; leave that to logrotate.", name, class)
	case "SysLogHandler", "OSSysLogHandler":
		to.To, to.Path, to.Facility = LogSyslog, systemLog, facility.FindString(args)
		if remote := hostPort.FindStringSubmatch(args); remote != nil {
			to.Path = net.JoinHostPort(remote[1], remote[2])
		} else if strings.HasPrefix(first, "/") {
			to.Path = first
		}
	case "OSJournalHandler":
		to.To, to.Facility = LogJournal, facility.FindString(args)
	default:
		to.To = LogStdout
		unmet = fmt.Sprintf("has the handler %s of the class %q, which Patchbay does not have; the log goes to standard output.", name, h["class"])
	}
	if to.To == LogFile && to.Path == "" {
		to.To = LogStdout
		unmet = fmt.Sprintf("has the handler %s without a file in its args; the log goes to standard output.", name)
	}
	var form string
	to.Format, to.DateFormat, form = f.formatter(h["formatter"])
	if unmet == "" && form != "" {
		unmet = form
	}
	return to, unmet
}

var (
	quoted   = regexp.MustCompile(`'([^']*)'|"([^"]*)"`)
	facility = regexp.MustCompile(`LOG_[A-Z]+[0-9]?`)
	hostPort = regexp.MustCompile(`\(\s*['"]([^'"]+)['"]\s*,\s*([0-9]{1,5})\s*\)`)
)

// formatter returns the form that a formatter gives, and what of it cannot be followed.
func (f pythonFile) formatter(name string) (format, date, unmet string) {
	if name == "" {
		return LogText, "", ""
	}
	section := f["formatter_"+name]
	date = section["datefmt"]
	class := section["class"][strings.LastIndexByte(section["class"], '.')+1:]
	switch class {
	case "JSONFormatter":
		return LogJSON, date, ""
	case "FluentFormatter", "FluentRecordFormatter":
		return LogFluent, date, ""
	case "ContextFormatter":
		return LogText, date, ""
	}
	if section["format"] != "" {
		unmet = fmt.Sprintf("has the formatter %s with a format of its own; the log keeps oslo.log's.", name)
	}
	return LogText, date, unmet
}

// words are the parts of a list with commas.
func words(list string) []string {
	var out []string
	for w := range strings.SplitSeq(list, ",") {
		if w = strings.TrimSpace(w); w != "" {
			out = append(out, w)
		}
	}
	return out
}
