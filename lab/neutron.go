// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/security/groups"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/security/rules"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/networks"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/subnets"
)

const (
	// Project owns everything the lab's helpers create.
	Project = "patchbay"
	// DefaultCIDR is the subnet of networks that name none. Networks are isolated, so they may all use it.
	DefaultCIDR = "192.168.100.0/24"
	// activeTimeout bounds WaitActive when the context does not.
	activeTimeout = 2 * time.Minute
	// bulkSize is how many ports are created in one request; larger requests hold the server's only API worker for too long.
	bulkSize = 50
)

// newClient is a client without Keystone: the server takes every request for an administrator's.
func newClient(l *Lab) *gophercloud.ServiceClient {
	provider := &gophercloud.ProviderClient{HTTPClient: *l.http}
	provider.UseTokenLock()
	return &gophercloud.ServiceClient{
		ProviderClient: provider, Endpoint: l.apiURL(), ResourceBase: l.apiURL() + "v2.0/", Type: "network",
	}
}

// Network is a network with one subnet.
type Network struct {
	ID       string
	SubnetID string
	Name     string
	// CIDR of the subnet; DefaultCIDR when empty.
	CIDR string
	// Type is the provider's network type; empty means vxlan. Segment and PhysicalNetwork go with it.
	Type            string
	Segment         int
	PhysicalNetwork string
	// DHCP has the subnet's addresses given out; Plug sets those of VMs in any case.
	DHCP bool
}

// CreateNetwork creates the network and its subnet.
func (l *Lab) CreateNetwork(ctx context.Context, n Network) (Network, error) {
	body := body{"name": n.Name, "tenant_id": Project}
	if n.Type != "" {
		body["provider:network_type"] = n.Type
	}
	if n.Segment != 0 {
		body["provider:segmentation_id"] = n.Segment
	}
	if n.PhysicalNetwork != "" {
		body["provider:physical_network"] = n.PhysicalNetwork
	}
	net, err := networks.Create(ctx, l.api, body).Extract()
	if err != nil {
		return n, fmt.Errorf("creating network %q: %w", n.Name, err)
	}
	n.ID = net.ID
	if n.CIDR == "" {
		n.CIDR = DefaultCIDR
	}
	prefix, err := netip.ParsePrefix(n.CIDR)
	if err != nil {
		return n, fmt.Errorf("creating network %q: %w", n.Name, err)
	}
	version := gophercloud.IPv4
	if prefix.Addr().Is6() {
		version = gophercloud.IPv6
	}
	sub, err := subnets.Create(ctx, l.api, subnets.CreateOpts{
		NetworkID: n.ID, CIDR: n.CIDR, IPVersion: version, EnableDHCP: &n.DHCP, TenantID: Project,
	}).Extract()
	if err != nil {
		return n, fmt.Errorf("creating the subnet of network %q: %w", n.Name, err)
	}
	n.SubnetID = sub.ID
	return n, nil
}

// NetworkNamed finds a network of the project by name, and creates it when there is none.
func (l *Lab) NetworkNamed(ctx context.Context, n Network) (Network, error) {
	pages, err := networks.List(l.api, networks.ListOpts{Name: n.Name}).AllPages(ctx)
	if err != nil {
		return n, fmt.Errorf("looking for network %q: %w", n.Name, err)
	}
	list, err := networks.ExtractNetworks(pages)
	if err != nil {
		return n, fmt.Errorf("looking for network %q: %w", n.Name, err)
	}
	if len(list) == 0 {
		return l.CreateNetwork(ctx, n)
	}
	n.ID = list[0].ID
	if len(list[0].Subnets) > 0 {
		n.SubnetID = list[0].Subnets[0]
	}
	return n, nil
}

// Port is a port to be created or plugged. With ID it is one that exists, and neither NetworkID nor Extra count.
type Port struct {
	ID        string
	NetworkID string
	// Name also names the VM; empty means the first characters of the port's ID.
	Name string
	// Extra are further attributes of the API, such as "port_security_enabled": false.
	Extra map[string]any
	// Bridge is the one to plug it into, such as that of a trunk; empty means the integration bridge.
	Bridge string
	// Isolate plugs it in as os-vif does with isolate_vif: in no VLAN until an agent says in which.
	Isolate bool
	// Hybrid plugs it in through a Linux bridge of its own, as os-vif does for firewall_driver = iptables_hybrid.
	Hybrid bool
}

func (p Port) body(host string) body {
	b := body{"network_id": p.NetworkID, "name": p.Name, "tenant_id": Project, "device_owner": "compute:nova"}
	if host != "" {
		b["binding:host_id"] = host
	}
	for k, v := range p.Extra {
		b[k] = v
	}
	return b
}

// CreatePort creates a port bound to a host; nil leaves it unbound.
func (l *Lab) CreatePort(ctx context.Context, h *Host, p Port) (*ports.Port, error) {
	created, err := ports.Create(ctx, l.api, p.body(nameOf(h))).Extract()
	if err != nil {
		return nil, fmt.Errorf("creating a port: %w", err)
	}
	return created, nil
}

func nameOf(h *Host) string {
	if h == nil {
		return ""
	}
	return h.name
}

// CreatePorts creates many ports of the same kind in few requests.
func (l *Lab) CreatePorts(ctx context.Context, h *Host, p Port, count int) ([]ports.Port, error) {
	var all []ports.Port
	for len(all) < count {
		list := make([]body, min(bulkSize, count-len(all)))
		for i := range list {
			list[i] = p.body(nameOf(h))
		}
		var answer struct {
			Ports []ports.Port `json:"ports"`
		}
		resp, err := l.api.Post(ctx, l.api.ServiceURL("ports"), map[string]any{"ports": list}, &answer,
			&gophercloud.RequestOpts{OkCodes: []int{http.StatusCreated}})
		if resp != nil {
			_ = resp.Body.Close()
		}
		if err != nil {
			return all, fmt.Errorf("creating %d ports: %w", len(list), err)
		}
		all = append(all, answer.Ports...)
	}
	return all, nil
}

// WaitActive waits until the server says that all ports are ACTIVE.
func (l *Lab) WaitActive(ctx context.Context, ids ...string) error {
	ctx, cancel := context.WithTimeout(ctx, activeTimeout)
	defer cancel()
	for {
		waiting, err := l.notActive(ctx, ids)
		if err == nil && len(waiting) == 0 {
			return nil
		}
		// Each question costs the only API worker some 25 ms.
		if !pause(ctx, 200*time.Millisecond) {
			return fmt.Errorf("waiting for ports to be ACTIVE: %w; not yet: %s", errors.Join(ctx.Err(), err), strings.Join(waiting, ", "))
		}
	}
}

func (l *Lab) notActive(ctx context.Context, ids []string) ([]string, error) {
	all, err := l.ports(ctx)
	if err != nil {
		return nil, err
	}
	status := make(map[string]string, len(all))
	for _, p := range all {
		status[p.ID] = p.Status
	}
	var waiting []string
	for _, id := range ids {
		if s, ok := status[id]; !ok {
			waiting = append(waiting, id+" does not exist")
		} else if s != "ACTIVE" {
			waiting = append(waiting, id+" "+s)
		}
	}
	return waiting, nil
}

// ports lists all ports, with their ID and status only.
func (l *Lab) ports(ctx context.Context) ([]ports.Port, error) {
	var answer struct {
		Ports []ports.Port `json:"ports"`
	}
	resp, err := l.api.Get(ctx, l.api.ServiceURL("ports")+"?fields=id&fields=status", &answer, nil)
	if resp != nil {
		_ = resp.Body.Close()
	}
	if err != nil {
		return nil, fmt.Errorf("listing the ports: %w", err)
	}
	return answer.Ports, nil
}

// CreateGroup creates a security group that lets everything out and nothing in, and returns its ID.
func (l *Lab) CreateGroup(ctx context.Context, name string) (string, error) {
	g, err := groups.Create(ctx, l.api, groups.CreateOpts{Name: name, TenantID: Project}).Extract()
	if err != nil {
		return "", fmt.Errorf("creating security group %q: %w", name, err)
	}
	return g.ID, nil
}

// DefaultGroup is the ID of the project's default security group, whose members may all talk to each other.
func (l *Lab) DefaultGroup(ctx context.Context) (string, error) {
	pages, err := groups.List(l.api, groups.ListOpts{Name: "default", TenantID: Project}).AllPages(ctx)
	if err != nil {
		return "", fmt.Errorf("looking for the default security group: %w", err)
	}
	list, err := groups.ExtractGroups(pages)
	if err != nil {
		return "", fmt.Errorf("looking for the default security group: %w", err)
	}
	if len(list) == 0 {
		return "", errors.New("there is no default security group yet; it comes with the first network")
	}
	return list[0].ID, nil
}

// Allow lets a protocol ("icmp", "tcp", …) in from everywhere over IPv4, for the ports in a security group. Allowing it
// again is no error.
func (l *Lab) Allow(ctx context.Context, group, protocol string) error {
	_, err := rules.Create(ctx, l.api, rules.CreateOpts{
		Direction: rules.DirIngress, EtherType: rules.EtherType4, SecGroupID: group,
		Protocol: rules.RuleProtocol(protocol), ProjectID: Project,
	}).Extract()
	if err != nil && !gophercloud.ResponseCodeIs(err, http.StatusConflict) {
		return fmt.Errorf("allowing %s: %w", protocol, err)
	}
	return nil
}

// body is the attributes of a resource as they are sent; it serves where the typed options of the client lack some.
type body map[string]any

// ToNetworkCreateMap implements networks.CreateOptsBuilder.
func (b body) ToNetworkCreateMap() (map[string]any, error) {
	return map[string]any{"network": map[string]any(b)}, nil
}

// ToPortCreateMap implements ports.CreateOptsBuilder.
func (b body) ToPortCreateMap() (map[string]any, error) {
	return map[string]any{"port": map[string]any(b)}, nil
}

// portChange is attributes of a port to be changed. The client looks for headers in the options of an update, and for that
// they have to be a struct.
type portChange struct{ body }

// ToPortUpdateMap implements ports.UpdateOptsBuilder.
func (c portChange) ToPortUpdateMap() (map[string]any, error) {
	return map[string]any{"port": map[string]any(c.body)}, nil
}
