// SPDX-License-Identifier: Apache-2.0

package extension

import (
	"strconv"
	"strings"

	"github.com/patchbay-sdn/patchbay/internal/world"
)

// PortMeters are the ids of the meters that an extension has on the integration bridge, one for each of some ports: see [PacketMeter].
type PortMeters struct {
	w       *world.World
	name    string            // of the extension
	ids     map[string]uint32 // by port
	maximum uint32            // meters of the bridge when they were last given out
	noted   map[uint32]bool   // ids of meters that are written down on ports; nil: not read since the last Forget
}

// NewPortMeters returns the meters of the extension with the name, none yet.
func NewPortMeters(w *world.World, name string) *PortMeters {
	return &PortMeters{w: w, name: name, ids: map[string]uint32{}}
}

// ID returns the id of a port's meter; 0: it has none.
func (m *PortMeters) ID(port string) uint32 { return m.ids[port] }

// Renewed returns whether the bridge has become known, or can have another number of meters than before. Then all ports are numbered anew.
func (m *PortMeters) Renewed() bool {
	before := m.maximum
	m.maximum = m.w.MaxMeters[m.w.Config.IntegrationBridge]
	return m.maximum != before
}

// Number gives the meter of a port its id, if the bridge can have one more.
func (m *PortMeters) Number(port string) {
	switch most := m.w.MaxMeters[m.w.Config.IntegrationBridge]; {
	case most == 0:
		m.Release(port)
	case m.ids[port] == 0 || m.ids[port] > most:
		m.Release(port)
		if m.noted == nil {
			m.noted = m.read()
		}
		if n := m.w.MeterIDs.Choose(m.use(port), most, func(n uint32) bool { return m.noted[n] }); n != 0 {
			m.ids[port] = n
		}
	}
}

// Release takes back the id of a port's meter.
func (m *PortMeters) Release(port string) {
	m.w.MeterIDs.Release(m.ids[port], m.use(port))
	delete(m.ids, port)
}

// Forget has the rows of ports read again for the next id: they may have changed.
func (m *PortMeters) Forget() { m.noted = nil }

func (m *PortMeters) use(port string) world.MeterUse {
	return world.MeterUse{Extension: m.name, For: port + m.name}
}

// read returns the ids of meters that are written down on ports: they belong to quality of service, of this agent or of one before.
func (m *PortMeters) read() map[uint32]bool {
	out := map[uint32]bool{}
	for p := range m.w.View.Ports() {
		for k, v := range p.OtherConfig {
			if n, err := strconv.ParseUint(v, 10, 32); err == nil && (strings.HasSuffix(k, "_ingress") || strings.HasSuffix(k, "_egress")) {
				out[uint32(n)] = true
			}
		}
	}
	return out
}
