// SPDX-License-Identifier: Apache-2.0

package ovn

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"sync"
	"time"
)

// View is one of the two places where ports are seen to be up.
type View struct{ db, schema, table, name string }

// Controller's word and the one that users read, which ovn-northd makes of it. Both may come before the port's filters: of
// the first port of a network the controller says that it is up, and asks for the network's logical flows at the same time.
var (
	Southbound = View{southbound, "OVN_Southbound", "Port_Binding", "logical_port"}
	Northbound = View{northbound, "OVN_Northbound", "Logical_Switch_Port", "name"}
)

// Watch tells when ports are up and when they are not any more, as a database tells its clients.
type Watch struct {
	cmd  *exec.Cmd
	stop context.CancelFunc
	done chan struct{}

	mu   sync.Mutex
	seen map[string]seen
	news chan struct{} // closed and made anew with every change
	err  error
}

type seen struct {
	up bool
	at time.Time
}

// Watch starts watching.
func (n *Node) Watch(ctx context.Context, v View) (*Watch, error) {
	ctx, stop := context.WithCancel(ctx)
	w := &Watch{stop: stop, done: make(chan struct{}), seen: map[string]seen{}, news: make(chan struct{})}
	w.cmd = exec.CommandContext(ctx, "ovsdb-client", "--format=json", "monitor", n.remote(v.db), v.schema, v.table, v.name+",up")
	w.cmd.WaitDelay = time.Second
	out, err := w.cmd.StdoutPipe()
	if err == nil {
		err = w.cmd.Start()
	}
	if err != nil {
		stop()
		return nil, fmt.Errorf("watching %s: %w", v.schema, err)
	}
	go func() {
		defer close(w.done)
		lines := json.NewDecoder(out)
		var err error
		for err == nil {
			var t update
			if err = lines.Decode(&t); err == nil {
				w.take(t, v.name)
			}
		}
		w.mu.Lock()
		w.err = err
		close(w.news)
		w.news = make(chan struct{})
		w.mu.Unlock()
	}()
	return w, nil
}

// Close ends it.
func (w *Watch) Close() {
	w.stop()
	<-w.done
	_ = w.cmd.Wait() // killed
}

// update is a table as ovsdb-client prints it, one for every change.
type update struct {
	Headings []string            `json:"headings"`
	Data     [][]json.RawMessage `json:"data"`
}

func (w *Watch) take(u update, nameColumn string) {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, row := range u.Data {
		var action, name string
		var up bool
		for i, column := range u.Headings[:min(len(u.Headings), len(row))] {
			switch column {
			case "action":
				_ = json.Unmarshal(row[i], &action)
			case nameColumn:
				_ = json.Unmarshal(row[i], &name)
			case "up": // true, false, or an empty set
				up = bytes.Equal(row[i], []byte("true"))
			}
		}
		// Of a change the row before it is told as well.
		if name != "" && action != "old" && action != "delete" && w.seen[name].up != up {
			w.seen[name] = seen{up, now}
		}
	}
	close(w.news)
	w.news = make(chan struct{})
}

// Wait waits until all ports are up, or all are not, and tells when the last of them came to be so.
func (w *Watch) Wait(ctx context.Context, up bool, names ...string) (last time.Time, err error) {
	for {
		missing := 0
		w.mu.Lock()
		last = time.Time{}
		for _, n := range names {
			s := w.seen[n]
			if s.up != up {
				missing++
			} else if s.at.After(last) {
				last = s.at
			}
		}
		news, err := w.news, w.err
		w.mu.Unlock()
		switch {
		case missing == 0:
			return last, nil
		case err != nil:
			return last, fmt.Errorf("watching ports: %w", err)
		}
		select {
		case <-news:
		case <-ctx.Done():
			return last, fmt.Errorf("waiting for %d of %d ports: %w", missing, len(names), ctx.Err())
		}
	}
}
