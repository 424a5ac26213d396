// SPDX-License-Identifier: Apache-2.0

package grouplog

import (
	"strings"

	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/pipeline"
	"github.com/patchbay-sdn/patchbay/internal/world"
	of "github.com/patchbay-sdn/patchbay/openflow"
)

// Compile implements extension.Extension. A port does not wait for its logs to be known.
func (l *Log) Compile(o world.Object, want *pipeline.Want) {
	id, ok := world.PortID(o)
	if !ok {
		return
	}
	p := l.filtered(id)
	if p == nil {
		return
	}
	logs := l.of(p)
	if len(logs) == 0 {
		return
	}
	meter := l.meters.ID(id)
	if meter != 0 {
		want.Meters = append(want.Meters, extension.PacketMeter(l.w.Config.IntegrationBridge, "how many packets of the port are logged", meter, l.bound))
	}
	to := func(a action) of.Action { return extension.ToAgent(name, id+" "+string(a), meter) }
	want.LogAccepted(l.w, p, groups(logs, p), to(accept))
	if len(about(logs, drop)) > 0 {
		want.LogDropped(l.w, p, to(drop))
	}
}

// Explain implements extension.Explainer.
func (l *Log) Explain(o world.Object) []string {
	id, ok := world.PortID(o)
	if !ok {
		return nil
	}
	if p := l.w.Port(id); p != nil && l.w.Config.Hybrid && l.w.Filtered(p) {
		return []string{"log: nothing is logged, because iptables filters the port; logs need firewall_driver = openvswitch"}
	}
	p := l.filtered(id)
	switch {
	case p == nil:
		return nil
	case !l.listed && len(l.logs) == 0:
		return []string{"log: waits for the server to list the logs"}
	}
	logs := l.of(p)
	var out []string
	if ids := about(logs, accept); len(ids) > 0 {
		out = append(out, "log: new connections that rules of "+list(groups(logs, p))+" allow are logged, for "+list(idsOf(ids)))
	}
	if ids := about(logs, drop); len(ids) > 0 {
		out = append(out, "log: what its filters drop is logged, for "+list(idsOf(ids)))
	}
	return out
}

func idsOf(logs []neutron.Log) []string {
	out := make([]string, len(logs))
	for i, g := range logs {
		out[i] = g.ID
	}
	return out
}

func list(ids []string) string {
	if len(ids) == 0 {
		return "no group"
	}
	return strings.Join(ids, ", ")
}
