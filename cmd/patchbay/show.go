// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchbay-sdn/patchbay/internal/admin"
	"github.com/patchbay-sdn/patchbay/internal/inspect"
)

// newShowCommands are the commands that print what the agent knows.
func newShowCommands() []*cobra.Command {
	return []*cobra.Command{
		newStatusCommand(), newHealthCommand(), newPortsCommand(), newPortCommand(), newNetworksCommand(), newTunnelsCommand(), newGroupsCommand(),
		newGroupCommand(), newEventsCommand(), newSpansCommand(), newBundleCommand(), newManCommand(),
	}
}

func newPortsCommand() *cobra.Command {
	state := choice{known: []string{"wired", "waiting", "dead", "down", "failed", "moved", "elsewhere", "ancillary"}}
	cmd := view[[]inspect.Port]{
		ask: func(ctx context.Context, c *admin.Client, _ []string) ([]inspect.Port, error) {
			ports, err := c.Ports(ctx)
			return slices.DeleteFunc(ports, func(p inspect.Port) bool { return state.word != "" && p.State != state.word }), err
		},
		print: writePorts,
		wide:  writePortsWide,
		names: each(func(p inspect.Port) string { return p.ID }),
	}.command(&cobra.Command{
		Use:     "ports",
		Short:   "List the ports of this host, with state and reason",
		Example: "  patchbay ports\n  patchbay ports --state dead\n  patchbay ports --watch\n  patchbay ports -o json | jq '.[] | select(.applied | not)'",
		Args:    argumentsOf(0, 0),
	})
	cmd.Flags().Var(&state, "state", "only ports in this state: "+strings.Join(state.known, ", "))
	return cmd
}

// writePortsWide adds what does not fit on most screens.
func writePortsWide(out io.Writer, ports []inspect.Port, _ time.Time) {
	w := newTable(out, "PORT", "NAME", "ROLE", "STATE", "INTERFACE", "OFPORT", "VLAN", "SEGMENT", "NETWORK", "MAC", "ADDRESSES", "GROUPS", "FLOWS", "SERVER", "WHY")
	for _, p := range ports {
		w.row(p.ID, p.Name, p.Role, p.State, p.Interface, number(p.OFPort), number(uint32(p.VLAN)), p.Segment, p.Network, p.MAC,
			strings.Join(p.Addresses, " "), strings.Join(p.Groups, " "), p.Flows, p.Reported, whyOf(&p))
	}
	w.flush()
}

// whyOf says why a port is not wired, or that its wiring is not complete; "" for one that is.
func whyOf(p *inspect.Port) string {
	switch {
	case p.State != "wired":
		return p.Reason
	case !p.Applied:
		return "flows or rows are not in place yet"
	}
	return ""
}

func writePorts(out io.Writer, ports []inspect.Port, _ time.Time) {
	w := newTable(out, "PORT", "NAME", "ROLE", "STATE", "INTERFACE", "OFPORT", "VLAN", "SEGMENT", "ADDRESSES", "SERVER", "WHY")
	for _, p := range ports {
		w.row(p.ID, p.Name, p.Role, p.State, p.Interface, number(p.OFPort), number(uint32(p.VLAN)), p.Segment, strings.Join(p.Addresses, " "), p.Reported, whyOf(&p))
	}
	w.flush()
	if len(ports) == 0 {
		fmt.Fprintln(out, "no ports")
	}
}

func number(n uint32) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}

func newPortCommand() *cobra.Command {
	return view[inspect.Port]{
		ask: func(ctx context.Context, c *admin.Client, args []string) (inspect.Port, error) {
			return c.Port(ctx, args[0])
		},
		print: writePort,
	}.command(&cobra.Command{
		Use:   "port ID|NAME",
		Short: "Show one port: state, reason, timeline, filters, counters",
		Long: `Show one port: state, reason, timeline, filters, counters.

ID|NAME is the id of the port, its name, its interface, its VM, one of its addresses, or the beginning of one of these.`,
		Args:              argumentsOf(1, 1),
		ValidArgsFunction: completePorts,
	})
}

func writePort(out io.Writer, p inspect.Port, now time.Time) {
	fmt.Fprintf(out, "port %s  %s: %s\n", p.ID, strings.ToUpper(p.State), p.Reason)
	if p.State == "wired" && !p.Applied {
		fmt.Fprintln(out, "  its flows or rows are not in place yet; see patchbay status")
	}
	fmt.Fprintln(out)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	line := func(name, format string, args ...any) {
		if text := fmt.Sprintf(format, args...); text != "" {
			fmt.Fprintf(w, "%s\t%s\n", name, text)
		}
	}
	line("name", "%s", p.Name)
	line("interface", "%s", strings.TrimSpace(p.Interface+" "+prefixed("ofport ", number(p.OFPort))))
	line("network", "%s", strings.TrimSpace(p.Network+" "+prefixed("as ", p.Segment)))
	line("local VLAN", "%s", number(uint32(p.VLAN)))
	line("addresses", "%s", strings.TrimSpace(p.MAC+" "+strings.Join(p.Addresses, " ")))
	for _, pair := range p.Pairs {
		line("address pair", "%s %s", pair.MAC, pair.IP)
	}
	line("device", "%s", strings.TrimSpace(p.Owner+" "+p.Device))
	line("role", "%s", p.Role)
	line("security", "%s", security(&p))
	for _, note := range p.Notes { // each begins with the name of what it is about
		about, text, _ := strings.Cut(note, ": ")
		line(about, "%s", text)
	}
	line("flows", "%d", p.Flows)
	line("server", "%s", strings.TrimSpace(prefixed("says ", p.Status)+" "+prefixed("reported ", p.Reported)+" "+prefixed("revision ", positive(p.Revision))))
	if c := p.Counters; c != nil {
		who := "the VM"
		if strings.HasPrefix(p.Owner, "network:") {
			who = "it"
		}
		line("from "+who, "%d packets, %d bytes, %d dropped", c.RxPackets, c.RxBytes, c.RxDropped)
		line("to "+who, "%d packets, %d bytes, %d dropped", c.TxPackets, c.TxBytes, c.TxDropped)
	}
	_ = w.Flush()
	writeTimeline(out, &p.Timeline, now)
}

func positive(n int64) string {
	if n <= 0 {
		return ""
	}
	return fmt.Sprint(n)
}

func prefixed(prefix, s string) string {
	if s == "" {
		return ""
	}
	return prefix + s
}

func security(p *inspect.Port) string {
	switch {
	case p.Filtered && len(p.Groups) == 0:
		return "filtered, and in no group: nothing passes but what is needed for addresses"
	case p.Filtered:
		return "filtered by groups " + strings.Join(p.Groups, " ")
	case !p.Secured:
		return "port security is off: not filtered"
	}
	return "not filtered"
}

func writeTimeline(out io.Writer, t *inspect.Timeline, now time.Time) {
	if t.Plugged.IsZero() {
		return
	}
	fmt.Fprintln(out, "\ntimeline")
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	last := t.Plugged
	for _, s := range []struct {
		name string
		at   time.Time
	}{{"plugged in, or seen first", t.Plugged}, {"details pulled from the server", t.Answered}, {"flows and rows in place", t.Applied}, {"reported up", t.Reported}} {
		switch {
		case s.at.IsZero():
			fmt.Fprintf(w, "  -\t%s\t\n", s.name)
		default:
			fmt.Fprintf(w, "  %s\t%s\t+%s\n", stamp(s.at, now), s.name, short(max(s.at.Sub(last), 0)))
			last = s.at
		}
	}
	_ = w.Flush()
}

func newNetworksCommand() *cobra.Command {
	return view[[]inspect.Network]{
		ask: func(ctx context.Context, c *admin.Client, _ []string) ([]inspect.Network, error) {
			return c.Networks(ctx)
		},
		names: each(func(n inspect.Network) string { return n.ID }),
		print: func(out io.Writer, list []inspect.Network, _ time.Time) {
			w := newTable(out, "NETWORK", "TYPE", "NUMBER", "PHYSICAL", "VLAN", "PORTS", "TUNNELS", "STATIONS")
			for _, n := range list {
				w.row(n.ID, n.Type, number(uint32(n.Number)), n.Physical, n.VLAN, len(n.Ports), len(n.Endpoints), n.Stations)
			}
			w.flush()
		},
		wide: func(out io.Writer, list []inspect.Network, _ time.Time) {
			w := newTable(out, "NETWORK", "TYPE", "NUMBER", "PHYSICAL", "VLAN", "PORTS", "TUNNELS", "STATIONS")
			for _, n := range list {
				w.row(n.ID, n.Type, number(uint32(n.Number)), n.Physical, n.VLAN, strings.Join(n.Ports, " "), strings.Join(n.Endpoints, " "), n.Stations)
			}
			w.flush()
		},
	}.command(&cobra.Command{
		Use: "networks", Short: "List the networks with ports on this host, with their segment and local VLAN", Args: argumentsOf(0, 0),
	})
}

func newTunnelsCommand() *cobra.Command {
	return view[[]inspect.Tunnel]{
		ask: func(ctx context.Context, c *admin.Client, _ []string) ([]inspect.Tunnel, error) {
			return c.Tunnels(ctx)
		},
		names: each(func(t inspect.Tunnel) string { return t.Name }),
		print: func(out io.Writer, list []inspect.Tunnel, _ time.Time) {
			w := newTable(out, "TUNNEL", "TYPE", "REMOTE", "STATE", "OFPORT", "NETWORKS", "ERROR")
			for _, t := range list {
				w.row(t.Name, t.Type, t.Remote, t.State, number(t.OFPort), len(t.Networks), t.Error)
			}
			w.flush()
		},
	}.command(&cobra.Command{Use: "tunnels", Short: "List the tunnels to other hosts, with their errors", Args: argumentsOf(0, 0)})
}

func newGroupsCommand() *cobra.Command {
	return view[[]inspect.Group]{
		ask:   func(ctx context.Context, c *admin.Client, _ []string) ([]inspect.Group, error) { return c.Groups(ctx) },
		names: each(func(g inspect.Group) string { return g.ID }),
		print: func(out io.Writer, list []inspect.Group, _ time.Time) {
			w := newTable(out, "GROUP", "NAME", "PORTS", "RULES", "STATE")
			for _, g := range list {
				state := "known"
				if !g.Known {
					state = "its rules are not pulled yet"
				}
				w.row(g.ID, g.Name, len(g.Ports), len(g.Rules), state)
			}
			w.flush()
		},
	}.command(&cobra.Command{Use: "groups", Short: "List the security groups of ports on this host", Args: argumentsOf(0, 0)})
}

func newGroupCommand() *cobra.Command {
	return view[inspect.Group]{
		ask: func(ctx context.Context, c *admin.Client, args []string) (inspect.Group, error) {
			groups, err := c.Groups(ctx)
			if err != nil {
				return inspect.Group{}, err
			}
			return inspect.FindGroup(groups, args[0])
		},
		print: writeGroup,
	}.command(&cobra.Command{
		Use: "group ID|NAME", Short: "Show one security group: its rules in words, and its ports on this host", Args: argumentsOf(1, 1),
		ValidArgsFunction: completeGroups,
	})
}

func writeGroup(out io.Writer, g inspect.Group, _ time.Time) {
	fmt.Fprintf(out, "group %s  %s\n", g.ID, g.Name)
	if !g.Known {
		fmt.Fprintln(out, "  its rules are not pulled yet")
	}
	fmt.Fprintf(out, "ports here: %s\n\n", strings.Join(g.Ports, " "))
	w := newTable(out, "DIRECTION", "RULE", "ADDRESSES", "ID")
	rules := slices.Clone(g.Rules)
	slices.SortStableFunc(rules, func(a, b inspect.Rule) int { return strings.Compare(b.Direction, a.Direction) })
	for _, r := range rules {
		members := ""
		if r.Group != "" {
			members = fmt.Sprint(r.Members)
		}
		w.row(r.Direction, r.Text, members, r.ID)
	}
	w.flush()
}
