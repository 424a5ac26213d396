// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/options"
)

// Packets of a tunnel whose endpoint is not on this host would end nowhere, and other hosts would send theirs to somebody else. So
// the agent does not start, and says why.
func TestTunnelEndpointMustBeOnThisHost(t *testing.T) {
	for _, test := range []struct {
		name, text string
		refused    bool
	}{
		{"on the host", "[ovs]\nlocal_ip = 127.0.0.1\n[agent]\ntunnel_types = vxlan\n", false},
		{"elsewhere", "[ovs]\nlocal_ip = 192.0.2.1\n[agent]\ntunnel_types = vxlan\n", true},
		{"IPv6, elsewhere", "[ovs]\nlocal_ip = 2001:db8::1\n[agent]\ntunnel_types = gre\n", true},
		// In the range of an address of the host, but none itself.
		{"a neighbour", "[ovs]\nlocal_ip = 127.0.0.2\n[agent]\ntunnel_types = vxlan\n", true},
		{"elsewhere, without tunnels", "[ovs]\nlocal_ip = 192.0.2.1\n", false},
	} {
		o := optionsOf(t, "[DEFAULT]\ntransport_url = rabbit://u:p@127.0.0.1:1/\n[securitygroup]\nenable_security_group = false\n"+test.text)
		_, err := usable(o)
		if refused := err != nil; refused != test.refused {
			t.Errorf("%s: refused: %v, want %v: %v", test.name, refused, test.refused, err)
		}
		if !test.refused {
			continue
		}
		if want := "[ovs] local_ip is " + o.OVS.LocalIP; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v does not say %q", test.name, err, want)
		}
		// A start that is not refused ends here at once, without an error: its time is over.
		ctx, cancel := context.WithDeadline(t.Context(), time.Now())
		if err := startAgent(ctx, o, slog.New(slog.DiscardHandler), &slog.LevelVar{}); err == nil || !strings.Contains(err.Error(), "local_ip") {
			t.Errorf("%s: the agent starts: %v", test.name, err)
		}
		cancel()
	}
}

// The bound of ports in a report is the option's.
func TestPortsPerReport(t *testing.T) {
	o := optionsOf(t, "[DEFAULT]\nrpc_resources_processing_step = 13\n")
	if got := agentConfig(t.Context(), o).PortsPerReport; got != 13 {
		t.Errorf("%d ports a report, want 13", got)
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
