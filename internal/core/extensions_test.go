// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/pipeline"
	"github.com/patchbay-sdn/patchbay/internal/pull"
	"github.com/patchbay-sdn/patchbay/internal/world"
	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// What extensions hear, ask and do is in the flight recorder, under the ids that people look for.
func TestExtensionsInTheRecorder(t *testing.T) {
	a, err := New(Config{
		Log: slog.New(slog.DiscardHandler), Extensions: []extension.New{func(*world.World) extension.Extension { return &curious{} }},
	}, nil, func(func(messaging.Event)) (Broker, error) { return nil, nil })
	if err != nil {
		t.Fatal(err)
	}
	policy := []neutron.Primitive{{Name: "QosPolicy", Data: []byte(`{"id":"q1"}`)}}
	a.noteMessage(&neutron.Push{Kind: neutron.KindQosPolicy, Event: neutron.Updated, Objects: policy})
	a.noteMessage(&neutron.Push{Kind: neutron.KindSubPort, Event: neutron.Created, Objects: []neutron.Primitive{{Name: "SubPort", Data: []byte(`{"port_id":"p1"}`)}}})
	a.noteMessage(&neutron.DVRUpdate{MACs: make([]neutron.DVRMAC, 3)})
	a.note(pulled{batch: pull.Batch{Owner: pull.Extensions, Kind: neutron.KindQosPolicy, IDs: []string{"q1"}}, reply: reply{objects: policy}})
	a.note(called{callKey: callKey{key: greet{}}, err: errors.New("no")})
	events, err := a.Events(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"push: QosPolicy updated q1", "push: SubPort created p1", "push: router addresses of hosts, 3",
		"reply: bulk_pull of QosPolicy q1", "reply: extension curious called greet: no",
	}
	for i, e := range events {
		if got := e.Kind + ": " + e.Text; i >= len(want) || got != want[i] {
			t.Errorf("%q, want %q", got, want[min(i, len(want)-1)])
		}
	}
	if len(events) != len(want) || events[0].Subject != "q1" {
		t.Errorf("%d events, the first about %q", len(events), events[0].Subject)
	}
}

// Every optional interface of an extension is guarded, and no other.
func TestEveryInterfaceIsGuarded(t *testing.T) {
	a := &Agent{}
	all := a.guard(extension.NewMember(&guarded{in: extension.NewMember(&curious{})}))
	none := a.guard(extension.NewMember(&refusing{}))
	for i, field := range reflect.VisibleFields(reflect.TypeFor[extension.Member]()) {
		if g, ok := reflect.ValueOf(all).Field(i).Interface().(*guarded); !ok || g.a != a {
			t.Errorf("%s is not guarded", field.Name)
		}
		if field.Name != "Extension" && !reflect.ValueOf(none).Field(i).IsNil() {
			t.Errorf("an extension without %s has one", field.Name)
		}
	}
}
