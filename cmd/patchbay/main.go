// SPDX-License-Identifier: Apache-2.0

// Command patchbay is the Open vSwitch L2 agent of an OpenStack node, and the operator's tool for it.
//
// Started under the name neutron-openvswitch-agent (a link to this binary) it is the daemon at once and takes the
// Python agent's arguments, so that unit files and deployment tools need no change. So it is when the file has capabilities.
package main

import (
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
	root.SetOut(&plain{to: os.Stdout})
	root.SetErr(&plain{to: os.Stderr})
	return runCommand(root, args)
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
	root.AddCommand(newTraceCommand(), newExplainCommand(), newCaptureCommand())
	root.AddCommand(newPlanCommand(), newFleetCommand(), newReplayCommand(), newVersionCommand())
	root.Flags().Bool("version", false, "print the version") // without the short -v, which means verbose everywhere
	root.PersistentFlags().Bool(noColor, false, "print no terminal control codes; the environment variable NO_COLOR does the same")
	root.AddCommand(newShowCommands()...)
	return root
}
