// SPDX-License-Identifier: Apache-2.0

package sim

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
	run                       func(*Server, json.RawMessage) (any, error)
}

const (
	plugin  = "q-plugin"
	reports = "q-reports-plugin"
)

// methods is the surface of Neutron 21 that layer-2 agents use.
var methods = map[string]method{
	"has_alive_neutron_server": {reports, "", "1.2", func(*Server, json.RawMessage) (any, error) { return true, nil }},
	"report_state":             {reports, "", "1.2", (*Server).reportState},
	"bulk_pull":                {plugin, "", "1.1", (*Server).bulkPull},
	"pull":                     {plugin, "", "1.1", (*Server).pull},
	"tunnel_sync":              {plugin, "", "1.9", (*Server).tunnelSync},
	"get_network_details":      {plugin, "", "1.9", (*Server).networkDetails},
	"get_device_details":       {plugin, "", "1.9", (*Server).deviceDetails},
	"get_devices_details_list": {plugin, "", "1.9", (*Server).devicesDetails},
	"get_devices_details_list_and_failed_devices": {plugin, "", "1.9", func(s *Server, args json.RawMessage) (any, error) {
		list, err := s.devicesDetails(args)
		return map[string]any{"devices": list, "failed_devices": []string{}}, err
	}},
	"update_device_up":   {plugin, "", "1.9", (*Server).deviceUp},
	"update_device_down": {plugin, "", "1.9", (*Server).deviceDown},
	"update_device_list": {plugin, "", "1.9", (*Server).deviceList},
	"get_ports_by_vnic_type_and_host": {plugin, "", "1.9", func(*Server, json.RawMessage) (any, error) {
		return []string{}, nil // there are no smart NICs here
	}},
	"get_dvr_mac_address_list":    {plugin, "", "1.1", (*Server).routerAddresses},
	"get_dvr_mac_address_by_host": {plugin, "", "1.1", (*Server).routerAddress},
	"get_subnet_for_dvr":          {plugin, "", "1.2", (*Server).routedSubnet},
	"update_trunk_status":         {"trunk", "trunk", "1.0", func(*Server, json.RawMessage) (any, error) { return nil, nil }},
	"update_subport_bindings":     {"trunk", "trunk", "1.0", func(*Server, json.RawMessage) (any, error) { return fields{}, nil }},
	"get_sg_log_info_for_port": {"logging-plugin", "logging-plugin", "1.0", func(*Server, json.RawMessage) (any, error) {
		return []string{}, nil
	}},
}

func (s *Server) handle(ctx context.Context, m *messaging.Message) (result any, err error) {
	to, ok := methods[m.Method]
	switch {
	case !ok || to.topic != m.Topic || to.namespace != m.Namespace:
		s.log("nobody serves %s on %s", m.Method, m.Topic)
		return nil, messaging.NewNoSuchMethod(m.Method)
	case !messaging.VersionServed(to.version, m.Version):
		return nil, messaging.NewUnsupportedVersion(m.Version, m.Method)
	}
	// The answer goes out after the messages that the call led to, as the real server does it.
	err = s.do(ctx, func() error {
		var err error
		result, err = to.run(s, m.Args)
		return err
	})
	if err != nil {
		s.log("%s: %v", m.Method, err)
	}
	return result, err
}

// arguments reads the arguments of a call.
func arguments[T any](args json.RawMessage) (T, error) {
	var to T
	if err := json.Unmarshal(args, &to); err != nil {
		return to, &messaging.RemoteError{Class: "TypeError", Module: "builtins", Message: err.Error()}
	}
	return to, nil
}

func (s *Server) reportState(raw json.RawMessage) (any, error) {
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
		a, status = &Agent{ID: newID(), Host: state.Host, Created: now, Started: now}, "new"
		s.agents[state.Host] = a
	case !a.Alive():
		status = "revived"
	}
	a.Type, a.Binary, a.Topic, a.Configurations = state.Type, state.Binary, state.Topic, state.Configurations
	a.Heartbeat, a.pretended = time.Now().UTC(), false
	if state.Start {
		a.Started = a.Heartbeat
	}
	if err := json.Unmarshal(a.Configurations, &a.conf); err != nil {
		return nil, fmt.Errorf("reading the configurations of %s: %w", a.Host, err)
	}
	return status, nil
}

// tunnelSync learns of a tunnel endpoint, tells all agents, and answers with all endpoints of the type.
func (s *Server) tunnelSync(raw json.RawMessage) (any, error) {
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
	for ip, host := range all {
		if host == args.Host && ip != args.IP {
			delete(all, ip) // the host has moved to another address
		}
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
	s.cast(messaging.Target{Topic: "q-agent-notifier-tunnel-update", Fanout: true, Version: "1.0"}, "tunnel_update",
		fields{"tunnel_ip": args.IP, "tunnel_type": args.Type})
	return fields{"tunnels": list}, nil
}

func (s *Server) networkDetails(raw json.RawMessage) (any, error) {
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

// device is what agents call a port.
type device struct {
	Device  string   `json:"device"`
	Devices []string `json:"devices"`
	Host    string   `json:"host"`
	Refresh bool     `json:"refresh_tunnels"`
	Up      []string `json:"devices_up"`
	Down    []string `json:"devices_down"`
}

func (s *Server) deviceDetails(raw json.RawMessage) (any, error) {
	d, err := arguments[device](raw)
	if err != nil {
		return nil, err
	}
	return s.details(d.Device, d.Host), nil
}

func (s *Server) devicesDetails(raw json.RawMessage) (any, error) {
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
func (s *Server) details(id, host string) fields {
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

func (s *Server) deviceUp(raw json.RawMessage) (any, error) {
	d, err := arguments[device](raw)
	if err == nil {
		s.up(d.Device, d.Host, d.Refresh)
	}
	return nil, err
}

func (s *Server) deviceDown(raw json.RawMessage) (any, error) {
	d, err := arguments[device](raw)
	if err != nil {
		return nil, err
	}
	return s.down(d.Device, d.Host), nil
}

func (s *Server) deviceList(raw json.RawMessage) (any, error) {
	d, err := arguments[device](raw)
	if err != nil {
		return nil, err
	}
	ups, downs := []string{}, []fields{}
	for _, id := range d.Up {
		s.up(id, d.Host, d.Refresh)
		ups = append(ups, id)
	}
	for _, id := range d.Down {
		downs = append(downs, s.down(id, d.Host))
	}
	return fields{
		"devices_up": ups, "failed_devices_up": []string{}, "devices_down": downs, "failed_devices_down": []string{},
	}, nil
}

// up hears that a host has wired a port.
func (s *Server) up(id, host string, refresh bool) {
	p := s.ports[id]
	if p == nil || p.Host() != host {
		return
	}
	if p.active().VIFType == bound && p.AdminUp {
		s.setStatus(p, active)
	}
	s.announce(p, refresh)
}

func (s *Server) down(id, host string) fields {
	p := s.ports[id]
	if p != nil && p.Host() == host {
		s.setStatus(p, down)
	}
	// A port that is bound elsewhere is said to exist, as is one that nobody knows: the real server looks no further.
	return fields{"device": id, "exists": true}
}

// setStatus changes the status of a port and tells everyone.
func (s *Server) setStatus(p *Port, status string) {
	if p.Status == status {
		return
	}
	before := p.Status
	p.Status = status
	s.touched(p)
	switch {
	case status == active:
		s.announce(p, false)
	case status == down && before != down:
		s.withdraw(p, p.active())
	}
	s.pushed("Port", p.object(s.networks[p.NetworkID]))
}
