// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// TopicTap is what agents listen on for messages of the server's tap-as-a-service plugin.
const TopicTap = "n-taas_agent"

// States of tap services and tap flows. A server deletes one that it wants deleted when it is told that it is inactive.
const (
	TapActive   = "ACTIVE"
	TapError    = "ERROR"
	TapInactive = "INACTIVE"
)

// TapService is a port that copies of packets go to.
type TapService struct {
	ID     string `json:"id"`
	Status string `json:"status"`
}

// TapFlow says that packets of a port are copied to a tap service.
type TapFlow struct {
	ID        string `json:"id"`
	Service   string `json:"tap_service_id"`
	Direction string `json:"direction"` // IN, OUT or BOTH, as seen by the VM
	Status    string `json:"status"`
}

// TapMirror says that packets of a port are copied into tunnels.
type TapMirror struct {
	ID         string              `json:"id"`
	Remote     string              `json:"remote_ip"`
	Type       string              `json:"mirror_type"` // gre or erspanv1
	Directions map[string]TunnelID `json:"directions"`  // ids of tunnels by IN, OUT or BOTH
}

// TunnelID is a number that clients of the API may write as text.
type TunnelID uint32

// UnmarshalJSON implements json.Unmarshaler.
func (t *TunnelID) UnmarshalJSON(data []byte) error {
	n, err := strconv.ParseUint(strings.Trim(string(data), `"`), 10, 32)
	*t = TunnelID(n)
	return err
}

// TapPort is a port as messages about taps have it.
type TapPort struct {
	ID      string     `json:"id"`
	Host    string     `json:"binding:host_id"`
	VNIC    string     `json:"binding:vnic_type"`
	Details TapDetails `json:"binding:vif_details"`
}

// TapDetails says how a port is plugged in.
type TapDetails struct {
	Hybrid bool `json:"ovs_hybrid_plug"` // behind a Linux bridge of its own
}

// UnmarshalJSON implements json.Unmarshaler. The details of a port that is not bound may be no object.
func (d *TapDetails) UnmarshalJSON(data []byte) error {
	type plain TapDetails
	if strings.HasPrefix(string(data), "{") {
		return json.Unmarshal(data, (*plain)(d))
	}
	return nil
}

// TapMessage is what the server says about a tap service, a tap flow or a tap mirror: one of the three is set.
type TapMessage struct {
	Deleted bool
	Host    string // of the port whose packets are copied, or of the tap service's; empty if the port is bound nowhere or gone
	Service *TapService
	Flow    *TapFlow
	Mirror  *TapMirror
	Port    TapPort
	To      TapPort // of a tap flow: that of its tap service
}

// DecodeTap reads the arguments of a cast about taps. It returns nil for other methods.
func DecodeTap(method string, args []byte) (*TapMessage, error) {
	event, kind, _ := strings.Cut(method, "_tap_")
	if event != "create" && event != "delete" {
		return nil, nil
	}
	type body struct {
		Service *TapService `json:"tap_service"`
		Flow    *TapFlow    `json:"tap_flow"`
		Mirror  *TapMirror  `json:"tap_mirror"`
		Port    *TapPort    `json:"port"`
		To      *TapPort    `json:"tap_service_port"`
	}
	var m struct {
		Host    *string `json:"host"`
		Early   *body   `json:"tap_service"` // as a server of release 21 calls it
		Service *body   `json:"tap_service_msg"`
		Flow    *body   `json:"tap_flow_msg"`
		Mirror  *body   `json:"tap_mirror_msg"`
	}
	if err := json.Unmarshal(args, &m); err != nil {
		return nil, fmt.Errorf("decoding %s: %w", method, err)
	}
	out := &TapMessage{Deleted: event == "delete"}
	var b *body
	switch kind {
	case "service":
		if b = m.Service; b == nil {
			b = m.Early
		}
	case "flow":
		b = m.Flow
	case "mirror":
		b = m.Mirror
	default:
		return nil, nil
	}
	var named bool
	if b != nil {
		switch kind {
		case "service":
			out.Service, named = b.Service, b.Service != nil && b.Service.ID != ""
		case "flow":
			out.Flow, named = b.Flow, b.Flow != nil && b.Flow.ID != "" && b.Flow.Service != ""
		case "mirror":
			out.Mirror, named = b.Mirror, b.Mirror != nil && b.Mirror.ID != ""
		}
	}
	if !named {
		return nil, fmt.Errorf("decoding %s: it names no tap %s", method, kind)
	}
	if m.Host != nil {
		out.Host = *m.Host
	}
	if b.Port != nil {
		out.Port = *b.Port
	}
	if b.To != nil {
		out.To = *b.To
	}
	return out, nil
}

// SyncTaps has the server send all tap services whose ports are on this host, and their tap flows, once more: those that are active. When it
// returns they are sent. It is a call and no cast, so that the end is known.
func (s *Server) SyncTaps(ctx context.Context) error {
	return s.tap(ctx, "sync_tap_resources", map[string]any{"sync_tap_res": map[string]any{"host_id": s.host}, "host": s.host})
}

// TapServiceStatus reports how a tap service is.
func (s *Server) TapServiceStatus(ctx context.Context, id, status string) error {
	return s.tap(ctx, "set_tap_service_status", s.tapStatus(id, status))
}

// TapFlowStatus reports how a tap flow is.
func (s *Server) TapFlowStatus(ctx context.Context, id, status string) error {
	return s.tap(ctx, "set_tap_flow_status", s.tapStatus(id, status))
}

func (s *Server) tapStatus(id, status string) map[string]any {
	return map[string]any{"msg": map[string]any{"id": id}, "status": status, "host": s.host}
}

func (s *Server) tap(ctx context.Context, method string, args map[string]any) error {
	return s.caller.Call(ctx, messaging.Target{Topic: topicTap, Version: "1.0"}, method, args, nil)
}

// IsTapGone says whether a report failed because the server has no such tap service or tap flow.
func IsTapGone(err error) bool {
	return errors.Is(err, messaging.Class("TapServiceNotFound")) || errors.Is(err, messaging.Class("TapFlowNotFound"))
}
