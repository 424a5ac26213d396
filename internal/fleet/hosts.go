// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// ReadHosts reads a list of hosts in one of three forms, told apart by what is in it: one host a line; an Ansible inventory of the INI
// kind, of which group is taken, or all; and what `openstack network agent list -f json` prints, of which the Open vSwitch agents are
// taken. Each host is returned once, in the order of the list.
func ReadHosts(data []byte, group string) ([]string, error) {
	var hosts []string
	var err error
	switch text := bytes.TrimSpace(data); {
	case bytes.HasPrefix(text, []byte("[")) && json.Valid(text):
		hosts, err = fromAgents(text)
	default:
		hosts, err = fromLines(string(data), group)
	}
	if err != nil {
		return nil, err
	}
	if len(hosts) == 0 {
		return nil, fmt.Errorf("there is no host in the list")
	}
	for _, h := range hosts {
		if !hostName.MatchString(h) {
			return nil, fmt.Errorf("%q is no name of a host", h)
		}
	}
	return unique(hosts), nil
}

// hostName is what may stand in a command line: names, addresses, and a user before them. It does not begin like an option.
var hostName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.@:-]*$`)

func unique(list []string) []string {
	seen := map[string]bool{}
	return slices.DeleteFunc(list, func(s string) bool {
		again := seen[s]
		seen[s] = true
		return again
	})
}

func fromAgents(data []byte) ([]string, error) {
	var agents []struct {
		Binary string
		Host   string
	}
	if err := json.Unmarshal(data, &agents); err != nil {
		return nil, fmt.Errorf("reading the list of agents: %w", err)
	}
	var out []string
	for _, a := range agents {
		if a.Binary == "neutron-openvswitch-agent" {
			out = append(out, a.Host)
		}
	}
	return out, nil
}

// fromLines reads lines of hosts. A line in brackets begins a group; groups of groups and of variables are left out.
func fromLines(text, group string) ([]string, error) {
	var out []string
	section, found := "", group == ""
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		line = strings.TrimSpace(line)
		switch {
		case line == "" || strings.HasPrefix(line, ";"):
			continue
		case strings.HasPrefix(line, "["):
			section = strings.Trim(line, "[]")
			found = found || section == group
			continue
		case strings.Contains(section, ":") || group != "" && section != group:
			continue
		}
		word, _, _ := strings.Cut(line, " ")
		word, _, _ = strings.Cut(word, "\t")
		hosts, err := expand(word)
		if err != nil {
			return nil, err
		}
		out = append(out, hosts...)
	}
	if !found {
		return nil, fmt.Errorf("the inventory has no group %q", group)
	}
	return out, nil
}

// span is Ansible's hv[01:20].
var span = regexp.MustCompile(`^(.*)\[(\d+):(\d+)\](.*)$`)

// maxSpan bounds how many hosts one line may stand for.
const maxSpan = 100_000

func expand(word string) ([]string, error) {
	m := span.FindStringSubmatch(word)
	if m == nil {
		return []string{word}, nil
	}
	first, err := strconv.Atoi(m[2])
	last, err2 := strconv.Atoi(m[3])
	if err != nil || err2 != nil || last < first || last-first >= maxSpan {
		return nil, fmt.Errorf("%s stands for no hosts, or for too many", word)
	}
	var out []string
	for n := first; n <= last; n++ {
		out = append(out, fmt.Sprintf("%s%0*d%s", m[1], len(m[2]), n, m[4]))
	}
	return out, nil
}
