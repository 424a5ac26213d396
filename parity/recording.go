// SPDX-License-Identifier: Apache-2.0

package parity

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A Recording is one scenario as the Python agent played it: what came in, and what it made of it. Identifiers are stable
// ones, see [Canon].
type Recording struct {
	Meta
	// Stages follow each other; each ends in a checkpoint.
	Stages []Stage
}

// Meta describes a recording.
type Meta struct {
	Name string `json:"name"`
	Doc  string `json:"doc,omitempty"`
	// Config names the configuration that the scenario runs with; the recording of that name holds how its agents start.
	Config string `json:"config"`
	// Overrides are the options that differ from the lab's, as "section.option=value".
	Overrides []string `json:"overrides,omitempty"`
	// Hosts are those whose agents take part.
	Hosts []string `json:"hosts"`
	// Names are the identifiers in Events and what the lines of checkpoints call them.
	Names map[string]string `json:"names"`
}

// A Stage is what happened up to a checkpoint.
type Stage struct {
	Checkpoint string
	// Steps say in words what was done.
	Steps  []string
	Events []Event
	// Want are the lines at the checkpoint.
	Want Snapshot
}

// An Event is one input of an agent, in the order of arrival. Exactly one of Cast, Call and Rows is set.
type Event struct {
	// Hosts are those whose agent got it.
	Hosts []string `json:"hosts"`
	// Cast is a message that the server sent on Topic: "push", "tunnel_update", "add_fdb_entries" …
	Cast  string `json:"cast,omitempty"`
	Topic string `json:"topic,omitempty"`
	// Call is a method of the server that the agent called; Result is the answer, or Failure the class of the exception.
	Call    string          `json:"call,omitempty"`
	Args    json.RawMessage `json:"args,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Failure string          `json:"failure,omitempty"`
	// Rows are changes in the switch's database that the agent did not make, in one or several whole transactions.
	Rows []RowChange `json:"rows,omitempty"`
}

// A RowChange is a bridge, or a port with its only interface, as it is after the change.
type RowChange struct {
	// Table is Bridge or Port.
	Table string `json:"table"`
	Name  string `json:"name"`
	// Incarnation tells rows of the same name apart: it grows when a row was deleted and another one added.
	Incarnation int  `json:"incarnation,omitempty"`
	Deleted     bool `json:"deleted,omitempty"`
	// Bridge is where the port is.
	Bridge string `json:"bridge,omitempty"`
	// Type, OFPort and ExternalIDs are the interface's, or, for a bridge, DatapathType and ExternalIDs its own.
	Type         string            `json:"type,omitempty"`
	OFPort       *int              `json:"ofport,omitempty"`
	DatapathType string            `json:"datapath_type,omitempty"`
	ExternalIDs  map[string]string `json:"external_ids,omitempty"`
	// Tag is set when somebody else than the agent changed the port's tag; -1 means cleared.
	Tag *int `json:"tag,omitempty"`
}

// NamesOf returns the names of a recording, without port numbers and VLANs.
func (r *Recording) NamesOf() *Names {
	n := NewNames()
	for id, name := range r.Names {
		n.Text(id, name)
	}
	return n
}

// file is where a recording stands in a directory.
func file(dir, name string) string { return filepath.Join(dir, name+".txtar") }

// LoadAll reads all recordings of a directory, configurations first.
func LoadAll(dir string) ([]*Recording, error) {
	names, err := filepath.Glob(file(dir, "*"))
	if err != nil {
		return nil, fmt.Errorf("looking for recordings: %w", err)
	}
	var all []*Recording
	for _, name := range names {
		r, err := Load(dir, strings.TrimSuffix(filepath.Base(name), ".txtar"))
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	slices.SortStableFunc(all, func(a, b *Recording) int {
		switch {
		case a.IsConfig() == b.IsConfig():
			return 0
		case a.IsConfig():
			return -1
		}
		return 1
	})
	return all, nil
}

// IsConfig tells whether this is not a scenario but the start of the agents of a configuration.
func (r *Recording) IsConfig() bool { return r.Name == "config-"+r.Config }

// Load reads one recording.
func Load(dir, name string) (*Recording, error) {
	text, err := os.ReadFile(file(dir, name))
	if err != nil {
		return nil, fmt.Errorf("reading a recording: %w", err)
	}
	r := &Recording{}
	if err := r.parse(parseArchive(text)); err != nil {
		return nil, fmt.Errorf("reading %s: %w", file(dir, name), err)
	}
	if r.Name != name {
		return nil, fmt.Errorf("reading %s: it calls itself %q", file(dir, name), r.Name)
	}
	if r.IsConfig() {
		return r, nil
	}
	// Lines of a scenario are written as changes to those of its configuration.
	base, err := Load(dir, "config-"+r.Config)
	if err != nil {
		return nil, err
	}
	r.expand(base.Base(r.Hosts))
	return r, nil
}

// fromStart begins a section that holds changes to the lines of the configuration at rest, fromFirst one that holds changes to
// those of the recording's first checkpoint.
const (
	fromStart = "from the start"
	fromFirst = "from the first checkpoint"
)

// Base returns the lines of the agents at rest, on the given hosts.
func (r *Recording) Base(hosts []string) Snapshot {
	last := r.Stages[len(r.Stages)-1].Want
	return last.Select(func(line string) bool {
		host, rest, _ := strings.Cut(line, " ")
		return slices.Contains(hosts, host) && !strings.HasPrefix(rest, "call ")
	})
}

// A checkpoint's section holds its lines as changes to those before, of the start or of the first checkpoint, whichever is
// shortest. Calls are not carried over.
func (r *Recording) expand(start Snapshot) {
	before, first := start, start
	for i := range r.Stages {
		var added, gone []string
		for _, line := range r.Stages[i].Want {
			if line == fromStart {
				before = start
			} else if line == fromFirst {
				before = first
			} else if rest, ok := strings.CutPrefix(line, "+ "); ok {
				added = append(added, rest)
			} else {
				gone = append(gone, strings.TrimPrefix(line, "- "))
			}
		}
		r.Stages[i].Want = before.Minus(NewSnapshot(gone)).Plus(added)
		before = r.Stages[i].Want.Select(carried)
		if i == 0 {
			first = before
		}
	}
}

func carried(line string) bool { return !strings.Contains(line, " call ") }

func (r *Recording) parse(a archive) error {
	var seen []Event
	for _, f := range a.sections {
		kind, name, _ := strings.Cut(f.name, " ")
		switch kind {
		case "recording":
			if err := json.Unmarshal(f.data, &r.Meta); err != nil {
				return fmt.Errorf("%s: %w", f.name, err)
			}
			r.Doc = strings.TrimSpace(a.comment)
		case "steps":
			r.Stages = append(r.Stages, Stage{Checkpoint: name, Steps: lines(f.data)})
		case "events":
			s := &r.Stages[len(r.Stages)-1]
			for i, line := range lines(f.data) {
				var e written
				if err := json.Unmarshal([]byte(line), &e); err != nil {
					return fmt.Errorf("%s, line %d: %w", f.name, i+1, err)
				}
				if n := e.Again - 1; n >= 0 {
					if n >= len(seen) {
						return fmt.Errorf("%s, line %d: there is no event %d before", f.name, i+1, e.Again)
					}
					hosts := e.Hosts
					e.Event = seen[n]
					e.Hosts = hosts
				}
				seen = append(seen, e.Event)
				s.Events = append(s.Events, e.Event)
			}
		case "want":
			r.Stages[len(r.Stages)-1].Want = lines(f.data)
		default:
			return fmt.Errorf("section %q is not known", f.name)
		}
	}
	if len(r.Stages) == 0 {
		return fmt.Errorf("no checkpoints")
	}
	if r.IsConfig() {
		r.expand(nil)
	}
	return nil
}

func lines(data []byte) []string {
	text := strings.TrimSuffix(string(data), "\n")
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

// Save writes the recording. Base are the lines of its configuration at rest, which [Load] will add again; nil for the
// recording of a configuration.
func (r *Recording) Save(dir string, base Snapshot) error {
	a := archive{comment: wrap(r.Doc) + "\n\n"}
	meta := r.Meta
	meta.Doc = ""
	head, err := encode(meta)
	if err != nil {
		return err
	}
	var indented bytes.Buffer
	if err := json.Indent(&indented, head, "", " "); err != nil {
		return fmt.Errorf("encoding a recording: %w", err)
	}
	a.add("recording", indented.Bytes())
	before, first, seen := base, base, eventLines{}
	for i, s := range r.Stages {
		var events bytes.Buffer
		for _, e := range s.Events {
			line, err := seen.line(e)
			if err != nil {
				return err
			}
			events.Write(line)
		}
		want := changes(before, s.Want)
		for _, other := range []string{fromStart + "\n" + changes(base, s.Want), fromFirst + "\n" + changes(first, s.Want)} {
			if len(other) < len(want) {
				want = other
			}
		}
		a.add("steps "+s.Checkpoint, []byte(strings.Join(s.Steps, "\n")+"\n"))
		a.add("events "+s.Checkpoint, events.Bytes())
		a.add("want "+s.Checkpoint, []byte(want))
		before = s.Want.Select(carried)
		if i == 0 {
			first = before
		}
	}
	if err := os.WriteFile(file(dir, r.Name), a.format(), 0o644); err != nil {
		return fmt.Errorf("writing a recording: %w", err)
	}
	return nil
}

// written is an event as it stands in a file. Again, when not 0, says that it is the same as that event of the recording,
// counted from 1, apart from the hosts.
type written struct {
	Event
	Again int `json:"again,omitempty"`
}

// eventLines are the numbers of the events written so far, by what they say. Servers repeat themselves.
type eventLines map[string]int

func (seen eventLines) line(e Event) ([]byte, error) {
	w := written{Event: e}
	w.Hosts = nil
	text, err := encode(w)
	if err != nil {
		return nil, err
	}
	number := len(seen) + 1
	if first, ok := seen[string(text)]; ok {
		seen[fmt.Sprint("again ", number)] = number // keeps the count
		return encode(written{Event: Event{Hosts: e.Hosts}, Again: first})
	}
	seen[string(text)] = number
	return encode(written{Event: e})
}

// changes writes what makes one snapshot of another.
func changes(from, to Snapshot) string {
	var b strings.Builder
	for _, line := range from.Minus(to) {
		b.WriteString("- " + line + "\n")
	}
	for _, line := range to.Minus(from) {
		b.WriteString("+ " + line + "\n")
	}
	return b.String()
}

// encode writes one line of JSON in which < and > stay readable.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("encoding a recording: %w", err)
	}
	return b.Bytes(), nil
}

// wrap breaks a paragraph into lines of at most 120 characters.
func wrap(s string) string {
	var b strings.Builder
	length := 0
	for _, word := range strings.Fields(s) {
		if length > 0 && length+1+len(word) > 120 {
			b.WriteByte('\n')
			length = 0
		} else if length > 0 {
			b.WriteByte(' ')
			length++
		}
		b.WriteString(word)
		length += len(word)
	}
	return b.String()
}
