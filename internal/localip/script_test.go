// SPDX-License-Identifier: Apache-2.0

package localip

import (
	"flag"
	"strings"
	"testing"

	"github.com/patchbay-sdn/patchbay/internal/extension/extensiontest"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/world"
)

var update = flag.Bool("update", false, "write the answers into testdata")

func TestScripts(t *testing.T) {
	extensiontest.Run(t, "testdata/static*.script", *update, New(true))
	extensiontest.Run(t, "testdata/tracked*.script", *update, New(false))
}

// bench returns an extension with a port of which nothing is asked for any more.
func bench() (*LocalIP, *port) {
	l := New(true)(world.New(world.Config{})).(*LocalIP)
	have := &port{has: map[string]association{}}
	l.ports["p"], l.missing["p"] = have, true
	l.segments[have.segment] = &segment{ports: map[string]bool{"p": true}}
	return l, have
}

func primitive(id, address string) neutron.Primitive {
	return neutron.Primitive{Name: "LocalIPAssociation", Data: []byte(`{"local_ip_id":"` + id + `","fixed_port_id":"p","fixed_ip":"10.0.0.1",
		"local_ip":{"versioned_object.data":{"local_ip_address":"` + address + `","ip_mode":"translate"}}}`)}
}

// An answer that left before a push does not undo it: the push is kept, and the server is asked once more.
func TestPushWhileAsked(t *testing.T) {
	l, have := bench()
	push := func(event neutron.Event, o neutron.Primitive) {
		t.Helper()
		if err := l.OnPush(&neutron.Push{Kind: neutron.KindLocalIPAssociation, Event: event, Objects: []neutron.Primitive{o}}); err != nil {
			t.Fatal(err)
		}
	}
	pulled := func(found ...neutron.Primitive) {
		t.Helper()
		if err := l.OnPulled(neutron.KindLocalIPAssociation, []string{"p"}, found); err != nil {
			t.Fatal(err)
		}
	}
	push(neutron.Created, primitive("a", "10.0.0.9"))
	pulled() // as it was before
	if len(have.has) != 1 || len(l.Missing()) != 1 {
		t.Fatalf("after an old answer there are %v, and %v is asked for", have.has, l.Missing())
	}
	pulled(primitive("a", "10.0.0.9"), primitive("b", "10.0.0.8"))
	if len(have.has) != 2 || len(l.Missing()) != 0 {
		t.Fatalf("after the answer there are %v, and %v is asked for", have.has, l.Missing())
	}
	l.Resync()
	pulled(primitive("b", "10.0.0.8"))
	if len(have.has) != 1 {
		t.Errorf("after a resync there are %v", have.has)
	}
	if got := l.Missing(); len(got) != 0 {
		t.Errorf("%v is asked for", got)
	}
}

// What cannot be translated is told once, and does no harm.
func TestWarnings(t *testing.T) {
	l, have := bench()
	for range 2 {
		if err := l.OnPulled(neutron.KindLocalIPAssociation, []string{"p"}, []neutron.Primitive{primitive("a", "fd00::9"), primitive("b", "nonsense"), primitive("c", "10.0.0.9")}); err != nil {
			t.Fatal(err)
		}
		l.Resync()
	}
	got := l.Warnings()
	if len(got) != 2 || !strings.Contains(strings.Join(got, "\n"), "fd00::9 and 10.0.0.1 are not both IPv4") {
		t.Errorf("warnings: %q", got)
	}
	if have.has["c"].Problem != "" || have.has["a"].Problem == "" || len(l.Warnings()) != 0 {
		t.Errorf("%+v", have.has)
	}
	if err := l.OnPulled(neutron.KindLocalIPAssociation, []string{"p"}, []neutron.Primitive{{Name: "LocalIPAssociation", Data: []byte(`{`)}}); err == nil {
		t.Error("what cannot be read is taken")
	}
}
