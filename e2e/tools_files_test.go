// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bytes"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	chart "text/template"

	"golang.org/x/tools/txtar"
)

// handed is what a deployment tool hands the agent of a host: the files of cmd/patchbay/testdata/tools with the addresses of the lab, at the
// paths that the tool uses.
type handed struct {
	files map[string]string // by path
	args  []string
	env   []string
	// vhost, rabbit and peer are what the server and the agent of the other host are configured with, too.
	vhost  string
	rabbit []string          // "name=value" of [oslo_messaging_rabbit]
	peer   []string          // overrides of the other host's agent
	hybrid bool              // firewall_driver is iptables_hybrid
	log    string            // file of the log; empty for none
	unit   map[string]string // of [Service], in the place of the tool's
}

// lines of files that name machines.
var (
	settingLine = regexp.MustCompile(`^(\w+)\s*=\s*(.*)$`)
	// queueSetting is an option that all who use a queue have to agree on, or cannot do without.
	queueSetting = regexp.MustCompile(`durable|quorum|stream|queue_manager|prefetch`)
	logOfArgs    = regexp.MustCompile(`--log-file[= ](\S+)`)
)

// site is what stands in the place of the tool's machines.
type site struct {
	broker, tls       string // host:port
	host, localIP, ca string
}

// hand reads the archive of a tool. Real is the path that a file has on a host of the tool.
func hand(t *testing.T, fixture string, real func(name string) string, s site) *handed {
	t.Helper()
	archive, err := txtar.ParseFile(filepath.Join("..", "cmd", "patchbay", "testdata", "tools", fixture+".txtar"))
	if err != nil {
		t.Fatal(err)
	}
	out := &handed{files: map[string]string{}, vhost: "/"}
	place := func(text string) string {
		for _, f := range archive.Files {
			text = strings.ReplaceAll(text, "DIR/"+f.Name, real(f.Name))
			if dir := filepath.Dir(f.Name); dir != "." {
				text = strings.ReplaceAll(text, "DIR/"+dir, filepath.Dir(real(f.Name)))
			}
		}
		return text
	}
	for line := range strings.Lines(string(archive.Comment)) {
		line = strings.TrimSpace(line)
		if rest, ok := strings.CutPrefix(line, "args: "); ok {
			out.args = strings.Fields(place(rest))
			if m := logOfArgs.FindStringSubmatch(rest); m != nil {
				out.log = m[1]
			}
		}
		if rest, ok := strings.CutPrefix(line, "env: "); ok {
			out.env = append(out.env, rest)
		}
	}
	for _, f := range archive.Files {
		if f.Name != "want" {
			out.files[real(f.Name)] = out.adapt(t, place(string(f.Data)), s)
		}
	}
	if !strings.Contains(strings.Join(mapValues(out.files), "\n"), "datapath_type") { // the lab's switches are in userspace
		for path, text := range out.files {
			if before, after, ok := strings.Cut(text, "[ovs]\n"); ok {
				out.files[path] = before + "[ovs]\ndatapath_type = netdev\n" + after
			}
		}
	}
	return out
}

func mapValues(m map[string]string) (out []string) {
	for _, v := range m {
		out = append(out, v)
	}
	return out
}

// adapt puts the lab's addresses into a file, and takes from it what others need to know.
func (h *handed) adapt(t *testing.T, text string, s site) string {
	var out strings.Builder
	section := ""
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if strings.HasPrefix(line, "[") {
			section = strings.ToLower(strings.Trim(line, "[]"))
		}
		m := settingLine.FindStringSubmatch(line)
		if m == nil {
			fmt.Fprintln(&out, line)
			continue
		}
		name, value := m[1], m[2]
		switch {
		case name == "transport_url":
			value = h.transport(t, value, s)
		case name == "host" && section == "default":
			value = s.host
		case name == "local_ip":
			value = regexp.MustCompile(`[\d.]+`).ReplaceAllString(value, s.localIP)
		case name == "datapath_type":
			value = "netdev"
		case name == "ssl_ca_file":
			value = s.ca
		case name == "log_dir" && h.log == "":
			h.log = value + "/neutron-openvswitch-agent.log"
		case name == "firewall_driver":
			h.hybrid = strings.Contains(strings.ToLower(value), "hybrid")
		case section == "oslo_messaging_rabbit" && queueSetting.MatchString(name):
			h.rabbit = append(h.rabbit, name+"="+value)
		case section == "agent" && (name == "tunnel_types" || name == "l2_population" || name == "arp_responder" || name == "enable_distributed_routing"), name == "bridge_mappings":
			h.peer = append(h.peer, section+"."+name+"="+value)
		}
		fmt.Fprintf(&out, "%s = %s\n", name, value)
	}
	return out.String()
}

// transport is a URL of the tool with the lab's broker in the place of each of its brokers. The virtual host stays, and so does TLS.
func (h *handed) transport(t *testing.T, text string, s site) string {
	rest, ok := strings.CutPrefix(text, "rabbit://")
	brokers, path, found := strings.Cut(rest, "/")
	if !ok || !found {
		t.Fatalf("transport_url %s", text)
	}
	path, query, _ := strings.Cut(path, "?")
	vhost, err := url.PathUnescape(path)
	if err != nil {
		t.Fatal(err)
	}
	if vhost != "" {
		h.vhost = vhost
	}
	list := strings.Split(brokers, ",")
	for i, b := range list {
		to := s.broker
		if strings.HasSuffix(b, ":5671") {
			to = s.tls
		}
		list[i] = "patchbay:patchbay@" + to
	}
	text = "rabbit://" + strings.Join(list, ",") + "/" + path
	if query != "" {
		text += "?" + query
	}
	return text
}

// write lays the files out below a directory.
func (h *handed) write(t *testing.T, root string, mode os.FileMode) {
	t.Helper()
	for path, text := range h.files {
		writeFile(t, filepath.Join(root, path), text, mode)
	}
}

func writeFile(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

// envTools names a directory with checkouts of kolla, kolla-ansible, openstack-helm and tripleo-common. The scripts of these are run in images and
// as health checks then, and kolla's rule for the log is its own. Without it scripts of ours stand in.
const envTools = "PATCHBAY_TOOLS"

// scripts lays out the start and health scripts of a tool in a directory, and says whose they are.
func scripts(t *testing.T, tool string) (dir, whose string) {
	t.Helper()
	dir = t.TempDir()
	own := os.Getenv(envTools)
	copyAll := func(from string) {
		list, err := os.ReadDir(from)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range list {
			text, err := os.ReadFile(filepath.Join(from, f.Name()))
			if err != nil {
				t.Fatal(err)
			}
			writeFile(t, filepath.Join(dir, f.Name()), string(text), 0o755)
		}
	}
	if tool == "tripleo" {
		copyAll(filepath.Join("testdata", "tools", "kolla"))
	}
	copyAll(filepath.Join("testdata", "tools", tool))
	if own == "" {
		return dir, "stand-in"
	}
	base := "kolla/kolla/docker/" // since 2026.2
	if _, err := os.Stat(filepath.Join(own, base)); err != nil {
		base = "kolla/docker/"
	}
	theirs := map[string]map[string]string{
		"kolla": {
			"kolla_start": base + "base/start.sh", "kolla_set_configs": base + "base/set_configs.py", "kolla_copy_cacerts": base + "base/copy_cacerts.sh",
			"kolla_install_projects": base + "base/install_projects.sh", "kolla_extend_start": base + "neutron/neutron-base/extend_start.sh", "healthcheck_port": base + "base/healthcheck_port",
		},
		"helm": {},
	}
	theirs["tripleo"] = map[string]string{"healthcheck": "tripleo-common/healthcheck/neutron-ovs-agent", "common.sh": "tripleo-common/healthcheck/common.sh"}
	for name, path := range theirs["kolla"] {
		theirs["tripleo"][name] = path
	}
	for _, name := range []string{"health-probe.py", "neutron-openvswitch-agent-init.sh", "neutron-openvswitch-agent.sh", "neutron-openvswitch-agent-readiness.sh", "neutron-openvswitch-agent-liveness.sh"} {
		theirs["helm"][name] = "openstack-helm/neutron/templates/bin/_" + name + ".tpl"
	}
	for name, path := range theirs[tool] {
		text, err := os.ReadFile(filepath.Join(own, path))
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(path, ".tpl") {
			text = rendered(t, text)
		}
		writeFile(t, filepath.Join(dir, name), string(text), 0o755)
	}
	return dir, "own"
}

// rendered renders a script of the chart with the defaults that it depends on.
func rendered(t *testing.T, text []byte) []byte {
	t.Helper()
	type m = map[string]any
	values := m{"Values": m{
		"health_probe": m{"logging": m{"level": "ERROR"}},
		"network":      m{"interface": m{"tunnel": "br-under", "tunnel_network_cidr": "0/0"}},
		"pod":          m{"use_fqdn": m{"neutron_agent": true}},
		"conf": m{
			"ovs_dpdk": m{"enabled": false}, "neutron": m{"DEFAULT": m{}},
			"plugins": m{"openvswitch_agent": m{"agent": m{"tunnel_types": "vxlan"}}, "taas": m{"taas": m{"enabled": false}}},
		},
	}}
	functions := chart.FuncMap{
		"hasKey": func(in m, key string) bool { _, ok := in[key]; return ok },
		"empty":  func(v any) bool { return v == nil || v == "" },
	}
	script, err := chart.New("").Funcs(functions).Parse(string(text))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := script.Execute(&out, values); err != nil {
		t.Fatal(err)
	}
	return bytes.TrimLeft(out.Bytes(), "\n")
}

// oslo's text line: kolla's fluentd begins a record at such a line, and takes fields from it.
const (
	recordBegins = `^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} \d+ \S+ \S+ \[.*\]`
	recordFields = `^(?<Timestamp>\S+ \S+) (?<Pid>\d+) (?<log_level>\S+) (?<python_module>\S+) (?<Payload>.*)$`
)

// kollaRules are the two rules of kolla's fluentd, from its own template where that is at hand.
func kollaRules(t *testing.T) (begins, fields *regexp.Regexp) {
	t.Helper()
	first, second := recordBegins, recordFields
	if own := os.Getenv(envTools); own != "" {
		text, err := os.ReadFile(filepath.Join(own, "kolla-ansible/ansible/roles/fluentd/templates/conf/input/00-global.conf.j2"))
		if err != nil {
			t.Fatal(err)
		}
		find := func(name string) string {
			m := regexp.MustCompile(`(?m)^\s*` + name + ` /(.*)/$`).FindSubmatch(text)
			if m == nil {
				t.Fatalf("kolla's template has no %s", name)
			}
			return string(m[1])
		}
		first, second = find("format_firstline"), find("format1")
	}
	return regexp.MustCompile(first), regexp.MustCompile(second)
}

// badLine returns the first line of a log that begins no record, or lacks a field.
func badLine(t *testing.T, log string) (lines int, bad string) {
	t.Helper()
	begins, fields := kollaRules(t)
	for line := range strings.Lines(log) {
		line = strings.TrimRight(line, "\n")
		lines++
		m := fields.FindStringSubmatch(line)
		if !begins.MatchString(line) || m == nil {
			return lines, line
		}
		for _, name := range []string{"Timestamp", "Pid", "log_level", "python_module", "Payload"} {
			if m[fields.SubexpIndex(name)] == "" {
				return lines, line
			}
		}
	}
	return lines, ""
}
