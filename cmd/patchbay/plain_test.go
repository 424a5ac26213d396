// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/patchbay-sdn/patchbay/internal/admin"
)

// What tenants write into names does not reach the terminal as a command.
func TestNamesAreNotObeyed(t *testing.T) {
	src := exampleAgent()
	src.ports[0].Name = "web\x1b[2J\x1b]0;owned\a\u009b31m\r\x7f\x00é"
	src.groups[0].Name = "default\x1b[31m"
	socket := served(t, src, admin.Options{})
	for _, args := range [][]string{{"ports"}, {"port", "4f1c-1"}, {"groups"}, {"group", "g1"}, {"explain", "4f1c-1", "--db", "unix:/none"}, {"ports", "--json"}} {
		root := newRootCommand()
		var out bytes.Buffer
		root.SetOut(&plain{to: &out})
		root.SetErr(&plain{to: &out})
		root.SetArgs(append(args, "--socket", socket))
		if err := root.Execute(); err != nil {
			t.Fatalf("%s: %v\n%s", args, err, &out)
		}
		if strings.ContainsAny(out.String(), "\x1b\a\r\x7f\x00\u009b") {
			t.Errorf("%s: %q", args, out.String())
		}
	}
	var out bytes.Buffer
	p := &plain{to: &out}
	fmt.Fprint(p, "→ é\t\n\xc2")
	fmt.Fprint(p, "\x9b")
	if out.String() != "→ é\t\n\xc2?" {
		t.Errorf("%q", out.String())
	}
}
