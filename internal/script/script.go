// SPDX-License-Identifier: Apache-2.0

// Package script runs scripts of tests and compares what they print. A script is text: a line tells the player something, a line that
// begins with "$ " asks it, and what follows, up to an empty line or the next question, is the answer. So an empty line has to stand
// between an answer and a line that tells. What follows "#" in a line that tells is a remark. The file is what a run prints, so -update writes answers anew and the difference is read in git. Only tests
// import the package.
//
//	# A port without a policy is not limited.
//	port 1 n compute:nova
//	$ explain 1
//	qos: no policy
package script

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Player is what a script is played to. A player that cannot go on ends the test.
type Player interface {
	// Tell takes a line, word by word, without its remark.
	Tell(words []string)
	// Commands returns what lines that tell look like, with one space between words. Lines of answers look otherwise.
	Commands() *regexp.Regexp
	// Ask returns the lines of an answer.
	Ask(words []string) []string
}

// Play plays a script and returns it with the answers of the player in place of those that stand in it. A line that tells in the place of an answer is
// a mistake: with the answer it would be lost.
func Play(text string, p Player) (string, error) {
	var out strings.Builder
	var answer []string
	answering, number := false, 0
	for line := range strings.SplitSeq(strings.TrimSuffix(text, "\n"), "\n") {
		number++
		question, asks := strings.CutPrefix(line, "$ ")
		before, _, _ := strings.Cut(line, "#")
		words := strings.Fields(before)
		command := len(words) > 0 && p.Commands().MatchString(strings.Join(words, " "))
		if answering && line != "" && !asks {
			if command && !slices.Contains(answer, line) {
				return "", fmt.Errorf("line %d: %q is a command and stands in an answer: put an empty line between", number, line)
			}
			continue // the answer as it was
		}
		answering = asks
		out.WriteString(line + "\n")
		switch {
		case asks:
			answer = p.Ask(strings.Fields(question))
			for _, l := range answer {
				out.WriteString(l + "\n")
			}
		case command:
			p.Tell(words)
		case len(words) > 0:
			return "", fmt.Errorf("line %d: %q is no command", number, line)
		}
	}
	return out.String(), nil
}

// Run plays the scripts that a pattern names, each to a player of its own. With update the files get the answers.
func Run(t *testing.T, pattern string, update bool, player func(t *testing.T) Player) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts %s: %v", pattern, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), filepath.Ext(file)), func(t *testing.T) {
			text, err := os.ReadFile(file) //nolint:gosec // of the source
			if err != nil {
				t.Fatal(err)
			}
			got, err := Play(string(text), player(t))
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			Golden(t, file, update, got)
		})
	}
}

// Golden holds what a test made against a file. With update the file is written instead.
func Golden(t testing.TB, file string, update bool, got string) {
	t.Helper()
	if update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil { //nolint:gosec // part of the source
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file) //nolint:gosec // of the source
	if err != nil {
		t.Fatal(err)
	}
	if line, have, wanted := differ(got, string(want)); line > 0 {
		t.Errorf("%s, from line %d on, is not what the test makes; if that is right, run it with -update. Made:\n%s\nwant:\n%s", file, line, have, wanted)
	}
}

// differ returns the first line that differs, from 1, and what both have from there on to where they agree again.
func differ(got, want string) (line int, have, wanted string) {
	a, b := strings.Split(got, "\n"), strings.Split(want, "\n")
	same := 0
	for same < min(len(a), len(b)) && a[same] == b[same] {
		same++
	}
	if same == len(a) && same == len(b) {
		return 0, "", ""
	}
	a, b = a[same:], b[same:]
	end := 0
	for end < min(len(a), len(b)) && a[len(a)-1-end] == b[len(b)-1-end] {
		end++
	}
	text := func(lines []string) string { return strings.Join(slices.Clone(lines[:len(lines)-end]), "\n") }
	return same + 1, text(a), text(b)
}
