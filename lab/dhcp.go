// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/agents"

	"github.com/patchbay-sdn/patchbay/lab/daemon"
)

const dhcpAgentType = "DHCP agent"

// privateNetns gives a program a /run/netns of its own: the namespaces that a DHCP agent makes are named after networks
// and not after hosts, and they end with the last process that uses them.
const privateNetns = `mount -t tmpfs none /run/netns && exec "$@"`

func (h *Host) dhcpDir() string { return filepath.Join(h.Dir(), "dhcp") }

func (h *Host) dhcp() *daemon.Daemon { return daemon.Open("dhcp", h.dhcpDir()) }

// serviceConfig renders the two files of an agent of Debian's that plugs ports of its own into the switch: the one that all
// agents share and its own, with the options given.
func serviceConfig(host, dir, file, transportURL string, own ...string) (neutron, service string) {
	var n, d ini
	n.setAll("DEFAULT",
		"host = "+host,
		"transport_url = "+transportURL,
		"state_path = "+dir+"/state",
		// A process title is written over the environment, by which we recognise our processes.
		"setproctitle = off",
	)
	n.setAll("oslo_concurrency", "lock_path = "+dir+"/lock")
	d.setAll("DEFAULT", append([]string{
		"interface_driver = openvswitch",
		// The userspace datapath cannot move its own interfaces into other namespaces.
		"ovs_use_veth = true",
	}, own...)...)
	d.setAll("ovs", "ovsdb_connection = tcp:127.0.0.1:6640", "ovs_use_veth = true")
	// Programs that an agent has started and that crash are started again by it; it looks every minute by default.
	d.setAll("agent", "root_helper = env", "root_helper_daemon =", "check_child_processes_interval = 2")
	d.setAll("privsep", "helper_command = env privsep-helper"+
		" --config-file "+dir+"/neutron.conf --config-file "+dir+"/"+file)
	return n.String(), d.String()
}

// StartDHCP starts Debian's DHCP agent on the host and returns once the server has heard from it. From then on the server
// gives it the networks whose subnets ask for DHCP. Its ports are wired by whichever layer-2 agent runs. Options are more lines of its configuration.
func (h *Host) StartDHCP(ctx context.Context, options ...string) error {
	dir := h.dhcpDir()
	neutron, dhcp := serviceConfig(h.name, dir, "dhcp.ini", h.lab.TransportURL(),
		append([]string{"dnsmasq_config_file = " + dir + "/dnsmasq.conf", "resync_interval = 5"}, options...)...)
	return h.startService(ctx, service{"dhcp", "neutron-dhcp-agent", dhcpAgentType, "dhcp.ini"}, dir, map[string]string{
		"neutron.conf": neutron, "dhcp.ini": dhcp,
		// It reads the list of ports again whenever one is added, and other users may not look into the lab of a test.
		"dnsmasq.conf": "user=root\n",
	})
}

// service is an agent of Debian's beside the layer-2 agent.
type service struct{ name, binary, agentType, file string }

// startService starts it with the files given and returns once the server has heard from it.
func (h *Host) startService(ctx context.Context, s service, dir string, files map[string]string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("making the directory of the %s: %w", s.agentType, err)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return fmt.Errorf("writing the configuration of the %s: %w", s.agentType, err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, agentTimeout)
	defer cancel()
	d, err := daemon.Start(ctx, daemon.Spec{
		Name: s.name, Dir: dir, Netns: h.netns, Env: []string{"OVS_RUNDIR=" + h.Switch().Dir()},
		Argv: h.lab.neutronCommand("unshare", "--mount", "--propagation", "private", "sh", "-c", privateNetns, "sh",
			"/usr/bin/"+s.binary, "--config-file", dir+"/neutron.conf", "--config-file", dir+"/"+s.file),
	})
	if err != nil {
		return err
	}
	for {
		alive, err := h.serviceAlive(ctx, s.agentType, daemon.Since(d.PID()))
		if alive {
			return nil
		}
		if d.PID() == 0 {
			return fmt.Errorf("the %s on %s exited\n%s", s.agentType, h.name, d.LogTail(20))
		}
		if !pause(ctx, 200*time.Millisecond) {
			return fmt.Errorf("waiting for the %s on %s to be alive in the API: %w\n%s",
				s.agentType, h.name, errors.Join(ctx.Err(), err), d.LogTail(20))
		}
	}
}

// serviceAlive says whether the server has heard from an agent of the host since it was started.
func (h *Host) serviceAlive(ctx context.Context, agentType string, since time.Time) (bool, error) {
	pages, err := agents.List(h.lab.Neutron(), agents.ListOpts{Host: h.name, AgentType: agentType}).AllPages(ctx)
	if err != nil {
		return false, fmt.Errorf("asking for the %s of %s: %w", agentType, h.name, err)
	}
	list, err := agents.ExtractAgents(pages)
	if err != nil {
		return false, fmt.Errorf("reading the %s of %s: %w", agentType, h.name, err)
	}
	return len(list) > 0 && list[0].Alive && !list[0].HeartbeatTimestamp.Before(since), nil
}

// StopDHCP ends the DHCP agent, its dnsmasq processes and, with them, their namespaces. Its ports stay plugged in, as they
// do on a real host.
func (h *Host) StopDHCP(ctx context.Context) error { return h.dhcp().Stop(ctx, h.lab.grace()) }

// DHCPFile is a file that the DHCP agent writes about a network for dnsmasq, such as pid or host.
func (h *Host) DHCPFile(network, name string) string {
	return filepath.Join(h.dhcpDir(), "state", "dhcp", network, name)
}

// DHCPLog is the log file of the DHCP agent.
func (h *Host) DHCPLog() string { return h.dhcp().LogFile() }
