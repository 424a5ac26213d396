// SPDX-License-Identifier: Apache-2.0

package pipeline_test

import (
	"encoding/json"
	"slices"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/world"
	"github.com/patchbay-sdn/patchbay/parity"
)

// groups is what the server of a recording knew of rules. A rule is told with its group, on its own, or as the answer to a
// question.
type groups struct {
	rules map[string]neutron.SecurityGroupRule
	gone  map[string]bool
}

func newGroups() *groups {
	return &groups{map[string]neutron.SecurityGroupRule{}, map[string]bool{}}
}

func (g *groups) apply(e parity.Event) error {
	var push struct {
		Event string              `json:"event_type"`
		List  []neutron.Primitive `json:"resource_list"`
	}
	switch {
	case e.Cast == "push":
		if err := json.Unmarshal(e.Args, &push); err != nil {
			return err
		}
	case e.Call == "bulk_pull" && e.Failure == "":
		if err := json.Unmarshal(e.Result, &push.List); err != nil {
			return err
		}
	}
	for _, o := range push.List {
		switch o.Name {
		case "SecurityGroup":
			var sg neutron.SecurityGroup
			if err := o.Decode(neutron.KindSecurityGroup, &sg); err != nil {
				return err
			}
			for _, r := range sg.Rules {
				r.SecurityGroupID = sg.ID
				g.learn(r)
			}
		case "SecurityGroupRule":
			var r neutron.SecurityGroupRule
			if err := o.Decode(neutron.KindSecurityGroupRule, &r); err != nil {
				return err
			}
			if push.Event == "deleted" {
				delete(g.rules, r.ID)
				g.gone[r.ID] = true
			} else {
				g.learn(r)
			}
		}
	}
	return nil
}

func (g *groups) learn(r neutron.SecurityGroupRule) {
	if !g.gone[r.ID] {
		g.rules[r.ID] = r
	}
}

// answer gives the world what it asks for about groups, as the recording's server would have. What that does not know is
// asked once for every event.
func (h *replay) answer(asked map[world.Item]bool) bool {
	busy := false
	for _, item := range h.w.MissingItems() {
		one := []world.Item{item}
		if key := (world.Item{Kind: item.Kind, ID: item.ID}); asked[key] {
			h.w.NoAnswer(one)
			continue
		} else {
			asked[key] = true
		}
		busy = true
		switch item.Kind {
		case neutron.KindSecurityGroup:
			var found []neutron.SecurityGroup
			if h.objects.Pull("SecurityGroup", item.ID) != nil {
				sg := neutron.SecurityGroup{ID: item.ID}
				for _, r := range h.groups.rules {
					if r.SecurityGroupID == item.ID {
						sg.Rules = append(sg.Rules, r)
					}
				}
				found = append(found, sg)
			}
			h.w.Groups(one, found)
		case neutron.KindAddressGroup:
			var p neutron.Primitive
			var found []neutron.AddressGroup
			var g neutron.AddressGroup
			if raw := h.objects.Pull("AddressGroup", item.ID); raw != nil && json.Unmarshal(raw, &p) == nil && p.Decode(neutron.KindAddressGroup, &g) == nil {
				found = append(found, g)
			}
			h.w.AddressGroups(one, found)
		case neutron.KindPort:
			var found []neutron.Member
			for _, raw := range h.objects.All("Port") {
				var p neutron.Primitive
				var port neutron.Port
				if json.Unmarshal(raw, &p) != nil || p.Decode(neutron.KindPort, &port) != nil {
					h.t.Fatalf("cannot read %s", raw)
				}
				if slices.Contains(port.SecurityGroupIDs, item.ID) {
					found = append(found, *port.Member())
				}
			}
			h.w.Members(one, found)
		}
	}
	return busy
}
