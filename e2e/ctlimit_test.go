// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"encoding/binary"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/patchbay-sdn/patchbay/lab"
)

const (
	greedyConnections = 100_000
	datapathMost      = 50_000 // connections of all networks together; 3,000,000 unless somebody changes it
	networkMost       = 20_000
	datapath          = "netdev@ovs-netdev"
)

// TestConntrackLimit has a VM open 100,000 connections on a switch that tracks half as many. Without a limit of its network
// its neighbour, a VM of another network, is refused; with one it is not. The limits come back when the switch has lost them,
// and go with the option and with the network.
func TestConntrackLimit(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	t.Cleanup(cancel)
	x := &limitCloud{onCall: &onCall{cloud: &cloud{l: lab.New(t, 1), ctx: ctx}, t: t, vms: map[string]*lab.VM{}}}
	x.startAgent()
	x.plugVMs()
	x.appctl("dpctl/ct-set-maxconns", datapath, strconv.Itoa(datapathMost))

	x.row("", "sent", "tracked", "of the greedy network", "neighbour's new connections")
	x.expect("quiet, no limit", 0, func(tracked, greedy int, reached bool) bool { return reached })
	x.expect("100,000 connections, no limit", greedyConnections, func(tracked, greedy int, reached bool) bool { return !reached && tracked >= datapathMost })

	limit := fmt.Sprintf("patchbay.conntrack_limit_per_network=%d", networkMost)
	x.startAgent(limit)
	x.waitLimits("the option is set", 2)
	x.expect("the same, limit 20,000", greedyConnections, func(tracked, greedy int, reached bool) bool {
		return reached && greedy == networkMost && tracked < datapathMost
	})

	if err := x.l.Host(1).Switch().KillVswitchd(ctx); err != nil {
		t.Fatal(err)
	}
	if err := x.l.Host(1).Switch().StartVswitchd(ctx); err != nil {
		t.Fatal(err)
	}
	x.appctl("dpctl/ct-set-maxconns", datapath, strconv.Itoa(datapathMost))
	x.waitLimits("the switch was restarted", 2)
	if err := x.vms["a"].WaitPing(ctx, x.vms["b"].IPs[0]); err != nil {
		t.Error(err)
	}
	x.expect("after a restart of the switch", greedyConnections, func(tracked, greedy int, reached bool) bool {
		return reached && greedy == networkMost && tracked < datapathMost
	})

	x.stopSending()
	if err := x.vms["greedy"].Unplug(ctx, true); err != nil {
		t.Fatal(err)
	}
	x.waitLimits("a network is gone", 1)
	x.startAgent()
	x.waitLimits("the option is off again", 0)
}

type limitCloud struct {
	*onCall
	sender *probe
}

func (x *limitCloud) row(cells ...any) {
	fmt.Printf("%-34v %8v %8v %22v   %v\n", cells...)
}

func (x *limitCloud) startAgent(more ...string) {
	x.t.Helper()
	h := x.l.Host(1)
	if err := h.StopAgent(x.ctx); err != nil {
		x.t.Fatal(err)
	}
	if err := h.StartAgent(x.ctx, lab.Patchbay, append([]string{filtering}, more...)...); err != nil {
		x.t.Fatal(err)
	}
}

// plugVMs makes the greedy VM in a network of its own, and two neighbours in another. Nobody may begin a connection to a, so
// what it hears are answers in connections of its own.
func (x *limitCloud) plugVMs() {
	t := x.t
	group := func(name string, protocols ...string) string {
		id, err := x.l.CreateGroup(x.ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range protocols {
			if err := x.l.Allow(x.ctx, id, p); err != nil {
				t.Fatal(err)
			}
		}
		return id
	}
	closed, open := group("closed"), group("open", "icmp")
	nets := map[string]*lab.Network{}
	for _, name := range []string{"red", "blue"} {
		n, err := x.l.CreateNetwork(x.ctx, lab.Network{Name: name})
		if err != nil {
			t.Fatal(err)
		}
		nets[name] = &n
	}
	for _, v := range []struct{ name, network, group string }{{"greedy", "red", closed}, {"a", "blue", closed}, {"b", "blue", open}} {
		vm, err := x.l.Host(1).Plug(x.ctx, lab.Port{NetworkID: nets[v.network].ID, Name: v.name, Extra: attributes{"security_groups": []string{v.group}}})
		if err != nil {
			t.Fatal(err)
		}
		x.vms[v.name] = vm
	}
	if err := x.l.WaitActive(x.ctx, x.vms["greedy"].PortID, x.vms["a"].PortID, x.vms["b"].PortID); err != nil {
		t.Fatal(err)
	}
	if err := x.vms["a"].WaitPing(x.ctx, x.vms["b"].IPs[0]); err != nil {
		t.Fatal(err)
	}
	var err error
	if x.sender, err = openSender(x.vms["greedy"].Netns, "eth0"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(x.stopSending)
}

func (x *limitCloud) stopSending() {
	if x.sender != nil {
		_ = unix.Close(x.sender.fd)
		x.sender = nil
	}
}

func (x *limitCloud) appctl(args ...string) string {
	x.t.Helper()
	out, err := x.l.Host(1).Switch().Appctl(x.ctx, "ovs-vswitchd", args...)
	if err != nil {
		x.t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

// expect forgets all connections, has the greedy VM send the first packets of so many, and looks whether a reaches b by a new
// one.
func (x *limitCloud) expect(what string, connections int, right func(tracked, greedy int, reached bool) bool) {
	x.t.Helper()
	x.appctl("dpctl/flush-conntrack")
	from := x.vms["greedy"]
	vlan := x.vsctl(1, "get", "Port", from.Tap, "tag")
	frame := packet(header{ethFrom: from.MAC, ethTo: "fa:16:3e:0f:0f:0f", from: from.IPs[0], to: "198.51.100.1", proto: protoUDP}, make([]byte, 16))
	for n := range connections {
		// Another destination and port each; UDP over IPv4 goes without a checksum, the header's is put right.
		binary.BigEndian.PutUint16(frame[32:], uint16(n%1000))
		binary.BigEndian.PutUint16(frame[34:], 4000)
		binary.BigEndian.PutUint16(frame[36:], uint16(1024+n/1000))
		binary.BigEndian.PutUint16(frame[38:], 16)
		binary.BigEndian.PutUint16(frame[40:], 0)
		binary.BigEndian.PutUint16(frame[24:], 0)
		binary.BigEndian.PutUint16(frame[24:], checksum(frame[14:34]))
		if err := x.sender.send(frame); err != nil {
			x.t.Fatal(err)
		}
		if n%20 == 19 {
			time.Sleep(time.Millisecond) // the switch's socket drops what comes faster
		}
	}
	reached := false
	for range 3 {
		reached = reached || x.vms["a"].Ping(x.ctx, x.vms["b"].IPs[0]) == nil
	}
	tracked, err := strconv.Atoi(x.appctl("dpctl/ct-get-nconns", datapath))
	if err != nil {
		x.t.Fatal(err)
	}
	greedy := len(strings.Fields(x.appctl("dpctl/dump-conntrack", datapath, "zone="+vlan)))
	verdict := map[bool]string{true: "made", false: "refused"}[reached]
	x.row(what, connections, tracked, greedy, verdict)
	if !right(tracked, greedy, reached) {
		x.t.Errorf("%s: %d connections are tracked, %d of the greedy VM; its neighbour's are %s", what, tracked, greedy, verdict)
	}
}

var zoneLimit = regexp.MustCompile(`(?m)^zone=(\d+),limit=(\d+)`)

// waitLimits waits until so many networks have the limit. Limits go when the agent knows everything again, which with
// l2population is half a minute after its start or that of the switch.
func (x *limitCloud) waitLimits(when string, zones int) {
	x.t.Helper()
	var text string
	if !x.eventually(settled, func() bool {
		text = x.appctl("dpctl/ct-get-limits", datapath)
		found := zoneLimit.FindAllStringSubmatch(text, -1)
		for _, z := range found {
			if z[2] != strconv.Itoa(networkMost) {
				return false
			}
		}
		time.Sleep(200 * time.Millisecond)
		return len(found) == zones
	}) {
		x.t.Errorf("%s: want %d networks with a limit, the switch has:\n%s", when, zones, text)
	}
}
