// SPDX-License-Identifier: Apache-2.0

package metadata

import (
	"flag"
	"fmt"
	"net/netip"
	"testing"

	"pgregory.net/rapid"

	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	of "github.com/patchbay-sdn/patchbay/openflow"
)

// The same cases in every run, so that a change is judged by what it changes; -rapid.seed looks for new ones.
var _ = flag.Set("rapid.seed", "1")

// Whatever rows say and in whatever order ports come and go, no two ports have one provider address, none has the network's, the proxy's or the broadcast
// address, a port keeps its own, and one goes without only if there is none left.
func TestProviderAddresses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bits := rapid.IntRange(27, 32).Draw(t, "bits")
		cfg := config(fmt.Sprintf("198.51.100.64/%d", bits))
		p := provided{cfg: cfg, used: map[netip.Addr]string{}, of: map[string]netip.Addr{}}
		view := ovsdb.NewView()
		seq := uint64(0)
		write := func(id, ip string) {
			seq++
			row := &ovsdb.Port{UUID: ovsdb.UUID(id), Name: id, OtherConfig: map[string]string{ipKey: ip}}
			view.Apply(&ovsdb.Batch{Seq: seq, Kind: ovsdb.Update, Ports: []ovsdb.Diff[ovsdb.Port]{{New: row}}})
			p.noted = nil
		}
		has := map[string]address{}
		all := 1<<(32-bits) - 3
		for range rapid.IntRange(1, 60).Draw(t, "events") {
			id := fmt.Sprint("p", rapid.IntRange(0, 20).Draw(t, "port"))
			switch rapid.IntRange(0, 3).Draw(t, "event") {
			case 0:
				write(id, fmt.Sprintf("198.51.100.%d", rapid.IntRange(60, 100).Draw(t, "octet")))
			case 1:
				p.release(id)
				delete(has, id)
			default:
				a := p.to(id, view, ovsdb.UUID(id))
				if before, kept := has[id]; kept && before.ip != a.ip {
					t.Fatalf("%s had %s and has %s", id, before.ip, a.ip)
				}
				if !a.ip.IsValid() {
					if len(has)+len(read(view)) < all {
						t.Fatalf("none for %s, of %d with %d given", id, all, len(has))
					}
					continue
				}
				has[id] = a
				last := of.MAC{}
				if a.mac == last || a.mac == gatewayMAC || a.mac[0]&1 != 0 {
					t.Fatalf("%s has MAC %s", id, a.mac)
				}
			}
		}
		seen := map[netip.Addr]string{}
		network := cfg.CIDR.Masked().Addr()
		for id, a := range has {
			if other := seen[a.ip]; other != "" {
				t.Fatalf("%s and %s have %s", id, other, a.ip)
			}
			seen[a.ip] = id
			if !cfg.CIDR.Contains(a.ip) || a.ip == network || a.ip == cfg.Gateway() || !cfg.CIDR.Contains(a.ip.Next()) {
				t.Fatalf("%s has %s of %s", id, a.ip, cfg.CIDR)
			}
		}
	})
}
