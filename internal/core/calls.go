// SPDX-License-Identifier: Apache-2.0

package core

import (
	"log/slog"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/effect"
	"github.com/patchbay-sdn/patchbay/internal/pace"
)

// calls are the calls of extensions. They are owned by the loop.
type calls struct {
	// running are on their way. False: the outcome does not count, because messages may have been lost since, or because the
	// extension did not list the call for a while.
	running map[effect.CallKey]bool
	retries pace.Backoff[effect.CallKey]
}

func newCalls() calls {
	return calls{running: map[effect.CallKey]bool{}, retries: pace.Backoff[effect.CallKey]{}}
}

// maxCalls bounds how many calls of extensions are on their way at a time.
const maxCalls = 8

// callFailed lasts while a call fails.
const callFailed = "call of an extension failed, retrying"

// startCalls makes the calls that the extensions list.
func (a *Core) startCalls(now time.Time) {
	c := &a.extensions.calls
	listed := map[effect.CallKey]bool{}
	for i, ext := range a.extensions.Set {
		for _, call := range ext.Calls() {
			k := effect.CallKey{Extension: i, Key: call.Key}
			listed[k] = true
			if _, on := c.running[k]; on || len(c.running) >= maxCalls {
				continue
			}
			if c.retries.Waiting(k, now) {
				a.turn.wakeUp(c.retries[k].At)
				continue
			}
			c.running[k] = true
			a.turn.start(effect.CallExtension{CallKey: k, Name: ext.Name(), Run: call.Run})
		}
	}
	for k := range c.running {
		c.running[k] = c.running[k] && listed[k]
	}
	for k := range c.retries {
		if _, on := c.running[k]; !listed[k] && !on {
			c.retries.Forget(k)
		}
	}
	if len(c.retries) == 0 {
		a.log.forget(callFailed)
	}
}

// callDone takes the outcome of a call. Whether it has to be made again the extension says by listing it.
func (a *Core) callDone(e effect.Called) {
	c := &a.extensions.calls
	counts := c.running[e.CallKey]
	if delete(c.running, e.CallKey); !counts {
		return // if it is still listed it is made again
	}
	unanswered(c.retries, e.CallKey, a.turn.now(), e.Err)
	ext := a.extensions.Set[e.Extension]
	if e.Err != nil {
		a.log.repeat(slog.LevelWarn, callFailed, "extension", ext.Name(), "call", e.Key.String(), "err", e.Err)
	}
	ext.Caller.OnCall(e.Key, e.Result, e.Err)
	a.memory.stale = true
}
