// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/lab"
)

// TestUpgrade upgrades neutron-server from release to release under running agents, as operators of a cloud do: the agents are restarted first, then the server ends, its
// schema is upgraded, and the server of the next release starts. Packets flow meanwhile: none is lost, and no flow is touched. After each release rules
// are opened and closed under packets, the broker goes away while things change, and agents that start meet a server that they have not seen before.
func TestUpgrade(t *testing.T) {
	releases := strings.FieldsFunc(os.Getenv("PATCHBAY_LAB_UPGRADE"), func(r rune) bool { return r == ',' || r == ' ' })
	if len(releases) == 0 {
		t.Fatal("PATCHBAY_LAB_UPGRADE names no release; make e2e-upgrade RELEASE=26 UPGRADE=28,29")
	}
	ctx, cancel := context.WithTimeout(t.Context(), upgradeTime)
	defer cancel()
	start := time.Now()
	patience(t)
	x := &smoke{filtered: &filtered{agent: lab.Patchbay, cloud: &cloud{ctx: ctx, round: round{name: "upgrade"}}}}
	t.Cleanup(func() { x.print(time.Since(start)) })
	x.l = lab.New(t, 2)
	t.Cleanup(x.close)
	if !x.step(t, "agents start", func(t *testing.T) { x.startAgents(t, x.agent) }) || !x.step(t, "VMs and trunk are wired", x.prepare) {
		return
	}
	x.step(t, "rule opened", x.opens)
	x.step(t, "agents restarted first", x.restarted)
	for i, to := range releases {
		if !x.step(t, "server upgraded to "+to, func(t *testing.T) { x.upgraded(t, to) }) {
			return
		}
		x.step(t, to+": rule closed under a live TCP connection", x.closes)
		x.step(t, to+": rule opened", x.opens)
		if i == 0 {
			x.step(t, to+": broker away: a rule missed, one closed, a port plugged in", x.brokerAway)
			x.step(t, to+": rule opened again", func(t *testing.T) {
				x.request(t, http.MethodDelete, "security-group-rules/"+x.rules["tcp"], nil, nil) // the other one was closed
				x.opens(t)
			})
		}
		x.step(t, to+": VLAN network: filtered port", func(t *testing.T) { x.traffic(t, lossless, second, x.vlanLanes()...) })
		x.step(t, to+": agents restarted", x.restarted)
	}
	x.step(t, "VM unplugged", x.unplugged)
	x.step(t, "address of a VM elsewhere changed", x.readdressed)
}

const upgradeTime = 13 * time.Minute

// upgraded has another release's server take over. When it answers, the agents report to it, and a new rule is there.
func (x *smoke) upgraded(t *testing.T, to string) {
	var answered time.Time
	x.untouched(t, func() {
		if err := x.l.UpgradeServer(x.ctx, to); err != nil {
			t.Fatal(err)
		}
		answered = time.Now()
		for _, h := range x.l.Hosts() {
			if !x.eventually(settled, func() bool {
				a, err := h.AgentRecord(x.ctx)
				return err == nil && a != nil && a.Alive && a.HeartbeatTimestamp.After(answered)
			}) {
				t.Fatalf("the server has not heard from %s", h.Name())
			}
		}
		x.inSync(t)
		x.wait(second)
	})
	x.says("%s; agents alive and in sync %d s after its API answers", x.l.Sources().Neutron, int(time.Since(answered).Seconds()))
}
