// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"log/slog"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/pace"
)

// calls are the calls of extensions. They are owned by the loop.
type calls struct {
	// running are on their way. False: the outcome does not count, because messages may have been lost since, or because the
	// extension did not list the call for a while.
	running map[callKey]bool
	retries pace.Backoff[callKey]
}

// callKey is a call of an extension.
type callKey struct {
	extension int // its place in the list
	key       extension.Key
}

func newCalls() calls {
	return calls{running: map[callKey]bool{}, retries: pace.Backoff[callKey]{}}
}

// called: a call of an extension came to its end.
type called struct {
	callKey
	result any
	err    error
}

// maxCalls bounds how many calls of extensions are on their way at a time.
const maxCalls = 8

// callFailed lasts while a call fails.
const callFailed = "call of an extension failed, retrying"

// startCalls makes the calls that the extensions list.
func (a *Agent) startCalls(ctx context.Context, now time.Time) {
	c := &a.extensions.calls
	listed := map[callKey]bool{}
	for i, ext := range a.extensions.Set {
		for _, call := range ext.Calls() {
			k := callKey{i, call.Key}
			listed[k] = true
			if _, on := c.running[k]; on || len(c.running) >= maxCalls {
				continue
			}
			if c.retries.Waiting(k, now) {
				a.wakeUp(c.retries[k].At)
				continue
			}
			a.startCall(ctx, k, ext.Name(), call.Run)
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
		a.repeats.forget(callFailed)
	}
}

func (a *Agent) startCall(ctx context.Context, k callKey, name string, run func(context.Context, *neutron.Server) (any, error)) {
	a.extensions.calls.running[k] = true
	a.work.Go(func() {
		done := called{callKey: k}
		done.err = a.aside("call of extension "+name+", "+k.key.String(), func() (err error) {
			done.result, err = run(ctx, a.server)
			return err
		})
		a.inbox.put(done)
	})
}

// callDone takes the outcome of a call. Whether it has to be made again the extension says by listing it.
func (a *Agent) callDone(e called) {
	c := &a.extensions.calls
	counts := c.running[e.callKey]
	if delete(c.running, e.callKey); !counts {
		return // if it is still listed it is made again
	}
	unanswered(c.retries, e.callKey, time.Now(), e.err)
	ext := a.extensions.Set[e.extension]
	if e.err != nil {
		a.repeats.log(a.log, slog.LevelWarn, callFailed, "extension", ext.Name(), "call", e.key.String(), "err", e.err)
	}
	ext.Caller.OnCall(e.key, e.result, e.err)
	a.memory.stale = true
}
