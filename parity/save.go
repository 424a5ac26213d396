// SPDX-License-Identifier: Apache-2.0

package parity

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"golang.org/x/tools/txtar"
)

// noSum stands where the checksum will be.
var noSum = strings.Repeat("0", 2*sha256.Size)

// Save writes the recording, with its checksum. Base are the lines of its configuration at rest, which [Load] will add again; nil for the
// recording of a configuration.
func (r *Recording) Save(dir string, base Snapshot) error {
	a := &txtar.Archive{Comment: []byte(wrap(r.Doc) + "\n\n")}
	add := func(name string, data []byte) { a.Files = append(a.Files, txtar.File{Name: name, Data: data}) }
	meta := r.Meta
	meta.Doc, meta.Recorded.Sum = "", noSum
	head, err := encode(meta)
	if err != nil {
		return err
	}
	var indented bytes.Buffer
	if err := json.Indent(&indented, head, "", " "); err != nil {
		return fmt.Errorf("encoding a recording: %w", err)
	}
	add("recording", indented.Bytes())
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
		add("steps "+s.Checkpoint, []byte(strings.Join(s.Steps, "\n")+"\n"))
		add("events "+s.Checkpoint, events.Bytes())
		add("want "+s.Checkpoint, []byte(want))
		before = s.Want.Select(carried)
		if i == 0 {
			first = before
		}
	}
	text := txtar.Format(a)
	r.Recorded.Sum = checksum(text)
	text = bytes.Replace(text, []byte(noSum), []byte(r.Recorded.Sum), 1)
	if err := os.WriteFile(file(dir, r.Name), text, 0o644); err != nil {
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
