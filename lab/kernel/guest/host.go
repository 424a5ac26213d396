// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/patchbay-sdn/patchbay/lab/vswitch"
)

// host is a hypervisor: a namespace with a switch and an agent.
type host struct {
	number int
	name   string
	sw     *vswitch.Switch
	agent  *exec.Cmd
	ended  chan struct{} // closed when the agent has ended
}

func newHost(number int) *host { return &host{number: number, name: fmt.Sprintf("kdp%d", number)} }

func (h *host) localIP() string { return fmt.Sprintf("172.30.0.%d", h.number) }

func (h *host) dir() string { return filepath.Join("/run", h.name) }

// start makes the namespace, joined to the management bridge, and the switch.
func (h *host) start(ctx context.Context) error {
	if err := script(ctx,
		"ip netns add "+h.name,
		"ip -n "+h.name+" link set dev lo up",
		fmt.Sprintf("ip link add mgmt%d type veth peer name mgmt netns %s", h.number, h.name),
		fmt.Sprintf("ip link set dev mgmt%d master mgmt up", h.number),
		fmt.Sprintf("ip -n %s address add 10.0.2.%d/24 dev mgmt", h.name, 20+h.number),
		"ip -n "+h.name+" link set dev mgmt up",
	); err != nil {
		return err
	}
	var err error
	h.sw, err = vswitch.Start(ctx, vswitch.Config{Dir: h.dir(), Netns: h.name, Remotes: []string{"ptcp:6640:127.0.0.1"}})
	return err
}

func (h *host) writeConfig(transportURL string) error {
	state := filepath.Join(h.dir(), "state")
	if err := os.MkdirAll(state, 0o755); err != nil {
		return fmt.Errorf("making the agent's directory: %w", err)
	}
	text := strings.Join([]string{
		"[DEFAULT]", "host = " + h.name, "transport_url = " + transportURL, "state_path = " + state,
		"[ovs]", "ovsdb_connection = tcp:127.0.0.1:6640", "local_ip = " + h.localIP(), "datapath_type = system",
		"[agent]", "tunnel_types = vxlan", "l2_population = true", "arp_responder = true",
		"[securitygroup]", "enable_security_group = true", "firewall_driver = openvswitch", "",
	}, "\n")
	if err := os.WriteFile(h.config(), []byte(text), 0o600); err != nil {
		return fmt.Errorf("writing the agent's configuration: %w", err)
	}
	return nil
}

func (h *host) config() string   { return filepath.Join(h.dir(), "agent.conf") }
func (h *host) agentLog() string { return filepath.Join(outDir, h.name+"-agent.log") }

func (h *host) startAgent() error {
	log, err := os.OpenFile(h.agentLog(), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("starting the agent of %s: %w", h.name, err)
	}
	defer func() { _ = log.Close() }()
	// It ends when it is told to, not with a context. nsenter replaces itself, so the process is the agent.
	cmd := h.sw.Command(context.Background(), "/in/patchbay", "agent", "--config-file", h.config())
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting the agent of %s: %w", h.name, err)
	}
	h.agent, h.ended = cmd, make(chan struct{})
	go func(ended chan struct{}) { defer close(ended); _ = cmd.Wait() }(h.ended)
	return nil
}

// stopAgent ends the agent by the signal and waits until it is gone.
func (h *host) stopAgent(sig syscall.Signal) error {
	if err := h.agent.Process.Signal(sig); err != nil {
		return fmt.Errorf("stopping the agent of %s: %w", h.name, err)
	}
	select {
	case <-h.ended:
		return nil
	case <-time.After(patience):
		_ = h.agent.Process.Kill()
		return fmt.Errorf("the agent of %s did not stop within %v", h.name, patience)
	}
}

// alive says whether the agent still runs.
func (h *host) alive() error {
	select {
	case <-h.ended:
		return fmt.Errorf("the agent of %s: %w", h.name, errEnded)
	default:
		return nil
	}
}

// logCount counts how often the agent has logged the words.
func (h *host) logCount(words string) int {
	text, err := os.ReadFile(h.agentLog())
	if err != nil {
		return 0
	}
	return strings.Count(string(text), words)
}

// connections lists the entries of the kernel's table, in this host's namespace, that have the words in them.
func (h *host) connections(ctx context.Context, words ...string) ([]string, error) {
	var all []string
	for _, family := range []string{"ipv4", "ipv6"} {
		out, err := command(ctx, "ip", "netns", "exec", h.name, "conntrack", "-L", "-f", family)
		if err != nil {
			return nil, err
		}
	lines:
		for line := range strings.Lines(out) {
			if !strings.Contains(line, "src=") {
				continue
			}
			for _, w := range words {
				if !strings.Contains(line+" ", w) {
					continue lines
				}
			}
			all = append(all, strings.TrimSpace(line))
		}
	}
	return all, nil
}
