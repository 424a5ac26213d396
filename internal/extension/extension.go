// SPDX-License-Identifier: Apache-2.0

// Package extension is the interface between the agent and what can be added to it: quality of service, trunks, distributed
// routing and the like. docs/tutorial/first-extension.md shows how to write one.
//
// An [Extension] has three methods: its name, what follows from a change, and what it wants of an object. What else it does it
// says by implementing optional interfaces: [PushHandler], [CastHandler], [RowHandler], [PacketHandler], [Bounded], [Recorder], [Asker], [Warner], [Resyncer], [Puller],
// [Caller], [Timed], [Forwarder], [Server], [StateReporter], [Saver], [Explainer]. [NewMember] finds them once, by type assertion. A type that wraps an
// extension is a [Wrapper], or has to implement those that the wrapped one has.
//
// Inputs are messages of neutron-server, rows of the switch's database and changed objects of the world. Outputs are flows, rows
// and meters ([pipeline.Want]), objects to pull and calls to make. An extension does no I/O: it lists what it needs, and the
// agent calls the server. So it handles start, restart, outage, drift and takeover like the core does: as the same steps with
// other inputs.
//
// The agent's loop calls all methods, one at a time. They must not block.
package extension

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/forwarding"
	"github.com/patchbay-sdn/patchbay/internal/metaproxy"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/pipeline"
	"github.com/patchbay-sdn/patchbay/internal/resolver"
	"github.com/patchbay-sdn/patchbay/internal/world"
	"github.com/patchbay-sdn/patchbay/openflow"
)

// New makes an extension over a world, which it reads and does not change, but for [world.World.MeterIDs].
type New func(w *world.World) Extension

// Extension is what every extension implements.
type Extension interface {
	// Name returns its name in agent.extensions, in logs and in the names of its objects.
	Name() string
	// Resolve works out what follows from its inputs. Changed are the objects that changed in the world; at first these are
	// all. It returns the objects to compile besides them: its own (see [Objects]) and the world's.
	Resolve(changed []world.Object) []world.Object
	// Compile adds what it wants for an object to what the core, and the extensions before it in the list, want. A flow
	// with the table, priority and match of an earlier one replaces it; others may be taken out of want.Flows. The object may
	// be gone: then nothing is wanted of it. Compile is pure, and is called for every object, of any kind.
	Compile(o world.Object, want *pipeline.Want)
}

// PushHandler is an extension that takes pushed objects of the server.
type PushHandler interface {
	// Kinds returns the kinds of objects, always the same.
	Kinds() []neutron.Kind
	// OnPush takes a push of one of these kinds. Most are about other hosts; drop those early. An error means that the
	// push is lost, and leads to a resync.
	OnPush(p *neutron.Push) error
}

// CastHandler is an extension that takes other messages of the server.
type CastHandler interface {
	// Topics returns topics besides those of every agent (tunnels, distributed routing, forwarding entries), always the same.
	Topics() []string
	// OnCast takes a message of any topic. An error means that the message is lost, and leads to a resync.
	OnCast(method string, args []byte) error
}

// RowHandler is an extension that takes changed rows of the switch's database. The world has them already.
type RowHandler interface{ OnRows(b *ovsdb.Batch) }

// PacketHandler is an extension whose flows send packets to the agent, with the action that [ToAgent] makes.
type PacketHandler interface {
	// OnPacket takes a packet of one of its flows. It returns what to send in answer, and what became of the packet.
	OnPacket(p Packet) ([]openflow.Message, Outcome)
}

// Bounded is a [PacketHandler] whose packets have another bound than [DefaultBound], always the same.
type Bounded interface{ PacketBound() Bound }

// Recorder is a [PacketHandler] that has a log of its own. Records returns the lines that OnPacket has led to since it was last called.
type Recorder interface{ Records() []string }

// Asker is a [PacketHandler] some of whose packets are answered later: resolvers are asked first.
type Asker interface {
	// Asks returns the questions that OnPacket has led to since it was last called.
	Asks() []resolver.Ask
	// OnAnswer takes the answer to a question, or why there is none. It returns what to send by the bridge of the packet, and what became of the packet.
	OnAnswer(a resolver.Answer, err error) ([]openflow.Message, Outcome)
}

// Warner is an extension that may be unable to apply an object of neutron-server. Warnings returns a sentence for each such object since the last call; the agent logs them.
type Warner interface{ Warnings() []string }

// Resyncer is an extension that knows something of the server. Resync says that messages may have been lost: everything is to be
// asked for again. What is known stays in force.
type Resyncer interface{ Resync() }

// Puller is an extension that needs objects of the server.
type Puller interface {
	// Missing returns the objects to pull now, whether a pull is on its way or not. Until there is none the agent is not
	// in sync, and deletes nothing. Objects of one kind are asked for by one field.
	Missing() []Item
	// OnPulled takes the objects that were found of those that were asked for, by the values of the field that they were asked for by.
	OnPulled(kind neutron.Kind, asked []string, found []neutron.Primitive) error
}

// Item is an object of the server; or, if By is set, all objects of the kind that have ID as the value of the field By. After the field may come
// conditions that they meet, too: network_id&device_owner=network:dhcp.
type Item struct {
	Kind neutron.Kind
	ID   string
	By   string // "": the id
}

// Sorted returns items in a stable order, as Missing lists them.
func Sorted(items map[Item]bool) []Item {
	return slices.SortedFunc(maps.Keys(items), func(a, b Item) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.By, b.By), cmp.Compare(a.ID, b.ID))
	})
}

// Caller is an extension that calls the server in other ways.
type Caller interface {
	// Calls returns the calls to make now, whether they are on their way or not. Until there is none, but for those in the background, the agent
	// is not in sync.
	Calls() []Call
	// OnCall takes the outcome of a call. While the call is still listed it is made again, with growing pauses.
	OnCall(k Key, result any, err error)
}

// Key says which call it is: a comparable value of the extension's own type, and its text for logs. Calls with equal keys do
// not run at the same time.
type Key interface{ fmt.Stringer }

// Call is a call of the server. Run runs beside the loop.
type Call struct {
	Key Key
	Run func(ctx context.Context, server *neutron.Server) (any, error)
	// Background: the agent is in sync without the answer.
	Background bool
}

// Timed is an extension that waits for a time. The agent is in sync meanwhile, and needs no server for it.
type Timed interface {
	// Deadline returns the next time to wait for; zero for none.
	Deadline() time.Time
	// OnTime takes that the deadline has passed. The next one is later than now.
	OnTime(now time.Time)
}

// Forwarder is an extension that keeps entries in the forwarding tables of network devices.
type Forwarder interface {
	// Devices returns the devices whose links are followed, always the same.
	Devices() []string
	// Forwarding returns what to do now, if there is something, whether it is on its way or not. Open returns whether everything is known that
	// could want an entry: nothing is deleted before.
	Forwarding(open func() bool) (forwarding.Job, bool)
	// OnForwarding takes the outcome of a job, or that a device has changed. What is still listed is done again, with growing pauses if it fails.
	OnForwarding(o forwarding.Outcome, now time.Time)
}

// Server is an extension for which a service of the agent answers: the metadata proxy.
type Server interface {
	// Service returns what the service is to be, which does not change any more: another one is another pointer. Nil: none is needed yet.
	Service() *metaproxy.Service
	// OnService takes how the service is.
	OnService(s metaproxy.State)
}

// StateReporter is an extension that adds to the state report.
type StateReporter interface {
	AddState(c *neutron.Configurations)
}

// Saver is an extension whose knowledge goes into the snapshot.
type Saver interface {
	// Save returns a value for encoding/json that shares nothing with what changes later; nil for none.
	Save() any
	// Load takes what an earlier run saved, before any other input.
	Load(data json.RawMessage) error
}

// Explainer is an extension that explains itself. Explain returns sentences: what it does about an object, and what it waits for.
type Explainer interface {
	Explain(o world.Object) []string
}

// Objects names the extension's own objects by keys of its own type, whose text people see. The value is the extension's name.
type Objects[K comparable] string

// Object returns the object with a key.
func (n Objects[K]) Object(key K) world.Object {
	return world.ExtensionObject{Extension: string(n), Key: key}
}

// Key returns the key of an object, if the object is the extension's own.
func (n Objects[K]) Key(o world.Object) (key K, ok bool) {
	own, ok := o.(world.ExtensionObject)
	if !ok || own.Extension != string(n) {
		return key, false
	}
	key, ok = own.Key.(K)
	return key, ok
}
