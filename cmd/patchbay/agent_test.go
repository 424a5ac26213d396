// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/inspect"
	"github.com/patchbay-sdn/patchbay/internal/observe"
	"github.com/patchbay-sdn/patchbay/internal/options"
	"github.com/patchbay-sdn/patchbay/internal/world"
)

// A tunnel endpoint that is not on this host yet does not stop the agent: status names it until an interface has it.
func TestTunnelEndpointMayComeLate(t *testing.T) {
	for _, test := range []struct {
		name, text string
		missing    bool
	}{
		{"on the host", "[ovs]\nlocal_ip = 127.0.0.1\n[agent]\ntunnel_types = vxlan\n", false},
		{"elsewhere", "[ovs]\nlocal_ip = 192.0.2.1\n[agent]\ntunnel_types = vxlan\n", true},
		{"IPv6, elsewhere", "[ovs]\nlocal_ip = 2001:db8::1\n[agent]\ntunnel_types = gre\n", true},
		// In the range of an address of the host, but none itself.
		{"a neighbour", "[ovs]\nlocal_ip = 127.0.0.2\n[agent]\ntunnel_types = vxlan\n", true},
		{"elsewhere, without tunnels", "[ovs]\nlocal_ip = 192.0.2.1\n", false},
	} {
		o := optionsOf(t, "[DEFAULT]\ntransport_url = rabbit://u:p@127.0.0.1:1/\n[securitygroup]\nenable_security_group = false\n"+test.text)
		if _, err := usable(o); err != nil {
			t.Errorf("%s: %v", test.name, err)
		}
		list := unmetBy(o, nil, loopback)
		if got := len(list) == 1 && list[0].Kind == inspect.UnmetLocalIP && strings.Contains(list[0].Detail, "[ovs] local_ip is "+o.OVS.LocalIP); got != test.missing || !got && len(list) > 0 {
			t.Errorf("%s: %+v, want it missing: %v", test.name, list, test.missing)
		}
	}
}

func loopback() ([]net.Addr, error) {
	return []net.Addr{&net.IPNet{IP: net.IPv4(127, 0, 0, 1), Mask: net.CIDRMask(8, 32)}}, nil
}

func TestTunnelEndpointIsAwaited(t *testing.T) {
	o := optionsOf(t, "[ovs]\nlocal_ip = 192.0.2.1\n[agent]\ntunnel_types = vxlan\n")
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		begin := time.Now()
		awaitEndpoint(t.Context(), o, func() ([]net.Addr, error) {
			list, _ := loopback()
			if time.Since(begin) >= time.Minute {
				list = append(list, &net.IPNet{IP: net.IPv4(192, 0, 2, 1), Mask: net.CIDRMask(24, 32)})
			}
			return list, nil
		}, observe.NewLogger(&out, slog.LevelInfo))
		if lines := strings.Split(out.String(), "\n"); len(lines) != 3 || !strings.Contains(lines[0], "WARNING patchbay [-] tunnel endpoint missing") || !strings.HasSuffix(lines[1], "after=1m0s") {
			t.Errorf("%q", lines)
		}
	})
}

// What the configuration asks for and is not so is in the status, and keeps nobody from starting.
func TestUnmetIsInTheStatus(t *testing.T) {
	o := optionsOf(t, "[agent]\nextensions = qos,sfc\n[patchbay]\nunknown_extensions = ignore\n")
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/file", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	log := observe.OpenLogFile(dir+"/file/agent.log", io.Discard)
	defer log.Close()
	src := unmet{exampleAgent(), func() []inspect.Unmet { return unmetBy(o, logFiles{log}, loopback) }}
	s, err := src.Status(t.Context())
	if err != nil || len(s.Unmet) != 2 || s.Unmet[0].Kind != inspect.UnmetExtension || s.Unmet[1].Kind != inspect.UnmetLog {
		t.Errorf("%+v, %v", s.Unmet, err)
	}
	var out bytes.Buffer
	writeStatus(&out, &s, noon)
	if want := "  ! [agent] extensions names sfc, which Patchbay does not have: the agent runs without it\n"; !strings.Contains(out.String(), want) {
		t.Errorf("%s lacks %q", out.String(), want)
	}
}

// The bound of ports in a report is the option's.
func TestPortsPerReport(t *testing.T) {
	o := optionsOf(t, "[DEFAULT]\nrpc_resources_processing_step = 13\n")
	if cfg, err := agentConfig(t.Context(), o, nil); err != nil || cfg.PortsPerReport != 13 {
		t.Errorf("%d ports a report, want 13; %v", cfg.PortsPerReport, err)
	}
}

// Times of the switch are the options', where they are set.
func TestTimesOfTheSwitch(t *testing.T) {
	for text, want := range map[string][3]time.Duration{
		"": {0, 0, 10 * time.Second},
		"of_connect_timeout = 3\nof_request_timeout = 4\novsdb_timeout = 5\n": {3 * time.Second, 4 * time.Second, 5 * time.Second},
		"of_connect_timeout = 300\nof_request_timeout = -1\n":                 {300 * time.Second, 0, 10 * time.Second},
	} {
		o := optionsOf(t, "[ovs]\n"+text)
		connect, request := bridgeTimes(o)
		if got := [3]time.Duration{connect, request, databaseConfig(o).Timeout}; got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

func optionsOf(t *testing.T, text string) *options.Options {
	t.Helper()
	o, err := options.Load(writeConfig(t, text), nil)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// Neutron's API shows which agents are Patchbay where the operator wants it to, and nowhere else: the report is the Python agent's.
func TestVersionIsReportedOnRequest(t *testing.T) {
	for text, want := range map[string]string{"": "", "[patchbay]\nreport_version = true\n": version} {
		if got := reported(t.Context(), optionsOf(t, text)); got.Patchbay != want {
			t.Errorf("%q: %q, want %q", text, got.Patchbay, want)
		}
	}
}

// Every extension that the options take is made: one without a maker would be left out without a word.
func TestEveryExtensionIsMade(t *testing.T) {
	var o options.Options
	o.Agent.Extensions = options.Extensions()
	list, err := makers(extensionsOf(&o))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, create := range list {
		names = append(names, create(world.New(world.Config{})).Name())
	}
	if !slices.Equal(names, options.Extensions()) {
		t.Errorf("made are %q, want %q", names, options.Extensions())
	}
}

// An extension that cannot be made stops the start with its name and the reason. Before, the agent ran without it and those after it.
func TestExtensionThatIsNotMadeStopsTheStart(t *testing.T) {
	for name, reason := range map[string]string{"dhcp": "no configuration", "metadata_path": "no configuration", "dns_forwarder": "no configuration", "sfc": "this version has no extension"} {
		cfg, err := agentConfig(t.Context(), optionsOf(t, ""), []madeExtension{{Name: "qos"}, {Name: name}})
		if err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), reason) {
			t.Errorf("%s: %d extensions, %v", name, len(cfg.Extensions), err)
		}
	}
}
