// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/capture"
	"github.com/patchbay-sdn/patchbay/internal/trace"
)

// discover is a DHCP question of a VM, as much of it as is read.
func discover() []byte {
	dhcp := append(make([]byte, 240), 53, 1, 1, 255)
	udp := append([]byte{0, 68, 0, 67, 0, 0, 0, 0}, dhcp...)
	ip := append([]byte{0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255}, udp...)
	binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
	return append([]byte{255, 255, 255, 255, 255, 255, 0xfa, 0x16, 0x3e, 0, 0, 1, 8, 0}, ip...)
}

// frames returns these, and then the end of the time.
func frames(cancel func(), list ...capture.Frame) func(context.Context) (capture.Frame, error) {
	return func(ctx context.Context) (capture.Frame, error) {
		if len(list) == 0 {
			cancel()
			return capture.Frame{}, ctx.Err()
		}
		f := list[0]
		list = list[1:]
		return f, nil
	}
}

func newSight(out *bytes.Buffer, f *captureFlags, v trace.Verdict, err error) (s *sight, asked *int) {
	asked = new(int)
	f.Rate = cmp.Or(f.Rate, 1000)
	return &sight{
		flags: f, out: out, seen: map[string]*kindOfPacket{},
		judge: func(*trace.Host, *trace.End, *trace.Interface, *capture.Content) (trace.Verdict, error) {
			*asked++
			return v, err
		},
	}, asked
}

func TestCaptureSaysWhyAVMGetsNoAddress(t *testing.T) {
	for _, c := range []struct {
		name    string
		verdict trace.Verdict
		err     error
		frames  []capture.Frame
		want    []string
		not     string
	}{
		{
			"dropped", trace.Verdict{Outcome: trace.Dropped, Text: "port web is dead: the server does not know it", Hints: []string{"look there"}}, nil,
			[]capture.Frame{{Time: noon, Data: discover()}, {Time: noon.Add(time.Second), Data: discover()}},
			[]string{
				"12:00:00.000000  from the VM  0.0.0.0:68 > 255.255.255.255:67  DHCP discover\n                 dropped: port web is dead", "look there\n",
				"2 packets from the VM, 0 packets to it\n  2 dropped: port web is dead: the server does not know it\n",
			}, "who answers DHCP",
		},
		{
			"nobody answers", trace.Verdict{Outcome: trace.Flooded, Text: "to 10.0.0.2"}, nil, []capture.Frame{{Time: noon, Data: discover()}},
			[]string{"flooded: to 10.0.0.2", "asked for an address 1 time, and no answer came"}, "dropped",
		},
		{
			"answered", trace.Verdict{Outcome: trace.Flooded, Text: "to 10.0.0.2"}, nil,
			[]capture.Frame{{Time: noon, Data: discover()}, {Time: noon, Sent: true, Data: discover()}},
			[]string{"to the VM  ", "1 packet from the VM, 1 packet to it\n"}, "no answer came",
		},
		{"the switch does not say", trace.Verdict{}, errors.New("ovs-vswitchd is gone"), []capture.Frame{{Time: noon, Data: discover()}}, []string{"unknown: ovs-vswitchd is gone"}, "dropped"},
		{"silence", trace.Verdict{}, nil, nil, []string{"the VM sends nothing"}, "dropped"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out bytes.Buffer
			s, _ := newSight(&out, &captureFlags{}, c.verdict, c.err)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if err := s.watch(ctx, frames(cancel, c.frames...)); err != nil {
				t.Fatal(err)
			}
			s.summary(&out)
			for _, want := range c.want {
				if !strings.Contains(out.String(), want) {
					t.Errorf("no %q in\n%s", want, out.String())
				}
			}
			if strings.Contains(out.String(), c.not) {
				t.Errorf("%q in\n%s", c.not, out.String())
			}
		})
	}
}

// The switch is asked once for a kind of packet, not too often a second, and again after a while.
func TestCaptureAsksTheSwitchWithModeration(t *testing.T) {
	var list []capture.Frame
	for i := range 100 { // of one kind, in a second
		list = append(list, capture.Frame{Time: noon.Add(time.Duration(i) * time.Millisecond), Data: discover()})
	}
	for i := range 100 { // of many kinds, in the next
		other := discover()
		other[11] = byte(10 + i)
		list = append(list, capture.Frame{Time: noon.Add(time.Second + time.Duration(i)*time.Millisecond), Data: other})
	}
	list = append(list, capture.Frame{Time: noon.Add(5 * time.Second), Data: discover()})
	var out bytes.Buffer
	s, asked := newSight(&out, &captureFlags{Rate: 60}, trace.Verdict{Outcome: trace.Dropped}, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if err := s.watch(ctx, frames(cancel, list...)); err != nil {
		t.Fatal(err)
	}
	if *asked != 1+maxTraces+1 {
		t.Errorf("asked %d times", *asked)
	}
	if s.from != 201 || s.missed != 80 || strings.Count(out.String(), "from the VM") != 121 {
		t.Errorf("%d frames, %d not shown, %d shown", s.from, s.missed, strings.Count(out.String(), "from the VM"))
	}
}

func TestCaptureForPrograms(t *testing.T) {
	var out bytes.Buffer
	f := &captureFlags{Count: 1}
	f.Output.name = formatJSON
	s, _ := newSight(&out, f, trace.Verdict{Outcome: trace.Dropped, Text: "x"}, nil)
	if err := s.watch(t.Context(), frames(nil, capture.Frame{Time: noon, Data: discover()}, capture.Frame{Time: noon, Data: discover()})); err != nil {
		t.Fatal(err)
	}
	var doc shownFrame
	if err := json.Unmarshal(out.Bytes(), &doc); err != nil || doc.From != "vm" || doc.Verdict.Text != "x" || doc.Dst != "255.255.255.255:67" {
		t.Errorf("%v: %s", err, out.String())
	}
}

func TestCaptureToAFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "x.pcap")
	s, asked := newSight(&bytes.Buffer{}, &captureFlags{Count: 2}, trace.Verdict{}, nil)
	if err := s.openFile(name); err != nil {
		t.Fatal(err)
	}
	if err := s.watch(t.Context(), frames(nil, capture.Frame{Data: discover()}, capture.Frame{Data: discover()})); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(name)
	if err != nil || info.Size() != int64(24+2*(16+len(discover()))) || info.Mode().Perm() != 0o600 || *asked != 0 {
		t.Errorf("%v %v, asked %d times", err, info, *asked)
	}
}

// A trace of fields changes nothing. One of a packet would have the switch learn from it, and controllers get it once more.
func TestCaptureTeachesTheSwitchNothing(t *testing.T) {
	c := capture.Read(discover())
	got := question(&trace.Interface{Bridge: "br-int", OFPort: 7}, &c)
	want := []string{"br-int", "in_port=7,dl_src=fa:16:3e:00:00:01,dl_dst=ff:ff:ff:ff:ff:ff,ip,nw_src=0.0.0.0,nw_dst=255.255.255.255,nw_proto=17,nw_ttl=64,udp_src=68,udp_dst=67"}
	for range maxTracked {
		want = append(want, "--ct-next", "trk,new")
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}
