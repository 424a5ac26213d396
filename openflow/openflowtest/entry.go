// SPDX-License-Identifier: Apache-2.0

package openflowtest

import (
	"testing"

	"github.com/patchbay-sdn/patchbay/openflow"
)

// Entry is a flow as ovs-ofctl writes it, ready to be installed or compared. A text that is no flow ends the test.
func Entry(t testing.TB, text string) openflow.Entry {
	t.Helper()
	f, err := openflow.ParseFlow(text)
	if err != nil {
		t.Fatal(err)
	}
	e, err := f.Entry()
	if err != nil {
		t.Fatal(err)
	}
	return e
}
