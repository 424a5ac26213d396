// SPDX-License-Identifier: Apache-2.0

// Package forwarding reads and changes the forwarding tables of network devices: what bridge(8) shows as "self permanent". A NIC with SR-IOV gives
// frames of its virtual functions for these addresses to the host instead of the wire.
//
// In: names of devices, [Changes]. Out: [Tables], and the names of devices that changed. [Host] does it by netlink, in the network namespace of the process.
package forwarding

import (
	"fmt"
	"strings"

	"github.com/patchbay-sdn/patchbay/openflow"
)

// Entry is an address in the table of a device.
type Entry struct {
	Device string
	MAC    openflow.MAC
}

// String returns the entry as bridge(8) shows it.
func (e Entry) String() string { return e.MAC.String() + " dev " + e.Device + " self permanent" }

// Compare orders entries.
func (e Entry) Compare(o Entry) int {
	if c := strings.Compare(e.Device, o.Device); c != 0 {
		return c
	}
	return strings.Compare(string(e.MAC[:]), string(o.MAC[:]))
}

// Tables are the unicast addresses in the tables of devices, by device. A device that does not exist is not in it.
type Tables map[string][]openflow.MAC

// Changes are entries to add and to delete.
type Changes struct{ Add, Delete []Entry }

// Empty returns whether there is nothing to change.
func (c *Changes) Empty() bool { return len(c.Add)+len(c.Delete) == 0 }

// Lines returns the changes as commands.
func (c *Changes) Lines() []string {
	var out []string
	for _, e := range c.Add {
		out = append(out, "bridge fdb add "+e.String())
	}
	for _, e := range c.Delete {
		out = append(out, "bridge fdb del "+e.String())
	}
	return out
}

// After returns the tables after changes.
func (t Tables) After(c Changes) Tables {
	out, gone := Tables{}, map[Entry]bool{}
	for _, e := range c.Delete {
		gone[e] = true
	}
	for device, macs := range t {
		kept := []openflow.MAC{}
		for _, m := range macs {
			if !gone[Entry{device, m}] {
				kept = append(kept, m)
			}
		}
		out[device] = kept
	}
	for _, e := range c.Add {
		out[e.Device] = append(out[e.Device], e.MAC)
	}
	return out
}

// Has returns whether an entry is in the tables.
func (t Tables) Has(e Entry) bool {
	for _, m := range t[e.Device] {
		if m == e.MAC {
			return true
		}
	}
	return false
}

// Job is something to do: devices whose tables are to be read, or else changes to make.
type Job struct {
	Read   []string
	Change Changes
}

// Outcome is what became of a job, or that a device has changed.
type Outcome struct {
	Tables  Tables  // that were read; nil: none were
	Changed Changes // that were asked for
	Device  string  // that has changed
	Err     error   // of changes: not all of them were made
}

// NoDeviceError says that a device does not exist.
type NoDeviceError struct{ Device string }

func (e *NoDeviceError) Error() string { return fmt.Sprintf("device %s does not exist", e.Device) }
