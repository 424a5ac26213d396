// SPDX-License-Identifier: Apache-2.0

package messaging

import (
	"context"
	"sync"
	"time"
)

// Pauses, on average, between attempts to call a topic that nobody listens to.
const (
	silenceMin = 500 * time.Millisecond
	silenceMax = 2 * time.Second
)

// silences are the topics that nobody listens to. After a restart of the broker clients may be back before the servers, and a
// message that reaches no queue is lost. A broker has thousands of clients then, all of which wait for the same few
// servers, and each message costs it something whether it reaches a queue or not: so of all calls of a client to such
// a topic one leads, and is sent again with pauses that grow. The others follow as soon as a message gets through.
type silences struct {
	mu     sync.Mutex
	topics map[string]*silence
}

// silence is one topic. over is closed when it is over, or the call that leads gives up; nil when none leads.
type silence struct {
	failed int
	over   chan struct{}
}

// wait waits until a call that nobody took may be sent again. A call that leads passes what it got from the last wait.
func (s *silences) wait(ctx context.Context, closing <-chan struct{}, topic string, lead chan struct{}, jitter float64) (chan struct{}, error) {
	s.mu.Lock()
	if s.topics == nil {
		s.topics = map[string]*silence{}
	}
	q := s.topics[topic]
	if q == nil {
		q = &silence{}
		s.topics[topic] = q
	}
	var timer <-chan time.Time
	over := q.over
	if over == nil || over == lead { // this one leads
		if over == nil {
			q.over = make(chan struct{})
		}
		lead, over = q.over, nil
		pause := min(silenceMin<<min(q.failed, 10), silenceMax)
		timer = time.After(time.Duration((0.5 + jitter) * float64(pause)))
		q.failed++
	} else {
		lead = nil
	}
	s.mu.Unlock()
	select {
	case <-timer:
	case <-over:
	case <-ctx.Done():
		return lead, ctx.Err()
	case <-closing:
		return lead, ErrClosed
	}
	return lead, nil
}

// heard ends the silence of a topic: a message has reached a queue.
func (s *silences) heard(topic string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q := s.topics[topic]; q != nil {
		if q.over != nil {
			close(q.over)
		}
		delete(s.topics, topic)
	}
}

// leave ends a call. If it leads, another one does from now on.
func (s *silences) leave(topic string, lead chan struct{}) {
	if lead == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if q := s.topics[topic]; q != nil && q.over == lead {
		close(q.over)
		q.over = nil
	}
}
