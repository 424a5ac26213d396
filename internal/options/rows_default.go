// SPDX-License-Identifier: Apache-2.0

package options

import "github.com/patchbay-sdn/patchbay/oslo/config"

func defaultRows(me identity) []row {
	return []row{
		{Option: config.Option{Name: "host", Type: config.HostAddress{}, Default: me.hostname,
			Help: "name of this host towards Neutron; by default the host name of the system"},
			field: func(o *Options) any { return &o.Default.Host }},
		{Option: config.Option{Name: "state_path", Default: "/var/lib/neutron", CLI: true,
			Help: "directory for state; other options refer to it as $state_path"},
			field: func(o *Options) any { return &o.Default.StatePath }},
		{Option: config.Option{Name: "my_ip", Default: me.ipv4,
			Help: "IPv4 address of this host; other options refer to it as $my_ip"}, releases: "later releases"},
		{Option: config.Option{Name: "my_ipv6", Default: me.ipv6,
			Help: "IPv6 address of this host; other options refer to it as $my_ipv6"}, releases: "later releases"},
		{Option: config.Option{Name: "base_mac", Default: "fa:16:3e:00:00:00",
			Help: "first octets of generated MAC addresses; checked at start, used by the dhcp extension"},
			field: func(o *Options) any { return &o.Default.BaseMAC }},
		{Option: config.Option{Name: "dhcp_lease_duration", Type: config.Int{}, Default: 86400,
			Help: "lease in seconds, for the dhcp extension; -1: it does not end"},
			field: func(o *Options) any { return &o.Default.DHCPLeaseDuration }},
		{Option: config.Option{Name: "dns_domain", Default: "openstacklocal",
			Help: "domain of instances whose network has none, for the dhcp extension"},
			field: func(o *Options) any { return &o.Default.DNSDomain }},
		{Option: config.Option{Name: "global_physnet_mtu", Type: config.Int{}, Default: 1500,
			Deprecated: []config.Name{{Group: "ml2", Option: "segment_mtu"}},
			Help:       "MTU of the physical network, for smart NIC ports"},
			field: func(o *Options) any { return &o.Default.GlobalPhysnetMTU }, support: NoEffect,
			why: "only smart NIC ports use it, which Patchbay does not have yet"},
		{Option: config.Option{Name: "rpc_resources_processing_step", Type: config.Int{Min: config.Limit[int64](1)}, Default: 20,
			Help: "how many devices one call to the server is about"},
			field: func(o *Options) any { return &o.Default.RPCResourcesProcessingStep }, releases: "19 and later"},
		{Option: config.Option{Name: "setproctitle", Default: "on",
			Help: "how the process calls itself"},
			support: NoEffect, why: "the process keeps the name it was started with"},
	}
}

func messagingRows() []row {
	return []row{
		{Option: config.Option{Name: "transport_url", Default: "rabbit://", Secret: true, Mask: MaskURL,
			Help: "message broker: rabbit://user:password@host:port,…/virtual_host?option=value"},
			field: func(o *Options) any { return &o.Default.TransportURL }},
		{Option: config.Option{Name: "control_exchange", Default: "neutron",
			Help: "exchange on which the server listens"},
			field: func(o *Options) any { return &o.Default.ControlExchange }},
		{Option: config.Option{Name: "rpc_response_timeout", Type: config.Int{}, Default: 60,
			Help: "seconds to wait for the answer to a call"},
			field: func(o *Options) any { return &o.Default.RPCResponseTimeout }, advise: atLeast(1)},
		{Option: config.Option{Name: "rpc_response_max_timeout", Type: config.Int{}, Default: 600,
			Help: "ceiling in seconds when the timeout of a call grows after failures"},
			field: func(o *Options) any { return &o.Default.RPCResponseMaxTimeout }, advise: atLeast(1)},
		{Option: config.Option{Name: "executor_thread_pool_size", Type: config.Int{}, Default: 64,
			Deprecated: []config.Name{{Option: "rpc_thread_pool_size"}},
			Help:       "threads that handle messages"},
			support: NoEffect, why: "messages are taken over in order by one loop; there is no pool of threads"},
		{Option: config.Option{Name: "rpc_ping_enabled", Type: config.Bool{}, Default: false,
			Help: "answer oslo_rpc_server_ping"},
			field: func(o *Options) any { return &o.Default.RPCPingEnabled }},
	}
}

func logRows() []row {
	fixed := "a log line is in oslo.log's default form, with key=value pairs behind the message"
	python := "it names Python loggers, which Patchbay does not have"
	noRotation := "Patchbay does not rotate log files; leave that to logrotate, by rename or copytruncate"
	str := func(name, def, help, why string) row {
		return row{Option: config.Option{Name: name, Default: def, Help: help}, support: NoEffect, why: why}
	}
	num := func(name string, def int, help, why string) row {
		return row{Option: config.Option{Name: name, Type: config.Int{}, Default: def, Help: help}, support: NoEffect, why: why}
	}
	return []row{
		{Option: config.Option{Name: "debug", Short: "d", Type: config.Bool{}, Default: false, CLI: true, Mutable: true,
			Help: "log at debug level"},
			field: func(o *Options) any { return &o.Log.Debug }},
		{Option: config.Option{Name: "log-config-append", CLI: true, Mutable: true, Metavar: "PATH",
			Deprecated: []config.Name{{Option: "log-config"}},
			Help: "Python logging configuration; replaces the other options of the log. The agent reads the level and the handlers of the logger neutron, or root: " +
				"streams, files, the system log and the journal, with oslo.log's formatters for text, JSON and fluentd"},
			field: func(o *Options) any { return &o.Log.Config }},
		{Option: config.Option{Name: "log-date-format", Default: "%Y-%m-%d %H:%M:%S", CLI: true, Metavar: "DATE_FORMAT",
			Help: "format of times in the log, with the codes of strftime"},
			field: func(o *Options) any { return &o.Log.DateFormat }},
		{Option: config.Option{Name: "log-file", CLI: true, Metavar: "PATH", Deprecated: []config.Name{{Option: "logfile"}},
			Help: "file to log to; the agent creates it and its directory. Without it, log_dir, use_syslog and use_journal the agent logs to standard error"},
			field: func(o *Options) any { return &o.Log.File }},
		{Option: config.Option{Name: "log-dir", CLI: true, Metavar: "LOG_DIR", Deprecated: []config.Name{{Option: "logdir"}},
			Help: "directory of the log file"},
			field: func(o *Options) any { return &o.Log.Dir }},
		{Option: config.Option{Name: "watch-log-file", Type: config.Bool{}, Default: false, CLI: true,
			Help: "open the log file again after another program moved it"},
			support: NoEffect, why: "a log file that was moved away is always noticed"},
		{Option: config.Option{Name: "use-syslog", Type: config.Bool{}, Default: false, CLI: true,
			Help: "log to the system log"},
			field: func(o *Options) any { return &o.Log.Syslog }},
		{Option: config.Option{Name: "use-journal", Type: config.Bool{}, Default: false, CLI: true,
			Help: "log to the systemd journal, with fields and priorities"},
			field: func(o *Options) any { return &o.Log.Journal }},
		{Option: config.Option{Name: "syslog-log-facility", Default: "LOG_USER", CLI: true,
			Help: "facility for the system log and the journal"},
			field: func(o *Options) any { return &o.Log.Facility }},
		{Option: config.Option{Name: "use-json", Type: config.Bool{}, Default: false, CLI: true,
			Help: "one JSON object per log line, with oslo.log's keys"},
			field: func(o *Options) any { return &o.Log.JSON }},
		{Option: config.Option{Name: "use_stderr", Type: config.Bool{}, Default: false,
			Help: "log to standard error, also when there is a log file"},
			field: func(o *Options) any { return &o.Log.Stderr }},
		{Option: config.Option{Name: "use_eventlog", Type: config.Bool{}, Default: false,
			Help: "log to the Windows event log"}, support: NoEffect, why: "there is no such log on Linux"},
		{Option: config.Option{Name: "log_rotation_type", Default: "none",
			Type: config.String{Choices: []string{"interval", "size", "none"}, IgnoreCase: true},
			Help: "when the log file is rotated"},
			support: NoEffect, why: noRotation,
			advise: func(v config.Value) string {
				if equalFold(v.Text(), "none") {
					return ""
				}
				return "asks for rotation, but " + noRotation
			}},
		num("log_rotate_interval", 1, "units between rotations", noRotation),
		{Option: config.Option{Name: "log_rotate_interval_type", Default: "days",
			Type: config.String{Choices: []string{"Seconds", "Minutes", "Hours", "Days", "Weekday", "Midnight"}, IgnoreCase: true},
			Help: "unit of log_rotate_interval"}, support: NoEffect, why: noRotation},
		num("max_logfile_count", 30, "rotated files to keep", noRotation),
		num("max_logfile_size_mb", 200, "size that makes a rotation due", noRotation),
		str("logging_context_format_string", "%(asctime)s.%(msecs)03d %(process)d %(levelname)s %(name)s [%(global_request_id)s "+
			"%(request_id)s %(user_identity)s] %(instance)s%(message)s", "form of a log line with a request", fixed),
		str("logging_default_format_string", "%(asctime)s.%(msecs)03d %(process)d %(levelname)s %(name)s [-] %(instance)s%(message)s",
			"form of a log line", fixed),
		str("logging_debug_format_suffix", "%(funcName)s %(pathname)s:%(lineno)d", "end of a debug line", fixed),
		str("logging_exception_prefix", "%(asctime)s.%(msecs)03d %(process)d ERROR %(name)s %(instance)s", "start of an exception line", fixed),
		str("logging_user_identity_format", "%(user)s %(project)s %(domain)s %(system_scope)s %(user_domain)s %(project_domain)s",
			"form of the user in a log line", fixed),
		str("instance_format", "[instance: %(uuid)s] ", "form of an instance in a log line", fixed),
		str("instance_uuid_format", "[instance: %(uuid)s] ", "form of an instance in a log line", fixed),
		{Option: config.Option{Name: "default_log_levels", Type: config.List{}, Default: defaultLogLevels,
			Help: "level per Python logger"}, support: NoEffect, why: python},
		{Option: config.Option{Name: "publish_errors", Type: config.Bool{}, Default: false,
			Help: "send errors as notifications"},
			support: NoEffect, why: "Patchbay sends no notifications",
			advise: adviseTrue("asks for error notifications, which Patchbay does not send")},
		num("rate_limit_interval", 0, "seconds over which log lines are counted", "Patchbay logs changes, not work, and does not limit itself"),
		num("rate_limit_burst", 0, "log lines allowed per interval", "Patchbay logs changes, not work, and does not limit itself"),
		str("rate_limit_except_level", "CRITICAL", "level that is never limited", "Patchbay logs changes, not work, and does not limit itself"),
	}
}

const defaultLogLevels = "amqp=WARN,amqplib=WARN,boto=WARN,qpid=WARN,sqlalchemy=WARN,suds=INFO,oslo.messaging=INFO," +
	"oslo_messaging=INFO,iso8601=WARN,requests.packages.urllib3.connectionpool=WARN,urllib3.connectionpool=WARN," +
	"websocket=WARN,requests.packages.urllib3.util.retry=WARN,urllib3.util.retry=WARN,keystonemiddleware=WARN," +
	"routes.middleware=WARN,stevedore=WARN,taskflow=WARN,keystoneauth=WARN,oslo.cache=INFO,oslo_policy=INFO," +
	"dogpile.core.dogpile=INFO"
