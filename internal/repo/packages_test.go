// SPDX-License-Identifier: Apache-2.0

package repo

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestPackagesHaveTheSameExamples: `make install`, which Debian's and rpm's own tools call, installs the examples that our packages have.
func TestPackagesHaveTheSameExamples(t *testing.T) {
	ours, err := os.ReadFile(filepath.Join("../..", "deploy/package/patchbay.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	install, err := os.ReadFile(filepath.Join("../..", "deploy/deploy.mk"))
	if err != nil {
		t.Fatal(err)
	}
	examples := regexp.MustCompile(`src: (\S+), dst: /usr/share/doc/patchbay/examples/`).FindAllStringSubmatch(string(ours), -1)
	if len(examples) < 5 {
		t.Fatalf("%d examples found", len(examples))
	}
	for _, e := range examples {
		if !strings.Contains(string(install), " "+e[1]+" ") {
			t.Errorf("deploy.mk does not install %s, and the packages have it", e[1])
		}
	}
}
