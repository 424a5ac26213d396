// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"github.com/patchbay-sdn/patchbay/internal/options"
	"github.com/patchbay-sdn/patchbay/oslo/config"
)

// writeReport prints for people: what is wrong comes first, then the values, and
// the last line says it once more for those who see only the end.
func writeReport(w io.Writer, r *options.Report, found *peerDocument, flags checkFlags) error {
	var b bytes.Buffer
	writeFiles(&b, r)
	writeFindings(&b, r, options.Fatal, "the agent would not start:")
	also := "the agent would start, but look at this:"
	if r.Count(options.Fatal) > 0 {
		also = "look at this too:"
	}
	writeFindings(&b, r, options.Warning, also)
	if flags.Verbose {
		writeFindings(&b, r, options.Note, "for your information:")
	}
	if found != nil {
		found.write(&b)
	}
	if !usageFault(r) {
		writeSettings(&b, r, flags)
	}
	summary := plural(r.Count(options.Fatal), "error") + ", " + plural(r.Count(options.Warning), "warning")
	if notes := r.Count(options.Note); notes > 0 && !flags.Verbose {
		summary += fmt.Sprintf(" (and %s, shown with --verbose)", plural(notes, "note"))
	}
	fmt.Fprintf(&b, "%s\n", summary)
	_, err := w.Write(b.Bytes())
	return err
}

func writeFiles(b *bytes.Buffer, r *options.Report) {
	if len(r.Files) == 0 {
		fmt.Fprint(b, "No configuration file was read.\n\n")
		return
	}
	fmt.Fprintln(b, "Files, a later one wins:")
	for _, f := range r.Files {
		fmt.Fprintf(b, "  %s\n", f)
	}
	fmt.Fprintln(b)
}

func writeFindings(b *bytes.Buffer, r *options.Report, severity options.Severity, title string) {
	n := r.Count(severity)
	if n == 0 {
		return
	}
	fmt.Fprintf(b, "%s: %s\n", capital(plural(n, severity.String())), title)
	for _, f := range r.Findings {
		if f.Severity != severity {
			continue
		}
		if f.Origin.Kind != config.FromDefault {
			fmt.Fprintf(b, "  %s\n    %s\n", f.Origin, f.Sentence)
		} else {
			fmt.Fprintf(b, "  %s\n", f.Sentence)
		}
	}
	fmt.Fprintln(b)
}

// writeSettings prints values as they would stand in a file, each followed by
// its origin.
func writeSettings(b *bytes.Buffer, r *options.Report, flags checkFlags) {
	type line struct{ group, text, origin string }
	var lines []line
	width := 0
	hidden := 0
	for _, s := range shown(r, flags) {
		if s.Support == options.NoEffect && s.Origin().Kind == config.FromDefault && !flags.Verbose {
			hidden++
			continue
		}
		option := s.Option()
		id := option.ID()
		text := id.Option + " = " + singleLine(s.String())
		if !s.IsSet() {
			text = "# " + id.Option + " is not set"
		}
		lines = append(lines, line{fileGroup(id.Group), text, s.Origin().String()})
		width = max(width, len(text))
	}
	width = min(width, 60)
	group := ""
	for _, l := range lines {
		if l.group != group {
			group = l.group
			fmt.Fprintf(b, "[%s]\n", group)
		}
		fmt.Fprintf(b, "%-*s  # %s\n", width, l.text, l.origin)
	}
	if hidden > 0 {
		fmt.Fprintf(b, "# and %s without effect, shown with --verbose\n", plural(hidden, "option"))
	}
	if len(lines) > 0 {
		fmt.Fprintln(b)
	}
}

func shown(r *options.Report, flags checkFlags) []options.Setting {
	if !flags.Changed {
		return r.Settings
	}
	var out []options.Setting
	for _, s := range r.Settings {
		if s.Origin().Kind != config.FromDefault {
			out = append(out, s)
		}
	}
	return out
}

// singleLine keeps a value that was written over several lines readable.
func singleLine(s string) string { return strings.ReplaceAll(s, "\n", "⏎") }

func fileGroup(group string) string {
	if group == "DEFAULT" {
		return group
	}
	return strings.ToLower(group)
}

func capital(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// The JSON form is an interface: names are added, never changed.
type jsonReport struct {
	Files    []string      `json:"files"`
	Errors   int           `json:"errors"`
	Warnings int           `json:"warnings"`
	Findings []jsonFinding `json:"findings"`
	Peers    *peerDocument `json:"peers,omitempty"` // with --connect
	Options  []jsonOption  `json:"options"`
}

type jsonFinding struct {
	Severity string     `json:"severity"`
	Kind     string     `json:"kind"`
	Section  string     `json:"section,omitempty"`
	Option   string     `json:"option,omitempty"`
	Origin   jsonOrigin `json:"origin"`
	Message  string     `json:"message"`
}

type jsonOption struct {
	Section string       `json:"section"`
	Option  string       `json:"option"`
	Value   config.Value `json:"value"`
	Origin  jsonOrigin   `json:"origin"`
	Support string       `json:"support"`
}

type jsonOrigin struct {
	Kind string `json:"kind"` // file, environment, command-line or default
	File string `json:"file,omitempty"`
	Line int    `json:"line,omitempty"`
	Name string `json:"name,omitempty"`
}

func originJSON(o config.Origin) jsonOrigin {
	kind := map[config.OriginKind]string{
		config.FromDefault: "default", config.FromFile: "file",
		config.FromEnvironment: "environment", config.FromCommandLine: "command-line",
	}[o.Kind]
	return jsonOrigin{Kind: kind, File: o.File, Line: o.Line, Name: o.Name}
}

// documentOf returns what programs get of a report.
func documentOf(r *options.Report, found *peerDocument, flags checkFlags) jsonReport {
	out := jsonReport{
		Files: append([]string{}, r.Files...), Errors: r.Count(options.Fatal), Warnings: r.Count(options.Warning),
		Findings: []jsonFinding{}, Options: []jsonOption{}, Peers: found,
	}
	for _, f := range r.Findings {
		if f.Severity == options.Note && !flags.Verbose {
			continue
		}
		out.Findings = append(out.Findings, jsonFinding{
			Severity: f.Severity.String(), Kind: f.Kind, Section: f.Group, Option: f.Option,
			Origin: originJSON(f.Origin), Message: f.Sentence,
		})
	}
	for _, s := range shown(r, flags) {
		option := s.Option()
		id := option.ID()
		out.Options = append(out.Options, jsonOption{
			Section: fileGroup(id.Group), Option: id.Option, Value: s.Value,
			Origin: originJSON(s.Origin()), Support: s.Support.String(),
		})
	}
	return out
}
