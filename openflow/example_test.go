// SPDX-License-Identifier: Apache-2.0

package openflow_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"github.com/patchbay-sdn/patchbay/openflow"
	"github.com/patchbay-sdn/patchbay/openflow/openflowtest"
)

// A flow in Go, in the syntax of ovs-ofctl, and as the bytes that are kept.
func Example() {
	mac, err := openflow.ParseMAC("fa:16:3e:00:00:01")
	if err != nil {
		panic(err)
	}
	f := openflow.Flow{
		Table: 71, Priority: 65, Cookie: 0xfeed,
		Match: openflow.Match{
			openflow.FromPort(3),
			openflow.Num(openflow.Reg5, 3),
			openflow.Num(openflow.EthType, openflow.EtherIPv4),
			openflow.HW(openflow.EthSrc, mac),
			openflow.IP(openflow.IPv4Src, netip.MustParsePrefix("10.0.0.0/24")),
		},
		Actions: []openflow.Action{openflow.ConnTrack{Recirc: true, Table: 72, ZoneFrom: openflow.Reg(6).Bits(0, 15)}},
	}
	e, err := f.Entry()
	if err != nil {
		panic(err)
	}
	fmt.Println(e)
	fmt.Println(e.Key())
	fmt.Println(e.Len(), "bytes")
	// Output:
	// table=71,priority=65,cookie=0xfeed,ip,reg5=0x3,in_port=3,dl_src=fa:16:3e:00:00:01,nw_src=10.0.0.0/24,actions=ct(table=72,zone=NXM_NX_REG6[0..15])
	// table=71,priority=65,ip,reg5=0x3,in_port=3,dl_src=fa:16:3e:00:00:01,nw_src=10.0.0.0/24
	// 97 bytes
}

// The text of a flow is parsed, and is the same flow whatever its order.
func ExampleParseFlow() {
	a, err := openflow.ParseFlow("table=60,priority=9,tcp,tcp_dst=80,in_port=1,actions=strip_vlan,output:2")
	if err != nil {
		panic(err)
	}
	b, err := openflow.ParseFlow("table=60,priority=9,in_port=1,tcp,tp_dst=0x50,actions=pop_vlan,output:2")
	if err != nil {
		panic(err)
	}
	ea, _ := a.Entry()
	eb, _ := b.Entry()
	fmt.Println(ea == eb, ea)

	_, err = openflow.ParseFlow("table=60,tcp_dst=80,actions=drop")
	fmt.Println(err)
	// Output:
	// true table=60,priority=9,tcp,in_port=1,tp_dst=80,actions=pop_vlan,output:2
	// openflow: flow "table=60,tcp_dst=80,actions=drop": tcp_dst without its protocol
}

// Bring a bridge to the flows that are wanted: read what it has, compare, and
// change the difference in one atomic step.
func ExampleConn_Commit() {
	reconcile := func(ctx context.Context, c *openflow.Conn, want map[openflow.Key]openflow.Entry) error {
		missing := make(map[openflow.Key]openflow.Entry, len(want))
		for k, e := range want {
			missing[k] = e
		}
		var msgs []openflow.Message
		var buf []byte
		err := c.DumpFlows(ctx, openflow.Filter{Table: openflow.AllTables}, func(s *openflow.FlowStat) error {
			var e openflow.Entry
			var found, same bool
			e, found, same, buf = s.Lookup(want, buf)
			switch {
			case same:
				delete(missing, e.Key()) // equal flows are not touched
			case !found:
				msgs = append(msgs, openflow.DeleteFlow(s.Entry().Key()))
			}
			return nil
		})
		if err != nil {
			return err
		}
		for _, e := range missing {
			msgs = append(msgs, openflow.AddFlow(e))
		}
		err = c.Commit(ctx, msgs)
		if refused, ok := errors.AsType[*openflow.BundleError](err); ok {
			slog.Error("nothing was changed", "err", refused)
		}
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	bridge := openflowtest.New()                  // a bridge in memory, for this example
	c, err := bridge.Dial(ctx, openflow.Config{}) // a real one: openflow.Dial(ctx, "br-int", openflow.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer bridge.Wait()
	defer func() { _ = c.Close() }()
	want := map[openflow.Key]openflow.Entry{}
	for _, text := range []string{"table=0,priority=2,in_port=1,actions=output:2", "table=0,priority=0,actions=drop"} {
		f, err := openflow.ParseFlow(text)
		if err != nil {
			fmt.Println(err)
			return
		}
		e, err := f.Entry()
		if err != nil {
			fmt.Println(err)
			return
		}
		want[e.Key()] = e
	}
	if err := reconcile(ctx, c, want); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(len(bridge.Flows()), "flows")
	if err := reconcile(ctx, c, nil); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(len(bridge.Flows()), "flows")
	// Output:
	// 2 flows
	// 0 flows
}

// Dial connects to the management socket of a local bridge.
func ExampleDial() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	c, err := openflow.Dial(ctx, "br-example", openflow.Config{})
	if err != nil {
		fmt.Println("no such bridge here")
		return
	}
	defer func() { _ = c.Close() }()
	// Output: no such bridge here
}

// Answer packets that a flow sends to the controller.
func ExampleConn_PacketIns() {
	serve := func(ctx context.Context, c *openflow.Conn) error {
		if err := c.EnablePacketIns(ctx, 0); err != nil {
			return err
		}
		for p := range c.PacketIns() { // ends with the connection
			out := openflow.PacketOut{Packet: p.Packet, Actions: []openflow.Action{openflow.Output(p.InPort())}}
			if err := c.Send(ctx, []openflow.Message{out}); err != nil {
				return err
			}
		}
		return c.Err()
	}
	_ = serve
	// Output:
}

// Keep a connection through restarts of the switch.
func ExampleSupervisor() {
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	s := openflow.Supervisor{Dial: func(ctx context.Context) (*openflow.Conn, error) {
		return openflow.Dial(ctx, "br-example", openflow.Config{})
	}}
	for link := range s.Start(ctx) {
		if link.Conn == nil {
			fmt.Println("down")
			continue
		}
		fmt.Println("up: read and restore everything")
	}
	// Output: down
}

// Meters and groups are sent before the flows that use them.
func ExampleConn_Send() {
	limit := openflow.MeterMod{Command: openflow.Add, Meter: openflow.MeterDesc{
		ID: 1, Flags: openflow.MeterPktps | openflow.MeterBurst, Bands: []openflow.Band{{Rate: 1000, Burst: 100}},
	}}
	fmt.Println(string(limit.AppendText(nil)))
	// Output: add meter=1,pktps,burst,band=type=drop,rate=1000,burst_size=100
}
