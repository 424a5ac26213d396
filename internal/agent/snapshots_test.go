// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/world"
)

// TestEarlierSnapshots: the snapshots of earlier versions are read after an upgrade. Each file was written by the code of the commit that it is named
// after, of the same sample: 04d14e3 is the first that wrote any, ba58af2 the first with extensions and segments, 90d824e the packages before 1.0.
func TestEarlierSnapshots(t *testing.T) {
	files, err := filepath.Glob("testdata/snapshots/*.snapshot")
	if err != nil || len(files) < 3 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(t.TempDir(), "patchbay.snapshot")
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
			var log bytes.Buffer
			saved := recall(path, nil, slog.New(slog.NewTextHandler(&log, nil)))
			if saved == nil || log.Len() > 0 {
				t.Fatalf("not read: %s", &log)
			}
			checkSample(t, saved.Memory, filepath.Base(file) != "04d14e3.snapshot")
			w := world.New(world.Config{Host: "hv1", IntegrationBridge: "br-int", TunnelBridge: "br-tun", TunnelTypes: []string{"vxlan"}, LocalIP: netip.MustParseAddr("192.0.2.1"), Filter: true})
			w.Recall(saved.Memory)
			if got := w.Memory().Tunnels; len(got) != 1 || got[0].IP != netip.MustParseAddr("192.0.2.2") {
				t.Errorf("tunnels %v", got)
			}
		})
	}
}

// TestSnapshotsThatCannotBeRead are told of, and nothing is remembered. At the first start there is none, and nothing to tell.
func TestSnapshotsThatCannotBeRead(t *testing.T) {
	dir := t.TempDir()
	bad, none := filepath.Join(dir, "bad"), filepath.Join(dir, "made", "none")
	if err := os.WriteFile(bad, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	if got := recall(none, nil, logger); got != nil || log.Len() > 0 {
		t.Errorf("%+v: %s", got, &log)
	}
	if _, err := os.Stat(filepath.Dir(none)); err != nil {
		t.Error(err)
	}
	if got := recall(bad, nil, logger); got != nil || !strings.Contains(log.String(), "snapshot not usable, starting without it") {
		t.Errorf("%+v: %s", got, &log)
	}
	m := &world.Memory{}
	if got := recall("", m, logger); got == nil || got.Memory != m || !got.Written.IsZero() || recall("", nil, logger) != nil {
		t.Errorf("%+v", got)
	}
}

// checkSample compares what the files were written of. The first format had forwarding entries in another place: they are asked for again.
func checkSample(t *testing.T, m *world.Memory, entries bool) {
	t.Helper()
	if len(m.Ports) != 1 || len(m.Groups) != 1 || len(m.Members) != 1 || len(m.Remotes) != 1 {
		t.Fatalf("%+v", m)
	}
	p := &m.Ports[0]
	segment := p.SegmentOn("hv1")
	if p.MAC != (neutron.MAC{0xfa, 0x16, 0x3e, 0, 0, 1}) || len(p.FixedIPs) != 1 || len(p.AllowedAddressPairs) != 1 || p.Revision != 7 || !p.PortSecurityEnabled() ||
		p.QosPolicyID != "q1" || segment == nil || segment.NetworkType != "vxlan" || *segment.SegmentationID != 77 {
		t.Errorf("port %+v", p)
	}
	if rules := m.Groups[0].Rules; len(rules) != 2 || rules[0].RemoteGroupID != "g1" || *rules[0].PortRangeMin != 22 || rules[1].RemoteIPPrefix.String() != "192.0.2.0/24" {
		t.Errorf("rules %+v", rules)
	}
	if peers := m.Members[0].Peers; len(peers) != 1 || peers[0].Prefix.String() != "10.0.0.6/32" {
		t.Errorf("members %+v", m.Members)
	}
	if n := len(m.Segments); entries != (n == 1) {
		t.Errorf("%d segments", n)
	}
	if entries && (len(m.Segments[0].Stations) != 1 || m.Extensions["qos"] == nil) {
		t.Errorf("%+v, %s", m.Segments, m.Extensions)
	}
}
