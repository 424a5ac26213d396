// SPDX-License-Identifier: Apache-2.0

package core

import (
	"errors"
	"log/slog"
	"reflect"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/effect"
	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/pipeline"
	"github.com/patchbay-sdn/patchbay/internal/pull"
	"github.com/patchbay-sdn/patchbay/internal/world"
)

// What extensions hear, ask and do is in the flight recorder, under the ids that people look for.
func TestExtensionsInTheRecorder(t *testing.T) {
	a := New(Config{
		Log: slog.New(slog.DiscardHandler), Recorder: &Recorder{}, Extensions: []extension.New{func(*world.World) extension.Extension { return &curious{} }},
	}, nil, time.Now())
	policy := []neutron.Primitive{{Name: "QosPolicy", Data: []byte(`{"id":"q1"}`)}}
	a.seen.noteMessage(&neutron.Push{Kind: neutron.KindQosPolicy, Event: neutron.Updated, Objects: policy})
	a.seen.noteMessage(&neutron.Push{Kind: neutron.KindSubPort, Event: neutron.Created, Objects: []neutron.Primitive{{Name: "SubPort", Data: []byte(`{"port_id":"p1"}`)}}})
	a.seen.noteMessage(&neutron.DVRUpdate{MACs: make([]neutron.DVRMAC, 3)})
	a.seen.note(effect.Pulled{Batch: pull.Batch{Owner: pull.Extensions, Kind: neutron.KindQosPolicy, IDs: []string{"q1"}}, Reply: effect.Reply{Objects: policy}}, a.extensions.Set)
	a.seen.note(effect.Called{CallKey: effect.CallKey{Key: greet{}}, Err: errors.New("no")}, a.extensions.Set)
	events := a.log.recorder.Events()
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
	k := &containment{}
	all := guard(extension.NewMember(&guarded{in: extension.NewMember(&curious{})}), k, nil)
	none := guard(extension.NewMember(&refusing{}), k, nil)
	for i, field := range reflect.VisibleFields(reflect.TypeFor[extension.Member]()) {
		if g, ok := reflect.ValueOf(all).Field(i).Interface().(*guarded); !ok || g.contained != k {
			t.Errorf("%s is not guarded", field.Name)
		}
		if field.Name != "Extension" && !reflect.ValueOf(none).Field(i).IsNil() {
			t.Errorf("an extension without %s has one", field.Name)
		}
	}
}

// curious is an extension that wants policies, and has one call.
type curious struct {
	idle
	missing []string
}

func (*curious) Name() string { return "curious" }

func (*curious) Kinds() []neutron.Kind { return []neutron.Kind{neutron.KindQosPolicy} }

func (*curious) OnPush(*neutron.Push) error { return nil }

func (c *curious) Missing() (out []extension.Item) {
	for _, id := range c.missing {
		out = append(out, extension.Item{Kind: neutron.KindQosPolicy, ID: id})
	}
	return out
}

func (c *curious) OnPulled(neutron.Kind, []string, []neutron.Primitive) error { return nil }

// greet is the key of a call.
type greet struct{}

func (greet) String() string { return "greet" }

// idle is the part of an extension that wants nothing.
type idle struct{}

func (idle) Resolve([]world.Object) []world.Object { return nil }

func (idle) Compile(world.Object, *pipeline.Want) {}
