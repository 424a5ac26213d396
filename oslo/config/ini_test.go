// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	text := strings.Join([]string{
		"# a comment",                // 1
		"[DEFAULT]",                  // 2
		"host = compute-1 ",          // 3
		"url: tcp:127.0.0.1=6640",    // 4
		`quoted = " padded "`,        // 5
		"list = a,",                  // 6
		"   b,",                      // 7
		"\t# c",                      // 8: not a comment
		"empty =",                    // 9
		"",                           // 10
		"[ovs]\t",                    // 11
		"a=b=c",                      // 12
		`one = '`,                    // 13
		"host = # not a comment ; x", // 14
		"[DEFAULT]",                  // 15
		"\u00a0odd\u00a0key = 1",     // 16
		"host = again",               // 17
	}, "\r\n")
	f, err := parseFile("x.conf", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	want := &iniFile{
		Path:     "x.conf",
		Sections: []iniSection{{"DEFAULT", 2}, {"ovs", 11}, {"DEFAULT", 15}},
		Assignments: []assignment{
			{"DEFAULT", "host", "compute-1", 3},
			{"DEFAULT", "url", "tcp:127.0.0.1=6640", 4},
			{"DEFAULT", "quoted", " padded ", 5},
			{"DEFAULT", "list", "a,\nb,\n# c", 6},
			{"DEFAULT", "empty", "", 9},
			{"ovs", "a", "b=c", 12},
			{"ovs", "one", "", 13},
			{"ovs", "host", "# not a comment ; x", 14},
			{"DEFAULT", "odd\u00a0key", "1", 16},
			{"DEFAULT", "host", "again", 17},
		},
	}
	if diff := cmp.Diff(want, f); diff != "" {
		t.Error(diff)
	}
}

func TestParseErrors(t *testing.T) {
	for _, test := range []struct {
		text string
		kind ParseErrorKind
		line int
	}{
		{"[a]\nword\n", NoAssignment, 2},
		{"[a]\n= value\n", EmptyKey, 2},
		{"[a]\n  lost\n", UnexpectedContinuation, 2},
		{"[a]\nx = 1\n# comment\n  lost\n", UnexpectedContinuation, 4},
		{"[a]\nx = 1\n\n  lost\n", UnexpectedContinuation, 4},
		{"[a\n", UnclosedSection, 1},
		{"[a] # comment\n", UnclosedSection, 1},
		{"[]\n", EmptySection, 1},
		{"\n\nx = 1\n\n[a]\n", NoSection, 3},
		{"x = 1", NoSection, 1},
		{"\ufeff[a]\n", ByteOrderMark, 1},
		{"[a]\nx = \xff\n", NotText, 2},
	} {
		_, err := parseFile("x.conf", []byte(test.text))
		var parse *ParseError
		if !errors.As(err, &parse) || parse.Kind != test.kind || parse.Line != test.line || parse.File != "x.conf" {
			t.Errorf("%q: %v, want kind %d on line %d", test.text, err, test.kind, test.line)
		}
	}
}

// FuzzParse: no input makes the parser fail otherwise than with an error that
// points into the file, and what it reads can be written down and read again.
func FuzzParse(f *testing.F) {
	for _, seed := range seeds(f) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := parseFile("f", data)
		lines := 1 + strings.Count(strings.ReplaceAll(string(data), "\r", "\n"), "\n")
		var parse *ParseError
		if errors.As(err, &parse) {
			if parse.Line < 1 || parse.Line > lines {
				t.Fatalf("line %d of %d", parse.Line, lines)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		text, ok := format(file)
		if !ok {
			return
		}
		again, err := parseFile("f", []byte(text))
		if err != nil {
			t.Fatalf("%v in %q", err, text)
		}
		if diff := cmp.Diff(bare(file), bare(again)); diff != "" {
			t.Fatalf("%s in %q", diff, text)
		}
	})
}

// seeds are small files with every feature, and real ones.
func seeds(f *testing.F) [][]byte {
	f.Helper()
	paths, err := filepath.Glob("testdata/seeds/*.conf")
	if err != nil || len(paths) == 0 {
		f.Fatalf("no seeds: %v", err)
	}
	var out [][]byte
	for _, p := range paths {
		data, err := os.ReadFile(p)
		if err != nil {
			f.Fatal(err)
		}
		out = append(out, data)
	}
	return out
}

// format writes a file that says the same. A key that only odd white space kept
// from being a comment or a section cannot be written.
func format(file *iniFile) (string, bool) {
	var b strings.Builder
	for _, a := range file.Assignments {
		if strings.ContainsAny(a.Key[:1], "[#;") {
			return "", false
		}
		first, rest, _ := strings.Cut(a.Value, "\n")
		b.WriteString("[" + a.Section + "]\n" + a.Key + ` = "` + first + "\"\n")
		if rest != "" {
			b.WriteString("  " + strings.ReplaceAll(rest, "\n", "\n  ") + "\n")
		}
	}
	return b.String(), true
}

func bare(f *iniFile) []assignment {
	var out []assignment
	for _, a := range f.Assignments {
		a.Line = 0
		out = append(out, a)
	}
	return out
}
