// SPDX-License-Identifier: Apache-2.0

package parity

import (
	"encoding/json"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
)

// Idle are the calls that agents make without being moved by an event. They are not compared. By get_networks Patchbay finds an object
// that tells the server's release.
var Idle = []string{"report_state", "has_alive_neutron_server", "get_networks"}

// Essence lists what a call of an agent to the server is about, one line for each thing that it names. It leaves out the port that nobody has: Patchbay asks about it
// when a report of ports takes ten seconds, to know whether the server has its database, which no event moves it to.
func Essence(method string, arguments json.RawMessage) []string {
	var args struct {
		Up      []string            `json:"devices_up"`
		Down    []string            `json:"devices_down"`
		Refresh bool                `json:"refresh_tunnels"`
		Device  string              `json:"device"`
		Network string              `json:"network"`
		Type    string              `json:"tunnel_type"`
		Object  string              `json:"resource_type"`
		ID      string              `json:"resource_id"`
		Filter  map[string][]string `json:"filter_kwargs"`
		Trunk   string              `json:"trunk_id"`
		Status  string              `json:"status"`
		Aboard  []struct {
			ID string `json:"port_id"`
		} `json:"subports"`
	}
	_ = json.Unmarshal(arguments, &args)
	var all []string
	for _, id := range args.Up {
		all = append(all, "up="+id)
	}
	for _, id := range args.Down {
		all = append(all, "down="+id)
	}
	for _, s := range args.Aboard {
		all = append(all, "port="+s.ID)
	}
	if args.Trunk != "" {
		all = append(all, args.Trunk+" status="+args.Status)
	}
	if args.Refresh {
		all = append(all, "refresh_tunnels")
	}
	for key, values := range args.Filter {
		for _, v := range values {
			if args.Object == string(neutron.KindPort) && v == neutron.Nobody {
				return nil
			}
			all = append(all, args.Object+" "+key+"="+v)
		}
	}
	if one := args.Device + args.Network + args.Type; one != "" {
		all = append(all, one)
	}
	if args.ID != "" {
		all = append(all, args.Object+" id="+args.ID)
	}
	if len(all) == 0 && method != "update_device_list" {
		all = append(all, "")
	}
	return all
}
