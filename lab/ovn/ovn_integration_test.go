// SPDX-License-Identifier: Apache-2.0

//go:build integration

package ovn_test

import (
	"context"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"

	"github.com/patchbay-sdn/patchbay/lab"
	"github.com/patchbay-sdn/patchbay/lab/ovn"
	"github.com/patchbay-sdn/patchbay/lab/vswitch"
)

// TestNode sees filtered ports go up and down in both databases.
func TestNode(t *testing.T) {
	if _, err := exec.LookPath("ovn-controller"); err != nil {
		t.Skip("the packages ovn-central and ovn-host are not installed; make bench-peers installs them")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	sw := vswitch.New(t)
	n, err := ovn.Start(ctx, ovn.Config{Dir: sw.Dir() + "/ovn", Switch: sw, Name: "peer"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Stop(context.Background()); err != nil || n.Controller() != 0 {
			t.Errorf("stopping: %v, ovn-controller %d", err, n.Controller())
		}
	})
	list := []ports.Port{{ID: "11111111-aaaa", MACAddress: "fa:16:3e:00:00:01"}, {ID: "22222222-bbbb", MACAddress: "fa:16:3e:00:00:02"}}
	if err := n.AddGroup(ctx, "net", []ovn.Port{
		{Name: list[0].ID, MAC: list[0].MACAddress, IPs: []string{"10.0.0.1"}},
		{Name: list[1].ID, MAC: list[1].MACAddress, IPs: []string{"10.0.0.2"}},
	}); err != nil {
		t.Fatal(err)
	}
	var watches []*ovn.Watch
	for _, v := range []ovn.View{ovn.Southbound, ovn.Northbound} {
		w, err := n.Watch(ctx, v)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(w.Close)
		watches = append(watches, w)
	}
	began := time.Now()
	if err := lab.PlugInto(ctx, sw, list); err != nil {
		t.Fatal(err)
	}
	for _, w := range watches {
		last, err := w.Wait(ctx, true, list[0].ID, list[1].ID)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("up after %v", last.Sub(began))
	}
	// "Up" may come before the filters; see View.
	for {
		flows, err := sw.Ofctl(ctx, "dump-flows", "br-int")
		if err == nil && strings.Contains(flows, "10.0.0.2") && strings.Contains(flows, "ct(") {
			t.Logf("filtered after %v", time.Since(began))
			break
		}
		if ctx.Err() != nil {
			t.Fatalf("ports are up without filters: %v\n%s", err, flows)
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err := lab.UnplugFrom(ctx, sw, list); err != nil {
		t.Fatal(err)
	}
	for _, w := range watches {
		if _, err := w.Wait(ctx, false, list[0].ID, list[1].ID); err != nil {
			t.Fatal(err)
		}
	}
}
