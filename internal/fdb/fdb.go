// SPDX-License-Identifier: Apache-2.0

// Package fdb is the extension for hosts whose NICs are shared by ports of Open vSwitch and by virtual functions (SR-IOV): it has the forwarding
// tables of these NICs list the addresses of ports, so that frames of a virtual function for them reach the switch and not the wire.
//
// Its inputs are ports of the world, the devices of each physical network ([FDB] shared_physical_device_mappings), and what the tables have. Its
// output is one job at a time: tables to read, or entries that differ. It wants no flows and no rows.
//
// An entry is the extension's once a port has wanted it: from then on it is remembered, also over a restart, and goes when no port wants it. Other
// entries stay.
package fdb

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/forwarding"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/pipeline"
	"github.com/patchbay-sdn/patchbay/internal/world"
	"github.com/patchbay-sdn/patchbay/openflow"
)

// checkPause separates two comparisons when nothing has changed: a driver may have emptied a table without a change of the link.
const checkPause = 2 * time.Minute

// FDB is the extension. It belongs to the agent's loop.
type FDB struct {
	w       *world.World
	devices map[string][]string // of physical networks

	ports map[string][]forwarding.Entry // that they want, sorted
	owned map[forwarding.Entry]bool     // by what ports want or have wanted
	// have is what the tables have; nil: they have to be read.
	have    forwarding.Tables
	differs forwarding.Changes // what makes the tables as wanted; of no use while they have to be read
	checkAt time.Time
}

// New returns the maker of the extension. Devices are those of each physical network.
func New(devices map[string][]string) extension.New {
	return func(w *world.World) extension.Extension {
		return &FDB{w: w, devices: devices, ports: map[string][]forwarding.Entry{}, owned: map[forwarding.Entry]bool{}}
	}
}

// Name implements extension.Extension.
func (*FDB) Name() string { return "fdb" }

// Resolve implements extension.Extension.
func (f *FDB) Resolve(changed []world.Object) []world.Object {
	other := false
	for _, o := range changed {
		id, ok := world.PortID(o)
		if !ok {
			continue
		}
		wants := f.wants(f.w.Port(id))
		if slices.Equal(wants, f.ports[id]) {
			continue
		}
		if other = true; len(wants) > 0 {
			f.ports[id] = wants
		} else {
			delete(f.ports, id)
		}
		for _, e := range wants {
			f.owned[e] = true
		}
	}
	if other {
		f.differs = f.compare()
	}
	return nil
}

// Compile implements extension.Extension. It adds nothing.
func (*FDB) Compile(world.Object, *pipeline.Want) {}

// wants returns the entries of a port: its addresses on every device of its physical network.
func (f *FDB) wants(p *world.Port) []forwarding.Entry {
	if p == nil || p.Details == nil || p.Wiring.State != world.Wired && p.Wiring.State != world.Down || !served(p.Details.DeviceOwner) {
		return nil
	}
	s := f.w.Segments.Get(p.Wiring.Segment)
	if s == nil || s.Physnet == "" {
		return nil
	}
	macs := []neutron.MAC{p.Details.MAC}
	for _, pair := range p.Details.AllowedAddressPairs {
		macs = append(macs, pair.MAC)
	}
	var out []forwarding.Entry
	for _, device := range f.devices[s.Physnet] {
		for _, m := range macs {
			if forwarding.Unicast(openflow.MAC(m)) {
				out = append(out, forwarding.Entry{Device: device, MAC: openflow.MAC(m)})
			}
		}
	}
	slices.SortFunc(out, forwarding.Entry.Compare)
	return slices.Compact(out)
}

// served returns whether ports of an owner get entries: instances, and what answers them on the host.
func served(owner string) bool {
	return strings.HasPrefix(owner, "compute:") || strings.HasPrefix(owner, "network:router_interface") || strings.HasPrefix(owner, "network:dhcp")
}

// wanted returns the entries that ports want.
func (f *FDB) wanted() map[forwarding.Entry]bool {
	out := map[forwarding.Entry]bool{}
	for _, entries := range f.ports {
		for _, e := range entries {
			out[e] = true
		}
	}
	return out
}

// Devices implements extension.Forwarder.
func (f *FDB) Devices() []string {
	var out []string
	for _, devices := range f.devices {
		out = append(out, devices...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Forwarding implements extension.Forwarder.
func (f *FDB) Forwarding(open func() bool) (forwarding.Job, bool) {
	if f.have == nil {
		devices := f.Devices()
		for e := range f.owned { // of a device that the options do not name any more, too
			devices = append(devices, e.Device)
		}
		slices.Sort(devices)
		return forwarding.Job{Read: slices.Compact(devices)}, true
	}
	job := forwarding.Job{Change: f.differs}
	if len(job.Change.Delete) > 0 && !open() {
		job.Change.Delete = nil // who wants it may not be known yet
	}
	return job, !job.Change.Empty()
}

// compare returns what makes the tables as wanted.
func (f *FDB) compare() forwarding.Changes {
	wanted := f.wanted()
	var out forwarding.Changes
	for _, e := range slices.SortedFunc(maps.Keys(wanted), forwarding.Entry.Compare) {
		if _, exists := f.have[e.Device]; exists && !f.have.Has(e) {
			out.Add = append(out.Add, e)
		}
	}
	for _, e := range slices.SortedFunc(maps.Keys(f.owned), forwarding.Entry.Compare) {
		if !wanted[e] && f.have.Has(e) {
			out.Delete = append(out.Delete, e)
		}
	}
	return out
}

// OnForwarding implements extension.Forwarder.
func (f *FDB) OnForwarding(o forwarding.Outcome, now time.Time) {
	switch {
	case o.Tables != nil:
		f.have, f.checkAt = o.Tables, now.Add(checkPause)
		wanted := f.wanted()
		maps.DeleteFunc(f.owned, func(e forwarding.Entry, _ bool) bool { return !wanted[e] && !f.have.Has(e) })
	case o.Changed.Empty(): // a device, which may have lost its table
		f.have = nil
	case o.Err != nil:
		f.have = nil
	default:
		wanted := f.wanted()
		for _, e := range o.Changed.Delete {
			if !wanted[e] { // else a port wants it again
				delete(f.owned, e)
			}
		}
		if f.have != nil { // else a device has changed meanwhile
			f.have = f.have.After(o.Changed)
		}
	}
	f.differs = f.compare()
}

// Deadline implements extension.Timed.
func (f *FDB) Deadline() time.Time { return f.checkAt }

// OnTime implements extension.Timed.
func (f *FDB) OnTime(now time.Time) { f.have, f.checkAt = nil, now.Add(checkPause) }

// Save implements extension.Saver: the entries that are the extension's, by device.
func (f *FDB) Save() any {
	out := map[string][]neutron.MAC{}
	for _, e := range slices.SortedFunc(maps.Keys(f.owned), forwarding.Entry.Compare) {
		out[e.Device] = append(out[e.Device], neutron.MAC(e.MAC))
	}
	return out
}

// Load implements extension.Saver.
func (f *FDB) Load(data json.RawMessage) error {
	var saved map[string][]neutron.MAC
	if err := json.Unmarshal(data, &saved); err != nil {
		return err
	}
	for device, macs := range saved {
		for _, m := range macs {
			f.owned[forwarding.Entry{Device: device, MAC: openflow.MAC(m)}] = true
		}
	}
	return nil
}

// Explain implements extension.Explainer.
func (f *FDB) Explain(o world.Object) []string {
	id, ok := world.PortID(o)
	if !ok {
		return nil
	}
	var out []string
	for _, e := range f.ports[id] {
		_, exists := f.have[e.Device]
		switch {
		case f.have != nil && !exists:
			out = append(out, fmt.Sprintf("fdb: %s waits for device %s, which does not exist", e.MAC, e.Device))
		case f.have.Has(e):
			out = append(out, fmt.Sprintf("fdb: %s is in the forwarding table of %s", e.MAC, e.Device))
		default:
			out = append(out, fmt.Sprintf("fdb: %s is not in the forwarding table of %s yet", e.MAC, e.Device))
		}
	}
	return out
}
