// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/subnets"

	"github.com/patchbay-sdn/patchbay/lab/vswitch"
)

const (
	// vmMTU leaves room for every kind of tunnel header on the underlay.
	vmMTU       = "1400"
	pingTimeout = 30 * time.Second
)

// VM is a network namespace whose eth0 is plugged into a bridge of a host.
type VM struct {
	Name   string   `json:"name"`
	Host   string   `json:"host"`
	Netns  string   `json:"netns"`
	Tap    string   `json:"tap"`
	PortID string   `json:"port_id"`
	MAC    string   `json:"mac"`
	IPs    []string `json:"ips"`
	Bridge string   `json:"bridge,omitempty"` // br-int when empty
	Hybrid bool     `json:"hybrid,omitempty"` // plugged in through a Linux bridge

	lab *Lab
}

// tapName is the name Nova gives the interface of a port.
func tapName(portID string) string { return "tap" + portID[:min(11, len(portID))] }

// VMs are all that are plugged, by any process.
func (l *Lab) VMs() ([]VM, error) {
	s, err := readState(l.dir)
	if err != nil {
		return nil, err
	}
	for i := range s.VMs {
		s.VMs[i].lab = l
	}
	return s.VMs, nil
}

// VMNamed finds a VM by name, or by the start of its port's ID.
func (l *Lab) VMNamed(name string) (*VM, error) {
	vms, err := l.VMs()
	if err != nil {
		return nil, err
	}
	for i := range vms {
		if vms[i].Name == name || strings.HasPrefix(vms[i].PortID, name) {
			return &vms[i], nil
		}
	}
	return nil, fmt.Errorf("there is no VM %q", name)
}

// Plug makes a VM on the host for a port, which is created first unless p.ID names one. It does as Nova and os-vif do:
// binds the port to the host, makes the interface and sets the external IDs that agents look for. It does not wait for the
// port to become ACTIVE.
func (h *Host) Plug(ctx context.Context, p Port) (*VM, error) {
	vm, err := h.Prepare(ctx, p)
	if err != nil {
		return nil, err
	}
	if err := vm.Insert(ctx, p.Isolate); err != nil {
		undo := vm.Unplug(context.WithoutCancel(ctx), p.ID == "")
		return nil, errors.Join(fmt.Errorf("plugging %s into %s: %w", vm.Name, h.name, err), undo)
	}
	return vm, nil
}

// Prepare does what Plug does up to the last step: the switch has no row for the VM's interface yet. Insert makes it.
func (h *Host) Prepare(ctx context.Context, p Port) (*VM, error) {
	if strings.ContainsFunc(p.Name, notInName) {
		return nil, fmt.Errorf("%q cannot name a VM: letters, digits, dots and dashes do", p.Name)
	}
	port, err := h.bind(ctx, p)
	if err != nil {
		return nil, err
	}
	vm := VM{Name: p.Name, Host: h.name, Tap: tapName(port.ID), PortID: port.ID, MAC: port.MACAddress, Bridge: p.Bridge, Hybrid: p.Hybrid, lab: h.lab}
	if vm.Name == "" {
		vm.Name = port.ID[:8]
	}
	vm.Netns = h.lab.snapshot().Prefix + "vm-" + vm.Name
	addresses, err := h.lab.addresses(ctx, port)
	if err != nil {
		return nil, err
	}
	for _, ip := range port.FixedIPs {
		vm.IPs = append(vm.IPs, ip.IPAddress)
	}
	if err := h.lab.update(func(s *state) error {
		for _, other := range s.VMs {
			if other.Name == vm.Name || other.PortID == vm.PortID {
				return fmt.Errorf("a VM %s with port %s exists already, on %s", other.Name, other.PortID, other.Host)
			}
		}
		s.VMs = append(s.VMs, vm)
		return nil
	}); err != nil {
		return nil, err
	}
	if err := vm.make(ctx, h, addresses); err != nil {
		undo := vm.Unplug(context.WithoutCancel(ctx), p.ID == "")
		return nil, errors.Join(fmt.Errorf("making %s on %s: %w", vm.Name, h.name, err), undo)
	}
	return &vm, nil
}

func notInName(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '.' && r != '-'
}

// bind returns the port bound to the host.
func (h *Host) bind(ctx context.Context, p Port) (*ports.Port, error) {
	if p.ID == "" {
		return h.lab.CreatePort(ctx, h, p)
	}
	port, err := ports.Update(ctx, h.lab.api, p.ID, portChange{body{
		"binding:host_id": h.name, "device_owner": "compute:nova",
	}}).Extract()
	if err != nil {
		return nil, fmt.Errorf("binding port %s to %s: %w", p.ID, h.name, err)
	}
	return port, nil
}

// addresses are the lines that give a VM its addresses and routes.
func (l *Lab) addresses(ctx context.Context, port *ports.Port) ([]string, error) {
	var lines []string
	for _, ip := range port.FixedIPs {
		sub, err := subnets.Get(ctx, l.api, ip.SubnetID).Extract()
		if err != nil {
			return nil, fmt.Errorf("asking for the subnet of port %s: %w", port.ID, err)
		}
		prefix, err := netip.ParsePrefix(sub.CIDR)
		if err != nil {
			return nil, fmt.Errorf("reading the subnet of port %s: %w", port.ID, err)
		}
		line := fmt.Sprintf("address replace %s/%d dev eth0", ip.IPAddress, prefix.Bits())
		if prefix.Addr().Is6() {
			line += " nodad"
		}
		lines = append(lines, line)
		if sub.GatewayIP != "" && sub.GatewayIP != ip.IPAddress {
			lines = append(lines, "route replace default via "+sub.GatewayIP+" dev eth0")
		}
	}
	return lines, nil
}

func (vm *VM) make(ctx context.Context, h *Host, addresses []string) error {
	if err := h.lab.ensureNetns(ctx, vm.Netns); err != nil {
		return err
	}
	if err := batch(ctx, h.netns,
		"link add "+vm.Tap+" type veth peer name eth0 address "+vm.MAC+" netns "+vm.Netns,
		"link set dev "+vm.Tap+" mtu "+vmMTU+" up"); err != nil {
		return err
	}
	if err := batch(ctx, vm.Netns, append([]string{"link set dev eth0 mtu " + vmMTU + " up"}, addresses...)...); err != nil {
		return err
	}
	for netns, dev := range map[string]string{h.netns: vm.Tap, vm.Netns: "eth0"} {
		if err := checksumsOff(ctx, netns, dev); err != nil {
			return err
		}
	}
	if vm.Hybrid {
		return vm.makeBridge(ctx, h)
	}
	return nil
}

// Insert gives the VM's interface its row in the switch. With isolate the row is in no VLAN from its first moment, as with
// os-vif's option isolate_vif: one transaction makes it and keeps it apart.
func (vm *VM) Insert(ctx context.Context, isolate bool) error {
	h, err := vm.lab.HostNamed(vm.Host)
	if err != nil {
		return err
	}
	args := append(ensureBridge(vm.bridge()), addPort(vm.bridge(), vm.Device(), vm.PortID, vm.MAC)...)
	if isolate {
		args = append(args, "--", "set", "Port", vm.Device(), "tag=4095", "vlan_mode=trunk", "trunks=4095")
	}
	_, err = h.Switch().Vsctl(ctx, args...)
	return err
}

// Remove takes the interface's row away; the VM does not notice.
func (vm *VM) Remove(ctx context.Context) error {
	h, err := vm.lab.HostNamed(vm.Host)
	if err != nil {
		return err
	}
	_, err = h.Switch().Vsctl(ctx, "--if-exists", "del-port", vm.Device())
	return err
}

func (vm *VM) bridge() string { return cmp.Or(vm.Bridge, integration) }

const integration = "br-int"

// ensureBridge does what os-vif does before it plugs: an agent may come later.
func ensureBridge(name string) []string {
	return []string{"--may-exist", "add-br", name, "--", "set", "Bridge", name, "datapath_type=netdev"}
}

func addPort(bridge, tap, portID, mac string, more ...string) []string {
	return append([]string{
		"--", "--may-exist", "add-port", bridge, tap, "--", "set", "Interface", tap,
		"external_ids:iface-id=" + portID, `external_ids:attached-mac="` + mac + `"`,
		"external_ids:iface-status=active", "external_ids:vm-uuid=" + portID,
	}, more...)
}

// Unplug removes the VM and its interface; with deletePort, the port too.
func (vm *VM) Unplug(ctx context.Context, deletePort bool) error {
	h, err := vm.lab.HostNamed(vm.Host)
	if err != nil {
		return err
	}
	if err := vm.Remove(ctx); err != nil {
		return err
	}
	have, err := links(ctx, h.netns)
	if err != nil {
		return err
	}
	for _, dev := range vm.deviceNames(have) {
		if err := batch(ctx, h.netns, "link del dev "+dev); err != nil {
			return err
		}
	}
	if err := vm.lab.deleteNetns(ctx, vm.Netns); err != nil {
		return err
	}
	if deletePort {
		if err := vm.lab.deletePort(ctx, vm.PortID); err != nil {
			return err
		}
	}
	return vm.lab.update(func(s *state) error {
		s.removeNamespace(vm.Netns)
		s.VMs = slices.DeleteFunc(s.VMs, func(other VM) bool { return other.Name == vm.Name })
		return nil
	})
}

func (l *Lab) deletePort(ctx context.Context, id string) error {
	err := ports.Delete(ctx, l.api, id).ExtractErr()
	if err != nil && !gophercloud.ResponseCodeIs(err, http.StatusNotFound) {
		return fmt.Errorf("deleting port %s: %w", id, err)
	}
	return nil
}

// Command returns a command that runs inside the VM. What it leaves behind, such as a client that went into the background, is not waited for.
func (vm *VM) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "ip", append([]string{"netns", "exec", vm.Netns, name}, args...)...)
	cmd.WaitDelay = time.Second
	return cmd
}

// Ping sends one packet and waits a second for the answer.
func (vm *VM) Ping(ctx context.Context, ip string) error {
	out, err := vm.Command(ctx, "ping", "-n", "-c", "1", "-W", "1", ip).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ping from %s to %s: %w: %s", vm.Name, ip, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// WaitPing pings until there is an answer, for half a minute at most.
func (vm *VM) WaitPing(ctx context.Context, ip string) error {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	for {
		err := vm.Ping(ctx, ip)
		if err == nil {
			return nil
		}
		if !pause(ctx, 50*time.Millisecond) {
			return err
		}
	}
}

// PlugMany plugs ports as PlugInto does. They must be bound to the host.
func (h *Host) PlugMany(ctx context.Context, list []ports.Port) error {
	return PlugInto(ctx, h.Switch(), list)
}

// UnplugMany removes the interfaces of ports in one transaction; the ports stay.
func (h *Host) UnplugMany(ctx context.Context, list []ports.Port) error {
	return UnplugFrom(ctx, h.Switch(), list)
}

// PlugInto plugs ports that nobody will send packets through into a switch, as internal interfaces, in one transaction.
func PlugInto(ctx context.Context, sw *vswitch.Switch, list []ports.Port) error {
	args := ensureBridge(integration)
	for _, p := range list {
		args = append(args, addPort(integration, tapName(p.ID), p.ID, p.MACAddress, "type=internal", `mac="`+p.MACAddress+`"`)...)
	}
	if _, err := sw.Vsctl(ctx, args...); err != nil {
		return fmt.Errorf("plugging %d ports: %w", len(list), err)
	}
	return nil
}

// UnplugFrom undoes PlugInto.
func UnplugFrom(ctx context.Context, sw *vswitch.Switch, list []ports.Port) error {
	var args []string
	for i, p := range list {
		if i > 0 {
			args = append(args, "--")
		}
		args = append(args, "--if-exists", "del-port", "br-int", tapName(p.ID))
	}
	if len(args) == 0 {
		return nil
	}
	if _, err := sw.Vsctl(ctx, args...); err != nil {
		return fmt.Errorf("unplugging %d ports: %w", len(list), err)
	}
	return nil
}
