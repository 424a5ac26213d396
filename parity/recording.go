// SPDX-License-Identifier: Apache-2.0

package parity

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/tools/txtar"
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
	// Noise matches "checkpoint line" of lines that the Python agent itself gets right one time and not the next. They are left
	// out on both sides.
	Noise string `json:"noise,omitempty"`
	// Recorded says of what and when.
	Recorded Recorded `json:"recorded"`
	// Names are the identifiers in Events and what the lines of checkpoints call them.
	Names map[string]string `json:"names"`
}

// Recorded says what a recording was made of.
type Recorded struct {
	// Release is that of Neutron, Agent and Switch are the packages with their versions, Date is the day.
	Release string `json:"release"`
	Agent   string `json:"agent"`
	Switch  string `json:"switch"`
	Date    string `json:"date"`
	// Edited says what was changed afterwards without recording again, and by which commit.
	Edited string `json:"edited,omitempty"`
	// Sum is the checksum of everything else in the file. It is written with the file.
	Sum string `json:"sha256"`
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

// Passed is how long the steps of the stage waited.
func (s *Stage) Passed() time.Duration {
	var sum time.Duration
	for _, step := range s.Steps {
		if word, ok := strings.CutSuffix(step, " pass"); ok {
			if d, err := time.ParseDuration(word); err == nil {
				sum += d
			}
		}
	}
	return sum
}

// Restarts tells whether the agent of a host was started anew.
func (s *Stage) Restarts(host string) bool {
	return slices.ContainsFunc(s.Steps, func(step string) bool { return strings.HasPrefix(step, "the agent of "+host+" ends") })
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
	// Options are those of a patch.
	Options map[string]string `json:"options,omitempty"`
	// Tag is set when somebody else than the agent changed the port's tag; -1 means cleared.
	Tag *int `json:"tag,omitempty"`
}

// NamesOf returns the names of a recording, without port numbers and VLANs.
func (r *Recording) NamesOf() *Names {
	n := NewNames()
	for id, name := range r.Names {
		n.Text(id, name)
	}
	for id, name := range r.Names {
		if r.Hybrid() && uuids.MatchString(id) {
			switch id[0] { // see Canon.ID
			case PortKind:
				n.Bridged(id, name)
			case GroupKind, AddressGroupKind:
				n.Group(id, name)
			}
		}
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
	if err := r.parse(txtar.Parse(text)); err != nil {
		return nil, fmt.Errorf("reading %s: %w", file(dir, name), err)
	}
	if sum := checksum(text); sum != r.Recorded.Sum {
		return nil, fmt.Errorf("reading %s: its checksum is %s, not %s as it says: it was changed by hand; record it again (docs/explanation/parity.md)", file(dir, name), sum, r.Recorded.Sum)
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

var sumLine = regexp.MustCompile(`^ *"sha256": "[0-9a-f]*",?\n$`)

// checksum is that of a recording's file without the line that holds it.
func checksum(text []byte) string {
	h := sha256.New()
	for line := range bytes.Lines(text) {
		if !bytes.Contains(line, []byte(`"sha256"`)) || !sumLine.Match(line) {
			h.Write(line)
		}
	}
	return hex.EncodeToString(h.Sum(nil))
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

func (r *Recording) parse(a *txtar.Archive) error {
	var seen []Event
	for _, f := range a.Files {
		kind, name, _ := strings.Cut(f.Name, " ")
		switch kind {
		case "recording":
			if err := json.Unmarshal(f.Data, &r.Meta); err != nil {
				return fmt.Errorf("%s: %w", f.Name, err)
			}
			r.Doc = strings.TrimSpace(string(a.Comment))
		case "steps":
			r.Stages = append(r.Stages, Stage{Checkpoint: name, Steps: lines(f.Data)})
		case "events":
			s := &r.Stages[len(r.Stages)-1]
			for i, line := range lines(f.Data) {
				var e written
				if err := json.Unmarshal([]byte(line), &e); err != nil {
					return fmt.Errorf("%s, line %d: %w", f.Name, i+1, err)
				}
				if n := e.Again - 1; n >= 0 {
					if n >= len(seen) {
						return fmt.Errorf("%s, line %d: there is no event %d before", f.Name, i+1, e.Again)
					}
					hosts := e.Hosts
					e.Event = seen[n]
					e.Hosts = hosts
				}
				seen = append(seen, e.Event)
				s.Events = append(s.Events, e.Event)
			}
		case "want":
			r.Stages[len(r.Stages)-1].Want = lines(f.Data)
		default:
			return fmt.Errorf("section %q is not known", f.Name)
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
