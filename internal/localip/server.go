// SPDX-License-Identifier: Apache-2.0

package localip

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
)

// translate is the only mode that Neutron has built.
const translate = "translate"

// Kinds implements extension.PushHandler.
func (*LocalIP) Kinds() []neutron.Kind { return []neutron.Kind{neutron.KindLocalIPAssociation} }

// OnPush implements extension.PushHandler. Every agent is told of every association; only those of ports here are kept. While those of a port are asked
// for, the answer may be older or newer than the push: it is merged, and asked for once more.
func (l *LocalIP) OnPush(p *neutron.Push) error {
	var errs []error // each object counts alone
	for _, o := range p.Objects {
		var decoded neutron.LocalIPAssociation
		if err := o.Decode(neutron.KindLocalIPAssociation, &decoded); err != nil {
			errs = append(errs, err)
			continue
		}
		have := l.ports[decoded.FixedPortID]
		if have == nil {
			continue
		}
		have.pushed = have.pushed || l.missing[decoded.FixedPortID]
		if p.Event == neutron.Deleted {
			delete(have.has, decoded.LocalIPID)
		} else {
			l.learn(have, &decoded)
		}
		l.touched[have.segment] = true
	}
	return errors.Join(errs...)
}

// learn takes an association of a port.
func (l *LocalIP) learn(have *port, decoded *neutron.LocalIPAssociation) {
	a := read(decoded)
	if a.Problem != "" && have.has[decoded.LocalIPID] != a {
		l.warnings = append(l.warnings, fmt.Sprintf("local IP %s of port %s is left out: %s", decoded.LocalIPID, decoded.FixedPortID, a.Problem))
	}
	have.has[decoded.LocalIPID] = a
}

// read returns what can be used of an association.
func read(decoded *neutron.LocalIPAssociation) association {
	ip := decoded.LocalIP.Value
	if ip == nil {
		return association{Problem: "the server does not tell its address"}
	}
	local, err := netip.ParseAddr(ip.Address)
	fixed, err2 := netip.ParseAddr(decoded.FixedIP)
	switch {
	case err != nil || err2 != nil:
		return association{Problem: fmt.Sprintf("%q and %q are not both addresses", ip.Address, decoded.FixedIP)}
	case !local.Is4() || !fixed.Is4():
		return association{Problem: fmt.Sprintf("%s and %s are not both IPv4, and nothing else can be translated", local, fixed)}
	case ip.Mode != "" && ip.Mode != translate:
		return association{Problem: fmt.Sprintf("its ip_mode is %q, and there is only translate", ip.Mode)}
	}
	return association{Local: local, Fixed: fixed}
}

const byPort = "fixed_port_id"

// Resync implements extension.Resyncer.
func (l *LocalIP) Resync() {
	for id, have := range l.ports {
		l.missing[id], have.pushed = true, false
	}
}

// Missing implements extension.Puller.
func (l *LocalIP) Missing() []extension.Item {
	var out []extension.Item
	for _, id := range slices.Sorted(maps.Keys(l.missing)) {
		out = append(out, extension.Item{Kind: neutron.KindLocalIPAssociation, By: byPort, ID: id})
	}
	return out
}

// OnPulled implements extension.Puller.
func (l *LocalIP) OnPulled(_ neutron.Kind, asked []string, found []neutron.Primitive) error {
	decoded, err := neutron.DecodeAll[neutron.LocalIPAssociation](neutron.KindLocalIPAssociation, found)
	if err != nil {
		return err
	}
	for _, id := range asked {
		have := l.ports[id]
		if have == nil || !l.missing[id] {
			continue
		}
		before := have.has
		have.has, have.listed = map[string]association{}, true
		for i := range decoded {
			if decoded[i].FixedPortID == id {
				have.has[decoded[i].LocalIPID] = before[decoded[i].LocalIPID] // so that a problem is told once
				l.learn(have, &decoded[i])
			}
		}
		if have.pushed { // asked for once more, and that answer counts
			maps.Copy(have.has, before)
		} else {
			delete(l.missing, id)
		}
		have.pushed = false
		l.touched[have.segment] = true
	}
	return nil
}

// Save implements extension.Saver.
func (l *LocalIP) Save() any {
	out := map[string]map[string]association{}
	for id, have := range l.ports {
		if len(have.has) > 0 {
			out[id] = maps.Clone(have.has)
		}
	}
	return out
}

// Load implements extension.Saver.
func (l *LocalIP) Load(data json.RawMessage) error { return json.Unmarshal(data, &l.recalled) }
