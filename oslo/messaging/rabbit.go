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

// Set changes one option given as text under its oslo.messaging name, as the query of a transport URL does. An unknown
// name or a bad value is an error.
func (r *Rabbit) Set(name, value string) error {
	seconds := func(d *time.Duration) error {
		f, err := strconv.ParseFloat(value, 64)
		if err != nil || f < 0 || f > 1e9 {
			return badValue(name, "a number of seconds")
		}
		*d = time.Duration(f * float64(time.Second))
		return nil
	}
	boolean := func(b *bool) error {
		switch strings.ToLower(value) {
		case "true", "1", "on", "yes":
			*b = true
		case "false", "0", "off", "no":
			*b = false
		default:
			return badValue(name, "a boolean")
		}
		return nil
	}
	number := func(n *int) error {
		v, err := strconv.Atoi(value)
		if err != nil || v < 0 {
			return badValue(name, "a whole number, 0 or more")
		}
		*n = v
		return nil
	}
	text := func(s *string) error { *s = value; return nil }
	ignored := func(any) error { return nil }

	switch name {
	case "amqp_durable_queues":
		return boolean(&r.DurableQueues)
	case "amqp_auto_delete":
		return boolean(&r.AutoDelete)
	case "ssl", "rabbit_use_ssl":
		return boolean(&r.TLS)
	case "ssl_version", "kombu_ssl_version":
		return text(&r.TLSVersion)
	case "ssl_key_file", "kombu_ssl_keyfile":
		return text(&r.TLSKeyFile)
	case "ssl_cert_file", "kombu_ssl_certfile":
		return text(&r.TLSCertFile)
	case "ssl_ca_file", "kombu_ssl_ca_certs":
		return text(&r.TLSCAFile)
	case "ssl_enforce_hostname_verification":
		return boolean(&r.TLSVerifyHostname)
	case "ssl_enforce_fips_mode":
		return boolean(&r.TLSEnforceFIPSMode)
	case "kombu_reconnect_delay":
		return seconds(&r.ReconnectDelay)
	case "kombu_reconnect_splay":
		return seconds(&r.ReconnectSplay)
	case "kombu_compression":
		return text(&r.Compression)
	case "kombu_missing_consumer_retry_timeout", "kombu_reconnect_timeout":
		return seconds(&r.MissingConsumerRetry)
	case "kombu_failover_strategy":
		return text(&r.FailoverStrategy)
	case "rabbit_login_method":
		return text(&r.LoginMethod)
	case "rabbit_retry_interval":
		return seconds(&r.RetryInterval)
	case "rabbit_retry_backoff":
		return seconds(&r.RetryBackoff)
	case "rabbit_interval_max":
		return seconds(&r.IntervalMax)
	case "rabbit_ha_queues":
		return boolean(&r.HAQueues)
	case "rabbit_quorum_queue":
		return boolean(&r.QuorumQueue)
	case "rabbit_transient_quorum_queue":
		return boolean(&r.TransientQuorumQueue)
	case "rabbit_quorum_delivery_limit":
		return number(&r.QuorumDeliveryLimit)
	case "rabbit_quorum_max_memory_length", "rabbit_quroum_max_memory_length":
		return number(&r.QuorumMaxMemoryLength)
	case "rabbit_quorum_max_memory_bytes", "rabbit_quroum_max_memory_bytes":
		return number(&r.QuorumMaxMemoryBytes)
	case "rabbit_transient_queues_ttl":
		return seconds(&r.TransientQueuesTTL)
	case "rabbit_qos_prefetch_count":
		return number(&r.PrefetchCount)
	case "heartbeat_timeout_threshold":
		return seconds(&r.HeartbeatThreshold)
	case "heartbeat_rate":
		return number(&r.HeartbeatRate)
	case "direct_mandatory_flag":
		return boolean(&r.DirectMandatory)
	case "enable_cancel_on_failover":
		return boolean(&r.EnableCancelOnFailover)
	case "use_queue_manager":
		return boolean(&r.UseQueueManager)
	case "hostname":
		return text(&r.Hostname)
	case "processname":
		return text(&r.ProcessName)
	case "rabbit_stream_fanout":
		return boolean(&r.StreamFanout)
	case "rpc_conn_pool_size", "conn_pool_min_size", "conn_pool_ttl", "heartbeat_in_pthread":
		return ignored(nil)
	}
	return fmt.Errorf("unknown option %q of [oslo_messaging_rabbit]", name)
}

// badValue does not quote the value: it may come from a URL that holds a password.
func badValue(name, want string) error { return fmt.Errorf("option %s is not %s", name, want) }

// validate finds combinations that oslo.messaging refuses too, and what this package cannot do.
func (r *Rabbit) validate() error {
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
