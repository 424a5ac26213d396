// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/admin"
	"github.com/patchbay-sdn/patchbay/internal/hostmap"
)

// TestMap asks an agent over a real socket, as the command does, for its documents and for the page itself.
func TestMap(t *testing.T) {
	src := exampleAgent()
	socket := filepath.Join(t.TempDir(), "a.sock")
	l, err := admin.Listen(t.Context(), socket, "")
	if err != nil {
		t.Fatal(err)
	}
	server := admin.New(src, admin.Options{Pages: map[string]http.Handler{mapPath: hostmap.Handler(src, time.Now)}})
	done := make(chan error, 1)
	go func() { done <- server.Serve(t.Context(), l) }()
	t.Cleanup(func() { <-done })

	var stdout bytes.Buffer
	run := func(args ...string) error {
		stdout.Reset()
		root := newRootCommand()
		root.SetOut(&stdout)
		root.SetArgs(append([]string{"map", "--socket", socket}, args...))
		return root.ExecuteContext(t.Context())
	}
	if err := run(); err != nil {
		t.Fatal(err)
	}
	page := stdout.String()
	for _, want := range []string{"<title>hv1: 1 of 2 ports wired, 1 dead</title>", "the server does not know it", "The broker is away", "10.0.0.2", "sent 400 B in 5 packets"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not say %q", want)
		}
	}

	file := filepath.Join(t.TempDir(), "hv1.html")
	if err := run("--file", file); err != nil {
		t.Fatal(err)
	}
	kept, err := os.ReadFile(file)
	if err != nil || stdout.Len() != 0 {
		t.Errorf("%v, and %d bytes on standard output", err, stdout.Len())
	}
	served, err := admin.NewClient(socket).Get(t.Context(), mapPath)
	if err != nil {
		t.Fatal(err)
	}
	moment := regexp.MustCompile(`<time>[^<]*</time>|(for|since) [0-9]+ [a-z]+`)
	plain := func(b []byte) string { return moment.ReplaceAllString(string(b), "") }
	if plain(kept) != plain(served) || plain(kept) != plain([]byte(page)) {
		t.Error("the file, standard output and the agent's own page are not the same")
	}

	if err := run("--file", filepath.Join(t.TempDir(), "no", "such", "place")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that cannot be written: %v", err)
	}
	socket += "x"
	if err := run("--file", file); !errors.Is(err, admin.ErrNoAgent) {
		t.Errorf("no agent: %v", err)
	}
	if again, err := os.ReadFile(file); err != nil || !bytes.Equal(again, kept) {
		t.Errorf("the file of before is gone: %v", err)
	}
}

// A page is not for a terminal, and the command writes to one through what makes names harmless.
func TestTerminal(t *testing.T) {
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip("no terminals here: ", err)
	}
	defer terminal.Close()
	file, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, c := range []struct {
		name string
		to   io.Writer
		want bool
	}{
		{"a terminal", terminal, true}, {"a terminal, made harmless", &plain{to: terminal}, true}, {"a file", &plain{to: file}, false}, {"memory", &bytes.Buffer{}, false},
	} {
		if got := isTerminal(c.to); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}
