// SPDX-License-Identifier: Apache-2.0

package messaging

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// caller sends until somebody listens, as a call does, and says when.
type caller struct {
	s       *silences
	mu      sync.Mutex
	sent    int
	listens bool
}

func (c *caller) call(ctx context.Context, closing <-chan struct{}) (err error) {
	var lead chan struct{}
	defer func() { c.s.leave("topic", lead) }()
	for {
		c.mu.Lock()
		c.sent++
		listens := c.listens
		c.mu.Unlock()
		if listens {
			c.s.heard("topic")
			return nil
		}
		if lead, err = c.s.wait(ctx, closing, "topic", lead, 0.5); err != nil {
			return err
		}
	}
}

// Of ten calls that nobody takes one is sent again, more and more rarely; when it gets through so do the others.
func TestSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &caller{s: &silences{}}
		short, cancel := context.WithTimeout(t.Context(), 9*time.Second)
		defer cancel()
		gaveUp, through := make(chan error, 1), make(chan time.Time, 9)
		go func() { gaveUp <- c.call(short, nil) }() // it leads, until it gives up
		settle()
		for range 9 {
			go func() {
				if err := c.call(t.Context(), nil); err != nil {
					t.Error(err)
				}
				through <- time.Now()
			}()
		}
		if err := <-gaveUp; !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		time.Sleep(60 * time.Second)
		// Ten at first, then after 0.5, 1.5, 3.5, 5.5 and 7.5 s; nine when another one takes the lead at 9 s, then every 2 s.
		c.mu.Lock()
		if c.sent > 10+5+9+31 || c.sent < 10+5+9+29 {
			t.Errorf("%d messages in 69 s", c.sent)
		}
		c.listens, c.sent = true, 0
		c.mu.Unlock()
		back := time.Now()
		for range 9 {
			if at := <-through; at.Sub(back) > 2*time.Second {
				t.Errorf("through after %v", at.Sub(back))
			}
		}
		if c.sent != 9 || len(c.s.topics) > 0 {
			t.Errorf("%d messages, %d topics left", c.sent, len(c.s.topics))
		}
	})
}

// A call that finds the server at its first attempt brings the others with it; a client that is closed keeps none.
func TestTheEndOfASilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, closing := &caller{s: &silences{}}, make(chan struct{})
		ended := make(chan error, 3)
		for range 2 {
			go func() { ended <- c.call(t.Context(), closing) }()
		}
		time.Sleep(10 * time.Second)
		c.s.heard("topic")
		c.mu.Lock()
		c.listens = true
		c.mu.Unlock()
		began := time.Now()
		if err := <-ended; err != nil || time.Since(began) > 0 {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
		c.listens = false
		go func() { ended <- c.call(t.Context(), closing) }()
		settle()
		close(closing)
		if err := <-ended; !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	})
}
