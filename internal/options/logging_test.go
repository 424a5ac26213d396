// SPDX-License-Identifier: Apache-2.0

package options

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// helmLogging is what openstack-helm's logging.conf says, in words of our own.
const helmLogging = `[loggers]
keys = root,neutron,neutron_taas
[handlers]
keys = stdout,stderr,null
[formatters]
keys = context,default
[logger_root]
level = WARNING
handlers = null
[logger_neutron]
level = INFO
handlers = stdout
qualname = neutron
[logger_amqp]
level = WARNING
handlers = stderr
qualname = amqp
[handler_null]
class = logging.NullHandler
formatter = default
args = ()
[handler_stdout]
class = StreamHandler
args = (sys.stdout,)
formatter = context
[handler_stderr]
class = StreamHandler
args = (sys.stderr,)
formatter = context
[formatter_context]
class = oslo_log.formatters.ContextFormatter
datefmt = %Y-%m-%d %H:%M:%S
[formatter_default]
format = %(message)s
datefmt = %Y-%m-%d %H:%M:%S
`

func TestPythonLogging(t *testing.T) {
	root := func(handlers, rest string) string {
		return "[loggers]\nkeys: root\n[logger_root]\nlevel=DEBUG\nhandlers=" + handlers + "\n" + rest
	}
	const date = "%Y-%m-%d %H:%M:%S"
	for _, test := range []struct {
		name, text string
		want       Logging
		unmet      []string // parts of the sentences
	}{
		{name: "helm", text: helmLogging, want: Logging{Level: slog.LevelInfo, Outputs: []LogOutput{{To: LogStdout, Format: LogText, DateFormat: date, Level: everything}}}},
		{name: "helm, with a handler for fluentd",
			text: strings.NewReplacer("handlers = stdout\n", "handlers = stdout, fluent\n", "[formatter_context]",
				"[handler_fluent]\nclass = fluent.handler.FluentHandler\nformatter = fluent\nargs = ('openstack.neutron', 'fluentd', 24224)\n"+
					"[formatter_fluent]\nclass = oslo_log.formatters.FluentFormatter\n[formatter_context]").Replace(helmLogging),
			want: Logging{Level: slog.LevelInfo, Outputs: []LogOutput{
				{To: LogStdout, Format: LogText, DateFormat: date, Level: everything}, {To: LogStdout, Format: LogFluent, Level: everything}}},
			unmet: []string{`has the handler fluent of the class "fluent.handler.FluentHandler"`}},
		{name: "nothing is handed on", text: strings.NewReplacer("qualname = neutron\n", "qualname = neutron\npropagate = 0\n", "handlers = null", "handlers = stderr").Replace(helmLogging),
			want: Logging{Level: slog.LevelInfo, Outputs: []LogOutput{{To: LogStdout, Format: LogText, DateFormat: date, Level: everything}}}},
		{name: "both the agent's and the root's", text: strings.Replace(helmLogging, "handlers = null", "handlers = stderr", 1),
			want: Logging{Level: slog.LevelInfo, Outputs: []LogOutput{
				{To: LogStdout, Format: LogText, DateFormat: date, Level: everything}, {To: LogStderr, Format: LogText, DateFormat: date, Level: everything}}}},
		{name: "a file, in JSON", text: root("f", "[handler_f]\nclass=logging.handlers.WatchedFileHandler\nargs=('/var/log/x.log', 'a')\nlevel=WARNING\nformatter=j\n[formatter_j]\nclass=oslo_log.formatters.JSONFormatter\n"),
			want: Logging{Level: slog.LevelDebug, Outputs: []LogOutput{{To: LogFile, Path: "/var/log/x.log", Format: LogJSON, Level: slog.LevelWarn}}}},
		{name: "the system log", text: root("s", "[handler_s]\nclass=handlers.SysLogHandler\nargs=('/run/log', handlers.SysLogHandler.LOG_LOCAL4)\n"),
			want: Logging{Level: slog.LevelDebug, Outputs: []LogOutput{{To: LogSyslog, Path: "/run/log", Facility: "LOG_LOCAL4", Format: LogText, Level: everything}}}},
		{name: "a system log elsewhere", text: root("s", "[handler_s]\nclass=logging.handlers.SysLogHandler\nargs=(('192.0.2.1', 514),)\n"),
			want: Logging{Level: slog.LevelDebug, Outputs: []LogOutput{{To: LogSyslog, Path: "192.0.2.1:514", Format: LogText, Level: everything}}}},
		{name: "the journal", text: root("s", "[handler_s]\nclass=oslo_log.handlers.OSJournalHandler\nargs=()\n"),
			want: Logging{Level: slog.LevelDebug, Outputs: []LogOutput{{To: LogJournal, Format: LogText, Level: everything}}}},
		{name: "rotation, and a form of its own", text: root("f,g", "[handler_f]\nclass=handlers.RotatingFileHandler\nargs=('/x', 'a', 1000, 3)\n[handler_g]\nclass=StreamHandler\nformatter=m\n[formatter_m]\nformat=%(message)s\n"),
			want: Logging{Level: slog.LevelDebug, Outputs: []LogOutput{
				{To: LogFile, Path: "/x", Format: LogText, Level: everything}, {To: LogStderr, Format: LogText, Level: everything}}},
			unmet: []string{"does not rotate it", "formatter m with a format of its own"}},
		{name: "a file without a name", text: root("f", "[handler_f]\nclass=FileHandler\n"),
			want: Logging{Level: slog.LevelDebug, Outputs: []LogOutput{{To: LogStdout, Format: LogText, Level: everything}}}, unmet: []string{"without a file"}},
		{name: "nobody's", text: "[loggers]\nkeys=other\n[logger_other]\nqualname=neutron_lib\nhandlers=x\n", want: Logging{Level: slog.LevelWarn}},
		{name: "no loggers", text: "[DEFAULT]\nx = 1\n",
			want: Logging{Level: slog.LevelInfo, Outputs: []LogOutput{{To: LogStdout, Format: LogText, Level: everything}}}, unmet: []string{"without the section [loggers]"}},
		{name: "not such a file", text: "nonsense\n",
			want: Logging{Level: slog.LevelDebug, Outputs: []LogOutput{
				{To: LogFile, Path: "/var/log/n/" + Program + ".log", Facility: "LOG_USER", Format: LogText, DateFormat: date, Level: everything}}},
			unmet: []string{"names a file that cannot be used, so the other options of the log count"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := loadText(t, "[DEFAULT]\ndebug = true\nlog_dir = /var/log/n\nlog_config_append = "+write(t, "logging.conf", test.text)+"\n")
			got := o.Logging()
			if len(got.Unmet) != len(test.unmet) {
				t.Errorf("%q", got.Unmet)
			}
			for i, part := range test.unmet {
				if i < len(got.Unmet) && !strings.Contains(got.Unmet[i], part) {
					t.Errorf("%q lacks %q", got.Unmet[i], part)
				}
			}
			got.Unmet = nil
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
			if len(o.Unsupported()) > 0 {
				t.Errorf("%v", o.Unsupported())
			}
		})
	}
}

func TestLoggingOfOptions(t *testing.T) {
	for text, want := range map[string]string{
		"":                                     "stderr text",
		"log_dir = /l":                         "file:/l/" + Program + ".log text",
		"log_file = /f\nuse_stderr = true":     "file:/f text, stderr text",
		"use_syslog = true\nuse_json = true":   "syslog:/dev/log json",
		"use_journal = true":                   "journal text",
		"use_journal = true\nlog_file = /f":    "file:/f text, journal text",
		"use_journal = true\nuse_stderr = yes": "journal text, stderr text",
	} {
		var got []string
		for _, to := range loadText(t, "[DEFAULT]\n"+text+"\n").Logging().Outputs {
			where := to.To
			if to.Path != "" {
				where += ":" + to.Path
			}
			got = append(got, where+" "+to.Format)
		}
		if have := strings.Join(got, ", "); have != want {
			t.Errorf("%q: %s, want %s", text, have, want)
		}
	}
}

// An extension that is missing stops the start, or not, as unknown_extensions says; one that filters ports always does.
func TestUnknownExtensions(t *testing.T) {
	for text, want := range map[string]struct{ stops, warns int }{
		"[agent]\nextensions = qos\n":                                                       {0, 0},
		"[agent]\nextensions = qos, sfc, evpn\n":                                            {2, 0},
		"[agent]\nextensions = qos, sfc, evpn\n[patchbay]\nunknown_extensions=stop":         {2, 0},
		"[agent]\nextensions = qos,sfc,evpn,sfc\n[patchbay]\nunknown_extensions = ignore\n": {0, 2},
		"[agent]\nextensions = qos,log\n":                                                   {0, 1}, // nothing filters
		"[agent]\nextensions = taas\n":                                                      {0, 0},
		"[agent]\nextensions = taas\n[securitygroup]\nfirewall_driver = iptables_hybrid\n":  {0, 2}, // the other one: nothing filters
		"[agent]\nextensions = fdb\n[fdb]\nshared_physical_device_mappings=p:d":             {0, 0},
		"[agent]\nextensions = fwaas_v2,sfc\n[patchbay]\nunknown_extensions = ignore\n":     {1, 1},
	} {
		o := loadText(t, text+"\n[securitygroup]\nenable_security_group = false\n")
		if len(o.Unsupported()) != want.stops || len(o.Advice()) != want.warns {
			t.Errorf("%q: stops for %v, warns of %v, want %d and %d", text, o.Unsupported(), o.Advice(), want.stops, want.warns)
		}
	}
}

// The lines of the extension log go to the file that is named for them and nowhere else; without one to the agent's log, and to the system log or the journal besides.
func TestPacketLog(t *testing.T) {
	for text, want := range map[string]string{
		"":                            "syslog:/dev/log own",
		"[DEFAULT]\nuse_journal=true": "own",
		"[DEFAULT]\nuse_syslog=true":  "own",
		"[DEFAULT]\nlog_file=/f":      "syslog:/dev/log own",
		"[network_log]\nlocal_output_log_base=/var/log/neutron/packets.log": "file:/var/log/neutron/packets.log",
	} {
		to, own := loadText(t, text+"\n").PacketLog()
		var got []string
		if to != nil {
			got = append(got, to.To+":"+to.Path)
		}
		if own {
			got = append(got, "own")
		}
		if have := strings.Join(got, " "); have != want {
			t.Errorf("%q: %s, want %s", text, have, want)
		}
	}
}
