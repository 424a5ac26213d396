// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// runAll tries the drawn mutants, first with the tests of their own package, then those that are left with the tests of the
// packages that use it.
func (m *mutants) runAll(ctx context.Context, drawn []*point, out io.Writer) (map[string]result, error) {
	if err := m.open(); err != nil {
		return nil, err
	}
	defer m.log.Close() //nolint:errcheck // every line was written
	todo := func(open func(result, bool) bool) []*point {
		var t []*point
		for _, p := range drawn {
			if r, ok := m.results[p.key()]; open(r, ok) {
				t = append(t, p)
			}
		}
		return t
	}
	err := func() error {
		first := todo(func(_ result, ok bool) bool { return !ok })
		var own []string
		for _, p := range first {
			own = append(own, p.Pkg)
		}
		if err := m.ensure(ctx, own, out); err != nil {
			return err
		}
		if err := m.stage(ctx, "tests of the same package", first, len(drawn), out, func(p *point) []string { return []string{p.Pkg} }, left); err != nil {
			return err
		}
		second := todo(func(r result, ok bool) bool { return !ok || r.Verdict == left })
		var users []string
		for _, p := range second {
			users = append(users, m.testing(p.Pkg)...)
		}
		if err := m.ensure(ctx, users, out); err != nil {
			return err
		}
		return m.stage(ctx, "tests of packages that use it", second, len(drawn), out, func(p *point) []string { return m.testing(p.Pkg) }, alive)
	}()
	done := map[string]result{}
	for k, r := range m.results {
		if r.Verdict != left {
			done[k] = r
		}
	}
	return done, err
}

// lives notes what a mutant is that no test has killed yet.
func (m *mutants) lives(r *result, otherwise string) {
	m.mu.Lock()
	before, seen := m.results[r.Key]
	m.mu.Unlock()
	switch {
	case r.Verdict != alive && r.Verdict != unreached:
	case otherwise == left:
		if r.Verdict == alive {
			r.By = "reached"
		}
		r.Verdict = left
	case r.Verdict == unreached && seen && before.By == "reached":
		r.Verdict = alive
	}
}

// stage tries mutants with the tests of some packages. One that lives is noted with the verdict otherwise.
func (m *mutants) stage(ctx context.Context, name string, points []*point, of int, out io.Writer, where func(*point) []string, otherwise string) error {
	if len(points) == 0 {
		return nil
	}
	begin, said := time.Now(), time.Now()
	done, dead := 0, 0
	fmt.Fprintf(out, "%d of %d mutants, %s\n", len(points), of, name)
	return parallel(ctx, m.o.workers, len(points), func(i int) error {
		p := points[i]
		r, chunks, err := m.try(ctx, p, where(p))
		if err != nil {
			return err
		}
		r.Key = p.key()
		m.lives(&r, otherwise)
		control := r.Verdict == killed && i%controlOf == 0
		good := true
		if control {
			o, err := m.execute(ctx, chunks.b, chunks.names, alone)
			if err != nil {
				return err
			}
			good = o.verdict == alive
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		if control {
			m.controls++
			if !good {
				m.controlsFailed++
			}
		}
		m.results[r.Key] = r
		done++
		if r.Verdict == killed || r.Verdict == timeout {
			dead++
		}
		if time.Since(said) > 20*time.Second {
			said = time.Now()
			fmt.Fprintf(out, "  %d of %d, %d killed, %.0f s\n", done, len(points), dead, time.Since(begin).Seconds())
		}
		return m.write(r)
	})
}

// group is what runs in one process.
type group struct {
	b       *program
	names   []string
	seconds float64
}

// try runs the tests that reach a mutant, short ones first, until one fails.
func (m *mutants) try(ctx context.Context, p *point, pkgs []string) (result, group, error) {
	var groups []group
	for _, pkg := range pkgs {
		b := m.bins[pkg]
		var reach []*test
		for _, t := range b.Tests {
			if !t.Broken && slices.Contains(t.Reaches, p.ID) {
				reach = append(reach, t)
			}
		}
		slices.SortStableFunc(reach, func(a, b *test) int { return cmp.Compare(a.Seconds, b.Seconds) })
		var g group
		for _, t := range reach {
			if len(g.names) > 0 && g.seconds+t.Seconds > chunk {
				groups = append(groups, g)
				g = group{}
			}
			g.b = b
			g.names = append(g.names, t.Name)
			g.seconds += t.Seconds
		}
		if len(g.names) > 0 {
			groups = append(groups, g)
		}
	}
	if len(groups) == 0 {
		return result{Verdict: unreached}, group{}, nil
	}
	slices.SortStableFunc(groups, func(a, b group) int { return cmp.Compare(a.seconds, b.seconds) })
	for _, g := range groups {
		limit := 10*time.Second + time.Duration(8*g.seconds*float64(time.Second))
		o, err := m.execute(ctx, g.b, g.names, limit, "MUTANTS_NOW="+strconv.Itoa(p.ID))
		if err != nil {
			return result{}, g, err
		}
		if o.verdict != alive {
			return result{Verdict: o.verdict, By: strings.TrimPrefix(g.b.pkg, "github.com/patchbay-sdn/patchbay/") + " " + o.by}, g, nil
		}
	}
	return result{Verdict: alive}, group{}, nil
}
