// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"net/http"
	"os"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/patchbay-sdn/patchbay/lab"
)

// state is what a packet is to the connection tracker.
type state int

const (
	isNew         state = iota
	isEstablished       // and not allowed by any rule of its direction
	isRelated           // an ICMP error about a packet of a connection
	isRevoked           // the connection's rule was taken away
	states
)

func (s state) String() string {
	return [...]string{"new", "established", "related", "revoked"}[s]
}

// cell is one box of the matrix: what must arrive has, and what must not has not.
type cell struct {
	target  *target
	version int
	same    bool // the peer is on the same host
	state   state
	// passed and stopped count the frames that came out as they must.
	passed, stopped int
	wrong           []string
}

func (c *cell) place() string {
	if c.same {
		return "same host"
	}
	return "other host"
}

// fired is a frame that was sent for a cell.
type fired struct {
	cell  *cell
	what  string
	from  *vm
	to    *vm
	frame []byte
	k     token
	want  bool
}

// side is a target's conversations with the peers of one host in one IP version.
type side struct {
	f       *filtered
	target  *target
	version int
	host    int
	cells   [states]*cell
	kind    kind
	calls   []conn // that the rule allows
	kept    conn   // that another rule allows, for ever
}

// cells fills the matrix. The order of the steps matters: what must be refused without a connection is sent while there is
// none.
func (f *filtered) cells(t *testing.T) {
	var sides []*side
	for _, x := range f.targets {
		for _, version := range []int{4, 6} {
			for _, k := range kindsOf(version) {
				if k.name != x.kind {
					continue
				}
				for _, host := range []int{1, 2} {
					sides = append(sides, f.side(x, k, version, host))
				}
			}
		}
	}
	f.warm(t, sides)
	each := func(do func(s *side) []fired) {
		t.Helper()
		var all []fired
		for _, s := range sides {
			all = append(all, do(s)...)
		}
		f.fire(t, all)
	}
	f.forget(t)
	each((*side).strangers)
	each((*side).unasked)
	f.forget(t)
	each(func(s *side) []fired { return s.step(isNew, "first packet", conn.first, true) })
	each(func(s *side) []fired { return s.step(isEstablished, "answer", conn.reply, false) })
	each(func(s *side) []fired { return s.step(isEstablished, "second packet", conn.more, true) })
	each(func(s *side) []fired { return s.step(isEstablished, "second answer", conn.again, false) })
	each((*side).errors)
	f.revoke(t, sides)
	each(func(s *side) []fired { return s.revoked("further packet", conn.more, true, 0) })
	each(func(s *side) []fired { return s.revoked("further answer", conn.again, false, 0) })
	each(func(s *side) []fired { return s.revoked("first packet", conn.first, true, 11) })
	f.report(t, sides)
}

func (f *filtered) side(x *target, k kind, version, host int) *side {
	s := &side{f: f, target: x, version: version, host: host, kind: k}
	for i := range s.cells {
		s.cells[i] = &cell{target: x, version: version, same: host == x.host, state: state(i)}
	}
	for _, p := range k.pass {
		s.calls = append(s.calls, s.call(p))
	}
	s.kept = s.call(udp(keeper))
	return s
}

// call is a new conversation of the kind.
func (s *side) call(p packetKind) conn {
	peer, version := s.f.members[s.host], s.version
	if p.stranger {
		peer = s.f.strangers[s.host]
	}
	if p.other {
		version = 10 - version
	}
	c := conn{from: peer, to: s.target.vm, version: version, proto: p.proto, port: p.port, kind: p.kind, code: p.code,
		own: 20000 + uint16(s.f.token()%40000)}
	if s.target.direction == "egress" {
		c.from, c.to = c.to, c.from
	}
	return c
}

func (s *side) shot(st state, what string, c conn, build func(conn, token) []byte, forward, want bool) fired {
	k := s.f.token()
	from, to := c.from, c.to
	if !forward {
		from, to = to, from
	}
	frame := build(c, k)
	return fired{s.cells[st], fmt.Sprintf("%s of %s", what, c), from, to, frame, k, want || s.leavesAnyway(st, c, from, frame)}
}

// leavesAnyway returns whether rules of iptables let a frame pass that no group allows: those of Neutron let every ICMPv6 packet of a VM out that has the
// VM's addresses, and with it the answers.
func (s *side) leavesAnyway(st state, c conn, from *vm, frame []byte) bool {
	const nextHeader = 20
	if !s.f.hybrid || c.version != 6 || frame[nextHeader] != protoICMPv6 {
		return false
	}
	return from == s.target.vm || st == isRevoked && s.target.direction == "egress"
}

// smuggled is the same frame once more, if it goes to the target, from a VM on the peer's host that may send everything:
// so the target's own filter is all that can stop it.
func (s *side) smuggled(x fired) []fired {
	if x.to != s.target.vm {
		return []fired{x}
	}
	y := x
	y.from, y.k, y.what = s.f.rogues[s.host], s.f.token(), x.what+" by a rogue"
	y.frame = append([]byte{}, x.frame...)
	copy(y.frame[6:12], hw(y.from.MAC))
	y.frame = retoken(y.frame, x.k, y.k)
	return []fired{x, y}
}

// step has each conversation that the rule allows go on by one packet.
func (s *side) step(st state, what string, build func(conn, token) []byte, forward bool) []fired {
	list := []fired{s.shot(st, what, s.kept, build, forward, true)}
	for _, c := range s.calls {
		list = append(list, s.shot(st, what, c, build, forward, true))
	}
	return list
}

// strangers are first packets that the rule does not allow.
func (s *side) strangers() []fired {
	var list []fired
	for _, p := range s.kind.refuse {
		list = append(list, s.smuggled(s.shot(isNew, "forbidden packet", s.call(p), conn.first, true, false))...)
	}
	return list
}

// unasked are answers without a question: no rule allows anything in that direction.
func (s *side) unasked() []fired {
	var list []fired
	for _, c := range s.calls {
		list = append(list, s.smuggled(s.shot(isEstablished, "unasked answer", c, conn.again, false, false))...)
	}
	return list
}

// errors are ICMP errors, about packets that were sent, and about packets that were not.
func (s *side) errors() []fired {
	list := s.step(isRelated, "error", conn.unreachable, false)
	for _, c := range s.calls {
		c.own += 7
		if c.proto != protoTCP && c.proto != protoUDP && c.proto != protoICMP && c.proto != protoICMPv6 {
			c.proto = protoESP // others are tracked without ports
		}
		list = append(list, s.smuggled(s.shot(isRelated, "error about nothing", c, conn.unreachable, false, false))...)
	}
	return list
}

// revoked are packets of conversations whose rule is gone, and of those whose rule is not.
func (s *side) revoked(what string, build func(conn, token) []byte, forward bool, shift uint16) []fired {
	kept := s.kept
	kept.own += shift
	list := []fired{s.shot(isRevoked, what, kept, build, forward, true)}
	for _, c := range s.calls {
		c.own += shift
		list = append(list, s.smuggled(s.shot(isRevoked, what, c, build, forward, false))...)
	}
	return list
}

func (c conn) String() string {
	names := map[uint8]string{protoICMP: "icmp", protoICMPv6: "icmpv6", protoTCP: "tcp", protoUDP: "udp", protoSCTP: "sctp"}
	name := names[c.proto]
	switch {
	case name == "":
		name = fmt.Sprintf("protocol %d", c.proto)
	case c.proto == protoICMP || c.proto == protoICMPv6:
		name += fmt.Sprintf(" %d/%d", c.kind, c.code)
	default:
		name += fmt.Sprintf(" %d→%d", c.own, c.port)
	}
	return fmt.Sprintf("%s over IPv%d from %s (hv%d) to %s (hv%d)", name, c.version, c.from.name, c.from.host, c.to.name, c.to.host)
}

// warm waits until all that is allowed passes: a port is ACTIVE before all others know of it.
func (f *filtered) warm(t *testing.T, sides []*side) {
	t.Helper()
	missing := ""
	if !f.eventually(settled, func() bool {
		var list []fired
		for _, s := range sides {
			for _, c := range append([]conn{s.kept}, s.calls...) {
				c.own += 1 + uint16(f.last.Load()%1000)
				list = append(list, s.shot(isNew, "first packet", c, conn.first, true, true))
			}
		}
		f.send(t, list)
		f.arrived(list, 2*time.Second)
		n := 0
		for _, x := range list {
			if x.to.probe.saw(x.k) == 0 {
				n++
				missing = x.what
			}
		}
		if n > 0 {
			t.Logf("%d of %d first packets have not arrived yet, such as the %s", n, len(list), missing)
			f.forget(t)
		}
		return n == 0
	}) {
		t.Errorf("not all that is allowed passes after %v", settled)
	}
}

// send sends frames at a pace at which no queue on the way fills up.
func (f *filtered) send(t *testing.T, list []fired) {
	t.Helper()
	for i, x := range list {
		if err := x.from.probe.send(x.frame); err != nil {
			t.Fatal(err)
		}
		if i%8 == 7 {
			time.Sleep(time.Millisecond)
		}
	}
}

// arrived waits until all frames that must arrive have, or the time is over.
func (f *filtered) arrived(list []fired, limit time.Duration) {
	f.eventually(limit, func() bool {
		for _, x := range list {
			if x.want && x.to.probe.saw(x.k) == 0 {
				return false
			}
		}
		return true
	})
}

// fire sends frames and writes into their cells what became of them.
func (f *filtered) fire(t *testing.T, list []fired) {
	t.Helper()
	f.send(t, list)
	f.arrived(list, wired/4)
	f.eventually(silence, func() bool { return false })
	for _, x := range list {
		switch n := x.to.probe.saw(x.k); {
		case x.want && n == 1:
			x.cell.passed++
		case !x.want && n == 0:
			x.cell.stopped++
		case x.want:
			x.cell.wrong = append(x.cell.wrong, fmt.Sprintf("%s arrived %d times, want once", x.what, n))
		default:
			x.cell.wrong = append(x.cell.wrong, x.what+" arrived, and must not")
		}
	}
}

// revoke takes away all rules but the keepers: by deleting them, by having the members leave the group, and by having the
// addresses leave the address group. It waits until the last packet has been stopped. Meanwhile all conversations go on, so
// that none ends by itself.
func (f *filtered) revoke(t *testing.T, sides []*side) {
	t.Helper()
	last := time.Now()
	for _, x := range f.targets {
		for _, id := range x.rules {
			f.request(t, http.MethodDelete, "security-group-rules/"+id, nil, nil)
			if time.Since(last) > chat {
				f.goOn(t, sides)
				last = time.Now()
			}
		}
	}
	for _, m := range f.members {
		f.update(t, m, attributes{"security_groups": []string{f.open}})
	}
	f.request(t, http.MethodPut, "address-groups/"+f.listed+"/remove_addresses", map[string]any{
		"addresses": []string{memberPrefix[4], memberPrefix[6]},
	}, nil)
	f.eventually(2*wired, func() bool { return !f.goOn(t, sides) })
}

// chat is how often conversations go on at least. The switch forgets some after 30 s of silence.
const chat = 5 * time.Second

// goOn sends one packet and one answer of every conversation, and says whether a packet arrived that only a rule that is
// taken away allows.
func (f *filtered) goOn(t *testing.T, sides []*side) (arrived bool) {
	t.Helper()
	var packets, answers []fired
	for _, s := range sides {
		for i, c := range append([]conn{s.kept}, s.calls...) {
			packets = append(packets, s.shot(isRevoked, "packet", c, conn.more, true, i == 0))
			answers = append(answers, s.shot(isRevoked, "answer", c, conn.again, false, i == 0))
		}
	}
	for _, list := range [][]fired{packets, answers} {
		f.send(t, list)
		f.eventually(silence, func() bool { return false })
	}
	for _, x := range packets {
		if !x.want && x.to.probe.saw(x.k) > 0 {
			return true
		}
	}
	return false
}

// report prints the matrix, and fails with what is wrong.
func (f *filtered) report(t *testing.T, sides []*side) {
	t.Helper()
	type place struct {
		version int
		same    bool
	}
	columns := []place{{4, true}, {4, false}, {6, true}, {6, false}}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nrule\tdirection\tIPv4 same host\tIPv4 other host\tIPv6 same host\tIPv6 other host")
	all, bad, passed, stopped := 0, 0, 0, 0
	for _, x := range f.targets {
		fmt.Fprintf(w, "%s\t%s", x.kind, x.direction)
		for _, p := range columns {
			good, of := 0, 0
			for _, s := range sides {
				if s.target != x || (place{s.version, s.host == x.host}) != p {
					continue
				}
				for _, c := range s.cells {
					if len(s.calls) == 0 && c.state != isNew {
						continue
					}
					of++
					// In some cells of IPv6 Neutron's rules of iptables stop nothing: see leavesAnyway.
					if len(c.wrong) == 0 && c.passed > 0 && (c.stopped > 0 || f.hybrid && c.version == 6) {
						good++
					} else {
						bad++
						t.Errorf("%s, %s, IPv%d, %s, %s: %d passed, %d stopped, wrong: %q", x.kind, x.direction, c.version, c.place(), c.state, c.passed, c.stopped, c.wrong)
					}
					passed, stopped = passed+c.passed, stopped+c.stopped
				}
			}
			if all += of; of == 0 {
				fmt.Fprint(w, "\t–")
			} else {
				fmt.Fprintf(w, "\t%d/%d", good, of)
			}
		}
		fmt.Fprintln(w)
	}
	_ = w.Flush()
	fmt.Printf("%s: %d cells (new, established, related, revoked), %d failed; %d frames passed as they must, %d were stopped as they must\n\n", f.agent, all, bad, passed, stopped)
	if f.agent == lab.Patchbay && all < 200 {
		t.Errorf("%d cells, want 200 at least", all)
	}
}
