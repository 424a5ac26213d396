// SPDX-License-Identifier: Apache-2.0

//go:build integration

package openflow

import (
	"bytes"
	"context"
	"encoding/binary"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/lab/vswitch"
)

// host is a network namespace with one interface on the bridge.
type host struct {
	ns, ip string
	mac    MAC
}

func runIP(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "ip", args...).CombinedOutput(); err != nil {
		t.Fatalf("ip %v: %v: %s", args, err, out)
	}
}

// newHost makes a namespace connected to the bridge by the port given; it goes
// with the test.
func newHost(t *testing.T, sw *vswitch.Switch, name, ip string, port int) host {
	t.Helper()
	h := host{ns: sw.Netns() + name, ip: ip, mac: MAC{0x02, 0, 0, 0, 0, byte(port)}}
	runIP(t, "netns", "add", h.ns)
	t.Cleanup(func() {
		if out, err := exec.CommandContext(context.Background(), "ip", "netns", "del", h.ns).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	runIP(t, "link", "add", "eth0", "netns", h.ns, "address", h.mac.String(), "type", "veth",
		"peer", "name", "veth"+name, "netns", sw.Netns())
	runIP(t, "-n", h.ns, "link", "set", "lo", "up")
	runIP(t, "-n", h.ns, "addr", "add", ip+"/24", "dev", "eth0")
	runIP(t, "-n", h.ns, "link", "set", "eth0", "up")
	runIP(t, "-n", sw.Netns(), "link", "set", "veth"+name, "up")
	vsctl(t, sw, "add-port", bridge, "veth"+name, "--", "set", "Interface", "veth"+name, "ofport_request="+string(rune('0'+port)))
	return h
}

func (h host) ping(t *testing.T, ip string) (string, error) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "ip", "netns", "exec", h.ns, "ping", "-n", "-c", "3", "-i", "0.2", "-W", "5", ip).CombinedOutput()
	return string(out), err
}

// Real packets between namespaces come to us, are let go on, and are answered
// by us.
func TestLivePackets(t *testing.T) {
	sw := vswitch.New(t)
	vsctl(t, sw, "add-br", bridge, "--", "set", "Bridge", bridge, "datapath_type=netdev", "fail-mode=secure",
		"protocols=OpenFlow10,OpenFlow13,OpenFlow14")
	a := newHost(t, sw, "a", "10.9.0.1", 1)
	b := newHost(t, sw, "b", "10.9.0.2", 2)
	for _, v := range bothVersions {
		t.Run(v.String(), func(t *testing.T) {
			c := dial(t, sw, only(v))
			ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
			defer cancel()
			if err := c.EnablePacketIns(ctx, 0); err != nil {
				t.Fatal(err)
			}
			// What a sends waits for us before it goes on to b; what is meant
			// for 10.9.0.3, who does not exist, is ours to answer, and comes by
			// a connection beside the usual one.
			beside := dial(t, sw, only(v))
			if err := beside.EnablePacketIns(ctx, 5); err != nil {
				t.Fatal(err)
			}
			pause := Controller{MaxLen: 0xffff, Reason: ReasonAction, Pause: true, Userdata: "go on"}
			ours := Controller{MaxLen: 0xffff, Reason: ReasonAction, Userdata: "answer", ID: 5}
			third := mustMAC(t, "02:00:00:00:00:33")
			flows := []Flow{
				{Priority: 10, Cookie: 0xaa, Match: Match{FromPort(1)}, Actions: []Action{Set(Reg5, Uint(0x55)), pause, Output(2)}},
				{Priority: 10, Cookie: 0xbb, Match: Match{FromPort(2)}, Actions: []Action{Output(1)}},
				{Priority: 20, Cookie: 0xcc, Match: Match{FromPort(1), Num(EthType, EtherARP), Num(ARPTPA, 0x0a090003)}, Actions: []Action{ours}},
				{Priority: 20, Cookie: 0xdd, Match: Match{FromPort(1), HW(EthDst, third)}, Actions: []Action{ours}},
			}
			msgs := []Message{deleteAll(t)}
			for i := range flows {
				m, err := NewFlowMod(Add, &flows[i])
				if err != nil {
					t.Fatal(err)
				}
				msgs = append(msgs, m)
			}
			if err := c.Commit(ctx, msgs); err != nil {
				t.Fatal(err)
			}
			resumed, answered := 0, 0
			done := make(chan struct{})
			stop := make(chan struct{})
			go func() {
				defer close(done)
				for {
					select {
					case p, ok := <-beside.PacketIns():
						if !ok {
							return
						}
						if string(p.Userdata) != "answer" {
							t.Errorf("packet-in of another connection: %q", p.Userdata)
						}
						if out := answer(p.Packet, third); out != nil {
							if err := c.Send(ctx, []Message{PacketOut{Packet: out, Actions: []Action{Output(1)}}}); err != nil {
								t.Errorf("packet-out: %v", err)
							}
							answered++
						}
					case p, ok := <-c.PacketIns():
						if !ok {
							return
						}
						switch string(p.Userdata) {
						case "go on":
							if reg, _ := p.Metadata.Lookup(Reg5); reg.Value.Lo != 0x55 || p.InPort() != 1 || p.Cookie != 0xaa || p.Total != len(p.Packet) {
								t.Errorf("packet-in %+v", p)
							}
							if err := c.Send(ctx, []Message{Resume{p}}); err != nil {
								t.Errorf("resume: %v", err)
							}
							resumed++
						default:
							t.Errorf("packet-in with userdata %q", p.Userdata)
						}
					case <-stop:
						return
					}
				}
			}()
			out, err := a.ping(t, b.ip)
			if err != nil || !strings.Contains(out, " 0% packet loss") {
				t.Errorf("a to b, let go on by us: %v\n%s", err, out)
			}
			out, err = a.ping(t, "10.9.0.3")
			if err != nil || !strings.Contains(out, " 0% packet loss") {
				t.Errorf("a to us: %v\n%s", err, out)
			}
			close(stop)
			<-done
			t.Logf("%v: %d packets resumed, %d answered", v, resumed, answered)
			if resumed < 3 || answered < 3 {
				t.Errorf("%d packets resumed, %d answered", resumed, answered)
			}
			// Flows with send_flow_rem tell when they go.
			f := Flow{Priority: 99, Cookie: 0xee, Flags: SendFlowRem, Match: Match{FromPort(9)}}
			m, err := NewFlowMod(Add, &f)
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Commit(ctx, []Message{m, DeleteFlow(m.Entry.Key())}); err != nil {
				t.Fatal(err)
			}
			for {
				ev := <-c.Events()
				if r, ok := ev.(*FlowRemoved); ok {
					if r.Key != m.Entry.Key() || r.Cookie != 0xee || r.Reason != RemovedDelete {
						t.Errorf("%+v", r)
					}
					break
				}
			}
			if _, err := beside.SwitchConfig(ctx); err != nil { // what comes before the answer is here
				t.Fatal(err)
			}
			if len(beside.Events()) > 0 {
				t.Errorf("a connection for packets tells of %+v", <-beside.Events())
			}
		})
	}
}

func mustMAC(t *testing.T, s string) MAC {
	t.Helper()
	m, err := ParseMAC(s)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// answer makes the reply of a host with that address to an ARP request or an
// echo request.
func answer(p []byte, mac MAC) []byte {
	if len(p) < 42 {
		return nil
	}
	out := bytes.Clone(p)
	copy(out[0:6], p[6:12])
	copy(out[6:12], mac[:])
	switch binary.BigEndian.Uint16(p[12:]) {
	case EtherARP:
		out[21] = 2                // reply
		copy(out[22:28], mac[:])   // sender: us
		copy(out[28:32], p[38:42]) // the address asked for
		copy(out[32:42], p[22:32]) // target: who asked
		return out
	case EtherIPv4:
		if p[23] != ProtoICMP || p[34] != 8 {
			return nil
		}
		copy(out[26:30], p[30:34])
		copy(out[30:34], p[26:30])
		out[34] = 0
		// An echo reply differs from the request by 8 in one 16-bit word.
		sum := uint32(binary.BigEndian.Uint16(p[36:])) + 0x0800
		binary.BigEndian.PutUint16(out[36:], uint16(sum+sum>>16))
		return out
	}
	return nil
}
