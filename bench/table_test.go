// SPDX-License-Identifier: Apache-2.0

//go:build bench

package bench

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"text/tabwriter"
	"time"
)

// table is what a run found out.
type table struct {
	beside string // what Patchbay and the Python agent are compared with
	rows   []row
}

type row struct {
	what, python, beside, patchbay, ratio, target string
	met                                           bool
}

func (tb *table) add(t *testing.T, r row) {
	t.Helper()
	tb.rows = append(tb.rows, r)
	t.Logf("%s: Python %s, %s %s, Patchbay %s, ratio %s, target %s, met: %v", r.what, r.python, tb.beside, r.beside, r.patchbay, r.ratio, r.target, r.met)
	if !r.met && r.target != "" && asserting() {
		t.Errorf("%s: %s (%s), target %s", r.what, r.patchbay, r.ratio, r.target)
	}
}

func (tb *table) print(w io.Writer, about string) {
	out := tabwriter.NewWriter(w, 0, 0, 1, ' ', 0)
	fmt.Fprintf(w, "\n%s\n\n", about)
	cells := func(c ...string) { fmt.Fprintln(out, "| "+strings.Join(c, "\t| ")+"\t|") }
	cells("what", "Python", tb.beside, "Patchbay", "ratio", "target", "met")
	cells("---", "---", "---", "---", "---", "---", "---")
	for _, r := range tb.rows {
		met := "no"
		if r.met {
			met = "yes"
		}
		if r.target == "" {
			met = ""
		}
		cells(r.what, or(r.python), or(r.beside), or(r.patchbay), or(r.ratio), or(r.target), or(met))
	}
	_ = out.Flush()
}

func or(s string) string {
	if s == "" {
		return "–"
	}
	return s
}

func ms(d time.Duration) string {
	switch {
	case d == 0:
		return ""
	case d >= 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d >= time.Second:
		return fmt.Sprintf("%.2f s", d.Seconds())
	case d >= 10*time.Millisecond:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return fmt.Sprintf("%.2f ms", float64(d)/1e6)
}

func times(a, b time.Duration) (text string, value float64) {
	if b == 0 {
		return "", 0
	}
	v := float64(a) / float64(b)
	return fmt.Sprintf("%.2f", v), v
}
