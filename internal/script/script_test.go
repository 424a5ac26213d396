// SPDX-License-Identifier: Apache-2.0

package script

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// notebook remembers what it is told.
type notebook struct{ lines []string }

func (n *notebook) Tell(words []string)         { n.lines = append(n.lines, strings.Join(words, " ")) }
func (n *notebook) Ask(words []string) []string { return append(words[1:], n.lines...) }
func (n *notebook) Commands() *regexp.Regexp    { return regexp.MustCompile("^note ") }

const played = `# about it
note  a   # a remark
$ list x
x
note a

note b
$ list
note a
note b
$ list
note a
note b
`

func TestPlay(t *testing.T) {
	if got, err := Play(played, &notebook{}); err != nil || got != played {
		t.Errorf("as it is: %v\n%s", err, got)
	}
	without := "# about it\nnote  a   # a remark\n$ list x\nwrong\n\nnote b\n$ list\n$ list\nwrong\nlines\n"
	if got, err := Play(without, &notebook{}); err != nil || got != played {
		t.Errorf("with wrong answers: %v\n%s", err, got)
	}
}

// A command that stands directly under an answer, or under a question that has none yet, is a mistake: -update would delete it.
func TestCommandInAnAnswer(t *testing.T) {
	for text, want := range map[string]string{
		"note a\n$ list\nnote a\nnote b\n$ list\n":         `line 4: "note b" is a command`,
		"note a\n$ list\nnote   b  # a remark\n\nnote c\n": `line 3: "note   b  # a remark" is a command`,
		"note a\n$ list\nwrong\nnote b\n":                  `line 4: "note b" is a command`,
		"note a\n\nnotes b\n":                              `line 3: "notes b" is no command`,
	} {
		if got, err := Play(text, &notebook{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, and not %s\n%s", text, err, want, got)
		}
	}
}

// failing is a test that notes how it fails.
type failing struct {
	testing.TB
	text string
}

func (f *failing) Helper()                        {}
func (f *failing) Errorf(format string, a ...any) { f.text += fmt.Sprintf(format, a...) }
func (f *failing) Fatal(a ...any)                 { f.text += fmt.Sprint(a...) }

func TestGolden(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x")
	f := &failing{TB: t}
	Golden(f, file, true, "a\nb\nc\nd\n")
	Golden(f, file, false, "a\nb\nc\nd\n")
	if f.text != "" {
		t.Errorf("equal: %s", f.text)
	}
	Golden(f, file, false, "a\nx\ny\nd\n")
	if !strings.Contains(f.text, "from line 2 on") || !strings.Contains(f.text, "Made:\nx\ny\nwant:\nb\nc") || strings.Contains(f.text, "\nd") {
		t.Errorf("different: %s", f.text)
	}
	for _, got := range []string{"a\nb\nc\n", "a\nb\nc\nd\ne\n", ""} {
		f.text = ""
		if Golden(f, file, false, got); f.text == "" {
			t.Errorf("%q passes", got)
		}
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "a\nb\nc\nd\n" {
		t.Errorf("%q, %v", text, err)
	}
}

func TestRun(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "one.script")
	if err := os.WriteFile(file, []byte("note a\n$ list\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, update := range []bool{true, false} {
		Run(t, filepath.Join(dir, "*.script"), update, func(*testing.T) Player { return &notebook{} })
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "note a\n$ list\nnote a\n" {
		t.Errorf("%q, %v", text, err)
	}
}
