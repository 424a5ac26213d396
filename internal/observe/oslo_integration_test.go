// SPDX-License-Identifier: Apache-2.0

//go:build integration

package observe

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"maps"
	"os/exec"
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// osloRecords prints what oslo.log's formatters make of one record: the keys of both objects, and a line of text.
const osloRecords = `
import json, logging
from oslo_config import cfg
from oslo_log import formatters, log
conf = cfg.ConfigOpts()
log.register_options(conf)
conf([])
r = logging.LogRecord("patchbay", logging.WARNING, "/a/b.py", 7, "slow", (), None, "f")
r.created, r.msecs, r.process = 0, 123, 4711
fluent = formatters.FluentFormatter().format(r)
if isinstance(fluent, str):
    fluent = json.loads(fluent)
print(json.dumps({
    "json": sorted(json.loads(formatters.JSONFormatter().format(r))),
    "fluent": sorted(fluent),
    "text": formatters.ContextFormatter(config=conf, datefmt=conf.log_date_format).format(r),
}))
`

// lineOf finds milliseconds and process behind the date of a line.
var lineOf = regexp.MustCompile(`^\.\d{3} \d+ `)

// TestRecordsEqualOslo holds the three forms to those of the real library.
func TestRecordsEqualOslo(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "/usr/bin/python3", "-c", osloRecords).Output()
	if err != nil {
		t.Fatal(err)
	}
	var want struct {
		JSON, Fluent []string
		Text         string
	}
	if err := json.Unmarshal(out, &want); err != nil {
		t.Fatal(err)
	}
	keys := func(f Format) []string {
		var out bytes.Buffer
		asObjects(&out, f).Warn("slow")
		var got map[string]any
		if err := json.Unmarshal(out.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		return slices.Sorted(maps.Keys(got))
	}
	if diff := cmp.Diff(want.JSON, keys(JSON)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(want.Fluent, keys(Fluent)); diff != "" {
		t.Error(diff)
	}
	var text bytes.Buffer
	NewLogger(&text, slog.LevelInfo).Warn("slow")
	const date = len("1970-01-01 00:00:00")
	behind := func(line string) string { return lineOf.ReplaceAllString(line[date:], ".MSEC PID ") }
	if diff := cmp.Diff(behind(want.Text+"\n"), behind(text.String())); diff != "" {
		t.Error(diff)
	}
}
