// SPDX-License-Identifier: Apache-2.0

package repo

import (
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"
)

// A page is a Markdown file: its text outside of code, its code, and the anchors of its headings.
type page struct {
	prose   string
	code    []string // code spans, and lines of blocks that are not Go
	anchors map[string]bool
}

var (
	codeSpan = regexp.MustCompile("`([^`\n]+)`")
	link     = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading  = regexp.MustCompile(`^#+ +(.*?) *$`)
	anchorOf = regexp.MustCompile(`<a id="([^"]+)">`)
)

func readPage(text string) page {
	p := page{anchors: map[string]bool{}}
	var prose strings.Builder
	fence := ""
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if mark := strings.TrimSpace(line); strings.HasPrefix(mark, "```") {
			if fence == "" {
				fence = mark
			} else {
				fence = ""
			}
			continue
		}
		if fence != "" {
			if fence != "```go" {
				p.code = append(p.code, strings.TrimSpace(line))
			}
			continue
		}
		if m := heading.FindStringSubmatch(line); m != nil {
			p.addAnchor(m[1])
		}
		if m := anchorOf.FindStringSubmatch(line); m != nil {
			p.anchors[m[1]] = true
		}
		prose.WriteString(line + "\n")
	}
	for _, m := range codeSpan.FindAllStringSubmatch(prose.String(), -1) {
		p.code = append(p.code, strings.ReplaceAll(m[1], `\|`, "|"))
	}
	p.prose = codeSpan.ReplaceAllString(prose.String(), "code")
	return p
}

// addAnchor adds the anchor that GitHub gives a heading.
func (p *page) addAnchor(title string) {
	title = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`).ReplaceAllString(title, "$1")
	slug := strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
			return unicode.ToLower(r)
		}
		return -1
	}, title)
	unique := slug
	for n := 1; p.anchors[unique]; n++ {
		unique = fmt.Sprintf("%s-%d", slug, n)
	}
	p.anchors[unique] = true
}

// tracked returns the files of the repository, and their directories.
func tracked(t *testing.T) (files []string, known map[string]bool) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "git", "-C", "../..", "ls-files", "--cached", "--others", "--exclude-standard", "--deduplicate").Output()
	if err != nil {
		t.Fatalf("git ls-files: %v", err)
	}
	known = map[string]bool{".": true}
	for _, f := range strings.Fields(string(out)) {
		if _, err := os.Stat(filepath.Join("../..", f)); err != nil {
			continue // deleted, and not yet committed
		}
		files = append(files, f)
		for ; f != "." && !known[f]; f = path.Dir(f) {
			known[f] = true
		}
	}
	return files, known
}

func pages(t *testing.T) (map[string]page, map[string]bool) {
	t.Helper()
	files, known := tracked(t)
	all := map[string]page{}
	for _, f := range files {
		if path.Ext(f) == ".md" {
			text, err := os.ReadFile(filepath.Join("../..", f))
			if err != nil {
				t.Fatal(err)
			}
			all[f] = readPage(string(text))
		}
	}
	if len(all) < 20 {
		t.Fatalf("%d pages", len(all))
	}
	return all, known
}

// TestDocsLinks: a link leads to a file of the repository and to a heading of it.
func TestDocsLinks(t *testing.T) {
	all, known := pages(t)
	for name, p := range all {
		for _, m := range link.FindAllStringSubmatch(p.prose, -1) {
			if strings.Contains(m[1], ":") {
				continue // elsewhere
			}
			file, anchor, _ := strings.Cut(m[1], "#")
			to := name
			if file != "" {
				to = path.Join(path.Dir(name), file)
			}
			switch other, isPage := all[to]; {
			case !known[to]:
				t.Errorf("%s: %s leads to no file", name, m[1])
			case anchor != "" && isPage && !other.anchors[anchor]:
				t.Errorf("%s: %s leads to no heading", name, m[1])
			}
		}
	}
}

// TestDocsPaths: a page that code, a target or a setting names exists.
func TestDocsPaths(t *testing.T) {
	files, known := tracked(t)
	named := regexp.MustCompile(`\bdocs/[\w/-]+\.(?:md|png|svg)\b`)
	for _, f := range files {
		if strings.Contains(f, "testdata/") || strings.HasPrefix(f, "verification/") {
			continue // recorded once
		}
		text, err := os.ReadFile(filepath.Join("../..", f))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range named.FindAllString(string(text), -1) {
			if !known[m] {
				t.Errorf("%s names %s, which does not exist", f, m)
			}
		}
	}
}

// A command is one that pages show: what follows the name of the program.
type command struct{ page, text string }

// shown returns the commands of a program in all pages but the notes, which tell of their time.
func shown(t *testing.T, program string) []command {
	t.Helper()
	all, _ := pages(t)
	begin := regexp.MustCompile(`^(?:[#$] )?(?:\w+=\S* )*(?:bin/)?` + program + ` +(\S.*)$`)
	var found []command
	for name, p := range all {
		if strings.HasPrefix(name, "verification/") {
			continue
		}
		for _, code := range p.code {
			code, _, _ = strings.Cut(code, " #")
			if strings.HasPrefix(code, "# ") {
				code, _, _ = strings.Cut(code[2:], " #")
			}
			for _, part := range regexp.MustCompile(` && | \| |; `).Split(code, -1) {
				if m := begin.FindStringSubmatch(part); m != nil {
					found = append(found, command{name, m[1]})
				}
			}
		}
	}
	return found
}

// TestDocsMakeTargets: a target and a variable that a page gives to make exist.
func TestDocsMakeTargets(t *testing.T) {
	var text strings.Builder
	files, _ := tracked(t)
	for _, f := range files {
		if f == "Makefile" || path.Ext(f) == ".mk" || path.Dir(f) == "tools" { // scripts in tools read the environment
			part, err := os.ReadFile(filepath.Join("../..", f))
			if err != nil {
				t.Fatal(err)
			}
			text.Write(part)
		}
	}
	target, variable := regexp.MustCompile(`^[a-z][a-z0-9-]*$`), regexp.MustCompile(`^([A-Z_]+)=`)
	commands := shown(t, "make")
	if len(commands) < 30 {
		t.Errorf("only %d commands found", len(commands))
	}
	for _, c := range commands {
		for _, word := range strings.Fields(c.text) {
			if m := variable.FindStringSubmatch(word); m != nil {
				if !regexp.MustCompile(`\$[({]`+m[1]+`\b|\b`+m[1]+` \?=`).MatchString(text.String()) && !strings.HasPrefix(m[1], "PATCHBAY_") {
					t.Errorf("%s: make %s: nothing reads %s", c.page, c.text, m[1])
				}
				if strings.Contains(word, "'") || strings.Contains(word, `"`) {
					break // the value goes on
				}
			} else if target.MatchString(word) && !regexp.MustCompile(`(?m)^`+word+`:`).MatchString(text.String()) {
				t.Errorf("%s: make %s: there is no target %s", c.page, c.text, word)
			}
		}
	}
}

// TestDocsCommands: a command of patchbay or lab that a page shows exists, and so do its flags, by what the program's --help says.
func TestDocsCommands(t *testing.T) {
	for program, least := range map[string]int{"patchbay": 50, "lab": 20} {
		binary := filepath.Join(t.TempDir(), program)
		build := exec.CommandContext(t.Context(), "go", "build", "-ldflags", "-s -w", "-o", binary, module+"cmd/"+program)
		build.Env = append(os.Environ(), "CGO_ENABLED=0") // as `make build`, which has compiled the packages
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("building %s: %v\n%s", program, err, out)
		}
		help := helpOf(t, binary)
		commands := shown(t, program)
		if len(commands) < least {
			t.Errorf("only %d commands of %s found", len(commands), program)
		}
		for _, c := range commands {
			if problem := check(help, strings.Fields(c.text)); problem != "" {
				t.Errorf("%s: %s %s: %s", c.page, program, c.text, problem)
			}
		}
	}
}

// helpOf returns what a program's commands say with --help.
func helpOf(t *testing.T, binary string) func(words ...string) string {
	texts := map[string]string{}
	return func(words ...string) string {
		key := strings.Join(words, " ")
		if _, ok := texts[key]; !ok {
			out, err := exec.CommandContext(t.Context(), binary, append(words, "--help")...).CombinedOutput()
			if err != nil {
				t.Fatalf("%s %s --help: %v", binary, key, err)
			}
			texts[key] = string(out)
		}
		return texts[key]
	}
}

// check says what a command has that the program's help does not, or nothing.
func check(help func(...string) string, words []string) string {
	var path []string
	plain := regexp.MustCompile(`^[a-z][a-z-]*$`)
	for len(words) > 0 {
		_, subcommands, has := strings.Cut(help(path...), "Available Commands:\n")
		subcommands, _, _ = strings.Cut(subcommands, "\n\n")
		if !has || !plain.MatchString(words[0]) {
			break
		}
		if hidden := len(path) == 0 && words[0] == "man"; !hidden && !strings.Contains(subcommands, "  "+words[0]+" ") {
			return "there is no command " + words[0]
		}
		path, words = append(path, words[0]), words[1:]
	}
	for _, word := range words {
		flag, _, _ := strings.Cut(strings.Trim(word, "[]….,"), "=")
		if !regexp.MustCompile(`^--?[a-z]`).MatchString(flag) {
			continue
		}
		if !regexp.MustCompile(`(?m)(^|[ \[,])` + regexp.QuoteMeta(flag) + `([ ,\]\n]|$)`).MatchString(help(path...)) {
			return "there is no flag " + flag
		}
	}
	return ""
}
