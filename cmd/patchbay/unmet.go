// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/inspect"
	"github.com/patchbay-sdn/patchbay/internal/options"
)

// unmet is an agent whose status names what the configuration asks for and is not so: an extension that is missing, a tunnel endpoint
// that no interface has yet, a log that cannot be opened. None of it keeps the agent from its work.
type unmet struct {
	inspect.Source
	of func() []inspect.Unmet
}

// Status implements [inspect.Source].
func (u unmet) Status(ctx context.Context) (inspect.Status, error) {
	s, err := u.Source.Status(ctx)
	if err == nil {
		s.Unmet = u.of()
	}
	return s, err
}

// unmetBy lists what is not as the options ask. Addresses are those of this host.
func unmetBy(o *options.Options, logs logFiles, addresses func() ([]net.Addr, error)) []inspect.Unmet {
	var out []inspect.Unmet
	for _, name := range o.MissingExtensions() {
		out = append(out, inspect.Unmet{Kind: inspect.UnmetExtension, Detail: "[agent] extensions names " + name + ", which Patchbay does not have: the agent runs without it"})
	}
	if err := endpointMissing(o, addresses); err != nil {
		out = append(out, inspect.Unmet{Kind: inspect.UnmetLocalIP, Detail: "[ovs] local_ip " + err.Error()})
	}
	if err := logs.Err(); err != nil {
		out = append(out, inspect.Unmet{Kind: inspect.UnmetLog, Detail: err.Error() + "; the log goes to standard error"})
	}
	return out
}

// endpointMissing says why the tunnel endpoint cannot be used; nil: it can, or there are no tunnels.
func endpointMissing(o *options.Options, addresses func() ([]net.Addr, error)) error {
	if len(o.Agent.TunnelTypes) == 0 {
		return nil
	}
	want, err := netip.ParseAddr(o.OVS.LocalIP)
	if err != nil {
		return fmt.Errorf("is %q: not an address", o.OVS.LocalIP)
	}
	list, err := addresses()
	if err != nil {
		return fmt.Errorf("cannot be checked: %w", err)
	}
	for _, a := range list {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().WithZone("") == want {
			return nil
		}
	}
	return fmt.Errorf("is %s, which no interface of this host has: tunnels carry nothing until one does", want)
}

// endpointPause separates two looks for the tunnel endpoint.
const endpointPause = 5 * time.Second

// awaitEndpoint logs that the tunnel endpoint is missing, and when it is there. Bridges and ports are made without it.
func awaitEndpoint(ctx context.Context, o *options.Options, addresses func() ([]net.Addr, error), log *slog.Logger) {
	err := endpointMissing(o, addresses)
	if err == nil {
		return
	}
	log.Warn("tunnel endpoint missing, waiting for it", "option", "[ovs] local_ip "+err.Error())
	for began := time.Now(); ctx.Err() == nil; pause(ctx, endpointPause) {
		if endpointMissing(o, addresses) == nil {
			log.Info("tunnel endpoint found", "local_ip", o.OVS.LocalIP, "after", time.Since(began))
			return
		}
	}
}
