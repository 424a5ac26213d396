// SPDX-License-Identifier: Apache-2.0

package region

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// host is one that has joined and takes down what it hears.
type host struct {
	*Link
	t *testing.T

	mu    sync.Mutex
	heard []string
}

func (h *host) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.heard = nil
}

func (h *host) messages() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.heard)
}

// join has a host listen to everything that a server of release 21 sends, and to Port in other versions.
func join(t *testing.T, s *Region, name string) *host {
	t.Helper()
	h := &host{Link: s.Join(name, nil), t: t}
	err := h.Serve(t.Context(), messaging.Service{
		Topics: []string{
			"neutron-vo-Port-1.5", "neutron-vo-Port-1.7", "neutron-vo-SecurityGroupRule-1.2",
			"q-agent-notifier-tunnel-update", "q-agent-notifier-tunnel-delete", l2population,
		},
		Handler: func(_ context.Context, m *messaging.Message) (any, error) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.heard = append(h.heard, m.Topic+" "+m.Method+" "+string(m.Args))
			return nil, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func (h *host) ask(version, method string, args map[string]any, result any) {
	h.t.Helper()
	if err := h.Call(h.t.Context(), messaging.Target{Topic: plugin, Version: version}, method, args, result); err != nil {
		h.t.Fatalf("%s: %v", method, err)
	}
}

// count is how many messages say all of this.
func (h *host) count(parts ...string) int {
	n := 0
	for _, m := range h.messages() {
		if !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(m, p) }) {
			n++
		}
	}
	return n
}

// small is a cloud with one port, P, that is bound to hv1.
func small(t *testing.T, cfg Config) *Region {
	t.Helper()
	s := New(cfg)
	t.Cleanup(s.Close)
	s.AddAgent("hv1", netip.MustParseAddr("192.0.2.1"))
	n, err := s.CreateNetwork(t.Context(), NetworkSpec{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.CreateSubnet(t.Context(), SubnetSpec{NetworkID: n.ID, CIDR: netip.MustParsePrefix("10.0.0.0/24")}); err != nil {
		t.Fatal(err)
	}
	id, owner, host := "P", "compute:nova", "hv1"
	if _, err := s.CreatePort(t.Context(), PortSpec{ID: &id, NetworkID: &n.ID, DeviceOwner: &owner, Host: &host}); err != nil {
		t.Fatal(err)
	}
	return s
}

func rename(t *testing.T, s *Region, name string) {
	t.Helper()
	if _, err := s.UpdatePort(t.Context(), "P", PortSpec{Name: &name}); err != nil {
		t.Fatal(err)
	}
}

// wait lets fake time pass and everything settle.
func wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// What is pushed is what is read when the push is sent: two changes at once are told twice as the last of them, and a push may be
// newer or older than an answer. The real server's thread for each kind of object does the same.
func TestPushesCrossAnswers(t *testing.T) {
	older, newer, twice := false, false, false
	for seed := range uint64(40) {
		synctest.Test(t, func(t *testing.T) {
			s := small(t, Config{})
			h := join(t, s, "hv1")
			s.Be(Unkind{Seed: seed + 1, Delay: time.Second, Reorder: true})
			rename(t, s, "first")
			rename(t, s, "second")
			var found []json.RawMessage
			h.ask("1.1", "bulk_pull", map[string]any{"resource_type": "Port", "version": "1.7", "filter_kwargs": map[string]any{"id": []string{"P"}}}, &found)
			if len(found) != 1 || !strings.Contains(string(found[0]), `"name":"second"`) {
				t.Fatalf("found %s", found)
			}
			before := len(h.messages())
			rename(t, s, "third")
			wait(5 * time.Second)
			newer = newer || before == 0
			twice = twice || h.count(`"name":"third"`) > 1
			all := h.messages()
			last := all[len(all)-1]
			older = older || !strings.Contains(last, `"name":"third"`)
		})
	}
	if !older || !newer || !twice {
		t.Errorf("in 40 runs: a push after the answer %v, the same twice %v, an older state after a newer %v", newer, twice, older)
	}
}

// A host that has another address has its old one withdrawn; one that takes another host's has not.
func TestTunnelsOfAHostThatMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{})
		h := join(t, s, "hv1")
		sync := func(host, ip string) (all []string) {
			h.forget()
			var r struct {
				Tunnels []struct {
					IP   string `json:"ip_address"`
					Host string `json:"host"`
				} `json:"tunnels"`
			}
			h.ask("1.4", "tunnel_sync", map[string]any{"tunnel_ip": ip, "tunnel_type": "vxlan", "host": host}, &r)
			for _, e := range r.Tunnels {
				all = append(all, e.Host+" "+e.IP)
			}
			return all
		}
		sync("hv2", "192.0.2.2")
		if all := sync("hv2", "192.0.2.3"); !slices.Equal(all, []string{"hv2 192.0.2.3"}) || h.count("tunnel_delete", "192.0.2.2", "vxlan") != 1 || h.count("tunnel_update", "192.0.2.3") != 1 {
			t.Errorf("another address: %v, told %v", all, h.messages())
		}
		if all := sync("hv3", "192.0.2.3"); !slices.Equal(all, []string{"hv3 192.0.2.3"}) || h.count("tunnel_delete") != 0 {
			t.Errorf("another host's address: %v, told %v", all, h.messages())
		}
		if sync("hv3", "192.0.2.3"); h.count("tunnel_delete") != 0 {
			t.Errorf("the same again: told %v", h.messages())
		}
	})
}

// A port is ACTIVE when the layer-2 agent and the DHCP agent are both ready with it, in whatever order.
func TestProvisioning(t *testing.T) {
	report := func(h *host) {
		h.ask("1.8", "update_device_list", map[string]any{"devices_up": []string{"P"}, "devices_down": []string{}, "host": "hv1"}, nil)
	}
	synctest.Test(t, func(t *testing.T) {
		s := small(t, Config{DHCP: 3 * time.Second})
		h := join(t, s, "hv1")
		report(h)
		if got := s.Status("P"); got != down {
			t.Errorf("before the DHCP agent is ready it is %s", got)
		}
		wait(4 * time.Second)
		if got := s.Status("P"); got != active || h.count("Port-1.7", `"status":"ACTIVE"`) != 1 || h.count("add_fdb_entries") == 0 {
			t.Errorf("afterwards it is %s, told %v", got, h.messages())
		}
	})
	synctest.Test(t, func(t *testing.T) {
		s := small(t, Config{DHCP: 3 * time.Second})
		wait(4 * time.Second)
		if got := s.Status("P"); got != down {
			t.Errorf("before the layer-2 agent is ready it is %s", got)
		}
		report(join(t, s, "hv1"))
		if got := s.Status("P"); got != active {
			t.Errorf("afterwards it is %s", got)
		}
	})
}

func TestFailedDevices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := small(t, Config{Unkind: Unkind{Seed: 1, Devices: 1}})
		h := join(t, s, "hv1")
		var r map[string][]any
		update := map[string]any{"devices_up": []string{"P"}, "devices_down": []string{"Q"}, "host": "hv1"}
		h.ask("1.8", "update_device_list", update, &r)
		if got := fmt.Sprint(r); got != "map[devices_down:[] devices_up:[] failed_devices_down:[Q] failed_devices_up:[P]]" || s.Status("P") != down {
			t.Errorf("%s, the port is %s", got, s.Status("P"))
		}
		s.Be(Unkind{})
		h.ask("1.8", "update_device_list", update, &r)
		if got := fmt.Sprint(r); got != "map[devices_down:[map[device:Q exists:true]] devices_up:[P] failed_devices_down:[] failed_devices_up:[]]" || s.Status("P") != active {
			t.Errorf("%s, the port is %s", got, s.Status("P"))
		}
	})
}

// A server pushes in its own version and in those that agents have reported, without the fields that came later; it refuses
// newer ones, and one agent that reports such a version has nobody told anything.
func TestReleases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := small(t, Config{Release: 17})
		h := join(t, s, "hv1")
		pull := func(kind, version string) error {
			return h.Call(t.Context(), messaging.Target{Topic: plugin, Version: "1.1"}, "bulk_pull", map[string]any{
				"resource_type": kind, "version": version, "filter_kwargs": map[string]any{},
			}, nil)
		}
		if err := pull("Port", "1.7"); !errors.Is(err, messaging.Class("InvalidTargetVersion")) {
			t.Errorf("a newer version: %v", err)
		}
		if err := pull("AddressGroup", "1.0"); !errors.Is(err, messaging.Class("InvalidResourceTypeClass")) {
			t.Errorf("a later kind: %v", err)
		}
		rename(t, s, "one")
		wait(time.Second)
		if h.count("Port-1.5", `"versioned_object.version":"1.5"`) != 1 || h.count("Port-1.7") != 0 || h.count("hints") != 0 {
			t.Errorf("told %v", h.messages())
		}
		s.agents["hv1"].versions = map[string]string{"Port": "1.7"}
		h.forget()
		rename(t, s, "two")
		wait(time.Second)
		if len(h.messages()) != 0 {
			t.Errorf("told %v, although an agent wants to hear of what the server does not have", h.messages())
		}
	})
	synctest.Test(t, func(t *testing.T) {
		s := small(t, Config{Release: 29})
		h := join(t, s, "hv1")
		s.agents["hv1"].versions = map[string]string{"Port": "1.7"}
		rename(t, s, "one")
		wait(time.Second)
		if h.count("Port-1.7", `"versioned_object.version":"1.7"`, "qos_network_policy_id") != 1 || h.count("hints") != 0 {
			t.Errorf("told %v", h.messages())
		}
	})
}

// Half of what is lost was carried out, calls that fail were not, and the same seed does the same again.
func TestLostAndFailed(t *testing.T) {
	run := func(seed uint64) (lost, done, failed int) {
		s := small(t, Config{Unkind: Unkind{Seed: seed, Lose: 0.5, Fail: 0.2}})
		for i := range 100 {
			had := s.Status("P")
			method := []string{"update_device_up", "update_device_down"}[i%2]
			_, err := s.Handle(t.Context(), &messaging.Message{Topic: plugin, Version: "1.8", Method: method, Args: json.RawMessage(`{"device": "P", "host": "hv1"}`)})
			switch changed := s.Status("P") != had; {
			case errors.Is(err, ErrLost) && changed:
				done++
			case errors.Is(err, ErrLost):
				lost++
			case err != nil && changed:
				t.Error("a call that failed was carried out")
			case err != nil:
				failed++
			}
		}
		return lost, done, failed
	}
	lost, done, failed := run(7)
	if lost < 5 || done < 5 || failed < 5 {
		t.Errorf("%d lost before, %d after, %d failed of 100", lost, done, failed)
	}
	if l, d, f := run(7); l != lost || d != done || f != failed {
		t.Errorf("again with the same seed: %d, %d, %d, before %d, %d, %d", l, d, f, lost, done, failed)
	}
}

func TestParseUnkind(t *testing.T) {
	if u, err := ParseUnkind("seed=5,all"); err != nil || u != Unkinder(5) {
		t.Errorf("%v, %v", u, err)
	}
	if u, err := ParseUnkind("delay=500ms,reorder,duplicate=0.1,fail=0.2,lose=0.3,devices=0.4,seed=9"); err != nil ||
		u != (Unkind{Seed: 9, Delay: 500 * time.Millisecond, Reorder: true, Duplicate: 0.1, Fail: 0.2, Lose: 0.3, Devices: 0.4}) {
		t.Errorf("%v, %v", u, err)
	}
	if u, err := ParseUnkind("all"); err != nil || u.Seed == 0 {
		t.Errorf("no seed: %v, %v", u, err)
	}
	if u, err := ParseUnkind(""); err != nil || u != (Unkind{}) {
		t.Errorf("nothing: %v, %v", u, err)
	}
	if _, err := ParseUnkind("nasty"); err == nil {
		t.Error("nasty is taken")
	}
}
