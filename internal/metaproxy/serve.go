// SPDX-License-Identifier: Apache-2.0

package metaproxy

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

// Kernel is what the proxy uses of the host: [Host].
type Kernel interface {
	Look(ctx context.Context, device string) (Link, error)
	Change(ctx context.Context, device string, index int, c Change) error
	// Watch calls changed when the device may have changed, until ctx ends.
	Watch(ctx context.Context, device string, changed func()) error
	Listen(ctx context.Context, device string, at netip.AddrPort) (net.Listener, error)
}

// Pauses of looking at the device: after a failure, and when all is as it should be and nothing was told.
const (
	retryPause = 2 * time.Second
	checkPause = time.Minute
)

// Give gives the proxy what it is to be. It may be called at any time, by one goroutine, before [Proxy.Run] for the first time.
func (p *Proxy) Give(s *Service) {
	p.service.Store(s)
	p.wake()
}

// wake has the device looked at.
func (p *Proxy) wake() {
	select {
	case p.poke <- struct{}{}:
	default:
	}
}

// Run keeps the device and the listener as the service says until ctx ends, and tells how the proxy is whenever that changes.
func (p *Proxy) Run(ctx context.Context, tell func(State)) error {
	var beside sync.WaitGroup
	defer beside.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	device := p.service.Load().Device
	beside.Go(func() {
		for ctx.Err() == nil {
			_ = p.host.Watch(ctx, device, p.wake) // it is looked at all the same, only later
			pause(ctx, retryPause)
		}
	})
	open := &listening{}
	defer open.close()
	if err := p.endLeftover(ctx); err != nil {
		tell(State{Reason: err.Error()})
	}
	last := State{}
	for {
		state, wait := State{Listening: true}, checkPause
		if err := p.keep(ctx, open, &beside); err != nil {
			state, wait = State{Reason: err.Error()}, retryPause
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if state != last {
			last = state
			tell(state)
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-p.poke:
		case <-t.C:
		}
		t.Stop()
	}
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// listening is where the proxy listens.
type listening struct {
	at     netip.AddrPort
	index  int // of the device
	server *http.Server
	ended  chan struct{}
}

func (l *listening) close() {
	if l.server != nil {
		_ = l.server.Close()
		<-l.ended
	}
	*l = listening{}
}

// is returns whether the proxy listens at an address of a device.
func (l *listening) is(at netip.AddrPort, index int) bool {
	if l.server == nil || l.at != at || l.index != index {
		return false
	}
	select {
	case <-l.ended:
		return false
	default:
		return true
	}
}

// keep makes the device as the service needs it, and listens. A device that the switch has made anew has another index, and a listener of its own.
func (p *Proxy) keep(ctx context.Context, open *listening, beside *sync.WaitGroup) error {
	s := p.service.Load()
	link, err := p.host.Look(ctx, s.Device)
	if err != nil {
		return err
	}
	if link.Index == 0 {
		open.close()
		return fmt.Errorf("device %s does not exist yet", s.Device)
	}
	for _, c := range s.Lacks(link) {
		if err := p.host.Change(ctx, s.Device, link.Index, c); err != nil {
			return err
		}
	}
	if open.is(s.Listen(), link.Index) {
		return nil
	}
	open.close()
	l, err := p.host.Listen(ctx, s.Device, s.Listen())
	if err != nil {
		return err
	}
	ended := make(chan struct{})
	open.at, open.index, open.ended, open.server = s.Listen(), link.Index, ended, p.newServer()
	server := open.server
	beside.Go(func() {
		defer close(ended)
		defer p.wake()
		_ = server.Serve(bounded{l, p.bounds})
	})
	return nil
}

func (p *Proxy) newServer() *http.Server {
	return &http.Server{
		Handler: p, ReadHeaderTimeout: headerTime, ReadTimeout: requestTime, WriteTimeout: answerTime, IdleTimeout: idleTime, MaxHeaderBytes: headerBytes,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo), DisableGeneralOptionsHandler: true, // what a VM sends is no reason for a line
	}
}
