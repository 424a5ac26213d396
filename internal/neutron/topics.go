// SPDX-License-Identifier: Apache-2.0

package neutron

import "slices"

// Topics that neutron-server listens on.
const (
	topicPlugin  = "q-plugin"
	topicReports = "q-reports-plugin"
	topicTrunk   = "trunk"
	topicTap     = "n-taas-plugin"
)

// Topics that agents listen on; versioned objects have one each, see [Versions.Topic].
const (
	TopicTunnelUpdate = "q-agent-notifier-tunnel-update"
	TopicTunnelDelete = "q-agent-notifier-tunnel-delete"
	TopicDVRUpdate    = "q-agent-notifier-dvr-update"
	TopicL2Population = "q-agent-notifier-l2population-update"
)

// Topics lists what an agent consumes: tunnel and DVR news, forwarding entries when l2population is on, and the
// objects of the kinds given in the versions that were negotiated. A kind the server does not know is left out.
func Topics(v Versions, l2population bool, kinds ...Kind) []string {
	topics := []string{TopicTunnelUpdate, TopicTunnelDelete, TopicDVRUpdate}
	if l2population {
		topics = append(topics, TopicL2Population)
	}
	for _, k := range kinds {
		if t, ok := v.Topic(k); ok {
			topics = append(topics, t)
		}
	}
	return topics
}

// DirectedTopics lists those of [Topics] of which an agent needs only what is sent to this host. With l2population forwarding entries say which tunnel endpoints
// there are, so an endpoint that is announced to all changes nothing. Every agent announces its own when it starts: N agents would get N times N messages. Health checks call the
// agent of a host by this topic.
func DirectedTopics(l2population bool) []string {
	if l2population {
		return []string{TopicTunnelUpdate}
	}
	return nil
}

// PossibleTopics lists [Topics] for a server that may be of several releases, as [Negotiate] names them. A server pushes objects in its own versions and in those
// that agents have reported. A process of it reads what was reported once a minute, so that a new agent can rely on the server's own versions only: the
// topics of all that these can be are listed, too. What comes in two versions comes twice.
func PossibleTopics(releases string, v Versions, l2population bool, kinds ...Kind) []string {
	topics := Topics(v, l2population, kinds...)
	for _, r := range parseSpan(releases) {
		for _, k := range kinds {
			if t, ok := r.versions.Topic(k); ok && compareVersions(v[k], r.versions[k]) < 0 && !slices.Contains(topics, t) {
				topics = append(topics, t)
			}
		}
	}
	return topics
}
