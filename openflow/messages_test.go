// SPDX-License-Identifier: Apache-2.0

package openflow

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// decodeAny decodes a message with the decoder that a connection would use.
func decodeAny(b []byte) (any, error) {
	if len(b) < headerLen {
		return nil, malformed("message", "%d bytes", len(b))
	}
	h := parseHead(b)
	body := b[headerLen:]
	switch h.typ {
	case typeHello:
		return decodeHello(h, body), nil
	case typeError:
		return decodeError(body)
	case typeFeaturesReply:
		return decodeFeatures(body)
	case typeGetConfigReply:
		return decodeConfig(body)
	case typePacketIn:
		return decodePacketIn(body)
	case typeFlowRemoved:
		return decodeFlowRemoved(body)
	case typePortStatus:
		return decodePortStatus(h.version, body)
	case typeFlowMod:
		return decodeFlowMod(b)
	case typeRoleReply:
		return decodeRole(body)
	case typeGetAsyncReply:
		return decodeAsync(h.version, body)
	case typeExperimenter:
		if len(body) >= 8 && binary.BigEndian.Uint32(body) == experimenterNicira && binary.BigEndian.Uint32(body[4:]) == nxtPacketIn2 {
			return decodePacketIn2(body[8:])
		}
	case typeMultipartReply:
		return decodeMultipartAny(h, body)
	}
	return nil, nil
}

func decodeMultipartAny(h head, body []byte) (any, error) {
	typ, _, rest, err := cutMultipart(body)
	if err != nil {
		return nil, err
	}
	switch typ {
	case mpDesc:
		return decodeDesc(rest)
	case mpFlow:
		var list []Entry
		for len(rest) > 0 {
			var s FlowStat
			if rest, err = cutFlowStat(rest, &s); err != nil {
				return list, err
			}
			e := s.Entry()
			_ = e.String()
			list = append(list, e)
		}
		return list, nil
	case mpAggregate:
		return decodeAggregate(rest)
	case mpTable:
		return decodeTableStats(rest, nil)
	case mpGroup:
		return decodeGroupStats(rest, nil)
	case mpGroupDesc:
		return decodeGroups(rest, nil)
	case mpMeter:
		return decodeMeterStats(rest, nil)
	case mpMeterConfig:
		return decodeMeters(rest, nil)
	case mpMeterFeature:
		return decodeMeterFeatures(rest)
	case mpPortDesc:
		return decodePorts(h.version, rest, nil)
	case mpFlowMonitor:
		return decodeUpdates(h.version, rest, h.xid != 0)
	case mpExperimenter:
		if len(rest) >= 8 {
			return decodeUpdates(h.version, rest[8:], h.xid != 0)
		}
	}
	return nil, nil
}

// describe writes what was decoded of a message in one line.
func describe(v any) string {
	switch v := v.(type) {
	case *Error:
		return v.Error()
	case []FlowUpdate:
		var b strings.Builder
		for _, u := range v {
			fmt.Fprintf(&b, "[%v reason %d xid %#x %v]", u.Event, u.Reason, u.XID, entryText(u.Entry))
		}
		return b.String()
	case []GroupDesc:
		var out []byte
		for _, g := range v {
			out = append(g.AppendText(out), ' ')
		}
		return string(out)
	case []MeterDesc:
		var out []byte
		for _, m := range v {
			out = append(m.AppendText(out), ' ')
		}
		return string(out)
	case []TableStats:
		return fmt.Sprintf("%d tables, first %+v", len(v), v[0])
	case *PacketIn:
		return fmt.Sprintf("%d bytes of %d, table %d, cookie %#x, reason %v, %v, userdata %x, continuation %d bytes, packet %x",
			len(v.Packet), v.Total, v.Table, v.Cookie, v.Reason, v.Metadata, v.Userdata, len(v.Continuation), v.Packet[:min(16, len(v.Packet))])
	case *FlowRemoved:
		return fmt.Sprintf("%v cookie %#x reason %d after %v, %d packets", v.Key, v.Cookie, v.Reason, v.Duration.Round(time.Millisecond), v.Packets)
	}
	return fmt.Sprintf("%+v", v)
}

func entryText(e Entry) string {
	if e.IsZero() {
		return "-"
	}
	return e.String()
}

// Real replies of Open vSwitch are decoded as the golden file says.
func TestGoldenMessages(t *testing.T) {
	for _, file := range []string{"msgs4", "msgs5"} {
		var got bytes.Buffer
		for _, line := range readLines(t, "testdata/"+file+".txt") {
			kind, digits, _ := strings.Cut(line, "\t")
			wire, err := hex.DecodeString(digits)
			if err != nil {
				t.Fatal(err)
			}
			v, err := decodeAny(wire)
			if err != nil {
				t.Errorf("%s %s: %v", file, kind, err)
				continue
			}
			fmt.Fprintf(&got, "%s: %s\n", kind, describe(v))
		}
		golden(t, "testdata/"+file+".golden", got.Bytes())
	}
}

// What we can also encode comes out as the switch wrote it.
func TestGoldenMessagesEncode(t *testing.T) {
	for _, file := range []string{"msgs4", "msgs5"} {
		for _, line := range readLines(t, "testdata/"+file+".txt") {
			kind, digits, _ := strings.Cut(line, "\t")
			wire, err := hex.DecodeString(digits)
			if err != nil {
				t.Fatal(err)
			}
			h := parseHead(wire)
			v, err := decodeAny(wire)
			if err != nil {
				t.Fatal(err)
			}
			var got, want []byte
			switch v := v.(type) {
			case Role:
				got, want = appendRole(nil, h.version, h.xid, v, 0)[headerLen:], wire[headerLen:]
			case Async:
				// We write three pairs of masks, the switch of 1.4 six.
				got, want = v.appendBody(nil, h.version), wire[headerLen:]
				want = want[:len(got)]
			case []GroupDesc:
				msg, err := GroupMod{Add, v[0]}.AppendMessage(nil, h.version, 1)
				if err != nil {
					t.Fatal(err)
				}
				got, want = msg[headerLen+4:], wire[headerLen+multipartLen+4:]
			case []MeterDesc:
				msg, err := MeterMod{Add, v[0]}.AppendMessage(nil, h.version, 1)
				if err != nil {
					t.Fatal(err)
				}
				n := int(binary.BigEndian.Uint16(wire[headerLen+multipartLen:]))
				got, want = msg[headerLen+2:], wire[headerLen+multipartLen+2:headerLen+multipartLen+n]
			default:
				continue
			}
			if !bytes.Equal(got, want) {
				t.Errorf("%s %s:\n got %x\nwant %x", file, kind, got, want)
			}
		}
	}
}

func TestErrorNames(t *testing.T) {
	for _, tc := range []struct {
		body string
		name string
	}{
		{"00040009", "OFPBMC_BAD_PREREQ"},
		{"0011000d", "OFPBFC_MSG_FAILED"},                 // 1.4
		{"ffff09094f4e4600", "OFPBFC_MSG_FAILED"},         // 1.3
		{"ffff000f00002320", "NXBAC_BAD_CONJUNCTION"},     // Nicira's
		{"b0c200000000232000010206", "OFPMOFC_BAD_FLAGS"}, // 1.0's form
		{"00630001", "error 99/1"},
		{"ffff000112345678", "error 1 of experimenter 0x12345678"},
	} {
		b, err := hex.DecodeString(tc.body)
		if err != nil {
			t.Fatal(err)
		}
		e, err := decodeError(b)
		if err != nil || e.Name() != tc.name {
			t.Errorf("%s: %v, want %s (%v)", tc.body, e, tc.name, err)
		}
		if !IsError(fmt.Errorf("wrapped: %w", e), "OTHER", tc.name) || IsError(errors.New("x"), tc.name) {
			t.Errorf("%s: IsError", tc.name)
		}
	}
}

func TestHello(t *testing.T) {
	msg := appendHello(nil, []Version{OpenFlow13, OpenFlow14}, 7)
	h := parseHead(msg)
	if h.version != OpenFlow14 || h.typ != typeHello || h.length != len(msg) {
		t.Errorf("%+v", h)
	}
	if got := decodeHello(h, msg[headerLen:]); got != 1<<4|1<<5 {
		t.Errorf("bitmap %b", got)
	}
	for _, tc := range []struct {
		theirs uint32
		want   Version
	}{{1<<1 | 1<<4, OpenFlow13}, {1<<4 | 1<<5 | 1<<6, OpenFlow14}, {1 << 1, 0}} {
		v, ok := negotiate([]Version{OpenFlow13, OpenFlow14}, tc.theirs)
		if v != tc.want || ok != (tc.want != 0) {
			t.Errorf("negotiate %b: %v", tc.theirs, v)
		}
	}
	// Without a bitmap every version up to that of the header counts.
	if got := decodeHello(head{version: 4}, nil); got != 0x1f {
		t.Errorf("bitmap %b", got)
	}
}

func TestFlowTooLong(t *testing.T) {
	f := Flow{Table: 82, Priority: 73, Match: Match{Num(Reg5, 1), Num(EthType, EtherIPv4)}}
	for i := range 5000 {
		f.Actions = append(f.Actions, Conjunction{ID: uint32(i), Clause: 1, Of: 2})
	}
	_, err := f.Entry()
	var tooLong *FlowTooLongError
	if !errors.As(err, &tooLong) || tooLong.Table != 82 || tooLong.Actions != 5000 || !strings.Contains(err.Error(), "ip,reg5=0x1") {
		t.Fatal(err)
	}
	f.Actions = f.Actions[:4000]
	if _, err := f.Entry(); err != nil {
		t.Fatal(err)
	}
	// The very longest flow still fits into a bundle of 1.3.
	for len(f.Actions) < 5000 {
		more := f
		more.Actions = append(f.Actions[:len(f.Actions):len(f.Actions)], Conjunction{ID: 1, Clause: 1, Of: 2})
		e, err := more.Entry()
		if err != nil {
			break
		}
		if _, err := appendBundleAdd(nil, OpenFlow13, 1, 1, AddFlow(e)); err != nil {
			t.Fatalf("%d actions: %v", len(more.Actions), err)
		}
		f = more
	}
}

func TestBadFlows(t *testing.T) {
	for _, f := range []Flow{
		{Match: Match{FromPort(1), FromPort(2)}},
		{Match: Match{Num(VLANPCP, 9)}},
		{Match: Match{Num(InPort16, 1)}},
		{Match: Match{Num(XReg0, 1), Num(Reg1, 1)}},
		{Actions: []Action{nil}},
		{Actions: []Action{GotoTable(1), GotoTable(2)}},
		{Actions: []Action{Clone{Actions: []Action{Meter(1)}}}},
		{Actions: []Action{Load{Value: 2, To: Reg(0).Bits(0, 0)}}},
		{Actions: []Action{Load{To: Bits{}}}},
		{Actions: []Action{Move{From: Reg(0).Bits(0, 3), To: Reg(1).Bits(0, 4)}}},
		{Actions: []Action{Conjunction{Clause: 3, Of: 2}}},
		{Actions: []Action{Set(IPDSCP, Uint(64))}},
		{Actions: []Action{ConnTrack{ZoneFrom: Reg(0).Bits(0, 7)}}},
		{Actions: []Action{RawAction("short")}},
	} {
		if e, err := f.Entry(); err == nil {
			t.Errorf("no error for %v", e)
		} else if !strings.Contains(err.Error(), "table=0,priority=0") {
			t.Errorf("error does not name the flow: %v", err)
		}
	}
}

// The zero values are no flow and do no harm.
func TestZeroEntry(t *testing.T) {
	var e Entry
	var k Key
	if e.Key() != k || e.Table() != 0 || e.Priority() != 0 || e.Cookie() != 0 || e.String() != "" || k.String() != "" ||
		e.WithCookie(1) != e || e.Len() != 0 || k.Compare(k) != 0 || e.SameActions(e) || !e.IsZero() || !k.IsZero() {
		t.Error("not zero")
	}
	if _, err := e.Flow(); err == nil {
		t.Error("a flow of nothing")
	}
	if m, err := k.Match(); err != nil || m != nil {
		t.Error("a match of nothing")
	}
	for _, m := range []FlowMod{AddFlow(e), DeleteFlow(k)} {
		if _, err := m.AppendMessage(nil, OpenFlow14, 1); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", m.AppendText(nil), err)
		}
	}
	f := Flow{Table: 7, Match: Match{FromPort(3)}}
	full, err := f.Entry()
	if err != nil {
		t.Fatal(err)
	}
	again, err := EntryOf([]byte(full.Canonical()))
	if err != nil || again != full {
		t.Errorf("%v %v", again, err)
	}
	for n := range full.Len() {
		if n < len(full.Canonical()) {
			if _, err := EntryOf([]byte(full.Canonical()[:n])); err == nil {
				t.Errorf("an entry of %d bytes", n)
			}
		}
	}
}

func TestParseErrors(t *testing.T) {
	for _, s := range []string{
		"table=300,actions=drop", "tcp_dst=80,actions=drop", "ip,nw_dst=10.0.0.0/33,actions=drop",
		"nonsense=1,actions=drop", "actions=nonsense", "actions=output:x", "actions=load:1->NXM_NX_REG0[32]",
		"actions=resubmit(,999)", "actions=ct(table=x)", "ip,tp_dst=80,actions=drop", "arp,ip,actions=drop",
		"actions=learn(table=1,foo)", "dl_src=00:00:00:00:00,actions=drop", "actions=drop,output:1",
		"ct_state=+foo,actions=drop", "actions=set_field:1->nofield", "actions=set_field:1",
		"reg0=0x100000000,actions=drop", "actions=raw(0x00)",
	} {
		if f, err := ParseFlow(s); err == nil {
			t.Errorf("%s gives %s", s, f.String())
		}
	}
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	if *update {
		writeFile(t, name, got)
		return
	}
	want := strings.Join(readLines(t, name), "\n")
	if diff := cmp.Diff(want, strings.TrimSpace(string(got))); diff != "" {
		t.Errorf("%s: %s", name, diff)
	}
}

// Items of lists say how long they are; one that is shorter than its fields, or longer than what is left, is an error.
func TestItemsOfLists(t *testing.T) {
	for name, tt := range map[string]struct {
		bytes []byte
		want  []int // lengths of items
		err   bool
	}{
		"none":           {nil, nil, false},
		"two":            {[]byte{9, 9, 0, 4, 9, 9, 0, 5, 9}, []int{4, 5}, false},
		"without length": {[]byte{9, 9, 0, 4, 9, 9, 0, 0}, []int{4}, true},
		"too short":      {[]byte{9, 9, 0, 3}, nil, true},
		"too long":       {[]byte{9, 9, 0, 5}, nil, true},
		"a rest":         {[]byte{9, 9, 0, 4, 9, 9}, []int{4}, true},
	} {
		t.Run(name, func(t *testing.T) {
			var got []int
			err := eachItem(tt.bytes, "item", 4, 2, func(item []byte) error {
				got = append(got, len(item))
				return nil
			})
			if !slices.Equal(got, tt.want) || errors.Is(err, ErrMalformed) != tt.err {
				t.Errorf("items of %v bytes, %v; want %v, an error: %v", got, err, tt.want, tt.err)
			}
		})
	}
}
