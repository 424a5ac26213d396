// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestPagesAreGenerated: docs/verification.md and README.md say what the results say of this code, and no more.
func TestPagesAreGenerated(t *testing.T) {
	b, err := openBook("../..", allItems())
	if err != nil {
		t.Fatal(err)
	}
	if err := b.checkPages(); err != nil {
		t.Error(err)
	}
	if lines := strings.Count(b.page(), "\n"); lines > 150 {
		t.Errorf("%s has %d lines, at most 150 are wanted", pageFile, lines)
	}
}

// A shell can read the recipes that the commands lead make to: a pattern for tests has characters that shells and make take for theirs.
func TestRecipesCanBeRead(t *testing.T) {
	const dry = `make() { command make -n "$@" | grep -v '^make' > "$recipe"; bash -n "$recipe"; }; `
	for _, it := range allItems() {
		if !regexp.MustCompile(`^([A-Z_]+=\S+ )*make [^&|;$]*('[^']*')?$`).MatchString(it.command) {
			continue
		}
		cmd := exec.CommandContext(t.Context(), "bash", "-c", dry+it.command)
		cmd.Dir, cmd.Env = "../..", append(os.Environ(), "recipe="+filepath.Join(t.TempDir(), "recipe"))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %s: %v\n%s", it.name, it.command, err, out)
		}
	}
}

// TestEveryHowToIsFollowed: the pages of the items are those of `make how-to`.
func TestEveryHowToIsFollowed(t *testing.T) {
	script, err := os.ReadFile("../../deploy/test/how-to")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(script), "pages=(")
	list, _, _ = strings.Cut(list, ")")
	var pages []string
	for _, it := range allItems() {
		if _, of, ok := strings.Cut(it.command, "how-to PAGES='"); ok {
			pages = append(pages, strings.Fields(strings.TrimSuffix(of, "'"))...)
		}
	}
	if want := strings.Fields(list); len(want) < 10 || !slices.Equal(pages, want) {
		t.Errorf("items follow %q, make how-to %q", pages, want)
	}
}

func TestItemsAreWhole(t *testing.T) {
	seen := map[string]bool{}
	for _, it := range allItems() {
		if seen[it.name] {
			t.Errorf("two items are called %s", it.name)
		}
		seen[it.name] = true
		names := map[string]string{}
		for _, f := range it.figures {
			if _, err := regexp.Compile("(?m)" + f.pattern); err != nil {
				t.Errorf("%s: figure %s: %v", it.name, f.name, err)
			}
			if _, twice := names[f.name]; twice {
				t.Errorf("%s: two figures are called %s", it.name, f.name)
			}
			names[f.name] = "1"
			if _, err := f.meets("1"); err != nil {
				t.Errorf("%s: %v", it.name, err)
			}
		}
		if len(it.claims) == 0 || len(it.paths) == 0 {
			t.Errorf("%s shows nothing, or depends on nothing", it.name)
		}
		for _, c := range it.claims {
			if _, missing := fill(c.show, names); len(missing) > 0 {
				t.Errorf("%s: %q shows %v, which is no figure of it", it.name, c.text, missing)
			}
		}
	}
}

func TestFigures(t *testing.T) {
	const output = "took 0.1 s\ntook 0.2 s\nagent: 12 of 1,200 lost\nagent: 3 of 800 lost\nfaults_test.go:210: broker down\tpatchbay\t21\t44676\t0\t0 ms\t29784\t7\t0\t0.45 s\t\t26\t14\t\n| one port   | 2.05 s | 79 ms | 103 ms | 1.31 | ≤ 1.5 | yes |\n"
	for _, tc := range []struct {
		f    figure
		want string
		met  bool
	}{
		{figure{name: "last", pattern: `^agent: (\d+) of`, want: "= 3"}, "3", true},
		{figure{name: "sum", pattern: `^agent: (\d+) of`, take: sum, want: "<= 14"}, "15", false},
		{figure{name: "seconds", pattern: `^took ([\d.]+) s`, take: sum}, "0.3", true},
		{figure{name: "most", pattern: `of ([\d,]+) lost`, take: most, want: ">= 1,200"}, "1200", true},
		{figure{name: "count", pattern: `lost$`, take: count}, "2", true},
		{fault("sent", "broker down", faultSent, ">= 44676"), "44676", true},
		{fault("passed", "broker down", faultPassed, "= 0"), "7", false},
		{fault("healed", "broker down", faultHealed, "<= 5"), "0.45 s", true},
		{cell("ratio", "one port", 4, "<= 1.3"), "1.31", false},
		{cell("python", "one port", 1, ""), "2.05 s", true},
	} {
		value, ok := tc.f.read(output)
		if !ok || value != tc.want {
			t.Errorf("%s: %q, %v; want %q", tc.f.name, value, ok, tc.want)
		}
		if met, err := tc.f.meets(value); err != nil || met != tc.met {
			t.Errorf("%s: %s met: %v, %v; want %v", tc.f.name, tc.f.want, met, err, tc.met)
		}
	}
	if _, ok := (figure{pattern: `no such (\d+)`}).read(output); ok {
		t.Error("a figure was found that is not there")
	}
}

func TestVerdicts(t *testing.T) {
	it := item{figures: []figure{{name: "lost", pattern: `(\d+) lost`, want: "= 0"}, {name: "rate", pattern: `rate (\d+)`, want: ">= 10"}}}
	for _, tc := range []struct {
		output string
		ended  error
		want   string
	}{
		{"0 lost, rate 12", nil, passed},
		{"0 lost, rate 9", nil, isShort},
		{"1 lost, rate 12", nil, isShort},
		{"0 lost", nil, failed}, // a figure that nobody printed was not shown
		{"0 lost, rate 12", errors.New("exit status 1"), failed},
		{"", errors.New("exit status 1"), failed},
	} {
		if o := it.judge(tc.output, tc.ended); o.Verdict != tc.want {
			t.Errorf("%q, %v: %s (%s), want %s", tc.output, tc.ended, o.Verdict, o.Reason, tc.want)
		}
	}
}

// checkout is a small repository with a product of one file.
func checkout(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, "thing/code.go", "package thing\n")
	write(t, dir, "go.mod", "module thing\n")
	write(t, dir, "docs/verification.md", "")
	write(t, dir, "README.md", "before\n"+beginMark+endMark+"after\n")
	for _, args := range [][]string{{"init", "-q"}, {"add", "."}, {"-c", "user.name=x", "-c", "user.email=x@example.org", "commit", "-qm", "x"}} {
		cmd := exec.Command("git", args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	return dir
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	file := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T, dir string, items []item) *book {
	t.Helper()
	b, err := openBook(dir, items)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func dueNames(b *book) (names []string) {
	for _, it := range b.items {
		if b.due(it) {
			names = append(names, it.name)
		}
	}
	return names
}

// TestGoesOn: a call takes what the last one left, and what changed since.
func TestGoesOn(t *testing.T) {
	dir := checkout(t)
	items := []item{
		{name: "one", command: "echo 1 >>bin/ran; echo rate 5", paths: []string{"thing"}, figures: []figure{{name: "rate", pattern: `rate (\d+)`, want: ">= 1"}}, claims: []claim{{text: "it is fast", show: "{rate}"}}},
		{name: "two", command: "echo 2 >>bin/ran; false", paths: []string{"thing"}, claims: []claim{{text: "it ends well", show: "-"}}},
		{name: "other", command: "echo 3 >>bin/ran", paths: []string{"README.md"}, claims: []claim{{text: "it reads", show: "-"}}},
	}
	var said strings.Builder
	call := func(again bool) {
		t.Helper()
		_ = open(t, dir, items).run(&said, plan{slice: time.Hour, match: regexp.MustCompile(""), again: again})
	}
	ran := func() string {
		text, _ := os.ReadFile(filepath.Join(dir, "bin/ran"))
		return strings.ReplaceAll(string(text), "\n", "")
	}
	call(false)
	if ran() != "123" {
		t.Fatalf("ran %s, want 123\n%s", ran(), said.String())
	}
	call(false) // what failed is due again, the rest is not
	if ran() != "1232" {
		t.Fatalf("ran %s, want 1232\n%s", ran(), said.String())
	}
	write(t, dir, "thing/code.go", "package thing\n\nconst changed = true\n")
	b := open(t, dir, items)
	if got := dueNames(b); !slices.Equal(got, []string{"one", "two"}) {
		t.Errorf("after a change of the product these are due: %v", got)
	}
	if page := b.page(); !strings.Contains(page, "| pass, older |") || !strings.Contains(page, "**fail**") {
		t.Errorf("the page does not say that a result is older than the code, or failed:\n%s", page)
	}
	call(false)
	r := open(t, dir, items).results["one"]
	if len(r.Earlier) != 1 || r.Earlier[0].Figures["rate"] != "5" || r.Verdict != passed {
		t.Errorf("the earlier run is lost: %+v", r)
	}
	if !strings.HasSuffix(r.Commit, "-dirty") {
		t.Errorf("the result of a changed checkout says commit %s", r.Commit)
	}
}

// TestSlice: what does not fit into the rest of a call waits.
func TestSlice(t *testing.T) {
	dir := checkout(t)
	items := []item{{name: "one", command: "true", paths: []string{"README.md"}}, {name: "long", command: "echo long >>bin/ran", paths: []string{"README.md"}}}
	var said strings.Builder
	if err := open(t, dir, items).run(&said, plan{slice: time.Minute, match: regexp.MustCompile("")}); err != nil {
		t.Fatal(err)
	}
	if got := dueNames(open(t, dir, items)); !slices.Equal(got, []string{"long"}) {
		t.Errorf("due after a slice of a minute: %v; an item that never ran is taken for %s\n%s", got, guess, said.String())
	}
}

// TestAClaimNeedsAResult: README.md has no row without one.
func TestAClaimNeedsAResult(t *testing.T) {
	b := &book{items: []item{{name: "one"}}, results: map[string]*result{}}
	row := readmeRow{"speed", "slow", "{rate} a second", []string{"one"}}
	if _, text, err := b.stands(row); err != nil || text != "" {
		t.Errorf("%q, %v: a claim without a result stands", text, err)
	}
	b.results["one"] = &result{outcome: outcome{Verdict: failed, Figures: map[string]string{"rate": "5"}}}
	if _, text, _ := b.stands(row); text != "" {
		t.Errorf("%q: a claim that failed stands", text)
	}
	b.results["one"].Verdict = passed
	if _, text, err := b.stands(row); err != nil || text != "5 a second" {
		t.Errorf("%q, %v", text, err)
	}
	row.items = []string{"none"}
	if _, _, err := b.stands(row); err == nil {
		t.Error("a row may refer to no item")
	}
}

// TestSideBySide: items that may run side by side wait for each other here, which they could not one at a time; the others run alone, after them. Each has
// temporary files and namespaces of its own.
func TestSideBySide(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("namespaces need root")
	}
	dir := checkout(t)
	meet := func(own, other string) string {
		return "mkdir -p bin; { readlink /proc/self/ns/net; readlink /proc/self/ns/mnt; echo $TMPDIR; } >bin/" + own + "; for i in $(seq 200); do [ -s bin/" + other + " ] && break; sleep 0.1; done; [ -d \"$TMPDIR\" ] && [ -s bin/" + other + " ] && ! grep -qxFf bin/" + own + " bin/" + other + "; s=$?; sleep 1; echo end >>bin/order; exit $s"
	}
	items := []item{
		{name: "bench", command: "echo alone >>bin/order", paths: []string{"README.md"}},
		{name: "parity-a", command: meet("a", "b"), paths: []string{"README.md"}},
		{name: "parity-b", command: meet("b", "a"), paths: []string{"README.md"}},
	}
	var said strings.Builder
	if err := open(t, dir, items).run(&said, plan{slice: time.Hour, match: regexp.MustCompile(""), beside: 2}); err != nil {
		t.Errorf("%v\n%s", err, said.String())
	}
	order, _ := os.ReadFile(filepath.Join(dir, "bin/order"))
	if string(order) != "end\nend\nalone\n" {
		t.Errorf("order %q\n%s", order, said.String())
	}
	if got := dueNames(open(t, dir, items)); len(got) > 0 {
		t.Errorf("%v have no result", got)
	}
}

// A comment that is said better makes no result old; a directive, a string or a constant does.
func TestCommentsDoNotCount(t *testing.T) {
	const before = "//go:build linux\n\n// Package thing is one.\npackage thing\n\nconst wait = 5 // seconds\n\nvar text = `a // b` /* c */\n"
	for _, tc := range []struct {
		old, new string
		same     bool
	}{
		{"is one", "is a thing", true},
		{" // seconds", "", true},
		{"/* c */", "", true},
		{"= 5", "=  5", true},
		{"build linux", "build windows", false},
		{"a // b", "a // c", false},
		{"wait = 5", "wait = 6", false},
		{"seconds", "seconds\n\n//nolint:gochecknoglobals", false},
		{"Package thing is one.", "Output: 5", false},
	} {
		after := strings.Replace(before, tc.old, tc.new, 1)
		if same := bytes.Equal(code([]byte(before)), code([]byte(after))); after == before || same != tc.same {
			t.Errorf("%q for %q: the same code is %v, want %v", tc.new, tc.old, same, tc.same)
		}
	}
}
