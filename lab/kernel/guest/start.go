// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"strings"
)

func (c *cloud) modules(ctx context.Context) (string, error) {
	if err := script(ctx, "modprobe -a virtio_net bridge veth openvswitch vport-vxlan nf_conntrack nf_conntrack_netlink"); err != nil {
		return "", err
	}
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return "", fmt.Errorf("asking for the kernel's release: %w", err)
	}
	version, err := command(ctx, "ovs-vswitchd", "--version")
	if err != nil {
		return "", err
	}
	first, _, _ := strings.Cut(version, "\n")
	return "Linux " + strings.TrimSpace(string(release)) + ", " + first, nil
}

func (c *cloud) makeHosts(ctx context.Context) (string, error) {
	if err := script(ctx,
		"ip link add mgmt type bridge forward_delay 0",
		"ip link set dev eth0 master mgmt up",
		"ip address add 10.0.2.15/24 dev mgmt",
		"ip link set dev mgmt up",
	); err != nil {
		return "", err
	}
	for n := 1; n <= 2; n++ {
		h := newHost(n)
		if err := h.start(ctx); err != nil {
			return "", err
		}
		c.hosts = append(c.hosts, h)
	}
	a, b := c.hosts[0], c.hosts[1]
	lines := []string{fmt.Sprintf("ip -n %s link add under type veth peer name under netns %s", a.name, b.name)}
	for _, h := range c.hosts {
		lines = append(lines,
			fmt.Sprintf("ip -n %s address add %s/24 dev under", h.name, h.localIP()),
			"ip -n "+h.name+" link set dev under mtu 1600 up")
	}
	if err := script(ctx, lines...); err != nil {
		return "", err
	}
	return a.name + " " + a.localIP() + ", " + b.name + " " + b.localIP(), nil
}

func (c *cloud) startAgents(ctx context.Context) (string, error) {
	for _, h := range c.hosts {
		if err := h.writeConfig(c.params.TransportURL); err != nil {
			return "", err
		}
		if err := h.startAgent(); err != nil {
			return "", err
		}
	}
	err := until(ctx, 2*patience, func(ctx context.Context) error {
		for _, h := range c.hosts {
			if err := h.alive(); err != nil {
				return err
			}
		}
		n, err := c.api.agentsAlive(ctx)
		if err == nil && n != len(c.hosts) {
			err = fmt.Errorf("%d agents are alive", n)
		}
		return err
	})
	return "2 alive", err
}

func (c *cloud) makeVMs(ctx context.Context) (string, error) {
	var network created
	if err := c.api.create(ctx, "network", "networks", object{"name": "kernel"}, &network); err != nil {
		return "", err
	}
	c.network = network.ID
	for version, cidr := range map[int]string{4: "192.168.77.0/24", 6: "fd77::/64"} {
		var subnet created
		if err := c.api.create(ctx, "subnet", "subnets", object{
			"network_id": c.network, "ip_version": version, "cidr": cidr, "enable_dhcp": false,
		}, &subnet); err != nil {
			return "", err
		}
	}
	for _, name := range []string{"door", "friends", "nothing"} {
		var group created
		if err := c.api.create(ctx, "security_group", "security-groups", object{"name": name}, &group); err != nil {
			return "", err
		}
		c.groups[name] = group.ID
	}
	for i, group := range []string{"nothing", "door"} {
		v := &vm{name: fmt.Sprintf("vm%d", i+1), host: c.hosts[i]}
		if err := c.api.create(ctx, "port", "ports", object{
			"name": v.name, "network_id": c.network, "binding:host_id": v.host.name, "device_owner": "compute:nova",
			"security_groups": []string{c.groups[group]},
		}, &v.port); err != nil {
			return "", err
		}
		for _, ip := range v.port.FixedIPs {
			if strings.Contains(ip.IP, ":") {
				v.v6 = ip.IP
			} else {
				v.v4 = ip.IP
			}
		}
		if err := v.plug(ctx); err != nil {
			return "", err
		}
		c.vms = append(c.vms, v)
	}
	for _, p := range []int{doorPort, stayPort, remotePort} {
		if err := c.vms[1].serve(p); err != nil {
			return "", err
		}
	}
	for _, v := range c.vms {
		if err := until(ctx, 2*patience, func(ctx context.Context) error {
			p, err := c.api.port(ctx, v.port.ID)
			if err == nil && p.Status != "ACTIVE" {
				err = fmt.Errorf("%s is %s", v.name, p.Status)
			}
			return err
		}); err != nil {
			return "", err
		}
	}
	return c.vms[0].v4 + " and " + c.vms[1].v4, nil
}
