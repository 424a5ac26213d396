// SPDX-License-Identifier: Apache-2.0

//go:build integration

package openflowtest_test

import (
	"strings"
	"testing"

	"github.com/patchbay-sdn/patchbay/lab/vswitch"
	"github.com/patchbay-sdn/patchbay/openflow"
)

// A real switch tells monitors what the switch in memory tells them.
func TestMonitorAsOpenVSwitch(t *testing.T) {
	sw := vswitch.New(t, func(c *vswitch.Config) { c.DummyDatapath = true })
	if _, err := sw.Vsctl(t.Context(), "add-br", "br0", "--", "set", "Bridge", "br0", "datapath_type=dummy", "fail-mode=secure", "protocols=OpenFlow14"); err != nil {
		t.Fatal(err)
	}
	real := func() *openflow.Conn {
		c, err := openflow.Dial(t.Context(), "unix:"+sw.MgmtSocket("br0"), openflow.Config{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	if got := strings.Join(monitored(t, real(), real()), "\n") + "\n"; got != wantMonitored {
		t.Errorf("a real switch tells:\n%s\nwant:\n%s", got, wantMonitored)
	}
}
