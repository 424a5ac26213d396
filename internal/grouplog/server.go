// SPDX-License-Identifier: Apache-2.0

package grouplog

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"

	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/world"
)

// Kinds implements extension.PushHandler.
func (*Log) Kinds() []neutron.Kind { return []neutron.Kind{neutron.KindLog} }

// OnPush implements extension.PushHandler. The server also pushes the logs of a group whose rules have changed, as they were.
func (l *Log) OnPush(p *neutron.Push) error {
	var errs []error // each object counts alone
	for _, o := range p.Objects {
		var g neutron.Log
		if err := o.Decode(neutron.KindLog, &g); err != nil {
			errs = append(errs, err)
			continue
		}
		l.pushed = l.pushed || l.missing
		if p.Event == neutron.Deleted {
			l.gone[g.ID] = true
			l.forget(g.ID)
		} else {
			l.learn(&g)
		}
	}
	return errors.Join(errs...)
}

// learn takes a log that is as new as the one that is known, or newer.
func (l *Log) learn(g *neutron.Log) {
	have, known := l.logs[g.ID]
	if l.gone[g.ID] || g.ResourceType != securityGroup || known && (g.Revision < have.Revision || *g == have) {
		return
	}
	l.logs[g.ID] = *g
	l.touch(&have)
	l.touch(g)
}

func (l *Log) forget(id string) {
	have := l.logs[id]
	delete(l.logs, id)
	l.touch(&have)
}

// touch has the ports compiled again that a log is about.
func (l *Log) touch(g *neutron.Log) {
	for id := range l.ports {
		if p := l.filtered(id); p != nil && binds(g, p) {
			l.number(id)
			l.dirty[world.PortObject(id)] = true
		}
	}
}

// item asks for all logs of groups. There are few, since administrators make them, and a log that names a port or a group counts whatever
// project it is of.
func item() extension.Item {
	return extension.Item{Kind: neutron.KindLog, By: "resource_type", ID: securityGroup}
}

// Resync implements extension.Resyncer.
func (l *Log) Resync() { l.missing, l.pushed = true, false }

// Missing implements extension.Puller.
func (l *Log) Missing() []extension.Item {
	if !l.missing {
		return nil
	}
	return []extension.Item{item()}
}

// OnPulled implements extension.Puller. If something was pushed since the question left, the answer may be older: it is asked for once more.
func (l *Log) OnPulled(_ neutron.Kind, _ []string, found []neutron.Primitive) error {
	decoded, err := neutron.DecodeAll[neutron.Log](neutron.KindLog, found)
	if err != nil {
		return err
	}
	pushed := l.pushed
	l.listed, l.missing, l.pushed = true, pushed, false
	if !pushed {
		clear(l.gone)
		there := map[string]bool{}
		for i := range decoded {
			there[decoded[i].ID] = true
		}
		for _, id := range slices.Sorted(maps.Keys(l.logs)) {
			if !there[id] {
				l.forget(id)
			}
		}
	}
	for i := range decoded {
		l.learn(&decoded[i])
	}
	return nil
}

// Save implements extension.Saver.
func (l *Log) Save() any {
	out := []neutron.Log{}
	for _, id := range slices.Sorted(maps.Keys(l.logs)) {
		out = append(out, l.logs[id])
	}
	return out
}

// Load implements extension.Saver.
func (l *Log) Load(data json.RawMessage) error {
	var saved []neutron.Log
	if err := json.Unmarshal(data, &saved); err != nil {
		return err
	}
	for _, g := range saved {
		l.logs[g.ID] = g
	}
	return nil
}
