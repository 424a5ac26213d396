// SPDX-License-Identifier: Apache-2.0

package grouplog

import (
	"flag"
	"testing"

	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/extension/extensiontest"
)

var update = flag.Bool("update", false, "write the answers into testdata")

func TestScripts(t *testing.T) {
	extensiontest.Run(t, "testdata/*.script", *update, New(extension.Bound{Rate: 100, Burst: 25}))
}
