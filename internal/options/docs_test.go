// SPDX-License-Identifier: Apache-2.0

package options

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-sdn/patchbay/oslo/config"
)

var update = flag.Bool("update", false, "write generated files")

const (
	docsPath  = "../../docs/reference/configuration.md"
	docsBegin = "<!-- The tables below are generated: go test ./internal/options -run TestDocs -update -->\n"
)

// TestDocs keeps the tables in docs/reference/configuration.md equal to the rows.
func TestDocs(t *testing.T) {
	data, err := os.ReadFile(docsPath)
	if err != nil {
		t.Fatal(err)
	}
	prose, have, found := strings.Cut(string(data), docsBegin)
	if !found {
		t.Fatalf("%s lacks the line %q", docsPath, docsBegin)
	}
	want := optionTables()
	if *update {
		if err := os.WriteFile(docsPath, []byte(prose+docsBegin+want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("run go test ./internal/options -run TestDocs -update\n%s", diff)
	}
}

func optionTables() string {
	var b strings.Builder
	table := rows(identity{hostname: "(the system's host name)", program: Program, ipv4: "(found)", ipv6: "(found)"})
	b.WriteString(stops(table))
	group := ""
	for _, r := range table {
		id := r.ID()
		if strings.HasPrefix(id.Group, "privsep_") {
			continue // as [privsep]
		}
		if g := fileGroup(id.Group); g != group {
			group = g
			fmt.Fprintf(&b, "\n### [%s]\n\n| Option | Type | Default | Meaning | Support |\n|---|---|---|---|---|\n", group)
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", nameCell(r), cell(r.typeName()), defaultCell(r), cell(r.Help), supportCell(r))
	}
	return b.String()
}

// stops lists the options of which a value stops the start, and why.
func stops(table []row) string {
	var b strings.Builder
	b.WriteString("\n### Values that stop the start\n\n| Option | Why |\n|---|---|\n")
	for _, r := range table {
		if id := r.ID(); r.support == Partly {
			fmt.Fprintf(&b, "| `[%s] %s` | %s |\n", fileGroup(id.Group), id.Option, cell(r.why))
		}
	}
	b.WriteString("| `[DEFAULT] transport_url` | RabbitMQ is the only message broker: `rabbit://` |\n")
	b.WriteString("| `[DEFAULT] config_source` | there are no sources of configuration besides files, the environment and the command line |\n")
	return b.String()
}

func (r row) typeName() string {
	if r.Type == nil {
		return "string"
	}
	return r.Type.String()
}

func cell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }

func nameCell(r row) string {
	id := r.ID()
	s := "`" + id.Option + "`"
	var extra []string
	for _, d := range r.Deprecated {
		if d.Group == "" {
			d.Group = id.Group
		}
		if d.Option == "" {
			d.Option = id.Option
		}
		extra = append(extra, fmt.Sprintf("old: `[%s] %s`", fileGroup(d.Group), strings.ReplaceAll(d.Option, "-", "_")))
	}
	if r.CLI {
		extra = append(extra, "also `--"+r.Name+"`")
	}
	if r.Mutable {
		extra = append(extra, "taken over on SIGHUP")
	}
	if r.releases == notNeutrons {
		extra = append(extra, "not in Neutron")
	} else if r.releases != "" {
		extra = append(extra, strings.Replace("Neutron "+r.releases, "Neutron later", "later", 1))
	}
	if extra != nil {
		s += "<br>" + strings.Join(extra, "<br>")
	}
	return s
}

func defaultCell(r row) string {
	switch d := r.Default.(type) {
	case nil:
		return "–"
	case string:
		if d == "" {
			return "empty"
		}
		if strings.HasPrefix(d, "(") {
			return d
		}
		return "`" + cell(d) + "`"
	case []string:
		return "empty"
	default:
		return fmt.Sprintf("`%v`", d)
	}
}

func supportCell(r row) string {
	switch r.support {
	case NoEffect:
		return "no effect: " + cell(r.why)
	case Partly:
		return "partly: " + cell(r.why)
	}
	return "yes"
}

// TestRows holds the table to its own rules.
func TestRows(t *testing.T) {
	for _, r := range rows(identity{hostname: "h", program: "p"}) {
		id := r.ID()
		if r.Help == "" {
			t.Errorf("%s has no help", id)
		}
		if r.support != Supported && r.why == "" {
			t.Errorf("%s: %s without a reason", id, r.support)
		}
		if (r.support == Partly) != (r.refuse != nil || r.refuseWith != nil) {
			t.Errorf("%s: partly supported and refusing values must go together; a value that is wrong is refused in check.go", id)
		}
		if r.support == Supported && r.field == nil && !strings.HasPrefix(id.Option, "my_ip") {
			t.Errorf("%s is called supported, but its value goes nowhere", id)
		}
		if strings.Contains(id.Option, "secret") && !r.Secret {
			t.Errorf("%s looks secret and is not", id)
		}
	}
}

// TestDefaultsAreAccepted: an agent without any configuration has nothing to
// complain about but its missing firewall.
func TestDefaultsAreAccepted(t *testing.T) {
	path := write(t, "empty.conf", "")
	r, err := Check([]string{"--config-file", path, "--config-dir", t.TempDir()}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range r.Findings {
		if f.Option != "firewall_driver" {
			t.Errorf("%v", f)
		}
	}
	for _, s := range r.Settings {
		if s.Origin().Kind != config.FromDefault {
			t.Errorf("%v comes from %v", s.Name(), s.Origin())
		}
	}
}
