// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

func asObjects(w io.Writer, f Format) *slog.Logger {
	return New([]Output{{Sink: Stream(w, false), Format: f, Level: slog.LevelInfo}})
}

// TestKollaParsesLines holds lines to the rule by which kolla's fluentd finds the beginning of a record: date, time with milliseconds, process,
// two words, something in brackets.
func TestKollaParsesLines(t *testing.T) {
	var out bytes.Buffer
	NewLogger(&out, slog.LevelDebug).Error("snapshot not written", "err", "disk full [x]")
	rule := regexp.MustCompile(`^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} (?P<pid>\d+) (?P<level>\S+) (?P<module>\S+) \[(?P<context>[^\]]*)\] (?P<payload>.*)\n$`)
	m := rule.FindStringSubmatch(out.String())
	if m == nil || m[2] != "ERROR" || m[3] != "patchbay" || m[4] != "-" || m[5] != `snapshot not written err="disk full [x]"` {
		t.Errorf("%q: %q", out.String(), m)
	}
}

// TestOsloKeys holds the keys of both JSON forms to those that oslo.log's formatters write.
func TestOsloKeys(t *testing.T) {
	for format, want := range map[Format]string{
		JSON: `args asctime context created error_summary extra filename funcname hostname levelname levelno lineno message module msecs msg name
			pathname process process_name relative_created thread thread_name traceback`,
		Fluent: `cmdline context error_summary extra filename funcname hostname level lineno message module name process_name time traceback`,
	} {
		var out bytes.Buffer
		asObjects(&out, format).With("port", "p1").WithGroup("ovs").Warn("slow", "ofport", 7, "of", slog.GroupValue(slog.Bool("ok", true)), "dur", time.Second)
		var got map[string]any
		if err := json.Unmarshal(out.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		if keys := slices.Sorted(maps.Keys(got)); !slices.Equal(keys, strings.Fields(want)) {
			t.Errorf("keys %q, want %q", keys, strings.Fields(want))
		}
		extra, _ := got["extra"].(map[string]any)
		if extra["port"] != "p1" || extra["ovs.ofport"] != 7.0 || extra["ovs.of.ok"] != true || extra["ovs.dur"] != "1s" {
			t.Errorf("extra %v", extra)
		}
		if got["message"] != "slow port=p1 ovs.ofport=7 ovs.of.ok=true ovs.dur=1s" || got["filename"] != "outputs_test.go" || got["module"] != "outputs_test" {
			t.Errorf("%s", out.String())
		}
		if format == JSON && (got["levelname"] != "WARNING" || got["levelno"] != 30.0 || got["msg"] != "slow") || format == Fluent && got["level"] != "WARNING" {
			t.Errorf("%s", out.String())
		}
	}
}

// received returns the next datagram of a socket.
func received(t *testing.T, conn *net.UnixConn) string {
	t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 4096)
	n, err := conn.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	return string(buf[:n])
}

func listen(t *testing.T, path string) *net.UnixConn {
	t.Helper()
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func TestSyslogAndJournal(t *testing.T) {
	dir := t.TempDir()
	syslog, journal := listen(t, dir+"/log"), listen(t, dir+"/journal")
	facility, ok := Facility("LOG_LOCAL3")
	if !ok || facility != 19 {
		t.Fatalf("facility %d, %v", facility, ok)
	}
	log := New([]Output{
		{Sink: Syslog("unixgram", dir+"/log", "neutron-openvswitch-agent", facility, io.Discard), Level: slog.LevelInfo},
		{Sink: Journal(dir+"/journal", "neutron-openvswitch-agent", facility, io.Discard), Level: slog.LevelWarn},
	})
	log.Info("to the system log only")
	log.Warn("to both", "port", "p1")
	if got := received(t, syslog); !strings.HasPrefix(got, "<158>neutron-openvswitch-agent: ") || !strings.HasSuffix(got, "to the system log only") {
		t.Errorf("%q", got)
	}
	if got := received(t, syslog); !strings.HasPrefix(got, "<156>neutron-openvswitch-agent: ") || !strings.HasSuffix(got, "to both port=p1") {
		t.Errorf("%q", got)
	}
	got := received(t, journal)
	for _, want := range []string{
		" WARNING patchbay [-] to both port=p1\n", "\nPRIORITY=4\n", "\nSYSLOG_IDENTIFIER=neutron-openvswitch-agent\n", "\nSYSLOG_FACILITY=19\n",
		"/outputs_test.go\n", "\nCODE_FUNC=observe.TestSyslogAndJournal\n", "\nLOGGER_NAME=patchbay\n", "\nLOGGER_LEVEL=WARNING\n", "\nTHREAD_NAME=", "\nPROCESS_NAME=", "\nCODE_LINE=",
	} {
		if !strings.HasPrefix(got, "MESSAGE=") || !strings.Contains(got, want) {
			t.Errorf("%q lacks %q", got, want)
		}
	}
}

// A log that is not there keeps no record and nobody from going on; once it is there, it is used.
func TestSocketThatComesLate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	var instead bytes.Buffer
	s := Syslog("unixgram", path, "p", 1, &instead)
	clock := time.Unix(1000, 0)
	s.now = func() time.Time { return clock }
	put := func(text string) {
		t.Helper()
		if err := s.Put(Record{Text: []byte(text)}); err != nil {
			t.Fatal(err)
		}
	}
	put("one")
	conn := listen(t, path)
	put("two") // too soon to look again
	clock = clock.Add(recheck)
	put("three")
	if got := instead.String(); got != "one\ntwo\n" {
		t.Errorf("instead: %q", got)
	}
	if got := received(t, conn); got != "<14>p: three" {
		t.Errorf("%q", got)
	}
	_ = conn.Close()
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	conn = listen(t, path) // restarted: the old connection leads nowhere
	put("four")
	if got := received(t, conn); got != "<14>p: four" {
		t.Errorf("%q", got)
	}
}

func TestFieldWithLines(t *testing.T) {
	var b bytes.Buffer
	appendField(&b, "MESSAGE", "a\nb")
	if got, want := b.String(), "MESSAGE\n\x03\x00\x00\x00\x00\x00\x00\x00a\nb\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestPrioritiesForTheJournal(t *testing.T) {
	var out bytes.Buffer
	log := New([]Output{{Sink: Stream(&out, true), Level: slog.LevelDebug}})
	log.Debug("d")
	log.Info("i")
	log.Warn("w")
	log.Error("e")
	var got []string
	for line := range strings.Lines(out.String()) {
		got = append(got, line[:3])
	}
	if want := []string{"<7>", "<6>", "<4>", "<3>"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	env := func(string) string { return "8:42" }
	if !InJournal(env, 8, 42) || InJournal(env, 8, 43) || InJournal(func(string) string { return "" }, 0, 0) {
		t.Error("taken for the journal, or not")
	}
}

// A directory that is not there is made; while the file cannot be opened, lines go to the other stream and the file is tried again.
func TestLogFileThatComesLate(t *testing.T) {
	dir := t.TempDir()
	l := OpenLogFile(filepath.Join(dir, "a", "b", "agent.log"), io.Discard)
	if l.Err() != nil {
		t.Errorf("directory not made: %v", l.Err())
	}
	_ = l.Close()

	inTheWay := filepath.Join(dir, "volume")
	if err := os.WriteFile(inTheWay, nil, 0o600); err != nil { // so that no directory can be made, not even by root
		t.Fatal(err)
	}
	var instead bytes.Buffer
	l = OpenLogFile(filepath.Join(inTheWay, "agent.log"), &instead)
	defer l.Close()
	clock := time.Now()
	l.now = func() time.Time { return clock }
	if l.Err() == nil {
		t.Error("opened")
	}
	log := NewLogger(l, slog.LevelInfo)
	log.Info("one")
	if err := os.Remove(inTheWay); err != nil {
		t.Fatal(err)
	}
	clock = clock.Add(2 * recheck)
	log.Info("two")
	file, err := os.ReadFile(filepath.Join(inTheWay, "agent.log"))
	if err != nil || !strings.HasSuffix(string(file), "] two\n") || strings.Contains(string(file), "one") || !strings.HasSuffix(instead.String(), "] one\n") || l.Err() != nil {
		t.Errorf("file %q, %v, %v; instead %q", file, err, l.Err(), instead.String())
	}
}

func TestLayout(t *testing.T) {
	at := time.Date(2026, 11, 5, 4, 3, 2, 0, time.UTC)
	for format, want := range map[string]string{
		"%Y-%m-%d %H:%M:%S": "2026-11-05 04:03:02", "%d/%b/%y %I:%M %p": "05/Nov/26 04:03 AM", "%FT%T": "2026-11-05T04:03:02",
		"": "", "%Q": "", "%Y h": "", "2006": "", "%": "",
	} {
		layout, ok := Layout(format)
		if ok != (want != "") || ok && at.Format(layout) != want {
			t.Errorf("%q: %q, %v, %q, want %q", format, layout, ok, at.Format(layout), want)
		}
	}
}
