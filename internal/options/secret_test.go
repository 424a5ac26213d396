// SPDX-License-Identifier: Apache-2.0

package options

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestMaskURL(t *testing.T) {
	for url, want := range map[string]string{
		"":                                 "",
		"rabbit://":                        "rabbit://",
		"rabbit://host":                    "rabbit://host",
		"rabbit://user:pw@host:5672/v":     "rabbit://user:***@host:5672/v",
		"rabbit://u:a@h1:1,u:a@[::1]:2/":   "rabbit://u:***@h1:1,u:***@[::1]:2/",
		"rabbit://u:a@h1:1,u:b@[::1]:2/":   "rabbit://***",
		"rabbit://u:p%2Fw@h//?ssl=1&x=y":   "rabbit://u:***@h//?ssl=***&x=***",
		"rabbit://u:p/w@h/":                "rabbit://***", // the slash belongs percent-encoded
		"rabbit://u:p?w@h/":                "rabbit://***",
		"rabbit://u:p#w@h/":                "rabbit://***",
		"rabbit://u:p,w@h/":                "rabbit://***",
		"rabbit://u:p@w,@h":                "rabbit://***",
		"rabbit://u:12,w@h/":               "rabbit://***",
		"rabbit://u:p w@h":                 "rabbit://u:***@h",
		"rabbit://u:p@h/v?password=pw&=pw": "rabbit://***",
		"u:p@h":                            "***",
		"p@ss://h":                         "***",
	} {
		if have := MaskURL(url); have != want {
			t.Errorf("%s: %s, want %s", url, have, want)
		}
	}
}

// TestMaskURLHides: whatever characters a password has, none of it shows, be the
// URL well formed or not.
func TestMaskURLHides(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		part := rapid.StringMatching(`([Q-Z]{3}[@:/?#,&=%$. \[\]-]{0,2}){1,3}`)
		password := part.Draw(r, "password")
		hosts := rapid.SampledFrom([]string{"h", "h:5672", "[::1]:5672", "h1,u:" + password + "@h2"}).Draw(r, "hosts")
		tail := rapid.SampledFrom([]string{"", "/", "/v", "/v?ssl=1", "?ssl=" + password, "/v?ssl_key_password=" + password}).Draw(r, "tail")
		shown := MaskURL("rabbit://u:" + password + "@" + hosts + tail)
		if strings.ContainsAny(shown, "QRSTUVWXYZ") {
			r.Fatalf("%q shows in %q", password, shown)
		}
	})
}

func FuzzMaskURL(f *testing.F) {
	for _, seed := range []string{"", "pw", "p@w", "p/w", "p?w", "p#w", "p,w", "p%2Fw", "p:w", "[p]"} {
		f.Add(seed, "host:5672/v?ssl=1")
	}
	f.Fuzz(func(t *testing.T, password, rest string) {
		// A marker that no rest contains by accident, on both ends.
		const marker = "\u0001\u0002"
		shown := MaskURL("rabbit://u:" + marker + password + marker + "@" + rest)
		if strings.Contains(shown, marker) {
			t.Errorf("%q shows in %q", password, shown)
		}
	})
}

func TestSecretHides(t *testing.T) {
	s := NewSecret("hunter2")
	var out strings.Builder
	fmt.Fprintf(&out, "%v %s %q %+v %#v %d %x ", s, s, s, struct{ S Secret }{s}, struct{ S Secret }{s}, s, s)
	fmt.Fprintf(&out, "%v %+v", &s, &struct{ S *Secret }{&s})
	data, err := json.Marshal(map[string]any{"a": s, "b": &s})
	if err != nil {
		t.Fatal(err)
	}
	out.Write(data)
	slog.New(slog.NewJSONHandler(&out, nil)).Info("x", "secret", s, "all", struct{ S Secret }{s})
	slog.New(slog.NewTextHandler(&out, nil)).Info("x", "secret", s, "all", struct{ S Secret }{s})
	if strings.Contains(out.String(), "hunter2") || strings.Contains(out.String(), fmt.Sprintf("%x", "hunter2")) {
		t.Error(out.String())
	}
	if s.Reveal() != "hunter2" || NewSecret("").String() != "" {
		t.Error("reveal")
	}
}
