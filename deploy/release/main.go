// SPDX-License-Identifier: Apache-2.0

// Command release writes the provenance of a release: an in-toto statement with SLSA's predicate, that says of which commit, with which compiler and
// of which modules the files are made. The same files give the same bytes: it has no times of its own.
//
//	release -version V -commit HASH -epoch SECONDS -tool NAME=VERSION -binary FILE -o FILE FILE...
package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

const (
	home      = "https://github.com/patchbay-sdn/patchbay"
	howTo     = home + "/blob/main/docs/how-to/make-a-release.md"
	statement = "https://in-toto.io/Statement/v1"
	predicate = "https://slsa.dev/provenance/v1"
)

// Statement is what in-toto specifies, as far as it is used.
type Statement struct {
	Type          string     `json:"_type"`
	Subject       []Artifact `json:"subject"`
	PredicateType string     `json:"predicateType"`
	Predicate     Provenance `json:"predicate"`
}

// Artifact is a file, or something that files are made of.
type Artifact struct {
	Name   string            `json:"name,omitempty"`
	URI    string            `json:"uri,omitempty"`
	Digest map[string]string `json:"digest"`
}

// Provenance is what SLSA specifies, as far as it is used.
type Provenance struct {
	BuildDefinition struct {
		BuildType            string            `json:"buildType"`
		ExternalParameters   map[string]string `json:"externalParameters"`
		InternalParameters   map[string]string `json:"internalParameters"`
		ResolvedDependencies []Artifact        `json:"resolvedDependencies"`
	} `json:"buildDefinition"`
	RunDetails struct {
		Builder struct {
			ID string `json:"id"`
		} `json:"builder"`
	} `json:"runDetails"`
}

func run(args []string) error {
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	version := flags.String("version", "", "version of the release")
	commit := flags.String("commit", "", "hash of its commit")
	epoch := flags.String("epoch", "", "time of its commit, in seconds since 1970")
	binary := flags.String("binary", "", "binary whose compiler and modules are named")
	output := flags.String("o", "", "file to write")
	tools := map[string]string{}
	flags.Func("tool", "NAME=VERSION of a tool that made packages", func(s string) error {
		name, v, ok := strings.Cut(s, "=")
		if tools[name] = v; !ok {
			return errors.New("it is not of the form NAME=VERSION")
		}
		return nil
	})
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() == 0 || *output == "" || *version == "" || *binary == "" {
		return errors.New("usage: release -version V -commit HASH -epoch SECONDS -binary FILE -o FILE ARTIFACT [ARTIFACT]")
	}
	if !regexp.MustCompile(`^[0-9a-f]{40}$`).MatchString(*commit) {
		return fmt.Errorf("-commit %q: it is no hash of a commit", *commit)
	}
	s := Statement{Type: statement, PredicateType: predicate}
	for _, path := range slices.Sorted(slices.Values(flags.Args())) {
		sum, err := sumOf(path)
		if err != nil {
			return err
		}
		s.Subject = append(s.Subject, Artifact{Name: filepath.Base(path), Digest: map[string]string{"sha256": sum}})
	}
	compiler, modules, err := madeOf(*binary)
	if err != nil {
		return err
	}
	tools["go"], tools["SOURCE_DATE_EPOCH"] = compiler, *epoch
	b := &s.Predicate.BuildDefinition
	b.BuildType = howTo
	b.ExternalParameters = map[string]string{"source": "git+" + home, "version": *version, "target": "make release"}
	b.InternalParameters = tools
	b.ResolvedDependencies = append([]Artifact{{URI: "git+" + home, Digest: map[string]string{"gitCommit": *commit}}}, modules...)
	s.Predicate.RunDetails.Builder.ID = howTo + "#who-builds"
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(*output, append(text, '\n'), 0o644)
}

func sumOf(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", fmt.Errorf("reading %s: %w", path, err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// madeOf returns the compiler of a binary, and its modules with the hashes that go.sum has of them.
func madeOf(path string) (compiler string, modules []Artifact, err error) {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return "", nil, fmt.Errorf("reading the module list: %w", err)
	}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(m.Sum, "h1:"))
		if err != nil || len(sum) != sha256.Size {
			return "", nil, fmt.Errorf("module %s has the hash %q", m.Path, m.Sum)
		}
		modules = append(modules, Artifact{URI: "pkg:golang/" + m.Path + "@" + m.Version, Digest: map[string]string{"dirHash": hex.EncodeToString(sum)}})
	}
	return info.GoVersion, modules, nil
}
