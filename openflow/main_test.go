// SPDX-License-Identifier: Apache-2.0

package openflow

import (
	"flag"
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var update = flag.Bool("update", false, "write the golden files")

func writeFile(t testing.TB, name string, data []byte) {
	t.Helper()
	if err := os.WriteFile(name, data, 0o644); err != nil {
		t.Fatal(err)
	}
}

// Adds is for the tests outside the package.
func Adds(entries []Entry) []Message { return adds(entries) }

// adds makes the messages that add flows.
func adds(entries []Entry) []Message {
	msgs := make([]Message, len(entries))
	for i, e := range entries {
		msgs[i] = AddFlow(e)
	}
	return msgs
}
