// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// taps are messages of servers, shortened: of release 21, and of those that call the message of a tap service otherwise.
var taps = []struct {
	method, args string
	want         *TapMessage
}{
	{"create_tap_service", `{"tap_service":{"tap_service":{"id":"s","tenant_id":"t","name":"","description":"","port_id":"p","status":"DOWN"},"taas_id":3900,
		"port":{"id":"p","binding:host_id":"hv1","binding:vnic_type":"normal","binding:vif_details":{"port_filter":true,"ovs_hybrid_plug":true}}},"host":"hv1"}`,
		&TapMessage{Host: "hv1", Service: &TapService{"s", "DOWN"}, Port: TapPort{"p", "hv1", "normal", TapDetails{true}}}},
	{"delete_tap_service", `{"tap_service_msg":{"tap_service":{"id":"s","status":"PENDING_DELETE"},"taas_id":3900,"port":null},"host":null}`,
		&TapMessage{Deleted: true, Service: &TapService{"s", "PENDING_DELETE"}}},
	{"create_tap_flow", `{"tap_flow_msg":{"tap_flow":{"id":"f","tap_service_id":"s","source_port":"p","direction":"BOTH","status":"ACTIVE","vlan_filter":null},"port_mac":"fa:16:3e:00:00:01",
		"taas_id":3900,"port":{"id":"p","binding:host_id":"hv1","binding:vnic_type":"normal","binding:vif_details":""},"tap_service_port":{"id":"q","binding:host_id":"hv2","binding:vnic_type":"normal","binding:vif_details":{}}},"host":"hv1"}`,
		&TapMessage{Host: "hv1", Flow: &TapFlow{"f", "s", "BOTH", "ACTIVE"}, Port: TapPort{ID: "p", Host: "hv1", VNIC: "normal"}, To: TapPort{ID: "q", Host: "hv2", VNIC: "normal"}}},
	{"create_tap_mirror", `{"tap_mirror_msg":{"tap_mirror":{"id":"m","port_id":"p","directions":{"IN":101,"OUT":"102"},"remote_ip":"10.0.0.9","mirror_type":"erspanv1"},"port":{"id":"p"}},"host":"hv1"}`,
		&TapMessage{Host: "hv1", Mirror: &TapMirror{"m", "10.0.0.9", "erspanv1", map[string]TunnelID{"IN": 101, "OUT": 102}}, Port: TapPort{ID: "p"}}},
	{"create_tap_dance", `{}`, nil},
	{"tunnel_update", `{}`, nil},
}

func TestDecodeTap(t *testing.T) {
	for _, c := range taps {
		got, err := DecodeTap(c.method, []byte(c.args))
		if diff := cmp.Diff(c.want, got); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got)\n%s", c.method, err, diff)
		}
	}
	for method, args := range map[string]string{
		"create_tap_service": `{"tap_service":{"tap_service":{}}}`, "delete_tap_flow": `{"tap_flow_msg":{"tap_flow":{"id":"f"}}}`, "delete_tap_mirror": `{"tap_mirror_msg":null}`,
		"create_tap_flow": `[]`, "create_tap_mirror": `{"tap_mirror_msg":{"tap_mirror":{"id":"m","directions":{"IN":-1}}}}`,
	} {
		if got, err := DecodeTap(method, []byte(args)); err == nil {
			t.Errorf("%s %s: %+v", method, args, got)
		}
	}
	for class, gone := range map[string]bool{"TapFlowNotFound": true, "TapServiceNotFound": true, "PortNotFound": false} {
		if IsTapGone(&messaging.RemoteError{Class: class}) != gone {
			t.Error(class)
		}
	}
	if IsTapGone(nil) || IsTapGone(errors.New("TapFlowNotFound")) {
		t.Error("another error")
	}
}

func FuzzDecodeTap(f *testing.F) {
	for _, c := range taps {
		f.Add(c.method, []byte(c.args))
	}
	f.Fuzz(func(t *testing.T, method string, args []byte) {
		if m, err := DecodeTap(method, args); err == nil && m != nil && m.Service == nil && m.Flow == nil && m.Mirror == nil {
			t.Errorf("%s %s names nothing", method, args)
		}
	})
}
