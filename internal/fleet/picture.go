// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"
	"time"
)

// Tile is a host in the picture of a region.
type Tile struct {
	Host, State, Version, Why string
	// Kind is its colour: "fine", "off" (another agent runs there) or "bad".
	Kind string
}

//go:embed picture.html
var pictureHTML string

// Picture writes a page with a tile for each host, in the order of the list, and the reasons of those that are bad. The page loads nothing.
func Picture(w io.Writer, tiles []Tile, now time.Time) error {
	t, err := template.New("region").Parse(pictureHTML)
	if err != nil {
		return fmt.Errorf("reading the template of the region: %w", err)
	}
	type count struct {
		Name, Kind string
		N          int
	}
	var states, versions []count
	add := func(list []count, name, kind string) []count {
		if name == "" {
			return list
		}
		i := slices.IndexFunc(list, func(c count) bool { return c.Name == name })
		if i < 0 {
			list, i = append(list, count{Name: name, Kind: kind}), len(list)
		}
		list[i].N++
		return list
	}
	var bad []Tile
	for _, x := range tiles {
		states, versions = add(states, x.State, x.Kind), add(versions, x.Version, "")
		if x.Kind == "bad" {
			bad = append(bad, x)
		}
	}
	if err := t.Execute(w, map[string]any{"At": now.UTC().Format("2006-01-02 15:04:05 MST"), "Tiles": tiles, "States": states, "Versions": versions, "Bad": bad}); err != nil {
		return fmt.Errorf("writing the picture of the region: %w", err)
	}
	return nil
}
