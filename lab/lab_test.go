// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestStepsRunInOrderAndAtOnce(t *testing.T) {
	defer goleak.VerifyNone(t)
	var mu sync.Mutex
	var order []string
	both := make(chan struct{}, 2)
	note := func(name string, do func() error) step {
		return step{name: name, run: func(context.Context) (string, error) {
			err := do()
			mu.Lock()
			defer mu.Unlock()
			order = append(order, name)
			return name + " done", err
		}}
	}
	meet := func() error {
		both <- struct{}{}
		for deadline := time.Now().Add(5 * time.Second); len(both) < 2; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				return errors.New("the other one does not run")
			}
		}
		return nil
	}
	nothing := func() error { return nil }
	a, b, c := note("a", meet), note("b", meet), note("c", nothing)
	c.after = []string{"a", "b"}
	var reports []string
	if err := runSteps(t.Context(), []step{c, a, b}, func(p Progress) { reports = append(reports, p.Note) }); err != nil {
		t.Fatal(err)
	}
	if len(order) != 3 || order[2] != "c" || reports[2] != "c done" {
		t.Errorf("order %v, reports %v", order, reports)
	}
}

func TestStepsAfterAFailureDoNotRun(t *testing.T) {
	defer goleak.VerifyNone(t)
	boom := errors.New("boom")
	ran := false
	var reported []string
	err := runSteps(t.Context(), []step{
		{name: "bad", run: func(context.Context) (string, error) { return "", boom }},
		{name: "waits", run: func(ctx context.Context) (string, error) { <-ctx.Done(); return "", ctx.Err() }},
		{name: "next", after: []string{"bad"}, run: func(context.Context) (string, error) { ran = true; return "", nil }},
		{name: "last", after: []string{"next"}, run: func(context.Context) (string, error) { ran = true; return "", nil }},
	}, func(p Progress) { reported = append(reported, p.Step) })
	if !errors.Is(err, boom) || !strings.Contains(err.Error(), "bad: boom") {
		t.Errorf("error %v", err)
	}
	if ran {
		t.Error("a step ran after one that failed")
	}
	if !slices.Equal(reported, []string{"bad"}) {
		t.Errorf("reported %v; what only failed because of the first is not worth a line", reported)
	}
}

func TestNamesOfTwoLabsDiffer(t *testing.T) {
	if p := prefixFor(DefaultDir); p != "" {
		t.Errorf("the default lab has prefix %q", p)
	}
	dirs := []string{DefaultDir, "/tmp/pblab1", "/tmp/x/pblab1", "/tmp/Ünsinn mit Leerzeichen und viel Text"}
	seen := map[string]string{}
	for _, d := range dirs {
		prefix, link := prefixFor(d), linkFor(d)
		if len(link) > 15 {
			t.Errorf("%s: link name %q is too long", d, link)
		}
		if strings.ContainsAny(prefix, "/ ") || len(prefix) > 24 {
			t.Errorf("%s: prefix %q", d, prefix)
		}
		for _, name := range []string{prefix + "hv1", link} {
			if other, ok := seen[name]; ok {
				t.Errorf("%s and %s share %s", d, other, name)
			}
			seen[name] = d
		}
	}
}

func TestResolveDir(t *testing.T) {
	t.Setenv(EnvDir, "/tmp/from-env")
	if d, err := resolveDir(""); err != nil || d != "/tmp/from-env" {
		t.Errorf("from the environment: %q, %v", d, err)
	}
	if d, err := resolveDir("/tmp/given"); err != nil || d != "/tmp/given" {
		t.Errorf("given: %q, %v", d, err)
	}
	if _, err := resolveDir("/tmp/" + strings.Repeat("x", 90)); err == nil {
		t.Error("a directory too long for sockets is accepted")
	}
	t.Setenv(EnvDir, "")
	if d, err := resolveDir(""); err != nil || d != DefaultDir {
		t.Errorf("default: %q, %v", d, err)
	}
}

func TestPickRange(t *testing.T) {
	prefixes := func(s ...string) (list []netip.Prefix) {
		for _, p := range s {
			list = append(list, netip.MustParsePrefix(p))
		}
		return list
	}
	for _, c := range []struct {
		taken []netip.Prefix
		want  string
	}{
		{nil, "10.251"},
		{prefixes("192.0.2.0/24"), "10.251"},
		{prefixes("10.251.7.0/24"), "10.250"},
		{prefixes("10.251.0.1/32", "10.250.0.0/15"), "10.249"},
		{prefixes("10.0.0.0/8"), ""},
	} {
		n, err := pickRange(c.taken)
		if (err == nil) != (c.want != "") || err == nil && rangeName(n) != c.want {
			t.Errorf("%v: %q, %v", c.taken, rangeName(n), err)
		}
	}
}

func TestParseRoutes(t *testing.T) {
	const text = `Iface	Destination	Gateway 	Flags	RefCnt	Use	Metric	Mask		MTU	Window	IRTT
eth0	00000000	010200C0	0003	0	0	0	00000000	0	0	0
eth0	000200C0	00000000	0001	0	0	0	00FFFFFF	0	0	0
tun0	0000FB0A	00000000	0001	0	0	0	0000FFFF	0	0	0
`
	want := []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("10.251.0.0/16")}
	if got := parseRoutes(text); !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
}

func TestStateSurvivesAndIsShared(t *testing.T) {
	dir := t.TempDir()
	a, b := newLab(dir), newLab(dir)
	if _, err := readState(dir); !errors.Is(err, ErrNotUp) {
		t.Errorf("without a file: %v", err)
	}
	var wg sync.WaitGroup
	for i := range 40 {
		l := a
		if i%2 == 0 {
			l = b
		}
		wg.Go(func() {
			if err := l.update(func(s *state) error { s.APIPort++; s.addNamespace("x"); return nil }); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	s, err := readState(dir)
	if err != nil || s.APIPort != 40 || !slices.Equal(s.Namespaces, []string{"x"}) {
		t.Errorf("%d updates, namespaces %v, %v", s.APIPort, s.Namespaces, err)
	}
	s.removeNamespace("x")
	if len(s.Namespaces) != 0 {
		t.Errorf("left: %v", s.Namespaces)
	}
	boom := errors.New("boom")
	if err := a.update(func(s *state) error { s.APIPort = 0; return boom }); !errors.Is(err, boom) {
		t.Errorf("a failed change: %v", err)
	}
	if s, _ := readState(dir); s.APIPort != 40 {
		t.Error("a failed change was written")
	}
	if _, err := Open(Options{Dir: dir}); !errors.Is(err, ErrNotUp) {
		t.Errorf("a half-made lab opens: %v", err)
	}
}

func TestDirectoriesOfOthersAreRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to own a directory as another user")
	}
	base := t.TempDir()
	foreign := filepath.Join(base, "foreign")
	full := filepath.Join(base, "full")
	link := filepath.Join(base, "link")
	for _, err := range []error{
		os.Mkdir(foreign, 0o755), os.Chown(foreign, 65534, 65534),
		os.Mkdir(full, 0o755), os.WriteFile(filepath.Join(full, "precious"), nil, 0o600),
		os.Symlink(full, link),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{foreign, full, link} {
		if err := newLab(dir).makeDir(); err == nil {
			t.Errorf("%s is accepted", dir)
		}
		if err := Down(t.Context(), Options{Dir: dir}); err == nil {
			t.Errorf("down accepts %s", dir)
		}
	}
	if _, err := os.Stat(filepath.Join(full, "precious")); err != nil {
		t.Errorf("down removed what is not a lab's: %v", err)
	}
}

func TestInstalledPackages(t *testing.T) {
	const dpkg = "neutron-server installed\nrabbitmq-server config-files\niproute2 installed\n"
	got := subtract([]string{"neutron-server", "rabbitmq-server", "iproute2", "ethtool"}, installed(dpkg))
	if !slices.Equal(got, []string{"rabbitmq-server", "ethtool"}) {
		t.Errorf("missing: %v", got)
	}
}

func TestTapName(t *testing.T) {
	if got := tapName("641812fe-0a1c-4a0a-a865-0af14ce65288"); got != "tap641812fe-0a" || len(got) > 15 {
		t.Error(got)
	}
}

func TestStatusText(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	s := Status{
		Dir:   "/x",
		Parts: []PartStatus{{Name: "broker", PID: 7, Since: at, Address: "10.251.0.1:5672"}, {Name: "server"}},
		Hosts: []HostStatus{{
			Name: "hv1", Netns: "hv1", MgmtIP: "10.251.0.11", LocalIP: "10.251.1.11", Agent: Python, Alive: true, Heartbeat: &at,
			Parts: []PartStatus{{Name: "ovsdb-server", PID: 8, Since: at, Source: Source{Suite: "sid", Version: "4.0.0-3"}.String()}, {Name: "agent python", PID: 9, Since: at}},
		}},
		Ports: map[string]int{"DOWN": 1, "ACTIVE": 2},
	}
	want := `lab in /x

  broker            pid 7        03:04:05 UTC  10.251.0.1:5672
  server            not running  -             
  hv1 ovsdb-server  pid 8        03:04:05 UTC  4.0.0 (sid), namespace hv1, management 10.251.0.11, tunnels 10.251.1.11
  hv1 agent python  pid 9        03:04:05 UTC  alive, last report 03:04:05 UTC

  ports: 1 DOWN, 2 ACTIVE
`
	if diff := cmp.Diff(want, s.String()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]int{"broker": 7, "hv1 ovsdb-server": 8, "hv1 agent python": 9}, s.PIDs()); diff != "" {
		t.Error(diff)
	}
}
