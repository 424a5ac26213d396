// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"path/filepath"
	"strconv"

	"github.com/patchbay-sdn/patchbay/lab/daemon"
)

const l3AgentType = "L3 agent"

func (h *Host) l3Dir() string { return filepath.Join(h.Dir(), "l3") }

func (h *Host) l3() *daemon.Daemon { return daemon.Open("l3", h.l3Dir()) }

// StartL3 starts Debian's layer-3 agent on the host, in one of its modes (legacy, dvr, dvr_snat), and returns once the server
// has heard from it. The interfaces of its routers are wired by whichever layer-2 agent runs.
func (h *Host) StartL3(ctx context.Context, mode string) error {
	dir := h.l3Dir()
	neutron, l3 := serviceConfig(h.name, dir, "l3.ini", h.lab.TransportURL(), "agent_mode = "+mode)
	return h.startService(ctx, service{"l3", "neutron-l3-agent", l3AgentType, "l3.ini"}, dir, map[string]string{"neutron.conf": neutron, "l3.ini": l3})
}

// StopL3 ends the layer-3 agent. Its namespaces end with the last process in them; its interfaces stay plugged in.
func (h *Host) StopL3(ctx context.Context) error { return h.l3().Stop(ctx, h.lab.grace()) }

// L3Log is the log file of the layer-3 agent.
func (h *Host) L3Log() string { return h.l3().LogFile() }

// L3PID is the process of the layer-3 agent; its namespaces are in that process's /run/netns.
func (h *Host) L3PID() int { return h.l3().PID() }

// InRouters runs a command where the layer-3 agent's namespaces can be named, such as "ip netns exec qrouter-…".
func (h *Host) InRouters(ctx context.Context, argv ...string) (string, error) {
	pid := strconv.Itoa(h.L3PID())
	return run(ctx, "", "nsenter", append([]string{"--target", pid, "--mount", "--net"}, argv...)...)
}
