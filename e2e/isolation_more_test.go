// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"regexp"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/layer3/routers"

	"github.com/patchbay-sdn/patchbay/lab"
)

const (
	gapPorts = 20
	gapRate  = 5000 // frames in a second
)

// heardGap is what one port heard before the agent put it apart.
type heardGap struct {
	frames int
	first  time.Time
	last   time.Time
}

// gap plugs ports in that nobody keeps apart, while another tenant's network is flooded with broadcasts, and counts what each hears
// until the agent's first write has put it apart. That is what isolate_vif saves; nothing that starts after the row can.
func (x *isolation) gap(t *testing.T) {
	var mu sync.Mutex
	gaps, spans := []heardGap{}, []time.Duration{}
	mark := x.token()
	var vms []*vm
	var ears []*probe
	heard := make([]heardGap, gapPorts)
	for i := range gapPorts {
		v := x.subject(t, x.blue, nil)
		p, err := openWatch(v.Netns, "eth0", func(frame []byte, _ uint16) {
			if k, ok := tokenIn(frame); ok && k == mark {
				mu.Lock()
				defer mu.Unlock()
				if heard[i].frames++; heard[i].frames == 1 {
					heard[i].first = time.Now()
				}
				heard[i].last = time.Now()
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		vms, ears = append(vms, v), append(ears, p)
	}
	from := x.red.vms[0]
	frame := arp(1, broadcast, from.MAC, from.MAC, from.v4, "00:00:00:00:00:00", address4(230), mark)
	sent, began := 0, time.Now()
	end := every(200*time.Microsecond, func() {
		for sent < int(time.Since(began).Seconds()*gapRate) {
			if from.probe.send(frame) != nil {
				break
			}
			sent++
		}
	})
	plugged := make([]time.Time, gapPorts)
	for i, v := range vms {
		plugged[i] = time.Now()
		if err := v.Insert(x.ctx, false); err != nil {
			t.Fatal(err)
		}
		x.wait(150 * time.Millisecond)
	}
	x.wait(time.Second)
	took := time.Since(began)
	end()
	for _, p := range ears {
		p.close()
	}
	late := 0
	mu.Lock()
	defer mu.Unlock()
	var counts []int
	var after []time.Duration
	for i, h := range heard {
		gaps = append(gaps, h)
		counts = append(counts, h.frames)
		if h.frames > 0 {
			spans = append(spans, h.last.Sub(h.first))
			after = append(after, h.last.Sub(plugged[i]))
			if h.last.Sub(plugged[i]) > time.Second {
				late++
			}
		}
	}
	slices.Sort(counts)
	slices.Sort(spans)
	slices.Sort(after)
	line := fmt.Sprintf("%s, %s: %d ports plugged in without isolate_vif beside %.0f broadcasts/s of another network (%d in all): %d heard some; frames heard: median %d, at most %d",
		x.agent, x.driver, gapPorts, float64(sent)/took.Seconds(), sent, len(after), counts[len(counts)/2], counts[len(counts)-1])
	if len(after) > 0 {
		line += fmt.Sprintf("; from the first to the last: median %s, at most %s; the last after the command began: median %s, at most %s",
			ms(spans[len(spans)/2]), ms(spans[len(spans)-1]), ms(after[len(after)/2]), ms(after[len(after)-1]))
	}
	x.gaps = append(x.gaps, line)
	fmt.Println(line)
	x.blame(t, late, "%d of %d ports heard another tenant's network a second after they were plugged in", late, len(gaps))
	if float64(sent)/took.Seconds() < gapRate/2 {
		t.Errorf("%d frames were sent in %v, want %d a second", sent, took, gapRate)
	}
}

// routerPresent has a distributed router on the network of the port. The router's flows must not be a way around the checks: answers to ARP
// requests of routers are looked at before those.
func (x *isolation) routerPresent(t *testing.T) {
	x.overrides = append(x.overrides, "agent.enable_distributed_routing=true")
	x.start(t)
	x.eachHost(t, func(h *lab.Host) error {
		return h.StartL3(x.ctx, map[string]string{"hv1": "dvr", "hv2": "dvr_snat"}[h.Name()])
	})
	yes := true
	made, err := routers.Create(x.ctx, x.l.Neutron(), routers.CreateOpts{Name: "r", Distributed: &yes, TenantID: lab.Project}).Extract()
	if err != nil {
		t.Fatal(err)
	}
	info, err := routers.AddInterface(x.ctx, x.l.Neutron(), made.ID, routers.AddInterfaceOpts{SubnetID: x.blue.SubnetID}).Extract()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if _, err := routers.RemoveInterface(x.ctx, x.l.Neutron(), made.ID, routers.RemoveInterfaceOpts{SubnetID: x.blue.SubnetID}).Extract(); err != nil {
			t.Error(err)
		}
		if err := routers.Delete(x.ctx, x.l.Neutron(), made.ID).ExtractErr(); err != nil {
			t.Error(err)
		}
		x.eachHost(t, func(h *lab.Host) error { return h.StopL3(x.ctx) })
	}()
	v := x.wiredSubject(t, x.blue, nil)
	x.answers(t, made.ID)
	defer func() { x.routerMAC, x.gatewayMAC = "", "" }()
	p, err := openProbe(fmt.Sprintf("../../proc/%d/root/run/netns/qrouter-%s", x.l.Host(1).L3PID(), made.ID), "qr-"+info.PortID[:11])
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	x.router = &vm{VM: &lab.VM{Tap: "tap" + info.PortID[:11]}, name: "the router", host: 1, probe: p}
	x.hold(t, "router present", v, terms{allowed: true})
}

var (
	answerTo   = regexp.MustCompile(`(?m)^.*priority=99,arp.*$`)
	answerMAC  = regexp.MustCompile(`dl_dst=([0-9a-f:]+)`)
	answerHost = regexp.MustCompile(`arp_tha=([0-9a-f:]+)`)
)

// answers waits until the switch lets answers to the router's questions pass, and reads from the flow to whom they are sent.
func (x *isolation) answers(t *testing.T, router string) {
	t.Helper()
	var flows string
	found := func() bool {
		flows, _ = x.l.Host(1).Flows(x.ctx, "br-int")
		flow := answerTo.FindString(flows)
		to, gateway := answerMAC.FindStringSubmatch(flow), answerHost.FindStringSubmatch(flow)
		if to == nil || gateway == nil {
			return false
		}
		x.routerMAC, x.gatewayMAC = to[1], gateway[1]
		return true
	}
	if x.eventually(routerTime, found) {
		return
	}
	// Debian's layer-3 agents miss a router now and then that is made while they start. A change of it is told to them again.
	again := "told again"
	if err := routers.Update(x.ctx, x.l.Neutron(), router, routers.UpdateOpts{Description: &again}).Err; err != nil {
		t.Fatal(err)
	}
	if !x.eventually(settled, found) {
		plugged, err := x.l.Host(1).Switch().Vsctl(x.ctx, "--columns=name,ofport,external_ids", "find", "Interface", "external_ids:iface-status=active")
		t.Fatalf("there is no flow for answers to the router. Without an interface qr-… the layer-3 agent has not plugged it in, with one Patchbay has not wired it:\n%s%v\n%s",
			plugged, err, flows)
	}
}

// routerTime is how long a layer-3 agent takes to plug in a router, with ample room.
const routerTime = 40 * time.Second
