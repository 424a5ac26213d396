// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// tally counts the mutants of one package.
type tally struct {
	Drawn    int `json:"drawn"`
	Killed   int `json:"killed"` // timeouts included
	Timeouts int `json:"timeouts"`
	Alive    int `json:"alive"`
	Listed   int `json:"listed"` // alive, with a reason in survivors.txt; not counted in the score
}

// score is in per cent.
func (t tally) score() float64 {
	if t.Killed+t.Alive == 0 {
		return 100
	}
	return 100 * float64(t.Killed) / float64(t.Killed+t.Alive)
}

type survivor struct {
	File    string `json:"file"`
	Line    int    `json:"line"`
	Kind    string `json:"kind"`
	Nth     int    `json:"nth"`
	Text    string `json:"text"`
	Reached bool   `json:"reached"`          // by a test
	Reason  string `json:"reason,omitempty"` // of survivors.txt
}

// summary is the result of a run.
type summary struct {
	Seed           uint64           `json:"seed"`
	Wanted         float64          `json:"wanted_percent"`
	Score          float64          `json:"killed_percent"`
	Good           bool             `json:"good"`
	Unfinished     bool             `json:"unfinished"`
	Wants          int              `json:"mutants"` // to decide
	All            tally            `json:"all"`
	Packages       map[string]tally `json:"packages"`
	Survivors      []survivor       `json:"survivors"`
	Problems       []string         `json:"problems"`
	Controls       int              `json:"controls"` // runs without a mutant
	ControlsFailed int              `json:"controls_failed"`
	Seconds        float64          `json:"seconds"`
}

func summarize(o options, drawn []*point, results map[string]result, entries []*entry, problems []string) summary {
	s := summary{Seed: o.seed, Wants: len(drawn), Wanted: o.want, Packages: map[string]tally{}, Problems: problems, Survivors: []survivor{}}
	for _, p := range drawn {
		r, ok := results[p.key()]
		if !ok {
			continue
		}
		t := s.Packages[p.Pkg]
		t.Drawn++
		e := listedBy(entries, p)
		switch {
		case r.Verdict == killed || r.Verdict == timeout:
			t.Killed++
			if r.Verdict == timeout {
				t.Timeouts++
			}
			if e != nil && r.Verdict == killed {
				s.Problems = append(s.Problems, fmt.Sprintf("%v: is killed by %s; remove it", e, r.By))
			}
		case e != nil:
			t.Listed++
		default:
			t.Alive++
		}
		if r.Verdict == alive || r.Verdict == unreached {
			v := survivor{File: p.File, Line: p.Line, Kind: p.Kind, Nth: p.Nth, Text: p.Text, Reached: r.Verdict == alive}
			if e != nil {
				v.Reason = e.reason
			}
			s.Survivors = append(s.Survivors, v)
		}
		s.Packages[p.Pkg] = t
	}
	for _, t := range s.Packages {
		s.All.Drawn += t.Drawn
		s.All.Killed += t.Killed
		s.All.Timeouts += t.Timeouts
		s.All.Alive += t.Alive
		s.All.Listed += t.Listed
	}
	slices.SortFunc(s.Survivors, func(a, b survivor) int {
		if c := strings.Compare(a.File, b.File); c != 0 {
			return c
		}
		return a.Line - b.Line
	})
	s.Score = s.All.score()
	s.Good = s.Score >= s.Wanted && len(s.Problems) == 0 && s.All.Drawn > 0
	return s
}

func (s summary) print(out io.Writer) {
	for _, v := range s.Survivors {
		state := "ALIVE"
		if !v.Reached {
			state = "ALIVE, no test reaches it"
		}
		if v.Reason != "" {
			state = "listed"
		}
		nth := ""
		if v.Nth > 1 {
			nth = fmt.Sprintf("#%d", v.Nth)
		}
		fmt.Fprintf(out, "%s:%d: %s%s: %s (%s)\n", v.File, v.Line, v.Kind, nth, v.Text, state)
	}
	fmt.Fprintf(out, "\n%-52s %6s %7s %9s %6s %7s %8s\n", "package", "drawn", "killed", "of them", "alive", "listed", "killed")
	fmt.Fprintf(out, "%-52s %6s %7s %9s %6s %7s %8s\n", "", "", "", "timeouts", "", "", "%")
	for _, name := range slices.Sorted(maps.Keys(s.Packages)) {
		s.Packages[name].print(out, name)
	}
	s.All.print(out, "all")
	fmt.Fprintf(out, "controls, the same runs without a mutant: %d, failed: %d\n", s.Controls, s.ControlsFailed)
	for _, p := range s.Problems {
		fmt.Fprintln(out, p)
	}
	verdict := "good"
	if !s.Good {
		verdict = "NOT GOOD"
	}
	if s.Unfinished {
		verdict = fmt.Sprintf("UNFINISHED, %d of %d decided; those that live take longest", s.All.Drawn, s.Wants)
	}
	fmt.Fprintf(out, "seed %d: %.1f %% killed, wanted %.0f %%: %s, %.0f s\n", s.Seed, s.Score, s.Wanted, verdict, s.Seconds)
}

func (t tally) print(out io.Writer, name string) {
	fmt.Fprintf(out, "%-52s %6d %7d %9d %6d %7d %8.1f\n", name, t.Drawn, t.Killed, t.Timeouts, t.Alive, t.Listed, t.score())
}
