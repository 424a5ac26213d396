// SPDX-License-Identifier: Apache-2.0

package metadata

import (
	"fmt"

	"github.com/patchbay-sdn/patchbay/internal/world"
)

// Explain implements extension.Explainer: who answers the port's metadata requests, and as whom it asks.
func (m *Metadata) Explain(o world.Object) []string {
	id, ok := world.PortID(o)
	at := m.w.Port(id)
	if !ok || !asks(at) {
		return nil
	}
	p := m.ports[id]
	switch {
	case p == nil:
		return []string{"metadata: the port has no IPv4 address; its requests leave the port as any packet"}
	case !p.ip.IsValid():
		return []string{fmt.Sprintf("metadata: no address of [METADATA] provider_cidr %s is left for it; its requests leave the port as any packet", m.cfg.CIDR)}
	case !m.numbers.known():
		return []string{fmt.Sprintf("metadata: waits for bridge %s, its patches and %s; until the switch has them its requests leave the port as any packet", m.bridge(), Device)}
	}
	out := []string{fmt.Sprintf("metadata: requests of %s to %s port %d reach the proxy at %s as %s; Nova is asked for instance %s of project %s",
		p.client.Address, service, http, m.service.Listen(), p.ip, p.client.Instance, p.client.Project)}
	if !m.state.Listening && m.state.Reason != "" {
		out = append(out, "metadata: the proxy does not answer: "+m.state.Reason)
	}
	return out
}
