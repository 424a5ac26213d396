// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/rawjson"
	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// Caller makes one RPC call and decodes its result. *messaging.Client is one.
type Caller interface {
	Call(ctx context.Context, target messaging.Target, method string, args, result any) error
}

// Server is neutron-server as an agent on one host calls it. It keeps no state; concurrent use is fine.
//
// Every call is sent with the lowest interface version that has the method, so that any server from release 17 on
// takes it.
type Server struct {
	caller Caller
	host   string
}

// NewServer returns the server as seen from the host with the given name (the option DEFAULT.host).
func NewServer(c Caller, host string) *Server { return &Server{caller: c, host: host} }

// agentID is how the agent names itself in calls about devices.
func (s *Server) agentID() string { return "ovs-agent-" + s.host }

func (s *Server) plugin(ctx context.Context, version, method string, args, result any) error {
	return s.caller.Call(ctx, messaging.Target{Topic: topicPlugin, Version: version}, method, args, result)
}

// Alive asks whether a server is there and, from release 23 on, whether it reaches its database.
func (s *Server) Alive(ctx context.Context) (bool, error) { return s.alive(ctx, "1.2") }

func (s *Server) alive(ctx context.Context, version string) (bool, error) {
	var ok bool
	target := messaging.Target{Topic: topicReports, Version: version}
	err := s.caller.Call(ctx, target, "has_alive_neutron_server", struct{}{}, &ok)
	return ok, err
}

// ReportState tells the server about this agent, as of the given time, and returns what the server makes of it.
// An empty answer means that the server ignored the report because the time lies before its own start: the clocks
// of the two hosts disagree.
func (s *Server) ReportState(ctx context.Context, state AgentState, now time.Time) (AgentStatus, error) {
	state.UUID = newUUID()
	args := map[string]any{
		"agent_state": map[string]any{"agent_state": state},
		"time":        now.UTC().Format("2006-01-02T15:04:05.000000"),
	}
	var status *AgentStatus
	target := messaging.Target{Topic: topicReports, Version: "1.2"}
	if err := s.caller.Call(ctx, target, "report_state", args, &status); err != nil || status == nil {
		return "", err
	}
	return *status, nil
}

// BulkPull fetches the objects of a kind that match the filter, such as {"id": [...]}.
func (s *Server) BulkPull(ctx context.Context, v Versions, kind Kind, filter map[string]any) ([]Primitive, error) {
	version, ok := v[kind]
	if !ok {
		return nil, fmt.Errorf("the server has no objects of kind %s", kind)
	}
	return s.bulkPull(ctx, kind, version, filter)
}

// ownVersion asks for objects in the version that the server has them in.
const ownVersion = ""

func (s *Server) bulkPull(ctx context.Context, kind Kind, version string, filter map[string]any) ([]Primitive, error) {
	args := map[string]any{"resource_type": kind, "version": version, "filter_kwargs": filter}
	if version == ownVersion {
		args["version"] = nil
	}
	var objects primitives
	err := s.plugin(ctx, "1.1", "bulk_pull", args, &objects)
	return objects, err
}

// primitives is an answer with many objects. The members of a large group are tens of megabytes: they are not copied, but
// point into the reply, which nobody writes to.
type primitives []Primitive

// UnmarshalJSON implements json.Unmarshaler.
func (l *primitives) UnmarshalJSON(b []byte) error {
	*l = nil
	if string(b) == "null" {
		return nil
	}
	_, err := rawjson.Elements(b, func(rest []byte) (int, error) {
		p, n, err := primitive(rest)
		*l = append(*l, p)
		return n, err
	})
	return err
}

// Pull fetches one object by id. It returns nil when the server has none.
func (s *Server) Pull(ctx context.Context, v Versions, kind Kind, id string) (*Primitive, error) {
	version, ok := v[kind]
	if !ok {
		return nil, fmt.Errorf("the server has no objects of kind %s", kind)
	}
	var object *Primitive
	err := s.plugin(ctx, "1.1", "pull", map[string]any{
		"resource_type": kind, "version": version, "resource_id": id,
	}, &object)
	return object, err
}

// DeviceUpdate says which ports of this host went up and down.
type DeviceUpdate struct {
	Up, Down []string // port ids
	// RefreshTunnels asks the server to send this host all forwarding entries of the networks of Up again.
	RefreshTunnels bool
}

// DeviceResult is what the server made of a [DeviceUpdate].
type DeviceResult struct {
	Up         []string       `json:"devices_up"`
	FailedUp   []string       `json:"failed_devices_up"`
	Down       []DeviceStatus `json:"devices_down"`
	FailedDown []string       `json:"failed_devices_down"`
}

// DeviceStatus says whether the server knows a port that was reported down.
type DeviceStatus struct {
	Device string `json:"device"`
	Exists bool   `json:"exists"`
}

// UpdateDevices reports ports up and down in one call.
func (s *Server) UpdateDevices(ctx context.Context, u DeviceUpdate) (DeviceResult, error) {
	return s.updateDevices(ctx, "1.8", u)
}

func (s *Server) updateDevices(ctx context.Context, version string, u DeviceUpdate) (DeviceResult, error) {
	var r DeviceResult
	err := s.plugin(ctx, version, "update_device_list", map[string]any{
		"devices_up": orEmpty(u.Up), "devices_down": orEmpty(u.Down),
		"agent_id": s.agentID(), "host": s.host, "refresh_tunnels": u.RefreshTunnels,
	}, &r)
	return r, err
}

// DeviceDown reports one port down, as for a port that the administrator switched off.
func (s *Server) DeviceDown(ctx context.Context, port string) (DeviceStatus, error) {
	var r DeviceStatus
	err := s.plugin(ctx, "1.0", "update_device_down", map[string]any{
		"device": port, "agent_id": s.agentID(), "host": s.host,
	}, &r)
	return r, err
}

// NetworkDetails is the API's view of a network, with the segment that providers see.
type NetworkDetails struct {
	ID              string `json:"id"`
	MTU             int    `json:"mtu"`
	NetworkType     string `json:"provider:network_type"`
	PhysicalNetwork string `json:"provider:physical_network"`
	SegmentationID  *int   `json:"provider:segmentation_id"`
	// Segments is set instead of the three above when a network has several.
	Segments []struct {
		NetworkType     string `json:"provider:network_type"`
		PhysicalNetwork string `json:"provider:physical_network"`
		SegmentationID  *int   `json:"provider:segmentation_id"`
	} `json:"segments"`
}

// NetworkDetails fetches them.
func (s *Server) NetworkDetails(ctx context.Context, network string) (NetworkDetails, error) {
	var r NetworkDetails
	err := s.plugin(ctx, "1.6", "get_network_details", map[string]any{
		"network": network, "agent_id": s.agentID(), "host": s.host,
	}, &r)
	return r, err
}

// Tunnel is an endpoint that serves tunnels of one type.
type Tunnel struct {
	Host string     `json:"host"`
	IP   netip.Addr `json:"ip_address"`
}

// TunnelSync announces this host's endpoint for a tunnel type and returns everyone's.
func (s *Server) TunnelSync(ctx context.Context, ip netip.Addr, tunnelType string) ([]Tunnel, error) {
	var r struct {
		Tunnels []Tunnel `json:"tunnels"`
	}
	err := s.plugin(ctx, "1.4", "tunnel_sync", map[string]any{
		"tunnel_ip": ip, "tunnel_type": tunnelType, "host": s.host,
	}, &r)
	return r.Tunnels, err
}

// orEmpty keeps null out of arguments that Python iterates over.
func orEmpty(s []string) []string {
	if s == nil {
		return []string{}
	}
	return s
}

// DecodeAll reads objects of one kind. An object that cannot be read does not hide the others: it is left out, and
// the errors come back joined.
func DecodeAll[T any](kind Kind, objects []Primitive) ([]T, error) {
	var errs []error
	out := make([]T, 0, len(objects))
	for _, o := range objects {
		var v T
		if err := o.Decode(kind, &v); err != nil {
			errs = append(errs, err)
			continue
		}
		out = append(out, v)
	}
	return out, errors.Join(errs...)
}
