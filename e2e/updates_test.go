// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"

	"github.com/patchbay-sdn/patchbay/lab"
)

// updates is what random updates have made so far.
type updates struct {
	rules     []string
	members   []string
	addresses []string
	plugged   []ports.Port
	spare     []ports.Port
	extra     bool // the target is in the extra group as well
	pairs     int
}

// update changes one thing at random, such that what may pass between tuples stays as it is, and says what.
func (b *blink) update(rng *rand.Rand) (string, error) {
	u := &b.done
	switch rng.IntN(10) {
	case 0, 1, 2:
		ids, err := b.tryAllow(b.group, b.someRule(rng))
		if gophercloud.ResponseCodeIs(err, http.StatusConflict) {
			return b.update(rng) // there is one like it
		}
		u.rules = append(u.rules, ids...)
		return "rule added", err
	case 3, 4:
		if len(u.rules) == 0 {
			return b.update(rng)
		}
		return "rule removed", b.try(http.MethodDelete, "security-group-rules/"+take(rng, &u.rules), nil, nil)
	case 5:
		return "member", b.member(rng)
	case 6:
		return "address", b.address(rng)
	case 7:
		u.extra = !u.extra
		groups := []string{b.group}
		if u.extra {
			groups = append(groups, b.extra)
		}
		return "groups of the port", b.change(b.target.PortID, attributes{"security_groups": groups})
	case 8:
		u.pairs++
		pairs := []map[string]string{}
		if u.pairs%3 > 0 {
			pairs = append(pairs, map[string]string{"ip_address": "192.168.100." + strconv.Itoa(130+u.pairs%50)})
		}
		return "address pairs", b.change(b.target.PortID, attributes{"allowed_address_pairs": pairs})
	}
	return "port beside it", b.neighbour(rng)
}

func take(rng *rand.Rand, list *[]string) string {
	i := rng.IntN(len(*list))
	x := (*list)[i]
	*list = slices.Delete(*list, i, i+1)
	return x
}

// someRule is a rule that no forbidden tuple matches. Some allow what another rule allows as well.
func (b *blink) someRule(rng *rand.Rand) attributes {
	version := []int{4, 6}[rng.IntN(2)]
	direction := []string{"ingress", "egress"}[rng.IntN(2)]
	port := 5000 + rng.IntN(20000)
	switch rng.IntN(7) {
	case 0:
		return directed(with(ranged("tcp", port, port+rng.IntN(100)), "remote_group_id", b.club), direction, version)
	case 1:
		return directed(with(ranged("udp", port, port), "remote_address_group_id", b.listed), direction, version)
	case 2:
		return directed(with(ranged("tcp", port, port), "remote_group_id", b.extra), direction, version)
	case 3:
		return directed(ranged("udp", 900+rng.IntN(90), 1000), "ingress", version)
	case 4:
		return directed(with(ranged("tcp", 1990-rng.IntN(90), 2000+rng.IntN(90)), "remote_group_id", b.club), "ingress", version)
	case 5:
		return directed(with(ranged("udp", 3000, 3000+rng.IntN(90)+1), "remote_group_id", b.club), "ingress", 4)
	}
	return directed(ranged("udp", port, port+rng.IntN(1000)), direction, version)
}

// member has somebody join the club, somewhere in the cloud, or leave it.
func (b *blink) member(rng *rand.Rand) error {
	u := &b.done
	if len(u.members) > 0 && rng.IntN(2) == 0 {
		return b.try(http.MethodDelete, "ports/"+take(rng, &u.members), nil, nil)
	}
	group := []string{b.club, b.extra}[rng.IntN(2)]
	p, err := b.l.CreatePort(b.ctx, nil, lab.Port{NetworkID: b.blue.ID, Extra: map[string]any{"security_groups": []string{group}}})
	if err != nil {
		return err
	}
	u.members = append(u.members, p.ID)
	return nil
}

// address puts an address into the address group, or takes one away.
func (b *blink) address(rng *rand.Rand) error {
	u := &b.done
	what, address := "add_addresses", fmt.Sprintf("10.%d.%d.0/24", rng.IntN(250), rng.IntN(250))
	if len(u.addresses) > 0 && rng.IntN(2) == 0 {
		what, address = "remove_addresses", take(rng, &u.addresses)
	} else {
		if slices.Contains(u.addresses, address) {
			return b.address(rng)
		}
		u.addresses = append(u.addresses, address)
	}
	return b.try(http.MethodPut, "address-groups/"+b.listed+"/"+what,
		map[string]any{"addresses": []string{address}}, nil)
}

// neighbour plugs a port of the target's group beside the target, or takes one away.
func (b *blink) neighbour(rng *rand.Rand) error {
	u, h := &b.done, b.l.Host(1)
	if n := len(u.plugged); n > 0 && rng.IntN(2) == 0 {
		p := u.plugged[n-1]
		u.plugged, u.spare = u.plugged[:n-1], append(u.spare, p)
		return h.UnplugMany(b.ctx, []ports.Port{p})
	}
	if len(u.spare) == 0 {
		p, err := b.l.CreatePort(b.ctx, h, lab.Port{NetworkID: b.blue.ID, Extra: map[string]any{"security_groups": []string{b.group}}})
		if err != nil {
			return err
		}
		u.spare = append(u.spare, *p)
	}
	p := u.spare[len(u.spare)-1]
	u.spare, u.plugged = u.spare[:len(u.spare)-1], append(u.plugged, p)
	return h.PlugMany(b.ctx, []ports.Port{p})
}

// change changes a port.
func (b *blink) change(port string, what attributes) error {
	return b.try(http.MethodPut, "ports/"+port, map[string]any{"port": what}, nil)
}

// undo takes everything back, so that the next run finds what this one found.
func (b *blink) undo() error {
	u := &b.done
	var paths []string
	for _, id := range u.rules {
		paths = append(paths, "security-group-rules/"+id)
	}
	if err := b.l.Host(1).UnplugMany(b.ctx, u.plugged); err != nil {
		return err
	}
	for _, p := range append(u.plugged, u.spare...) {
		paths = append(paths, "ports/"+p.ID)
	}
	for _, id := range u.members {
		paths = append(paths, "ports/"+id)
	}
	for _, path := range paths {
		if err := b.try(http.MethodDelete, path, nil, nil); err != nil {
			return err
		}
	}
	if len(u.addresses) > 0 {
		if err := b.try(http.MethodPut, "address-groups/"+b.listed+"/remove_addresses",
			map[string]any{"addresses": u.addresses}, nil); err != nil {
			return err
		}
	}
	b.done = updates{}
	return b.change(b.target.PortID, attributes{"security_groups": []string{b.group}, "allowed_address_pairs": []map[string]string{}})
}
