// SPDX-License-Identifier: Apache-2.0

package effect

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/patchbay-sdn/patchbay/internal/delta"
	"github.com/patchbay-sdn/patchbay/internal/world"
)

// Text prints everything, one effect after the other. After so many bytes the flows that are added are printed as bytes, not in words: that is enough for somebody who
// compares, and takes a quarter of the time (BenchmarkOutcome).
func (e Effects) Text(words int) []byte {
	p := &printer{words: words}
	for _, do := range e.Do {
		if a, ok := do.(Apply); ok {
			p.apply(a)
		} else {
			p.WriteString(do.String())
		}
		p.WriteByte('\n')
	}
	if e.Progress != nil {
		fmt.Fprintf(p, "progress %+v\n", *e.Progress)
	}
	if !e.Wake.IsZero() {
		fmt.Fprintf(p, "wake at %d\n", e.Wake.UnixNano())
	}
	return p.Bytes()
}

// String prints everything in words.
func (e Effects) String() string { return string(e.Text(math.MaxInt)) }

func (e Apply) String() string {
	p := &printer{words: math.MaxInt}
	p.apply(e)
	return p.String()
}

type printer struct {
	bytes.Buffer
	words int
}

func (p *printer) apply(e Apply) {
	p.WriteString("apply")
	for i, tx := range e.Rows {
		ops, err := tx.JSON()
		fmt.Fprintf(p, "\n\trows of %s:", e.Owners[i])
		for _, op := range ops {
			p.WriteString(" " + canonical(op))
		}
		fmt.Fprintf(p, " %v", err)
	}
	if e.Limits != nil {
		fmt.Fprintf(p, "\n\tlimits %+v", *e.Limits) // fmt sorts maps
	}
	fmt.Fprintf(p, "\n\tflush %v, placed %v", e.Flush, e.Placed)
	for i := range e.Bundles {
		bundle := &e.Bundles[i]
		fmt.Fprintf(p, "\n\tbundle of %s, zones %v, withheld %v", bundle.Bridge, bundle.Zones, bundle.Withheld)
		p.meters("meter before", bundle.MetersIn)
		for _, c := range bundle.Changes {
			p.change(c)
		}
		p.meters("meter after", bundle.MetersOut)
	}
}

func (p *printer) change(c delta.Change) {
	b := append(p.AvailableBuffer(), "\n\t\tflow of "...)
	b = append(append(b, world.NameOf(c.Owner)...), ": "...)
	switch {
	case c.Entry.IsZero():
		b = fmt.Appendf(b, "delete %x", c.Key)
	case p.Len() < p.words:
		b = c.Entry.AppendText(b)
	default:
		b = append(b, c.Entry.Canonical()...)
	}
	p.Write(b)
}

func (p *printer) meters(what string, changes []delta.MeterChange) {
	for _, c := range changes {
		fmt.Fprintf(p, "\n\t\t%s of %s: %+v", what, world.NameOf(c.Owner), c.MeterMod)
	}
}

func asJSON(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// canonical returns an operation of the database with its sets and maps sorted: they have no order.
func canonical(op string) string {
	var v any
	if err := json.Unmarshal([]byte(op), &v); err != nil {
		return op
	}
	sortSets(v)
	return asJSON(v)
}

func sortSets(v any) {
	switch v := v.(type) {
	case map[string]any:
		for _, of := range v {
			sortSets(of)
		}
	case []any:
		for _, of := range v {
			sortSets(of)
		}
		if len(v) == 2 && (v[0] == "map" || v[0] == "set") {
			if list, ok := v[1].([]any); ok {
				slices.SortFunc(list, func(a, b any) int { return strings.Compare(asJSON(a), asJSON(b)) })
			}
		}
	}
}
