// SPDX-License-Identifier: Apache-2.0

package extensiontest

import (
	"strconv"
	"strings"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/forwarding"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/openflow"
)

// devices are network devices with forwarding tables.
type devices struct {
	tables   forwarding.Tables
	lines    []string
	unsynced bool
}

// tell takes a line about devices, and returns whether it is one.
func (d *devices) tell(words []string, set extension.Set) bool {
	switch words[0] {
	case "device":
		macs := []openflow.MAC{}
		for _, text := range words[2:] {
			if m, err := openflow.ParseMAC(text); err == nil {
				macs = append(macs, m)
			}
		}
		d.tables[words[1]] = macs
	case "nodevice":
		delete(d.tables, words[1])
	case "unsynced", "synced":
		d.unsynced = words[0] == "unsynced"
		return true
	default:
		return false
	}
	for _, m := range set {
		if m.Forwarder != nil {
			m.Forwarder.OnForwarding(forwarding.Outcome{Device: words[1]}, time.Unix(0, 0))
		}
	}
	return true
}

// work does the jobs that are due, and returns whether there was one.
func (d *devices) work(set extension.Set) (worked bool) {
	for _, m := range set {
		if m.Forwarder == nil {
			continue
		}
		job, due := m.Forwarder.Forwarding(func() bool { return !d.unsynced })
		if !due {
			continue
		}
		worked = true
		if job.Read == nil {
			d.tables, d.lines = d.tables.After(job.Change), append(d.lines, job.Change.Lines()...)
			m.Forwarder.OnForwarding(forwarding.Outcome{Changed: job.Change}, time.Unix(0, 0))
			continue
		}
		read := forwarding.Tables{}
		for _, device := range job.Read {
			if macs, ok := d.tables[device]; ok {
				read[device] = macs
			}
		}
		m.Forwarder.OnForwarding(forwarding.Outcome{Tables: read}, time.Unix(0, 0))
	}
	return worked
}

// takeLines returns the changes since it was last called.
func (d *devices) takeLines() []string {
	out := d.lines
	d.lines = nil
	return out
}

// segment reads "vlan:physnet1:7", or "flat:physnet1".
func segment(text string) *neutron.Segment {
	parts := strings.Split(text, ":")
	s := neutron.Segment{NetworkType: parts[0], PhysicalNetwork: parts[1]}
	if len(parts) > 2 {
		if n, err := strconv.Atoi(parts[2]); err == nil {
			s.SegmentationID = &n
		}
	}
	return &s
}
