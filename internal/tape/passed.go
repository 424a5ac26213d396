// SPDX-License-Identifier: Apache-2.0

package tape

import (
	"strconv"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/effect"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/rawjson"
	"github.com/patchbay-sdn/patchbay/internal/world"
)

// passed appends the line of a push about a port with which the host has nothing to do, as far as the core remembers the port; nothing if there is more
// to it. Nearly all messages are such pushes. In full they would fill the tape, and writing them would take more CPU time than deciding that they are
// foreign: so this is a line as [Writer.Write] writes it, but put together by hand, and without the message's id, which no decision depends on.
func passed(to []byte, at time.Duration, m effect.Message, push *neutron.Push) []byte {
	o := push.Objects[0]
	id, revision, ok := world.Stranger(o.Data)
	if !ok {
		return to
	}
	text := func(before, s string) {
		to = rawjson.AppendQuoted(append(to, before...), []byte(s))
	}
	yes := func(before string, v bool) { to = strconv.AppendBool(append(to, before...), v) }
	to = strconv.AppendInt(append(to, `{"at":`...), int64(at), 10)
	to = append(to, `,"take":true,"in":[{"event":"`+kindMessage+`","of":{`...)
	text(`"Topic":`, m.Topic)
	text(`,"Method":`, m.Method)
	text(`,"Namespace":`, m.Namespace)
	text(`,"Version":`, m.Version)
	yes(`,"Fanout":`, m.Fanout)
	yes(`,"Directed":`, m.Directed)
	text(`,"Args":{"event_type":`, string(push.Event))
	text(`,"resource_list":[{"versioned_object.name":`, o.Name)
	text(`,"versioned_object.version":`, o.Version)
	text(`,"versioned_object.data":{"id":`, id)
	to = strconv.AppendInt(append(to, `,"revision_number":`...), revision, 10)
	return append(to, "}}]}}}]}\n"...)
}
