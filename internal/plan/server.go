// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"github.com/patchbay-sdn/patchbay/internal/agent"
	"github.com/patchbay-sdn/patchbay/internal/conntrack"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/world"
	"github.com/patchbay-sdn/patchbay/openflow"
	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// server passes on questions that change nothing, and answers everything else by itself. Nothing is subscribed to, and no
// queue of others is touched.
type server struct {
	real    agent.Broker // nil offline
	tunnels map[string][]netip.Addr
	entries []neutron.FDBAdd
	assumed Assumed

	mu       sync.Mutex
	take     func(context.Context, *messaging.Message) (any, error)
	up, down map[string]bool
	failed   map[string]bool
}

func newServer(v *ovsdb.View, cfg *world.Config, flows []openflow.Entry) *server {
	s := &server{tunnels: map[string][]netip.Addr{}, up: map[string]bool{}, down: map[string]bool{}, failed: map[string]bool{}}
	at := endpoints(v, cfg)
	for _, e := range at {
		s.tunnels[e.Type] = append(s.tunnels[e.Type], e.IP)
	}
	s.assumed.Tunnels = len(at)
	if cfg.L2Population {
		s.entries, s.assumed.Entries = entries(v, cfg, at, flows)
	}
	return s
}

var errOffline = errors.New("no server is asked")

// Call implements agent.Broker.
func (s *server) Call(ctx context.Context, t messaging.Target, method string, args, result any) error {
	switch method {
	case "has_alive_neutron_server", "bulk_pull", "get_networks", "get_dvr_mac_address_list", "get_subnet_for_dvr":
		if s.real == nil {
			return errOffline
		}
		err := s.real.Call(ctx, t, method, args, result)
		var refused *messaging.RemoteError
		if err != nil && ctx.Err() == nil && (!errors.As(err, &refused) || method != "has_alive_neutron_server" && method != "get_networks") {
			s.note(err)
		}
		return err
	}
	all, _ := args.(map[string]any)
	list := func(key string) []string {
		ids, _ := all[key].([]string)
		return ids
	}
	switch method {
	case "tunnel_sync":
		kind, _ := all["tunnel_type"].(string)
		tunnels := []neutron.Tunnel{}
		for _, ip := range s.tunnels[kind] {
			tunnels = append(tunnels, neutron.Tunnel{IP: ip})
		}
		return answer(map[string]any{"tunnels": tunnels}, result)
	case "update_device_list":
		up, down := list("devices_up"), list("devices_down")
		if len(up)+len(down) == 0 { // asked to find out the server's release; an older one has the same objects
			return messaging.NewUnsupportedVersion(t.Version, method)
		}
		s.reportPorts(ctx, up, down)
		return answer(neutron.DeviceResult{Up: up}, result)
	case "update_device_down":
		device, _ := all["device"].(string)
		s.reportPorts(ctx, nil, []string{device})
		return answer(neutron.DeviceStatus{Device: device, Exists: true}, result)
	case "update_subport_bindings":
		subPorts, _ := all["subports"].([]neutron.SubPort)
		return s.bind(ctx, subPorts, result)
	case "update_trunk_status", "set_tap_service_status", "set_tap_flow_status", "sync_tap_resources":
		return nil // the server would send taps again; a plan takes those that the agent remembers
	}
	return fmt.Errorf("a plan does not ask the server %s", method)
}

// bind answers as if the sub-ports of trunks had been bound to this host.
func (s *server) bind(ctx context.Context, subPorts []neutron.SubPort, result any) error {
	trunks, ids := map[string]string{}, []string{}
	for _, sub := range subPorts {
		trunks[sub.PortID] = sub.TrunkID
		ids = append(ids, sub.PortID)
	}
	// Any server that we know has this version, and only two fields are read.
	found, err := neutron.NewServer(s, "").BulkPull(ctx, neutron.Versions{neutron.KindPort: "1.5"}, neutron.KindPort, map[string]any{"id": ids})
	if err != nil {
		return err
	}
	ports, err := neutron.DecodeAll[neutron.BoundSubPort](neutron.KindPort, found)
	bound := map[string][]neutron.BoundSubPort{}
	for _, p := range ports {
		bound[trunks[p.ID]] = append(bound[trunks[p.ID]], p)
	}
	return errors.Join(err, answer(bound, result))
}

func answer(v, result any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, result)
}

// reportPorts takes the status of ports, upon which the server tells the agent who else is on their networks.
func (s *server) reportPorts(ctx context.Context, up, down []string) {
	s.mu.Lock()
	for _, id := range up {
		s.up[id] = true
		delete(s.down, id)
	}
	for _, id := range down {
		s.down[id] = true
		delete(s.up, id)
	}
	take := s.take
	s.mu.Unlock()
	for _, add := range s.entries {
		args, err := json.Marshal(add)
		if err == nil && take != nil {
			_, err = take(ctx, &messaging.Message{Topic: neutron.TopicL2Population, Method: "add_fdb_entries", Args: args})
		}
		if err != nil {
			s.note(err)
		}
	}
}

func (s *server) note(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed[err.Error()] = true
}

// failures are the questions that the server did not answer, or refused.
func (s *server) failures() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.failed))
}

func (s *server) reported() Reported {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Reported{len(s.up), len(s.down)}
}

// Serve implements agent.Broker.
func (s *server) Serve(_ context.Context, service messaging.Service) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.take = service.Handler
	return nil
}

// RemoveLeftovers implements agent.Broker.
func (s *server) RemoveLeftovers(context.Context, []string, string) ([]string, error) {
	return nil, nil
}

// Close implements agent.Broker.
func (s *server) Close(ctx context.Context) error {
	if s.real == nil {
		return nil
	}
	return s.real.Close(ctx)
}

// zones stands in for connection tracking.
type zones struct {
	mu      sync.Mutex
	emptied map[uint16]bool
}

func (z *zones) FlushZone(_ context.Context, zone uint16) error {
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.emptied == nil {
		z.emptied = map[uint16]bool{}
	}
	z.emptied[zone] = true
	return nil
}

func (z *zones) Marked(context.Context, uint16) ([]conntrack.Connection, error) { return nil, nil }

func (z *zones) Release(context.Context, uint16, []conntrack.Connection) (int, error) {
	return 0, nil
}

func (z *zones) sorted() []uint16 { return slices.Sorted(maps.Keys(z.emptied)) }
