// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/fake"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/observe"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/runner"
	"github.com/patchbay-sdn/patchbay/internal/world"
	"github.com/patchbay-sdn/patchbay/openflow"
	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// picky is a broker whose server refuses every question that names one port, and knows none of the others.
type picky struct {
	*fakeBroker
	refuses string
	broken  func() bool // whether it has no database
	other   bool        // another server has it, which answers questions about nobody

	mu       sync.Mutex
	asked    int
	first    int // ports in the first question
	answered map[string]bool
}

func (p *picky) Call(ctx context.Context, t messaging.Target, method string, args, result any) error {
	all, _ := args.(map[string]any)
	filter, _ := all["filter_kwargs"].(map[string]any)
	ids, _ := filter["id"].([]string)
	p.mu.Lock()
	defer p.mu.Unlock()
	if method != "bulk_pull" || len(ids) == 0 || ids[0] == neutron.Nobody && (p.other || p.asked == 0) { // it is asked so about its versions, too
		return p.fakeBroker.Call(ctx, t, method, args, result)
	}
	if p.asked++; p.asked == 1 {
		p.first = len(ids)
	}
	if p.broken != nil && p.broken() {
		return &messaging.RemoteError{Class: "DBConnectionError", Message: "connection refused"}
	}
	if slices.Contains(ids, p.refuses) {
		return &messaging.RemoteError{Class: "KeyError", Message: "segment"}
	}
	for _, id := range ids {
		p.answered[id] = true
	}
	return p.fakeBroker.Call(ctx, t, method, args, result)
}

// run plugs ports in, named p0 and so on, lets the agent run for a while and ends it.
func (p *picky) run(t *testing.T, count int, d time.Duration) {
	t.Helper()
	p.fakeBroker = &fakeBroker{
		alive:  func() (bool, error) { return true, nil },
		report: func(neutron.AgentState) (any, error) { return "alive", nil },
	}
	p.answered = map[string]bool{}
	sw := &fakeSwitch{changes: make(chan *ovsdb.Batch)}
	a, err := New(Config{
		Host: "hv1", ReportInterval: 30 * time.Second, PortsPerReport: 20, Log: slog.New(slog.DiscardHandler),
		World:    world.Config{Host: "hv1", IntegrationBridge: "br-int"},
		Notifier: observe.NewNotifier(func(string) string { return "" }, 1),
		Link:     runner.Supervised(func(context.Context, string) (*openflow.Conn, error) { return nil, errors.New("no such bridge") }),
	}, sw, func(func(messaging.Event)) (Broker, error) { return p, nil })
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	batch := fake.Connected()
	br := &ovsdb.Bridge{UUID: "br", Name: "br-int"}
	for i := range count {
		id, n := fmt.Sprintf("p%d", i), i+1
		iface := ovsdb.UUID("i" + id)
		row := &ovsdb.Port{UUID: ovsdb.UUID("r" + id), Name: id, Interfaces: []ovsdb.UUID{iface}}
		br.Ports = append(br.Ports, row.UUID)
		batch.Ports = append(batch.Ports, ovsdb.Diff[ovsdb.Port]{New: row})
		batch.Interfaces = append(batch.Interfaces, ovsdb.Diff[ovsdb.Interface]{New: &ovsdb.Interface{
			UUID: iface, Name: id, OFPort: &n,
			ExternalIDs: map[string]string{"iface-id": id, "attached-mac": "fa:16:3e:00:00:01"},
		}})
	}
	slices.Sort(br.Ports)
	batch.Bridges = []ovsdb.Diff[ovsdb.Bridge]{{New: br}}
	sw.changes <- batch
	wait(d)
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestAPortThatTheServerRefusesWaitsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const count = 50
		p := &picky{refuses: "p17"}
		p.run(t, count, 50*time.Millisecond) // before the first pause between attempts is over
		if len(p.answered) != count-1 {
			t.Errorf("%d of %d good ports were told about: %v", len(p.answered), count-1, slices.Sorted(maps.Keys(p.answered)))
		}
		if p.first != 5 {
			t.Errorf("the first question names %d ports: the first port waits for the answer about all of them", p.first)
		}
		// The first question, two for each halving, and another for each half that is odd.
		if p.asked > 16 {
			t.Errorf("%d questions, expected at most 16", p.asked)
		}
	})
}

// TestAServerWithoutItsDatabase: it is asked again and again, but not about every port, and soon after it has it back.
func TestAServerWithoutItsDatabase(t *testing.T) {
	for _, other := range []bool{false, true} {
		t.Run(fmt.Sprintf("another has it: %v", other), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const count, away = 100, 5 * time.Minute
				back := time.Now().Add(away)
				p := &picky{broken: func() bool { return time.Now().Before(back) }, other: other}
				p.run(t, count, away+5*time.Second)
				delete(p.answered, neutron.Nobody)
				if len(p.answered) != count {
					t.Errorf("%d of %d ports were told about within 5 s", len(p.answered), count)
				}
				if most := 2 * count; p.asked > most {
					t.Errorf("%d questions in %v, expected at most %d", p.asked, away, most)
				}
			})
		})
	}
}
