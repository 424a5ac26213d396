// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"slices"
	"strings"
	"testing"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// TestHelmProbe: openstack-helm's liveness probe calls a method that no agent has, on this host's queue of a topic that every agent
// listens to, and takes the error that says so for a sign of life. Anything else restarts the container.
func TestHelmProbe(t *testing.T) {
	const topic, method = "q-agent-notifier-tunnel-update", "pod_health_probe_method_ignore_errors"
	if topics := neutron.Topics(nil, false); !slices.Contains(topics, topic) {
		t.Errorf("no queue for the probe among %q", topics)
	}
	reply, err := (&Agent{}).take(t.Context(), &messaging.Message{Topic: topic, Method: method, Call: true})
	if reply != nil || err == nil || !strings.Contains(err.Error(), "Endpoint does not support RPC method "+method) {
		t.Errorf("%v, %v", reply, err)
	}
}
