// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// vm is a namespace whose eth0 is plugged into a host's integration bridge.
type vm struct {
	name   string
	host   *host
	port   port
	v4, v6 string

	accepted sync.Map // of net.Conn, by the other end's address
}

func (v *vm) tap() string { return "tap" + v.port.ID[:11] }

// plug does as Nova does.
func (v *vm) plug(ctx context.Context) error {
	h := v.host
	if err := script(ctx,
		"ip netns add "+v.name,
		"ip -n "+v.name+" link set dev lo up",
		fmt.Sprintf("ip -n %s link add %s type veth peer name eth0 address %s netns %s", h.name, v.tap(), v.port.MAC, v.name),
		fmt.Sprintf("ip -n %s link set dev %s mtu 1400 up", h.name, v.tap()),
		fmt.Sprintf("ip -n %s link set dev eth0 mtu 1400 up", v.name),
		fmt.Sprintf("ip -n %s address add %s/24 dev eth0", v.name, v.v4),
		fmt.Sprintf("ip -n %s address add %s/64 dev eth0 nodad", v.name, v.v6),
	); err != nil {
		return err
	}
	_, err := h.sw.Vsctl(ctx, "--may-exist", "add-br", "br-int", "--", "set", "Bridge", "br-int", "datapath_type=system",
		"--", "add-port", "br-int", v.tap(), "--", "set", "Interface", v.tap(),
		"external_ids:iface-id="+v.port.ID, `external_ids:attached-mac="`+v.port.MAC+`"`,
		"external_ids:iface-status=active", "external_ids:vm-uuid="+v.port.ID)
	return err
}

// within runs f in the VM's namespace; sockets that f makes stay there.
func (v *vm) within(f func() error) error {
	done := make(chan error)
	go func() {
		// Never unlocked: the thread ends with the goroutine.
		runtime.LockOSThread()
		done <- func() error {
			ns, err := os.Open("/run/netns/" + v.name)
			if err != nil {
				return err
			}
			defer func() { _ = ns.Close() }()
			if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
				return fmt.Errorf("entering %s: %w", v.name, err)
			}
			return f()
		}()
	}()
	return <-done
}

func (v *vm) ping(ctx context.Context, address string, wait time.Duration) error {
	_, err := command(ctx, "ip", "netns", "exec", v.name, "ping", "-n", "-c", "1", "-W", fmt.Sprint(int(wait.Seconds())), address)
	return err
}

// serve answers TCP connections with what they say.
func (v *vm) serve(port int) error {
	return v.within(func() error {
		l, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
		if err != nil {
			return fmt.Errorf("listening in %s: %w", v.name, err)
		}
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				v.accepted.Store(c.RemoteAddr().String(), c)
				go func() {
					defer func() { _ = c.Close() }()
					buf := make([]byte, 256)
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
		return nil
	})
}

func (v *vm) dial(address string, port int, limit time.Duration) (net.Conn, error) {
	var c net.Conn
	err := v.within(func() (err error) {
		c, err = net.DialTimeout("tcp", net.JoinHostPort(address, fmt.Sprint(port)), limit)
		return err
	})
	return c, err
}

// echo says something and waits for the answer.
func echo(c net.Conn, limit time.Duration) error {
	word := fmt.Sprintf("%d;", time.Now().UnixNano())
	if err := c.SetDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	if _, err := c.Write([]byte(word)); err != nil {
		return err
	}
	// What was said before may be answered now.
	var got strings.Builder
	for buf := make([]byte, 256); !strings.Contains(got.String(), word); {
		n, err := c.Read(buf)
		if err != nil {
			return err
		}
		got.Write(buf[:n])
	}
	return nil
}

// giveUp makes an end of a connection stop trying to get through, without a word to the other end.
func giveUp(c net.Conn) error {
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		return fmt.Errorf("giving up a connection: %w", err)
	}
	var set error
	if err := raw.Control(func(fd uintptr) {
		set = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, 1)
	}); err != nil || set != nil {
		return fmt.Errorf("giving up a connection: %w", errors.Join(err, set))
	}
	return nil
}

// probe sends numbered packets from one VM to another, which sends them back, and counts at both ends.
type probe struct {
	sent, arrived, back atomic.Int64
	stopSending         chan struct{}
	closers             []func() error
	running             sync.WaitGroup
}

// probeInterval leaves the emulated processor time for the agents that start meanwhile.
const probeInterval = 50 * time.Millisecond

func startProbe(from, to *vm, port int) (*probe, error) {
	p := &probe{stopSending: make(chan struct{})}
	var there *net.UDPConn
	if err := to.within(func() (err error) {
		there, err = net.ListenUDP("udp", &net.UDPAddr{Port: port})
		return err
	}); err != nil {
		return nil, fmt.Errorf("probing: %w", err)
	}
	p.closers = append(p.closers, there.Close)
	var here *net.UDPConn
	if err := from.within(func() (err error) {
		here, err = net.DialUDP("udp", nil, &net.UDPAddr{IP: net.ParseIP(to.v4), Port: port})
		return err
	}); err != nil {
		return nil, errors.Join(fmt.Errorf("probing: %w", err), p.close())
	}
	p.closers = append(p.closers, here.Close)
	p.running.Go(func() { p.echo(there) })
	p.running.Go(func() { p.receive(here) })
	p.running.Go(func() { p.send(here) })
	return p, nil
}

func (p *probe) echo(there *net.UDPConn) {
	for buf := make([]byte, 64); ; {
		n, peer, err := there.ReadFromUDP(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			p.arrived.Add(1)
			_, _ = there.WriteToUDP(buf[:n], peer)
		}
	}
}

func (p *probe) receive(here *net.UDPConn) {
	seen := map[uint64]bool{}
	for buf := make([]byte, 64); ; {
		n, err := here.Read(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil || n < 8 {
			continue
		}
		if id := binary.BigEndian.Uint64(buf); !seen[id] {
			seen[id] = true
			p.back.Add(1)
		}
	}
}

func (p *probe) send(here *net.UDPConn) {
	tick := time.NewTicker(probeInterval)
	defer tick.Stop()
	for id := uint64(0); ; id++ {
		select {
		case <-p.stopSending:
			return
		case <-tick.C:
			if _, err := here.Write(binary.BigEndian.AppendUint64(nil, id)); err == nil {
				p.sent.Add(1)
			}
		}
	}
}

// end stops sending, waits for what is still on its way, and says how many packets were sent, arrived and came back.
func (p *probe) end() (sent, arrived, back int64) {
	close(p.stopSending)
	for range 50 {
		if p.back.Load() == p.sent.Load() {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	_ = p.close()
	p.running.Wait()
	return p.sent.Load(), p.arrived.Load(), p.back.Load()
}

func (p *probe) close() error {
	var all error
	for _, f := range p.closers {
		all = errors.Join(all, f())
	}
	return all
}
