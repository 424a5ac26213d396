// SPDX-License-Identifier: Apache-2.0

//go:build parity

package live

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/lab"
	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// routedNetwork creates a network whose IPv4 subnet is 10.n.0.0/24, so that a router can join it with others; with n 0 it
// is IPv6. More are attributes of the network.
func routedNetwork(name string, n int, segment attrs, more ...attrs) step {
	return step{text: fmt.Sprintf("network %s is created: %v %v", name, segment, more), do: func(ctx context.Context, p *play) error {
		body := attrs{"name": name, "tenant_id": lab.Project}
		for _, a := range append(more, segment) {
			for k, v := range a {
				body[k] = v
			}
		}
		t := &thing{name: name, kind: 'a'}
		if err := p.create(ctx, "networks", "network", body, t); err != nil {
			return err
		}
		prefix := fmt.Sprintf("10.%d.0.", n)
		sub := attrs{"network_id": t.id, "tenant_id": lab.Project, "enable_dhcp": false, "ip_version": 4, "cidr": prefix + "0/24"}
		if n == 0 {
			prefix = "fd00:77::"
			sub["ip_version"], sub["cidr"] = 6, prefix+"/64"
		}
		var made struct{ Subnet struct{ ID string } }
		if err := p.api(ctx, http.MethodPost, "subnets", attrs{"subnet": sub}, &made); err != nil {
			return err
		}
		t.subnets = append(t.subnets, attrs{"id": made.Subnet.ID, "version": sub["ip_version"], "prefix": prefix})
		return nil
	}}
}

// gatewayPort creates a port for the interface of a router. Last is the last part of its address, 1 for the subnet's gateway.
func gatewayPort(name, net string, last int) step {
	return step{text: fmt.Sprintf("port %s of %s is created for a router", name, net), do: func(ctx context.Context, p *play) error {
		mac, _, _ := addresses(name)
		sub := p.things[net].subnets[0]
		return p.create(ctx, "ports", "port", attrs{
			"name": name, "tenant_id": lab.Project, "network_id": p.things[net].id, "mac_address": mac,
			"fixed_ips": []attrs{{"subnet_id": sub["id"], "ip_address": fmt.Sprint(sub["prefix"], last)}},
		}, &thing{name: name, kind: 'b', mac: mac, router: true})
	}}
}

// router creates a distributed router with interfaces.
func router(name string, ports ...string) step {
	return step{text: fmt.Sprintf("a distributed router %s joins %v", name, ports), do: func(ctx context.Context, p *play) error {
		t := &thing{name: name, kind: 'e'}
		if err := p.create(ctx, "routers", "router", attrs{"name": name, "tenant_id": lab.Project, "distributed": true}, t); err != nil {
			return err
		}
		for _, port := range ports {
			id := attrs{"port_id": p.things[port].id}
			if err := p.api(ctx, http.MethodPut, "routers/"+t.id+"/add_router_interface", id, nil); err != nil {
				return err
			}
			p.undo = append(p.undo, func(ctx context.Context) error {
				return absent(p.api(ctx, http.MethodPut, "routers/"+t.id+"/remove_router_interface", id, nil))
			})
		}
		return nil
	}}
}

// leave takes an interface off a router; its port goes.
func leave(router, port string) step {
	return step{text: fmt.Sprintf("router %s leaves %s", router, port), do: func(ctx context.Context, p *play) error {
		return p.api(ctx, http.MethodPut, "routers/"+p.things[router].id+"/remove_router_interface", attrs{"port_id": p.things[port].id}, nil)
	}}
}

// outside gives a router a way to an external network. The server makes a port for it on each of the router's networks.
func outside(router, net string) step {
	return step{text: fmt.Sprintf("router %s gets a way to %s", router, net), do: func(ctx context.Context, p *play) error {
		path := "routers/" + p.things[router].id
		p.undo = append(p.undo, func(ctx context.Context) error {
			return absent(p.api(ctx, http.MethodPut, path, attrs{"router": attrs{"external_gateway_info": attrs{}}}, nil))
		})
		return p.api(ctx, http.MethodPut, path, attrs{"router": attrs{"external_gateway_info": attrs{"network_id": p.things[net].id}}}, nil)
	}}
}

// snatPort finds the port that the server made for a router's way out on a network.
func snatPort(name, router, net string) step {
	return step{text: fmt.Sprintf("%s is the port of router %s for packets from %s to the outside", name, router, net), do: func(ctx context.Context, p *play) error {
		var answer struct {
			Ports []struct {
				ID  string
				MAC string `json:"mac_address"`
			}
		}
		query := "ports?device_owner=network:router_centralized_snat&device_id=" + p.things[router].id + "&network_id=" + p.things[net].id
		if err := p.api(ctx, http.MethodGet, query, nil, &answer); err != nil {
			return err
		}
		if len(answer.Ports) != 1 {
			return fmt.Errorf("%d such ports", len(answer.Ports))
		}
		found := answer.Ports[0]
		mac, _, _ := addresses(name)
		p.canon.Pair(found.MAC, mac)
		p.made(&thing{name: name, id: found.ID, kind: 'b', tap: tapName(found.ID), mac: found.MAC, shown: mac, router: true})
		return nil
	}}
}

// routersOn does what a layer-3 agent does when it starts on a host: it reports to the server and asks for its routers, at
// which the server binds their ports to the host. Its interfaces are plugged in like any others.
func routersOn(host int, mode string) step {
	return step{text: fmt.Sprintf("the routers of hv%d are asked for, mode %s", host, mode), do: func(ctx context.Context, p *play) error {
		c, err := p.rpc()
		if err != nil {
			return err
		}
		name := p.cloud.hosts[host-1].Name()
		state := map[string]any{
			"binary": "neutron-l3-agent", "host": name, "availability_zone": "nova", "topic": "l3_agent", "agent_type": "L3 agent", "start_flag": true,
			"configurations": map[string]any{"agent_mode": mode, "handle_internal_only_routers": true, "interface_driver": "openvswitch", "log_agent_heartbeats": false},
		}
		err = c.Call(ctx, messaging.Target{Topic: "q-reports-plugin", Version: "1.0"}, "report_state",
			map[string]any{"agent_state": map[string]any{"agent_state": state}, "time": time.Now().UTC().Format("2006-01-02T15:04:05.000000")}, nil)
		if err == nil { // at this the server decides which host leads a router's packets to the outside
			err = c.Call(ctx, messaging.Target{Topic: "q-l3-plugin", Version: "1.0"}, "get_router_ids", map[string]any{"host": name}, nil)
		}
		if err == nil {
			err = c.Call(ctx, messaging.Target{Topic: "q-l3-plugin", Version: "1.0"}, "sync_routers", map[string]any{"host": name, "router_ids": nil}, nil)
		}
		return errors.Join(err, c.Close(ctx))
	}}
}

// routerMACs casts the list of router addresses, with one of a host that is none of ours if extra.
func routerMACs(extra bool) step {
	text := "the server casts the router addresses of all hosts"
	if extra {
		text += " and of one more"
	}
	return step{text: text, do: func(ctx context.Context, p *play) error {
		c, err := p.rpc()
		if err != nil {
			return err
		}
		var list []map[string]string
		for host, mac := range p.routerMACs {
			list = append(list, map[string]string{"host": host, "mac_address": mac})
		}
		if extra {
			list = append(list, map[string]string{"host": "far", "mac_address": "fa:16:3f:99:99:99"})
		}
		err = c.Cast(ctx, messaging.Target{Topic: "q-agent-notifier-dvr-update", Fanout: true, Version: "1.0"}, "dvr_mac_address_update", map[string]any{"dvr_macs": list})
		return errors.Join(err, c.Close(ctx))
	}}
}

// registerRouters has the server give every host a router address, and notes them.
func (c *cloud) registerRouters(ctx context.Context, client *messaging.Client) error {
	c.routerMACs = map[string]string{}
	for _, h := range c.lab.Hosts() {
		var m neutron.DVRMAC
		if err := client.Call(ctx, messaging.Target{Topic: "q-plugin", Version: "1.0"}, "get_dvr_mac_address_by_host", map[string]any{"host": h.Name()}, &m); err != nil {
			return err
		}
		c.routerMACs[h.Name()] = m.MAC.String()
	}
	return nil
}

// recordedRouterMAC stands for a host's router address in recordings.
func recordedRouterMAC(host string) string { return "fa:16:3f:00:00:0" + host[len(host)-1:] }
