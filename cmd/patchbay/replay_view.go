// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/tape"
)

// replayed is what `patchbay replay -o json` prints.
type replayed struct {
	Host    string     `json:"host"`
	Version string     `json:"version"` // that recorded the tape
	Began   time.Time  `json:"began"`
	Until   time.Time  `json:"until"`
	Steps   int        `json:"steps"`
	Events  int        `json:"events"`
	End     string     `json:"end,omitempty"` // why the tape ends
	Same    bool       `json:"same"`
	Partly  int        `json:"partly,omitempty"`  // steps of which the bundle has only the beginning of the decisions, since it masks a secret
	Differs *different `json:"differs,omitempty"` // the first step with other decisions
}

// different is a step with other decisions than those that were recorded.
type different struct {
	Step   int       `json:"step"`
	At     time.Time `json:"at"`
	Events []string  `json:"events"`
	Then   string    `json:"then"` // the first line that differs
	Now    string    `json:"now"`
}

// firstDifference returns the first line that differs, of both.
func firstDifference(then, now string) (string, string) {
	x, y := strings.Split(then, "\n"), strings.Split(now, "\n")
	for i := range max(len(x), len(y)) {
		a, b := "", ""
		if i < len(x) {
			a = x[i]
		}
		if i < len(y) {
			b = y[i]
		}
		if a != b {
			return strings.TrimSpace(a), strings.TrimSpace(b)
		}
	}
	return "", ""
}

// writeStep prints a step.
func (r *replay) writeStep(s *tape.Step) error {
	decided := decisions(s.Out, r.f.Verbose)
	if r.f.Output.forPrograms() {
		return r.f.Output.writeNext(r.out, struct {
			Step    int       `json:"step"`
			At      time.Time `json:"at"`
			Events  []string  `json:"events"`
			Decided []string  `json:"decided"`
			Same    bool      `json:"same"`
		}{s.N, s.At, s.Events, decided, s.Same})
	}
	fmt.Fprintf(r.out, "%6d  %s  %s\n", s.N, s.At.Format("15:04:05.000"), strings.Join(s.Events, "; "))
	for _, line := range decided {
		fmt.Fprintln(r.out, "        -> "+line)
	}
	return nil
}

// maxDecision is how many characters of a decision fit into a list.
const maxDecision = 120

// decisions are the effects of a step, a line each; all lines if verbose.
func decisions(text string, verbose bool) []string {
	out := []string{}
	rows, flows := 0, 0
	counts := func() {
		if rows+flows > 0 {
			out[len(out)-1] += fmt.Sprintf(" %s, %s", plural(flows, "flow"), plural(rows, "transaction"))
		}
		rows, flows = 0, 0
	}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		switch {
		case verbose:
		case strings.HasPrefix(line, "\t\tflow of "):
			flows++
			continue
		case strings.HasPrefix(line, "\trows of "):
			rows++
			continue
		case strings.HasPrefix(line, "\t"), strings.HasPrefix(line, "wake at "), strings.HasPrefix(line, "progress "):
			continue
		case len(line) > maxDecision:
			line = strings.ToValidUTF8(line[:maxDecision], "") + "…"
		}
		counts()
		out = append(out, line)
	}
	counts()
	return out
}

// end prints what came of the tape.
func (r *replay) end(p *tape.Player) error {
	d := &r.doc
	d.End = p.End()
	if r.f.Output.forPrograms() && !r.f.Steps {
		if err := r.f.Output.write(r.out, d); err != nil {
			return err
		}
	}
	if !r.f.Output.forPrograms() {
		r.write()
	}
	if d.Same {
		return nil
	}
	return ended{status: exitFinding}
}

func (r *replay) write() {
	d := &r.doc
	fmt.Fprintf(r.out, "%s, patchbay %s, from %s to %s: %s, %s\n", d.Host, cmp.Or(d.Version, "of unknown version"), d.Began.Format("2006-01-02 15:04:05"),
		d.Until.Format("2006-01-02 15:04:05"), plural(d.Steps, "step"), plural(d.Events, "event"))
	if d.End != "" {
		fmt.Fprintf(r.out, "the record ends there: %s\n", d.End)
	}
	if d.Partly > 0 {
		fmt.Fprintf(r.out, "of the decisions of %s the bundle has only the beginning, because it masks a secret\n", plural(d.Partly, "step"))
	}
	if d.Same {
		fmt.Fprintln(r.out, "every step makes the decisions that were recorded")
		return
	}
	x := d.Differs
	fmt.Fprintf(r.out, "step %d, at %s, makes other decisions than were recorded\n", x.Step, x.At.Format("15:04:05.000"))
	fmt.Fprintf(r.out, "  after: %s\n  then:  %s\n  now:   %s\n", strings.Join(x.Events, "; "), cut(x.Then), cut(x.Now))
	if d.Version != version {
		fmt.Fprintf(r.out, "this is patchbay %s: take the version that recorded to see its decisions\n", version)
	}
}

func cut(line string) string {
	const most = 600
	if len(line) <= most {
		return line
	}
	return strings.ToValidUTF8(line[:most], "") + "…"
}

// writeTest writes the tape where a test of the repository finds it.
func (r *replay) writeTest(dir, from string, data io.ReadSeeker) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("writing the test: %w", err)
	}
	name := filepath.Base(from)
	for _, end := range []string{".tar.gz", ".tgz", ".tape", ".old"} {
		name = strings.TrimSuffix(name, end)
	}
	path := filepath.Join(dir, name+".tape")
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return fmt.Errorf("writing the test: %w", err)
	}
	_, err = data.Seek(0, io.SeekStart)
	if err == nil {
		err = tape.Shorten(data, f, r.doc.Steps)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("writing the test: %w", err)
	}
	fmt.Fprintf(r.out, "%s: %s\n", path, plural(r.doc.Steps, "step"))
	if r.doc.Same {
		fmt.Fprintln(r.out, "go test ./cmd/patchbay -run TestTapes plays it")
		return nil
	}
	fmt.Fprintf(r.out, "step %d makes other decisions than were recorded; go test ./cmd/patchbay -run TestTapes -update takes those of this version\n", r.doc.Differs.Step)
	return nil
}
