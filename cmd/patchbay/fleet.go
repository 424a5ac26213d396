// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchbay-sdn/patchbay/internal/fleet"
)

// fleetFlags are the flags of all commands about many hosts.
type fleetFlags struct {
	Hosts    string
	Group    string
	Connect  string
	Parallel int
	Timeout  time.Duration
	Output   format
}

func (f *fleetFlags) add(cmd *cobra.Command, formats ...string) {
	fl := cmd.Flags()
	fl.StringVar(&f.Hosts, "hosts", "", "file with the hosts, - for standard input: one host a line, an Ansible inventory (INI), or the output of openstack network agent list -f json")
	fl.StringVar(&f.Group, "group", "", "only hosts of this group of the inventory")
	fl.StringVar(&f.Connect, "connect", "ssh -o BatchMode=yes -o ConnectTimeout=10 {host}", "program that runs a command on a host; the command is its last argument")
	fl.IntVar(&f.Parallel, "parallel", 20, "on how many hosts to run a command at a time")
	fl.DurationVar(&f.Timeout, "timeout", 2*time.Minute, "how long one command on one host may take")
	f.Output.add(cmd, formats...)
}

// open reads the list of hosts.
func (f *fleetFlags) open(in io.Reader) (*fleet.Fleet, error) {
	run, err := fleet.Connect(strings.Fields(f.Connect))
	if err != nil {
		return nil, usage{fmt.Errorf("--connect: %w", err)}
	}
	var data []byte
	switch f.Hosts {
	case "":
		return nil, usage{errors.New("give the hosts: --hosts FILE")}
	case "-":
		data, err = io.ReadAll(in)
	default:
		data, err = os.ReadFile(f.Hosts)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the hosts: %w", err)
	}
	hosts, err := fleet.ReadHosts(data, f.Group)
	if err != nil {
		return nil, usage{fmt.Errorf("--hosts %s: %w", f.Hosts, err)}
	}
	return &fleet.Fleet{Hosts: hosts, Run: run, Parallel: f.Parallel, Timeout: f.Timeout}, nil
}

func newFleetCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "fleet",
		Short: "Show the state of many hosts by ssh, and move hosts from the Python agent to Patchbay and back",
		Args:  argumentsOf(0, 0),
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newFleetStatusCommand(), newFleetCheckCommand(), newFleetPlanCommand(), newFleetSwitchCommand())
	return cmd
}

// Commands that are run on hosts. agentArgs are the arguments of the host's own service.
const (
	agentArgs    = "$(/usr/lib/patchbay/agent-args)"
	remoteStatus = "patchbay status -o json"
	remoteVerify = "patchbay status -o json --wait 1m"
	remoteCheck  = "patchbay config check -o json " + agentArgs
	remotePlan   = "patchbay plan -o json " + agentArgs
)

// hostLine is what a command about many hosts says about one.
type hostLine struct {
	Host  string   `json:"host"`
	State string   `json:"state"`
	Why   string   `json:"why,omitempty"`
	Cells []string `json:"-"`
	// Facts are for programs.
	Facts map[string]any `json:"facts,omitempty"`
	good  bool
}

// look is a command that is run on all hosts, and how its answers are shown.
type look struct {
	command string
	heads   []string
	read    func(fleet.Answer) hostLine
	// sum is a line below the table, or "".
	sum func([]hostLine) string
}

// ask runs a command on all hosts and prints a table in the order of the list, and lines that sum it up.
func (f *fleetFlags) ask(cmd *cobra.Command, l look) error {
	fl, err := f.open(cmd.InOrStdin())
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	lines := map[string]hostLine{}
	progress := redraws(cmd, os.Stderr)
	if err := fl.Ask(ctx, fl.Hosts, l.command, func(a fleet.Answer) {
		lines[a.Host] = l.read(a)
		if progress {
			fmt.Fprintf(os.Stderr, "\r%d of %d hosts", len(lines), len(fl.Hosts))
		}
	}); err != nil {
		return err
	}
	if progress {
		fmt.Fprint(os.Stderr, "\r")
	}
	var list []hostLine
	for _, h := range fl.Hosts {
		list = append(list, lines[h])
	}
	switch {
	case f.Output.forPrograms():
		err = f.Output.write(cmd.OutOrStdout(), list)
	case f.Output.name == formatHTML:
		err = fleet.Picture(cmd.OutOrStdout(), tiles(list), shownAt(cmd.Context()))
	default:
		writeFleet(cmd.OutOrStdout(), l.heads, list)
		if l.sum != nil {
			fmt.Fprint(cmd.OutOrStdout(), l.sum(list))
		}
	}
	if err == nil && slices.ContainsFunc(list, func(l hostLine) bool { return !l.good }) {
		err = ended{status: exitFinding}
	}
	return err
}

// writeFleet prints a line for each host, and how many there are of each state.
func writeFleet(out io.Writer, heads []string, list []hostLine) {
	w := newTable(out, append(append([]string{"HOST", "STATE"}, heads...), "WHY")...)
	counts := map[string]int{}
	for _, l := range list {
		counts[l.State]++
		row := []any{l.Host, l.State}
		for i := range heads {
			cell := ""
			if i < len(l.Cells) {
				cell = l.Cells[i]
			}
			row = append(row, cell)
		}
		w.row(append(row, l.Why)...)
	}
	w.flush()
	fmt.Fprintf(out, "\n%s: %s\n", plural(len(list), "host"), states(counts))
}

// States of a host on which Patchbay does not run.
const (
	stateNoAgent      = "no Patchbay runs"
	stateNotInstalled = "not installed"
)

// unread is the line of a host that gave no document.
func unread(a fleet.Answer) hostLine {
	l := hostLine{Host: a.Host, State: "failed", Why: a.Errs}
	switch a.Status {
	case fleet.Unreachable:
		l.State = "not reached"
	case exitNoAgent:
		l.State = stateNoAgent
	case 127:
		l.State = stateNotInstalled
	}
	return l
}

// runLocally runs a command of the operator's on this host.
func runLocally(ctx context.Context, command string, batch []string) error {
	c := exec.CommandContext(ctx, "sh", "-c", command)
	c.Env = append(os.Environ(), "PATCHBAY_HOSTS="+strings.Join(batch, " "))
	out, err := c.CombinedOutput()
	if err == nil {
		return nil
	}
	last := ""
	for s := bufio.NewScanner(strings.NewReader(string(out))); s.Scan(); {
		last = s.Text()
	}
	return fmt.Errorf("%s: %w: %s", command, err, last)
}

func decode[T any](a fleet.Answer) (doc T, ok bool) {
	return doc, json.Unmarshal(a.Out, &doc) == nil
}
