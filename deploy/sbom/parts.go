// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"sort"
	"strings"
	"time"
)

// part is one thing that was linked: a module, or Go's standard library.
type part struct {
	Path    string
	Version string
	Sum     string // go.sum's, over the module's files
	Licence string // SPDX identifier
	Text    string // of the licence
}

// standardLibrary is the name that tools use for Go itself.
const standardLibrary = "stdlib"

// partsOf lists what the binary is made of, sorted, each with its licence.
func partsOf(info *debug.BuildInfo) ([]part, error) {
	goroot, err := goCommand("env", "GOROOT")
	if err != nil {
		return nil, err
	}
	text, err := licenceText(strings.TrimSpace(goroot))
	if err != nil {
		return nil, err
	}
	parts := []part{{Path: standardLibrary, Version: strings.TrimPrefix(info.GoVersion, "go"), Text: text}}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		dir, err := moduleDir(m.Path, m.Version)
		if err != nil {
			return nil, err
		}
		text, err := licenceText(dir)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m.Path, err)
		}
		parts = append(parts, part{Path: m.Path, Version: m.Version, Sum: m.Sum, Text: text})
	}
	for i := range parts {
		if parts[i].Licence = classify(parts[i].Text); parts[i].Licence == "" {
			return nil, fmt.Errorf("%s: its licence is none of those known here; read it, then teach classify", parts[i].Path)
		}
	}
	sort.Slice(parts, func(i, j int) bool { return parts[i].Path < parts[j].Path })
	return parts, nil
}

func goCommand(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute) // a module may have to be fetched
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return string(out), nil
}

// moduleDir is where the files of a module are: in vendor, of a build without a network, or fetched if need be.
func moduleDir(path, version string) (string, error) {
	if dir := filepath.Join("vendor", filepath.FromSlash(path)); exists(dir) {
		return dir, nil
	}
	out, err := goCommand("mod", "download", "-json", path+"@"+version)
	if err != nil {
		return "", err
	}
	var m struct{ Dir string }
	if err := json.Unmarshal([]byte(out), &m); err != nil {
		return "", fmt.Errorf("go mod download: %w", err)
	}
	if m.Dir == "" {
		return "", fmt.Errorf("go mod download names no directory for %s@%s", path, version)
	}
	return m.Dir, nil
}

func exists(path string) bool { _, err := os.Stat(path); return err == nil }

var errNoLicence = errors.New("no licence file")

// licenceText is the licence in a module's root, with the NOTICE that Apache-2.0 wants passed on.
func licenceText(dir string) (string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", fmt.Errorf("looking for the licence: %w", err)
	}
	var licence, notice string
	for _, e := range entries {
		name := strings.ToUpper(e.Name())
		isLicence := strings.HasPrefix(name, "LICENSE") || strings.HasPrefix(name, "LICENCE") || strings.HasPrefix(name, "COPYING")
		if e.IsDir() || !isLicence && !strings.HasPrefix(name, "NOTICE") {
			continue
		}
		text, err := readFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return "", err
		}
		if isLicence {
			licence += text
		} else {
			notice += text
		}
	}
	if licence == "" {
		return "", fmt.Errorf("%w in %s", errNoLicence, dir)
	}
	if notice != "" {
		licence += "\n" + notice
	}
	return licence, nil
}

func readFile(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("reading a licence: %w", err)
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, 1<<20))
	if err != nil {
		return "", fmt.Errorf("reading a licence: %w", err)
	}
	return string(text), nil
}

// classify names a licence by sentences that only it has; empty when it is none of the known ones.
func classify(text string) string {
	words := strings.ToLower(strings.Join(strings.Fields(text), " "))
	has := func(s string) bool { return strings.Contains(words, s) }
	bsd := has("redistributions in binary form must reproduce")
	switch {
	case has("apache license") && has("version 2.0, january 2004"):
		return "Apache-2.0"
	case has("mozilla public license") && has("2.0"):
		return "MPL-2.0"
	case bsd && (has("neither the name") || has("names of its contributors may")):
		return "BSD-3-Clause"
	case bsd:
		return "BSD-2-Clause"
	case has("permission is hereby granted, free of charge") && has("without restriction"):
		return "MIT"
	case has("permission to use, copy, modify, and/or distribute this software for any purpose with or without fee"):
		return "ISC"
	}
	return ""
}
