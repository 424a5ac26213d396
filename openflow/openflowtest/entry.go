// SPDX-License-Identifier: Apache-2.0

package openflowtest

import (
	"github.com/patchbay-sdn/patchbay/openflow"
)

// Failer is a test: of package testing, or of a package for properties.
type Failer interface {
	Helper()
	Fatal(args ...any)
}

// Flow is a flow as ovs-ofctl writes it. A text that is no flow ends the test.
func Flow(t Failer, text string) openflow.Flow {
	t.Helper()
	f, err := openflow.ParseFlow(text)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// Entry is such a flow, ready to be installed or compared.
func Entry(t Failer, text string) openflow.Entry {
	t.Helper()
	f := Flow(t, text)
	e, err := f.Entry()
	if err != nil {
		t.Fatal(err)
	}
	return e
}
