// SPDX-License-Identifier: Apache-2.0

package repo

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// docs/explanation/security-model.md says by which test each published hole of the agent is shown to be closed. The tests exist, and carry the id.
func TestEveryHoleHasItsTest(t *testing.T) {
	const root = "../.."
	page, err := os.ReadFile(filepath.Join(root, "docs", "explanation", "security-model.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n### Of the agent\n")
	section, _, _ = strings.Cut(section, "\n### ")
	var tests strings.Builder
	err = filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		tests.Write(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	name := regexp.MustCompile("`((?:Test|Fuzz)\\w+)`")
	holes := 0
	for line := range strings.Lines(section) {
		cells := strings.Split(line, "|")
		if len(cells) < 7 || !strings.Contains(cells[1], "CVE-") {
			continue
		}
		holes++
		id, shown := strings.TrimSpace(cells[1]), cells[5]
		if strings.Contains(shown, "is the server's") {
			continue
		}
		if !strings.Contains(tests.String(), id) {
			t.Errorf("no test carries %s", id)
		}
		found := name.FindAllStringSubmatch(shown, -1)
		if len(found) == 0 {
			t.Errorf("%s: no test is named", id)
		}
		for _, m := range found {
			if !strings.Contains(tests.String(), "func "+m[1]+"(") {
				t.Errorf("%s: there is no %s", id, m[1])
			}
		}
	}
	if holes < 13 {
		t.Errorf("%d holes in the table", holes)
	}
}
