// SPDX-License-Identifier: Apache-2.0

//go:build bench

package bench

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/delta"
	"github.com/patchbay-sdn/patchbay/internal/dvr"
	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/pipeline"
	"github.com/patchbay-sdn/patchbay/internal/qos"
	"github.com/patchbay-sdn/patchbay/internal/trunk"
	"github.com/patchbay-sdn/patchbay/internal/world"
	"github.com/patchbay-sdn/patchbay/openflow"
)

// BenchmarkWire is everything between the news and the bundle for so many ports at once: world, pipeline and delta, without
// any I/O. The figure to look at is ns/port: it should not grow with the number of ports.
func BenchmarkWire(b *testing.B) {
	for _, n := range []int{20, 100, 500} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			batch, found, ids := plugged(n)
			b.ReportAllocs()
			for b.Loop() {
				wire(b, batch, found, ids, nil, nil)
			}
			b.ReportMetric(float64(b.Elapsed())/float64(b.N)/float64(n), "ns/port")
		})
	}
}

// BenchmarkWireExtensions is the same for 100 ports without extensions, with all, and with all in use: every port has a policy with a
// mark, a limit of bandwidth and one of packets, and is routed for; and fifty other hosts have distributed routers.
func BenchmarkWireExtensions(b *testing.B) {
	all := []extension.New{dvr.New, trunk.New, qos.New}
	for _, v := range []struct {
		name string
		more []extension.New
		use  func(w *world.World, set extension.Set)
	}{{"off", nil, nil}, {"on", all, nil}, {"used", all, inUse}} {
		b.Run(v.name, func(b *testing.B) {
			batch, found, ids := plugged(100)
			if v.use != nil {
				for i := range found {
					found[i].QosPolicyID, found[i].FixedIPs[0].SubnetID = "gold", "subnet"
				}
				found[0].DeviceOwner = "network:router_interface_distributed"
			}
			b.ReportAllocs()
			for b.Loop() {
				wire(b, batch, found, ids, v.more, v.use)
			}
			b.ReportMetric(float64(b.Elapsed())/float64(b.N)/100, "ns/port")
		})
	}
}

// inUse tells the extensions what the server knows.
func inUse(w *world.World, set extension.Set) {
	w.MaxMeters["br-int"] = 100_000
	rule := func(kind, data string) string {
		return fmt.Sprintf(`{"versioned_object.name":%q,"versioned_object.data":%s}`, kind, data)
	}
	policy := `{"id":"gold","revision_number":1,"rules":[` + rule("QosDscpMarkingRule", `{"dscp_mark":26}`) + "," +
		rule("QosBandwidthLimitRule", `{"max_kbps":100000,"max_burst_kbps":80000,"direction":"egress"}`) + "," +
		rule("QosPacketRateLimitRule", `{"max_kpps":100,"max_burst_kpps":10,"direction":"ingress"}`) + "]}"
	for _, e := range set {
		for _, item := range e.Missing() {
			_ = e.Puller.OnPulled(item.Kind, []string{item.ID}, []neutron.Primitive{{Name: string(item.Kind), Data: []byte(policy)}})
		}
	}
	routers := `{"dvr_macs":[{"host":"hv1","mac_address":"fa:16:3f:00:00:00"}`
	for i := range others {
		routers += fmt.Sprintf(`,{"host":"other%d","mac_address":"fa:16:3f:00:01:%02x"}`, i, i)
	}
	_ = set.OnCast("dvr_mac_address_update", []byte(routers+"]}"))
}

// plugged is the switch with n ports on the integration bridge, and what the server says about them.
func plugged(n int) (*ovsdb.Batch, []neutron.Port, []string) {
	batch := &ovsdb.Batch{Seq: 1, Kind: ovsdb.Initial}
	br := &ovsdb.Bridge{UUID: "br", Name: "br-int"}
	var found []neutron.Port
	var ids []string
	segment := 7
	for i := range n {
		id, number := fmt.Sprintf("00000000-0000-4000-8000-%012d", i), i+1
		mac := neutron.MAC{0xfa, 0x16, 0x3e, 0, byte(i >> 8), byte(i)}
		iface, row := ovsdb.UUID("i"+id), ovsdb.UUID("p"+id)
		br.Ports = append(br.Ports, row)
		batch.Ports = append(batch.Ports, ovsdb.Diff[ovsdb.Port]{New: &ovsdb.Port{UUID: row, Name: id, Interfaces: []ovsdb.UUID{iface}}})
		batch.Interfaces = append(batch.Interfaces, ovsdb.Diff[ovsdb.Interface]{New: &ovsdb.Interface{
			UUID: iface, Name: id, OFPort: &number, ExternalIDs: map[string]string{"iface-id": id, "attached-mac": mac.String()},
		}})
		ids = append(ids, id)
		found = append(found, neutron.Port{
			ID: id, NetworkID: "net", MAC: mac, AdminStateUp: true, DeviceOwner: "compute:nova",
			FixedIPs:      neutron.List[neutron.FixedIP]{{IP: netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})}},
			Bindings:      neutron.List[neutron.Binding]{{Host: "hv1", Status: "ACTIVE"}},
			BindingLevels: neutron.List[neutron.BindingLevel]{{Host: "hv1", Segment: neutron.Maybe[neutron.Segment]{Value: &neutron.Segment{NetworkType: "vxlan", SegmentationID: &segment}}}},
		})
	}
	slices.Sort(br.Ports)
	batch.Bridges = []ovsdb.Diff[ovsdb.Bridge]{{New: br}}
	return batch, found, ids
}

func wire(b *testing.B, batch *ovsdb.Batch, found []neutron.Port, ids []string, more []extension.New, use func(*world.World, extension.Set)) {
	b.Helper()
	w := world.New(world.Config{
		Host: "hv1", IntegrationBridge: "br-int", TunnelBridge: "br-tun", IntPatch: "patch-tun", TunPatch: "patch-int",
		LocalIP: netip.MustParseAddr("10.0.0.1"), TunnelTypes: []string{"vxlan"}, L2Population: true, AntiSpoof: true,
	})
	trackers := map[string]*delta.Tracker{"br-int": delta.New(), "br-tun": delta.New()}
	for _, t := range trackers {
		t.Have(nil)
	}
	settings := &pipeline.Settings{}
	set := extension.Make(w, more)
	settle := func() {
		for _, o := range set.Resolve(w.Resolve()) {
			byBridge := map[string][]delta.Flow{}
			want, err := set.Compile(o, func() pipeline.Want { return pipeline.Compile(w, settings, o) })
			if err != nil {
				b.Fatal(err)
			}
			for _, f := range want.Flows {
				byBridge[f.Bridge] = append(byBridge[f.Bridge], delta.Flow{Entry: f.Entry, Reason: f.Reason})
			}
			for name, t := range trackers {
				t.Want(o, byBridge[name])
			}
			ovsdb.DiffRows(w.View, want.Rows...)
		}
	}
	w.Switch(batch)
	set.OnRows(batch)
	settle()
	w.Missing()
	w.Ports(ids, found)
	settle()
	if use != nil {
		use(w, set)
		settle()
	}
	flows := 0
	for _, t := range trackers {
		changes := t.Changes()
		msgs := make([]openflow.Message, len(changes))
		for i, c := range changes {
			msgs[i] = c.Message()
		}
		flows += len(msgs)
		t.Done(changes)
	}
	if flows < 6*len(ids) {
		b.Fatalf("%d flows for %d ports", flows, len(ids))
	}
	w.Expire(time.Time{})
}
