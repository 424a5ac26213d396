// SPDX-License-Identifier: Apache-2.0

package parity

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestRecordingsReadBack(t *testing.T) {
	dir := t.TempDir()
	ofport := 5
	config := &Recording{
		Meta:   Meta{Name: "config-x", Config: "x", Hosts: []string{"hv1", "hv2"}, Doc: "Start.", Names: map[string]string{}},
		Stages: []Stage{{Checkpoint: "start", Steps: []string{"agents start"}, Want: Snapshot{"hv1 br-int a", "hv1 call b", "hv2 br-int c"}}},
	}
	scenario := &Recording{
		Meta: Meta{Name: "one", Config: "x", Hosts: []string{"hv1"}, Doc: "Some text.", Names: map[string]string{"id": "A"}},
		Stages: []Stage{
			{Checkpoint: "first", Steps: []string{"this", "that"}, Events: []Event{
				{Hosts: []string{"hv1"}, Cast: "push", Topic: "t", Args: json.RawMessage(`{"a":"<->"}`)},
				{Hosts: []string{"hv1"}, Rows: []RowChange{{Table: "Port", Name: "tap", OFPort: &ofport}}},
			}, Want: Snapshot{"api port A", "hv1 br-int a", "hv1 br-int d", "hv1 call up"}},
			{Checkpoint: "second", Steps: []string{"more"}, Events: []Event{
				{Hosts: []string{"hv1"}, Rows: []RowChange{{Table: "Port", Name: "tap"}}},
				{Hosts: []string{"hv1"}, Cast: "push", Topic: "t", Args: json.RawMessage(`{"a":"<->"}`)},
				{Hosts: []string{"hv1"}, Cast: "push", Topic: "t", Args: json.RawMessage(`{"a":"<->"}`)},
				{Hosts: []string{"hv1"}, Rows: []RowChange{{Table: "Port", Name: "tap"}}},
			}, Want: Snapshot{"hv1 br-int d"}},
		},
	}
	if err := config.Save(dir, nil); err != nil {
		t.Fatal(err)
	}
	if err := scenario.Save(dir, config.Base(scenario.Hosts)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []*Recording{config, scenario} {
		got, err := Load(dir, want.Name)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", want.Name, diff)
		}
	}
	all, err := LoadAll(dir)
	if err != nil || len(all) != 2 || !all[0].IsConfig() {
		t.Errorf("all: %v, %v", all, err)
	}
}

// A configuration that was in use and is at rest again is written as that.
func TestRecordingsAreShort(t *testing.T) {
	dir := t.TempDir()
	rest, used := Snapshot{"hv1 br-int a", "hv1 br-int b", "hv1 br-int c"}, Snapshot{"hv1 br-int d", "hv1 br-int e", "hv1 br-int f"}
	config := &Recording{Meta: Meta{Name: "config-x", Config: "x", Hosts: []string{"hv1"}, Doc: "Start.", Names: map[string]string{}}}
	for i, want := range []Snapshot{rest, used, rest} {
		config.Stages = append(config.Stages, Stage{Checkpoint: string(rune('a' + i)), Steps: []string{"more"}, Want: want})
	}
	if err := config.Save(dir, nil); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file(dir, config.Name))
	if err != nil || !strings.HasSuffix(string(text), "-- want c --\n"+fromFirst+"\n") {
		t.Errorf("%v:\n%s", err, text)
	}
	got, err := Load(dir, config.Name)
	if diff := cmp.Diff(config, got); err != nil || diff != "" {
		t.Errorf("%v: %s", err, diff)
	}
}

// A recording that somebody edited is not read.
func TestEditedRecordingsAreRefused(t *testing.T) {
	dir := t.TempDir()
	r := &Recording{
		Meta:   Meta{Name: "config-x", Config: "x", Hosts: []string{"hv1"}, Doc: "Start.", Names: map[string]string{}},
		Stages: []Stage{{Checkpoint: "start", Steps: []string{"agents start"}, Want: Snapshot{"hv1 br-int a", "hv1 br-int b"}}},
	}
	if err := r.Save(dir, nil); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file(dir, r.Name))
	if err != nil {
		t.Fatal(err)
	}
	for _, edit := range [][2]string{{"+ hv1 br-int b\n", ""}, {"agents start", "agents end"}, {"Start.", "Stop."}, {`"date": ""`, `"date": "2026-11-15"`}} {
		edited := strings.Replace(string(text), edit[0], edit[1], 1)
		if edited == string(text) {
			t.Fatalf("there is no %q in:\n%s", edit[0], text)
		}
		if err := os.WriteFile(file(dir, r.Name), []byte(edited), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(dir, r.Name); err == nil || !strings.Contains(err.Error(), "changed by hand") {
			t.Errorf("with %q for %q: %v", edit[1], edit[0], err)
		}
	}
}

func TestCanonIsStable(t *testing.T) {
	c := NewCanon()
	c.ID("9e0b6f3c-1111-4222-8333-444455556666", 'b', 1)
	c.Pair("10.250.1.12", "198.51.100.12")
	got, err := c.JSON([]byte(`{"id": "9e0b6f3c-1111-4222-8333-444455556666", "updated_at": "now", "qos": null, "n": 12345678901234567,
		"other": ["9e0b6f3c-aaaa-4222-8333-444455556666", "9e0b6f3c-aaaa-4222-8333-444455556666"], "ip": "10.250.1.12"}`))
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"id":"b0000001-0000-4000-8000-000000000000","ip":"198.51.100.12","n":12345678901234567,` +
		`"other":["f0000001-0000-4000-8000-000000000000","f0000001-0000-4000-8000-000000000000"]}`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Error(diff)
	}
}

// TestTestdata looks at the recordings that are kept: each can be read, is small, and has what a replay needs.
func TestTestdata(t *testing.T) {
	all, err := LoadAll("testdata")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range all {
		info, err := os.Stat(filepath.Join("testdata", r.Name+".txtar"))
		if err != nil {
			t.Fatal(err)
		}
		if info.Size() > 48<<10 {
			t.Errorf("%s has %d bytes", r.Name, info.Size())
		}
		if len(r.Hosts) == 0 || r.Doc == "" || len(r.Names) == 0 {
			t.Errorf("%s lacks hosts, description or names", r.Name)
		}
		if _, err := time.Parse(time.DateOnly, r.Recorded.Date); err != nil || !strings.HasPrefix(r.Recorded.Agent, "neutron-openvswitch-agent ") ||
			!strings.HasPrefix(r.Recorded.Switch, "openvswitch-switch ") || !strings.Contains(r.Recorded.Agent, ":"+r.Recorded.Release+".") {
			t.Errorf("%s does not say which release, which packages and when: %+v", r.Name, r.Recorded)
		}
		for _, s := range r.Stages {
			if !slices.IsSorted(s.Want) {
				t.Errorf("%s, %s: lines are not sorted", r.Name, s.Checkpoint)
			}
			for _, line := range s.Want {
				if strings.Contains(line, "unknown") {
					t.Errorf("%s, %s: a number without a name: %s", r.Name, s.Checkpoint, line)
				}
			}
		}
	}
}
