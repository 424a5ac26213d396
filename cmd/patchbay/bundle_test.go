// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/patchbay-sdn/patchbay/internal/admin"
	"github.com/patchbay-sdn/patchbay/internal/inspect"
	"github.com/patchbay-sdn/patchbay/internal/options"
)

// unpack returns the files of a bundle, all of them decompressed.
func unpack(t *testing.T, path string) map[string]string {
	t.Helper()
	bundle, err := inspect.ReadBundle(path)
	if err != nil {
		t.Fatal(err)
	}
	files, err := bundle.Texts()
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// Secrets are planted everywhere; none of them is in the archive, nor in what is printed.
func TestBundleHasNoSecrets(t *testing.T) {
	dir := t.TempDir()
	secrets := []string{"hunter2pw", "s3cr%40t%2Fx", "s3cr@t/x", "profilerkey", "ipsecsecret", "MIIEsecretkey"}
	logFile := filepath.Join(dir, "agent.log")
	conf := filepath.Join(dir, "a.conf")
	text := "[DEFAULT]\ntransport_url = rabbit://nova:hunter2pw@a:5672,neutron:s3cr%40t%2Fx@b:5672/vh\nlog_file = " + logFile +
		"\n[profiler]\nhmac_keys = profilerkey\n[oslo_messaging_rabbit]\nssl_key_password = ipsecsecret\n"
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	log := "WARNING cannot reach rabbit://nova:hunter2pw@a:5672 err=\"login s3cr@t/x refused\"\npsk=ipsecsecret\n" +
		"-----BEGIN RSA PRIVATE KEY-----\nMIIEsecretkey\n-----END RSA PRIVATE KEY-----\nport 4f1c is up\n"
	if err := os.WriteFile(logFile, []byte(log), 0o600); err != nil {
		t.Fatal(err)
	}
	o, err := options.Load([]string{"--config-file", conf}, nil)
	if err != nil {
		t.Fatal(err)
	}
	src := exampleAgent()
	src.events = append(src.events, inspect.Event{Seq: 9, Text: "cannot connect: hunter2pw is wrong for profilerkey"})
	src.status.Broker.Error = "amqp://nova:hunter2pw@a refused"
	src.flows = []inspect.Flow{{Bridge: "br-int", Text: "table=0,actions=drop", Reason: "s3cr%40t%2Fx"}}
	socket := served(t, src, admin.Options{Settings: func() ([]byte, error) { return maskedConfig(o) }, Metrics: admin.Metrics(src)})
	path := filepath.Join(dir, "b.tar.gz")
	out, _ := run(t, "support-bundle", "--socket", socket, path) // a machine without Open vSwitch lacks parts
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v, %v\n%s", info, err, out)
	}
	files := unpack(t, path)
	files["printed"] = out
	for name, text := range files {
		for _, s := range secrets {
			if strings.Contains(text, s) {
				t.Errorf("%s: %q is in\n%s", name, s, text)
			}
		}
	}
	for _, name := range []string{"status.json", "status.txt", "ports.json", "flows.json", "events.json", "config.json", "metrics.txt", "log.txt", "versions.txt"} {
		if files[name] == "" {
			t.Errorf("%s is missing:\n%s", name, out)
		}
	}
	if !strings.Contains(files["log.txt"], "port 4f1c is up") || !strings.Contains(files["ports.json"], "10.1.0.5") {
		t.Error("what matters is gone")
	}
	if _, status := run(t, "support-bundle", "--socket", socket, path); status != exitFailed {
		t.Error("an archive was overwritten")
	}
}

// Without an agent there is still an archive, and it says what is missing.
func TestBundleWithoutAnAgent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "b.tar.gz")
	out, status := run(t, "support-bundle", "--socket", filepath.Join(t.TempDir(), "none"), path)
	files := unpack(t, path)
	if status != exitFinding || !strings.Contains(files["missing.txt"], "ports.json: no agent answers") || files["versions.txt"] == "" {
		t.Errorf("status %d\n%s\n%v", status, out, files)
	}
}

// Everything that the socket of a configured agent answers is free of its secrets.
func TestNoSecretOnTheSocket(t *testing.T) {
	conf := filepath.Join(t.TempDir(), "a.conf")
	if err := os.WriteFile(conf, []byte("[DEFAULT]\ntransport_url = rabbit://u:hunter2pw@a:5672/\n[profiler]\nhmac_keys = profilerkey\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	o, err := options.Load([]string{"--config-file", conf}, nil)
	if err != nil {
		t.Fatal(err)
	}
	b, err := maskedConfig(o)
	if err != nil || strings.Contains(string(b), "hunter2pw") || strings.Contains(string(b), "profilerkey") || !strings.Contains(string(b), "transport_url") {
		t.Errorf("%v\n%s", err, b)
	}
}

func TestRedact(t *testing.T) {
	r := &redactor{}
	for text, want := range map[string]string{
		`options: {psk="abc def", remote_ip="10.0.0.1"}`: `options: {psk=***, remote_ip="10.0.0.1"}`,
		`rabbit://u:p@h:5672,u2:p2@h2/v`:                 `rabbit://u:***@h:5672,u2:***@h2/v`,
		`"admin_password": "x y"`:                        `"admin_password": ***`,
		`port 10.0.0.1 fa:16:3e:00:00:01 at 12:30:01`:    `port 10.0.0.1 fa:16:3e:00:00:01 at 12:30:01`,
		`security group 4f1c: allow tcp/22`:              `security group 4f1c: allow tcp/22`,
	} {
		if got := string(r.clean([]byte(text))); got != want {
			t.Errorf("%s\n got %s\nwant %s", text, got, want)
		}
	}
}

// Every command has a page, and pages say what the command says of itself.
func TestManPages(t *testing.T) {
	dir := t.TempDir()
	if out, status := run(t, "man", dir); status != 0 {
		t.Fatal(out)
	}
	var pages []string
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		pages = append(pages, e.Name())
	}
	for _, c := range newRootCommand().Commands() {
		if name := "patchbay-" + c.Name() + ".1"; !c.Hidden && c.Name() != "completion" && c.Name() != "help" && !slices.Contains(pages, name) {
			t.Errorf("no page %s in %v", name, pages)
		}
	}
	page, err := os.ReadFile(filepath.Join(dir, "patchbay-status.1"))
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{`.TH "PATCHBAY\-STATUS" "1"`, "not in sync; the command prints the reasons", `\-\-socket`, ".SH OPTIONS", "patchbay(1)"} {
		if !strings.Contains(string(page), part) {
			t.Errorf("no %q in\n%s", part, page)
		}
	}
	if strings.Contains(fmt.Sprint(pages), "__complete") {
		t.Error("a page for what is hidden")
	}
}
