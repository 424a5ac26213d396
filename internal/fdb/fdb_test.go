// SPDX-License-Identifier: Apache-2.0

package fdb_test

import (
	"errors"
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/extension/extensiontest"
	"github.com/patchbay-sdn/patchbay/internal/fdb"
	"github.com/patchbay-sdn/patchbay/internal/forwarding"
	"github.com/patchbay-sdn/patchbay/internal/world"
	"github.com/patchbay-sdn/patchbay/openflow"
)

var update = flag.Bool("update", false, "write the answers into testdata")

func TestScripts(t *testing.T) {
	extensiontest.Run(t, "testdata/*.script", *update, fdb.New(map[string][]string{"physnet1": {"ens1f0", "ens1f1"}, "physnet2": {"ens2"}}))
}

func yes() bool { return true }

// What failed is read again before it is tried again, and so is what a device may have lost; an idle host is compared every two minutes.
func TestFailures(t *testing.T) {
	w := world.New(world.Config{Host: "hv1", IntegrationBridge: "br-int"})
	f, ok := fdb.New(map[string][]string{"physnet1": {"ens1"}})(w).(*fdb.FDB)
	if !ok {
		t.Fatal("another type")
	}
	var _ extension.Forwarder = f
	ours := forwarding.Entry{Device: "ens1", MAC: openflow.MAC{0xfa, 0x16, 0x3e, 0, 0, 1}}
	if err := f.Load([]byte(`{"ens1":["fa:16:3e:00:00:01"]}`)); err != nil {
		t.Fatal(err)
	}
	noon := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	reads := func(what string) {
		t.Helper()
		if job, due := f.Forwarding(yes); !due || len(job.Read) != 1 {
			t.Errorf("%s: %+v, %v", what, job, due)
		}
		f.OnForwarding(forwarding.Outcome{Tables: forwarding.Tables{"ens1": {ours.MAC}}}, noon)
	}
	deletes := func(what string) {
		t.Helper()
		if job, due := f.Forwarding(yes); !due || len(job.Change.Delete) != 1 || job.Change.Delete[0] != ours {
			t.Errorf("%s: %+v, %v", what, job, due)
		}
	}
	reads("at start")
	deletes("an entry of a port that is gone")
	f.OnForwarding(forwarding.Outcome{Changed: forwarding.Changes{Delete: []forwarding.Entry{ours}}, Err: errors.New("not permitted")}, noon)
	reads("after a failure")
	deletes("after a failure")
	f.OnForwarding(forwarding.Outcome{Device: "ens1"}, noon)
	reads("after a change of the device")
	f.OnForwarding(forwarding.Outcome{Changed: forwarding.Changes{Delete: []forwarding.Entry{ours}}}, noon)
	if job, due := f.Forwarding(yes); due {
		t.Errorf("nothing to do: %+v", job)
	}
	at := f.Deadline()
	if at != noon.Add(2*time.Minute) {
		t.Errorf("compared at %v", at)
	}
	f.OnTime(at)
	reads("after two minutes")
	if job, due := f.Forwarding(yes); due {
		t.Errorf("an entry that is another's now: %+v", job)
	}
}

// A question about what is due changes nothing: it may be asked by whoever shows the agent's state.
func TestAsking(t *testing.T) {
	w := world.New(world.Config{Host: "hv1", IntegrationBridge: "br-int"})
	f, ok := fdb.New(map[string][]string{"physnet1": {"ens1"}})(w).(*fdb.FDB)
	if !ok {
		t.Fatal("another type")
	}
	if err := f.Load([]byte(`{"ens1":["fa:16:3e:00:00:01"]}`)); err != nil {
		t.Fatal(err)
	}
	f.OnForwarding(forwarding.Outcome{Tables: forwarding.Tables{"ens1": {{0xfa, 0x16, 0x3e, 0, 0, 1}}}}, time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC))
	before := fmt.Sprintf("%+v", *f)
	for _, open := range []bool{false, true} {
		if _, due := f.Forwarding(func() bool { return open }); due != open {
			t.Errorf("open %v: due %v", open, due)
		}
	}
	if after := fmt.Sprintf("%+v", *f); after != before {
		t.Errorf("%s\nbecame\n%s", before, after)
	}
}
