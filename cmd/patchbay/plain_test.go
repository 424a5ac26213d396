// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/patchbay-sdn/patchbay/internal/admin"
)

// What tenants write into names does not reach the terminal as a command.
func TestNamesAreNotObeyed(t *testing.T) {
	src := exampleAgent()
	src.ports[0].Name = "web\x1b[2J\x1b]0;owned\a\u009b31m\r\x7f\x00é\u202egnp.\u2066\u200b\ufeff"
	src.groups[0].Name = "default\x1b[31m"
	socket := served(t, src, admin.Options{})
	for _, args := range [][]string{{"ports"}, {"port", "4f1c-1"}, {"groups"}, {"group", "g1"}, {"explain", "4f1c-1", "--db", "unix:/none"}, {"ports", "--json"}} {
		root := newRootCommand()
		var out bytes.Buffer
		root.SetOut(&plain{to: &out})
		root.SetErr(&plain{to: &out})
		root.SetArgs(append(args, "--socket", socket))
		if err := root.Execute(); err != nil {
			t.Fatalf("%s: %v\n%s", args, err, &out)
		}
		if strings.ContainsAny(out.String(), "\x1b\a\r\x7f\x00\u009b\u202e\u2066\u200b\ufeff") {
			t.Errorf("%s: %q", args, out.String())
		}
	}
	var out bytes.Buffer
	p := &plain{to: &out}
	fmt.Fprint(p, "→ é\t\n\xc2")
	fmt.Fprint(p, "\x9b")
	if out.String() != "→ é\t\n?" {
		t.Errorf("%q", out.String())
	}
}

// Whatever is written, and in whatever pieces, a terminal gets text only, and the same text.
func FuzzPlain(f *testing.F) {
	for _, seed := range []string{"→ é\t\n", "\x1b[2J", "\u009b31m", "a\u202eb", "\xc2", "\xf0\x9f\x98\x80 \xf0\x9f", "\xff\xfe", "\ufffd"} {
		f.Add([]byte(seed), 1)
		f.Add([]byte(seed), 3)
	}
	f.Fuzz(func(t *testing.T, text []byte, piece int) {
		var whole, pieces bytes.Buffer
		if n, err := (&plain{to: &whole}).Write(text); n != len(text) || err != nil {
			t.Fatalf("%d of %d, %v", n, len(text), err)
		}
		p := &plain{to: &pieces}
		for chunk := range slices.Chunk(text, max(1, min(piece, 100))) {
			if n, err := p.Write(chunk); n != len(chunk) || err != nil {
				t.Fatalf("%d of %d, %v", n, len(chunk), err)
			}
		}
		if !bytes.Equal(whole.Bytes(), pieces.Bytes()) {
			t.Errorf("%q in one, %q in pieces of %d", whole.Bytes(), pieces.Bytes(), piece)
		}
		if !utf8.Valid(whole.Bytes()) {
			t.Errorf("%q is no text", whole.Bytes())
		}
		for _, r := range whole.String() {
			if r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || unicode.Is(unicode.Bidi_Control, r)) {
				t.Errorf("%U in %q", r, whole.String())
			}
		}
	})
}
