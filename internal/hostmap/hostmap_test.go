// SPDX-License-Identifier: Apache-2.0

package hostmap

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-sdn/patchbay/internal/inspect"
	"github.com/patchbay-sdn/patchbay/internal/script"
)

var update = flag.Bool("update", false, "write the golden page")

func render(t testing.TB, h Host) string {
	t.Helper()
	var b bytes.Buffer
	if err := Render(&b, h); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestWriteExamples writes the pages that `make map-screenshots` takes pictures of.
func TestWriteExamples(t *testing.T) {
	dir := os.Getenv("PATCHBAY_MAP_DIR")
	if dir == "" {
		t.Skip("PATCHBAY_MAP_DIR is not set: make map-screenshots sets it")
	}
	for _, n := range []int{10, 200, 1000} {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("map-%d.html", n)), []byte(render(t, exampleHost(n))), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestGolden(t *testing.T) {
	script.Golden(t, "testdata/map-10.html", *update, render(t, exampleHost(10)))
}

// The order of documents is the agent's; the picture's is its own.
func TestOrderOfDocumentsDoesNotMatter(t *testing.T) {
	want := render(t, exampleHost(200))
	r := rand.New(rand.NewPCG(1, 2))
	for range 10 {
		h := exampleHost(200)
		r.Shuffle(len(h.Ports), func(i, j int) { h.Ports[i], h.Ports[j] = h.Ports[j], h.Ports[i] })
		r.Shuffle(len(h.Networks), func(i, j int) { h.Networks[i], h.Networks[j] = h.Networks[j], h.Networks[i] })
		r.Shuffle(len(h.Tunnels), func(i, j int) { h.Tunnels[i], h.Tunnels[j] = h.Tunnels[j], h.Tunnels[i] })
		r.Shuffle(len(h.Groups), func(i, j int) { h.Groups[i], h.Groups[j] = h.Groups[j], h.Groups[i] })
		r.Shuffle(len(h.Bridges), func(i, j int) { h.Bridges[i], h.Bridges[j] = h.Bridges[j], h.Bridges[i] })
		for _, n := range h.Networks {
			r.Shuffle(len(n.Ports), func(i, j int) { n.Ports[i], n.Ports[j] = n.Ports[j], n.Ports[i] })
		}
		if got := render(t, h); got != want {
			t.Fatalf("another order gives another page:\n%s", cmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n")))
		}
	}
}

func TestEveryPortIsDrawnAndListedOnce(t *testing.T) {
	for _, n := range []int{0, 10, 200, 1000} {
		h := exampleHost(n)
		page := render(t, h)
		if got := strings.Count(page, `<a class="port `); got != n {
			t.Errorf("%d ports: %d drawn", n, got)
		}
		if got := strings.Count(page, `<tr id="p`); got != n {
			t.Errorf("%d ports: %d in the table", n, got)
		}
		told := map[string]int{}
		for _, m := range regexp.MustCompile(`\nport ([0-9a-f-]{36})"`).FindAllStringSubmatch(page, -1) {
			told[m[1]]++
		}
		for _, p := range h.Ports {
			if got := told[p.ID]; got < 1 || p.State == "wired" && p.Applied && got != 1 {
				t.Errorf("%d ports: %s is told about %d times on hover", n, p.ID, got)
			}
		}
		if len(page) > 1500*(n+20) {
			t.Errorf("%d ports: %d bytes", n, len(page))
		}
	}
}

// A port that has gone between two documents, or come, is drawn by what is known of it, and once.
func TestDocumentsOfDifferentMoments(t *testing.T) {
	h := exampleHost(10)
	h.Networks[0].Ports = append(h.Networks[0].Ports, exampleID("a", 77), h.Networks[1].Ports[0])
	h.Networks[2].Ports = h.Networks[2].Ports[1:]
	if got := strings.Count(render(t, h), `<a class="port `); got != 10 {
		t.Errorf("%d of 10 ports drawn", got)
	}
}

func TestHeadline(t *testing.T) {
	states := func(words ...string) Host {
		h := Host{Status: inspect.Status{Host: "hv1", InSync: true}}
		for i, w := range words {
			h.Ports = append(h.Ports, inspect.Port{ID: exampleID("a", i), State: w, Applied: w != "unsettled"})
		}
		for i := range h.Ports {
			if h.Ports[i].State == "unsettled" {
				h.Ports[i].State = "wired"
			}
		}
		return h
	}
	for want, h := range map[string]Host{
		"hv1: no ports plugged in":                                               states(),
		"hv1: its one port is wired":                                             states("wired"),
		"hv1: 0 of 1 port wired, 1 dead":                                         states("dead"),
		"hv1: all 3 ports wired":                                                 states("wired", "wired", "wired"),
		"hv1: 2 of 3 ports wired, 1 waiting":                                     states("wired", "waiting", "wired"),
		"hv1: 1 of 6 ports wired, 1 dead, 1 failed, 1 settling, 1 moved, 1 down": states("down", "moved", "unsettled", "failed", "dead", "wired"),
		"hv1: 197 of 200 ports wired, 3 waiting":                                 exampleHost(200),
		"hv1: 974 of 1,000 ports wired, 2 dead, 1 failed, 12 waiting, 3 settling, 1 moved, 7 down": exampleHost(1000),
		"hv1: 1 of 2 ports wired, 1 something new":                                                 states("wired", "something new"),
	} {
		if got := newPage(h).Headline; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestWhatIsWrong(t *testing.T) {
	said := func(p page) (list []string) {
		for _, q := range p.Problems {
			var names []string
			for _, x := range q.Ports {
				names = append(names, x.Label)
			}
			list = append(list, q.Level+": "+join(" | ", q.What, q.Reason, strings.Join(names, " "), q.More))
		}
		return list
	}
	t.Run("1000", func(t *testing.T) {
		want := []string{
			"bad: Tunnel failed: 10.0.0.92 | could not add network device",
			"bad: 1 port dead | not bound to a segment | tapae677173-9d",
			"bad: 1 port dead | bound to host hv7, not to this one | web-100",
			"bad: 1 port failed | the switch has no port for it: could not open network device tap (No such device) | tapa8042be0-a7",
			"wait: Not in sync | bulk_pull of 12 ports is not answered yet; 84 flows not as wanted yet",
			"wait: Bridge br-int: 84 pending",
			"wait: Tunnel missing: 10.0.0.35 | the switch has not made it yet",
			"wait: 12 ports waiting | bulk_pull of the port is not answered yet | tapa4fd9a22-53 tapa6c62071-b5 tapa16c8d84-90 tapa88ea6c0-17 tapa33513d3-f1 tapaa572d0f-79 tapac1fb35e-da tapac12fa97-6a tapaddb80e6-cc tapade839ad-3c | and 2 more",
			"wait: 3 ports settling | its flows and rows are not all in place yet | api-19 cache-3 cache-7",
		}
		if diff := cmp.Diff(want, said(newPage(exampleHost(1000)))); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("peers, bridges, groups", func(t *testing.T) {
		h := Host{Status: inspect.Status{
			Host: "hv1", InSync: true, Switch: inspect.Peer{Up: true}, Server: inspect.Peer{Up: true}, Broker: inspect.Peer{Error: "connection refused"},
		}}
		h.Bridges = []inspect.Bridge{{Name: "br-tun", Role: "tunnel", Error: "no such file"}}
		h.Groups = []inspect.Group{{ID: "g1", Ports: []string{"p1", "p2"}}}
		p := newPage(h)
		want := []string{
			"bad: The broker is away | connection refused",
			"bad: Bridge br-tun: not connected | no such file",
			"bad: There is no integration bridge | the agent programs no integration bridge",
			"wait: Group g1 | its rules are not pulled yet; 2 ports in it",
		}
		if diff := cmp.Diff(want, said(p)); diff != "" {
			t.Error(diff)
		}
		if p.Level != bad || p.Verdict != "in sync, 4 things are wrong" {
			t.Errorf("%s: %s", p.Level, p.Verdict)
		}
	})
	t.Run("nothing", func(t *testing.T) {
		h := exampleHost(11)
		p := newPage(h)
		if len(p.Problems) != 0 || p.Level != fine || p.Verdict != "in sync" {
			t.Errorf("%s %s %q", p.Level, p.Verdict, said(p))
		}
	})
}

// Networks are in the lane by which they leave; in a band, what needs attention comes first.
func TestLanes(t *testing.T) {
	h := Host{
		Bridges: []inspect.Bridge{
			{Name: "br-ex", Role: "physical", Physical: "ext", Connected: true}, {Name: "br-int", Role: "integration", Connected: true},
			{Name: "br-tun", Role: "tunnel", Connected: true},
		},
		Networks: []inspect.Network{
			{ID: "n1", Type: "vxlan", Number: 7, Ports: []string{"a", "b", "c"}}, {ID: "n2", Type: "flat", Physical: "ext", Ports: []string{"d"}},
			{ID: "n3", Type: "vlan", Physical: "gone", Number: 5}, {ID: "n4", Type: "local"}, {ID: "n5", Type: "geneve", Number: 6, Ports: []string{"e", "f"}},
		},
		Tunnels: []inspect.Tunnel{{Name: "t2", Remote: "10.0.0.10", State: "up"}, {Name: "t1", Remote: "10.0.0.9", State: "up"}},
	}
	for id, state := range map[string]string{"a": "wired", "b": "dead", "c": "waiting", "d": "wired", "e": "wired", "f": "down", "g": "waiting", "h": "elsewhere"} {
		h.Ports = append(h.Ports, inspect.Port{ID: id, State: state, Applied: true})
	}
	var got []string
	for _, l := range newPage(h).Lanes {
		name := l.Stays
		if l.Bridge != nil {
			name = l.Bridge.Name
		}
		for _, b := range l.Bands {
			name += " [" + b.Name + ":"
			for _, x := range b.Ports {
				name += " " + x.ID
			}
			name += "]"
		}
		for _, f := range l.Far {
			name += " → " + f.Name
		}
		got = append(got, name)
	}
	want := []string{
		" [not in a network: g] [elsewhere: h]",
		"br-tun [vxlan 7: b c a] [geneve 6: f e] → 10.0.0.9 → 10.0.0.10",
		"br-ex [flat: d] → ext",
		"Local networks do not leave this host. [local:]",
		"no physical bridge [vlan 5:] → gone",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestForeignFlows(t *testing.T) {
	b := newBridge(inspect.Bridge{Name: "br", Role: "tunnel", Connected: true, Present: 9, Foreign: 3})
	if got := strings.Join(b.Lines, ", "); got != "9 flows, 3 foreign" || !strings.Contains(b.Tip, "3 foreign") {
		t.Errorf("%q, %q", got, b.Tip)
	}
}

// Tunnels without a bridge for them are not forgotten.
func TestTunnelsWithoutBridge(t *testing.T) {
	h := Host{Tunnels: []inspect.Tunnel{{Remote: "10.0.0.9", State: "missing"}}}
	if page := render(t, h); !strings.Contains(page, "no tunnel bridge") || !strings.Contains(page, "<b>10.0.0.9</b>") {
		t.Error("the tunnel is not drawn")
	}
}

var tags = regexp.MustCompile(`<[a-zA-Z/!][^>]*>`)
var values = regexp.MustCompile(`="[^"]*"`)

// skeleton is a page's tags with the names of their attributes: what names of tenants must not change.
func skeleton(page string) string {
	var b strings.Builder
	for _, tag := range tags.FindAllString(page, -1) {
		b.WriteString(values.ReplaceAllString(tag, "="))
		b.WriteByte('\n')
	}
	return b.String()
}

// rename writes s into every string of the documents that somebody else chose.
func rename(h *Host, s string) {
	h.Status.Host, h.Status.Version, h.Status.Firewall = s, s, s
	h.Status.Broker.Detail, h.Status.Switch.Error = s, s
	h.Status.Reasons = []string{s}
	h.Status.Errors = []inspect.Event{{Level: s, Text: s}}
	for i := range h.Ports {
		p := &h.Ports[i]
		p.Name, p.Interface, p.Reason, p.MAC, p.Addresses, p.Segment = s, s, s, s, []string{s}, s
		p.Owner, p.Device, p.Groups, p.Status, p.Reported = s, s, []string{s}, s, s
	}
	for i := range h.Networks {
		h.Networks[i].ID = s + "x"
	}
	for i := range h.Tunnels {
		h.Tunnels[i].Remote, h.Tunnels[i].Type, h.Tunnels[i].Error = s, s, s
	}
	for i := range h.Bridges {
		h.Bridges[i].Name, h.Bridges[i].Error, h.Bridges[i].DatapathID = s, s, s
	}
	for i := range h.Groups {
		h.Groups[i].Name, h.Groups[i].ID, h.Groups[i].Known = s, s, false
	}
}

var hostile = []string{
	`<script>alert(1)</script>`, `</script><script>alert(1)</script>`, `</style><img src=x onerror=alert(1)>`, `" onmouseover="alert(1)`,
	`' onmouseover='alert(1)`, `javascript:alert(1)`, `{{.Host}}`, `<!--`, `-->`, `]]>`, "a\x00b", "\xff\xfe", "\u202eevil", "&lt;b&gt;", `\u003cscript\u003e`,
	strings.Repeat("long ", 2000), "</title><svg onload=alert(1)>", "\n\n<meta http-equiv=refresh content=0>", "`${alert(1)}`",
}

func TestNamesOfTenantsAreText(t *testing.T) {
	calm := exampleHost(10)
	rename(&calm, "calm")
	want := skeleton(render(t, calm))
	for _, s := range hostile {
		h := exampleHost(10)
		rename(&h, s)
		if diff := cmp.Diff(want, skeleton(render(t, h))); diff != "" {
			t.Errorf("%.40q changes the page:\n%s", s, diff)
		}
	}
}

func FuzzNames(f *testing.F) {
	for _, s := range hostile {
		f.Add(s)
	}
	calm := exampleHost(10)
	rename(&calm, "calm")
	want := skeleton(render(f, calm))
	f.Fuzz(func(t *testing.T, s string) {
		if s == "" {
			return // an empty string leaves elements out
		}
		h := exampleHost(10)
		rename(&h, s)
		if got := skeleton(render(t, h)); got != want {
			t.Errorf("%q changes the page:\n%s", s, cmp.Diff(want, got))
		}
	})
}

// Identifiers that fit no pattern, and documents with nothing in them.
func TestStrangeDocuments(t *testing.T) {
	for _, h := range []Host{
		{},
		{Ports: []inspect.Port{{}}, Networks: []inspect.Network{{}}, Tunnels: []inspect.Tunnel{{}}, Groups: []inspect.Group{{}}, Bridges: []inspect.Bridge{{}}},
		{Ports: []inspect.Port{{ID: `"><script>`, State: `"><script>`}}, Bridges: []inspect.Bridge{{Role: "physical"}}},
		{Networks: []inspect.Network{{Type: "vlan"}, {Type: "flat"}, {Type: "local"}, {Type: `"><script>`}}},
	} {
		if got := strings.Count(render(t, h), "<script"); got != 1 {
			t.Errorf("%d scripts in %+v", got, h)
		}
	}
}

// The page loads nothing, and its policy lets only its own style and script through.
func TestSelfContained(t *testing.T) {
	page := render(t, exampleHost(200))
	for _, s := range []string{"http://", "https://", "url(", "@import", " src=", " style=", "<link", "<iframe"} {
		if strings.Contains(page, s) {
			t.Errorf("the page contains %q", s)
		}
	}
	if m := regexp.MustCompile(`<[^>]* on[a-z]+=`).FindString(page); m != "" {
		t.Errorf("a script in an attribute: %s", m)
	}
	between := func(from, to string) string {
		_, rest, _ := strings.Cut(page, from)
		text, _, ok := strings.Cut(rest, to)
		if !ok {
			t.Fatalf("no %s", from)
		}
		return text
	}
	// html/template writes + in attributes as a reference, which browsers read back.
	policy := strings.NewReplacer("&#43;", "+", "&#39;", "'").Replace(between(`http-equiv="Content-Security-Policy" content="`, `"`))
	for what, text := range map[string]string{"style": between("<style>", "</style>"), "script": between("<script>", "</script>")} {
		if !strings.Contains(policy, what+"-src '"+digest(text)+"'") {
			t.Errorf("the policy refuses the page's own %s: %s", what, policy)
		}
	}
	if !strings.HasPrefix(policy, "default-src 'none';") {
		t.Errorf("the policy lets things through: %s", policy)
	}
}

var errRefused = errors.New("refused")

// fullDisk takes so many bytes.
type fullDisk int

func (d *fullDisk) Write(b []byte) (int, error) {
	if *d -= fullDisk(len(b)); *d < 0 {
		return 0, errRefused
	}
	return len(b), nil
}

func TestErrorsOfTheWriterAreReturned(t *testing.T) {
	disk := fullDisk(5000)
	if err := Render(&disk, exampleHost(10)); !errors.Is(err, errRefused) {
		t.Error(err)
	}
}

// source shows a host, and refuses one document.
type source struct {
	inspect.Source
	host    Host
	refuses string
}

func answer[T any](s *source, name string, doc T) (T, error) {
	if s.refuses == name {
		var none T
		return none, errRefused
	}
	return doc, nil
}

func (s *source) Status(context.Context) (inspect.Status, error) {
	return answer(s, "status", s.host.Status)
}
func (s *source) Ports(context.Context) ([]inspect.Port, error) {
	return answer(s, "ports", s.host.Ports)
}
func (s *source) Networks(context.Context) ([]inspect.Network, error) {
	return answer(s, "networks", s.host.Networks)
}
func (s *source) Tunnels(context.Context) ([]inspect.Tunnel, error) {
	return answer(s, "tunnels", s.host.Tunnels)
}
func (s *source) Groups(context.Context) ([]inspect.Group, error) {
	return answer(s, "groups", s.host.Groups)
}
func (s *source) Bridges(context.Context) ([]inspect.Bridge, error) {
	return answer(s, "bridges", s.host.Bridges)
}

func TestRead(t *testing.T) {
	want := exampleHost(200)
	got, err := Read(t.Context(), &source{host: want}, want.Time)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for _, name := range []string{"status", "ports", "networks", "tunnels", "groups", "bridges"} {
		if _, err := Read(t.Context(), &source{host: want, refuses: name}, want.Time); !errors.Is(err, errRefused) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s refused: %v", name, err)
		}
	}
}

func TestHandler(t *testing.T) {
	h := exampleHost(10)
	now := func() time.Time { return h.Time }
	w := httptest.NewRecorder()
	Handler(&source{host: h}, now).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/map", http.NoBody))
	if w.Code != http.StatusOK || w.Body.String() != render(t, h) {
		t.Errorf("status %d, %d bytes", w.Code, w.Body.Len())
	}
	if got := w.Header(); got.Get("Content-Type") != "text/html; charset=utf-8" || !strings.HasPrefix(got.Get("Content-Security-Policy"), "default-src 'none'") {
		t.Errorf("header %v", got)
	}
	w = httptest.NewRecorder()
	Handler(&source{host: h, refuses: "groups"}, now).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/map", http.NoBody))
	if w.Code != http.StatusServiceUnavailable || strings.Contains(w.Body.String(), "<html") {
		t.Errorf("a failed question is answered %d %s", w.Code, w.Body)
	}
}

func TestText(t *testing.T) {
	for want, got := range map[string]string{
		"0": number(0), "999": number(999), "1,000": number(1000), "-1,234,567": number(-1234567), "-123": number(-123),
		"1 port": count(1, "port"), "0 ports": count(0, "port"),
		"999 B": size(999), "1.00 kB": size(1000), "12.3 MB": size(12_345_678), "999 kB": size(999_400), "1.00 MB": size(999_600), "9,223 PB": strings.Replace(size(1<<63-1), "9223", "9,223", 1),
		"3 days": since(exampleTime.Add(-80*time.Hour), exampleTime), "47 hours": since(exampleTime.Add(-47*time.Hour), exampleTime),
		"1 minute": since(exampleTime.Add(-time.Minute), exampleTime), "": since(time.Time{}, exampleTime), "5 seconds": since(exampleTime.Add(-5*time.Second), exampleTime),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	sorted := []string{"", "10.0.0.9", "10.0.0.10", "a", "web-2", "web-010", "web-10b", "web-11", "x"}
	for i := range sorted {
		for j := range sorted {
			if got := compareNames(sorted[i], sorted[j]); (got < 0) != (i < j) || (got == 0) != (i == j) {
				t.Errorf("%q and %q: %d", sorted[i], sorted[j], got)
			}
		}
	}
}

func BenchmarkRender(b *testing.B) {
	h := exampleHost(1000)
	for b.Loop() {
		if err := Render(io.Discard, h); err != nil {
			b.Fatal(err)
		}
	}
}

// What is not a VM's port can be told apart in the picture and in the table, and the tip says what extensions do about it.
func TestRoles(t *testing.T) {
	page := render(t, exampleHost(10))
	for _, want := range []string{
		`<a class="port fine router"`, `<a class="port fine trunk"`, `<b>router</b><i>router interface</i>`, `<b>guest-7</b><i>sub-port</i>`,
		`<td>sub-port</td><td>spi-`, "the gateway of subnet blue on this host", "whose VM sends it under VLAN 7", "at most 1000 kbit/s from it",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not say %s", want)
		}
	}
}
