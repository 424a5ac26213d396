// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"os"

	"github.com/spf13/cobra"

	"github.com/patchbay-sdn/patchbay/internal/admin"
	"github.com/patchbay-sdn/patchbay/internal/options"
)

// socketVariable names the agent's socket for every command.
const socketVariable = "PATCHBAY_SOCKET"

// askFlags are the flags of every command that asks the running agent.
type askFlags struct {
	Socket string
	Output format
}

// add declares them. More are the formats that the command has besides JSON and YAML.
func (f *askFlags) add(cmd *cobra.Command, more ...string) {
	f.addSocket(cmd)
	f.Output.add(cmd, more...)
}

// addSocket declares the one of commands that print no documents.
func (f *askFlags) addSocket(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.Socket, "socket", "", "socket of the agent (default $"+socketVariable+", else the socket in the configuration of this host, or of the agent that runs on it)")
}

// client is the way to the agent.
func (f *askFlags) client() *admin.Client { return admin.NewClient(f.path(os.Environ())) }

// path is where the agent listens: as given, as the environment says, as the configuration in the default places says, or as the agent
// says that runs here.
func (f *askFlags) path(env []string) string {
	if path := cmp.Or(f.Socket, os.Getenv(socketVariable)); path != "" {
		return path
	}
	path := defaultSocket
	if o, err := options.Load(nil, env); err == nil && o.Patchbay.AdminSocket != "" {
		path = o.Patchbay.AdminSocket
	}
	return chooseSocket(path, exists, func() string { return runningSocket(os.DirFS("/proc"), env, exists) })
}

// chooseSocket returns the configured socket, or that of a running agent where there is none: it may have been started with other files.
func chooseSocket(configured string, exists func(string) bool, running func() string) string {
	if exists(configured) {
		return configured
	}
	return cmp.Or(running(), configured)
}

// defaultSocket is that of an agent without configuration.
const defaultSocket = "/var/lib/neutron/patchbay.sock"
