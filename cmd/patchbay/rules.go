// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"io/fs"
	"os"

	"github.com/patchbay-sdn/patchbay/internal/iptables"
	"github.com/patchbay-sdn/patchbay/internal/options"
)

// hostRules is the iptables of this host, and what rules depend on.
func hostRules(o *options.Options) (*iptables.Host, *iptables.Config) {
	_, err := os.Stat("/proc/sys/net/ipv6")
	// Without the file iptables has the names that are built in.
	protocols, _ := os.ReadFile("/etc/protocols")
	return &iptables.Host{
			Runner: iptables.Exec{Capabilities: handedDown()}, LockDir: o.LockPath, NoIPv6: errors.Is(err, fs.ErrNotExist), Sys: os.DirFS("/proc/sys"),
		}, &iptables.Config{
			Protocols: iptables.ReadProtocols(protocols), NoComments: !o.Agent.RuleComments, NoSets: !o.SecurityGroup.IPSets,
		}
}
