// SPDX-License-Identifier: Apache-2.0

package dnsforward

import (
	"flag"
	"net/netip"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/extension/extensiontest"
	"github.com/patchbay-sdn/patchbay/internal/metadata"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
)

var update = flag.Bool("update", false, "write the answers into testdata")

func ports(list ...string) (out []netip.AddrPort) {
	for _, text := range list {
		out = append(out, netip.MustParseAddrPort(text))
	}
	return out
}

func config() Config {
	return Config{Listen: ports("169.254.169.254:53", "[fd00::254]:53", "[fe80::a9fe:a9fe]:53", "[fe80::a9fe:a9fe]:54"), Upstream: ports("192.0.2.53:53", "[2001:db8::53]:53"), Timeout: 5 * time.Second}
}

func TestScripts(t *testing.T) {
	extensiontest.Run(t, "testdata/flows.script", *update, New(config()))
	silent := config()
	silent.Upstream = nil
	extensiontest.Run(t, "testdata/silent.script", *update, New(silent))
	beside := metadata.New(metadata.Config{CIDR: netip.MustParsePrefix("240.0.0.0/16"), VLAN: 1, BaseMAC: neutron.MAC{0xfa, 0x16, 0xee}, Port: 80})
	only := config()
	only.Listen = only.Listen[:1]
	extensiontest.Run(t, "testdata/metadata.script", *update, New(only), beside)
}
