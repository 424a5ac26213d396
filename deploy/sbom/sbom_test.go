// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"debug/buildinfo"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The test's own binary is made of this module's packages and Go: a binary that is always there.
func own(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func TestBillOfThisBinary(t *testing.T) {
	info, err := buildinfo.ReadFile(own(t))
	if err != nil {
		t.Fatal(err)
	}
	write := func(name string) []byte {
		out := filepath.Join(t.TempDir(), name)
		if err := run([]string{"-version", "1+2", "-o", out, own(t)}); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	text := write("one")
	if !bytes.Equal(text, write("two")) {
		t.Error("the same binary gave two bills")
	}
	var b bill
	if err := json.Unmarshal(text, &b); err != nil {
		t.Fatal(err)
	}
	if got := b.Metadata.Component; got.Version != "1+2" || !strings.HasSuffix(got.PURL, "@1%2B2") {
		t.Errorf("the binary itself is %+v", got)
	}
	if len(b.Components) != len(info.Deps)+1 {
		t.Errorf("%d components, want every one of %d modules and Go itself", len(b.Components), len(info.Deps))
	}
	found := false
	for _, c := range b.Components {
		if c.Name == standardLibrary {
			found = true
			if want := strings.TrimPrefix(info.GoVersion, "go"); c.Version != want || c.Licenses[0].License.ID != "BSD-3-Clause" {
				t.Errorf("the standard library is %+v, want version %s", c, want)
			}
		}
	}
	if !found {
		t.Error("the standard library is missing")
	}
}

func TestNotices(t *testing.T) {
	got := string(noticesOf([]part{{Path: "a", Version: "v1", Licence: "MIT", Text: "terms of a\n"}, {Path: "b", Version: "v2", Licence: "ISC", Text: "terms of b"}}))
	for _, want := range []string{"a v1 (MIT)", "terms of a", "b v2 (ISC)", "terms of b"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in\n%s", want, got)
		}
	}
}

func TestClassify(t *testing.T) {
	const bsd = "Redistributions in binary form must\nreproduce the above copyright notice. "
	for want, text := range map[string]string{
		"Apache-2.0":   "Apache License\n  Version 2.0, January 2004",
		"MPL-2.0":      "Mozilla Public License Version 2.0",
		"BSD-2-Clause": bsd,
		"BSD-3-Clause": bsd + "Neither the name of the holder",
		"MIT":          "Permission is hereby granted, free of charge, to deal in the Software without restriction",
		"ISC":          "Permission to use, copy, modify, and/or distribute this software for any\npurpose with or without fee",
		"":             "All rights reserved.",
	} {
		if got := classify(text); got != want {
			t.Errorf("%q was taken for %q, want %q", text, got, want)
		}
	}
}

// Distributions build without a network: modules are in vendor.
func TestVendoredModule(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.MkdirAll("vendor/example.org/part", 0o755); err != nil {
		t.Fatal(err)
	}
	if dir, err := moduleDir("example.org/part", "v1.0.0"); err != nil || dir != "vendor/example.org/part" {
		t.Errorf("%q, %v", dir, err)
	}
}

func TestUnknownOrMissingLicenceIsAnError(t *testing.T) {
	dir := t.TempDir()
	if text, err := licenceText(dir); err == nil {
		t.Errorf("a module without a licence file has the licence %q", text)
	}
	for name, text := range map[string]string{"LICENSE.txt": "terms\n", "NOTICE": "credit\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if text, err := licenceText(dir); err != nil || text != "terms\n\ncredit\n" {
		t.Errorf("licence text %q, %v", text, err)
	}
}
