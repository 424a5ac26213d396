// SPDX-License-Identifier: Apache-2.0

package release

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestFind(t *testing.T) {
	for _, tc := range []struct{ name, suite string }{{"29", "sid"}, {"sid", "sid"}, {"17", "bullseye"}, {"bookworm", "bookworm"}} {
		if r, err := Find(tc.name); err != nil || r.Suite != tc.suite {
			t.Errorf("Find(%q) = %v, %v; want %s", tc.name, r, err, tc.suite)
		}
	}
	if _, err := Find("27"); err == nil || !strings.Contains(err.Error(), "28 (forky)") {
		t.Errorf("Find(27): %v; want the releases that there are", err)
	}
}

func TestVersions(t *testing.T) {
	got := parseVersions("neutron-common 2:29.0.0-2\nopenvswitch-switch 4.0.0-3\nbash 5.2\nrabbitmq-server \nerlang-base 1:29.1.1+dfsg-1\n")
	want := map[string]string{"neutron": "2:29.0.0-2", "openvswitch": "4.0.0-3", "erlang": "1:29.1.1+dfsg-1"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for version, upstream := range map[string]string{"2:29.0.0-2": "29.0.0", "3.1.0-2+deb12u1": "3.1.0", "1:29.1.1+dfsg-1": "29.1.1", "": ""} {
		if got := Upstream(version); got != upstream {
			t.Errorf("Upstream(%q) = %q, want %q", version, got, upstream)
		}
	}
}

func TestMirror(t *testing.T) {
	const targets = "bookworm-updates main http://mirror.example/updates/\nbookworm contrib http://mirror.example/other/\n" +
		"bookworm main http://mirror.example/debian/\nbookworm main http://second.example/debian/\n"
	if got, err := mirrorIn(targets, "bookworm"); err != nil || got != "http://mirror.example/debian/" {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := mirrorIn(targets, "trixie"); err == nil {
		t.Errorf("a source of another suite was taken: %q", got)
	}
	if got, err := codename("NAME=x\nVERSION_CODENAME=\"trixie\"\n"); err != nil || got != "trixie" {
		t.Errorf("codename: %q, %v", got, err)
	}
}

func TestBootstrapOfAYoungSuite(t *testing.T) {
	if got := bootstrap("forky", "/d", "http://m/", false); !slices.Equal(got, []string{"debootstrap", "--variant=minbase", "forky", "/d", "http://m/", scripts + "/sid"}) {
		t.Errorf("without a script of its own: %q", got)
	}
	if got := bootstrap("trixie", "/d", "http://m/", true); slices.Contains(got, scripts+"/sid") {
		t.Errorf("with a script of its own: %q", got)
	}
}

func TestCommand(t *testing.T) {
	argv := []string{"ovs-vsctl", "show"}
	if got := Command("", []string{"/lab"}, argv...); !slices.Equal(got, argv) {
		t.Errorf("without a root: %q", got)
	}
	got := Command("/r", []string{"/a", "/b c"}, argv...)
	if tail := got[len(got)-6:]; !slices.Equal(tail, []string{"/r", "2", "/a", "/b c", "ovs-vsctl", "show"}) {
		t.Errorf("with a root: %q", got)
	}
}

// put makes a suite in a store as Make would, without Debian.
func put(t *testing.T, s *Store, name string, e Entry, archive bool) {
	t.Helper()
	text, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(s.root(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.record(name), text, 0o644); err != nil {
		t.Fatal(err)
	}
	if archive {
		if err := os.WriteFile(s.archive(name), []byte("1234"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestStore(t *testing.T) {
	ctx := t.Context()
	s, err := Open(filepath.Join(t.TempDir(), "cache"))
	if err != nil {
		t.Fatal(err)
	}
	if list, err := s.List(); err != nil || len(list) != 0 {
		t.Fatalf("an empty store has %v, %v", list, err)
	}
	made := time.Date(2026, 11, 16, 5, 0, 0, 0, time.UTC)
	now := key("sid", Packages())
	put(t, s, now, Entry{Release: Release{29, "sid"}, Made: made, Packages: Packages()}, true)
	put(t, s, "sid-00000000", Entry{Release: Release{29, "sid"}, Made: made}, false)
	put(t, s, key("trixie", Packages()), Entry{Release: Release{26, "trixie"}, Made: made}, true)

	list, err := s.List()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range list {
		got = append(got, e.Suite)
		if e.Suite == "sid" && e.Current != (e.name == now) {
			t.Errorf("%s: current: %v", e.name, e.Current)
		}
		if !e.Unpacked || e.Archive != map[bool]int64{true: 4}[e.name != "sid-00000000"] {
			t.Errorf("%s: unpacked %v, archive %d bytes", e.name, e.Unpacked, e.Archive)
		}
	}
	if !slices.Equal(got, []string{"trixie", "sid", "sid"}) {
		t.Errorf("suites %v", got)
	}
	// What is there is used; the packages decide which.
	if root, err := s.Root(ctx, "29"); err != nil || root != s.root(now) {
		t.Errorf("root %q, %v", root, err)
	}
	// One without an archive stays when the unpacked ones go.
	if n, err := s.Remove(ctx, "sid", true); n != 1 || err != nil || !Has(s.root("sid-00000000"), "/") || Has(s.root(now), "/") || !Has("", s.archive(now)) {
		t.Errorf("removed %d unpacked, %v", n, err)
	}
	if n, err := s.Remove(ctx, "29", false); n != 2 || err != nil {
		t.Errorf("removed %d, %v", n, err)
	}
	if left, err := os.ReadDir(s.Dir); err != nil || len(left) != 4 {
		t.Errorf("left: %v, %v; want trixie's three and a lock", left, err)
	}
}

func TestStoreOfOthersIsRefused(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.lock(t.Context(), "sid"); err == nil {
		t.Error("root would run what anybody has put there")
	}
	if _, err := Open("/a,b"); err == nil {
		t.Error("a comma ends an option of mount")
	}
}

func TestLockEndsWithItsContext(t *testing.T) {
	s, err := Open(filepath.Join(t.TempDir(), "cache"))
	if err != nil {
		t.Fatal(err)
	}
	release, err := s.lock(t.Context(), "sid")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.lock(ctx, "sid"); err == nil {
		t.Error("two commands have the store")
	}
	release()
	if again, err := s.lock(t.Context(), "sid"); err != nil {
		t.Error(err)
	} else {
		again()
	}
}
