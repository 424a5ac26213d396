// SPDX-License-Identifier: Apache-2.0

// Package guests speaks for many ports of a host at once: they are internal ports of the switch, and one raw socket sends and receives for all of them. A thousand
// guests need no namespaces of their own then, and the program that asks takes little of the processor that it shares with who answers.
//
// In: the names of links in a namespace, and frames. Out: the DHCP and DNS answers that arrive, with the port at which they do; and with [Ask], which
// guest had its address after which time.
package guests

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Guests are ports of a host, numbered as their names were given.
type Guests struct {
	fd      int
	links   []int       // interface indexes
	numbers map[int]int // by index
	stop    atomic.Bool
	done    chan struct{}
}

// Open brings links of a namespace up, and speaks for them. Each is called with every answer that arrives; the frame is valid until it returns.
func Open(ctx context.Context, netns string, names []string, each func(number int, frame []byte)) (*Guests, error) {
	g := &Guests{fd: -1, numbers: map[int]int{}, done: make(chan struct{})}
	made := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread, which is in the namespace, ends with the goroutine
		made <- g.open(ctx, netns, names)
	}()
	if err := <-made; err != nil {
		if g.fd >= 0 {
			_ = unix.Close(g.fd)
		}
		return nil, fmt.Errorf("speaking for %d guests in %s: %w", len(names), netns, err)
	}
	go g.receive(each)
	return g, nil
}

func (g *Guests) open(ctx context.Context, netns string, names []string) error {
	ns, err := unix.Open("/run/netns/"+netns, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(ns) }()
	if err := unix.Setns(ns, unix.CLONE_NEWNET); err != nil {
		return err
	}
	var up bytes.Buffer
	for _, name := range names {
		// The host would speak for itself on a link that has IPv6.
		if err := os.WriteFile("/proc/sys/net/ipv6/conf/"+name+"/disable_ipv6", []byte("1"), 0); err != nil {
			return err
		}
		fmt.Fprintln(&up, "link set dev", name, "up")
	}
	ip := exec.CommandContext(ctx, "ip", "-n", netns, "-batch", "-")
	ip.Stdin = &up
	if out, err := ip.CombinedOutput(); err != nil {
		return fmt.Errorf("bringing links up: %w: %s", err, out)
	}
	if g.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
		return err
	}
	for i, name := range names {
		link, err := unix.NewIfreq(name)
		if err == nil {
			err = unix.IoctlIfreq(g.fd, unix.SIOCGIFINDEX, link) // package net reads all links to find one
		}
		if err != nil {
			return fmt.Errorf("looking for link %s: %w", name, err)
		}
		g.links = append(g.links, int(link.Uint32()))
		g.numbers[int(link.Uint32())] = i
	}
	return g.socket()
}

// socket has the socket take answers of all links of the namespace.
func (g *Guests) socket() error {
	filter := answers()
	timeout := unix.NsecToTimeval(int64(50 * time.Millisecond))
	return errors.Join(
		unix.SetsockoptSockFprog(g.fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}),
		unix.SetsockoptInt(g.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20),
		unix.SetsockoptTimeval(g.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout),
		unix.Bind(g.fd, &unix.SockaddrLinklayer{Protocol: unix.ETH_P_ALL>>8 | unix.ETH_P_ALL<<8&0xff00}), // in network byte order
	)
}

// answers is the filter: UDP from the ports of DHCP, DHCPv6 and DNS servers. A thousand guests hear each other's broadcasts, which are not looked at.
func answers() []unix.SockFilter {
	const half, octet, equal, end = unix.BPF_LD | unix.BPF_H | unix.BPF_ABS, unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, unix.BPF_RET
	const take, leave = 13, 14 // the places of the last two
	f := []unix.SockFilter{
		{Code: half, K: 12}, // Ethernet type
		{Code: equal, K: unix.ETH_P_IPV6, Jt: 5},
		{Code: equal, K: unix.ETH_P_IP, Jf: leave - 3},
		{Code: octet, K: 23}, // protocol of IPv4
		{Code: equal, K: unix.IPPROTO_UDP, Jf: leave - 5},
		{Code: half, K: 34}, // source port
		{Code: unix.BPF_JMP | unix.BPF_JA, K: 3},
		{Code: octet, K: 20}, // protocol of IPv6
		{Code: equal, K: unix.IPPROTO_UDP, Jf: leave - 9},
		{Code: half, K: 54},
		{Code: equal, K: 67, Jt: take - 11},
		{Code: equal, K: 53, Jt: take - 12},
		{Code: equal, K: 547, Jf: leave - 13},
		{Code: end, K: 0x40000},
		{Code: end},
	}
	return f
}

func (g *Guests) receive(each func(int, []byte)) {
	defer close(g.done)
	buf := make([]byte, 4096)
	for !g.stop.Load() {
		n, from, err := unix.Recvfrom(g.fd, buf, 0)
		if err != nil {
			continue // nothing came in time
		}
		if at, ok := from.(*unix.SockaddrLinklayer); ok && at.Pkttype != unix.PACKET_OUTGOING {
			if number, known := g.numbers[at.Ifindex]; known {
				each(number, buf[:n])
			}
		}
	}
}

// Send has a guest send a frame. It waits while the link's queue is full.
func (g *Guests) Send(number int, frame []byte) error {
	for {
		err := unix.Sendto(g.fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: g.links[number], Halen: 6})
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.ENOBUFS) {
			return fmt.Errorf("guest %d sends a frame: %w", number, err)
		}
		time.Sleep(100 * time.Microsecond)
	}
}

// Close ends it.
func (g *Guests) Close() {
	if !g.stop.Swap(true) {
		<-g.done
		_ = unix.Close(g.fd)
	}
}
