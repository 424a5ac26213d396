// SPDX-License-Identifier: Apache-2.0

package region

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// method is a method of the RPC interface, and the version of the endpoint that has it. It runs with s.mu held.
type method struct {
	topic, namespace, version string
	run                       func(*Region, json.RawMessage) (any, error)
}

const (
	plugin  = "q-plugin"
	reports = "q-reports-plugin"
)

// methods is the surface of Neutron that layer-2 agents use, in the versions of release 21.
var methods = map[string]method{
	"has_alive_neutron_server": {reports, "", "1.2", func(*Region, json.RawMessage) (any, error) { return true, nil }},
	"report_state":             {reports, "", "1.2", (*Region).reportState},
	"bulk_pull":                {plugin, "", "1.1", (*Region).bulkPull},
	"pull":                     {plugin, "", "1.1", (*Region).pull},
	"tunnel_sync":              {plugin, "", "1.9", (*Region).tunnelSync},
	"get_network_details":      {plugin, "", "1.9", (*Region).networkDetails},
	"get_networks":             {plugin, "", "1.7", (*Region).networkList},
	"get_device_details":       {plugin, "", "1.9", (*Region).deviceDetails},
	"get_devices_details_list": {plugin, "", "1.9", (*Region).devicesDetails},
	"get_devices_details_list_and_failed_devices": {plugin, "", "1.9", func(s *Region, args json.RawMessage) (any, error) {
		return s.devicesAndFailed(args)
	}},
	"update_device_up":   {plugin, "", "1.9", (*Region).deviceUp},
	"update_device_down": {plugin, "", "1.9", (*Region).deviceDown},
	"update_device_list": {plugin, "", "1.9", (*Region).deviceList},
	"get_ports_by_vnic_type_and_host": {plugin, "", "1.9", func(*Region, json.RawMessage) (any, error) {
		return []string{}, nil // there are no smart NICs here
	}},
	"get_dvr_mac_address_list":    {plugin, "", "1.1", (*Region).routerAddresses},
	"get_dvr_mac_address_by_host": {plugin, "", "1.1", (*Region).routerAddress},
	"get_subnet_for_dvr":          {plugin, "", "1.2", (*Region).routedSubnet},
	"update_trunk_status":         {"trunk", "trunk", "1.0", (*Region).trunkStatus},
	"update_subport_bindings":     {"trunk", "trunk", "1.0", (*Region).subPortBindings},
	"get_sg_log_info_for_port": {"logging-plugin", "logging-plugin", "1.0", func(*Region, json.RawMessage) (any, error) {
		return []string{}, nil
	}},
}

// Topics are those that agents call.
func Topics() []string { return []string{plugin, reports, "trunk", "logging-plugin"} }

// Handle answers a call. It may return [ErrLost].
func (s *Region) Handle(ctx context.Context, m *messaging.Message) (result any, err error) {
	to, ok := methods[m.Method]
	switch {
	case !ok || to.topic != m.Topic || to.namespace != m.Namespace:
		s.log("nobody serves %s on %s", m.Method, m.Topic)
		return nil, messaging.NewNoSuchMethod(m.Method)
	case !messaging.VersionServed(s.served(to.topic, to.version), m.Version):
		return nil, messaging.NewUnsupportedVersion(m.Version, m.Method)
	}
	question := m.Method
	if m.Topic != reports { // whose calls have the time in them
		question += string(m.Args)
	}
	if err := s.chance.before(ctx, question); err != nil {
		s.log("%s: %v", m.Method, err)
		return nil, err
	}
	// The answer goes out after the casts that the call led to, and before or after the pushes, as with the real server.
	err = s.doing(ctx, false, func() error {
		var err error
		result, err = to.run(s, m.Args)
		return err
	})
	if err != nil {
		s.log("%s: %v", m.Method, err)
		return nil, err
	}
	return result, s.chance.after(ctx, question)
}

// arguments reads the arguments of a call.
func arguments[T any](args json.RawMessage) (T, error) {
	var to T
	if err := json.Unmarshal(args, &to); err != nil {
		return to, &messaging.RemoteError{Class: "TypeError", Module: "builtins", Message: err.Error()}
	}
	return to, nil
}

func (s *Region) reportState(raw json.RawMessage) (any, error) {
	args, err := arguments[struct {
		Time  string `json:"time"`
		State struct {
			State struct {
				Binary         string          `json:"binary"`
				Host           string          `json:"host"`
				Topic          string          `json:"topic"`
				Type           string          `json:"agent_type"`
				Configurations json.RawMessage `json:"configurations"`
				Start          bool            `json:"start_flag"`
				// Versions are kept when a report has none.
				Versions map[string]string `json:"resource_versions"`
			} `json:"agent_state"`
		} `json:"agent_state"`
	}](raw)
	if err != nil {
		return nil, err
	}
	at, err := time.Parse("2006-01-02T15:04:05", args.Time)
	if err != nil {
		return nil, fmt.Errorf("reading the time of a report: %w", err)
	}
	if at.Before(s.started) {
		return nil, nil // from before the server's time
	}
	state := args.State.State
	a, status := s.agents[state.Host], "alive"
	switch {
	case a == nil:
		now := time.Now().UTC()
		a, status = &Agent{ID: s.newID(), Host: state.Host, Created: now, Started: now}, "new"
		s.agents[state.Host] = a
	case !a.Alive():
		status = "revived"
	}
	a.Type, a.Binary, a.Topic, a.Configurations = state.Type, state.Binary, state.Topic, state.Configurations
	a.Heartbeat, a.pretended = time.Now().UTC(), false
	if len(state.Versions) > 0 {
		a.versions = state.Versions
	}
	if state.Start {
		a.Started = a.Heartbeat
	}
	if err := json.Unmarshal(a.Configurations, &a.conf); err != nil {
		return nil, fmt.Errorf("reading the configurations of %s: %w", a.Host, err)
	}
	return status, nil
}

// tunnelSync learns of a tunnel endpoint, tells all agents, and answers with all endpoints of the type.
func (s *Region) tunnelSync(raw json.RawMessage) (any, error) {
	args, err := arguments[struct {
		IP   string `json:"tunnel_ip"`
		Type string `json:"tunnel_type"`
		Host string `json:"host"`
	}](raw)
	if err != nil {
		return nil, err
	}
	if s.tunnels[args.Type] == nil {
		s.tunnels[args.Type] = map[string]string{}
	}
	all := s.tunnels[args.Type]
	had := ""
	for ip, host := range all {
		if host == args.Host {
			had = ip
		}
	}
	switch {
	case all[args.IP] != "" && all[args.IP] != args.Host:
		// Another host's address: what that host and this one had is forgotten, and nobody is told, since another may have it.
		delete(all, had)
	case had != "" && had != args.IP:
		s.castNow("", messaging.Target{Topic: "q-agent-notifier-tunnel-delete", Fanout: true, Version: "1.0"}, "tunnel_delete",
			fields{"tunnel_ip": had, "tunnel_type": args.Type})
		delete(all, had)
	}
	all[args.IP] = args.Host
	ips := make([]string, 0, len(all))
	for ip := range all {
		ips = append(ips, ip)
	}
	slices.SortFunc(ips, func(a, b string) int {
		x, _ := netip.ParseAddr(a)
		y, _ := netip.ParseAddr(b)
		return x.Compare(y)
	})
	list := []fields{}
	for _, ip := range ips {
		f := fields{"ip_address": ip, "host": all[ip]}
		switch args.Type {
		case "vxlan":
			f["udp_port"] = 4789
		}
		list = append(list, f)
	}
	s.castNow("", messaging.Target{Topic: "q-agent-notifier-tunnel-update", Fanout: true, Version: "1.0"}, "tunnel_update",
		fields{"tunnel_ip": args.IP, "tunnel_type": args.Type})
	return fields{"tunnels": list}, nil
}

func (s *Region) networkDetails(raw json.RawMessage) (any, error) {
	args, err := arguments[struct {
		Network string `json:"network"`
	}](raw)
	if err != nil {
		return nil, err
	}
	n := s.networks[args.Network]
	if n == nil {
		return nil, &messaging.RemoteError{
			Class: "NetworkNotFound", Module: "neutron_lib.exceptions", Message: "Network " + args.Network + " could not be found.",
			Args: json.RawMessage(`[]`), Kwargs: json.RawMessage(`{"net_id": "` + args.Network + `"}`),
		}
	}
	return n.attributes(), nil
}

// networkList is what drivers of DHCP agents ask for: networks by their attributes, with the fields they want.
func (s *Region) networkList(raw json.RawMessage) (any, error) {
	args, err := arguments[struct {
		Filters map[string][]any `json:"filters"`
		Fields  []string         `json:"fields"`
	}](raw)
	if err != nil {
		return nil, err
	}
	list := []fields{}
	for _, id := range sorted(s.networks) {
		n := s.networks[id]
		if values, ok := args.Filters["router:external"]; ok && !slices.Contains(values, any(n.External)) {
			continue // most are none: their attributes are not collected
		}
		have, wanted := n.attributes(), fields{}
		passes := true
		for key, values := range args.Filters {
			passes = passes && slices.Contains(values, have[key])
		}
		if !passes {
			continue
		}
		for _, key := range args.Fields {
			if v, ok := have[key]; ok {
				wanted[key] = v
			}
		}
		list = append(list, wanted)
	}
	return list, nil
}

// device is what agents call a port.
type device struct {
	Device  string   `json:"device"`
	Devices []string `json:"devices"`
	Host    string   `json:"host"`
	Refresh bool     `json:"refresh_tunnels"`
	Up      []string `json:"devices_up"`
	Down    []string `json:"devices_down"`
}

func (s *Region) deviceDetails(raw json.RawMessage) (any, error) {
	d, err := arguments[device](raw)
	if err != nil {
		return nil, err
	}
	return s.details(d.Device, d.Host), nil
}

func (s *Region) devicesDetails(raw json.RawMessage) (any, error) {
	d, err := arguments[device](raw)
	if err != nil {
		return nil, err
	}
	list := []fields{}
	for _, id := range d.Devices {
		list = append(list, s.details(id, d.Host))
	}
	return list, nil
}

// details is what agents of earlier designs ask for before they wire a port.
func (s *Region) details(id, host string) fields {
	p := s.ports[id]
	if p == nil || p.active().Segment == nil {
		return fields{"device": id}
	}
	if strings.HasPrefix(p.DeviceOwner, "compute:") && p.Host() != host {
		return fields{"device": id, "no_active_binding": true}
	}
	n, seg := s.networks[p.NetworkID], p.active().Segment
	f := fields{
		"device": id, "port_id": p.ID, "network_id": p.NetworkID, "mac_address": p.MAC, "admin_state_up": p.AdminUp,
		"network_type": seg.NetworkType, "segmentation_id": nil, "physical_network": nil, "mtu": n.MTU,
		"fixed_ips": addressList(p.FixedIPs), "device_owner": p.DeviceOwner, "allowed_address_pairs": pairList(p.Pairs),
		"port_security_enabled": p.PortSecurity, "qos_policy_id": nil, "network_qos_policy_id": nil, "profile": fields{},
		"propagate_uplink_status": false,
	}
	if seg.SegmentationID != 0 {
		f["segmentation_id"] = seg.SegmentationID
	}
	f.optional("physical_network", seg.PhysicalNetwork)
	if status := map[bool]string{true: "BUILD", false: down}[p.AdminUp]; p.Host() == host {
		s.setStatus(p, status)
	}
	return f
}

func (s *Region) deviceUp(raw json.RawMessage) (any, error) {
	d, err := arguments[device](raw)
	if err != nil {
		return nil, err
	}
	return nil, s.up(d.Device, d.Host, d.Refresh)
}

func (s *Region) deviceDown(raw json.RawMessage) (any, error) {
	d, err := arguments[device](raw)
	if err != nil {
		return nil, err
	}
	return s.down(d.Device, d.Host)
}

// deviceList does what it can: a port that cannot be written is named, and the others are done.
func (s *Region) deviceList(raw json.RawMessage) (any, error) {
	d, err := arguments[device](raw)
	if err != nil {
		return nil, err
	}
	ups, downs, failedUp, failedDown := []string{}, []fields{}, []string{}, []string{}
	for _, id := range d.Up {
		if s.up(id, d.Host, d.Refresh) != nil {
			failedUp = append(failedUp, id)
		} else {
			ups = append(ups, id)
		}
	}
	for _, id := range d.Down {
		if f, err := s.down(id, d.Host); err != nil {
			failedDown = append(failedDown, id)
		} else {
			downs = append(downs, f)
		}
	}
	return fields{"devices_up": ups, "failed_devices_up": failedUp, "devices_down": downs, "failed_devices_down": failedDown}, nil
}

func (s *Region) devicesAndFailed(raw json.RawMessage) (any, error) {
	d, err := arguments[device](raw)
	if err != nil {
		return nil, err
	}
	list, failed := []fields{}, []string{}
	for _, id := range d.Devices {
		if s.chance.device("details " + id) {
			failed = append(failed, id)
		} else {
			list = append(list, s.details(id, d.Host))
		}
	}
	return fields{"devices": list, "failed_devices": failed}, nil
}
