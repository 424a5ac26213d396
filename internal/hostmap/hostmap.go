// SPDX-License-Identifier: Apache-2.0

// Package hostmap draws one host as a page: its ports by network, the bridges that join them, and the hosts and physical
// networks that they reach.
//
// [Read] collects the documents of an agent, [Render] writes the page. Rendering is pure: the same documents give the same
// bytes. In between, view.go decides what is shown where and in which order, and map.html, map.css and map.js say how it looks.
//
// The page is one file. It loads nothing, its policy forbids loading anything, and the picture needs no script; the few
// lines of map.js add a filter and a quicker hover. Names come from tenants, so every string passes html/template, and
// widths are held by the style, not by trust in the length of a name.
//
// State is never shown by colour alone: a port that needs attention has a sign and comes first, and words are on hover, in
// the list of what is wrong and in the tables. Tiles shrink with the number of ports (see sizeOf); those that need
// attention keep their names.
package hostmap

import (
	"context"
	"crypto/sha256"
	_ "embed" // the page's parts
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/inspect"
)

// Host is what is drawn: the documents of one agent.
type Host struct {
	Time     time.Time // when they were read
	Status   inspect.Status
	Ports    []inspect.Port
	Networks []inspect.Network
	Tunnels  []inspect.Tunnel
	Groups   []inspect.Group
	Bridges  []inspect.Bridge
}

// Read collects what is drawn. Each document is of one moment; between them a port may come or go, and is then drawn by
// what is known of it.
func Read(ctx context.Context, from inspect.Source, now time.Time) (Host, error) {
	h := Host{Time: now}
	var err error
	if h.Status, err = from.Status(ctx); err != nil {
		return Host{}, fmt.Errorf("reading the status: %w", err)
	}
	if h.Ports, err = from.Ports(ctx); err != nil {
		return Host{}, fmt.Errorf("reading ports: %w", err)
	}
	if h.Networks, err = from.Networks(ctx); err != nil {
		return Host{}, fmt.Errorf("reading networks: %w", err)
	}
	if h.Tunnels, err = from.Tunnels(ctx); err != nil {
		return Host{}, fmt.Errorf("reading tunnels: %w", err)
	}
	if h.Groups, err = from.Groups(ctx); err != nil {
		return Host{}, fmt.Errorf("reading groups: %w", err)
	}
	if h.Bridges, err = from.Bridges(ctx); err != nil {
		return Host{}, fmt.Errorf("reading bridges: %w", err)
	}
	return h, nil
}

//go:embed map.html
var pageHTML string

//go:embed map.css
var pageCSS string

//go:embed map.js
var pageJS string

// Policy is what the page may load: its own style and script, and nothing else.
func Policy() string {
	return "default-src 'none'; style-src '" + digest(pageCSS) + "'; script-src '" + digest(pageJS) + "'; base-uri 'none'; form-action 'none'"
}

func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

// Render writes the page.
func Render(w io.Writer, h Host) error {
	t, err := template.New("map").Parse(pageHTML)
	if err != nil {
		return fmt.Errorf("reading the template of the map: %w", err)
	}
	err = t.Execute(w, struct {
		page
		Policy string
		Style  template.CSS
		Script template.JS
	}{newPage(h), Policy(), template.CSS(pageCSS), template.JS(pageJS)})
	if err != nil {
		return fmt.Errorf("writing the map: %w", err)
	}
	return nil
}
