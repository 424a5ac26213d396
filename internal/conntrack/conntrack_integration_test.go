// SPDX-License-Identifier: Apache-2.0

//go:build integration

package conntrack

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/netlink"
	"github.com/patchbay-sdn/patchbay/internal/netlink/netlinktest"
	"github.com/patchbay-sdn/patchbay/lab/vswitch"
)

func inNetns(t *testing.T, name string, f func()) {
	t.Helper()
	if err := netlinktest.In(name, f); err != nil {
		t.Fatal(err)
	}
}

// revokedPort is where connections go that the test's flows mark.
const revokedPort = 81

// newVMs makes a userspace switch that tracks all connections of two VMs in zone 5 and marks those to revokedPort, to
// 10.9.0.9 and fd00::9, and a second pair of ports that it tracks in zone 6, marking all.
func newVMs(t *testing.T) (*vswitch.Switch, []string) {
	t.Helper()
	sw := vswitch.New(t)
	vsctl := func(args ...string) {
		t.Helper()
		if out, err := sw.Vsctl(t.Context(), args...); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	vsctl("add-br", "br0", "--", "set", "Bridge", "br0", "datapath_type=netdev")
	var vms []string
	for i := 1; i <= 2; i++ {
		vm, tap := netlinktest.Namespace(t, fmt.Sprintf("ctvm%d", i)), fmt.Sprintf("tap%d", i)
		netlinktest.Run(t, "ip", "-n", sw.Netns(), "link", "add", tap, "type", "veth", "peer", "name", "eth0", "netns", vm)
		netlinktest.Run(t, "ip", "-n", sw.Netns(), "link", "set", tap, "up")
		netlinktest.Run(t, "ip", "-n", vm, "link", "set", "eth0", "up")
		for _, a := range []string{"10.9.0.%d/24", "fd00::%d/64"} {
			netlinktest.Run(t, "ip", "-n", vm, "address", "add", fmt.Sprintf(a, i), "dev", "eth0", "nodad")
			if i == 2 {
				netlinktest.Run(t, "ip", "-n", vm, "address", "add", fmt.Sprintf(a, 9), "dev", "eth0", "nodad")
			}
		}
		netlinktest.Run(t, "ip", "netns", "exec", vm, "ethtool", "-K", "eth0", "tx", "off")
		vsctl("add-port", "br0", tap)
		vms = append(vms, vm)
	}
	var flows []string
	for _, proto := range []string{"tcp", "udp", "icmp", "sctp", "tcp6", "udp6", "icmp6,icmp_type=128", "icmp6,icmp_type=129"} {
		flows = append(flows, "table=0,priority=10,"+proto+",actions=ct(table=1,zone=5)")
	}
	// Zone 6 sees every TCP connection as well, marked.
	flows = append(flows, "table=0,priority=0,actions=NORMAL",
		"table=1,priority=9,ct_state=+new,tcp,tp_dst=80,actions=ct(commit,zone=5),ct(commit,zone=6,exec(set_field:0x1->ct_mark)),NORMAL",
		"table=1,priority=0,actions=NORMAL")
	for _, match := range []string{
		"tcp,tp_dst=81", "tcp6,tp_dst=81", "udp,tp_dst=81", "udp6,tp_dst=81", "sctp", "icmp,nw_dst=10.9.0.9", "icmp6,ipv6_dst=fd00::9",
	} {
		flows = append(flows, "table=1,priority=5,ct_state=+new,"+match+",actions=ct(commit,zone=5,exec(set_field:0x1->ct_mark)),NORMAL")
	}
	for _, match := range []string{"ip", "ipv6"} {
		// Another bit than ours is no reason to remove anything.
		flows = append(flows, "table=1,priority=4,ct_state=+new,"+match+",actions=ct(commit,zone=5,exec(set_field:0x2->ct_mark)),NORMAL")
	}
	if out, err := sw.Ofctl(t.Context(), "del-flows", "br0"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, f := range flows {
		if out, err := sw.Ofctl(t.Context(), "add-flow", "br0", f); err != nil {
			t.Fatalf("%s: %v: %s", f, err, out)
		}
	}
	return sw, vms
}

// listen accepts connections in the VM and sends back what they say.
func listen(t *testing.T, vm, address string) {
	t.Helper()
	inNetns(t, vm, func() {
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Error(err)
			return
		}
		t.Cleanup(func() { _ = l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go func() {
					defer func() { _ = c.Close() }()
					buf := make([]byte, 64)
					for {
						n, err := c.Read(buf)
						if err != nil {
							return
						}
						if _, err := c.Write(buf[:n]); err != nil {
							return
						}
					}
				}()
			}
		}()
	})
}

func dial(t *testing.T, vm, network, address string) net.Conn {
	t.Helper()
	var conn net.Conn
	inNetns(t, vm, func() {
		var err error
		// Without happy eyeballs and resolving the dial stays on this thread.
		d := net.Dialer{Timeout: 5 * time.Second}
		if conn, err = d.DialContext(t.Context(), network, address); err != nil {
			t.Error(err)
		}
	})
	if conn == nil {
		t.FailNow()
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func say(t *testing.T, c net.Conn) {
	t.Helper()
	if _, err := c.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
}

func echo(t *testing.T, c net.Conn) {
	t.Helper()
	say(t, c)
	if err := c.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 64)); err != nil {
		t.Fatal(err)
	}
}

// zoneEntries lists the zone as "proto source destination-or-port mark", sorted and each once.
func zoneEntries(t *testing.T, sw *vswitch.Switch, zone uint16) []string {
	t.Helper()
	out, err := sw.Appctl(t.Context(), "ovs-vswitchd", commandDump, "netdev@ovs-netdev", fmt.Sprintf("zone=%d", zone))
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for l := range strings.Lines(out) {
		e, err := parseEntry(strings.TrimSpace(l))
		if err != nil {
			t.Fatalf("%s: %v", l, err)
		}
		all = append(all, fmt.Sprintf("%d %s %d mark %d", e.Protocol, e.Dst, e.DstPort, e.mark))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func TestUserspaceDatapath(t *testing.T) {
	sw, vms := newVMs(t)
	ctx := t.Context()
	for _, a := range []string{"10.9.0.2", "fd00::2"} {
		listen(t, vms[1], net.JoinHostPort(a, "80"))
		listen(t, vms[1], net.JoinHostPort(a, "81"))
	}
	var kept []net.Conn
	for _, a := range []string{"10.9.0.2", "fd00::2"} {
		good := dial(t, vms[0], "tcp", net.JoinHostPort(a, "80"))
		echo(t, good)
		kept = append(kept, good)
		echo(t, dial(t, vms[0], "tcp", net.JoinHostPort(a, "81")))
		say(t, dial(t, vms[0], "udp", net.JoinHostPort(a, "80")))
		say(t, dial(t, vms[0], "udp", net.JoinHostPort(a, "81")))
	}
	for _, a := range []string{"10.9.0.2", "10.9.0.9", "fd00::2", "fd00::9"} {
		netlinktest.Run(t, "ip", "netns", "exec", vms[0], "ping", "-c", "1", "-W", "2", a)
	}
	inNetns(t, vms[0], func() {
		// The first packet of an SCTP association, enough for the switch.
		c, err := net.Dial("ip4:132", "10.9.0.2")
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = c.Close() }()
		if _, err := c.Write([]byte("\x03\xe8\x07\xd0\x00\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x14\x00\x00\x00\x07\x00\x00\xff\xff\x00\x01\x00\x01\x00\x00\x00\x09")); err != nil {
			t.Error(err)
		}
	})
	good := []string{
		"1 10.9.0.2 0 mark 2", "17 10.9.0.2 80 mark 2", "17 fd00::2 80 mark 2", "58 fd00::2 0 mark 2", "6 10.9.0.2 80 mark 0", "6 fd00::2 80 mark 2",
	}
	bad := []string{
		"1 10.9.0.9 0 mark 1", "132 10.9.0.2 0 mark 1", "17 10.9.0.2 81 mark 1", "17 fd00::2 81 mark 1", "58 fd00::9 0 mark 1",
		"6 10.9.0.2 81 mark 1", "6 fd00::2 81 mark 1",
	}
	both := slices.Concat(good, bad)
	slices.Sort(both)
	if got := zoneEntries(t, sw, 5); !slices.Equal(got, both) {
		t.Fatalf("before: %q\nwant %q", got, both)
	}
	zone6 := zoneEntries(t, sw, 6)
	if len(zone6) != 1 || !strings.HasSuffix(zone6[0], "mark 1") {
		t.Fatalf("zone 6: %q", zone6)
	}

	r, err := New("netdev", sw.Dir())
	if err != nil {
		t.Fatal(err)
	}
	if out, err := sw.Appctl(ctx, "ovs-vswitchd", commandVersion); err != nil {
		t.Fatal(err)
	} else if v := parseVersion(out); !canFlush(Connection{Protocol: protoICMPv6, ICMPType: 128}, v) {
		t.Logf("OVS %v does not survive the removal of an ICMPv6 connection: it has to stay", v)
		const spared = "58 fd00::9 0 mark 1"
		bad = slices.DeleteFunc(bad, func(e string) bool { return e == spared })
		good = append(good, spared)
		slices.Sort(good)
	}
	listed, err := r.Marked(ctx, 5)
	if err != nil {
		t.Fatal(err)
	}
	var described []string
	for _, c := range listed {
		described = append(described, fmt.Sprintf("%d %s %d mark 1", c.Protocol, c.Dst, c.DstPort))
	}
	slices.Sort(described)
	if want := slices.DeleteFunc(slices.Clone(both), func(e string) bool { return !strings.HasSuffix(e, "mark 1") }); !slices.Equal(described, want) {
		t.Errorf("marked: %q\nwant %q", described, want)
	}
	// One by name, the others together.
	one := slices.IndexFunc(listed, func(c Connection) bool { return c.Protocol == 6 && c.Dst.Is4() })
	if n, err := r.Release(ctx, 5, listed[one:one+1]); n != 1 || err != nil {
		t.Errorf("removed %d, %v; want 1", n, err)
	}
	bad = slices.DeleteFunc(bad, func(e string) bool { return e == "6 10.9.0.2 81 mark 1" })
	if got := zoneEntries(t, sw, 5); slices.Contains(got, "6 10.9.0.2 81 mark 1") || len(got) != len(bad)+len(good) {
		t.Errorf("after one was removed: %q", got)
	}
	if n, err := removeMarked(ctx, r, 5); n != len(bad) || err != nil {
		t.Errorf("removed %d, %v; want %d", n, err, len(bad))
	}
	if got := zoneEntries(t, sw, 5); !slices.Equal(got, good) {
		t.Errorf("after: %q\nwant %q", got, good)
	}
	if n, err := removeMarked(ctx, r, 5); n != 0 || err != nil {
		t.Errorf("removed another %d, %v", n, err)
	}
	for _, c := range kept {
		echo(t, c)
	}
	if got := zoneEntries(t, sw, 6); !slices.Equal(got, zone6) {
		t.Errorf("zone 6 became %q", got)
	}
	if err := r.FlushZone(ctx, 5); err != nil {
		t.Error(err)
	}
	if got := zoneEntries(t, sw, 5); len(got) != 0 {
		t.Errorf("flushed, but there are %q", got)
	}
	if got := zoneEntries(t, sw, 6); !slices.Equal(got, zone6) {
		t.Errorf("zone 6 became %q", got)
	}
	// A restarted switch has another socket.
	if err := sw.StopVswitchd(ctx); err != nil {
		t.Fatal(err)
	}
	if err := r.FlushZone(ctx, 5); err == nil {
		t.Error("flushed without a switch")
	}
	if err := sw.StartVswitchd(ctx); err != nil {
		t.Fatal(err)
	}
	if err := r.FlushZone(ctx, 5); err != nil {
		t.Error(err)
	}
}

// Many connections come and go while marked ones are removed: all marked ones go, no other does.
func TestUserspaceDatapathBusy(t *testing.T) {
	const many = 3000
	sw, vms := newVMs(t)
	send := func(port, from, n int) {
		inNetns(t, vms[0], func() {
			for i := range n {
				c, err := net.DialUDP("udp", &net.UDPAddr{Port: from + i}, &net.UDPAddr{IP: net.IPv4(10, 9, 0, 2), Port: port})
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := c.Write([]byte("x")); err != nil && i == 0 {
					t.Error(err)
				}
				_ = c.Close()
				if i%50 == 0 {
					time.Sleep(2 * time.Millisecond)
				}
			}
		})
	}
	list := func() (marked, others []string) {
		out, err := sw.Appctl(t.Context(), "ovs-vswitchd", commandDump, "netdev@ovs-netdev", "zone=5")
		if err != nil {
			t.Fatal(err)
		}
		for l := range strings.Lines(out) {
			e, err := parseEntry(strings.TrimSpace(l))
			switch {
			case err != nil:
				t.Fatalf("%s: %v", l, err)
			case e.mark == revokedMark:
				marked = append(marked, e.tuple())
			default:
				others = append(others, e.tuple())
			}
		}
		return marked, others
	}
	send(revokedPort, 10000, many)
	send(80, 20000, many)
	before, others := list()
	// Some packets are lost where so many begin at once.
	if len(before) < many/2 || len(others) < many/2 {
		t.Fatalf("only %d and %d connections of %d", len(before), len(others), many)
	}
	done := make(chan struct{})
	go func() { defer close(done); send(80, 20000, many) }()
	r, err := New("netdev", sw.Dir())
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	n, err := removeMarked(t.Context(), r, 5)
	t.Logf("%d of %d removed in %v, beside %d others", n, len(before), time.Since(start), len(others))
	if err != nil || n != len(before) {
		t.Errorf("removed %d, %v", n, err)
	}
	<-done
	marked, after := list()
	if len(marked) != 0 {
		t.Errorf("%d marked connections are left", len(marked))
	}
	still := map[string]bool{}
	for _, tuple := range after {
		still[tuple] = true
	}
	for _, tuple := range others {
		if !still[tuple] {
			t.Errorf("removed without a mark: %s", tuple)
		}
	}
}

func TestKernelTable(t *testing.T) {
	ns := netlinktest.Namespace(t, "ctk")
	conntrack := func(args ...string) string {
		t.Helper()
		return netlinktest.Run(t, "ip", append([]string{"netns", "exec", ns, "conntrack"}, args...)...)
	}
	insert := func(zone, mark, src, dst string, proto ...string) {
		t.Helper()
		args := []string{"-I", "-s", src, "-d", dst, "--timeout", "600", "--mark", mark, "--zone", zone}
		conntrack(append(args, proto...)...)
	}
	left := func() (all []string) {
		t.Helper()
		for _, family := range []string{"ipv4", "ipv6"} {
			for l := range strings.Lines(conntrack("-L", "-f", family, "-o", "extended")) {
				if strings.Contains(l, "src=") {
					all = append(all, strings.TrimSpace(l))
				}
			}
		}
		return all
	}
	pairs := [][2]string{{"10.0.0.1", "10.0.0.2"}, {"fd00::1", "fd00::2"}}
	kinds := [][]string{
		{"-p", "tcp", "--sport", "5", "--dport", "6", "--state", "ESTABLISHED"},
		{"-p", "udp", "--sport", "5", "--dport", "6"},
		{"-p", "sctp", "--sport", "5", "--dport", "6", "--state", "ESTABLISHED", "--orig-vtag", "1", "--reply-vtag", "2"},
		{"-p", "gre", "--srckey", "5", "--dstkey", "6"},
	}
	total := map[string]int{}
	for _, pair := range pairs {
		own := slices.Concat(kinds, [][]string{{"-p", "icmp", "--icmp-type", "8", "--icmp-code", "0", "--icmp-id", "7"}})
		if strings.Contains(pair[0], ":") {
			own[len(own)-1] = []string{"-p", "icmpv6", "--icmpv6-type", "128", "--icmpv6-code", "0", "--icmpv6-id", "7"}
		}
		for _, kind := range own {
			for _, zm := range [][2]string{{"7", "1"}, {"8", "1"}, {"9", "0"}, {"10", "2"}, {"11", "3"}} {
				insert(zm[0], zm[1], pair[0], pair[1], kind...)
				total[zm[0]]++
			}
		}
	}
	if n := len(left()); n != 50 {
		t.Fatalf("%d entries were made", n)
	}
	remove := func(zone uint16, want int) {
		t.Helper()
		inNetns(t, ns, func() {
			if n, err := (kernel{}).remove(t.Context(), selection{zones: []uint16{zone}, mark: revokedMark}); n != want || err != nil {
				t.Errorf("zone %d: removed %d, %v; want %d", zone, n, err, want)
			}
		})
	}
	inNetns(t, ns, func() {
		list, err := (kernel{}).Marked(t.Context(), 7)
		if err != nil || len(list) != total["7"] {
			t.Errorf("zone 7: %d are marked, %v", len(list), err)
			return
		}
		var text []string
		for _, c := range list {
			text = append(text, fmt.Sprint(c.Protocol, c.Src, c.Dst, c.SrcPort, c.DstPort, c.ICMPID, c.ICMPType, c.ICMPCode))
		}
		for _, want := range []string{
			"6 10.0.0.1 10.0.0.2 5 6 0 0 0", "17 fd00::1 fd00::2 5 6 0 0 0", "132 10.0.0.1 10.0.0.2 5 6 0 0 0",
			"1 10.0.0.1 10.0.0.2 0 0 7 8 0", "58 fd00::1 fd00::2 0 0 7 128 0",
		} {
			if !slices.Contains(text, want) {
				t.Errorf("no %s in %q", want, text)
			}
		}
		if n, err := (kernel{}).Release(t.Context(), 7, list[:3]); n != 3 || err != nil {
			t.Errorf("zone 7: released %d, %v; want 3", n, err)
		}
		if again, err := (kernel{}).Marked(t.Context(), 7); err != nil || len(again) != total["7"]-3 {
			t.Errorf("zone 7: %d are still marked, %v", len(again), err)
		}
		list, err = (kernel{}).Marked(t.Context(), 11)
		if err != nil || len(list) != total["11"] {
			t.Errorf("zone 11: %d are marked, %v", len(list), err)
			return
		}
		if n, err := (kernel{}).Release(t.Context(), 11, list[:1]); n != 1 || err != nil {
			t.Errorf("zone 11: released %d, %v; want 1", n, err)
		}
	})
	if n := len(left()); n != 50 {
		t.Errorf("%d entries are left after some were released", n)
	}
	remove(7, total["7"]-3)
	remove(7, 0)
	remove(9, 0)
	remove(10, 0)
	// The other bit of the one that was released is as it was.
	if n := len(strings.Split(conntrack("-L", "-w", "11", "-m", "2", "-f", "ipv4"), "mark=2 ")) + len(strings.Split(conntrack("-L", "-w", "11", "-m", "2", "-f", "ipv6"), "mark=2 ")); n != 3 {
		t.Errorf("%d entries of zone 11 have lost only our mark", n-2)
	}
	remove(11, total["11"]-1)
	remove(12, 0)
	inZone := func(zone string) (n int) {
		for _, l := range left() {
			if strings.Contains(l+" ", " zone="+zone+" ") {
				n++
			}
		}
		return n
	}
	for zone, want := range map[string]int{"7": 3, "8": total["8"], "9": total["9"], "10": total["10"], "11": 1} {
		if n := inZone(zone); n != want {
			t.Errorf("%d entries are left in zone %s, want %d: %q", n, zone, want, left())
		}
	}
	inNetns(t, ns, func() {
		if err := (kernel{}).FlushZone(t.Context(), 9); err != nil {
			t.Error(err)
		}
	})
	if n, m := inZone("9"), len(left()); n != 0 || m != 24 {
		t.Errorf("after the flush %d entries are in zone 9, %d in all", n, m)
	}
	inNetns(t, ns, func() { // 7, 10 and 12 are asked for; of 10 those to a port
		n, err := RemoveFromKernel(t.Context(), []uint16{7, 10, 12}, func(zone uint16, c Connection) bool { return zone == 7 || c.DstPort == 6 })
		if err != nil || n != 3+8 {
			t.Errorf("removed %d, %v; want 3 of zone 7, and of zone 10 all but ICMP, 8", n, err)
		}
	})
	if a, b, c := inZone("7"), inZone("8"), inZone("10"); a != 0 || b != total["8"] || c != total["10"]-8 {
		t.Errorf("left in zone 7: %d, 8: %d, 10: %d", a, b, c)
	}
}

// A connection that is not the one that was listed stays, though its addresses and ports are the same.
func TestKernelTableComparesIdentity(t *testing.T) {
	ns := netlinktest.Namespace(t, "ctn")
	netlinktest.Run(t, "ip", "netns", "exec", ns, "conntrack", "-I", "-p", "udp", "-s", "10.0.0.1", "-d", "10.0.0.2", "--sport", "5", "--dport", "6",
		"--timeout", "600", "--zone", "7", "--mark", "1")
	inNetns(t, ns, func() {
		s, err := open(t.Context())
		if err != nil {
			t.Error(err)
			return
		}
		defer s.Close()
		requests, _, err := list(s, selection{zones: []uint16{7}, mark: revokedMark})
		if err != nil || len(requests) != 1 {
			t.Errorf("listed %d, %v", len(requests), err)
			return
		}
		m, _, _ := netlink.Next(requests[0])
		c, ok := parseConnection(m.Payload)
		if !ok || len(c.id) != 4 {
			t.Errorf("no identity: %+v", c)
			return
		}
		other := c
		other.id = slices.Clone(c.id)
		other.id[0] ^= 1
		if n, err := change(s, [][]byte{deleteRequest(other)}); n != 0 || err != nil {
			t.Errorf("deleted another one: %d, %v", n, err)
		}
		if n, err := change(s, requests); n != 1 || err != nil {
			t.Errorf("deleted %d, %v", n, err)
		}
	})
}
