// SPDX-License-Identifier: Apache-2.0

package messaging

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Rabbit holds the options of [oslo_messaging_rabbit]; the names are those of oslo.messaging in Go spelling, the comments
// give the original. Start from [DefaultRabbit]. Options that size the Python driver's internals (connection pool,
// heartbeat thread) are accepted by [Rabbit.Set] and have no effect.
type Rabbit struct {
	DurableQueues bool // amqp_durable_queues
	AutoDelete    bool // amqp_auto_delete

	TLS                bool   // ssl
	TLSVersion         string // ssl_version: "", TLSv1, SSLv23, TLSv1_1, TLSv1_2
	TLSKeyFile         string // ssl_key_file
	TLSCertFile        string // ssl_cert_file
	TLSCAFile          string // ssl_ca_file; without it the broker's certificate is not verified, as in Python
	TLSVerifyHostname  bool   // ssl_enforce_hostname_verification
	TLSEnforceFIPSMode bool   // ssl_enforce_fips_mode

	ReconnectDelay       time.Duration // kombu_reconnect_delay
	ReconnectSplay       time.Duration // kombu_reconnect_splay
	Compression          string        // kombu_compression: "", gzip, bz2 (bz2 is received, and sent as gzip)
	MissingConsumerRetry time.Duration // kombu_missing_consumer_retry_timeout
	FailoverStrategy     string        // kombu_failover_strategy: round-robin, shuffle
	LoginMethod          string        // rabbit_login_method: AMQPLAIN, PLAIN, EXTERNAL
	RetryInterval        time.Duration // rabbit_retry_interval
	RetryBackoff         time.Duration // rabbit_retry_backoff
	IntervalMax          time.Duration // rabbit_interval_max

	HAQueues               bool          // rabbit_ha_queues
	QuorumQueue            bool          // rabbit_quorum_queue
	TransientQuorumQueue   bool          // rabbit_transient_quorum_queue
	QuorumDeliveryLimit    int           // rabbit_quorum_delivery_limit
	QuorumMaxMemoryLength  int           // rabbit_quorum_max_memory_length, rabbit_quroum_max_memory_length
	QuorumMaxMemoryBytes   int           // rabbit_quorum_max_memory_bytes, rabbit_quroum_max_memory_bytes
	TransientQueuesTTL     time.Duration // rabbit_transient_queues_ttl
	PrefetchCount          int           // rabbit_qos_prefetch_count; 0 lets this package choose
	HeartbeatThreshold     time.Duration // heartbeat_timeout_threshold
	HeartbeatRate          int           // heartbeat_rate; no effect
	DirectMandatory        bool          // direct_mandatory_flag
	EnableCancelOnFailover bool          // enable_cancel_on_failover

	UseQueueManager bool   // use_queue_manager
	Hostname        string // hostname; "" means Config.Host
	ProcessName     string // processname; "" means Config.Program
	StreamFanout    bool   // rabbit_stream_fanout
}

// DefaultRabbit gives oslo.messaging's defaults, with one exception: host names are verified, as in the newest release.
func DefaultRabbit() Rabbit {
	return Rabbit{
		TLSVerifyHostname:    true,
		ReconnectDelay:       time.Second,
		MissingConsumerRetry: time.Minute,
		FailoverStrategy:     "round-robin",
		LoginMethod:          "AMQPLAIN",
		RetryInterval:        time.Second,
		RetryBackoff:         2 * time.Second,
		IntervalMax:          30 * time.Second,
		TransientQueuesTTL:   30 * time.Minute,
		HeartbeatThreshold:   time.Minute,
		HeartbeatRate:        3,
		DirectMandatory:      true,
	}
}

// ignored stands for an option that means nothing here.
type ignored struct{}

// options returns where options are kept, by their oslo.messaging names.
func (r *Rabbit) options() map[string]any {
	return map[string]any{
		"amqp_durable_queues":                  &r.DurableQueues,
		"amqp_auto_delete":                     &r.AutoDelete,
		"ssl":                                  &r.TLS,
		"rabbit_use_ssl":                       &r.TLS,
		"ssl_version":                          &r.TLSVersion,
		"kombu_ssl_version":                    &r.TLSVersion,
		"ssl_key_file":                         &r.TLSKeyFile,
		"kombu_ssl_keyfile":                    &r.TLSKeyFile,
		"ssl_cert_file":                        &r.TLSCertFile,
		"kombu_ssl_certfile":                   &r.TLSCertFile,
		"ssl_ca_file":                          &r.TLSCAFile,
		"kombu_ssl_ca_certs":                   &r.TLSCAFile,
		"ssl_enforce_hostname_verification":    &r.TLSVerifyHostname,
		"ssl_enforce_fips_mode":                &r.TLSEnforceFIPSMode,
		"kombu_reconnect_delay":                &r.ReconnectDelay,
		"kombu_reconnect_splay":                &r.ReconnectSplay,
		"kombu_compression":                    &r.Compression,
		"kombu_missing_consumer_retry_timeout": &r.MissingConsumerRetry,
		"kombu_reconnect_timeout":              &r.MissingConsumerRetry,
		"kombu_failover_strategy":              &r.FailoverStrategy,
		"rabbit_login_method":                  &r.LoginMethod,
		"rabbit_retry_interval":                &r.RetryInterval,
		"rabbit_retry_backoff":                 &r.RetryBackoff,
		"rabbit_interval_max":                  &r.IntervalMax,
		"rabbit_ha_queues":                     &r.HAQueues,
		"rabbit_quorum_queue":                  &r.QuorumQueue,
		"rabbit_transient_quorum_queue":        &r.TransientQuorumQueue,
		"rabbit_quorum_delivery_limit":         &r.QuorumDeliveryLimit,
		"rabbit_quorum_max_memory_length":      &r.QuorumMaxMemoryLength,
		"rabbit_quroum_max_memory_length":      &r.QuorumMaxMemoryLength,
		"rabbit_quorum_max_memory_bytes":       &r.QuorumMaxMemoryBytes,
		"rabbit_quroum_max_memory_bytes":       &r.QuorumMaxMemoryBytes,
		"rabbit_transient_queues_ttl":          &r.TransientQueuesTTL,
		"rabbit_qos_prefetch_count":            &r.PrefetchCount,
		"heartbeat_timeout_threshold":          &r.HeartbeatThreshold,
		"heartbeat_rate":                       &r.HeartbeatRate,
		"direct_mandatory_flag":                &r.DirectMandatory,
		"enable_cancel_on_failover":            &r.EnableCancelOnFailover,
		"use_queue_manager":                    &r.UseQueueManager,
		"hostname":                             &r.Hostname,
		"processname":                          &r.ProcessName,
		"rabbit_stream_fanout":                 &r.StreamFanout,
		"rpc_conn_pool_size":                   ignored{},
		"conn_pool_min_size":                   ignored{},
		"conn_pool_ttl":                        ignored{},
		"heartbeat_in_pthread":                 ignored{},
	}
}

// Set changes one option given as text under its oslo.messaging name, as the query of a transport URL does. An unknown
// name or a bad value is an error.
func (r *Rabbit) Set(name, value string) error {
	switch to := r.options()[name].(type) {
	case *time.Duration:
		f, err := strconv.ParseFloat(value, 64)
		if err != nil || f < 0 || f > 1e9 {
			return badValue(name, "a number of seconds")
		}
		*to = time.Duration(f * float64(time.Second))
	case *bool:
		switch strings.ToLower(value) {
		case "true", "1", "on", "yes":
			*to = true
		case "false", "0", "off", "no":
			*to = false
		default:
			return badValue(name, "a boolean")
		}
	case *int:
		v, err := strconv.Atoi(value)
		if err != nil || v < 0 {
			return badValue(name, "a whole number, 0 or more")
		}
		*to = v
	case *string:
		*to = value
	case ignored:
	default:
		return fmt.Errorf("unknown option %q of [oslo_messaging_rabbit]", name)
	}
	return nil
}

// badValue does not quote the value: it may come from a URL that holds a password.
func badValue(name, want string) error { return fmt.Errorf("option %s is not %s", name, want) }

// Validate finds combinations that oslo.messaging refuses too, and what this package cannot do: [Open] refuses them. The error begins with the name of an option.
func (r *Rabbit) Validate() error {
	switch {
	case r.HAQueues && (r.QuorumQueue || r.TransientQuorumQueue):
		return errors.New("rabbit_ha_queues excludes rabbit_quorum_queue and rabbit_transient_quorum_queue: a queue is mirrored or quorum, not both")
	case r.StreamFanout && !r.TransientQuorumQueue:
		return errors.New("rabbit_stream_fanout needs rabbit_transient_quorum_queue")
	case r.StreamFanout && r.PrefetchCount == 0:
		return errors.New("rabbit_stream_fanout needs rabbit_qos_prefetch_count")
	}
	switch r.FailoverStrategy {
	case "", "round-robin", "shuffle":
	default:
		return fmt.Errorf("kombu_failover_strategy %q is neither round-robin nor shuffle", r.FailoverStrategy)
	}
	switch r.Compression {
	case "", "gzip", "bz2":
	default:
		return fmt.Errorf("kombu_compression %q is neither gzip nor bz2", r.Compression)
	}
	switch strings.ToUpper(r.LoginMethod) {
	case "", "AMQPLAIN", "PLAIN", "EXTERNAL":
	default:
		return fmt.Errorf("rabbit_login_method %q is not supported: use AMQPLAIN, PLAIN or EXTERNAL", r.LoginMethod)
	}
	return nil
}
