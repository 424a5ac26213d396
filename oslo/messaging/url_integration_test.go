// SPDX-License-Identifier: Apache-2.0

//go:build integration

package messaging

import (
	"bufio"
	"encoding/json"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// pyURL is what testdata/peer.py says about a URL.
type pyURL struct {
	Result *struct {
		Transport, VHost string
		Query            map[string]string
		Hosts            [][4]any
		Effective        []struct {
			Host, User, Password, VHost string
			Port                        int
			Broken                      string
		}
	}
	Error string
}

// TestParseURLLikePython compares ParseURL with oslo.messaging's parser, and what we would connect to with what its driver
// hands to the AMQP library, on generated URLs.
func TestParseURLLikePython(t *testing.T) {
	const generated = 3000
	rnd := rand.New(rand.NewPCG(1, 2))
	texts := append([]string(nil), urlCorpus...)
	for range generated {
		texts = append(texts, randomURL(rnd))
	}
	cmd := exec.Command("/usr/bin/python3", "testdata/peer.py", "parse")
	var in strings.Builder
	for _, s := range texts {
		line, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		in.Write(append(line, '\n'))
	}
	cmd.Stdin, cmd.Stderr = strings.NewReader(in.String()), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(strings.NewReader(string(out)))
	lines.Buffer(nil, 1<<20)
	accepted, refused, lenient, differ := 0, 0, 0, 0
	broken := map[string]int{}
	for _, text := range texts {
		if !lines.Scan() {
			t.Fatal("Python said too little")
		}
		var py pyURL
		if err := json.Unmarshal(lines.Bytes(), &py); err != nil {
			t.Fatalf("%s: %v", lines.Text(), err)
		}
		if text == "" {
			continue // Python takes the configured URL instead
		}
		u, err := ParseURL(text)
		switch {
		case err != nil && py.Result == nil:
			refused++
		case err != nil && stricter(u, py):
			refused++
		case err == nil && py.Result == nil && strings.Contains(text, "[") && len(u.Hosts) > 1:
			lenient++ // oslo's own code takes them; patched versions of Python's URL parser in front of it do not
		case err != nil || py.Result == nil:
			differ++
			t.Errorf("%q: error here %v, there %q", text, err, py.Error)
		default:
			accepted++
			for _, e := range py.Result.Effective {
				if e.Broken != "" {
					broken[e.Broken]++
				}
			}
			if d := compareURL(u, py); d != "" {
				differ++
				t.Errorf("%q: -there +here\n%s", text, d)
			}
		}
		if differ > 20 {
			t.Fatal("too many differences")
		}
	}
	t.Logf("%d URLs accepted by both, %d refused by both, %d differences; %d lists with IPv6 addresses taken here only; hosts that Python parses but cannot use: %v",
		accepted, refused, differ, lenient, broken)
}

// stricter: other drivers than rabbit parse in Python too, and ports outside 0–65535 fail there only when connecting.
func stricter(u URL, py pyURL) bool {
	for _, h := range py.Result.Hosts {
		if p, ok := h[1].(float64); ok && (p < 0 || p > 65535) {
			return true
		}
	}
	return u.Transport != "" && u.driver() != "rabbit"
}

func compareURL(u URL, py pyURL) string {
	type flat struct {
		Transport, VHost string
		Query            map[string]string
		Hosts            [][4]any
		Effective        [][5]any
	}
	here := flat{Transport: u.Transport, VHost: u.VirtualHost, Query: u.Query}
	there := flat{Transport: py.Result.Transport, VHost: py.Result.VHost, Query: py.Result.Query, Hosts: py.Result.Hosts}
	for _, h := range u.Hosts {
		here.Hosts = append(here.Hosts, [4]any{h.Name, float64(h.Port), h.Username, string(h.Password)})
	}
	for i, h := range u.hosts() {
		if i < len(py.Result.Effective) && py.Result.Effective[i].Broken != "" {
			continue
		}
		// The second parser lower-cases host names and takes an empty one for localhost later on.
		here.Effective = append(here.Effective, [5]any{strings.ToLower(h.Name), h.Port, h.Username, string(h.Password), u.vhost()})
	}
	for _, e := range py.Result.Effective {
		if e.Broken != "" {
			continue // its driver builds a URL that its AMQP library cannot read, for instance from a slash in a password
		}
		if e.Host == "" {
			e.Host = "localhost"
		}
		there.Effective = append(there.Effective, [5]any{e.Host, e.Port, e.User, e.Password, e.VHost})
	}
	if len(there.Hosts) == 0 {
		there.Hosts = nil
	}
	return cmp.Diff(there, here)
}

// randomURL joins pieces that are each likely to mean something.
func randomURL(r *rand.Rand) string {
	pick := func(s ...string) string { return s[r.IntN(len(s))] }
	var b strings.Builder
	b.WriteString(pick("rabbit", "rabbit", "rabbit", "kombu", "kombu+rabbit", "RABBIT", "ra bbit", ""))
	b.WriteString(pick("://", "://", "://", "://", "://", ":/", ":"))
	for i := range 1 + r.IntN(3) {
		if i > 0 {
			b.WriteString(",")
		}
		if r.IntN(3) > 0 {
			b.WriteString(pick("user", "u%40d", "ü", "", "a b", "u%zz"))
			b.WriteString(pick(":pass", ":p%2Fw", ":p:q", ":p@w", ":", "", ":%ff", ":p+w", ":*"))
			b.WriteString("@")
		}
		b.WriteString(pick("host", "10.0.0.1", "[::1]", "[fe80::1", "", "Host.Example", "h_1"))
		b.WriteString(pick("", ":5672", ":5673", ":", ":x", ":0", ":+1", ":1_0", ":70000"))
	}
	b.WriteString(pick("", "/", "//", "/vhost", "/%2Fv", "/a%252Fb", "/a/b", "/ü", "/v;w"))
	b.WriteString(pick("", "", "", "?ssl=1", "?a=1&a=2", "?a=&b", "?a=x%26y", "?a=1+2", "?", "?a=b=c", "?=x"))
	b.WriteString(pick("", "", "", "", "#f"))
	return b.String()
}
