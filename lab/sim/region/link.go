// SPDX-License-Identifier: Apache-2.0

package region

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// Link is the connection of one host to the server, without a broker between them. It has the methods of a messaging.Client
// that agents use.
type Link struct {
	region *Region
	host   string

	mu      sync.Mutex
	onEvent func(messaging.Event)
	service messaging.Service
	away    bool
	closed  bool
}

// Join connects a host. Its events go to onEvent, which may be nil.
func (s *Region) Join(host string, onEvent func(messaging.Event)) *Link {
	l := &Link{region: s, host: host, onEvent: onEvent}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.joined = append(s.joined, l)
	return l
}

// answerTime is how long a call waits for an answer that does not come: Neutron's rpc_response_timeout.
const answerTime = 60 * time.Second

// Call asks the server.
func (l *Link) Call(ctx context.Context, target messaging.Target, method string, args, result any) error {
	body, err := json.Marshal(args)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, answerTime, messaging.ErrTimeout)
	defer cancel()
	if l.gone() {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	value, err := l.region.Handle(ctx, &messaging.Message{
		Topic: target.Topic, Namespace: target.Namespace, Version: target.Version, Method: method, Args: body, Call: true,
	})
	if errors.Is(err, ErrLost) || l.gone() {
		<-ctx.Done()
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil || result == nil {
		return err
	}
	// The real client reads text as well.
	if body, err = json.Marshal(value); err != nil {
		return err
	}
	return json.Unmarshal(body, result)
}

// Serve listens to topics.
func (l *Link) Serve(ctx context.Context, s messaging.Service) error {
	if l.gone() {
		<-ctx.Done()
		return ctx.Err()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.service = s
	return nil
}

// RemoveLeftovers has nothing to remove.
func (l *Link) RemoveLeftovers(context.Context, []string, string) ([]string, error) { return nil, nil }

// Close ends the connection.
func (l *Link) Close(context.Context) error {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	s := l.region
	s.mu.Lock()
	defer s.mu.Unlock()
	s.joined = slices.DeleteFunc(s.joined, func(o *Link) bool { return o == l })
	return nil
}

// Leave takes the broker away from the host; what is sent meanwhile is lost to it. Back brings it again, and says so.
func (l *Link) Leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.away = true
}

// Back ends what Leave began.
func (l *Link) Back() {
	l.mu.Lock()
	was := l.away
	l.away = false
	l.mu.Unlock()
	if was && l.onEvent != nil {
		l.onEvent(messaging.Connected{Addr: "a:5672"})
		l.Miss()
	}
}

// Miss says that messages may have been missed, as after the broker was away.
func (l *Link) Miss() {
	if l.onEvent != nil {
		l.onEvent(messaging.Gap{Queue: "q", Reason: "it had expired"})
	}
}

func (l *Link) gone() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.away || l.closed
}

func (l *Link) deliver(m outgoing) {
	l.mu.Lock()
	handler := l.service.Handler
	if l.away || l.closed || !slices.Contains(l.service.Topics, m.target.Topic) || !m.target.Fanout && m.target.Server != l.host {
		handler = nil
	}
	l.mu.Unlock()
	if handler == nil {
		return
	}
	body, err := json.Marshal(m.args)
	if err != nil {
		panic(err) // strings, numbers and maps of them
	}
	_, _ = handler(context.Background(), &messaging.Message{
		Topic: m.target.Topic, Fanout: m.target.Fanout, Directed: !m.target.Fanout, Method: m.method, Version: m.target.Version, Args: body,
	})
}
