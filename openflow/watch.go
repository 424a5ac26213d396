// SPDX-License-Identifier: Apache-2.0

package openflow

import (
	"context"
	"errors"
)

var errMonitorBusy = errors.New("openflow: another monitor request is under way on this connection")

// monitorWait is a monitor request under way. Open vSwitch answers a refused
// one with an error of transaction id 0, so it cannot be an ordinary waiter:
// what comes before the answer to the barrier that follows belongs to it.
type monitorWait struct {
	xid uint32
	err error
}

// Monitor makes the switch report every change of the flows that fl selects,
// as *MonitorUpdate among the Events; if initial is set, first the flows that
// are there. The id is the caller's, for StopMonitor. When Monitor returns,
// the initial flows are among the Events.
//
// It needs Open vSwitch 3.0; older ones refuse it. In OpenFlow 1.4 the changes
// that this connection itself makes come only as FlowOwn. The cookies of fl
// are not looked at.
func (c *Conn) Monitor(ctx context.Context, id uint32, fl Filter, initial bool) error {
	return c.monitorRequest(ctx, func(xid uint32) ([]byte, error) {
		return appendMonitor(nil, c.version, xid, id, &fl, initial)
	})
}

// StopMonitor ends the monitor with that id.
func (c *Conn) StopMonitor(ctx context.Context, id uint32) error {
	return c.monitorRequest(ctx, func(xid uint32) ([]byte, error) {
		return appendMonitorCancel(nil, c.version, xid, id), nil
	})
}

func (c *Conn) monitorRequest(ctx context.Context, encode func(xid uint32) ([]byte, error)) error {
	ctx, cancel := c.cfg.bound(ctx)
	defer cancel()
	m, err := c.pending.startMonitor()
	if err != nil {
		return err
	}
	defer c.pending.endMonitor(m)
	msg, err := encode(m.xid)
	if err != nil {
		return err
	}
	if err := c.write(ctx, msg); err != nil {
		return err
	}
	if err := c.Barrier(ctx); err != nil {
		return err
	}
	c.pending.mu.Lock()
	defer c.pending.mu.Unlock()
	return m.err
}

func (p *pending) startMonitor() (*monitorWait, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return nil, &ConnError{p.err}
	}
	if p.monitors != nil {
		return nil, errMonitorBusy
	}
	p.monitors = &monitorWait{xid: p.reserve(1)}
	return p.monitors, nil
}

func (p *pending) endMonitor(m *monitorWait) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.monitors == m {
		p.monitors = nil
	}
}
