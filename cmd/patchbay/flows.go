// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchbay-sdn/patchbay/internal/tables"
	"github.com/patchbay-sdn/patchbay/openflow"
)

// flowsFlags are the flags of `patchbay flows`.
type flowsFlags struct {
	Notes  io.Writer // for sentences beside the flows; nil: nowhere
	Target string
	Kind   string
	Tables []string
	Port   string
	Text   string
	Watch  bool
	Why    bool
	askFlags
}

func newFlowsCommand() *cobra.Command {
	var f flowsFlags
	cmd := &cobra.Command{
		Use:   "flows BRIDGE",
		Short: "Show the flows of a bridge, by table and with the names of tables and ports",
		Long: `Show the flows of a bridge, by table and with the names of tables and ports.

The command reads the bridge through its management socket, in $OVS_RUNDIR or else in the
default run directory, as ovs-ofctl does. It changes nothing.

With --owner the command asks the running agent. It prints the owner and the reason of each flow, and which flows
are missing, different, stale or foreign. The counters are the switch's: a user who may not ask the switch sees none.`,
		Example: `  patchbay flows br-int
  patchbay flows br-int --table RULES_INGRESS --port tap1234abcd-56
  patchbay flows br-tun --table 20 -o json
  patchbay flows br-int --watch
  patchbay flows br-int --owner --text missing`,
		Args: argumentsOf(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			f.Notes = cmd.ErrOrStderr()
			if f.Why {
				return runWhy(ctx, cmd.OutOrStdout(), f.client(), args[0], f)
			}
			return runFlows(ctx, cmd.OutOrStdout(), args[0], f)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&f.Target, "target", "", "address to connect to instead of the bridge's socket: unix:PATH or tcp:HOST:PORT")
	fl.StringVar(&f.Kind, "kind", "", "table names to use: int, int21, tun or phys (default: by the bridge)")
	fl.StringSliceVarP(&f.Tables, "table", "t", nil, "only these tables, by number or name")
	fl.StringVarP(&f.Port, "port", "p", "", "only flows that concern this port, by number or name")
	fl.StringVarP(&f.Text, "text", "x", "", "only flows whose text contains this")
	fl.BoolVar(&f.Why, "owner", false, "ask the agent for the owner, reason and state of each flow")
	fl.BoolVar(&f.Why, "why", false, "")
	_ = fl.MarkHidden("why") // its former name
	f.askFlags.add(cmd)
	fl.BoolVarP(&f.Watch, "watch", "w", false, "show changes as they happen; with Open vSwitch before 3.0 by comparing flows every second")
	return cmd
}

// flowTimeout bounds each request to the switch.
const flowTimeout = 20 * time.Second

func runFlows(ctx context.Context, out io.Writer, bridge string, f flowsFlags) error {
	v := flowView{out: out, notes: f.Notes, output: f.Output, text: f.Text}
	if v.notes == nil {
		v.notes = io.Discard
	}
	if err := v.name(bridge, f.Kind); err != nil {
		return err
	}
	c, err := openBridge(ctx, bridge, f.Target)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	if err := v.readPorts(ctx, c); err != nil {
		return err
	}
	if f.Port != "" {
		if v.port, err = v.portNumber(f.Port); err != nil {
			return err
		}
	}
	list, err := v.read(ctx, c, f.Kind == "")
	if err != nil {
		return err
	}
	if err := v.choose(f.Tables); err != nil {
		return err
	}
	if f.Watch {
		return v.watch(ctx, c, list)
	}
	list = slices.DeleteFunc(list, func(l flowLine) bool { return !v.selects(&l) })
	if v.output.forPrograms() {
		return v.writeDocument(list)
	}
	v.write(bridge, list)
	return nil
}

// openBridge connects to a target, or to the management socket of a bridge.
func openBridge(ctx context.Context, bridge, target string) (*openflow.Conn, error) {
	target = cmp.Or(target, openflow.MgmtSocket(bridge))
	c, err := openflow.Dial(ctx, target, openflow.Config{Timeout: flowTimeout})
	if err != nil {
		return nil, bridgeError(bridge, target, err)
	}
	return c, nil
}

// dumpBridge reads the flows of a bridge.
func dumpBridge(ctx context.Context, bridge, target string) ([]flowLine, error) {
	c, err := openBridge(ctx, bridge, target)
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close() }()
	return (&flowView{}).read(ctx, c, false)
}

// bridgeError says what it means that a bridge's management socket cannot be used.
func bridgeError(bridge, target string, err error) error {
	socket := strings.TrimPrefix(target, "unix:")
	switch {
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("you may not use %s; become root", socket)
	case !errors.Is(err, fs.ErrNotExist) || socket != strings.TrimPrefix(openflow.MgmtSocket(bridge), "unix:"):
		return err
	}
	var names []string
	found, _ := filepath.Glob(filepath.Join(filepath.Dir(socket), "*.mgmt")) // the pattern is a good one
	for _, path := range found {
		names = append(names, strings.TrimSuffix(filepath.Base(path), ".mgmt"))
	}
	if len(names) == 0 {
		return fmt.Errorf("there is no socket of a bridge in %s; ovs-vswitchd is not running, or its run directory is another ($OVS_RUNDIR)", filepath.Dir(socket))
	}
	return ended{exitFinding, fmt.Sprintf("there is no bridge %s, only %s%s", bridge, strings.Join(names, ", "), meant(bridge, names))}
}

// name decides whose table names are used: those of a kind, or by the bridge.
func (v *flowView) name(bridge, kind string) error {
	v.kind = tables.KindOf(bridge)
	if kind == "" {
		return nil
	}
	var ok bool
	if v.kind, ok = tables.ParseKind(kind); !ok {
		return usage{fmt.Errorf("--kind %q: %w", kind, oneOf(kind, []string{"int", "int21", "tun", "phys"}))}
	}
	return nil
}

func (v *flowView) readPorts(ctx context.Context, c *openflow.Conn) error {
	ports, err := c.Ports(ctx)
	if err != nil {
		return fmt.Errorf("reading ports: %w", err)
	}
	v.ports = make(map[uint32]string, len(ports))
	for _, p := range ports {
		v.ports[p.Port] = p.Name
	}
	return nil
}

// table returns the table with that number or name.
func (v *flowView) table(s string) (uint8, error) {
	if n, err := strconv.ParseUint(s, 10, 8); err == nil {
		return uint8(n), nil
	}
	if n, ok := v.kind.Number(s); ok {
		return n, nil
	}
	return 0, usage{fmt.Errorf("--table %q is no number, and no table of this kind of bridge; patchbay flows without --table prints their names", s)}
}

// choose shows only the tables given by number or name, if any are.
func (v *flowView) choose(tables []string) error {
	for _, t := range tables {
		n, err := v.table(t)
		if err != nil {
			return err
		}
		v.tables = append(v.tables, n)
	}
	return nil
}

// portNumber returns the OpenFlow number of a port given by number or name.
func (v *flowView) portNumber(s string) (uint32, error) {
	for n, name := range v.ports {
		if name == s {
			return n, nil
		}
	}
	if n, err := strconv.ParseUint(s, 10, 32); err == nil {
		return uint32(n), nil
	}
	return 0, usage{fmt.Errorf("--port %q: the bridge has no such port%s", s, meant(s, slices.Collect(maps.Values(v.ports))))}
}

// read returns all flows in the order of the pipeline. With refine it finds out which release's tables they use.
func (v *flowView) read(ctx context.Context, c *openflow.Conn, refine bool) ([]flowLine, error) {
	var list []flowLine
	var used [256]bool
	err := c.DumpFlows(ctx, openflow.Filter{Table: openflow.AllTables}, func(s *openflow.FlowStat) error {
		l := newFlowLine(s.Entry())
		l.Packets, l.Bytes, l.Seconds = s.Packets, s.Bytes, s.Duration.Seconds()
		list = append(list, l)
		used[l.Table] = true
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading flows: %w", err)
	}
	if refine {
		v.kind = v.kind.Refine(func(table uint8) bool { return used[table] })
	}
	slices.SortFunc(list, func(a, b flowLine) int { return a.entry.Key().Compare(b.entry.Key()) })
	return list, nil
}

// comparePause separates two dumps of flows that are compared.
const comparePause = time.Second

// watch prints changes until ctx or the connection ends. A switch that does not report changes is read again and again.
func (v *flowView) watch(ctx context.Context, c *openflow.Conn, have []flowLine) error {
	// One table is left to the switch to select; several are selected here.
	fl := openflow.Filter{Table: openflow.AllTables}
	if len(v.tables) == 1 {
		fl.Table = v.tables[0]
	}
	var refused *openflow.Error
	switch err := c.Monitor(ctx, 1, fl, false); {
	case errors.As(err, &refused):
		fmt.Fprintln(v.notes, "The switch does not report changes of flows, as Open vSwitch does since 3.0: flows are compared every second, and what comes and goes in between is not seen.")
		return v.compare(ctx, c, have)
	case err != nil:
		return fmt.Errorf("watching flows: %w", err)
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case ev, ok := <-c.Events():
			if !ok {
				return fmt.Errorf("watching: %w", c.Err())
			}
			if err := v.event(ev, time.Now()); err != nil {
				return err
			}
		}
	}
}

// compare prints what is different from one dump to the next.
func (v *flowView) compare(ctx context.Context, c *openflow.Conn, have []flowLine) error {
	for pause(ctx, comparePause); ctx.Err() == nil; pause(ctx, comparePause) {
		now, err := v.read(ctx, c, false)
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // that it ends is no failure
		case err != nil:
			return err
		}
		if err := v.event(&openflow.MonitorUpdate{Updates: changesOf(have, now)}, time.Now()); err != nil {
			return err
		}
		have = now
	}
	return nil
}

// changesOf lists what has to happen to the flows of one dump to become those of another. Both are in the order of their keys.
func changesOf(before, after []flowLine) []openflow.FlowUpdate {
	var out []openflow.FlowUpdate
	for len(before)+len(after) > 0 {
		var order int
		switch {
		case len(before) == 0:
			order = 1
		case len(after) == 0:
			order = -1
		default:
			order = before[0].entry.Key().Compare(after[0].entry.Key())
		}
		switch {
		case order < 0:
			out = append(out, openflow.FlowUpdate{Event: openflow.FlowDeleted, Entry: before[0].entry})
		case order > 0:
			out = append(out, openflow.FlowUpdate{Event: openflow.FlowAdded, Entry: after[0].entry})
		case before[0].entry != after[0].entry:
			out = append(out, openflow.FlowUpdate{Event: openflow.FlowModified, Entry: after[0].entry})
		}
		if order <= 0 {
			before = before[1:]
		}
		if order >= 0 {
			after = after[1:]
		}
	}
	return out
}

// event prints a change.
func (v *flowView) event(ev openflow.Event, now time.Time) error {
	switch ev := ev.(type) {
	case openflow.EventsLost:
		return errors.New("changes came faster than they could be printed; some are lost")
	case *openflow.MonitorUpdate:
		for _, u := range ev.Updates {
			switch u.Event {
			case openflow.FlowAdded, openflow.FlowDeleted, openflow.FlowModified:
			case openflow.FlowsPaused:
				fmt.Fprintln(v.out, "… the switch holds changes back")
				continue
			default:
				continue
			}
			l := newFlowLine(u.Entry)
			if !v.selects(&l) {
				continue
			}
			l.Event, l.Time = u.Event.String(), now.Format(time.RFC3339Nano)
			if v.output.forPrograms() {
				if err := v.output.writeNext(v.out, v.named(l)); err != nil {
					return err
				}
				continue
			}
			v.writeChange(l, now)
		}
	}
	return nil
}
