// SPDX-License-Identifier: Apache-2.0

package floor

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/lab"
	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// Watch tells when ports change their status, from the news that the server sends to all agents after each change. Asking
// the API instead would take some 25 ms of the machine for every question, and answer no finer than it is asked. It is asked
// when there was no news for a while: a server whose connections to the database are all in use is late with news, or loses them.
type Watch struct {
	lab    *lab.Lab
	client *messaging.Client

	mu    sync.Mutex
	seen  map[string]seen // by port
	news  chan struct{}   // closed and made anew with every change
	asked int             // changes that the API told first
}

// quiet is how long there is no news before the API is asked.
const quiet = 10 * time.Second

type seen struct {
	status   string
	revision int64
	at       time.Time
}

// NewWatch starts listening.
func NewWatch(ctx context.Context, l *lab.Lab) (*Watch, error) {
	client, err := Open(l, "lab-watch")
	if err != nil {
		return nil, err
	}
	w := &Watch{lab: l, client: client, seen: map[string]seen{}, news: make(chan struct{})}
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
		var p struct {
			ID, Status string
			Revision   int64 `json:"revision_number"`
		}
		if json.Unmarshal(o.Data, &p) == nil && p.Status != "" {
			w.note(p.ID, p.Status, p.Revision, now)
		}
	}
	close(w.news)
	w.news = make(chan struct{})
	return nil, nil
}

// note keeps what was heard of a port, and returns whether it is new. A busy server's workers overtake each other.
func (w *Watch) note(id, status string, revision int64, now time.Time) bool {
	s := w.seen[id]
	if revision < s.revision {
		return false
	}
	changed := s.status != status
	if changed {
		s.status, s.at = status, now
	}
	s.revision = revision
	w.seen[id] = s
	return changed
}

// ask asks the API about all ports.
func (w *Watch) ask(ctx context.Context) error {
	pages, err := ports.List(w.lab.Neutron(), nil).AllPages(ctx)
	if err != nil {
		return fmt.Errorf("listing ports: %w", err)
	}
	list, err := ports.ExtractPorts(pages)
	if err != nil {
		return fmt.Errorf("listing ports: %w", err)
	}
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range list {
		if _, known := w.seen[p.ID]; w.note(p.ID, p.Status, int64(p.RevisionNumber), now) && known {
			w.asked++
		}
	}
	return nil
}

// Asked returns how many changes the API told, because there was no news for ten seconds. The news of these were late or lost, and their times are up to ten
// seconds late.
func (w *Watch) Asked() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.asked
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
		case <-time.After(quiet):
			if err := w.ask(ctx); err != nil {
				return first, last, err
			}
		case <-ctx.Done():
			return first, last, fmt.Errorf("waiting for %d of %d ports to be %s: %w", missing, len(ids), status, ctx.Err())
		}
	}
}
