// SPDX-License-Identifier: Apache-2.0

//go:build integration

package main

import (
	"bytes"
	"context"
	"flag"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/script"
	"github.com/patchbay-sdn/patchbay/lab/vswitch"
	"github.com/patchbay-sdn/patchbay/openflow"
	"github.com/patchbay-sdn/patchbay/openflow/openflowtest"
)

var updateFlows = flag.Bool("update-flows", false, "write the golden output of `patchbay flows`, which docs/reference/pipeline.md shows")

// loadFlows installs a file of flows and returns the connection.
func loadFlows(t *testing.T, sw *vswitch.Switch, bridge string) *openflow.Conn {
	t.Helper()
	data, err := os.ReadFile("testdata/flows/" + bridge + ".flows")
	if err != nil {
		t.Fatal(err)
	}
	var msgs []openflow.Message
	for line := range strings.SplitSeq(strings.TrimSpace(string(data)), "\n") {
		msgs = append(msgs, openflow.AddFlow(openflowtest.Entry(t, line)))
	}
	c, err := openflow.Dial(t.Context(), "unix:"+sw.MgmtSocket(bridge), openflow.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.Commit(t.Context(), msgs); err != nil {
		t.Fatal(err)
	}
	return c
}

func addDummyBridge(t *testing.T, sw *vswitch.Switch, bridge string, ports ...string) {
	t.Helper()
	args := []string{"add-br", bridge, "--", "set", "Bridge", bridge, "datapath_type=dummy", "fail-mode=secure", "protocols=OpenFlow13,OpenFlow14"}
	for i, p := range ports {
		args = append(args, "--", "add-port", bridge, p, "--", "set", "Interface", p, "type=dummy", "ofport_request="+string(rune('1'+i)))
	}
	if _, err := sw.Vsctl(t.Context(), args...); err != nil {
		t.Fatal(err)
	}
}

// The command on a real switch prints what docs/reference/pipeline.md shows, and sees
// changes that others make.
func TestFlowsCommandLive(t *testing.T) {
	sw := vswitch.New(t, func(c *vswitch.Config) { c.DummyDatapath = true })
	addDummyBridge(t, sw, "br-int", "int-br-ex", "patch-tun", "tap0a1b2c3d-4e")
	addDummyBridge(t, sw, "br-tun", "patch-int", "vxlan-0a000002")
	for _, bridge := range []string{"br-int", "br-tun"} {
		loadFlows(t, sw, bridge)
		var out bytes.Buffer
		if err := runFlows(t.Context(), &out, bridge, flowsFlags{Target: "unix:" + sw.MgmtSocket(bridge)}); err != nil {
			t.Fatal(err)
		}
		script.Golden(t, "testdata/flows/"+bridge+".golden", *updateFlows, out.String())
	}
}

func TestFlowsWatchLive(t *testing.T) {
	sw := vswitch.New(t, func(c *vswitch.Config) { c.DummyDatapath = true })
	addDummyBridge(t, sw, "br-int", "int-br-ex", "patch-tun", "tap0a1b2c3d-4e")
	c := loadFlows(t, sw, "br-int")
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	out := &syncBuffer{}
	done := make(chan error, 1)
	go func() {
		done <- runFlows(ctx, out, "br-int", flowsFlags{Target: "unix:" + sw.MgmtSocket("br-int"), Watch: true, Port: "tap0a1b2c3d-4e"})
	}()
	e := openflowtest.Entry(t, "table=81,priority=100,icmp6,reg5=0x3,icmp_type=134,actions=output:3")
	other := openflowtest.Entry(t, "table=81,priority=100,icmp6,reg5=0x9,icmp_type=134,actions=drop")
	want := "table 81 BASE_INGRESS 100 icmp6,reg5=0x3,icmp_type=134 → output:3<tap0a1b2c3d-4e>"
	// The watch begins some time after its start, perhaps between an addition and its deletion: change until it has seen both.
	for !strings.Contains(out.String(), " + "+want) || !strings.Contains(out.String(), " - "+want) {
		if ctx.Err() != nil {
			t.Fatalf("not seen: %s", out.String())
		}
		for _, m := range []openflow.Message{openflow.AddFlow(e), openflow.AddFlow(other), openflow.DeleteFlow(e.Key())} {
			if err := c.Commit(ctx, []openflow.Message{m}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if s := out.String(); strings.Contains(s, "reg5=0x9") {
		t.Errorf("%s", s)
	}
}

// syncBuffer is a buffer for two goroutines.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
