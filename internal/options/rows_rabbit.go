// SPDX-License-Identifier: Apache-2.0

package options

import (
	"crypto/fips140"
	"fmt"

	"github.com/patchbay-sdn/patchbay/oslo/config"
)

// groupRabbit is also the group whose options a transport URL may override.
const groupRabbit = "oslo_messaging_rabbit"

func rabbitRows(me identity) []row {
	return append(rabbitConnectionRows(), rabbitQueueRows(me)...)
}

// Helpers for rows of this group.
func rabbit(name string, t config.Type, def any, help string, field func(*Options) any) row {
	return row{Option: config.Option{Group: groupRabbit, Name: name, Type: t, Default: def, Help: help}, field: field}
}

func alias(r row, names ...config.Name) row { r.Deprecated = names; return r }

// movedFromTop marks an option that once stood in [DEFAULT] under the same name.
func movedFromTop(r row) row { return alias(r, config.Name{Group: "DEFAULT"}) }

func rabbitConnectionRows() []row {
	onePool := "Patchbay has one connection to the broker; there is no pool"
	text, flag, num := config.String{}, config.Bool{}, config.Int{}
	return []row{
		alias(rabbit("ssl", flag, false, "connect with TLS", func(o *Options) any { return &o.Rabbit.TLS }),
			config.Name{Option: "rabbit_use_ssl"}),
		withReason(alias(rabbit("ssl_version", text, "", "lowest TLS version: TLSv1, TLSv1_1, TLSv1_2; SSLv23 or empty: any that is safe",
			func(o *Options) any { return &o.Rabbit.TLSVersion }), config.Name{Option: "kombu_ssl_version"}),
			"SSL 2 and 3 are not spoken", refuseSSLVersion),
		alias(rabbit("ssl_key_file", text, "", "private key of this client", func(o *Options) any { return &o.Rabbit.TLSKeyFile }),
			config.Name{Option: "kombu_ssl_keyfile"}),
		alias(rabbit("ssl_cert_file", text, "", "certificate of this client", func(o *Options) any { return &o.Rabbit.TLSCertFile }),
			config.Name{Option: "kombu_ssl_certfile"}),
		alias(rabbit("ssl_ca_file", text, "", "authority that signed the broker's certificate; when set, the certificate is verified",
			func(o *Options) any { return &o.Rabbit.TLSCAFile }), config.Name{Option: "kombu_ssl_ca_certs"}),
		since("21 with Debian's updates, and later", rabbit("ssl_enforce_hostname_verification", flag, false,
			"the broker's certificate must bear its host name", func(o *Options) any { return &o.Rabbit.TLSVerifyHostname })),
		advised(rabbit("ssl_enforce_fips_mode", flag, false, "require FIPS mode", nil), "Go's FIPS mode is set by the environment: GODEBUG=fips140=on",
			func(v config.Value) string {
				if !v.Bool() || fips140.Enabled() {
					return ""
				}
				return "asks for FIPS mode, which is off: start the agent with GODEBUG=fips140=on in its environment"
			}),
		noEffect(rabbit("heartbeat_in_pthread", flag, false, "heartbeats in a thread of their own", nil),
			"heartbeats never wait for anything else in Patchbay"),
		movedFromTop(rabbit("kombu_reconnect_delay", config.Float{Min: config.Limit(0.0), Max: config.Limit(4.5)}, 1.0,
			"seconds to wait after a connection was cancelled by the broker", func(o *Options) any { return &o.Rabbit.ReconnectDelay })),
		since("24 and later", rabbit("kombu_reconnect_splay", config.Float{Min: config.Limit(0.0)}, 0.0,
			"random seconds added to kombu_reconnect_delay", func(o *Options) any { return &o.Rabbit.ReconnectSplay })),
		withReason(rabbit("kombu_compression", text, nil, "compression of what is sent: gzip", func(o *Options) any { return &o.Rabbit.Compression }),
			"gzip only", refuseCompression),
		alias(rabbit("kombu_missing_consumer_retry_timeout", num, 60, "seconds for which a reply waits for its consumer to come back",
			func(o *Options) any { return &o.Rabbit.MissingConsumerRetry }), config.Name{Option: "kombu_reconnect_timeout"}),
		rabbit("kombu_failover_strategy", config.String{Choices: []string{"round-robin", "shuffle"}}, "round-robin",
			"order in which brokers are tried", func(o *Options) any { return &o.Rabbit.FailoverStrategy }),
		withReason(movedFromTop(rabbit("rabbit_login_method", config.String{Choices: []string{"PLAIN", "AMQPLAIN", "EXTERNAL", "RABBIT-CR-DEMO"}},
			"AMQPLAIN", "how to log in", func(o *Options) any { return &o.Rabbit.LoginMethod })),
			"RABBIT-CR-DEMO, a demonstration, is missing", func(v config.Value) []string {
				if v.Text() == "RABBIT-CR-DEMO" {
					return []string{"asks for a login method that RabbitMQ has for demonstration; use AMQPLAIN, PLAIN or EXTERNAL"}
				}
				return nil
			}),
		rabbit("rabbit_retry_interval", num, 1, "seconds before a lost connection is tried again", func(o *Options) any { return &o.Rabbit.RetryInterval }),
		movedFromTop(rabbit("rabbit_retry_backoff", num, 2, "seconds added to that after each failure", func(o *Options) any { return &o.Rabbit.RetryBackoff })),
		rabbit("rabbit_interval_max", num, 30, "its greatest value in seconds", func(o *Options) any { return &o.Rabbit.IntervalMax }),
		rabbit("heartbeat_timeout_threshold", num, 60, "seconds of silence after which the connection is dead; 0: never",
			func(o *Options) any { return &o.Rabbit.HeartbeatThreshold }),
		noEffect(rabbit("heartbeat_rate", num, 2, "heartbeats within that time", func(o *Options) any { return &o.Rabbit.HeartbeatRate }),
			"the connection sends two within that time, and ends after it without a word of the broker"),
		noEffect(movedFromTop(rabbit("rpc_conn_pool_size", config.Int{Min: config.Limit[int64](1)}, 30, "connections at most", nil)), onePool),
		noEffect(rabbit("conn_pool_min_size", num, 2, "connections at least", nil), onePool),
		noEffect(rabbit("conn_pool_ttl", num, 1200, "seconds after which an idle connection is closed", nil), onePool),
	}
}

func rabbitQueueRows(me identity) []row {
	flag, num := config.Bool{}, config.Int{}
	mandatory := rabbit("direct_mandatory_flag", flag, true, "notice when the consumer of a reply is gone", nil)
	mandatory.Removal = "it cannot be switched off any more"
	return []row{
		rabbit("amqp_durable_queues", flag, false, "queues survive a restart of the broker; must equal the server's setting",
			func(o *Options) any { return &o.Rabbit.DurableQueues }),
		movedFromTop(rabbit("amqp_auto_delete", flag, false, "queues vanish with their last consumer; must equal the server's setting",
			func(o *Options) any { return &o.Rabbit.AutoDelete })),
		movedFromTop(rabbit("rabbit_ha_queues", flag, false, "ask old brokers for mirrored queues; not together with rabbit_quorum_queue",
			func(o *Options) any { return &o.Rabbit.HAQueues })),
		rabbit("rabbit_quorum_queue", flag, false, "quorum queues", func(o *Options) any { return &o.Rabbit.QuorumQueue }),
		since("24 and later", rabbit("rabbit_transient_quorum_queue", flag, false, "quorum queues for replies and fanouts too",
			func(o *Options) any { return &o.Rabbit.TransientQuorumQueue })),
		rabbit("rabbit_quorum_delivery_limit", num, 0, "deliveries before a quorum queue drops a message; 0: no limit",
			func(o *Options) any { return &o.Rabbit.QuorumDeliveryLimit }),
		alias(rabbit("rabbit_quorum_max_memory_length", num, 0, "messages that a quorum queue holds in memory; 0: no limit",
			func(o *Options) any { return &o.Rabbit.QuorumMaxMemoryLength }), config.Name{Option: "rabbit_quroum_max_memory_length"}),
		alias(rabbit("rabbit_quorum_max_memory_bytes", num, 0, "bytes that a quorum queue holds in memory; 0: no limit",
			func(o *Options) any { return &o.Rabbit.QuorumMaxMemoryBytes }), config.Name{Option: "rabbit_quroum_max_memory_bytes"}),
		rabbit("rabbit_transient_queues_ttl", config.Int{Min: config.Limit[int64](0)}, 1800,
			"seconds after which an unused reply or fanout queue expires; 0 (24 and later): never",
			func(o *Options) any { return &o.Rabbit.TransientQueuesTTL }),
		rabbit("rabbit_qos_prefetch_count", num, 0, "messages in flight before one is acknowledged; 0: no limit",
			func(o *Options) any { return &o.Rabbit.PrefetchCount }),
		since("24 and later", rabbit("rabbit_stream_fanout", flag, false, "streams instead of fanout queues",
			func(o *Options) any { return &o.Rabbit.StreamFanout })),
		since("24 and later", rabbit("use_queue_manager", flag, false, "stable names for queues", func(o *Options) any { return &o.Rabbit.UseQueueManager })),
		since("24 and later", rabbit("hostname", config.String{}, me.hostname, "host name in those names", func(o *Options) any { return &o.Rabbit.Hostname })),
		since("24 and later", rabbit("processname", config.String{}, me.program, "program name in those names",
			func(o *Options) any { return &o.Rabbit.ProcessName })),
		noEffect(mandatory, "Patchbay always notices"),
		noEffect(rabbit("enable_cancel_on_failover", flag, false, "be told when a mirrored queue moves", nil),
			"Patchbay consumes again whenever the broker cancels a consumer"),
	}
}

func refuseSSLVersion(v config.Value) []string {
	switch v.Text() {
	case "", "SSLv23", "TLSv1", "TLSv1_1", "TLSv1_2":
		return nil
	case "SSLv2", "SSLv3":
		return []string{"asks for a protocol that is broken; use TLSv1_2, or leave it out"}
	}
	return []string{"is no TLS version that Patchbay knows; use TLSv1_2, or leave it out"}
}

func refuseCompression(v config.Value) []string {
	switch v.Text() {
	case "", "gzip":
		return nil
	}
	return []string{fmt.Sprintf("asks for %s, but Patchbay compresses with gzip only", v.Text())}
}
