// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"
)

func TestLogLine(t *testing.T) {
	var out bytes.Buffer
	log := NewLogger(&out, slog.LevelInfo)
	log.Debug("not shown")
	log.With("port", "p1").WithGroup("ovs").Warn("slow\nERROR forged", "dur", 1500*time.Millisecond, "text", "two words", "empty", "")
	want := regexp.MustCompile(`^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} \d+ WARNING patchbay \[-\] ` +
		`slow\\nERROR forged port=p1 ovs\.dur=1\.5s ovs\.text="two words" ovs\.empty=""\n$`)
	if !want.MatchString(out.String()) {
		t.Errorf("got  %q\nwant %s", out.String(), want)
	}
}

func TestLogFileFollowsRotation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.log")
	l := OpenLogFile(path, io.Discard)
	if err := l.Err(); err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	clock := time.Now()
	l.now = func() time.Time { return clock }
	write := func(s string) {
		t.Helper()
		clock = clock.Add(2 * recheck)
		if _, err := l.Write([]byte(s)); err != nil {
			t.Fatal(err)
		}
	}
	write("one\n")
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	write("two\n")
	if err := os.Truncate(path, 0); err != nil { // copytruncate
		t.Fatal(err)
	}
	write("three\n")
	for name, want := range map[string]string{path + ".1": "one\n", path: "three\n"} {
		if got, err := os.ReadFile(name); err != nil || string(got) != want {
			t.Errorf("%s: got %q, %v, want %q", filepath.Base(name), got, err, want)
		}
	}
}

func TestNotifier(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	env := map[string]string{"NOTIFY_SOCKET": socket, "WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "7"}
	n := NewNotifier(func(k string) string { return env[k] }, 7)
	if got := n.WatchdogInterval(); got != 15*time.Second {
		t.Errorf("watchdog interval %s, want 15s", got)
	}
	if other := NewNotifier(func(k string) string { return env[k] }, 8); other.WatchdogInterval() != 0 {
		t.Error("took another process's watchdog for ours")
	}
	for _, step := range []struct {
		send func() error
		want string
	}{
		{func() error { return n.Ready("in sync") }, "READY=1\nSTATUS=in sync"},
		{n.Reloading, "RELOADING=1\nMONOTONIC_USEC="},
		{n.Watchdog, "WATCHDOG=1"},
		{n.Stopping, "STOPPING=1"},
	} {
		if err := step.send(); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 256)
		k, err := conn.Read(buf)
		if err != nil || !strings.HasPrefix(string(buf[:k]), step.want) {
			t.Errorf("got %q, %v, want %q", buf[:k], err, step.want)
		}
	}
	quiet := NewNotifier(func(string) string { return "" }, 7)
	if err := quiet.Ready("x"); err != nil {
		t.Errorf("without a manager: %v", err)
	}
}

func TestListenersOfNobody(t *testing.T) {
	for _, c := range []struct {
		env    map[string]string
		failed bool
	}{
		{nil, false},
		{map[string]string{"LISTEN_PID": "8", "LISTEN_FDS": "1"}, false}, // a parent's
		{map[string]string{"LISTEN_PID": "7", "LISTEN_FDS": "0"}, false},
		{map[string]string{"LISTEN_PID": "7", "LISTEN_FDS": "junk"}, true},
		{map[string]string{"LISTEN_PID": "7", "LISTEN_FDS": "-1"}, true},
		{map[string]string{"LISTEN_PID": "7", "LISTEN_FDS": "100000"}, true},
		{map[string]string{"LISTEN_PID": "7"}, true},
	} {
		list, err := Listeners(func(name string) string { return c.env[name] }, 7)
		if len(list) != 0 || (err != nil) != c.failed {
			t.Errorf("%v: %v, %v", c.env, list, err)
		}
	}
}

// Whatever a peer or a tenant writes into a message or a value, a record is one line, and nothing in it is obeyed by a terminal or shown
// as something else than it is.
func FuzzLog(f *testing.F) {
	for _, seed := range []string{"plain", "", "a b", "\x1b[2J", "\u009b31m", "\x7f", "a\u202egnp", "\u2066x\u2069", "\u200b", "x\ny", "\u2028", "\xff", "\ufffd", `"q"`, `\n`, "\U000e0041"} {
		f.Add(seed, seed)
	}
	f.Fuzz(func(t *testing.T, message, value string) {
		var text, asJSON bytes.Buffer
		for _, log := range []*slog.Logger{NewLogger(&text, slog.LevelInfo), asObjects(&asJSON, JSON)} {
			log.With("with", value).Info(message, "value", value, "err", errors.New(value)) //nolint:sloglint // what comes from outside is the point
		}
		for _, out := range []string{text.String(), asJSON.String()} {
			line, ended := strings.CutSuffix(out, "\n")
			if !ended || !utf8.ValidString(out) {
				t.Errorf("no line: %q", out)
			}
			for _, r := range line {
				if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || unicode.Is(unicode.Bidi_Control, r) || unicode.In(r, unicode.Zl, unicode.Zp) {
					t.Errorf("%U in %q", r, out)
				}
			}
		}
		var got struct {
			Msg   string
			Extra struct{ Value string }
		}
		if err := json.Unmarshal(asJSON.Bytes(), &got); err != nil || utf8.ValidString(message) && utf8.ValidString(value) && (got.Msg != message || got.Extra.Value != value) {
			t.Errorf("%v: %+v from %s", err, got, asJSON.String())
		}
	})
}
