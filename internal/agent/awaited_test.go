// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/effect"
	"github.com/patchbay-sdn/patchbay/internal/gate"
	"github.com/patchbay-sdn/patchbay/internal/inspect"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// awaitedNetworks runs an agent with l2population before a server that has no forwarding entries to send yet. status asks the agent.
func awaitedNetworks(t *testing.T) (a *Agent, ovs *fakeOVS, r *reports, status func() inspect.Status) {
	t.Helper()
	r = &reports{}
	a, ovs, stop := tunnelled(t, func(below *region) Broker {
		r.region = below
		clear(below.truth.stations)
		return r
	})
	t.Cleanup(stop)
	return a, ovs, r, func() inspect.Status {
		s, err := a.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
}

func networksOf(list []inspect.Awaited) []string {
	var ids []string
	for _, w := range list {
		ids = append(ids, w.Network)
	}
	return ids
}

// A port is wired and reported before the forwarding entries of its network come. The agent is in sync all the time, and says what
// it waits for, since when and until when.
func TestInSyncBeforeForwardingEntries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, ovs, r, status := awaitedNetworks(t)
		wait(time.Second)
		ovs.plug("1", 0, 10) // on n1
		ovs.plug("3", 0, 11) // on n3, which has no tunnels
		wait(3 * time.Second)
		s := status()
		if !s.InSync || len(s.Reasons) > 0 || s.Changing || !slices.Equal(networksOf(s.Awaited), []string{"n1"}) {
			t.Fatalf("without entries: in sync %v, %q, waits for %v", s.InSync, s.Reasons, s.Awaited)
		}
		w := s.Awaited[0]
		if age := time.Since(w.Since); age < 2*time.Second || age > 3*time.Second || w.Until.Sub(w.Since) != fdbGrace {
			t.Errorf("waits for %v, until %v after that", age, w.Until.Sub(w.Since))
		}
		if a.open(gate.Complete) {
			t.Error("flows of an earlier run are removed before the forwarding entries had time to come")
		}
		r.send(neutron.TopicL2Population, "add_fdb_entries", fdb([]string{"n1 101 vxlan 10.0.0.9 fa:16:3e:99:00:01 10.0.0.90"}))
		wait(time.Second)
		if s := status(); !s.InSync || len(s.Awaited) > 0 {
			t.Errorf("with entries: in sync %v, %q, waits for %v", s.InSync, s.Reasons, s.Awaited)
		}
	})
}

// The server sends nothing for a network that lives on this host alone. That is known after a while, and no fault at any time; and
// it is the same for the first network of an agent and for a later one.
func TestInSyncWithANetworkOnThisHostAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, ovs, _, status := awaitedNetworks(t)
		wait(time.Second)
		for i, id := range []string{"1", "2"} { // on n1 and n2
			ovs.plug(id, 0, 10+i)
			wait(time.Second)
			for waited := time.Second; waited < fdbGrace-time.Second; waited += time.Second {
				if s := status(); !s.InSync || len(s.Awaited) != 1 || s.Awaited[0].Network != "n"+id {
					t.Fatalf("port %s after %v: in sync %v, %q, waits for %v", id, waited, s.InSync, s.Reasons, s.Awaited)
				}
				wait(time.Second)
			}
			wait(2 * time.Second)
			if s := status(); !s.InSync || len(s.Awaited) > 0 {
				t.Errorf("port %s at last: in sync %v, %q, waits for %v", id, s.InSync, s.Reasons, s.Awaited)
			}
			wait(time.Minute)
		}
	})
}

// After messages may have been lost, the entries that are known may be out of date until the server has answered the request for
// them: that is not in sync, however long it takes.
func TestNotInSyncUntilForwardingEntriesAreRequested(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, ovs, r, status := awaitedNetworks(t)
		wait(time.Second)
		ovs.plug("1", 0, 10)
		wait(time.Minute)
		r.took = 50 * time.Second
		a.inbox.put(effect.Broker{Event: messaging.Gap{}})
		wait(45 * time.Second)
		s := status()
		if s.InSync || !s.Changing || !has(s.Reasons, "has not answered the request for the forwarding entries of 1 network") || len(s.Awaited) > 0 {
			t.Errorf("before the answer: in sync %v, changing %v, %q, waits for %v", s.InSync, s.Changing, s.Reasons, s.Awaited)
		}
		wait(10 * time.Second)
		if s := status(); !s.InSync || !slices.Equal(networksOf(s.Awaited), []string{"n1"}) {
			t.Errorf("after the answer: in sync %v, %q, waits for %v", s.InSync, s.Reasons, s.Awaited)
		}
	})
}

// Work that is under way is told from what does not pass by itself.
func TestChanging(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, ovs, r, status := awaitedNetworks(t)
		wait(time.Second)
		r.took = 5 * time.Second // a report takes as long
		ovs.plug("1", 0, 10)
		wait(time.Second)
		if s := status(); s.InSync || !s.Changing || len(s.Reasons) == 0 {
			t.Errorf("while a port is reported: in sync %v, changing %v, %q", s.InSync, s.Changing, s.Reasons)
		}
		wait(10 * time.Second)
		if s := status(); !s.InSync || s.Changing {
			t.Errorf("afterwards: in sync %v, changing %v, %q", s.InSync, s.Changing, s.Reasons)
		}
		a.inbox.put(effect.Broker{Event: messaging.Disconnected{Err: messaging.ErrTimeout}})
		ovs.plug("2", 0, 11)
		wait(time.Second)
		if s := status(); s.InSync || s.Changing || !has(s.Reasons, "the broker cannot be reached") {
			t.Errorf("without a broker: in sync %v, changing %v, %q", s.InSync, s.Changing, s.Reasons)
		}
	})
}
