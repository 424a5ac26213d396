// SPDX-License-Identifier: Apache-2.0

//go:build integration

package config

import (
	"bufio"
	"encoding/json"
	"errors"
	goflag "flag"
	"fmt"
	"io"
	"io/fs"
	"math/big"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-sdn/patchbay/lab/peer"
)

// The flags of the differential test: a failure prints the seed to repeat it. The seed is fixed, so that a change is
// judged by what it changes; -seed 0 looks for new cases.
var (
	oracleCases = goflag.Int("cases", 2000, "generated cases of TestOracle")
	oracleSeed  = goflag.Uint64("seed", 1, "seed of TestOracle; 0: from the clock")
)

// python has oslo.config, from Debian's python3-oslo.config.
const python = "/usr/bin/python3"

type oracle struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func startOracle(t *testing.T) *oracle {
	t.Helper()
	cmd := exec.Command(python, "testdata/oracle.py") // needs package python3-oslo.config
	in, out := peer.Start(t, cmd)
	t.Cleanup(func() {
		if err := errors.Join(in.Close(), cmd.Wait()); err != nil {
			t.Errorf("oracle: %v", err)
		}
	})
	return &oracle{cmd: cmd, in: in, out: bufio.NewReaderSize(out, 1<<20)}
}

// answer is what either side says about a case.
type answer struct {
	Error   *failure   `json:"error"`
	Values  []read     `json:"values"`
	Changed [][]string `json:"changed"`
	Ignored [][]string `json:"ignored"`
}

type read struct {
	Value any      `json:"value"`
	Loc   string   `json:"loc"`
	Error *failure `json:"error"`
}

type failure struct {
	Class  string   `json:"class"`
	Code   string   `json:"code"`
	File   string   `json:"file"`
	Line   int      `json:"line"`
	Files  []string `json:"files"`
	Option string   `json:"option"`
	Group  string   `json:"group"`
}

func (o *oracle) ask(t *testing.T, question any) answer {
	t.Helper()
	data, err := json.Marshal(question)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := o.in.Write(append(data, '\n')); err != nil {
		t.Fatalf("asking the oracle: %v", err)
	}
	line, err := o.out.ReadBytes('\n')
	if err != nil {
		t.Fatalf("listening to the oracle: %v", err)
	}
	var a answer
	if err := json.Unmarshal(line, &a); err != nil {
		t.Fatal(err)
	}
	return a
}

// encode gives values the form that the oracle uses.
func encode(v any) any {
	switch v := v.(type) {
	case int64:
		return map[string]any{"int": fmt.Sprint(v)}
	case *big.Int:
		return map[string]any{"int": v.String()}
	case float64:
		return map[string]any{"float": floatText(v)}
	case []any:
		out := make([]any, len(v))
		for i, item := range v {
			out[i] = encode(item)
		}
		return out
	case []Pair:
		out := make([]any, len(v))
		for i, p := range v {
			out[i] = []any{p.Key, encode(p.Value)}
		}
		return map[string]any{"dict": out}
	}
	return v
}

// describe gives an error the name that it has in the original.
func describe(err error) *failure {
	var several Errors
	if errors.As(err, &several) {
		first := describe(several[0])
		if first.Class == "ConfigFilesNotFoundError" {
			first.Files = nil
			for _, e := range several {
				if d := describe(e); d.Class == first.Class {
					first.Files = append(first.Files, d.Files...)
				}
			}
		}
		return first
	}
	var parse *ParseError
	var file *FileError
	var usage *UsageError
	var value *ValueError
	var ref *ReferenceError
	var required *RequiredError
	switch {
	case errors.Is(err, ErrHelp), errors.Is(err, ErrVersion):
		return &failure{Class: "SystemExit", Code: "0"}
	case errors.As(err, &parse):
		if parse.Kind == NotText {
			return &failure{Class: "UnicodeDecodeError"}
		}
		return &failure{Class: "ConfigFileParseError", File: parse.File, Line: max(parse.Line, parse.noticed)}
	case errors.As(err, &file) && file.Dir:
		return &failure{Class: "ConfigDirNotFoundError", Files: []string{file.Path}}
	case errors.As(err, &file) && errors.Is(err, fs.ErrNotExist):
		return &failure{Class: "ConfigFilesNotFoundError", Files: []string{file.Path}}
	case errors.As(err, &file):
		return &failure{Class: "OSError"}
	case errors.As(err, &usage):
		return &failure{Class: "SystemExit", Code: "2"}
	case errors.As(err, &required):
		return &failure{Class: "RequiredOptError", Option: required.Option, Group: required.Group}
	case errors.As(err, &value):
		switch {
		case value.onLoad && value.Err != nil:
			// The reference fails before the value itself is looked at.
			return describe(value.Err)
		case value.onLoad:
			return &failure{Class: "SystemExit", Code: "None"}
		case value.inFile:
			return &failure{Class: "ConfigFileValueError"}
		case value.Origin.Kind == FromDefault && value.Err != nil:
			// The original does not wrap the error of a default.
			return describe(value.Err)
		case value.Origin.Kind == FromDefault:
			return &failure{Class: "ValueError"}
		}
		return &failure{Class: "ConfigSourceValueError"}
	case errors.As(err, &ref):
		switch ref.Kind {
		case UnknownGroup:
			return &failure{Class: "NoSuchGroupError"}
		case GroupReference:
			return &failure{Class: "TemplateSubstitutionError"}
		case Cycle:
			return &failure{Class: "RecursionError"}
		}
		return &failure{Class: "NoSuchOptError"}
	}
	return &failure{Class: fmt.Sprintf("%T", err)}
}

// ours answers as the oracle does.
func ours(conf *Config, err error, declared []Option) answer {
	if err != nil {
		return answer{Error: describe(err)}
	}
	var a answer
	for _, o := range declared {
		v, err := conf.Get(o.Group, o.dest())
		if err != nil {
			a.Values = append(a.Values, read{Error: describe(err)})
			continue
		}
		a.Values = append(a.Values, read{Value: encode(v.Any()), Loc: locationName(v.Origin())})
	}
	return a
}

func locationName(o Origin) string {
	switch o.Kind {
	case FromFile:
		return "user"
	case FromCommandLine:
		return "command_line"
	case FromEnvironment:
		return "environment"
	}
	return "opt_default"
}

// sameAnswer compares. The original calls a flag "user" when a file sets the
// same option too, and stumbles over some references to lists.
func sameAnswer(theirs, mine answer) string {
	if crashed(theirs.Error) && mine.Error != nil {
		theirs.Error = mine.Error
	}
	for i := range theirs.Values {
		if i < len(mine.Values) && crashed(theirs.Values[i].Error) && mine.Values[i].Error != nil {
			theirs.Values[i].Error = mine.Values[i].Error
		}
		if i < len(mine.Values) && theirs.Values[i].Loc == "user" && mine.Values[i].Loc == "command_line" {
			mine.Values[i].Loc = "user"
		}
	}
	return cmp.Diff(theirs, mine)
}

// crashed: an error of the original's own making, for which any error of ours will do. It calls a method that a list or a flag does not have, or goes
// through a flag as if it were a list, where an option refers to such an option.
func crashed(f *failure) bool {
	return f != nil && (f.Class == "AttributeError" || f.Class == "TypeError")
}

func TestOracle(t *testing.T) {
	seed := *oracleSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d, %d cases", seed, *oracleCases)
	o := startOracle(t)
	root := t.TempDir()
	stats := map[string]int{}
	differences := 0
	for i := range *oracleCases {
		g := &generator{Rand: rand.New(rand.NewPCG(seed, uint64(i))), dir: filepath.Join(root, fmt.Sprint(i))}
		c := g.newCase(t)
		differences += runCase(t, o, g, c, i, stats)
		if err := os.RemoveAll(g.dir); err != nil {
			t.Fatal(err)
		}
		if differences > 5 {
			t.Fatalf("too many differences; seed %d", seed)
		}
	}
	var lines []string
	for k, n := range stats {
		lines = append(lines, fmt.Sprintf("%8d %s", n, k))
	}
	slices.SortFunc(lines, func(a, b string) int { return strings.Compare(b, a) })
	t.Logf("%d cases, %d differences, seed %d\n%s", *oracleCases, differences, seed, strings.Join(lines, "\n"))
}

func runCase(t *testing.T, o *oracle, g *generator, c *testCase, number int, stats map[string]int) int {
	t.Helper()
	theirs := o.ask(t, c)
	conf, err := Load(c.schema, c.input())
	mine := ours(conf, err, c.declared)
	count(stats, theirs)
	if diff := sameAnswer(theirs, mine); diff != "" {
		t.Errorf("case %d (-oracle +ours):\n%s\nerror: %v\n%s", number, diff, err, c)
		return 1
	}
	if err != nil {
		return 0
	}
	if fault := checkOrigins(conf, c.declared); fault != "" {
		t.Errorf("case %d: %s\n%s", number, fault, c)
		return 1
	}
	if g.IntN(4) != 0 {
		return 0
	}
	before := c.String()
	g.rewrite(t, c)
	theirs = o.ask(t, map[string]any{"reload": true})
	changes, err := conf.Reload()
	if err != nil {
		// A mutable option with a bad value: the original finds out when it is
		// read, we refuse the reload.
		if theirs.Error == nil {
			stats["reload refused"]++
			return 0
		}
		mine = answer{Error: describe(err)}
	} else {
		stats["reload"]++
		mine = ours(conf, nil, c.declared)
		mine.Changed, mine.Ignored = [][]string{}, [][]string{}
		for _, ch := range changes.Changed {
			mine.Changed = append(mine.Changed, []string{ch.Option.Group, ch.Option.Option})
		}
		for _, n := range changes.Ignored {
			mine.Ignored = append(mine.Ignored, []string{n.Group, n.Option})
		}
		slices.SortFunc(mine.Changed, slices.Compare)
		slices.SortFunc(mine.Ignored, slices.Compare)
	}
	if diff := sameAnswer(theirs, mine); diff != "" {
		t.Errorf("case %d, reload (-oracle +ours):\n%s\nerror: %v\nbefore:\n%s\nafter:\n%s", number, diff, err, before, c)
		return 1
	}
	return 0
}

func count(stats map[string]int, a answer) {
	if a.Error != nil {
		stats["load: "+a.Error.Class+" "+a.Error.Code]++
		return
	}
	stats["load: fine"]++
	for _, v := range a.Values {
		if v.Error != nil {
			stats["read: "+v.Error.Class]++
		} else {
			stats["read: value from "+v.Loc]++
		}
	}
}

// checkOrigins looks into the files: the line of an origin must hold the key.
func checkOrigins(conf *Config, declared []Option) string {
	for _, o := range declared {
		v, err := conf.Get(o.Group, o.dest())
		if err != nil || v.Origin().Kind != FromFile {
			continue
		}
		at := v.Origin()
		data, err := os.ReadFile(at.File)
		if err != nil {
			return err.Error()
		}
		text := strings.ReplaceAll(strings.ReplaceAll(string(data), "\r\n", "\n"), "\r", "\n")
		line := strings.Split(text, "\n")[at.Line-1]
		if !slices.ContainsFunc(o.places(o.Group), func(p place) bool { return strings.HasPrefix(strip(line), p.Option) }) {
			return fmt.Sprintf("%s is said to come from %s, which reads %q", o.ID(), at, line)
		}
	}
	return ""
}
