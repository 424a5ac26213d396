// SPDX-License-Identifier: Apache-2.0

//go:build parity

package live

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/patchbay-sdn/patchbay/lab"
)

// passenger is a sub-port, and the VLAN that it has on its trunk.
type passenger struct {
	port string
	vlan int
}

func (p *play) passengers(list []passenger) []attrs {
	all := []attrs{}
	for _, s := range list {
		p.joined(p.things[s.port], "spi-", 15)
		p.joined(p.things[s.port], "spt-", 15)
		all = append(all, attrs{"port_id": p.things[s.port].id, "segmentation_type": "vlan", "segmentation_id": s.vlan})
	}
	return all
}

// joined names what stands for a port or a trunk on the switch: a prefix and its id, cut to a length.
func (p *play) joined(t *thing, prefix string, length int) string {
	name := (prefix + t.id)[:length]
	if !slices.Contains(t.trunk, name) {
		t.trunk = append(t.trunk, name)
		p.canon.Pair(name, (prefix + p.canon.Text(t.id))[:length])
	}
	return name
}

// unused are the attributes of a port that can become a sub-port.
var unused = attrs{"device_id": "", "device_owner": ""}

// bridgeOf is the name of a trunk's bridge.
func (p *play) bridgeOf(trunk string) string { return p.joined(p.things[trunk], "tbr-", 14) }

// trunk makes a port, which must not be bound, the parent of a trunk.
func trunk(name, parent string, list ...passenger) step {
	return step{text: fmt.Sprintf("port %s becomes the parent of trunk %s with %v", parent, name, list), do: func(ctx context.Context, p *play) error {
		var answer struct{ Trunk struct{ ID string } }
		body := attrs{"trunk": attrs{"name": name, "tenant_id": lab.Project, "port_id": p.things[parent].id, "sub_ports": p.passengers(list)}}
		if err := p.api(ctx, http.MethodPost, "trunks", body, &answer); err != nil {
			return err
		}
		t := &thing{name: name, id: answer.Trunk.ID, kind: 'd', isTrunk: true}
		p.made(t)
		p.bridgeOf(name)
		p.joined(p.things[parent], "tpi-", 15)
		p.joined(p.things[parent], "tpt-", 15)
		p.undo = append(p.undo, func(ctx context.Context) error {
			err := p.api(ctx, http.MethodPut, "ports/"+p.things[parent].id, attrs{"port": attrs{"binding:host_id": "", "device_id": ""}}, nil)
			return errors.Join(err, absent(p.api(ctx, http.MethodDelete, "trunks/"+t.id, nil, nil)))
		})
		return nil
	}}
}

// dissolve deletes a trunk, whose parent must not be bound.
func dissolve(name string) step {
	return step{text: "trunk " + name + " is deleted", do: func(ctx context.Context, p *play) error {
		return p.api(ctx, http.MethodDelete, "trunks/"+p.things[name].id, nil, nil)
	}}
}

// board adds sub-ports to a trunk.
func board(name string, list ...passenger) step {
	return step{text: fmt.Sprintf("trunk %s gets %v", name, list), do: func(ctx context.Context, p *play) error {
		return p.api(ctx, http.MethodPut, "trunks/"+p.things[name].id+"/add_subports", attrs{"sub_ports": p.passengers(list)}, nil)
	}}
}

// alight takes sub-ports off a trunk.
func alight(name string, ports ...string) step {
	return step{text: fmt.Sprintf("trunk %s loses %v", name, ports), do: func(ctx context.Context, p *play) error {
		var list []attrs
		for _, port := range ports {
			list = append(list, attrs{"port_id": p.things[port].id})
		}
		return p.api(ctx, http.MethodPut, "trunks/"+p.things[name].id+"/remove_subports", attrs{"sub_ports": list}, nil)
	}}
}

// plugTrunk plugs in the parent of a trunk as os-vif does.
func plugTrunk(host int, name, parent string) step {
	return step{text: fmt.Sprintf("os-vif plugs %s into the bridge of trunk %s on hv%d", parent, name, host), do: func(ctx context.Context, p *play) error {
		h, t, br := p.hosts[host-1], p.things[parent], p.bridgeOf(name)
		p.undo = append(p.undo, func(ctx context.Context) error {
			_, err := h.Switch().Vsctl(ctx, "--if-exists", "del-port", t.tap)
			err = errors.Join(err, wait(ctx, goneTrunk))
			words := []string{"--if-exists", "del-br", br}
			for _, t := range p.order { // the Python agent leaves them when the bridge is gone
				if !t.isTrunk {
					for _, patch := range t.trunk {
						words = append(words, "--", "--if-exists", "del-port", patch)
					}
				}
			}
			_, more := h.Switch().Vsctl(ctx, words...)
			return errors.Join(err, more)
		})
		words := []string{"--may-exist", "add-br", br, "--", "set", "Bridge", br, "datapath_type=netdev", "--"}
		_, err := h.Switch().Vsctl(ctx, append(words, plugged(t, br, "internal")...)...)
		return err
	}}
}

// trunkBridge makes the bridge of a trunk, as os-vif does before libvirt plugs in the VM.
func trunkBridge(host int, name string) step {
	return step{text: fmt.Sprintf("os-vif makes the bridge of trunk %s on hv%d", name, host), do: func(ctx context.Context, p *play) error {
		h, br := p.hosts[host-1], p.bridgeOf(name)
		p.undo = append(p.undo, func(ctx context.Context) error {
			_, err := h.Switch().Vsctl(ctx, "--if-exists", "del-br", br)
			return err
		})
		_, err := h.Switch().Vsctl(ctx, "add-br", br, "--", "set", "Bridge", br, "datapath_type=netdev")
		return err
	}}
}

// goneTrunk is how long agents take to unwire a trunk without a VM.
const goneTrunk = 9 * time.Second

// unplugTrunk unplugs the parent. With bridge os-vif takes the trunk's bridge away, as it does since Zed.
func unplugTrunk(host int, name, parent string, bridge bool) step {
	text := fmt.Sprintf("os-vif unplugs %s from hv%d", parent, host)
	if bridge {
		text += " and deletes the bridge of trunk " + name
	}
	return step{text: text, do: func(ctx context.Context, p *play) error {
		words := []string{"del-port", p.bridgeOf(name), p.things[parent].tap}
		if bridge {
			words = append(words, "--", "del-br", p.bridgeOf(name))
		}
		_, err := p.hosts[host-1].Switch().Vsctl(ctx, words...)
		return err
	}}
}

// restart starts the agent of a host anew. Meanwhile happens while it is away.
func restart(host int, meanwhile ...step) step {
	text := fmt.Sprintf("the agent of hv%d ends", host)
	for _, s := range meanwhile {
		text += "; " + s.text
	}
	return step{text: text + "; it starts again", do: func(ctx context.Context, p *play) error {
		h := p.hosts[host-1]
		if err := h.StopAgent(ctx); err != nil {
			return err
		}
		for _, s := range meanwhile {
			if err := s.do(ctx, p); err != nil {
				return err
			}
		}
		if err := h.StartAgent(ctx, p.kind, p.scenario.config.options(h.Name())...); err != nil {
			return err
		}
		if p.kind == lab.Python {
			return wait(ctx, firstRound)
		}
		return nil
	}}
}

// trunkLines is what the API says about trunks.
func (p *play) trunkLines(ctx context.Context) ([]string, error) {
	var lines []string
	for _, t := range p.order {
		if !t.isTrunk {
			continue
		}
		var answer struct{ Trunk struct{ Status string } }
		if err := absent(p.api(ctx, http.MethodGet, "trunks/"+t.id, nil, &answer)); err != nil {
			return nil, err
		}
		lines = append(lines, fmt.Sprintf("api trunk %s status=%s", t.name, answer.Trunk.Status))
	}
	return lines, nil
}
