// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestToolsPage: every archive of a deployment tool is a row, and the figures of a run become cells of the page.
func TestToolsPage(t *testing.T) {
	archives, err := filepath.Glob("../../cmd/patchbay/testdata/tools/*.txtar")
	if err != nil || len(archives) == 0 {
		t.Fatal(err)
	}
	var rows, images []string
	for _, l := range toolLabs() {
		for _, d := range l.tools {
			rows = append(rows, d.fixture)
			if d.image() {
				images = append(images, d.fixture)
			}
		}
	}
	for _, path := range archives {
		if name := strings.TrimSuffix(filepath.Base(path), ".txtar"); !slices.Contains(rows, name) {
			t.Errorf("%s is no row", name)
		}
	}
	if len(rows) != len(archives) {
		t.Errorf("%d rows, %d archives", len(rows), len(archives))
	}
	const output = `
| tool | Neutron | runs in | starts | registers | hybrid VM | plain VM | health check | log | due: sent | arrived | forbidden: sent | arrived | seconds | |
|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|
| debian-26 | 26.0.3 (trixie) | systemd | yes | yes | yes | no | yes | yes | 350 | 349 | 340 | 2 | 33 | 13 lines |
1 tools, 6 cells, 1 failed, 132 s with the labs' start

| image | program | first process | user | capabilities | files | read-only root | probes | snapshot | stop |
|---|---|---|---|---|---|---|---|---|---|
| contract helm-master | yes | yes | yes | yes | – | yes | yes | **no** | yes |
1 images, 8 points of contracts, 1 failed
`
	b := &book{items: toolItems("x"), results: map[string]*result{}}
	for _, it := range b.items {
		if it.name != "e2e-tools-26" {
			continue
		}
		o := it.judge(output, nil)
		if o.Verdict != isShort || o.Figures["due"] != "350" || o.Figures["arrived"] != "349" || o.Figures["forbidden"] != "340" || o.Figures["passed"] != "2" || o.Figures["failed"] != "1" {
			t.Errorf("%+v", o)
		}
		b.results[it.name] = &result{Item: it.name, outcome: o}
	}
	for _, it := range b.items {
		if it.name == "e2e-tools-29" {
			o := it.judge(output, nil)
			if o.Figures["broken"] != "1" || o.Figures["helm-master contract"] == "" {
				t.Errorf("%+v", o)
			}
			b.results[it.name] = &result{Item: it.name, outcome: o}
		}
	}
	page := b.toolsPage()
	want := "| 26.0.3 (trixie) | systemd | yes | yes | yes | **no** | yes | yes | 350, 349 | 340, 2 | "
	if !strings.Contains(page, want) || strings.Count(page, " not run |\n") != len(rows)-1+len(images)-1 {
		t.Errorf("%s\nlacks %s", page, want)
	}
	if point := "| openstack-helm, master | yes | yes | yes | yes | – | yes | yes | **no** | yes | "; !strings.Contains(page, point) {
		t.Errorf("%s\nlacks %s", page, point)
	}
	if os.Getenv("PRINT_PAGE") != "" {
		t.Log(page)
	}
}
