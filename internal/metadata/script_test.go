// SPDX-License-Identifier: Apache-2.0

package metadata

import (
	"flag"
	"net/netip"
	"testing"

	"github.com/patchbay-sdn/patchbay/internal/extension/extensiontest"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
)

var update = flag.Bool("update", false, "write the answers into testdata")

func config(cidr string) Config {
	return Config{CIDR: netip.MustParsePrefix(cidr), VLAN: 1, BaseMAC: neutron.MAC{0xfa, 0x16, 0xee}, Port: 8080}
}

func TestScripts(t *testing.T) {
	extensiontest.Run(t, "testdata/*.script", *update, New(config("240.0.0.0/16")))
}
