// SPDX-License-Identifier: Apache-2.0

package trunk

import (
	"encoding/json"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/parity"
)

// TestReplay gives the inputs of every recorded scenario with a trunk to the extension, and compares the rows of trunks, and what it
// says to the server, with what the Python agent made of the same inputs. The flows are compared in package pipeline.
func TestReplay(t *testing.T) {
	all, err := parity.LoadAll("../../parity/testdata")
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := parity.LoadAccepted("../../parity/accepted.md")
	if err != nil {
		t.Fatal(err)
	}
	pins, err := parity.LoadPins(filepath.Join("../../parity/testdata", parity.PinsFile))
	if err != nil {
		t.Fatal(err)
	}
	played := 0
	for _, r := range all {
		if !slices.ContainsFunc(slices.Collect(maps.Values(r.Names)), isBridge) {
			continue
		}
		played++
		t.Run(r.Name, func(t *testing.T) {
			p := &replay{host: newHost(t), r: r}
			for _, s := range r.Stages {
				have := p.play(s)
				want := s.Want.Select(ofTrunk)
				d := parity.Compare(want, have, accepted.At(r.Name, s.Checkpoint))
				wrong := pins.AtMost(parity.Place{Scenario: r.Name, Checkpoint: s.Checkpoint, Host: recorded}, d.Counts())
				for _, x := range d.Unexplained() {
					wrong = append(wrong, x.String())
				}
				if len(wrong) > 0 {
					t.Errorf("at %q after %q:\n%s", s.Checkpoint, s.Steps, strings.Join(wrong, "\n"))
				}
			}
		})
	}
	if played < 10 {
		t.Errorf("%d recordings, want 10 or more", played)
	}
}

const recorded = "hv1" // the host with trunks

// ofTrunk keeps the lines about trunks. What the core writes about ports of the integration bridge is not the extension's.
func ofTrunk(line string) bool {
	words := strings.Fields(line)
	if words[0] != recorded {
		return false
	}
	switch words[1] {
	case "call":
		return strings.HasSuffix(words[2], "_subport_bindings") || words[2] == "update_trunk_status"
	case "Bridge":
		return isBridge(words[2])
	case "Port", "Interface":
		if hasPrefix(words[3], "external_ids:bridge_name=", "external_ids:trunk_id=", "external_ids:subport_ids=") {
			return true
		}
		wired := hasPrefix(words[3], "tag=", "vlan_mode=", "trunks=", "other_config:")
		return isPatch(words[2]) && (!wired || hasPrefix(words[2], parentOuter, subOuter)) && !strings.HasPrefix(words[3], "ofport=")
	}
	return false
}

// replay is a recording being played.
type replay struct {
	*host
	r *parity.Recording
}

// play plays one stage, and returns the lines at its end.
func (p *replay) play(s parity.Stage) parity.Snapshot {
	p.calls = nil
	for _, e := range s.Events { // what the server said when it was asked it would also have said earlier
		p.learn(e)
	}
	if s.Restarts(recorded) {
		p.restart()
	}
	p.converge()
	for _, e := range s.Events {
		if slices.Contains(e.Hosts, recorded) {
			p.event(e)
			p.converge()
		}
	}
	p.pass(s.Passed())
	if s.Checkpoint == "after" {
		p.pass(bridgeGrace)
	}
	return p.lines()
}

// learn takes what the server knows from its answers.
func (p *replay) learn(e parity.Event) {
	switch e.Call {
	case "pull":
		var args struct {
			Kind neutron.Kind `json:"resource_type"`
		}
		var object neutron.Primitive
		var trunk neutron.Trunk
		if json.Unmarshal(e.Args, &args) == nil && args.Kind == neutron.KindTrunk && json.Unmarshal(e.Result, &object) == nil {
			if err := object.Decode(neutron.KindTrunk, &trunk); err != nil {
				p.t.Fatal(err)
			}
			p.trunks[trunk.PortID] = &trunk
		}
	case "update_subport_bindings":
		var ports map[string][]neutron.BoundSubPort
		if err := json.Unmarshal(e.Result, &ports); err != nil {
			p.t.Fatal(err)
		}
		for _, list := range ports {
			for _, port := range list {
				p.macs[port.ID] = port.MAC
			}
		}
	}
}

func (p *replay) event(e parity.Event) {
	for _, c := range e.Rows {
		p.row(c)
	}
	if e.Cast != "push" || !strings.Contains(e.Topic, string(neutron.KindSubPort)) {
		return
	}
	m, err := neutron.DecodeMessage(e.Topic, e.Cast, e.Args)
	if err != nil {
		p.t.Fatal(err)
	}
	push := m.(*neutron.Push)
	subs, err := neutron.DecodeAll[neutron.SubPort](push.Kind, push.Objects)
	if err != nil {
		p.t.Fatal(err)
	}
	for _, tr := range p.trunks {
		for _, s := range subs {
			tr.SubPorts = slices.DeleteFunc(tr.SubPorts, func(o neutron.SubPort) bool { return o.PortID == s.PortID })
			if push.Event == neutron.Created && s.TrunkID == tr.ID {
				tr.SubPorts = append(tr.SubPorts, s)
			}
		}
	}
	if err := p.set.OnPush(push); err != nil {
		p.t.Fatal(err)
	}
}

// row changes what others than the agent changed: bridges of trunks, and VMs there.
func (p *replay) row(c parity.RowChange) {
	v := p.w.View
	own := func(k, _ string) bool { return k == "bridge_name" || k == "trunk_id" || k == "subport_ids" }
	p.others(func(tx *ovsdb.Tx) {
		switch {
		case isPatch(c.Name):
		case c.Table == "Bridge" && isBridge(c.Name) && c.Deleted:
			if b := v.BridgeByName(c.Name); b != nil {
				tx.DeleteBridge(b.UUID)
			}
		case c.Table == "Bridge" && isBridge(c.Name):
			if v.BridgeByName(c.Name) == nil {
				tx.EnsureBridge(ovsdb.BridgeSpec{Name: c.Name, DatapathType: c.DatapathType})
			}
		case c.Table == "Port" && c.Deleted:
			if port := v.PortByName(c.Name); port != nil {
				tx.DeletePort(port.UUID)
			}
		case c.Table == "Port" && isBridge(c.Bridge) && v.PortByName(c.Name) == nil:
			ids := maps.Clone(c.ExternalIDs)
			maps.DeleteFunc(ids, own)
			tx.EnsurePort(ovsdb.PortSpec{Bridge: c.Bridge, Name: c.Name, Type: c.Type, ExternalIDs: ids})
		}
	})
}

// lines are the rows of trunks, and what was said, in the words of the recording.
func (p *replay) lines() parity.Snapshot {
	names := p.r.NamesOf()
	names.Learn(p.w.View)
	var lines []string
	for _, line := range append(names.Rows(p.w.View), p.words...) {
		lines = append(lines, recorded+" "+names.Apply(line))
	}
	p.words = nil
	return parity.NewSnapshot(lines).Select(ofTrunk)
}
