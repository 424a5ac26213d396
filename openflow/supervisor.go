// SPDX-License-Identifier: Apache-2.0

package openflow

import (
	"context"
	"math/rand/v2"
	"time"
)

// A Link is the state of a supervised connection. With a Conn the switch can
// be reached, and nothing may be taken for granted of what it had before: the
// user has to read and restore its flows, meters and monitors. Without one it
// cannot, for the reason Err.
type Link struct {
	Conn *Conn
	Err  error
}

// A Supervisor keeps a connection to a switch: it dials again, with growing
// pauses, whenever the connection breaks.
type Supervisor struct {
	// Dial makes a connection, usually by calling the function Dial.
	Dial func(ctx context.Context) (*Conn, error)
	// MinPause and MaxPause bound the pause between attempts, which doubles
	// with every failure and is varied by a quarter: 100 ms and 5 s if 0.
	MinPause, MaxPause time.Duration
	// Attempt bounds one attempt: 10 s if 0.
	Attempt time.Duration

	links chan Link
}

// Start begins to connect and returns the states of the connection, until ctx
// ends; then the connection and the channel are closed. A state that was not
// read is replaced by the next one: who was busy during a break and the
// following reconnection sees one event, the new connection.
func (s *Supervisor) Start(ctx context.Context) <-chan Link {
	if s.MinPause <= 0 {
		s.MinPause = 100 * time.Millisecond
	}
	if s.MaxPause <= 0 {
		s.MaxPause = 5 * time.Second
	}
	if s.Attempt <= 0 {
		s.Attempt = 10 * time.Second
	}
	s.links = make(chan Link, 1)
	go s.run(ctx)
	return s.links
}

func (s *Supervisor) run(ctx context.Context) {
	defer close(s.links)
	pause := s.MinPause
	down := false // the user knows that the switch cannot be reached
	for ctx.Err() == nil {
		c, err := s.dial(ctx)
		if err != nil {
			if !down && ctx.Err() == nil {
				s.tell(Link{Err: err})
				down = true
			}
			if !sleep(ctx, vary(pause)) {
				return
			}
			pause = min(2*pause, s.MaxPause)
			continue
		}
		began := time.Now()
		s.tell(Link{Conn: c})
		select {
		case <-c.Done():
		case <-ctx.Done():
		}
		err = c.Err()
		_ = c.Close()
		if ctx.Err() != nil {
			return
		}
		s.tell(Link{Err: err})
		down = true
		// A switch that breaks connections at once is not asked at full speed.
		if time.Since(began) > s.MaxPause {
			pause = s.MinPause
		} else {
			if !sleep(ctx, vary(pause)) {
				return
			}
			pause = min(2*pause, s.MaxPause)
		}
	}
}

func (s *Supervisor) dial(ctx context.Context) (*Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, s.Attempt)
	defer cancel()
	return s.Dial(ctx)
}

// tell replaces what the user has not read.
func (s *Supervisor) tell(l Link) {
	select {
	case <-s.links:
	default:
	}
	s.links <- l
}

// vary returns a pause that differs by up to a quarter.
func vary(d time.Duration) time.Duration {
	return d - d/4 + rand.N(d/2+1)
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
