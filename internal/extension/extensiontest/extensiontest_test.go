// SPDX-License-Identifier: Apache-2.0

package extensiontest_test

import (
	"flag"
	"testing"

	"github.com/patchbay-sdn/patchbay/internal/extension/extensiontest"
	"github.com/patchbay-sdn/patchbay/internal/qos"
)

var update = flag.Bool("update", false, "write the answers into testdata")

func TestScripts(t *testing.T) {
	extensiontest.Run(t, "testdata/*.script", *update, qos.New)
}
