// SPDX-License-Identifier: Apache-2.0

package script

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// notebook remembers what it is told.
type notebook struct{ lines []string }

func (n *notebook) Tell(words []string)         { n.lines = append(n.lines, strings.Join(words, " ")) }
func (n *notebook) Ask(words []string) []string { return append(words[1:], n.lines...) }

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
	if got := Play(played, &notebook{}); got != played {
		t.Errorf("as it is:\n%s", got)
	}
	without := "# about it\nnote  a   # a remark\n$ list x\nwrong\n\nnote b\n$ list\n$ list\nwrong\nlines\n"
	if got := Play(without, &notebook{}); got != played {
		t.Errorf("with wrong answers:\n%s", got)
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
