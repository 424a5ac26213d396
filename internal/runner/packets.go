// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/effect"
	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/pace"
)

// keepPacketConn keeps a further connection for packets until the one that changes the flows of the bridge ends. If it cannot be had it is tried again, and
// meanwhile its packets are lost, as those are that the switch drops. The loop is told from the second failure in a row on: the first may be that of a switch
// that has ended, with all its connections.
func (r *Runner) keepPacketConn(ctx context.Context, bridge string, conn effect.Conn, id uint16, bounds map[string]extension.Bound) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	links := r.cfg.PacketLink(ctx, bridge)
	var taking sync.WaitGroup
	defer taking.Wait()
	failures := 0
	failed := func(err error) {
		if failures++; failures > 1 {
			r.put(effect.PacketsUnheard{Bridge: bridge, Err: err})
		}
	}
	for {
		select {
		case <-conn.Done():
			cancel()
			for range links { // until all is closed
			}
			return
		case l, ok := <-links:
			if !ok {
				return
			}
			if l.Conn == nil {
				failed(l.Err)
				continue
			}
			if err := l.Conn.EnablePacketIns(ctx, id); err != nil {
				_ = l.Conn.Close() // and there will be another one
				failed(err)
				continue
			}
			failures = 0
			taking.Go(func() { r.takePackets(bridge, l.Conn, conn, bounds) })
		}
	}
}

// takePackets passes on the packets that flows of extensions send, until the connection from ends. They are answered by conn. Of those with the same userdata it passes on as
// many as the bound of the extension allows, so that one VM costs neither the others nor the loop. Meters in the switch keep the same bound; this
// one holds where the switch has none.
func (r *Runner) takePackets(bridge string, from, conn effect.Conn, bounds map[string]extension.Bound) {
	limits := map[string]*pace.Limits[string]{}
	dropped := map[string]uint64{}
	for p := range from.PacketIns() {
		of := string(p.Userdata)
		name, _, _ := strings.Cut(of, " ")
		b, known := bounds[name]
		if !known { // nobody's
			name, b = "", extension.DefaultBound()
		}
		if limits[name] == nil {
			limits[name] = &pace.Limits[string]{Every: b.Every(), Burst: b.Burst}
		}
		if !limits[name].Take(of, time.Now()) {
			dropped[of]++
			continue
		}
		r.put(effect.PacketIn{Bridge: bridge, Conn: conn, Packet: p, Limited: dropped[of]})
		delete(dropped, of)
	}
}

// maxRecords bounds the lines of extensions' logs that wait for a slow disk: some seconds of a busy log.
const maxRecords = 1000

// records are lines of extensions' logs that wait.
type records struct {
	mu     sync.Mutex
	queue  []effect.WriteRecords
	writes bool // somebody is writing
	lost   uint64
}

// record has lines written, after those before them. It does not wait for that; while there are too many they are lost.
func (r *Runner) record(e effect.WriteRecords) {
	if r.cfg.Records == nil {
		return
	}
	q := &r.records
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.queue) >= maxRecords {
		q.lost += uint64(len(e.Lines))
		return
	}
	q.queue = append(q.queue, e)
	if !q.writes {
		q.writes = true
		r.work.Go(r.writeRecords)
	}
}

// next takes the lines that wait. Without any the writer is done.
func (q *records) next() (all []effect.WriteRecords, lost uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	all, lost = q.queue, q.lost
	q.queue, q.lost, q.writes = nil, 0, len(all) > 0
	return all, lost
}

func (r *Runner) writeRecords() {
	for {
		all, lost := r.records.next()
		if len(all) == 0 {
			return
		}
		for _, e := range all {
			r.cfg.Records(e, lost)
			lost = 0
		}
	}
}
