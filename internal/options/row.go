// SPDX-License-Identifier: Apache-2.0

package options

import (
	"net"
	"os"
	"slices"

	"github.com/patchbay-sdn/patchbay/oslo/config"
)

// Support says how far Patchbay honours an option.
type Support int

// The degrees of support.
const (
	// Supported: the option does what it does in the Python agent.
	Supported Support = iota
	// NoEffect: accepted, but there is nothing for it to change here.
	NoEffect
	// Partly: some values ask for what Patchbay does not have, and stop it.
	Partly
)

func (s Support) String() string {
	switch s {
	case NoEffect:
		return "no effect"
	case Partly:
		return "partly"
	}
	return "yes"
}

// row is one line of the table: an option and what becomes of it.
type row struct {
	config.Option

	// field gives the place of the value in Options; nil when nothing reads it.
	field func(*Options) any

	support Support
	why     string // NoEffect: the reason; Partly: what is missing

	// refuse completes the sentence "[group] name = value …" for a value that
	// asks for something missing; "" when there is nothing to complain about.
	refuse func(v config.Value) []string
	// refuseWith does so where other options have a say.
	refuseWith func(*config.Config, config.Value) []string

	// advise does the same for a value that works, but hardly as intended.
	advise func(v config.Value) string

	releases string // Neutron releases that know it; "": all since 17
}

// identity is what the defaults take from the machine.
type identity struct{ hostname, program, ipv4, ipv6 string }

func thisMachine() identity {
	// An empty name is refused when the host option is read.
	name, _ := os.Hostname()
	return identity{
		hostname: name, program: Program,
		ipv4: sourceAddress("udp4", "8.8.8.8:80", "127.0.0.1"),
		ipv6: sourceAddress("udp6", "[2001:4860:4860::8888]:80", "::1"),
	}
}

// sourceAddress is the address from which the machine would talk to the rest of
// the world. Connecting a datagram socket asks the routing table and sends
// nothing.
func sourceAddress(network, remote, otherwise string) string {
	conn, err := net.Dial(network, remote)
	if err != nil {
		return otherwise
	}
	host, _, err := net.SplitHostPort(conn.LocalAddr().String())
	if closed := conn.Close(); err != nil || closed != nil {
		return otherwise
	}
	return host
}

// Program is the name under which the Python agent looks for its files.
const Program = "neutron-openvswitch-agent"

// project is the name under which all Neutron programs look for files.
const project = "neutron"

func rows(me identity) []row {
	return slices.Concat(
		defaultRows(me), messagingRows(), logRows(), ovsRows(), agentRows(), securityGroupRows(),
		rabbitRows(me), extensionRows(), libraryRows(), patchbayRows(),
	)
}

// Schema declares every option that Patchbay reads or accepts.
func Schema() (*config.Schema, error) {
	return schemaOf(rows(thisMachine()))
}

func schemaOf(rows []row) (*config.Schema, error) {
	declared := make([]config.Option, len(rows))
	for i, r := range rows {
		declared[i] = r.Option
	}
	return config.NewSchema(declared...)
}
