// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/patchbay-sdn/patchbay/lab"
)

const (
	keptPorts = 40 // besides the VMs: the Python agent writes a hundred flows at a time, which is a port or two
	keptPairs = 3
)

// TestKept exchanges the agent of a host while pings go between its VMs, which a rule with a remote group allows. A ping is one connection from its
// beginning to its end. The switch marks an established connection that no rule allows, and drops it from then on: a moment without filters is the end of it.
// What the Python agent loses when it starts again by itself is printed beside it.
func TestKept(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	k := &kept{cloud: &cloud{l: lab.New(t, 1), ctx: ctx}}
	k.populate(t)
	for range 2 {
		k.exchange(t, "Patchbay started again", lab.Patchbay, unharmed)
		k.exchange(t, "handed to the Python agent", lab.Python, unharmed)
		k.exchange(t, "Python agent started again", lab.Python, figures)
		k.exchange(t, "handed back to Patchbay", lab.Patchbay, unharmed)
	}
}

// kept is a run of TestKept.
type kept struct {
	*cloud
	vms []*lab.VM
}

// populate starts Patchbay, and plugs ports and VMs of one group in.
func (k *kept) populate(t *testing.T) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	h := k.l.Host(1)
	must(h.StartAgent(k.ctx, lab.Patchbay, filtering))
	n, err := k.l.CreateNetwork(k.ctx, lab.Network{Name: "kept", Type: "vxlan", CIDR: "10.1.0.0/24"})
	must(err)
	group, err := k.l.CreateGroup(k.ctx, "kept")
	must(err)
	k.allow(t, group, attributes{"direction": "ingress", "ethertype": "IPv4", "remote_group_id": group})
	port := lab.Port{NetworkID: n.ID, Extra: map[string]any{"security_groups": []string{group}}}
	quiet, err := k.l.CreatePorts(k.ctx, h, port, keptPorts)
	must(err)
	must(h.PlugMany(k.ctx, quiet))
	for i := range 2 * keptPairs {
		port.Name = "vm" + strconv.Itoa(i)
		v, err := h.Plug(k.ctx, port)
		must(err)
		k.vms = append(k.vms, v)
	}
	for _, p := range quiet {
		must(k.l.WaitActive(k.ctx, p.ID))
	}
	k.remembered(t)
}

// exchange ends the host's agent, starts one of a kind, and counts what pings lose until it is in sync.
func (k *kept) exchange(t *testing.T, name string, kind lab.AgentKind, most limit) {
	t.Run(name, func(t *testing.T) {
		h := k.l.Host(1)
		var pings []*flowing
		for i := 0; i < len(k.vms); i += 2 {
			a, b := k.vms[i], k.vms[i+1]
			for _, way := range [][2]*lab.VM{{a, b}, {b, a}} {
				if err := way[0].WaitPing(k.ctx, way[1].IPs[0]); err != nil {
					t.Fatal(err)
				}
				p := &flowing{cmd: way[0].Command(k.ctx, "ping", "-D", "-n", "-i", "0.01", way[1].IPs[0])}
				p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
				if err := p.cmd.Start(); err != nil {
					t.Fatal(err)
				}
				pings = append(pings, p)
			}
		}
		k.wait(time.Second)
		done := k.pythonSays(t, pythonTakenOver, h)
		if err := h.StopAgent(k.ctx); err != nil {
			t.Fatal(err)
		}
		if err := h.StartAgent(k.ctx, kind, filtering); err != nil {
			t.Fatal(err)
		}
		if kind == lab.Python {
			done()
			k.wait(pythonPause)
		} else {
			k.remembered(t)
		}
		sent, lost, hit := 0, 0, 0
		for _, p := range pings {
			_ = p.cmd.Process.Signal(unix.SIGINT)
			_ = p.cmd.Wait() // it says so when packets were lost, which is counted
			out, missed, _, _ := p.count()
			sent, lost = sent+out, lost+missed
			if missed > 0 {
				hit++
			}
		}
		fmt.Printf("kept: %-28s %6d sent %6d lost, %d of %d connections hit\n", name, sent, lost, hit, len(pings))
		if sent < 1000 {
			t.Errorf("only %d packets were sent", sent)
		}
		if most != figures && lost > 0 {
			t.Errorf("%d of %d packets were lost", lost, sent)
		}
	})
}
