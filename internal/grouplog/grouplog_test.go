// SPDX-License-Identifier: Apache-2.0

package grouplog

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/world"
	of "github.com/patchbay-sdn/patchbay/openflow"
)

// newLog returns the extension on a host where ports 1 and 2 are filtered, in a group that lets everything out.
func newLog(t *testing.T, bound extension.Bound) *Log {
	t.Helper()
	number := []int{1, 2}
	first := &ovsdb.Batch{
		Seq: 1, Kind: ovsdb.Initial,
		OpenVSwitch: []ovsdb.Diff[ovsdb.OpenVSwitch]{{New: &ovsdb.OpenVSwitch{UUID: "root", Bridges: []ovsdb.UUID{"br-int"}}}},
		Bridges:     []ovsdb.Diff[ovsdb.Bridge]{{New: &ovsdb.Bridge{UUID: "br-int", Name: "br-int", Ports: []ovsdb.UUID{"p1", "p2"}}}},
	}
	var ports []neutron.Port
	for i, id := range []string{"1", "2"} {
		first.Ports = append(first.Ports, ovsdb.Diff[ovsdb.Port]{New: &ovsdb.Port{UUID: ovsdb.UUID("p" + id), Name: "tap" + id, Interfaces: []ovsdb.UUID{ovsdb.UUID("i" + id)}}})
		first.Interfaces = append(first.Interfaces, ovsdb.Diff[ovsdb.Interface]{New: &ovsdb.Interface{
			UUID: ovsdb.UUID("i" + id), Name: "tap" + id, OFPort: &number[i], ExternalIDs: map[string]string{"iface-id": id, "attached-mac": "fa:16:3e:00:00:0" + id},
		}})
		ports = append(ports, neutron.Port{
			ID: id, NetworkID: "net", ProjectID: "a", AdminStateUp: true, DeviceOwner: "compute:nova", SecurityGroupIDs: []string{"g"},
			Bindings:      neutron.List[neutron.Binding]{{Host: "hv1", Status: "ACTIVE"}},
			BindingLevels: neutron.List[neutron.BindingLevel]{{Host: "hv1", Segment: neutron.Maybe[neutron.Segment]{Value: &neutron.Segment{NetworkType: "local"}}}},
		})
	}
	w := world.New(world.Config{Host: "hv1", IntegrationBridge: "br-int", Filter: true, FilterTables: true})
	w.Time = time.Unix(1000, 0)
	w.Switch(first)
	l := New(bound)(w).(*Log)
	w.Resolve()
	w.Ports(w.Missing(), ports)
	w.Resolve()
	for _, item := range w.MissingItems() {
		w.Groups.Pulled([]world.Item{item}, []neutron.SecurityGroup{{ID: "g"}})
	}
	l.Resolve(append(w.Everything(), w.Resolve()...))
	if len(l.ports) != 2 {
		t.Fatalf("filtered ports: %v", l.ports)
	}
	return l
}

func object(t *testing.T, g neutron.Log) neutron.Primitive {
	t.Helper()
	g.ResourceType = securityGroup
	data, err := json.Marshal(g)
	if err != nil {
		t.Fatal(err)
	}
	return neutron.Primitive{Name: "Log", Data: data}
}

func (l *Log) told(t *testing.T, e neutron.Event, logs ...neutron.Log) {
	t.Helper()
	p := &neutron.Push{Kind: neutron.KindLog, Event: e}
	for _, g := range logs {
		p.Objects = append(p.Objects, object(t, g))
	}
	if err := l.OnPush(p); err != nil {
		t.Fatal(err)
	}
}

func (l *Log) listedAs(t *testing.T, logs ...neutron.Log) {
	t.Helper()
	var found []neutron.Primitive
	for _, g := range logs {
		found = append(found, object(t, g))
	}
	if err := l.OnPulled(neutron.KindLog, []string{securityGroup}, found); err != nil {
		t.Fatal(err)
	}
}

func packet(key string, bytes []byte) extension.Packet {
	return extension.Packet{PacketIn: &of.PacketIn{Packet: bytes}, Bridge: "br-int", Key: key}
}

// TestLine: the five keys in their order, with the ids of the logs that are about the port and what became of the packet.
func TestLine(t *testing.T) {
	l := newLog(t, extension.Bound{Rate: 100, Burst: 25})
	l.told(t, neutron.Created,
		neutron.Log{ID: "b", ProjectID: "a", Event: "ALL", Enabled: true}, neutron.Log{ID: "a", ProjectID: "admin", TargetID: "1", Event: "DROP", Enabled: true},
		neutron.Log{ID: "c", ProjectID: "a", Event: "ACCEPT", Enabled: true})
	frame := bytesOf(t, udp)
	if _, outcome := l.OnPacket(packet("1 DROP", frame)); outcome != extension.Logged {
		t.Fatal(outcome)
	}
	lines := l.Records()
	want := "action=DROP project_id=admin log_resource_ids=['a', 'b'] vm_port=1 pkt=ethernet(dst="
	if len(lines) != 1 || !strings.HasPrefix(lines[0], want) || len(l.Records()) != 0 {
		t.Errorf("lines %q, want one that begins with %s", lines, want)
	}
	for key, want := range map[string]extension.Outcome{"2 DROP": extension.Logged, "9 DROP": extension.Refused, "1 OTHER": extension.Refused, "1": extension.Refused} {
		if _, outcome := l.OnPacket(packet(key, frame)); outcome != want {
			t.Errorf("a packet of %q is %s, want %s", key, outcome, want)
		}
	}
	if _, outcome := l.OnPacket(packet("1 DROP", frame[:10])); outcome != extension.Malformed {
		t.Errorf("a packet without a header is %s", outcome)
	}
	l.told(t, neutron.Deleted, neutron.Log{ID: "b"}, neutron.Log{ID: "a"})
	if _, outcome := l.OnPacket(packet("1 DROP", frame)); outcome != extension.Refused {
		t.Errorf("a packet that no log is about any more is %s", outcome)
	}
}

// TestBounds: a flood of one port gets what the options allow, and hides no other port.
func TestBounds(t *testing.T) {
	l := newLog(t, extension.Bound{Rate: 100, Burst: 25})
	l.told(t, neutron.Created, neutron.Log{ID: "l", ProjectID: "a", Event: "ALL", Enabled: true})
	frame := bytesOf(t, udp)
	flood := func(key string, n int) (logged int) {
		for range n {
			if _, outcome := l.OnPacket(packet(key, frame)); outcome == extension.Logged {
				logged++
			}
		}
		return logged
	}
	if n := flood("1 DROP", 1000); n != 25+shareBurst {
		t.Errorf("%d lines at once, want %d", n, 25+shareBurst)
	}
	if n := flood("2 DROP", 3); n != 3 {
		t.Errorf("%d of 3 lines of another port", n)
	}
	if n := flood("1 ACCEPT", 1); n != 1 {
		t.Error("what the flooding port was allowed is not logged")
	}
	l.w.Time = l.w.Time.Add(100 * time.Millisecond)
	if n := flood("1 DROP", 1000); n != 10 {
		t.Errorf("%d lines after a tenth of a second, want 10", n)
	}
	if n := len(l.Records()); n != 25+shareBurst+3+1+10 {
		t.Errorf("%d lines in all", n)
	}
}

// TestPushesAndListsCross: a list that may be older than a push does not undo it, and is asked for once more.
func TestPushesAndListsCross(t *testing.T) {
	l := newLog(t, extension.Bound{Rate: 100, Burst: 25})
	is := func(when string, want ...string) {
		t.Helper()
		got := idsOf(l.of(l.w.Port("1")))
		if strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("%s: logs %q, want %q", when, got, want)
		}
	}
	one, two := neutron.Log{ID: "one", ProjectID: "a", Event: "ALL", Enabled: true, Revision: 1}, neutron.Log{ID: "two", ProjectID: "a", Event: "ALL", Enabled: true, Revision: 1}
	l.listedAs(t, one, two)
	is("listed", "one", "two")
	if len(l.Missing()) != 0 {
		t.Fatal("asked again")
	}
	l.Resync()
	l.told(t, neutron.Deleted, one)
	l.listedAs(t, one, two) // from before
	is("an old list", "two")
	if len(l.Missing()) != 1 {
		t.Fatal("the list is not asked for once more")
	}
	l.told(t, neutron.Updated, one) // the rules of its group had changed
	is("an old push", "two")
	l.listedAs(t, two)
	l.listedAs(t, two)
	if is("a new list", "two"); len(l.Missing()) != 0 {
		t.Error("asked again")
	}
	l.Resync()
	l.listedAs(t)
	is("none")
	if out := l.Resolve(nil); len(out) != 2 {
		t.Errorf("%v are compiled, want both ports", out)
	}
}

// TestMeters: a port has a meter while it is logged.
func TestMeters(t *testing.T) {
	l := newLog(t, extension.Bound{Rate: 100, Burst: 25})
	l.w.MaxMeters["br-int"] = 10
	l.Resolve(nil)
	log := neutron.Log{ID: "l", ProjectID: "a", TargetID: "1", Event: "ALL", Enabled: true}
	l.told(t, neutron.Created, log)
	if l.meters.ID("1") == 0 || l.meters.ID("2") != 0 {
		t.Errorf("meters %d and %d, want one of port 1", l.meters.ID("1"), l.meters.ID("2"))
	}
	log.Enabled = false
	if l.told(t, neutron.Updated, log); l.meters.ID("1") != 0 {
		t.Error("the meter of a port that is not logged any more is kept")
	}
}
