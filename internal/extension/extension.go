// SPDX-License-Identifier: Apache-2.0

// Package extension is the seam between the agent's loop and what can be added to it: quality of service, trunks,
// distributed routing and the like.
//
// An [Extension] is a piece of the world with its own news, and a pure function from what is known to what is wanted. It
// declares what it hears, keeps what it learns in plain fields, and says of each object which flows, rows and meters it adds.
// It does no I/O: what it has to ask, it lists ([Extension.Missing], [Extension.Due]), and the loop asks. So it needs no idea
// of start, restart, a switch that lost its flows, an outage, drift or takeover: they are the same path with other inputs, as
// for ports.
//
// The loop owns an extension: its methods are called by one goroutine, one at a time, and must not block. Embed [Nothing] and
// write the methods that matter. docs/extensions.md walks through one.
//
// The loop knows the interface and a list ([Set]), never an extension by name.
package extension

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/pipeline"
	"github.com/patchbay-sdn/patchbay/internal/world"
	"github.com/patchbay-sdn/patchbay/openflow"
)

// New makes an extension over a world, which it reads and does not change.
type New func(w *world.World) Extension

// Extension is a capability beside the others.
type Extension interface {
	// Name is its name in agent.extensions, in logs and in the names of its objects.
	Name() string

	// Listens says what it hears besides changes of the world and of rows. It is always the same.
	Listens() Listens
	// Push takes news about objects of one of its kinds. Most are about other hosts; drop those early.
	Push(p *neutron.Push) error
	// Cast takes any other message of the server, by its method.
	Cast(method string, args []byte) error
	// Rows takes changed rows of the switch's database. The world has them already.
	Rows(b *ovsdb.Batch)
	// Packet takes a packet that a flow sent to the controller, and returns what to send in answer.
	Packet(bridge string, p *openflow.PacketIn) []openflow.Message
	// Doubt says that news may have been missed: everything is to be asked for again. What is known stays in force.
	Doubt()

	// Settle works out what follows from the news. Changed are objects that have changed in the world; at first that is
	// everything. It returns what has to be compiled besides them: objects of its own (see [Own]) and of the world.
	Settle(changed []world.Object) []world.Object
	// Compile adds what it wants for an object to what the core, and the extensions before it in the list, want. A flow
	// with the table, priority and match of an earlier one replaces it; others may be taken out of want.Flows. The object may
	// be gone: then nothing is wanted of it. Compile is pure, and is called for every object, of any kind.
	Compile(o world.Object, want *pipeline.Want)

	// Missing lists the objects that the server has to be asked for now, whether they are being asked for or not. Until
	// there is none nothing is taken for left over. Answer takes the objects that were found of those that were asked for.
	Missing() []Item
	Answer(kind neutron.Kind, asked []string, found []neutron.Primitive) error
	// Due lists other work that has to be done now beside the loop, such as a call of its own or a report, whether it is
	// being done or not. Done takes the outcome; as long as the task is still listed it is done again, later and later.
	Due() []Task
	Done(id string, result any, err error)
	// Report adds to the state report.
	Report(c *neutron.Configurations)

	// Remember is what of its knowledge goes into the snapshot: a value for encoding/json that shares nothing with what
	// changes later, nil for none. Recall takes what an earlier run remembered, before anything else is heard.
	Remember() any
	Recall(data json.RawMessage) error

	// Explain tells in sentences what it does about an object, and what it waits for.
	Explain(o world.Object) []string
}

// Listens is what an extension hears.
type Listens struct {
	Kinds []neutron.Kind // of pushed objects
	// Topics of casts, besides those that every agent hears: tunnels, distributed routing and forwarding entries.
	Topics []string
	// Packets: flows of the extension send packets to the controller.
	Packets bool
}

// Item is an object to ask the server for.
type Item struct {
	Kind neutron.Kind
	ID   string
}

// Task is work beside the loop. ID says what it is about: tasks of one id are not done at the same time.
type Task struct {
	ID string
	// At, if set, is when to do it. Until then nobody waits for it.
	At  time.Time
	Run func(ctx context.Context, server *neutron.Server) (any, error)
}

// Own names an object of an extension's own.
func Own(extension, id string) world.Object {
	return world.Object{Kind: world.KindExtension, ID: extension + " " + id}
}

// Mine returns the id that an extension gave to an object of its own.
func Mine(extension string, o world.Object) (id string, ok bool) {
	if o.Kind != world.KindExtension {
		return "", false
	}
	return strings.CutPrefix(o.ID, extension+" ")
}

// Nothing hears nothing and wants nothing. Embedding it leaves an extension to write what matters to it.
type Nothing struct{}

// Listens implements Extension.
func (Nothing) Listens() Listens { return Listens{} }

// Push implements Extension.
func (Nothing) Push(*neutron.Push) error { return nil }

// Cast implements Extension.
func (Nothing) Cast(string, []byte) error { return nil }

// Rows implements Extension.
func (Nothing) Rows(*ovsdb.Batch) {}

// Packet implements Extension.
func (Nothing) Packet(string, *openflow.PacketIn) []openflow.Message { return nil }

// Doubt implements Extension.
func (Nothing) Doubt() {}

// Settle implements Extension.
func (Nothing) Settle([]world.Object) []world.Object { return nil }

// Compile implements Extension.
func (Nothing) Compile(world.Object, *pipeline.Want) {}

// Missing implements Extension.
func (Nothing) Missing() []Item { return nil }

// Answer implements Extension.
func (Nothing) Answer(neutron.Kind, []string, []neutron.Primitive) error { return nil }

// Due implements Extension.
func (Nothing) Due() []Task { return nil }

// Done implements Extension.
func (Nothing) Done(string, any, error) {}

// Report implements Extension.
func (Nothing) Report(*neutron.Configurations) {}

// Remember implements Extension.
func (Nothing) Remember() any { return nil }

// Recall implements Extension.
func (Nothing) Recall(json.RawMessage) error { return nil }

// Explain implements Extension.
func (Nothing) Explain(world.Object) []string { return nil }
