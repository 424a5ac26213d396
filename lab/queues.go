// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"slices"
	"strings"
)

// EnvQueues is the environment variable that says how queues of a new lab are made: words of [QueueSets], with commas between.
const EnvQueues = "PATCHBAY_LAB_QUEUES"

// denied has the broker refuse transient queues, as RabbitMQ 4.3 does by default. Debian's does not.
const denied = "denied"

// queueSets are options of [oslo_messaging_rabbit], for server and agents alike, by the word for them.
var queueSets = map[string][]string{
	"quorum":           {"rabbit_quorum_queue = true"},
	"transient-quorum": {"rabbit_quorum_queue = true", "rabbit_transient_quorum_queue = true"},
	"streams":          {"rabbit_quorum_queue = true", "rabbit_transient_quorum_queue = true", "rabbit_stream_fanout = true", "rabbit_qos_prefetch_count = 1"},
	// kolla is what kolla-ansible sets.
	"kolla": {
		"rabbit_quorum_queue = true", "rabbit_transient_quorum_queue = true", "rabbit_stream_fanout = true", "rabbit_qos_prefetch_count = 1", "use_queue_manager = true",
	},
	denied: nil,
}

// QueueSets are the words that [EnvQueues] takes.
func QueueSets() []string { return []string{"quorum", "transient-quorum", "streams", "kolla", denied} }

// queues is how queues of a lab are made, as words with commas between.
type queues string

func (q queues) words() []string {
	if q == "" {
		return nil
	}
	return strings.Split(string(q), ",")
}

func (q queues) check() error {
	for _, word := range q.words() {
		if _, known := queueSets[word]; !known {
			return fmt.Errorf("%s: %q is none of %s", EnvQueues, word, strings.Join(QueueSets(), ", "))
		}
	}
	return nil
}

// options are those of [oslo_messaging_rabbit] of a program on a host. The queue manager names queues after the host, and all hosts of a lab are one machine.
func (q queues) options(host string) []string {
	var list []string
	for _, word := range q.words() {
		list = append(list, queueSets[word]...)
	}
	if len(list) > 0 {
		list = append(list, "hostname = "+host)
	}
	return list
}

// conf is what rabbitmq.conf says about them.
func (q queues) conf() string {
	if slices.Contains(q.words(), denied) {
		return "deprecated_features.permit.transient_nonexcl_queues = false\n"
	}
	return ""
}
