// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/patchbay-sdn/patchbay/lab/vswitch"
)

// Host is one hypervisor: a network namespace with an Open vSwitch of its own, joined to the fabric.
type Host struct {
	lab    *Lab
	number int
	name   string
	netns  string
}

func (l *Lab) host(name string) *Host {
	n, _ := strconv.Atoi(strings.TrimPrefix(name, "hv"))
	return &Host{lab: l, number: n, name: name, netns: l.snapshot().Prefix + name}
}

// Name is the host's name in Neutron, such as "hv1".
func (h *Host) Name() string { return h.name }

// Netns is the host's network namespace.
func (h *Host) Netns() string { return h.netns }

// Dir holds the host's files: the switch in "ovs", the agent's configuration and log in "agent".
func (h *Host) Dir() string { return h.lab.path("hosts", h.name) }

// LocalIP is the address of its tunnel endpoint.
func (h *Host) LocalIP() string { return h.lab.snapshot().Range + ".1." + strconv.Itoa(10+h.number) }

// MgmtIP is the address that the host's agent speaks to the broker from.
func (h *Host) MgmtIP() string { return h.lab.snapshot().Range + ".0." + strconv.Itoa(10+h.number) }

// Switch is the host's Open vSwitch. After ovs-vswitchd was restarted through it, EnsureSwitch gives the underlay its address
// back, as the network scripts of a real host would.
func (h *Host) Switch() *vswitch.Switch { return vswitch.Open(h.switchConfig()) }

func (h *Host) switchConfig() vswitch.Config {
	return vswitch.Config{
		Dir: filepath.Join(h.Dir(), "ovs"), Netns: h.netns,
		Remotes: []string{"ptcp:6640:127.0.0.1"}, Root: h.lab.snapshot().Sources.Switch.Root,
	}
}

// Command returns a command that runs in the host's namespace and finds its switch.
func (h *Host) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	return h.Switch().Command(ctx, name, args...)
}

// ensure makes the host complete: namespace, links, switch, bridges and the agent's default configuration.
func (h *Host) ensure(ctx context.Context) (string, error) {
	before := h.Switch().Pids()
	if err := h.lab.ensureNetns(ctx, h.netns); err != nil {
		return "", err
	}
	if err := h.lab.wire(ctx, h); err != nil {
		return "", err
	}
	if err := h.EnsureSwitch(ctx); err != nil {
		return "", err
	}
	if _, err := os.Stat(filepath.Join(h.agentDir(), "ovs.ini")); err != nil {
		if err := h.writeAgentConfig(nil); err != nil {
			return "", err
		}
	}
	pids := h.Switch().Pids()
	note := fmt.Sprintf("namespace %s, pids %d and %d", h.netns, pids["ovsdb-server"], pids["ovs-vswitchd"])
	if len(before) == 0 {
		return "started, " + note + ", tunnels from " + h.LocalIP(), nil
	}
	return note, nil
}

// EnsureSwitch starts what of the switch does not run, and gives it the bridges of the underlay and of physnet1.
func (h *Host) EnsureSwitch(ctx context.Context) error {
	sw, err := vswitch.Start(ctx, h.switchConfig())
	if err != nil {
		return err
	}
	if _, err := sw.Vsctl(ctx,
		"set", "Open_vSwitch", ".", "external_ids:system-id="+h.name, "external_ids:hostname="+h.name, "--",
		"--may-exist", "add-br", "br-under", "--", "set", "Bridge", "br-under", "datapath_type=netdev", "--",
		"--may-exist", "add-port", "br-under", "under0", "--",
		"--may-exist", "add-br", "br-ex", "--", "set", "Bridge", "br-ex", "datapath_type=netdev", "--",
		"--may-exist", "add-port", "br-ex", "ext0",
	); err != nil {
		return err
	}
	// The kernel must not answer for the bridge's address on the link below it: others would send to where nobody listens.
	if out, err := h.Command(ctx, "sh", "-c", "echo 1 >/proc/sys/net/ipv4/conf/all/arp_ignore").CombinedOutput(); err != nil {
		return fmt.Errorf("quietening ARP in %s: %w: %s", h.netns, err, out)
	}
	// Userspace tunnels find their way out by the address on a bridge of the same datapath.
	return batch(ctx, h.netns,
		"link set dev br-under mtu 1600 up",
		"address replace "+h.LocalIP()+"/24 dev br-under")
}

// Flows prints the flows of a bridge as ovs-ofctl does, without statistics.
func (h *Host) Flows(ctx context.Context, bridge string) (string, error) {
	return h.Switch().Ofctl(ctx, "-O", "OpenFlow14", "--no-stats", "--no-names", "dump-flows", bridge)
}
