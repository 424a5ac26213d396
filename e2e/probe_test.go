// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// probe is a raw socket on a link inside a namespace: it sends any frame, and sees every frame that arrives, for whomever
// it is meant.
type probe struct {
	fd   int
	link int
	vlan uint16 // into which all that is sent is put; 0 for none
	done chan struct{}
	stop atomic.Bool

	mu   sync.Mutex
	seen map[token]int
	arps []arpFrame
}

// openProbe opens a socket in a namespace. A socket belongs for ever to the namespace its thread was in; the thread ends
// with the goroutine, so that nobody inherits it.
func openProbe(netns, link string) (*probe, error) {
	const all = unix.ETH_P_ALL>>8 | unix.ETH_P_ALL<<8&0xff00 // in network byte order
	p, err := openSocket(netns, link, all)
	if err == nil {
		go p.read()
	}
	return p, err
}

// openSender opens a socket that receives nothing.
func openSender(netns, link string) (*probe, error) { return openSocket(netns, link, 0) }

func openSocket(netns, link string, protocol uint16) (*probe, error) {
	p := &probe{done: make(chan struct{}), seen: map[token]int{}}
	made := make(chan error)
	go func() {
		runtime.LockOSThread()
		made <- p.open(netns, link, protocol)
	}()
	if err := <-made; err != nil {
		return nil, fmt.Errorf("opening a raw socket on %s in %s: %w", link, netns, err)
	}
	return p, nil
}

// enter moves the thread of the calling goroutine into a namespace.
func enter(netns string) error {
	ns, err := unix.Open("/run/netns/"+netns, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(ns) }()
	return unix.Setns(ns, unix.CLONE_NEWNET)
}

// every calls do again and again, with a pause before each time, until the function that it returns is called.
func every(pause time.Duration, do func()) (end func()) {
	ended, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-ended:
				return
			case <-time.After(pause):
				do()
			}
		}
	}()
	return func() {
		close(ended)
		<-done
	}
}

func (p *probe) open(netns, link string, protocol uint16) error {
	if err := enter(netns); err != nil {
		return err
	}
	i, err := net.InterfaceByName(link)
	if err != nil {
		return err
	}
	p.link = i.Index
	p.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	_ = unix.SetsockoptInt(p.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20)
	timeout := unix.NsecToTimeval(int64(50 * time.Millisecond))
	if err := unix.SetsockoptTimeval(p.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout); err != nil {
		return err
	}
	return unix.Bind(p.fd, &unix.SockaddrLinklayer{Protocol: protocol, Ifindex: p.link})
}

func (p *probe) read() {
	defer close(p.done)
	buf := make([]byte, 2048)
	for !p.stop.Load() {
		n, from, err := unix.Recvfrom(p.fd, buf, 0)
		if err != nil {
			continue // nothing came in time, or the link went down
		}
		if ll, ok := from.(*unix.SockaddrLinklayer); ok && ll.Pkttype != unix.PACKET_OUTGOING {
			p.take(buf[:n])
		}
	}
}

func (p *probe) take(frame []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if k, ok := tokenIn(frame); ok {
		p.seen[k]++
	}
	if a, ok := parseARP(frame); ok {
		p.arps = append(p.arps, a)
	}
}

// close ends the reader and the socket.
func (p *probe) close() {
	if p != nil && !p.stop.Swap(true) {
		<-p.done
		_ = unix.Close(p.fd)
	}
}

// send puts a frame on the link.
func (p *probe) send(frame []byte) error {
	if p.vlan != 0 {
		frame = tagged(frame, p.vlan)
	}
	if err := unix.Sendto(p.fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: p.link, Halen: 6}); err != nil {
		return fmt.Errorf("sending a frame: %w", err)
	}
	return nil
}

// saw says how often the frame with the token arrived.
func (p *probe) saw(k token) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen[k]
}

// forget drops what arrived so far.
func (p *probe) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen = map[token]int{}
}

// arpAnswers lists the MAC addresses that answered for an address since the given count of ARP frames.
func (p *probe) arpAnswers(since int, ip string) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var macs []string
	for _, a := range p.arps[since:] {
		if a.op == 2 && a.senderIP == ip {
			macs = append(macs, a.senderMAC)
		}
	}
	return macs
}

// arpCount is how many ARP frames have arrived so far.
func (p *probe) arpCount() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.arps)
}

// token tells one sent frame from all others, wherever it arrives.
type token uint64

// magic stands before a token at the end of a frame. Trailing bytes are padding to every protocol that is sent here.
var magic = []byte("patchbay")

func tokenIn(frame []byte) (token, bool) {
	i := bytes.LastIndex(frame, magic)
	if i < 0 || len(frame) < i+len(magic)+8 {
		return 0, false
	}
	return token(binary.BigEndian.Uint64(frame[i+len(magic):])), true
}

func (k token) bytes() []byte { return binary.BigEndian.AppendUint64(bytes.Clone(magic), uint64(k)) }
