// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/agents"

	"github.com/patchbay-sdn/patchbay/lab/daemon"
)

// AgentKind is one of the two layer-2 agents.
type AgentKind string

// The agents. Both start from the same two files.
const (
	Python   AgentKind = "python"
	Patchbay AgentKind = "patchbay"
)

// EnvBinary is the environment variable that names the Patchbay binary; without it bin/patchbay is looked for, beside the
// running program and then in the directories above the current one.
const EnvBinary = "PATCHBAY_BIN"

const (
	agentType = "Open vSwitch agent"
	// agentTimeout bounds the wait for a new agent's first report.
	agentTimeout = 2 * time.Minute
	// stopGrace is what a clean stop may take. The Python agent looks for signals between two rounds of its loop.
	stopGrace = 30 * time.Second
	// threadedGrace is for agents that may not end at all.
	threadedGrace = 5 * time.Second
)

// ParseAgentKind reads the name of an agent.
func ParseAgentKind(s string) (AgentKind, error) {
	switch k := AgentKind(s); k {
	case Python, Patchbay:
		return k, nil
	}
	return "", fmt.Errorf("%q is no agent: write %s or %s", s, Python, Patchbay)
}

func (h *Host) agentDir() string { return filepath.Join(h.Dir(), "agent") }

// agent is the daemon of one kind. Both kinds share the directory with the configuration.
func (h *Host) agent(kind AgentKind) *daemon.Daemon { return daemon.Open(string(kind), h.agentDir()) }

// Agent tells which agent runs on the host and as which process; the pid is 0 when none does.
func (h *Host) Agent() (kind AgentKind, pid int) {
	for _, k := range []AgentKind{Python, Patchbay} {
		if pid := h.agent(k).PID(); pid != 0 {
			return k, pid
		}
	}
	return "", 0
}

// AgentFiles are the two configuration files as command-line arguments.
func (h *Host) AgentFiles() []string {
	return []string{
		"--config-file", filepath.Join(h.agentDir(), "neutron.conf"),
		"--config-file", filepath.Join(h.agentDir(), "ovs.ini"),
	}
}

func (h *Host) writeAgentConfig(overrides []string) error {
	if err := os.MkdirAll(h.agentDir(), 0o755); err != nil {
		return fmt.Errorf("making the agent's directory: %w", err)
	}
	neutron, ovs, err := agentConfig(agentParams{
		host: h.name, dir: h.agentDir(), transportURL: h.lab.TransportURL(), localIP: h.LocalIP(), queues: h.lab.snapshot().Queues, overrides: overrides,
	})
	if err != nil {
		return err
	}
	for name, text := range map[string]string{"neutron.conf": neutron, "ovs.ini": ovs} {
		if err := os.WriteFile(filepath.Join(h.agentDir(), name), []byte(text), 0o600); err != nil {
			return fmt.Errorf("writing the configuration of %s: %w", h.name, err)
		}
	}
	return nil
}

// StartAgent starts an agent with the default configuration plus overrides ("section.option=value") and returns once the
// server has heard from it. An agent that already runs is an error: stop it first.
func (h *Host) StartAgent(ctx context.Context, kind AgentKind, overrides ...string) error {
	ctx, cancel := context.WithTimeout(ctx, agentTimeout)
	defer cancel()
	last, err := h.freshSecond(ctx)
	if err != nil {
		return err
	}
	d, err := h.launch(ctx, kind, overrides)
	if err != nil {
		return err
	}
	for {
		a, err := h.AgentRecord(ctx)
		if err == nil && a != nil && a.Alive && a.HeartbeatTimestamp.After(last) {
			return nil
		}
		if d.PID() == 0 {
			return fmt.Errorf("the %s agent on %s exited\n%s", kind, h.name, d.LogTail(20))
		}
		if !pause(ctx, 100*time.Millisecond) {
			return fmt.Errorf("waiting for the %s agent on %s to be alive in the API: %w\n%s",
				kind, h.name, errors.Join(ctx.Err(), err), d.LogTail(20))
		}
	}
}

// LaunchAgent starts an agent as StartAgent does, but waits for nothing: for when no server could hear from it.
func (h *Host) LaunchAgent(ctx context.Context, kind AgentKind, overrides ...string) error {
	_, err := h.launch(ctx, kind, overrides)
	return err
}

func (h *Host) launch(ctx context.Context, kind AgentKind, overrides []string) (*daemon.Daemon, error) {
	argv, err := h.agentCommand(kind)
	if err != nil {
		return nil, err
	}
	if running, pid := h.Agent(); pid != 0 {
		return nil, fmt.Errorf("starting the %s agent on %s: the %s agent runs there as pid %d; stop it first", kind, h.name, running, pid)
	}
	if err := h.writeAgentConfig(overrides); err != nil {
		return nil, err
	}
	return daemon.Start(ctx, daemon.Spec{
		Name: string(kind), Dir: h.agentDir(), Netns: h.netns, Argv: argv,
		Env: append([]string{"OVS_RUNDIR=" + h.Switch().Dir()}, h.lab.agentEnv...),
	})
}

// freshSecond returns the time of the last report from this host, after making sure that the next one will differ from it:
// the API tells times in whole seconds.
func (h *Host) freshSecond(ctx context.Context) (time.Time, error) {
	a, err := h.AgentRecord(ctx)
	if err != nil || a == nil {
		return time.Time{}, err
	}
	last := a.HeartbeatTimestamp
	if wait := time.Until(last.Add(time.Second)); wait > 0 && !pause(ctx, min(wait, time.Second)) {
		return last, ctx.Err()
	}
	return last, nil
}

func (h *Host) agentCommand(kind AgentKind) ([]string, error) {
	if kind == Python {
		return h.lab.neutronCommand(append([]string{"/usr/bin/neutron-openvswitch-agent"}, h.AgentFiles()...)...), nil
	}
	binary, err := findBinary(EnvBinary, "patchbay")
	if err != nil {
		return nil, err
	}
	return append([]string{binary, "agent"}, h.AgentFiles()...), nil
}

// findBinary looks for a program of ours: where the variable says, beside this one, or in a bin directory here or above.
func findBinary(variable, name string) (string, error) {
	if p := os.Getenv(variable); p != "" {
		p, err := filepath.Abs(p)
		if err != nil {
			return "", fmt.Errorf("resolving %s: %w", variable, err)
		}
		return p, nil
	}
	var candidates []string
	if self, err := os.Executable(); err == nil {
		candidates = append(candidates, filepath.Join(filepath.Dir(self), name))
	}
	if dir, err := os.Getwd(); err == nil {
		for ; dir != "/"; dir = filepath.Dir(dir) {
			candidates = append(candidates, filepath.Join(dir, "bin", name))
		}
	}
	for _, p := range candidates {
		if info, err := os.Stat(p); err == nil && info.Mode().IsRegular() {
			return p, nil
		}
	}
	return "", fmt.Errorf("no bin/%s here or above: run make build, or name it in %s", name, variable)
}

// AgentRecord is what the API says about the host's agent; nil when it has never reported.
func (h *Host) AgentRecord(ctx context.Context) (*agents.Agent, error) {
	pages, err := agents.List(h.lab.Neutron(), agents.ListOpts{Host: h.name, AgentType: agentType}).AllPages(ctx)
	if err != nil {
		return nil, fmt.Errorf("asking for the agent of %s: %w", h.name, err)
	}
	list, err := agents.ExtractAgents(pages)
	if err != nil {
		return nil, fmt.Errorf("reading the agent of %s: %w", h.name, err)
	}
	if len(list) == 0 {
		return nil, nil
	}
	return &list[0], nil
}

// StopAgent stops whichever agent runs, as a service manager would, and with it every helper it had started.
func (h *Host) StopAgent(ctx context.Context) error {
	if kind, pid := h.Agent(); pid != 0 {
		grace := stopGrace
		if kind == Python {
			grace = h.lab.grace()
		}
		return h.agent(kind).Stop(ctx, grace)
	}
	return nil
}

// grace is what a clean stop of Neutron's own programs may take.
func (l *Lab) grace() time.Duration {
	if l.threaded() {
		return threadedGrace
	}
	return stopGrace
}

// KillAgent ends whichever agent runs and every helper it had started, at once.
func (h *Host) KillAgent() error {
	if kind, pid := h.Agent(); pid != 0 {
		return h.agent(kind).Kill()
	}
	return nil
}

// SignalAgent sends a signal to the agent's main process only: SIGHUP to reload, SIGKILL to crash it.
func (h *Host) SignalAgent(sig syscall.Signal) error {
	kind, pid := h.Agent()
	if pid == 0 {
		return fmt.Errorf("no agent runs on %s", h.name)
	}
	return h.agent(kind).Signal(sig)
}

// AgentLog is the log file of an agent of that kind; it is appended to over restarts.
func (h *Host) AgentLog(kind AgentKind) string { return h.agent(kind).LogFile() }
