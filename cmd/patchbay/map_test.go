// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
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

// TestMapWatch serves the page of now until it is stopped, to this machine alone.
func TestMapWatch(t *testing.T) {
	socket := served(t, exampleAgent(), admin.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	in, out := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- serveMap(ctx, admin.NewClient(socket), "127.0.0.1:0", out) }()
	line, err := bufio.NewReader(in).ReadString('\n')
	if err != nil || !strings.HasPrefix(line, "http://127.0.0.1:") {
		t.Fatalf("%q %v", line, err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	get := func(host string) (int, string, http.Header) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, strings.TrimSpace(line), nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = host
		answer, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return answer.StatusCode, string(text), answer.Header
	}
	if status, text, head := get("localhost:1"); status != http.StatusOK || !strings.Contains(text, "<title>hv1:") || head.Get("Refresh") != "5" {
		t.Errorf("status %d, %v", status, head)
	}
	if status, text, _ := get("evil.example"); status != http.StatusForbidden || strings.Contains(text, "hv1") {
		t.Errorf("another name: status %d: %s", status, text)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	for _, args := range [][]string{{"--watch", "--listen", "0.0.0.0:0"}, {"--watch", "--file", "x"}, {"--listen", "127.0.0.1:0"}, {"--watch", "--listen", "8080"}} {
		if out, status := run(t, append([]string{"map", "--socket", socket}, args...)...); status != exitUsage {
			t.Errorf("%v: status %d: %s", args, status, out)
		}
	}
}
