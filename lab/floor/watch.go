// SPDX-License-Identifier: Apache-2.0

package floor

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/lab"
	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// Watch tells when ports change their status, from the news that the server sends to all agents after each change. Asking
// the API instead would take some 25 ms of the machine for every question, and answer no finer than it is asked.
type Watch struct {
	client *messaging.Client

	mu   sync.Mutex
	seen map[string]seen // by port
	news chan struct{}   // closed and made anew with every change
}

type seen struct {
	status string
	at     time.Time
}

// NewWatch starts listening.
func NewWatch(ctx context.Context, l *lab.Lab) (*Watch, error) {
	client, err := Open(l, "lab-watch")
	if err != nil {
		return nil, err
	}
	w := &Watch{client: client, seen: map[string]seen{}, news: make(chan struct{})}
	_, versions, err := neutron.Negotiate(ctx, neutron.NewServer(client, "lab-watch"))
	if err == nil {
		topic, _ := versions.Topic(neutron.KindPort)
		err = client.Serve(ctx, messaging.Service{Topics: []string{topic}, Handler: w.take})
	}
	if err != nil {
		w.Close()
		return nil, fmt.Errorf("listening to news about ports: %w", err)
	}
	return w, nil
}

// Close ends it.
func (w *Watch) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = w.client.Close(ctx)
}

func (w *Watch) take(_ context.Context, m *messaging.Message) (any, error) {
	now := time.Now()
	decoded, err := neutron.DecodeMessage(m.Topic, m.Method, m.Args)
	push, ok := decoded.(*neutron.Push)
	if err != nil || !ok {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, o := range push.Objects {
		var p struct{ ID, Status string }
		if json.Unmarshal(o.Data, &p) == nil && p.Status != "" && w.seen[p.ID].status != p.Status {
			w.seen[p.ID] = seen{p.Status, now}
		}
	}
	close(w.news)
	w.news = make(chan struct{})
	return nil, nil
}

// Wait waits until all ports have the status, and tells when the first and the last of them got it.
func (w *Watch) Wait(ctx context.Context, status string, ids ...string) (first, last time.Time, err error) {
	for {
		missing := 0
		first, last = time.Time{}, time.Time{}
		w.mu.Lock()
		for _, id := range ids {
			s := w.seen[id]
			if s.status != status {
				missing++
				continue
			}
			if first.IsZero() || s.at.Before(first) {
				first = s.at
			}
			if s.at.After(last) {
				last = s.at
			}
		}
		news := w.news
		w.mu.Unlock()
		if missing == 0 {
			return first, last, nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			return first, last, fmt.Errorf("waiting for %d of %d ports to be %s: %w", missing, len(ids), status, ctx.Err())
		}
	}
}
