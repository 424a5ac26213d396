// SPDX-License-Identifier: Apache-2.0

package dvr

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/world"
	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// server answers calls: with text, or an error.
type server map[string]any

func (s server) Call(_ context.Context, _ messaging.Target, method string, _, result any) error {
	if err, ok := s[method].(error); ok {
		return err
	}
	return json.Unmarshal([]byte(s[method].(string)), result)
}

// TestAskingForAddresses: the list names this host, or the server is asked to make it an address; without one the question has failed.
func TestAskingForAddresses(t *testing.T) {
	const list, own = "get_dvr_mac_address_list", "get_dvr_mac_address_by_host"
	no := errors.New("no")
	entry := func(host, name string) string { return fmt.Sprintf(`{"host":%q,"mac_address":%q}`, host, macOf(name)) }
	for name, c := range map[string]struct {
		server server
		hosts  []string
		err    error
	}{
		"named":        {server{list: "[" + entry("hv2", "you") + "," + entry("hv1", "me") + "]", own: no}, []string{"hv2", "hv1"}, nil},
		"not named":    {server{list: "[" + entry("hv2", "you") + "]", own: entry("hv1", "me")}, []string{"hv2", "hv1"}, nil},
		"nobody is":    {server{list: "[]", own: entry("hv1", "me")}, []string{"hv1"}, nil},
		"no answer":    {server{list: no, own: entry("hv1", "me")}, nil, no},
		"no address":   {server{list: "[]", own: no}, []string{"hv1"}, no},
		"an empty one": {server{list: "[]", own: `{"host":"hv1","mac_address":"00:00:00:00:00:00"}`}, []string{"hv1"}, errNoAddress},
	} {
		c2 := newCloud(t)
		c2.start()
		calls := c2.r.Calls()
		result, err := calls[0].Run(t.Context(), neutron.NewServer(c.server, "hv1"))
		var hosts []string
		for _, m := range result.([]neutron.DVRMAC) {
			hosts = append(hosts, m.Host)
		}
		if len(calls) != 1 || !slices.Equal(hosts, c.hosts) || !errors.Is(err, c.err) || (err == nil) != (c.err == nil) {
			t.Errorf("%s: %v, %v", name, result, err)
		}
	}
	if (&routing{}).Name() != "dvr" || (&routing{w: world.New(world.Config{})}).Load([]byte("7")) == nil {
		t.Error("the name, or nonsense is loaded")
	}
}

// TestAskingForGateways: of each subnet that needs it, and no other; again after doubt.
func TestAskingForGateways(t *testing.T) {
	c := newCloud(t)
	c.start("sn4", "sn5", "vm6", "gw7")
	c.macs("hv1", "me", "hv3", "her", "hv2", "you")
	c.answer("gw7", "tunnel", ownerGateway, "s3", "10.3.0.1")
	c.answer("sn4", "tunnel", ownerSNAT, "s4", "10.0.0.5")
	c.answer("sn5", "tunnel", ownerSNAT, "s5", "10.5.0.5")
	c.answer("vm6", "tunnel", "compute:nova", "s6", "10.6.0.5")
	want := []string{gatewayCall{"s4"}.String(), gatewayCall{"s5"}.String()}
	if got := due(c.r); !slices.Equal(got, want) {
		t.Errorf("due %q, want %q", got, want)
	}
	result, err := c.r.Calls()[0].Run(t.Context(), neutron.NewServer(server{"get_subnet_for_dvr": fmt.Sprintf(`{"gateway_mac":%q}`, macOf("far"))}, "hv1"))
	if err != nil || result != macOf("far") {
		t.Errorf("%v, %v", result, err)
	}
	c.r.OnCall(gatewayCall{"s4"}, result, err)
	c.r.OnCall(gatewayCall{"s5"}, neutron.MAC{}, nil)
	c.r.OnCall(gatewayCall{"none"}, neutron.MAC{}, nil)
	if got := due(c.r); len(got) != 0 {
		t.Errorf("due %q", got)
	}
	c.r.Resync()
	if got := due(c.r); !slices.Equal(got, append(want, listCall{}.String())) {
		t.Errorf("after doubt: %q", got)
	}
	m := c.r.Save().(memory)
	if !slices.Equal(m.Others, []neutron.MAC{macOf("her"), macOf("you")}) || len(m.Gateways) != 2 || m.Gateways["s4"] != macOf("far") || m.Gateways["s3"] != macOf("gw7") {
		t.Errorf("%+v", m)
	}
}

// TestRolesOfPorts: which ports are routed for.
func TestRolesOfPorts(t *testing.T) {
	for owner, want := range map[string]part{
		"compute:nova": serviced, "compute:": serviced, "network:dhcp": serviced, "neutron:LOADBALANCERV2": serviced, "trunk:subport": serviced, ownerGateway: gateway, ownerSNAT: snat,
		"network:router_gateway": none, "": none, "network:router_interface": none,
	} {
		c := newCloud(t)
		c.start("p")
		c.answer("p", "tunnel", owner, "s", "10.0.0.5")
		if got := c.r.ports["p"].part; got != want {
			t.Errorf("%q is %v, want %v", owner, got, want)
		}
		c.answer("p", "tunnel", owner)
		if got := c.r.ports["p"].part; got != none {
			t.Errorf("%q without an address is %v", owner, got)
		}
	}
}
