// SPDX-License-Identifier: Apache-2.0

package neutron

import "context"

// DVRAddresses lists the router addresses of all hosts that have one.
func (s *Server) DVRAddresses(ctx context.Context) ([]DVRMAC, error) {
	var all []DVRMAC
	err := s.plugin(ctx, "1.0", "get_dvr_mac_address_list", struct{}{}, &all)
	return all, err
}

// DVRAddress returns this host's router address. The server makes one if there is none, and tells all hosts.
func (s *Server) DVRAddress(ctx context.Context) (MAC, error) {
	var m DVRMAC
	err := s.plugin(ctx, "1.0", "get_dvr_mac_address_by_host", map[string]any{"host": s.host}, &m)
	return m.MAC, err
}

// DVRGateway returns the address of the port that has a subnet's gateway address; none if there is no such port.
func (s *Server) DVRGateway(ctx context.Context, subnet string) (MAC, error) {
	var info struct {
		MAC MAC `json:"gateway_mac"`
	}
	err := s.plugin(ctx, "1.0", "get_subnet_for_dvr", map[string]any{"subnet": subnet, "fixed_ips": nil}, &info)
	return info.MAC, err
}
