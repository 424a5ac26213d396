// SPDX-License-Identifier: Apache-2.0

package qos

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/world"
)

// Explain implements extension.Explainer.
func (q *QoS) Explain(o world.Object) []string {
	id, ok := world.PortID(o)
	if !ok {
		return nil
	}
	p, have := q.w.Port(id), q.ports[id]
	rules, known, waiting := q.rules(id)
	var out []string
	if known && have.has != "" {
		whose := "its network's"
		switch {
		case have.has != have.wants:
			whose = "which it had before"
		case p.Details != nil && p.Details.QosPolicyID == have.has:
			whose = "the port's"
		}
		var does []string
		for i := range rules {
			does = append(does, q.says(id, &rules[i]))
		}
		if len(does) == 0 {
			does = []string{"no rules"}
		}
		out = append(out, fmt.Sprintf("qos: policy %s, %s: %s", q.called(have.has), whose, strings.Join(does, "; ")))
	}
	if waiting != "" {
		out = append(out, fmt.Sprintf("qos: waits for the rules of policy %s", q.called(waiting)))
	}
	return out
}

func (q *QoS) called(id string) string {
	if p := q.policies[id]; p != nil && p.label != "" {
		return p.label + " (" + id + ")"
	}
	return id
}

// byMeter names the meter of a limit.
func byMeter(id uint32) string {
	if id != 0 {
		return fmt.Sprintf(" by meter %d", id)
	}
	return ""
}

// says is a rule in words.
func (q *QoS) says(port string, r *neutron.QosRule) string {
	way := "from it"
	if r.Direction == ingress {
		way = "to it"
	}
	switch r.Kind {
	case bandwidthLimit:
		return fmt.Sprintf("at most %d kbit/s %s", r.MaxKbps, way) + byMeter(q.meters[meterKey{port, bits, cmp.Or(r.Direction, egress)}])
	case packetRateLimit:
		text := fmt.Sprintf("at most %d packets/s %s", r.MaxKpps*si, way)
		if most, ok := q.w.MaxMeters[q.w.Config.IntegrationBridge]; ok && most == 0 {
			text += ", not enforced because the switch has no meters"
		}
		return text + byMeter(q.meters[meterKey{port, packets, r.Direction}])
	case dscpMarking:
		if r.DSCPMark != nil {
			return fmt.Sprintf("what it sends is marked with DSCP %d", *r.DSCPMark)
		}
	case minimumBandwidth:
		if r.Direction == ingress {
			return fmt.Sprintf("at least %d kbit/s to it, which only placement looks at", r.MinKbps)
		}
		text := fmt.Sprintf("at least %d kbit/s from it on the uplinks", r.MinKbps)
		if !onUplinks(q.w, port) {
			text += ", not enforced because its network is on none of them"
		}
		return text
	case minimumRate:
		return fmt.Sprintf("at least %d packets/s, which only placement looks at", r.MinKpps*si)
	}
	return r.Kind + ", which is not supported"
}
