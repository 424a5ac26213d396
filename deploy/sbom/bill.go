// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"runtime/debug"
	"strings"
)

// The fields of CycloneDX 1.5 that say something about a Go binary. There is no time in it: the same binary, the same bill.
type bill struct {
	Format       string       `json:"bomFormat"`
	SpecVersion  string       `json:"specVersion"`
	SerialNumber string       `json:"serialNumber"`
	Version      int          `json:"version"`
	Metadata     metadata     `json:"metadata"`
	Components   []component  `json:"components"`
	Dependencies []dependency `json:"dependencies"`
}

type metadata struct {
	Component component `json:"component"`
}

type component struct {
	Type       string     `json:"type"`
	Ref        string     `json:"bom-ref"`
	Name       string     `json:"name"`
	Version    string     `json:"version,omitempty"`
	PURL       string     `json:"purl,omitempty"`
	Licenses   []licence  `json:"licenses,omitempty"`
	Properties []property `json:"properties,omitempty"`
}

type licence struct {
	License struct {
		ID string `json:"id"`
	} `json:"license"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type dependency struct {
	Ref       string   `json:"ref"`
	DependsOn []string `json:"dependsOn,omitempty"`
}

// billOf is the bill of materials as indented JSON.
func billOf(info *debug.BuildInfo, parts []part, version string) ([]byte, error) {
	if version == "" {
		version = info.Main.Version
	}
	main := newComponent("application", info.Main.Path, version, "Apache-2.0")
	for _, s := range info.Settings {
		switch s.Key {
		case "GOOS", "GOARCH", "GOAMD64", "CGO_ENABLED", "-trimpath", "-tags":
			main.Properties = append(main.Properties, property{"go:build:" + s.Key, s.Value})
		}
	}
	b := bill{
		Format: "CycloneDX", SpecVersion: "1.5", Version: 1,
		Metadata:     metadata{main},
		Components:   []component{},
		Dependencies: []dependency{{Ref: main.Ref}},
	}
	for _, p := range parts {
		c := newComponent("library", p.Path, p.Version, p.Licence)
		if p.Sum != "" {
			// Not one of CycloneDX's hashes: it is taken over the list of files, not over an archive.
			c.Properties = []property{{"go:sum", p.Sum}}
		}
		b.Components = append(b.Components, c)
		b.Dependencies[0].DependsOn = append(b.Dependencies[0].DependsOn, c.Ref)
	}
	content, err := json.Marshal(b)
	if err != nil {
		return nil, fmt.Errorf("encoding the bill: %w", err)
	}
	b.SerialNumber = serialNumber(content)
	text, err := json.MarshalIndent(b, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encoding the bill: %w", err)
	}
	return append(text, '\n'), nil
}

func newComponent(kind, path, version, spdx string) component {
	purl := "pkg:golang/" + path
	if version != "" {
		purl += "@" + strings.ReplaceAll(version, "+", "%2B")
	}
	c := component{Type: kind, Ref: purl, Name: path, Version: version, PURL: purl, Licenses: make([]licence, 1)}
	c.Licenses[0].License.ID = spdx
	return c
}

// serialNumber is a UUID made of the content, where others roll dice.
func serialNumber(content []byte) string {
	u := sha256.Sum256(content)
	u[6] = u[6]&0x0f | 0x80 // version 8: made by a rule of our own
	u[8] = u[8]&0x3f | 0x80
	return fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", u[0:4], u[4:6], u[6:8], u[8:10], u[10:16])
}

// noticesOf is the text that goes with the binary: who wrote its parts and on what terms.
func noticesOf(parts []part) []byte {
	var b bytes.Buffer
	b.WriteString("Patchbay contains the following software.\n")
	for _, p := range parts {
		fmt.Fprintf(&b, "\n%s\n%s %s (%s)\n\n%s\n", strings.Repeat("=", 78), p.Path, p.Version, p.Licence, strings.TrimSpace(p.Text))
	}
	return b.Bytes()
}
