// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/delta"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/world"
	"github.com/patchbay-sdn/patchbay/openflow"
)

// Conn is what is used of *openflow.Conn. [Round.Run] and the caller use it; a [Dataplane] only compares it with others.
type Conn interface {
	Monitor(ctx context.Context, id uint32, fl openflow.Filter, initial bool) error
	Flows(ctx context.Context, fl openflow.Filter) ([]openflow.Entry, error)
	Commit(ctx context.Context, msgs []openflow.Message) error
	// For meters, of which bundles have none, and for packets that flows send to the controller.
	Send(ctx context.Context, msgs []openflow.Message) error
	Meters(ctx context.Context) ([]openflow.MeterDesc, error)
	MeterFeatures(ctx context.Context) (openflow.MeterFeatures, error)
	EnablePacketIns(ctx context.Context, id uint16) error
	PacketIns() <-chan *openflow.PacketIn
	Events() <-chan openflow.Event
	Done() <-chan struct{}
	Close() error
}

// Committer writes rows.
type Committer interface {
	CommitAll(ctx context.Context, txs []*ovsdb.Tx) (ovsdb.Result, []error)
}

// Flusher empties zones of connection tracking.
type Flusher interface {
	FlushZone(ctx context.Context, zone uint16) error
}

// Limiter sets limits of tracked connections.
type Limiter interface {
	// SetLimits gives each zone its limit, and with prune takes those of other local VLANs away.
	SetLimits(ctx context.Context, want map[uint16]uint32, prune bool) (changed int, err error)
}

// Switch is what a round changes besides bridges.
type Switch struct {
	Rows   Committer
	Zones  Flusher
	Limits Limiter
}

// applyTimeout bounds one round; a switch that takes longer is treated as one that did not answer.
const applyTimeout = 30 * time.Second

// Run makes the changes: meters, which flows refer to; rows, since flows refer to what they make; then one atomic bundle a
// bridge, and at last the meters go that no flow uses any more. Zones of connection tracking with a new owner are emptied
// before it has flows. The flows of a port whose rows or zone failed are left out: its guards must not go while its row still
// has it in a network, nor may it meet the connections of another network. A port that is in its network without any flow, see bridge.bare, does not wait for its rows.
func (r *Round) Run(ctx context.Context, sw Switch) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	for i := range r.Bundles {
		r.Bundles[i].send(ctx, r.Bundles[i].MetersIn)
	}
	if len(r.Rows) > 0 {
		result, errs := sw.Rows.CommitAll(ctx, r.Rows)
		r.Seq, r.RowErrs = result.Seq, errs
	}
	if r.Limits != nil {
		r.Limited, r.LimitsErr = sw.Limits.SetLimits(ctx, r.Limits.Want, r.Limits.Prune)
	}
	for _, zone := range r.Flush {
		r.FlushErrs = append(r.FlushErrs, sw.Zones.FlushZone(ctx, zone))
	}
	for i := range r.Bundles {
		r.Bundles[i].commit(ctx, r.failed(r.Bundles[i].bare))
	}
	r.Took = time.Since(began)
}

// commit changes the flows of a bridge, and then the meters that go, but not flows of what has failed.
func (b *Bundle) commit(ctx context.Context, failed map[world.Object]bool) {
	b.leaveOut(failed)
	msgs := make([]openflow.Message, len(b.Changes))
	for i, c := range b.Changes {
		msgs[i] = c.Message()
	}
	if b.Err = b.Conn.Commit(ctx, msgs); b.Err == nil {
		b.send(ctx, b.MetersOut)
	}
}

// send changes meters, for which the switch has no bundles.
func (b *Bundle) send(ctx context.Context, changes []delta.MeterChange) {
	msgs := make([]openflow.Message, len(changes))
	for i, c := range changes {
		msgs[i] = c.MeterMod
	}
	err := b.Conn.Send(ctx, msgs)
	var refused *openflow.SendError
	if err != nil {
		b.MeterErr = errors.Join(b.MeterErr, err)
		if !errors.As(err, &refused) {
			return
		}
	}
	for i, c := range changes {
		if refused == nil || !slices.ContainsFunc(refused.Failures, func(f openflow.Failure) bool { return f.Index == i }) {
			b.MetersDone = append(b.MetersDone, c)
		}
	}
}
