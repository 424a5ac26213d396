// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/patchbay-sdn/patchbay/lab"
)

// revoked is the time in which the traffic of an established connection ends after its rule was removed.
const revoked = time.Second

// stream is a TCP connection of two kernels, on which both ends talk all the time.
type stream struct {
	name       string
	rule       string // the ID of what allows it
	near, far  net.Conn
	toFar      atomic.Int64 // when the last byte arrived there, in nanoseconds
	toNear     atomic.Int64
	port       int
	from, to   *vm
	fromIP, ip string
}

// inside runs a function on a thread in a network namespace. The thread is not used again.
func inside(netns string, do func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		done <- func() error {
			ns, err := unix.Open("/run/netns/"+netns, unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				return fmt.Errorf("opening namespace %s: %w", netns, err)
			}
			defer func() { _ = unix.Close(ns) }()
			if err := unix.Setns(ns, unix.CLONE_NEWNET); err != nil {
				return fmt.Errorf("entering namespace %s: %w", netns, err)
			}
			return do()
		}()
	}()
	return <-done
}

// open connects, and has both ends talk.
func (s *stream) open() error {
	var l net.Listener
	err := inside(s.to.Netns, func() (err error) {
		l, err = net.Listen("tcp", net.JoinHostPort(s.ip, strconv.Itoa(s.port))) //nolint:noctx // it does not wait
		return err
	})
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	defer func() { _ = l.Close() }()
	_ = l.(*net.TCPListener).SetDeadline(time.Now().Add(2 * wired))
	accepted := make(chan error, 1)
	go func() {
		var err error
		s.far, err = l.Accept()
		accepted <- err
	}()
	err = inside(s.from.Netns, func() (err error) {
		d := net.Dialer{Timeout: 2 * wired, LocalAddr: &net.TCPAddr{IP: net.ParseIP(s.fromIP)}}
		s.near, err = d.Dial("tcp", l.Addr().String()) //nolint:noctx // it has a timeout
		return err
	})
	if err := errors.Join(err, <-accepted); err != nil {
		return fmt.Errorf("connecting: %w", err)
	}
	go talk(s.near)
	go talk(s.far)
	go listen(s.near, &s.toNear)
	go listen(s.far, &s.toFar)
	return nil
}

// talk writes at a thousand times a second, as long as the kernel takes it.
func talk(c net.Conn) {
	_ = c.(*net.TCPConn).SetNoDelay(true)
	for {
		if _, err := c.Write([]byte("12345678")); err != nil {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

func listen(c net.Conn, last *atomic.Int64) {
	buf := make([]byte, 4096)
	for {
		n, err := c.Read(buf)
		if n > 0 {
			last.Store(time.Now().UnixNano())
		}
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
				continue
			}
			return
		}
	}
}

func (s *stream) close() {
	for _, c := range []net.Conn{s.near, s.far} {
		if c != nil {
			_ = c.(*net.TCPConn).SetLinger(0)
			_ = c.Close()
		}
	}
}

// revocation removes rules from under real TCP connections, and measures how long they go on.
func (f *filtered) revocation(t *testing.T) {
	var gates map[string]*vm
	rules := map[string]string{}
	if !f.run(t, "VMs with kernels that talk", "2", func(t *testing.T) { gates = f.gates(t, rules) }) {
		return
	}
	for _, direction := range []string{"ingress", "egress"} {
		for _, version := range []int{4, 6} {
			name := fmt.Sprintf("IPv%d %s rule removed under TCP connections", version, direction)
			f.run(t, name, "2", func(t *testing.T) {
				var list []*stream
				for i, free := range []*vm{gates["free1"], gates["free2"]} {
					s := &stream{rule: rules[direction+strconv.Itoa(version)], port: gatePort, from: free, to: gates[direction]}
					if direction == "egress" {
						s.from, s.to = s.to, s.from
					}
					s.name = fmt.Sprintf("from hv%d to hv%d", s.from.host, s.to.host)
					s.fromIP, s.ip = s.from.v4, s.to.v4
					if version == 6 {
						s.fromIP, s.ip = s.from.v6, s.to.v6
					}
					s.port += i
					list = append(list, s)
				}
				f.cut(t, list)
			})
		}
	}
}

// gatePort is the first of two ports that the gates' rules allow.
const gatePort = 5000

// gates makes two VMs that may only be connected to, and only connect, and one on each host that may do both.
func (f *filtered) gates(t *testing.T, rules map[string]string) map[string]*vm {
	open := f.group(t, "gates open")
	f.allow(t, open, everything()...)
	m := map[string]*vm{}
	for i, name := range []string{"ingress", "egress", "free1", "free2"} {
		groups := []string{open}
		if i < 2 {
			groups = []string{f.group(t, "gate "+name)}
			for _, version := range []int{4, 6} {
				rules[name+strconv.Itoa(version)] = f.allow(t, groups[0], directed(ranged("tcp", gatePort, gatePort+1), name, version))[0]
			}
		}
		m[name] = f.blue.add(100+i, 1+i/3)
		m[name].extra = attributes{"security_groups": groups}
		if err := f.plug(m[name], ""); err != nil {
			t.Fatal(err)
		}
	}
	f.waitActive(t, m["ingress"].PortID, m["egress"].PortID, m["free1"].PortID, m["free2"].PortID)
	return m
}

// cut removes the rule of some connections, and says when their last bytes arrived.
func (f *filtered) cut(t *testing.T, list []*stream) {
	defer func() {
		for _, s := range list {
			s.close()
		}
	}()
	for _, s := range list {
		if err := s.open(); err != nil {
			t.Fatal(err)
		}
	}
	flowing := func() bool {
		for _, s := range list {
			now := time.Now().UnixNano()
			if now-s.toFar.Load() > int64(50*time.Millisecond) || now-s.toNear.Load() > int64(50*time.Millisecond) {
				return false
			}
		}
		return true
	}
	if !f.eventually(wired, flowing) {
		t.Fatal("the connections do not carry anything")
	}
	f.request(t, http.MethodDelete, "security-group-rules/"+list[0].rule, nil, nil)
	start := time.Now()
	f.eventually(4*revoked, func() bool { return false })
	for _, s := range list {
		for to, last := range map[string]*atomic.Int64{"initiator": &s.toNear, "responder": &s.toFar} {
			took := max(0, time.Duration(last.Load()-start.UnixNano()))
			fmt.Printf("%s: %s, TCP %s: last byte arrived at the %s %d ms after the rule was removed\n", f.agent, t.Name(), s.name, to, took.Milliseconds())
			if took > revoked && f.agent == lab.Patchbay {
				t.Errorf("TCP %s still carried something to the %s %v after the rule was removed, want %v at most", s.name, to, took, revoked)
			}
		}
		// The Python agent looks for entries of the kernel's tracker only.
		if left := f.tracked(t, s); len(left) > 0 && f.agent == lab.Patchbay {
			t.Errorf("TCP %s is still tracked as allowed on the hosts of filtered ports: %q", s.name, left)
		}
	}
}

// tracked are the entries of a connection on the host of the port whose rule was removed. One that bears the mark stops
// the connection, and stays for as long as its ends try.
func (f *filtered) tracked(t *testing.T, s *stream) []string {
	t.Helper()
	var left []string
	tuple := fmt.Sprintf("src=%s,dst=%s,sport=%d,dport=%d", s.fromIP, s.ip, s.near.LocalAddr().(*net.TCPAddr).Port, s.port)
	f.eventually(wired/2, func() bool {
		out, err := f.l.Host(1).Switch().Appctl(f.ctx, "ovs-vswitchd", "dpctl/dump-conntrack")
		if err != nil {
			t.Fatal(err)
		}
		left = nil
		for line := range strings.Lines(out) {
			if strings.Contains(line, tuple) && !strings.Contains(line, "mark=1") {
				left = append(left, strings.TrimSpace(line))
			}
		}
		return len(left) == 0 || f.agent != lab.Patchbay
	})
	return left
}
