// SPDX-License-Identifier: Apache-2.0

package core

import (
	"log/slog"
	"slices"

	"github.com/patchbay-sdn/patchbay/internal/effect"
	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/forwarding"
	"github.com/patchbay-sdn/patchbay/internal/pace"
)

// tables are the forwarding tables of devices that extensions keep: which of their jobs are on the way. Extensions are given by their place in the list.
type tables struct {
	room
	set extension.Set
	// running are the jobs on their way. False: what is read does not count, because a device has changed since.
	running map[int]bool
	watched map[int]bool
	retries pace.Backoff[int] // of jobs
	watches pace.Backoff[int]
	failed  map[int]string // why the last job of an extension failed
}

func newTables(r room, set extension.Set) tables {
	return tables{room: r, set: set, running: map[int]bool{}, watched: map[int]bool{}, retries: pace.Backoff[int]{}, watches: pace.Backoff[int]{}, failed: map[int]string{}}
}

// Messages that last.
const (
	tablesUnread  = "forwarding tables of devices cannot be read, retrying"
	tablesUnkept  = "forwarding entries of devices cannot be written, retrying"
	watchFailed   = "subscription to netlink events of devices failed, retrying"
	deviceMissing = "device of [FDB] shared_physical_device_mappings does not exist, waiting for it"
)

// keepTables starts the jobs about forwarding tables that are due.
func (t *tables) keepTables(open func() bool) {
	now := t.now()
	for i, ext := range t.set {
		if ext.Forwarder == nil {
			continue
		}
		switch {
		case t.watched[i]:
		case t.watches.Waiting(i, now):
			t.wakeUp(t.watches[i].At)
		default:
			t.watched[i] = true
			t.start(effect.WatchDevices{Extension: i, Devices: ext.Forwarder.Devices()})
		}
		if _, on := t.running[i]; on {
			continue
		}
		if t.retries.Waiting(i, now) {
			t.wakeUp(t.retries[i].At)
			continue
		}
		job, due := ext.Forwarder.Forwarding(open)
		switch {
		case !due:
			t.retries.Forget(i)
			delete(t.failed, i)
			t.log.forget(tablesUnread)
			t.log.forget(tablesUnkept)
			continue
		case job.Read != nil:
			t.start(effect.ReadForwarding{Extension: i, Devices: job.Read})
		default:
			t.start(effect.ChangeForwarding{Extension: i, Changes: job.Change})
		}
		t.running[i] = true
	}
}

// tablesEnded takes what became of a job, or that a device has changed, and returns whether something worth remembering changed.
func (t *tables) tablesEnded(e effect.Event) bool {
	switch e := e.(type) {
	case effect.DeviceChanged:
		if e.Err != nil {
			delete(t.watched, e.Extension)
			t.log.repeat(slog.LevelWarn, watchFailed, "err", e.Err, "after", t.watches.Fail(e.Extension, t.now()))
			return false
		}
		t.watches.Forget(e.Extension)
		if _, on := t.running[e.Extension]; on {
			t.running[e.Extension] = false
		}
		t.set[e.Extension].Forwarder.OnForwarding(forwarding.Outcome{Device: e.Device}, t.now())
	case effect.ForwardingRead:
		counts := t.running[e.Extension]
		delete(t.running, e.Extension)
		switch {
		case e.Err != nil:
			t.tableFailed(tablesUnread, e.Extension, e.Err)
			return false
		case !counts:
			return false // they are read again
		}
		t.missDevices(e)
		t.set[e.Extension].Forwarder.OnForwarding(forwarding.Outcome{Tables: e.Tables}, t.now())
	case effect.ForwardingChanged:
		delete(t.running, e.Extension)
		if e.Err != nil {
			t.tableFailed(tablesUnkept, e.Extension, e.Err)
		} else {
			t.log.Info("forwarding entries of devices written", "added", len(e.Changes.Add), "deleted", len(e.Changes.Delete))
		}
		t.set[e.Extension].Forwarder.OnForwarding(forwarding.Outcome{Changed: e.Changes, Err: e.Err}, t.now())
		return true
	}
	return false
}

func (t *tables) tableFailed(message string, i int, err error) {
	t.failed[i] = err.Error()
	t.log.repeat(slog.LevelWarn, message, "err", err, "after", t.retries.Fail(i, t.now()))
}

// missDevices logs the devices that do not exist.
func (t *tables) missDevices(e effect.ForwardingRead) {
	missing := slices.DeleteFunc(slices.Clone(t.set[e.Extension].Forwarder.Devices()), func(device string) bool {
		_, exists := e.Tables[device]
		return exists
	})
	for _, device := range missing {
		t.log.repeat(slog.LevelWarn, deviceMissing, "device", device)
	}
	if len(missing) == 0 {
		t.log.forget(deviceMissing)
	}
}

// tablesLost takes that the outcome of a job could not be taken.
func (t *tables) tablesLost(i int) {
	delete(t.running, i)
	t.retries.Fail(i, t.now())
}

// tablesBlocking returns whether forwarding tables may not be as wanted yet, and why they cannot be.
func (t *tables) tablesBlocking(open func() bool) (busy bool, faults []string) {
	for i, ext := range t.set {
		if ext.Forwarder == nil {
			continue
		}
		if why := t.failed[i]; why != "" {
			faults = append(faults, "extension "+ext.Name()+": "+why)
			continue
		}
		_, due := ext.Forwarder.Forwarding(open)
		_, on := t.running[i]
		busy = busy || due || on
	}
	return busy, faults
}
