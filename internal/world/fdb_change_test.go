// SPDX-License-Identifier: Apache-2.0

package world

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
)

// An update of forwarding entries names what the addresses of a station were and what they are. What they are comes first, so that a
// station whose only address changes is never without one; what they were goes then, also what both lists name, as with the
// Python agent.
func TestAddressesOfAStationChange(t *testing.T) {
	const here, there, vm = "10.0.0.1", "10.0.0.2", "fa:16:3e:00:00:02"
	pairs := func(ips ...string) string {
		var out []string
		for _, ip := range ips {
			out = append(out, fmt.Sprintf("[%q,%q]", vm, ip))
		}
		return "[" + strings.Join(out, ",") + "]"
	}
	changed := func(network, endpoint, state string) string {
		return fmt.Sprintf(`{"fdb_entries":{"chg_ip":{%q:{%q:%s}}}}`, network, endpoint, state)
	}
	for _, c := range []struct {
		name, update string
		want         []string // the station's addresses; none: it is gone
	}{
		{"the only address", changed("n1", there, `{"before":`+pairs("192.168.0.2")+`,"after":`+pairs("192.168.0.3")+`}`), []string{"192.168.0.3"}},
		{"one more", changed("n1", there, `{"after":`+pairs("192.168.0.3", "fd00::3")+`}`), []string{"192.168.0.2", "192.168.0.3", "fd00::3"}},
		{"one less", changed("n1", there, `{"before":`+pairs("192.168.0.2")+`}`), nil},
		{"one and the same", changed("n1", there, `{"before":`+pairs("192.168.0.2")+`,"after":`+pairs("192.168.0.2")+`}`), nil},
		{"one of two", changed("n1", there, `{"before":`+pairs("192.168.0.3")+`,"after":`+pairs("192.168.0.3", "192.168.0.4")+`}`), []string{"192.168.0.2", "192.168.0.4"}},
		{"of this host", changed("n1", here, `{"before":`+pairs("192.168.0.2")+`,"after":`+pairs("192.168.0.3")+`}`), []string{"192.168.0.2"}},
		{"of another network", changed("n2", there, `{"before":`+pairs("192.168.0.2")+`,"after":`+pairs("192.168.0.3")+`}`), []string{"192.168.0.2"}},
	} {
		one := 1
		w := plugged("br-int", &one, ovsdb.Interface{})
		w.Ports([]string{"p1"}, []neutron.Port{bound(nil)})
		w.Resolve()
		hear(t, w, "add_fdb_entries", fmt.Sprintf(`{"fdb_entries":{"n1":{"segment_id":7,"network_type":"vxlan","ports":{%q:[["00:00:00:00:00:00","0.0.0.0"],[%q,"192.168.0.2"]]}}}}`, there, vm))
		before := w.Resolve()
		hear(t, w, "update_fdb_entries", c.update)
		again := w.Resolve()
		s, mac := w.Segments.All()[0], neutron.MAC{0xfa, 0x16, 0x3e, 0, 0, 2}
		var got []string
		station, known := s.Station(mac)
		for _, ip := range station.IPs {
			got = append(got, ip.String())
		}
		slices.Sort(got)
		if !slices.Equal(got, c.want) || known && station.Endpoint != endpoint("vxlan/"+there) {
			t.Errorf("%s: %v at %v, want %v at %s", c.name, got, station.Endpoint, c.want, there)
		}
		// The host still gets broadcasts, whatever becomes of the station.
		if tunnels := w.Tunnels.WantedEndpoints(); len(tunnels) != 1 {
			t.Errorf("%s: tunnels to %v", c.name, tunnels)
		}
		var object Object = StationObject{s.Key, mac}
		if !slices.Contains(before, object) {
			t.Fatalf("the station is not compiled: %v", before)
		}
		if concerns := !strings.HasPrefix(c.name, "of "); slices.Contains(again, object) != concerns {
			t.Errorf("%s: compiled again: %v, want the station among them: %v", c.name, again, concerns)
		}
	}
}

// hear takes a cast as the server sends it.
func hear(t *testing.T, w *World, method, args string) {
	t.Helper()
	m, err := neutron.DecodeMessage(neutron.TopicL2Population, method, []byte(args))
	if err != nil {
		t.Fatal(err)
	}
	switch m := m.(type) {
	case *neutron.FDBAdd:
		w.Tunnels.FDBAdd(m)
	case *neutron.FDBChange:
		w.Tunnels.FDBChange(m)
	default:
		t.Fatalf("%s is %T", method, m)
	}
}
