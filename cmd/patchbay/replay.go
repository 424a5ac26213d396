// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/patchbay-sdn/patchbay/internal/tape"
)

// replayFlags are the flags of `patchbay replay`.
type replayFlags struct {
	At       string
	Steps    bool
	Previous bool
	Test     string
	Verbose  bool
	Output   format
}

// replayable are the commands that answer about a moment of a tape.
var replayable = []string{"events", "explain", "flows", "group", "groups", "map", "networks", "port", "ports", "spans", "status", "trace", "tunnels"}

func newReplayCommand() *cobra.Command {
	var f replayFlags
	cmd := &cobra.Command{
		Use:   "replay BUNDLE [--at STEP|TIME] [COMMAND [ARGUMENT]...]",
		Short: "Make the decisions of an agent again, from a support bundle, and look at any moment of it",
		Long: `Make the decisions of an agent again, from the inputs that it recorded: on any machine, without switch, broker and
root. BUNDLE is an archive of patchbay support-bundle, or the file patchbay.tape in the agent's state_path.

Without COMMAND the command makes all steps, and says at which step the decisions first differ from those that were
recorded. A program of the same version decides the same.

With COMMAND the command stops at the step or the time of --at, or else after the last step, and answers as the agent
would have answered then. COMMAND is one of
` + "  " + strings.Join(replayable, ", ") + `
with its own arguments and flags. flows prints what flows --owner prints.

Times are those of the host that recorded.

With --test the command writes the tape as a test of this repository: see docs/how-to/replay-a-fault.md.

Exit status:
  0  all steps made the same decisions
  1  a step made other decisions, or the answer of COMMAND is not the good one
  2  the command line cannot be understood
  4  the tape cannot be read, or does not fit this version`,
		Example: `  patchbay replay hv1.tar.gz
  patchbay replay hv1.tar.gz --steps
  patchbay replay hv1.tar.gz --at 211 explain web-1
  patchbay replay hv1.tar.gz --at 14:03:20 flows br-int --text missing
  patchbay replay hv1.tar.gz --test cmd/patchbay/testdata/tapes`,
		// Flags after COMMAND are those of COMMAND.
		DisableFlagParsing: true,
	}
	fl := cmd.Flags()
	fl.SetInterspersed(false)
	fl.StringVar(&f.At, "at", "", "stop after this step, or at this time: 211, 14:03:20, 2026-11-16T14:03:20Z, or +90s after the start")
	fl.BoolVar(&f.Steps, "steps", false, "list the steps: when, what happened, what was decided")
	fl.BoolVar(&f.Previous, "previous", false, "take the tape of the agent that ran before the one of the bundle")
	fl.StringVar(&f.Test, "test", "", "write the tape into this directory, as a test")
	fl.BoolVarP(&f.Verbose, "verbose", "v", false, "with --steps: print all that was decided")
	f.Output.add(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		args, err := parseAround(fl, args)
		switch {
		case errors.Is(err, pflag.ErrHelp):
			return cmd.Help()
		case err != nil:
			return usage{flagError(cmd, err)}
		case len(args) == 0:
			return usage{errors.New("patchbay replay takes BUNDLE [COMMAND], and got no argument")}
		}
		return runReplay(cmd, args, f)
	}
	return cmd
}

// parseAround reads the flags before and after the first argument, up to the second.
func parseAround(fl *pflag.FlagSet, args []string) ([]string, error) {
	if err := fl.Parse(args); err != nil || fl.NArg() == 0 {
		return fl.Args(), err
	}
	first := fl.Arg(0)
	err := fl.Parse(fl.Args()[1:])
	return append([]string{first}, fl.Args()...), err
}

func runReplay(cmd *cobra.Command, args []string, f replayFlags) error {
	if len(args) > 1 {
		if err := oneOf(args[1], replayable); err != nil {
			return usage{fmt.Errorf("%q cannot be asked of a tape: %w", args[1], err)}
		}
		if f.Steps || f.Test != "" {
			return usage{errors.New("--steps and --test go with no command")}
		}
	}
	data, err := readTape(args[0], f.Previous)
	if err != nil {
		return err
	}
	p, err := newPlayer(data)
	if err != nil {
		return fmt.Errorf("%s: %w", args[0], err)
	}
	stop, err := parseMoment(f.At, p.Began())
	if err != nil {
		return usage{fmt.Errorf("--at %q: %w", f.At, err)}
	}
	play := replay{out: cmd.OutOrStdout(), f: f, doc: replayed{Host: p.Host(), Version: p.Version(), Began: p.Began(), Same: true}}
	if err := play.to(p, stop); err != nil {
		return err
	}
	switch {
	case f.Test != "":
		return play.writeTest(f.Test, args[0], data)
	case len(args) > 1 && play.doc.Same:
		return askTape(cmd, p, args[1:])
	}
	return play.end(p)
}

// newPlayer returns a player of a tape.
func newPlayer(data io.Reader) (*tape.Player, error) {
	r, err := tape.NewReader(data)
	if err != nil {
		return nil, err
	}
	var made []madeExtension
	if len(r.Header.Extensions) > 0 {
		if err := json.Unmarshal(r.Header.Extensions, &made); err != nil {
			return nil, fmt.Errorf("the tape's extensions cannot be read: %w", err)
		}
	}
	list, err := makers(made)
	if err != nil {
		return nil, err
	}
	return tape.NewPlayer(r, list), nil
}

// moment is where a replay stops: after a step, or at a time; both zero: at the end.
type moment struct {
	step int
	at   time.Time
}

// parseMoment reads the value of --at.
func parseMoment(text string, began time.Time) (moment, error) {
	if text == "" {
		return moment{}, nil
	}
	if n, err := strconv.Atoi(text); err == nil && !strings.HasPrefix(text, "+") {
		if n < 1 {
			return moment{}, errors.New("the first step is 1")
		}
		return moment{step: n}, nil
	}
	if after, ok := strings.CutPrefix(text, "+"); ok {
		if d, err := time.ParseDuration(after); err == nil {
			return moment{at: began.Add(d)}, nil
		}
	}
	if at, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return moment{at: at}, nil
	}
	for _, layout := range []string{"15:04:05.999999999", "15:04"} {
		at, err := time.Parse(layout, text)
		if err != nil {
			continue
		}
		day := time.Date(began.Year(), began.Month(), began.Day(), at.Hour(), at.Minute(), at.Second(), at.Nanosecond(), began.Location())
		if day.Before(began.Truncate(time.Second)) {
			day = day.AddDate(0, 0, 1)
		}
		return moment{at: day}, nil
	}
	return moment{}, errors.New("it is neither a step nor a time such as 14:03:20, 2026-11-16T14:03:20Z or +90s")
}

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

// replay plays a tape and notes what comes of it.
type replay struct {
	out io.Writer
	f   replayFlags
	doc replayed
}

// to plays up to a moment, or to the first step that differs.
func (r *replay) to(p *tape.Player, stop moment) error {
	for stop.step == 0 || r.doc.Steps < stop.step {
		if next, ok := p.Peek(); ok && !stop.at.IsZero() && next.After(stop.at) {
			return nil
		}
		s, err := p.Next()
		if errors.Is(err, io.EOF) {
			if stop.step > r.doc.Steps {
				return usage{fmt.Errorf("--at %d: the tape has %s", stop.step, plural(r.doc.Steps, "step"))}
			}
			return nil
		}
		if err != nil {
			return err
		}
		r.doc.Steps, r.doc.Events, r.doc.Until = s.N, r.doc.Events+len(s.Events), s.At
		if r.f.Steps {
			if err := r.writeStep(&s); err != nil {
				return err
			}
		}
		if !s.Same {
			then, now := firstDifference(s.Recorded, s.Out)
			r.doc.Same, r.doc.Differs = false, &different{s.N, s.At, s.Events, then, now}
			return nil
		}
	}
	return nil
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

// askTape answers a command about the moment at which a player stands.
func askTape(cmd *cobra.Command, p *tape.Player, args []string) error {
	ctx, cancel := context.WithCancel(context.WithValue(cmd.Context(), tapeKey{}, p.Core().Look(p.At())))
	defer cancel()
	socket, done, err := answerAbout(ctx, p)
	if err != nil {
		return err
	}
	defer func() { cancel(); done() }()
	args = append(slices.Clone(args), "--socket", socket)
	if args[0] == "flows" {
		args = append(args, "--owner")
	}
	root := newRootCommand()
	root.SetContext(ctx)
	root.SetOut(cmd.OutOrStdout())
	root.SetErr(cmd.ErrOrStderr())
	if status := runCommand(root, args); status != 0 {
		return ended{status: status}
	}
	return nil
}
