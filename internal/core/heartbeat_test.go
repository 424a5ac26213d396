// SPDX-License-Identifier: Apache-2.0

package core

import (
	"bytes"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/effect"
	"github.com/patchbay-sdn/patchbay/internal/observe"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
)

// TestNoHeartbeatWithoutSwitch: once ovs-vswitchd does not answer any more the server hears nothing of the agent, though the database
// lives, until it answers again. A restart of it costs no report.
func TestNoHeartbeatWithoutSwitch(t *testing.T) {
	a := obeying(t, nil)
	a.cfg.ReportInterval = 30 * time.Second
	a.server.report.accepted = true
	a.bridges.links["br-int"] = obedient{}
	a.world.View.BridgeByName("br-int").DatapathID = "0000000000000001"
	log := &bytes.Buffer{}
	a.log.Logger = slog.New(observe.NewLogger(log, slog.LevelInfo).Handler())
	now := time.Now()
	reports := func(at time.Time) bool {
		a.server.report.inFlight = false
		return slices.ContainsFunc(a.Step(at, effect.ReportDue{}).Do, func(e effect.Effect) bool {
			_, ok := e.(effect.ReportState)
			return ok
		})
	}
	if !reports(now) {
		t.Fatal("no report while everything is well")
	}
	a.dataplane.Linked("br-int", nil, errors.New("connection refused"), now)
	if !reports(now.Add(time.Second)) {
		t.Error("no report while ovs-vswitchd restarts")
	}
	if reports(now.Add(10*time.Second)) || reports(now.Add(40*time.Second)) {
		t.Error("a report though ovs-vswitchd is dead")
	}
	if n := strings.Count(log.String(), "ovs-vswitchd does not answer"); n != 1 {
		t.Errorf("logged %d times: %s", n, log)
	}
	a.server.report.accepted = false
	if !reports(now.Add(50 * time.Second)) {
		t.Error("the first report waits for ovs-vswitchd")
	}
	a.server.report.accepted = true
	a.dataplane.Linked("br-int", obedient{}, nil, now.Add(time.Minute))
	if !reports(now.Add(61 * time.Second)) {
		t.Error("no report after ovs-vswitchd has come back")
	}
	a.dataplane.Linked("br-int", nil, nil, now.Add(2*time.Minute))
	a.world.View.BridgeByName("br-int").DatapathID = ""
	if reports(now.Add(2*time.Minute + time.Millisecond)) {
		t.Error("a report though ovs-vswitchd has never made the bridge")
	}
}

// TestMappedBridgeIsAwaited: a bridge of bridge_mappings that does not exist is in the log, once.
func TestMappedBridgeIsAwaited(t *testing.T) {
	a := obeying(t, nil)
	log := &bytes.Buffer{}
	a.log.Logger = slog.New(observe.NewLogger(log, slog.LevelInfo).Handler())
	now := time.Now()
	a.Step(now)
	if strings.Contains(log.String(), noMappedBridge) {
		t.Errorf("though nothing is mapped: %s", log)
	}
	a.cfg.World.Physical = map[string]string{"physnet1": "br-int"}
	a.turn.begin(now)
	a.bridges.dial()
	if strings.Contains(log.String(), noMappedBridge) {
		t.Errorf("though it exists: %s", log)
	}
	a.world.View.Apply(&ovsdb.Batch{Seq: 9, Kind: ovsdb.Update, Bridges: []ovsdb.Diff[ovsdb.Bridge]{{Old: a.world.View.BridgeByName("br-int")}}})
	a.bridges.dial()
	a.bridges.dial()
	if n := strings.Count(log.String(), noMappedBridge+" bridge=br-int"); n != 1 {
		t.Errorf("logged %d times: %s", n, log)
	}
	a.bridges.up = false
	a.log.forget(noMappedBridge)
	a.bridges.dial()
	if n := strings.Count(log.String(), noMappedBridge); n != 1 {
		t.Errorf("without the database nothing is known: %s", log)
	}
}
