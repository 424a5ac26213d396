// SPDX-License-Identifier: Apache-2.0

// Command patchbay is the Open vSwitch L2 agent of an OpenStack node, and the operator's tool for it.
//
// Started under the name neutron-openvswitch-agent (a link to this binary) it is the daemon at once and takes the
// Python agent's arguments, so that unit files and deployment tools need no change. So it is when the file has capabilities.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
)

// version is stamped by the build.
var version = "unknown"

// daemonName is the name under which the binary is the drop-in daemon.
const daemonName = "neutron-openvswitch-agent"

func main() {
	if !privilegedFile() {
		os.Exit(execute())
	}
	openToChecks(execute)
}

// execute runs the command that the arguments name, and returns the exit status.
func execute() int {
	root := newRootCommand()
	args := os.Args[1:]
	if filepath.Base(os.Args[0]) == daemonName || privilegedFile() {
		args = append([]string{"agent"}, args...)
	}
	root.SetArgs(args)
	root.SetOut(&plain{to: os.Stdout})
	root.SetErr(&plain{to: os.Stderr})
	if err := root.Execute(); err != nil {
		if text := err.Error(); text != "" {
			fmt.Fprintln(root.ErrOrStderr(), "patchbay:", text)
		}
		return exitStatus(err)
	}
	return 0
}

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "patchbay",
		Short:         "Open vSwitch L2 agent for OpenStack Neutron",
		Version:       version,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(newAgentCommand(), newConfigCommand(), newFlowsCommand(), newMapCommand())
	root.AddCommand(newTraceCommand(), newExplainCommand())
	root.AddCommand(newPlanCommand())
	root.AddCommand(newShowCommands()...)
	return root
}

// exitStatus is the status with which the process ends for an error: the one that the error asks for, or 1.
func exitStatus(err error) int {
	var status interface{ ExitStatus() int }
	if errors.As(err, &status) {
		return status.ExitStatus()
	}
	return 1
}
