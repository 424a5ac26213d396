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

// quote is a fenced block of a document after a comment that names the file which it shows.
var quote = regexp.MustCompile("(?s)<!-- file: (\\S+) -->\n```(\\w*)\n(.*?)```\n")

// TestDocsQuoteTheCode holds that files which documents show are in them as they are, but for the licence line.
func TestDocsQuoteTheCode(t *testing.T) {
	const root = "../.."
	quotes := 0
	err := filepath.WalkDir(filepath.Join(root, "docs"), func(path string, e fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".md") {
			return err
		}
		text, err := os.ReadFile(path) //nolint:gosec // of the source
		if err != nil {
			return err
		}
		now := quote.ReplaceAllStringFunc(string(text), func(block string) string {
			quotes++
			m := quote.FindStringSubmatch(block)
			file, err := os.ReadFile(filepath.Join(root, m[1])) //nolint:gosec // of the source
			if err != nil {
				t.Errorf("%s: %v", path, err)
				return block
			}
			code := strings.TrimPrefix(string(file), "// SPDX-License-Identifier: Apache-2.0\n\n")
			if code != m[3] && !*update {
				t.Errorf("%s does not show %s as it is: run go test ./internal/repo -run TestDocsQuoteTheCode -update", path, m[1])
			}
			return "<!-- file: " + m[1] + " -->\n```" + m[2] + "\n" + code + "```\n"
		})
		if *update && now != string(text) {
			return os.WriteFile(path, []byte(now), 0o644) //nolint:gosec // part of the source
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if quotes == 0 {
		t.Error("no document quotes a file")
	}
}
