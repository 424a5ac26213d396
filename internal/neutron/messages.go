// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/patchbay-sdn/patchbay/internal/rawjson"
)

// Event says what happened to the objects of a [Push]. The core plugin only ever says updated, also for what is new;
// services such as QoS and trunk tell created from updated.
type Event string

// The events of a push.
const (
	Created Event = "created"
	Updated Event = "updated"
	Deleted Event = "deleted"
)

// Push is news about objects of one kind. Deleted objects carry nothing but their id. The objects are not decoded yet:
// most pushes are about ports of other hosts, and the receiver drops those after a glance.
type Push struct {
	Kind    Kind
	Event   Event
	Objects []Primitive
}

// TunnelUpdate says that a host serves tunnels of a type at an address.
type TunnelUpdate struct {
	IP   netip.Addr `json:"tunnel_ip"`
	Type string     `json:"tunnel_type"`
}

// TunnelDelete says that it does so no more.
type TunnelDelete struct {
	IP   netip.Addr `json:"tunnel_ip"`
	Type string     `json:"tunnel_type"`
}

// DVRUpdate lists the addresses that distributed routers use, one a host.
type DVRUpdate struct {
	MACs []DVRMAC `json:"dvr_macs"`
}

// DVRMAC is the address that a host's distributed routers send from.
type DVRMAC struct {
	Host string `json:"host"`
	MAC  MAC    `json:"mac_address"`
}

// FDBAdd brings forwarding entries: behind which tunnel endpoint an address is found.
type FDBAdd struct {
	Networks map[string]FDBNetwork `json:"fdb_entries"` // by network id
}

// FDBRemove takes forwarding entries away.
type FDBRemove struct {
	Networks map[string]FDBNetwork `json:"fdb_entries"`
}

// FDBNetwork holds the entries of one segment of a network, by tunnel endpoint.
type FDBNetwork struct {
	NetworkType    string                    `json:"network_type"`
	SegmentationID *int                      `json:"segment_id"`
	Ports          map[netip.Addr][]FDBEntry `json:"ports"`
}

// FDBEntry is one address pair behind an endpoint.
type FDBEntry struct {
	MAC MAC
	IP  netip.Addr
}

// Flood says whether the entry stands for "send broadcasts here", which Neutron writes as the all-zero pair.
func (e FDBEntry) Flood() bool { return e == FDBEntry{IP: netip.IPv4Unspecified()} }

// MarshalJSON implements json.Marshaler.
func (e FDBEntry) MarshalJSON() ([]byte, error) {
	return json.Marshal([2]string{e.MAC.String(), e.IP.String()})
}

// UnmarshalJSON implements json.Unmarshaler. The wire form is a list of two strings.
func (e *FDBEntry) UnmarshalJSON(b []byte) error {
	var pair []string
	if err := json.Unmarshal(b, &pair); err != nil {
		return err
	}
	if len(pair) != 2 {
		return fmt.Errorf("forwarding entry of %d parts, expected address and IP", len(pair))
	}
	mac, err := ParseMAC(pair[0])
	if err != nil {
		return err
	}
	ip, err := netip.ParseAddr(pair[1])
	if err != nil {
		return err
	}
	*e = FDBEntry{mac, ip}
	return nil
}

// FDBChange moves addresses: IPs of known MACs changed.
type FDBChange struct {
	Networks map[string]map[netip.Addr]IPChange // by network id and tunnel endpoint
}

// IPChange is what the entries behind an endpoint were and what they are.
type IPChange struct {
	Before []FDBEntry `json:"before"`
	After  []FDBEntry `json:"after"`
}

// DecodeMessage reads the arguments of a cast that arrived on one of an agent's topics into *Push, *TunnelUpdate,
// *TunnelDelete, *DVRUpdate, *FDBAdd, *FDBRemove or *FDBChange. The server also sends methods for agents of earlier
// designs; those give nil and no error.
func DecodeMessage(topic, method string, args []byte) (any, error) {
	if strings.HasPrefix(topic, "neutron-vo-") && method == "push" {
		push, err := decodePush(args)
		if err == nil && !strings.HasPrefix(topic, "neutron-vo-"+string(push.Kind)+"-") {
			return nil, fmt.Errorf("decoding push: %q objects under topic %s", push.Kind, topic)
		}
		return push, err
	}
	var msg any
	switch method {
	case "tunnel_update":
		msg = &TunnelUpdate{}
	case "tunnel_delete":
		msg = &TunnelDelete{}
	case "dvr_mac_address_update":
		msg = &DVRUpdate{}
	case "add_fdb_entries":
		msg = &FDBAdd{}
	case "remove_fdb_entries":
		msg = &FDBRemove{}
	case "update_fdb_entries":
		return decodeFDBChange(args)
	default:
		return nil, nil
	}
	if err := json.Unmarshal(args, msg); err != nil {
		return nil, fmt.Errorf("decoding %s: %w", method, err)
	}
	return msg, nil
}

// decodePush takes a push apart without decoding the objects in it. They are only delimited: an object that is not valid
// JSON is found out when it is decoded, if ever.
func decodePush(args []byte) (*Push, error) {
	push := &Push{Objects: make([]Primitive, 0, 1)}
	n, err := rawjson.Members(args, func(key, rest []byte) (int, error) {
		switch string(key) {
		case "event_type":
			s, n, err := rawjson.Text(rest)
			push.Event = Event(s)
			return n, err
		case "resource_list":
			return rawjson.Elements(rest, func(rest []byte) (int, error) {
				p, n, err := primitive(rest)
				push.Objects = append(push.Objects, p)
				return n, err
			})
		}
		return rawjson.Skip(rest)
	})
	if err == nil && !rawjson.Blank(args[n:]) {
		err = rawjson.ErrSyntax
	}
	if err != nil {
		return nil, fmt.Errorf("decoding push: %w", err)
	}
	if len(push.Objects) == 0 {
		return nil, errors.New("decoding push: no objects in it")
	}
	switch push.Event {
	case Created, Updated, Deleted:
	default:
		return nil, fmt.Errorf("decoding push: unknown event %q", push.Event)
	}
	push.Kind = Kind(push.Objects[0].Name)
	for _, o := range push.Objects {
		if o.Name != string(push.Kind) {
			return nil, fmt.Errorf("decoding push: %q and %q objects in one message", push.Kind, o.Name)
		}
	}
	return push, nil
}

// primitive reads the wire form of the object that b begins with, and tells its length.
func primitive(b []byte) (p Primitive, n int, err error) {
	n, err = rawjson.Members(b, func(key, rest []byte) (n int, err error) {
		switch string(key) {
		case "versioned_object.name":
			p.Name, n, err = rawjson.Text(rest)
		case "versioned_object.version":
			p.Version, n, err = rawjson.Text(rest)
		case "versioned_object.data":
			n, err = rawjson.Skip(rest)
			p.Data = rest[:n]
		default:
			n, err = rawjson.Skip(rest)
		}
		return n, err
	})
	return p, n, err
}

func decodeFDBChange(args []byte) (*FDBChange, error) {
	var wire struct {
		Entries map[string]map[string]map[netip.Addr]IPChange `json:"fdb_entries"`
	}
	if err := json.Unmarshal(args, &wire); err != nil {
		return nil, fmt.Errorf("decoding update_fdb_entries: %w", err)
	}
	for action := range wire.Entries {
		if action != "chg_ip" {
			return nil, fmt.Errorf("decoding update_fdb_entries: unknown action %q", action)
		}
	}
	return &FDBChange{wire.Entries["chg_ip"]}, nil
}
