// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"flag"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/extension/extensiontest"
)

var update = flag.Bool("update", false, "write the answers into testdata")

func TestScripts(t *testing.T) {
	cfg := Config{IPv6: true, MAC: baseMAC, Domain: "openstacklocal", Lease: 86400 * time.Second}
	extensiontest.Run(t, "testdata/*.script", *update, New(cfg))
}
