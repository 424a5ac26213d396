// SPDX-License-Identifier: Apache-2.0

package extension_test

import (
	"fmt"
	"testing"

	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/pipeline"
	"github.com/patchbay-sdn/patchbay/internal/world"
	"github.com/patchbay-sdn/patchbay/openflow"
)

// answerer takes packets, and notes their keys.
type answerer struct {
	name string
	keys []string
}

func (a *answerer) Name() string                        { return a.name }
func (*answerer) Resolve([]world.Object) []world.Object { return nil }
func (*answerer) Compile(world.Object, *pipeline.Want)  {}
func (a *answerer) OnPacket(p extension.Packet) ([]openflow.Message, extension.Outcome) {
	a.keys = append(a.keys, p.Bridge+"/"+p.Key)
	return []openflow.Message{openflow.PacketOut{}}, extension.Answered
}

// TestPacketsGoToWhoseFlowSentThem: not to all, and not to one whose name begins alike.
func TestPacketsGoToWhoseFlowSentThem(t *testing.T) {
	a, b := &answerer{name: "dns"}, &answerer{name: "dnsx"}
	set := extension.Set{extension.NewMember(a), extension.NewMember(b)}
	from := func(action openflow.Action) *openflow.PacketIn {
		return &openflow.PacketIn{Userdata: []byte(action.(openflow.Controller).Userdata)}
	}
	reply := set.OnPacket("br-int", from(extension.ToAgent("dnsx", "port 1", 7)))
	if len(reply.Answer) != 1 || reply.Name != "dnsx" || reply.Outcome != extension.Answered || len(a.keys) != 0 || len(b.keys) != 1 || b.keys[0] != "br-int/port 1" {
		t.Errorf("%d answers of %q, %s; the packet came to %q and %q", len(reply.Answer), reply.Name, reply.Outcome, a.keys, b.keys)
	}
	for _, userdata := range []string{"", "dn", "log x"} {
		reply = set.OnPacket("br-int", &openflow.PacketIn{Userdata: []byte(userdata)})
		if reply.Answer != nil || reply.Name != "" || reply.Outcome != extension.Unclaimed {
			t.Errorf("userdata %q: %d answers of %q, %s", userdata, len(reply.Answer), reply.Name, reply.Outcome)
		}
	}
	if c := extension.ToAgent("dns", "k", 7).(openflow.Controller); c.Meter != 7 || c.MaxLen != 0xffff {
		t.Errorf("the action is %+v", c)
	}
	// os-ken reads a meter that is an instruction, and none in the action.
	if got := string(openflow.AppendActions(nil, extension.OnlyToAgent("dns", "k", 7))); got != "meter:7,controller(id=3,userdata=64.6e.73.20.6b)" {
		t.Errorf("a flow that only sends packets to the agent has %s", got)
	}
	ids := map[uint16]int{}
	for i := range 1000 {
		ids[extension.OnlyToAgent("dhcp", fmt.Sprint(i), 0)[0].(openflow.Controller).ID]++
	}
	for id := range uint16(extension.PacketConns) {
		if ids[id+1] < 100 || len(ids) != extension.PacketConns {
			t.Errorf("packets of 1000 ports come by connections like this: %v", ids)
		}
	}
}
