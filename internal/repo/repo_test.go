// SPDX-License-Identifier: Apache-2.0

package repo

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/patchbay-sdn/patchbay/"

// mayImport says which packages of this module each package may import, by path prefix. A package that is not listed
// fails the test: its place in the direction of imports has to be decided first, and written here and in
// docs/explanation/architecture.md.
var mayImport = map[string][]string{
	"openflow":                     {},
	"oslo/config":                  {},
	"oslo/messaging":               {"internal/rawjson"},
	"internal/rawjson":             {},
	"internal/tables":              {},
	"internal/options":             {"oslo/config", "oslo/messaging"},
	"internal/neutron":             {"oslo/messaging", "internal/rawjson"},
	"internal/ovsdb":               {},
	"internal/fake":                {"openflow", "internal/neutron", "internal/ovsdb", "internal/world"},
	"internal/script":              {},
	"internal/unixctl":             {},
	"internal/netlink":             {},
	"internal/netlink/netlinktest": {},
	"internal/conntrack":           {"internal/unixctl", "internal/netlink"},
	"internal/observe":             {},
	"internal/snapshot":            {},
	"internal/inspect":             {},
	"internal/admin":               {"internal/inspect"},
	"internal/trace":               {"internal/inspect", "internal/tables", "openflow"},
	"internal/capture":             {"internal/trace"},
	"internal/fleet":               {},
	"internal/hostmap":             {"internal/inspect"},
	"internal/world":               {"internal/neutron", "internal/ovsdb", "internal/rawjson"},
	"internal/pipeline":            {"internal/world", "internal/neutron", "internal/ovsdb", "openflow"},
	"internal/forwarding":          {"internal/netlink", "openflow"},
	"internal/metaproxy":           {"internal/netlink", "internal/pace", "openflow"},
	"internal/datagram":            {"internal/neutron"},
	"internal/resolver":            {},
	"internal/pace":                {},
	"internal/gate":                {},
	"internal/zones":               {"internal/pace", "internal/conntrack"},
	"internal/pull":                {"internal/neutron", "internal/pace"},
	"internal/report":              {"internal/neutron", "internal/ovsdb", "internal/pace", "internal/world"},
	"internal/delta":               {"internal/world", "internal/ovsdb", "openflow"},
	"internal/iptables":            {"internal/world", "internal/neutron", "internal/conntrack"},
	"internal/hybrid":              {"internal/iptables", "internal/world", "internal/pace"},
	"internal/dataplane":           {"internal/delta", "internal/pace", "internal/pipeline", "internal/world", "internal/ovsdb", "openflow"},
	"internal/dvr":                 {"internal/extension", "internal/world", "internal/pipeline", "internal/neutron", "openflow"},
	"internal/fdb": {
		"internal/extension", "internal/forwarding", "internal/world", "internal/pipeline", "internal/neutron", "openflow",
	},
	"internal/metadata": {
		"internal/extension", "internal/metaproxy", "internal/world", "internal/pipeline", "internal/neutron", "internal/ovsdb", "openflow",
	},
	"internal/extension": {"internal/forwarding", "internal/metaproxy", "internal/resolver", "internal/world", "internal/pipeline", "internal/neutron", "internal/ovsdb", "openflow"},
	"internal/extension/extensiontest": {
		"internal/extension", "internal/script", "internal/world", "internal/pipeline", "internal/neutron", "internal/ovsdb", "internal/forwarding", "openflow",
	},
	"internal/qos": {
		"internal/extension", "internal/world", "internal/pipeline", "internal/neutron", "internal/ovsdb", "openflow",
	},
	"internal/mirror":  {"internal/extension", "internal/world", "internal/pipeline", "internal/neutron", "internal/ovsdb", "openflow"},
	"internal/localip": {"internal/extension", "internal/world", "internal/pipeline", "internal/neutron", "openflow"},
	"internal/dhcp":    {"internal/datagram", "internal/extension", "internal/world", "internal/pipeline", "internal/neutron", "openflow"},
	"internal/dnsforward": {
		"internal/datagram", "internal/extension", "internal/resolver", "internal/world", "internal/pipeline", "internal/neutron", "openflow",
	},
	"internal/grouplog": {
		"internal/extension", "internal/world", "internal/pipeline", "internal/neutron", "internal/pace", "openflow",
	},
	"internal/trunk": {"internal/extension", "internal/world", "internal/pipeline", "internal/neutron", "internal/ovsdb"},
	"internal/repo":  {},
	"internal/effect": {
		"openflow", "oslo/messaging", "internal/neutron", "internal/ovsdb", "internal/world", "internal/delta", "internal/dataplane", "internal/pull",
		"internal/report", "internal/zones", "internal/extension", "internal/iptables", "internal/forwarding", "internal/metaproxy", "internal/resolver",
	},
	"internal/core": {
		"openflow", "oslo/messaging", "internal/effect", "internal/neutron", "internal/ovsdb", "internal/conntrack", "internal/world", "internal/pipeline",
		"internal/delta", "internal/dataplane", "internal/gate", "internal/pace", "internal/pull", "internal/report", "internal/zones", "internal/inspect",
		"internal/extension", "internal/hybrid", "internal/iptables", "internal/forwarding", "internal/metaproxy", "internal/resolver",
	},
	"internal/tape": {
		"openflow", "oslo/messaging", "internal/core", "internal/effect", "internal/neutron", "internal/ovsdb", "internal/conntrack", "internal/world", "internal/pipeline",
		"internal/dataplane", "internal/pull", "internal/report", "internal/zones", "internal/extension", "internal/iptables", "internal/forwarding", "internal/metaproxy", "internal/resolver",
		"internal/rawjson",
	},
	"internal/runner": {
		"openflow", "oslo/messaging", "internal/effect", "internal/neutron", "internal/observe", "internal/conntrack", "internal/world", "internal/dataplane",
		"internal/pull", "internal/zones", "internal/snapshot", "internal/iptables", "internal/extension", "internal/pace", "internal/forwarding", "internal/metaproxy", "internal/resolver",
	},
	"internal/agent": {
		"openflow", "oslo", "internal/options", "internal/effect", "internal/core", "internal/tape", "internal/runner", "internal/neutron", "internal/ovsdb", "internal/observe",
		"internal/world", "internal/pipeline", "internal/delta", "internal/dataplane", "internal/snapshot", "internal/inspect", "internal/extension", "internal/iptables",
	},
	"internal/plan": {
		"openflow", "oslo/messaging", "internal/agent", "internal/neutron", "internal/ovsdb", "internal/observe", "internal/world",
		"internal/conntrack", "internal/iptables", "internal/forwarding", "internal/metaproxy",
	},
	"lab":          {"lab"},
	"lab/release":  {},
	"lab/broker":   {"lab/release"},
	"lab/vswitch":  {"lab/release"},
	"lab/ovn":      {"lab"},
	"lab/floor":    {"lab", "openflow", "oslo", "internal"},
	"lab/fleet":    {"lab", "openflow", "oslo", "internal", "parity"},
	"lab/onehost":  {"lab", "openflow", "oslo", "internal"},
	"lab/sim":      {"oslo"},
	"cmd/lab":      {"lab"},
	"cmd/patchbay": {"openflow", "oslo", "internal"},
	"parity":       {"lab", "openflow", "oslo", "internal"},
	"bench":        {"lab", "openflow", "oslo", "internal"},
	"deploy":       {},
	"tools":        {},
}

type listed struct {
	ImportPath string
	Name       string
	Doc        string
	Imports    []string
	GoFiles    []string
}

func packages(t *testing.T) []listed {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Name,Doc,Imports,GoFiles", module+"...")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []listed
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

// rule finds the entry of mayImport with the longest prefix of the package's path.
func rule(path string) (string, bool) {
	best, found := "", false
	for prefix := range mayImport {
		if under(path, prefix) && len(prefix) >= len(best) {
			best, found = prefix, true
		}
	}
	return best, found
}

func under(path, prefix string) bool {
	return path == prefix || strings.HasPrefix(path, prefix+"/")
}

func TestImportsGoOneWay(t *testing.T) {
	for _, p := range packages(t) {
		path := strings.TrimPrefix(p.ImportPath, module)
		name, ok := rule(path)
		if !ok {
			t.Errorf("%s has no entry in mayImport: decide what it may import", path)
			continue
		}
	imports:
		for _, imp := range p.Imports {
			other, ours := strings.CutPrefix(imp, module)
			if !ours || under(other, name) {
				continue
			}
			for _, allowed := range mayImport[name] {
				if under(other, allowed) {
					continue imports
				}
			}
			t.Errorf("%s imports %s: not in the direction of docs/explanation/architecture.md", path, other)
		}
	}
}

// forTests are packages that only tests import.
var forTests = []string{"internal/fake", "internal/script", "openflow/openflowtest", "internal/extension/extensiontest", "internal/netlink/netlinktest", "lab/peer", "lab/onehost"}

// tests are packages that are tests by themselves: a command of the lab runs them.
var tests = []string{"lab/fleet"}

func TestSupportOfTestsStaysInTests(t *testing.T) {
	for _, p := range packages(t) {
		for _, imp := range p.Imports {
			other := strings.TrimPrefix(imp, module)
			if slices.Contains(forTests, other) && !slices.Contains(slices.Concat(forTests, tests), strings.TrimPrefix(p.ImportPath, module)) {
				t.Errorf("%s imports %s, which is for tests", p.ImportPath, other)
			}
		}
	}
}

func TestEveryPackageSaysWhatItIsFor(t *testing.T) {
	for _, p := range packages(t) {
		if len(p.GoFiles) > 0 && len(p.Doc) < 40 {
			t.Errorf("%s: no package comment that a newcomer could start from (%q)", p.ImportPath, p.Doc)
		}
	}
}

func TestFiles(t *testing.T) {
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != root && strings.HasPrefix(d.Name(), ".") {
			return filepath.SkipDir
		}
		if d.IsDir() || filepath.Ext(path) != ".go" {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if !bytes.HasPrefix(text, []byte("// SPDX-License-Identifier: Apache-2.0\n")) {
			t.Errorf("%s does not begin with the licence line", path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
