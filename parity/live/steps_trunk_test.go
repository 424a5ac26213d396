// SPDX-License-Identifier: Apache-2.0

//go:build parity

package live

import (
	"context"
	"errors"
	"fmt"
	"net/http"
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
		all = append(all, attrs{"port_id": p.things[s.port].id, "segmentation_type": "vlan", "segmentation_id": s.vlan})
	}
	return all
}

// unused are the attributes of a port that can become a sub-port.
var unused = attrs{"device_id": "", "device_owner": ""}

// trunk makes a port, which must not be bound, the parent of a trunk.
func trunk(name, parent string, list ...passenger) step {
	return step{text: fmt.Sprintf("port %s becomes the parent of trunk %s with %v", parent, name, list), do: func(ctx context.Context, p *play) error {
		var answer struct{ Trunk struct{ ID string } }
		body := attrs{"trunk": attrs{"name": name, "tenant_id": lab.Project, "port_id": p.things[parent].id, "sub_ports": p.passengers(list)}}
		if err := p.api(ctx, http.MethodPost, "trunks", body, &answer); err != nil {
			return err
		}
		t := &thing{name: name, id: answer.Trunk.ID, kind: 'd', bridge: ("tbr-" + answer.Trunk.ID)[:14]}
		p.made(t)
		p.undo = append(p.undo, func(ctx context.Context) error {
			err := p.api(ctx, http.MethodPut, "ports/"+p.things[parent].id, attrs{"port": attrs{"binding:host_id": "", "device_id": ""}}, nil)
			return errors.Join(err, absent(p.api(ctx, http.MethodDelete, "trunks/"+t.id, nil, nil)))
		})
		return nil
	}}
}

// board adds sub-ports to a trunk.
func board(name string, list ...passenger) step {
	return step{text: fmt.Sprintf("trunk %s gets %v", name, list), do: func(ctx context.Context, p *play) error {
		return p.api(ctx, http.MethodPut, "trunks/"+p.things[name].id+"/add_subports", attrs{"sub_ports": p.passengers(list)}, nil)
	}}
}

// alight takes a sub-port off a trunk.
func alight(name, port string) step {
	return step{text: fmt.Sprintf("trunk %s loses %s", name, port), do: func(ctx context.Context, p *play) error {
		body := attrs{"sub_ports": []attrs{{"port_id": p.things[port].id}}}
		return p.api(ctx, http.MethodPut, "trunks/"+p.things[name].id+"/remove_subports", body, nil)
	}}
}

// plugTrunk plugs in the parent of a trunk as os-vif does.
func plugTrunk(host int, name, parent string) step {
	return step{text: fmt.Sprintf("os-vif plugs %s into the bridge of trunk %s on hv%d", parent, name, host), do: func(ctx context.Context, p *play) error {
		h, t, br := p.hosts[host-1], p.things[parent], p.things[name].bridge
		p.undo = append(p.undo, func(ctx context.Context) error {
			_, err := h.Switch().Vsctl(ctx, "--if-exists", "del-port", t.tap)
			err = errors.Join(err, wait(ctx, goneTrunk))
			words := []string{"--if-exists", "del-br", br}
			for _, t := range p.order { // the Python agent leaves them when the bridge is gone
				if t.tap != "" {
					words = append(words, "--", "--if-exists", "del-port", "tpi-"+t.id[:11], "--", "--if-exists", "del-port", "spi-"+t.id[:11])
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

// goneTrunk is how long agents take to take a trunk without a VM away.
const goneTrunk = 9 * time.Second

// unplugTrunk unplugs the parent. With bridge os-vif takes the trunk's bridge away, as it does since Zed.
func unplugTrunk(host int, name, parent string, bridge bool) step {
	text := fmt.Sprintf("os-vif unplugs %s from hv%d", parent, host)
	if bridge {
		text += " and deletes the bridge of trunk " + name
	}
	return step{text: text, do: func(ctx context.Context, p *play) error {
		words := []string{"del-port", p.things[name].bridge, p.things[parent].tap}
		if bridge {
			words = append(words, "--", "del-br", p.things[name].bridge)
		}
		_, err := p.hosts[host-1].Switch().Vsctl(ctx, words...)
		return err
	}}
}

// trunkLines is what the API says about trunks.
func (p *play) trunkLines(ctx context.Context) ([]string, error) {
	var lines []string
	for _, t := range p.order {
		if t.bridge == "" {
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
