// SPDX-License-Identifier: Apache-2.0

// Package fake has the peers of an agent in memory, for tests: they behave as the real ones do, fail on demand, and need neither
// sockets nor time. Only tests import it, and the fleet of the lab.
//
// OVS is an Open vSwitch: a database that speaks OVSDB ([Database]), and for every bridge a switch that speaks OpenFlow (package
// openflowtest). The agent's own clients talk to both. Integration tests hold the switch, and what the database is asked, against
// Open vSwitch 3.1.
package fake

import (
	"fmt"
	"maps"
	"sync"

	"github.com/patchbay-sdn/patchbay/openflow"
	"github.com/patchbay-sdn/patchbay/openflow/openflowtest"
)

// OVS is an Open vSwitch. It outlives the agents that talk to it.
type OVS struct {
	*Database
	// Committed, if set, is told what one bundle, or a restart of the switch, did to a bridge. After holds all flows of the
	// bridge; it must neither be kept nor changed.
	Committed func(bridge string, mods []openflowtest.Mod, wiped bool, after map[openflow.Key]openflow.Entry)

	made     int // port numbers and datapath ids
	mu       sync.Mutex
	switches map[string]*openflowtest.Switch
}

// maxMeters is how many meters a bridge can have. There are so many that their ids do not collide: agents make them from what the
// meters are for.
const maxMeters = 1 << 24

// NewOVS has no bridges.
func NewOVS() *OVS {
	o := &OVS{Database: NewDatabase(), made: 1, switches: map[string]*openflowtest.Switch{}}
	o.AfterCommit = o.assignNumbers
	return o
}

// Clone has the same rows, and no flows or meters.
func (o *OVS) Clone() *OVS {
	o.Mu.Lock()
	defer o.Mu.Unlock()
	c := NewOVS()
	c.Rows, c.made, c.Database.made = o.Rows.clone(), o.made, o.Database.made
	return c
}

// assignNumbers does what ovs-vswitchd does after a transaction: new bridges get datapath ids, new interfaces port numbers.
func (o *OVS) assignNumbers() {
	for _, root := range o.Rows["Open_vSwitch"] {
		if root["next_cfg"] != nil {
			root["cur_cfg"] = root["next_cfg"]
		}
	}
	for _, br := range o.Rows["Bridge"] {
		if br["datapath_id"] == nil {
			o.made++
			br["datapath_id"] = fmt.Sprintf("%016x", o.made)
		}
		for _, p := range Refs(br["ports"]) {
			for _, i := range Refs(o.Rows["Port"][p]["interfaces"]) {
				iface := o.Rows["Interface"][i]
				if iface == nil || iface["ofport"] != nil { // an empty set is a test's: no number yet
					continue
				}
				o.made++
				iface["ofport"] = float64(1000 + o.made)
				if iface["name"] == br["name"] {
					iface["ofport"] = float64(openflow.PortLocal & 0xffff)
				}
			}
		}
	}
}

// Run has changes that a test made by hand take effect, with the lock: rows that nothing refers to go, ovs-vswitchd does its part,
// and everybody is told.
func (o *OVS) Run() {
	o.collect()
	o.assignNumbers()
	o.Changed()
}

// AddBridge makes a bridge, as an operator does. Whoever calls it has the lock.
func (o *OVS) AddBridge(name string, columns map[string]any) {
	id := RowID(name)
	row := maps.Clone(columns)
	if row == nil {
		row = map[string]any{}
	}
	row["_uuid"], row["name"] = id, name
	o.Rows["Bridge"][id] = row
	for _, root := range o.Rows["Open_vSwitch"] {
		root["bridges"] = Mutate(root["bridges"], true, Ref(id))
	}
}

// DeleteBridge takes a bridge away with its flows and meters, as an operator does. Whoever calls it has the lock.
func (o *OVS) DeleteBridge(name string) {
	for id, row := range o.Rows["Bridge"] {
		if row["name"] != name {
			continue
		}
		delete(o.Rows["Bridge"], id)
		for _, root := range o.Rows["Open_vSwitch"] {
			root["bridges"] = Mutate(root["bridges"], false, Ref(id))
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.switches, name)
}

// AddPort puts an interface into a bridge, as a hypervisor does; number 0 has the switch choose. Incarnation tells rows apart that
// have one name one after the other. Whoever calls it has the lock.
func (o *OVS) AddPort(bridge, name string, incarnation, number int, externalIDs map[string]string) {
	for _, br := range o.Rows["Bridge"] {
		if br["name"] != bridge {
			continue
		}
		iface, row := RowID(fmt.Sprint("i-", name, incarnation)), RowID(fmt.Sprint("p-", name, incarnation))
		o.Rows["Interface"][iface] = map[string]any{"_uuid": iface, "name": name, "external_ids": Map(externalIDs)}
		if number > 0 {
			o.Rows["Interface"][iface]["ofport"] = float64(number)
		}
		o.Rows["Port"][row] = map[string]any{"_uuid": row, "name": name, "interfaces": Ref(iface)}
		br["ports"] = Mutate(br["ports"], true, Ref(row))
	}
}

// DeletePort takes a port out of its bridge. Whoever calls it has the lock.
func (o *OVS) DeletePort(name string) {
	for id, row := range o.Rows["Port"] {
		if row["name"] != name {
			continue
		}
		for _, br := range o.Rows["Bridge"] {
			br["ports"] = Mutate(br["ports"], false, Ref(id))
		}
	}
}

// Bridge is the switch of a bridge, made when it is asked for.
func (o *OVS) Bridge(name string) *openflowtest.Switch {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.switches[name] == nil {
		s := openflowtest.New()
		s.MaxMeters = maxMeters
		s.OnCommit(func(mods []openflowtest.Mod, wiped bool, after map[openflow.Key]openflow.Entry) {
			if o.Committed != nil {
				o.Committed(name, mods, wiped, after)
			}
		})
		o.switches[name] = s
	}
	return o.switches[name]
}

// Switches are the switches of all bridges that were asked for.
func (o *OVS) Switches() map[string]*openflowtest.Switch {
	o.mu.Lock()
	defer o.mu.Unlock()
	return maps.Clone(o.switches)
}

// Restart loses all flows, meters and connections to bridges, as ovs-vswitchd does when it ends. The database stays.
func (o *OVS) Restart() {
	for _, s := range o.Switches() {
		s.Restart()
	}
}
