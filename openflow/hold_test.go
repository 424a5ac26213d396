// SPDX-License-Identifier: Apache-2.0

package openflow

import (
	"net/netip"
	"runtime"
	"testing"
)

// pipelineFlow makes flows as a Neutron agent has them: firewall rules,
// anti-spoofing, unicast to tunnels and ARP answers.
func pipelineFlow(i int) Flow {
	mac := MAC{0xfa, 0x16, 0x3e, byte(i >> 16), byte(i >> 8), byte(i)}
	ip := netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
	port := uint64(1 + i%200)
	const cookie = 0x1234567890abcdef
	switch i % 4 {
	case 0:
		return Flow{Table: 82, Priority: 77, Cookie: cookie, Match: Match{
			CTFlags(CTEst|CTTrk, CTRel|CTRpl), Num(EthType, EtherIPv4), Num(IPProto, ProtoTCP),
			Num(Reg5, port), IP(IPv4Src, netip.PrefixFrom(ip, 32)), Masked(TCPDst, Uint(0x400), Uint(0xfc00)),
		}, Actions: []Action{Output(port)}}
	case 1:
		return Flow{Table: 71, Priority: 65, Cookie: cookie, Match: Match{
			FromPort(uint32(port)), Num(Reg5, port), Num(EthType, EtherIPv4), HW(EthSrc, mac), Eq(IPv4Src, Addr(ip)),
		}, Actions: []Action{ConnTrack{Recirc: true, Table: 72, ZoneFrom: Reg(6).Bits(0, 15)}}}
	case 2:
		return Flow{Table: 20, Priority: 2, Cookie: cookie, Match: Match{VLAN(uint16(i % 4000)), HW(EthDst, mac)},
			Actions: []Action{PopVLAN{}, Set(TunID, Uint(uint64(i))), Output(port)}}
	default:
		return Flow{Table: 82, Priority: 73, Cookie: cookie, Match: Match{
			CTFlags(CTNew, CTEst), Num(EthType, EtherIPv4), Num(Reg6, 7), Eq(IPv4Src, Addr(ip)),
		}, Actions: []Action{Conjunction{ID: 16, Clause: 1, Of: 2}, Conjunction{ID: 24, Clause: 1, Of: 2}}}
	}
}

// 100,000 wanted flows in a map by key take at most 300 bytes of heap each.
func TestHoldFlows(t *testing.T) {
	const n = 100_000
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	want := make(map[Key]Entry)
	bytes := 0
	for i := range n {
		f := pipelineFlow(i)
		e, err := f.Entry()
		if err != nil {
			t.Fatal(err)
		}
		want[e.Key()] = e
		bytes += e.Len()
	}
	each := float64(heap()-before) / n
	if len(want) != n {
		t.Fatalf("%d flows", len(want))
	}
	t.Logf("%d flows: %.0f bytes of heap each, %.0f of them canonical bytes", n, each, float64(bytes)/n)
	if each > 300 {
		t.Errorf("%.0f bytes each", each)
	}
	runtime.KeepAlive(want)
}

// What runs once for each flow of a bridge does not allocate.
func TestHotPathAllocations(t *testing.T) {
	entries := make([]Entry, 100)
	want := map[Key]Entry{}
	for i := range entries {
		f := pipelineFlow(i)
		e, err := f.Entry()
		if err != nil {
			t.Fatal(err)
		}
		entries[i], want[e.Key()] = e, e
	}
	var reply []byte
	for _, e := range entries {
		reply = append(reply, appendFlowStat(nil, e)...)
	}
	buf := make([]byte, 0, 1<<20)
	msgs := adds(entries)
	check := func(what string, f func()) {
		t.Helper()
		if n := testing.AllocsPerRun(10, f); n != 0 {
			t.Errorf("%s: %v allocations", what, n)
		}
	}
	check("encoding flow_mods", func() {
		b := buf[:0]
		for i, m := range msgs {
			var err error
			if b, err = appendBundleAdd(b, OpenFlow14, uint32(i), 1, m); err != nil {
				t.Fatal(err)
			}
		}
	})
	check("comparing a dump", func() {
		var s FlowStat
		b := buf[:0]
		for rest := reply; len(rest) > 0; {
			var err error
			if rest, err = cutFlowStat(rest, &s); err != nil {
				t.Fatal(err)
			}
			var same bool
			if _, _, same, b = s.Lookup(want, b); !same {
				t.Fatal("not the same")
			}
		}
	})
	f := pipelineFlow(0)
	check("compiling a flow", func() {
		if _, err := f.AppendEntry(buf[:0]); err != nil {
			t.Fatal(err)
		}
	})
	check("keys", func() {
		for _, e := range entries {
			if want[e.Key()] != e {
				t.Fatal("not found")
			}
		}
	})
}

func BenchmarkCompile(b *testing.B) {
	buf := make([]byte, 0, 4096)
	flows := make([]Flow, 1000)
	for i := range flows {
		flows[i] = pipelineFlow(i)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if _, err := flows[i%1000].AppendEntry(buf[:0]); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	entries := make([]Entry, 1000)
	for i := range entries {
		f := pipelineFlow(i)
		entries[i], _ = f.Entry()
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if _, err := entries[i%1000].Flow(); err != nil {
			b.Fatal(err)
		}
	}
}
