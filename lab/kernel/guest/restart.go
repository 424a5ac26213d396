// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func (c *cloud) restarted(ctx context.Context, sig syscall.Signal) (string, error) {
	return c.undisturbed(func() error { return c.restartAll(ctx, sig) })
}

// clockJumps sets the machine's clock, and has agents do something each time. Only this machine has a clock of its own: the
// switches' and agents' of the lab is everybody's.
func (c *cloud) clockJumps(ctx context.Context) (string, error) {
	return c.undisturbed(func() error {
		for _, jump := range []time.Duration{-time.Hour, 25 * time.Hour, -24 * time.Hour} {
			now := unix.NsecToTimeval(time.Now().Add(jump).UnixNano())
			if err := unix.Settimeofday(&now); err != nil {
				return fmt.Errorf("setting the clock: %w", err)
			}
			for _, do := range []func(context.Context) (string, error){c.joined, c.left} {
				if _, err := do(ctx); err != nil {
					return fmt.Errorf("after a jump by %v: %w", jump, err)
				}
			}
		}
		return nil
	})
}

// undisturbed sends packets that have to arrive, and such that must not, while something is done.
func (c *cloud) undisturbed(while func() error) (string, error) {
	good, err := startProbe(c.vms[0], c.vms[1], goodProbe)
	if err != nil {
		return "", err
	}
	bad, err := startProbe(c.vms[0], c.vms[1], badProbe)
	if err != nil {
		return "", err
	}
	failed := while()
	sent, arrived, back := good.end()
	tried, passed, _ := bad.end()
	switch {
	case failed != nil:
		return "", failed
	case sent < 100 || tried < 100:
		return "", fmt.Errorf("only %d and %d packets were sent", sent, tried)
	case arrived != sent || back != sent:
		return "", fmt.Errorf("of %d packets %d arrived and %d came back", sent, arrived, back)
	case passed != 0:
		return "", fmt.Errorf("of %d forbidden packets %d arrived", tried, passed)
	}
	if err := echo(c.stay, patience); err != nil {
		return "", fmt.Errorf("an established connection is silent: %w", err)
	}
	return fmt.Sprintf("0 of %d lost there and back, 0 of %d forbidden ones passed", sent, tried), nil
}

func (c *cloud) restartAll(ctx context.Context, sig syscall.Signal) error {
	const up, registered = "port is up", "registered with neutron-server"
	time.Sleep(time.Second)
	for _, h := range c.hosts {
		ups, reports := h.logCount(up), h.logCount(registered)
		if err := h.stopAgent(sig); err != nil {
			return err
		}
		time.Sleep(time.Second)
		if err := h.startAgent(); err != nil {
			return err
		}
		if err := until(ctx, 5*patience, func(context.Context) error {
			if err := h.alive(); err != nil {
				return err
			}
			if h.logCount(up) == ups || h.logCount(registered) == reports {
				return fmt.Errorf("the agent of %s has not reported its port", h.name)
			}
			return nil
		}); err != nil {
			return err
		}
	}
	// What is left over is swept some time after the start.
	time.Sleep(10 * time.Second)
	return nil
}
