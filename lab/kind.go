// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"net"
	"os"
	"strconv"
)

// ServerKind is which server a lab has.
type ServerKind string

const (
	// RealServer is neutron-server with MariaDB.
	RealServer ServerKind = ""
	// Simulated is the server of package sim, in a process of its own.
	Simulated ServerKind = "sim"
	// NoServer leaves the place free: a test serves the agents itself, at TransportURL and APIAddr.
	NoServer ServerKind = "none"
)

const (
	// EnvServer is the environment variable that names the kind of server of new labs.
	EnvServer = "PATCHBAY_LAB_SERVER"
	// EnvUnkind says how unkind the simulated server of a lab is.
	EnvUnkind = "PATCHBAY_LAB_UNKIND"
	// EnvWorkers is how many processes of neutron-server serve RPC: one, unless it says more.
	EnvWorkers = "PATCHBAY_LAB_RPC_WORKERS"
	// EnvPlugins are service plugins of neutron-server besides router, trunk and qos, separated by commas.
	EnvPlugins = "PATCHBAY_LAB_PLUGINS"
	// EnvRelease says of which release the server of a new lab is: the simulated one, or Neutron as Options.Release has it.
	EnvRelease = "PATCHBAY_LAB_RELEASE"
	// envLab names the lab binary that runs the simulated server.
	envLab = "PATCHBAY_LAB_BIN"
)

func resolveServer(k ServerKind) (ServerKind, error) {
	if k == "" {
		k = ServerKind(os.Getenv(EnvServer))
	}
	switch k {
	case RealServer, Simulated, NoServer:
		return k, nil
	case "real":
		return RealServer, nil
	}
	return "", fmt.Errorf("a lab has no server of the kind %q: there are real, sim and none", k)
}

// APIAddr is where the Networking API listens.
func (l *Lab) APIAddr() string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(l.snapshot().APIPort))
}

func (l *Lab) simCommand() ([]string, error) {
	binary, err := findBinary(envLab, "lab")
	if err != nil {
		return nil, err
	}
	command := []string{binary, "sim", "--url", l.TransportURL(), "--api", l.APIAddr()}
	for flag, env := range map[string]string{"--unkind": EnvUnkind, "--release": EnvRelease} {
		if value := os.Getenv(env); value != "" {
			command = append(command, flag, value)
		}
	}
	return command, nil
}
