// SPDX-License-Identifier: Apache-2.0

//go:build bench

package bench

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"

	"github.com/patchbay-sdn/patchbay/lab"
)

const good = 47 // of 50; three are in trouble

// badNeighbours compares how long good ports take alone, and beside one that the switch cannot make, one that the server
// does not know and one that comes and goes.
func (b *bench) badNeighbours(t *testing.T) {
	b.use(t, lab.Patchbay)
	all := b.fill(t, good+1)
	list, flapping := all[:good], all[good:]
	var alone, beside []time.Duration
	for range runs(5) {
		alone = append(alone, b.plug(t, list).all)
		stop := b.trouble(t, flapping)
		beside = append(beside, b.plug(t, list).all)
		stop()
		b.wait(t, "DOWN", flapping)
	}
	t.Logf("alone %v, beside %v", alone, beside)
	text, ratio := times(median(beside), median(alone))
	b.table.add(t, row{
		what: fmt.Sprintf("%d ports beside 3 in trouble, all ACTIVE; alone %s", good, ms(median(alone))), patchbay: ms(median(beside)),
		ratio: text, target: "≤ 1.2 × alone", met: ratio <= 1.2,
	})
}

// trouble plugs the three and returns what takes them off again.
func (b *bench) trouble(t *testing.T, flapping []ports.Port) (stop func()) {
	t.Helper()
	sw := b.host.Switch()
	ctx, cancel := context.WithCancel(t.Context())
	broken, stranger := "00000000-aaaa-4000-8000-000000000001", "00000000-bbbb-4000-8000-000000000002"
	if err := b.host.PlugMany(ctx, []ports.Port{{ID: stranger, MACAddress: "fa:16:3e:00:00:02"}}); err != nil {
		t.Fatal(err)
	}
	// ovs-vsctl would wait for the switch to make what it cannot make.
	if _, err := sw.Vsctl(ctx, "--no-wait", "--may-exist", "add-port", "br-int", "tapmissing", "--", "set", "Interface", "tapmissing",
		"external_ids:iface-id="+broken, `external_ids:attached-mac="fa:16:3e:00:00:01"`); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for plugged := false; ; plugged = !plugged {
			// An error is what the end of the context makes of a command.
			if plugged {
				_ = b.host.UnplugMany(ctx, flapping)
			} else {
				_ = b.host.PlugMany(ctx, flapping)
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() {
		cancel()
		<-done
		_, err := sw.Vsctl(context.Background(), "--if-exists", "del-port", "br-int", "tapmissing")
		if err == nil {
			err = b.host.UnplugMany(context.Background(), append([]ports.Port{{ID: stranger}}, flapping...))
		}
		if err != nil {
			t.Error(err)
		}
	}
}
