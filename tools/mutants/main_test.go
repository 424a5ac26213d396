// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// subject is a package with one of everything that is mutated. Its tests see some of it.
const subject = `package subject

import "errors"

type kind string

func more(a, b int) bool { return a > b && a != 9 }

func sum(list []int) int {
	total := 0
	for i, v := range list {
		if v < 0 {
			continue
		}
		total += v * 2
		_ = i
	}
	return total
}

func unseen(m map[string]bool) (kind, error) {
	delete(m, "x")
	m["y"] = true
	if len(m) == 0 {
		return "none", errors.New("empty")
	}
	return "some", nil
}

func (k kind) String() string { return string(k) + "!" }

func forever(c chan int) int {
	for {
		select {
		case v := <-c:
			if v == 1 {
				continue
			}
			return v
		}
	}
}
`

const subjectTest = `package subject

import "testing"

func TestMore(t *testing.T) {
	if !more(2, 1) || more(1, 1) || more(9, 1) || more(1, 2) {
		t.Fatal("more")
	}
}

func TestSum(t *testing.T) {
	if sum([]int{1, -1, 2}) != 6 {
		t.Fatal("sum")
	}
}
`

// module writes a module with the subject in it, and one package that uses it.
func module(t *testing.T, tests string) options {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module example.org/m\n\ngo 1.24\n", "subject/subject.go": subject, "subject/subject_test.go": tests,
		"user/user.go":  "// Package user uses it.\npackage user\n\nimport _ \"example.org/m/subject\"\n",
		"survivors.txt": "",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // a test's directory
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil { //nolint:gosec // a test's file
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	return options{n: 1000, seed: 1, packages: "subject", state: "bin/mutants", survivors: "survivors.txt", workers: 2, want: 90}
}

func TestPoints(t *testing.T) {
	m, err := load(context.Background(), module(t, subjectTest))
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]bool{}
	for _, p := range m.points() {
		have[fmt.Sprintf("%s: %s", p.Kind, p.Text)] = true
	}
	for _, want := range []string{
		"negated: func more(a, b int) bool { return a > b && a != 9 }", "boundary: func more(a, b int) bool { return a > b && a != 9 }",
		"and-or: func more(a, b int) bool { return a > b && a != 9 }", "constant+1: func more(a, b int) bool { return a > b && a != 9 }",
		"break-continue: continue", "removed: total += v * 2", "arithmetic: total += v * 2", "zero: return total", "constant-1: total := 0",
		"removed: delete(m, \"x\")", "removed: m[\"y\"] = true", "negated: if len(m) == 0 {", `zero: return "none", errors.New("empty")`,
	} {
		if !have[want] {
			t.Errorf("no mutant %s", want)
		}
		delete(have, want)
	}
	for text := range have {
		if strings.Contains(text, "String()") || text == "negated: m[\"y\"] = true" {
			t.Errorf("mutant %s", text)
		}
	}
	if m.leftOut["in String and Error methods"] == 0 || m.leftOut["in members of sets (m[k] = true, which is removed instead)"] != 1 {
		t.Errorf("left out: %v", m.leftOut)
	}
}

// TestRun: what tests see is killed, what they do not reach is alive, a second call does nothing again, and a removed test
// makes the score fall.
func TestRun(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles and runs a small module")
	}
	o := module(t, subjectTest)
	o.want = 50
	score := func(o options) (bool, string) {
		t.Helper()
		var out bytes.Buffer
		good, err := run(context.Background(), o, &out)
		if err != nil {
			t.Fatalf("%v\n%s", err, out.String())
		}
		return good, out.String()
	}
	good, text := score(o)
	if !good {
		t.Errorf("not good:\n%s", text)
	}
	for _, want := range []string{
		`subject/subject.go:22: removed: delete(m, "x") (ALIVE, no test reaches it)`,
		"seed 1: ",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	for _, not := range []string{"total += v * 2 (ALIVE", "a > b && a != 9 } (ALIVE"} {
		if strings.Contains(text, not) {
			t.Errorf("%q is in\n%s", not, text)
		}
	}
	if _, again := score(o); strings.Contains(again, "tests of the same package") {
		t.Errorf("ran again:\n%s", again)
	}
	o.want = 90
	if good, _ := score(o); good {
		t.Error("good enough for 90 %")
	}
	// A listed one that is killed, and one that is not there any more.
	o.want = 50
	list := "subject/subject.go: removed: delete(m, \"x\")\n\tnobody looks\nsubject/subject.go: removed: total += v * 2\n\twrong\nsubject/gone.go: removed: x\n\told\n"
	if err := os.WriteFile(o.survivors, []byte(list), 0o644); err != nil { //nolint:gosec // a test's file
		t.Fatal(err)
	}
	good, text = score(o)
	if good || !strings.Contains(text, "is killed by") || !strings.Contains(text, "no such mutant") || !strings.Contains(text, `delete(m, "x") (listed)`) {
		t.Errorf("good %t:\n%s", good, text)
	}
	if err := os.WriteFile(o.survivors, nil, 0o644); err != nil { //nolint:gosec // a test's file
		t.Fatal(err)
	}
	without, _, _ := strings.Cut(subjectTest, "func TestSum")
	if err := os.WriteFile("subject/subject_test.go", []byte(without), 0o644); err != nil { //nolint:gosec // a test's file
		t.Fatal(err)
	}
	if good, text := score(o); good {
		t.Errorf("still good without a test:\n%s", text)
	}
}

func TestDraw(t *testing.T) {
	var points []*point
	for i := range 500 {
		points = append(points, &point{ID: i + 1, File: "a.go", Kind: "removed", Text: fmt.Sprint("x", i), Nth: 1})
	}
	ten, more, other := draw(points, 1, 10, ""), draw(points, 1, 20, ""), draw(points, 2, 10, "")
	if !slices.Equal(ten, more[:10]) {
		t.Error("ten are not the first of twenty")
	}
	if slices.Equal(ten, other) {
		t.Error("the seed changes nothing")
	}
	// A line that moves or is added changes nothing for the others.
	for _, p := range points {
		p.ID += 7
		p.Line += 3
	}
	if again := draw(points, 1, 10, ""); !slices.Equal(ten, again) {
		t.Error("another draw after lines moved")
	}
	if got := draw(points, 1, 10, "x499"); len(got) != 1 {
		t.Errorf("%d match", len(got))
	}
}

func TestEntries(t *testing.T) {
	all, err := parseEntries(strings.NewReader("# comment\n\na/b.go: constant+1#2: x := y[\"a: b\"]\n\tnobody\n\tsees it\n"))
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	e := all[0]
	if e.file != "a/b.go" || e.kind != "constant+1" || e.nth != 2 || e.text != `x := y["a: b"]` || e.reason != "nobody sees it" {
		t.Errorf("%+v", e)
	}
	p := &point{File: "a/b.go", Kind: "constant+1", Text: `x := y["a: b"]`, Nth: 2}
	if !e.covers(p) {
		t.Error("does not cover its mutant")
	}
	p.Nth = 1
	if e.covers(p) {
		t.Error("covers another one of the line")
	}
	for _, bad := range []string{"\treason first\n", "a.go: removed: x\n", "a.go removed\n\twhy\n", "a.go: removed#x: y\n\twhy\n"} {
		if _, err := parseEntries(strings.NewReader(bad)); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}
