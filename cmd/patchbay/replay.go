// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
var replayable = []string{"events", "explain", "flows", "group", "groups", "map", "networks", "port", "ports", "spans", "status", "tunnels"}

func newReplayCommand() *cobra.Command {
	var f replayFlags
	cmd := &cobra.Command{
		Use:   "replay BUNDLE [--at STEP|TIME] [COMMAND [ARGUMENT]...]",
		Short: "Repeat the decisions of an agent from a support bundle, and show its state at any step",
		Long: `Repeat the decisions of an agent from the inputs that the agent recorded. The command runs on any machine, and needs
no switch, no broker and no root. BUNDLE is an archive of patchbay support-bundle, or the file patchbay.tape in the
agent's state_path.

Without COMMAND the command repeats all steps, and names the first step whose decisions differ from the recorded
decisions. The same version of Patchbay makes the same decisions.

With COMMAND the command stops at the step or the time of --at; without --at it stops after the last step. It then prints
the output that COMMAND would have printed on the host at that step. COMMAND is one of
` + "  " + strings.Join(replayable, ", ") + `
with its own arguments and flags. flows prints what flows --owner prints.

Times are in the clock of the recorded host.

With --test the command writes the tape as a test of this repository: see docs/how-to/replay-a-fault.md.

Exit status:
  0  all steps made the same decisions
  1  a step made other decisions, or COMMAND ended with status 1, as status does for an agent that is not in sync
  2  the command line cannot be understood
  4  the tape cannot be read, or this version cannot replay it`,
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
	fl.BoolVar(&f.Steps, "steps", false, "list the steps: time, inputs and decisions of each")
	fl.BoolVar(&f.Previous, "previous", false, "replay the tape of the previous run of the agent")
	fl.StringVar(&f.Test, "test", "", "write the tape into this directory, as a test")
	fl.BoolVarP(&f.Verbose, "verbose", "v", false, "with --steps: print every decision")
	f.Output.add(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		args, err := parseAround(fl, args)
		switch {
		case errors.Is(err, pflag.ErrHelp) || fl.Changed("help"):
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
		if args[1] == "trace" {
			return usage{errors.New("trace needs the switch that carries the packets, and a bundle has none: patchbay replay BUNDLE explain PORT and flows BRIDGE print what the flows decide")}
		}
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
		if s.Partly {
			r.doc.Partly++
		}
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

// askTape answers a command about the moment at which a player stands.
func askTape(cmd *cobra.Command, p *tape.Player, args []string) error {
	ctx, cancel := context.WithCancel(asOf(context.WithValue(cmd.Context(), tapeKey{}, p.Core().Look(p.At())), p.At()))
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
