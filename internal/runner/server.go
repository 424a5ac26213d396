// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/effect"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/pull"
	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// errNoDatabase is what a server means that answers, but not with yes.
var errNoDatabase = errors.New("the server cannot reach its database")

// aliveTimeout bounds the question whether a server is alive. It is shorter than that of other calls: an operator who started us should soon
// read that nobody answers.
const aliveTimeout = 10 * time.Second

// register asks whether a server is alive, finds out its object versions and listens to their topics.
func (r *Runner) register(ctx context.Context, e effect.Register) effect.Event {
	var out effect.Registered
	out.Err = r.try("registering", func() (err error) {
		asking, done := context.WithTimeout(ctx, aliveTimeout)
		alive, err := r.server.Alive(asking)
		done()
		if err != nil {
			return err
		}
		if !alive {
			return errNoDatabase
		}
		releases, versions, err := neutron.Negotiate(ctx, r.server)
		if err != nil {
			return err
		}
		topics, directed := append(neutron.PossibleTopics(releases, versions, e.L2Population, e.Kinds...), e.Topics...), neutron.DirectedTopics(e.L2Population)
		topics = slices.DeleteFunc(topics, func(t string) bool { return slices.Contains(directed, t) })
		if err := r.cfg.Broker.Serve(ctx, messaging.Service{Topics: topics, Directed: directed, Handler: r.cfg.Handler}); err != nil {
			return err
		}
		// A Python agent leaves a queue behind for every topic it ever listened to, ours or not. Not worth failing for: they
		// only take up room on the broker. Every Python agent has the first topic, whatever its release and options.
		theirs := neutron.Topics(versions, true, slices.Collect(maps.Keys(versions))...)
		removed, _ := r.cfg.Broker.RemoveLeftovers(ctx, theirs, r.cfg.Host)
		out.Releases, out.Versions, out.Removed = releases, versions, removed
		return nil
	})
	if out.Err != nil && ctx.Err() != nil {
		return nil // the agent stops
	}
	return out
}

func (r *Runner) reportState(ctx context.Context, e effect.ReportState) effect.Event {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, e.Timeout)
	defer cancel()
	var out effect.StateReported
	out.Err = r.try("reporting the agent's state", func() (err error) {
		out.Status, err = r.server.ReportState(ctx, e.State, began)
		return err
	})
	out.Took = time.Since(began)
	return out
}

func (r *Runner) reportPorts(ctx context.Context, e effect.ReportPorts) effect.Event {
	out := effect.PortsReported{Batch: e.Batch}
	out.Err = r.try("reporting ports", func() (err error) {
		if e.Batch.AdminDown != "" {
			_, err = r.server.DeviceDown(ctx, e.Batch.AdminDown)
		} else {
			out.Result, err = r.server.UpdateDevices(ctx, e.Batch.Update)
		}
		return err
	})
	return out
}

func (r *Runner) askDatabase(ctx context.Context, e effect.AskDatabase) effect.Event {
	return effect.DatabaseAsked{Err: r.try("asking for the server's database", func() error {
		_, err := r.server.BulkPull(ctx, e.Versions, neutron.KindPort, map[string]any{"id": []string{neutron.Nobody}})
		return err
	})}
}

func (r *Runner) callExtension(ctx context.Context, e effect.CallExtension) effect.Event {
	out := effect.Called{CallKey: e.CallKey}
	to := &listening{Caller: r.cfg.Broker}
	out.Err = r.try("call of extension "+e.Name+", "+e.Key.String(), func() (err error) {
		out.Result, err = e.Run(ctx, neutron.NewServer(to, r.cfg.Host))
		return err
	})
	out.Heard = to.heard
	return out
}

// listening makes calls, and keeps what the server answers. Nobody makes two at a time.
type listening struct {
	neutron.Caller
	heard []effect.Heard
}

// Call implements neutron.Caller.
func (l *listening) Call(ctx context.Context, t messaging.Target, method string, args, result any) error {
	var answer json.RawMessage
	err := l.Caller.Call(ctx, t, method, args, &answer)
	l.heard = append(l.heard, effect.Heard{Result: answer, Err: err})
	if err != nil || result == nil || len(answer) == 0 {
		return err
	}
	if err := json.Unmarshal(answer, result); err != nil {
		return fmt.Errorf("decoding the answer to %s: %w", method, err)
	}
	return nil
}

func (r *Runner) pull(ctx context.Context, e effect.Pull) effect.Event {
	what := map[pull.Owner]string{pull.Ports: "asking about ports", pull.Filters: "asking for what filters need", pull.Tunnels: "asking for tunnels"}[e.Batch.Owner]
	if what == "" {
		what = "asking for what an extension needs"
	}
	out, began := effect.Pulled{Batch: e.Batch}, time.Now()
	out.Err = r.try(what, func() (err error) {
		out.Reply, err = r.ask(ctx, e.Versions, e.Batch)
		return err
	})
	out.Took = time.Since(began)
	return out
}

// ask makes the call of a batch.
func (r *Runner) ask(ctx context.Context, versions neutron.Versions, b pull.Batch) (out effect.Reply, err error) {
	if b.Owner == pull.Tunnels { // which announces our own endpoint, too
		out.Tunnels, err = r.server.TunnelSync(ctx, r.cfg.LocalIP, b.IDs[0])
		return out, err
	}
	by := cmp.Or(b.By, "id")
	if b.Owner == pull.Filters && b.Kind == neutron.KindPort {
		by = "security_group_ids"
	}
	by, conditions, _ := strings.Cut(by, "&")
	filter := map[string]any{by: b.IDs}
	for condition := range strings.SplitSeq(conditions, "&") {
		if field, value, ok := strings.Cut(condition, "="); ok {
			filter[field] = []string{value}
		}
	}
	objects, err := r.server.BulkPull(ctx, versions, b.Kind, filter)
	switch {
	case err != nil:
	case b.Owner == pull.Ports:
		all := neutron.ReadAll(b.Kind, objects, func(p *neutron.Port) string { return p.ID })
		out.Ports, out.Unread = all.Found, slices.DeleteFunc(slices.Clone(b.IDs), func(id string) bool { return !all.Maybe(id) })
		err = all.Err
	case b.Owner == pull.Filters:
		out = readItems(b.Kind, objects)
	default:
		out.Objects = objects
	}
	return out, err
}

// manyMembers is how many members an answer has that is worth giving its memory back at once.
const manyMembers = 1000

// readItems reads an answer about what filters need.
func readItems(kind neutron.Kind, objects []neutron.Primitive) (e effect.Reply) {
	switch kind {
	case neutron.KindSecurityGroup:
		id := func(g *neutron.SecurityGroup) string { return g.ID }
		var complete, without []neutron.Primitive
		for _, o := range objects {
			if hasRules(o) {
				complete = append(complete, o)
			} else {
				without = append(without, o)
			}
		}
		r, bare := neutron.ReadAll(kind, complete, id), neutron.ReadAll(kind, without, id)
		e.Groups, e.Unread, e.Bad = r.Found, append(r.Unread, bare.Unread...), r.Err
		if len(without) > 0 {
			e.Bad = errors.Join(e.Bad, errors.New("the server tells about a security group, but not its rules"))
		}
		for _, g := range bare.Found {
			e.Unread = append(e.Unread, g.ID)
		}
	case neutron.KindPort:
		r := neutron.ReadAll(kind, objects, func(m *neutron.Member) string { return m.ID })
		e.Members, e.Unread, e.Bad = r.Found, r.Unread, r.Err
		if len(objects) > manyMembers {
			// The answer, of some megabytes, is many times larger than what is kept of it, and does not come again soon.
			debug.FreeOSMemory()
		}
	case neutron.KindAddressGroup:
		r := neutron.ReadAll(kind, objects, func(g *neutron.AddressGroup) string { return g.ID })
		e.Addresses, e.Unread, e.Bad = r.Found, r.Unread, r.Err
	}
	return e
}

// hasRules says whether a security group comes with its rules. Without them it would be one that allows nothing.
func hasRules(o neutron.Primitive) bool {
	_, rest, found := bytes.Cut(o.Data, []byte(`"rules"`))
	return found && !bytes.HasPrefix(bytes.TrimLeft(rest, " \t\r\n:"), []byte("null"))
}
