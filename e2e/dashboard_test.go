// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"html"
	"math"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// board is what matters here of a dashboard of Grafana's.
type board struct{ Panels []panel }

type panel struct {
	Type, Title string
	GridPos     struct{ X, Y, W, H float64 }
	Targets     []struct{ Expr, LegendFormat string }
	FieldConfig struct {
		Defaults struct{ Unit string }
	}
}

// line is one series of a panel.
type line struct {
	Metric map[string]string
	Values [][2]any
	name   string
}

// dashboard evaluates every query of the dashboard. With PATCHBAY_DASHBOARD=FILE.svg it draws the panels, too: Debian has no
// Grafana to take a picture of.
func (x *alerts) dashboard(t *testing.T) {
	text, err := os.ReadFile(monitoring + "dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var b board
	if err := json.Unmarshal(text, &b); err != nil {
		t.Fatal(err)
	}
	queries := 0
	for _, p := range b.Panels {
		for _, q := range p.Targets {
			queries++
			if x.samples(strings.ReplaceAll(q.Expr, "$instance", ".*")) == 0 {
				t.Errorf("%s: no data for %s", p.Title, q.Expr)
			}
		}
	}
	fmt.Printf("%d panels, %d queries, all with data unless said otherwise\n", len(b.Panels), queries)
	if path := os.Getenv("PATCHBAY_DASHBOARD"); path != "" {
		if err := os.WriteFile(path, []byte(x.draw(&b)), 0o644); err != nil {
			t.Error(err)
		}
	}
}

// The size of a cell of the dashboard's grid, the room around a graph, and the colours of its lines.
const (
	cellW, cellH                            = 52, 34
	roomLeft, roomTop, roomRight, roomBelow = 48, 30, 185, 22
)

var colours = []string{"#1f77b4", "#d62728", "#2ca02c", "#ff7f0e", "#9467bd", "#17becf", "#8c564b", "#e377c2", "#7f7f7f", "#bcbd22"}

// draw is the dashboard as one picture, of the time since the test began.
func (x *alerts) draw(b *board) string {
	var s strings.Builder
	to := time.Now()
	from := x.began
	height := 0.0
	for _, p := range b.Panels {
		height = max(height, (p.GridPos.Y+p.GridPos.H)*cellH)
	}
	fmt.Fprintf(&s, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%.0f" font-family="sans-serif" font-size="11"><rect width="100%%" height="100%%" fill="#f4f5f5"/>`+"\n", 24*cellW, height)
	for i := range b.Panels {
		p := &b.Panels[i]
		w, h := p.GridPos.W*cellW-6, p.GridPos.H*cellH-6
		fmt.Fprintf(&s, `<g transform="translate(%.0f,%.0f)"><rect width="%.0f" height="%.0f" fill="#fff" stroke="#ddd"/><text x="8" y="18" font-weight="bold">%s</text>`+"\n",
			p.GridPos.X*cellW+3, p.GridPos.Y*cellH+3, w, h, html.EscapeString(p.Title))
		var lines []line
		for _, q := range p.Targets {
			for _, l := range x.series(strings.ReplaceAll(q.Expr, "$instance", ".*"), from, to) {
				l.name = legend.ReplaceAllStringFunc(q.LegendFormat, func(m string) string { return l.Metric[strings.Trim(m, "{} ")] })
				lines = append(lines, l)
			}
		}
		if p.Type == "stat" {
			last := 0.0
			if len(lines) > 0 {
				last = l64(lines[0].Values[len(lines[0].Values)-1][1])
			}
			fmt.Fprintf(&s, `<text x="%.0f" y="%.0f" font-size="40" text-anchor="middle">%s</text>`+"\n", w/2, h/2+24, amount(math.Round(last), ""))
		} else {
			graph(&s, lines, w, h, p.FieldConfig.Defaults.Unit, from, to)
		}
		s.WriteString("</g>\n")
	}
	return s.String() + "</svg>\n"
}

var legend = regexp.MustCompile(`\{\{[^}]*\}\}`)

func (x *alerts) series(expr string, from, to time.Time) []line {
	var data struct{ Result []line }
	x.get(fmt.Sprintf("query_range?query=%s&start=%d&end=%d&step=2", url.QueryEscape(expr), from.Unix(), to.Unix()), &data)
	return data.Result
}

func l64(value any) float64 {
	text, _ := value.(string)
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsInf(f, 0) {
		return math.NaN()
	}
	return f
}

func graph(s *strings.Builder, lines []line, w, h float64, unit string, from, to time.Time) {
	most := 0.0
	for _, l := range lines {
		for _, v := range l.Values {
			if f := l64(v[1]); f > most {
				most = f
			}
		}
	}
	if most == 0 {
		most = 1
	}
	gw, gh := w-roomLeft-roomRight, h-roomTop-roomBelow
	for i := range 4 {
		y := roomTop + gh*float64(i)/3
		fmt.Fprintf(s, `<line x1="%d" x2="%.0f" y1="%.1f" y2="%.1[3]f" stroke="#eee"/><text x="%d" y="%.1f" text-anchor="end" fill="#666">%s</text>`+"\n",
			roomLeft, roomLeft+gw, y, roomLeft-5, y+4, amount(most*float64(3-i)/3, unit))
	}
	for minute := from.Truncate(time.Minute).Add(time.Minute); minute.Before(to); minute = minute.Add(time.Minute) {
		at := roomLeft + gw*minute.Sub(from).Seconds()/to.Sub(from).Seconds()
		fmt.Fprintf(s, `<text x="%.1f" y="%.1f" text-anchor="middle" fill="#666">%s</text>`+"\n", at, h-7, minute.Format("15:04"))
	}
	for i, l := range lines {
		colour := colours[i%len(colours)]
		var path strings.Builder
		before := math.Inf(-1)
		for _, v := range l.Values {
			at, _ := v[0].(float64)
			f := l64(v[1])
			if math.IsNaN(f) {
				continue
			}
			word := "L"
			if at-before > 4 { // there was nothing in between
				word = "M"
			}
			before = at
			fmt.Fprintf(&path, "%s%.1f %.1f", word, roomLeft+gw*(at-float64(from.Unix()))/to.Sub(from).Seconds(), roomTop+gh*(1-f/most))
		}
		fmt.Fprintf(s, `<path d="%s" fill="none" stroke="%s" stroke-width="1.5"/>`+"\n", path.String(), colour)
		if y := roomTop + 10 + 15*float64(i); y < h-4 {
			fmt.Fprintf(s, `<rect x="%.0f" y="%.0f" width="10" height="3" fill="%s"/><text x="%.0f" y="%.0f">%s</text>`+"\n", w-roomRight+12, y-5, colour, w-roomRight+26, y, html.EscapeString(l.name))
		}
	}
}

// amount is a number for people.
func amount(v float64, unit string) string {
	switch {
	case unit == "bytes":
		return fmt.Sprintf("%.0f MiB", v/(1<<20))
	case unit == "percentunit":
		return fmt.Sprintf("%.2g %%", v*100)
	case v != 0 && math.Abs(v) < 10:
		return strconv.FormatFloat(v, 'g', 2, 64)
	}
	return strconv.FormatFloat(math.Round(v), 'f', -1, 64)
}
