// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchbay-sdn/patchbay/internal/admin"
	"github.com/patchbay-sdn/patchbay/internal/inspect"
)

// statusDocument is what `patchbay status -o json` prints.
type statusDocument struct {
	inspect.Status
	Limits []string `json:"limits,omitempty"` // by the releases of switch, broker and server
}

func newStatusCommand() *cobra.Command {
	var wait time.Duration
	var cmd *cobra.Command
	cmd = view[statusDocument]{
		ask: func(ctx context.Context, c *admin.Client, _ []string) (statusDocument, error) {
			s, err := awaitedStatus(ctx, c, wait, cmd.Flags().Changed("wait"))
			return statusDocument{s, limits(&s)}, err
		},
		print: func(out io.Writer, s statusDocument, now time.Time) { writeStatus(out, &s.Status, now) },
		ends: func(s statusDocument) error {
			if !s.InSync {
				return ended{status: exitFinding}
			}
			return nil
		},
	}.command(&cobra.Command{
		Use:   "status",
		Short: "Show whether the agent is in sync, and if not, why",
		Long: `Show whether the agent is in sync, and if not, why: what the agent waits for, what is pending, the last errors.
The command prints the known releases of Open vSwitch, the broker and neutron-server, and what these releases do not support.
While the agent applies changes, the command reads the status again, for at most two seconds. With --wait the command waits
up to the given time until an agent answers and is in sync.

An agent can be in sync although neutron-server has sent no forwarding entries for a network: the ports of this host are
wired and reported. For 30 s after the report of the network's first port the entries may still arrive. After that the agent assumes
that no other host has ports of the network, because neutron-server sends no entries for such a network.

Exit status:
  0  in sync: all ports are wired as the server wants, and reported
  1  not in sync; the command prints the reasons
  3  no agent answers`,
		Example: "  patchbay status\n  systemctl restart neutron-openvswitch-agent && patchbay status --wait 1m\n  patchbay status --watch",
		Args:    argumentsOf(0, 0),
	})
	cmd.Flags().DurationVar(&wait, "wait", 2*time.Second, "longest time to wait until an agent answers and is in sync")
	return cmd
}

// statusPause separates two questions for the status.
const statusPause = 50 * time.Millisecond

// awaitedStatus asks for the status, again and again while changes are under way, but not for longer than wait. With sync it waits for an
// agent that answers and is in sync.
func awaitedStatus(ctx context.Context, c inspect.Source, wait time.Duration, sync bool) (inspect.Status, error) {
	for end := time.Now().Add(wait); ; {
		s, err := c.Status(ctx)
		again := err == nil && s.Changing
		if sync {
			again = err != nil || !s.InSync
		}
		if !again || ctx.Err() != nil || !time.Now().Before(end) {
			return s, err
		}
		pause(ctx, statusPause)
	}
}

func writeStatus(out io.Writer, s *inspect.Status, now time.Time) {
	verdict := "in sync"
	if !s.InSync {
		verdict = "NOT IN SYNC"
		if ready, _ := admin.Ready(s); ready {
			verdict = "NOT IN SYNC, but what is known is wired; traffic goes on"
		}
	}
	fmt.Fprintf(out, "%s  %s\n", s.Host, verdict)
	for _, r := range s.Reasons {
		fmt.Fprintf(out, "  - %s\n", r)
	}
	writeAwaited(out, s.Awaited, now)
	for _, u := range s.Unmet {
		fmt.Fprintf(out, "  ! %s\n", u.Detail)
	}
	for _, a := range s.Advisories {
		fmt.Fprintf(out, "  ! %s\n", a)
	}
	fmt.Fprintln(out)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "agent\tpatchbay %s, pid %d\tup %s\n", s.Version, s.PID, ago(s.Started, now))
	writePeer(w, "switch", s.Switch, now)
	writePeer(w, "broker", s.Broker, now)
	server := s.Server
	if server.Detail != "" {
		server.Detail = "Neutron " + server.Detail
	}
	writePeer(w, "server", server, now)
	fmt.Fprintf(w, "firewall\t%s\t\n", s.Firewall)
	fmt.Fprintf(w, "ports\t%s\t\n", states(s.Ports))
	p := s.Pending
	if p != (inspect.Pending{}) {
		fmt.Fprintf(w, "pending\t%d rows, %d flows, %d ports and %d groups to pull, %d reports\t\n", p.Rows, p.Flows, p.Details, p.Items, p.Reports)
	}
	if s.FromSnapshot {
		fmt.Fprintln(w, "snapshot\tsome ports are wired from the snapshot: the server has not confirmed them yet\t")
	}
	_ = w.Flush()
	if list := limits(s); len(list) > 0 {
		fmt.Fprintf(out, "\nlimited by these releases:\n  %s\n", strings.Join(list, "\n  "))
	}
	writeHeld(out, s.Held, now)
	fmt.Fprintln(out)
	writeBridges(out, s.Bridges)
	if n := len(s.Errors); n > 0 {
		fmt.Fprintf(out, "\nlast warnings and errors (patchbay events shows what led to them):\n")
		for _, e := range s.Errors[max(0, n-maxShownErrors):] {
			fmt.Fprintf(out, "  %s  %s\n", stamp(e.Time, now), describe(e))
		}
	}
}

// maxShownAwaited is how many networks are named whose forwarding entries may still come.
const maxShownAwaited = 3

func writeAwaited(out io.Writer, list []inspect.Awaited, now time.Time) {
	for _, w := range list[:min(len(list), maxShownAwaited)] {
		fmt.Fprintf(out, "  . waiting for the server's forwarding entries of network %s (%s of at most %s; none come if no other host has ports of it)\n",
			w.Network, short(now.Sub(w.Since)), short(w.Until.Sub(w.Since)))
	}
	if more := len(list) - maxShownAwaited; more > 0 {
		fmt.Fprintf(out, "  . and of %d more\n", more)
	}
}

// writeHeld lists what is in quarantine.
func writeHeld(out io.Writer, list []inspect.Held, now time.Time) {
	if len(list) == 0 {
		return
	}
	fmt.Fprintf(out, "\nin quarantine, tried again until it succeeds:\n")
	for _, h := range list {
		fmt.Fprintf(out, "  %s: %s\n", h.Object, h.Reason)
		effect := h.Effect
		if effect != "" {
			effect += "; "
		}
		fmt.Fprintf(out, "    %sfailed %d times in %s\n", effect, h.Failed, ago(h.Since, now))
	}
}

// maxShownErrors is how many of the last errors fit on a screen.
const maxShownErrors = 5

func writePeer(w io.Writer, name string, p inspect.Peer, now time.Time) {
	switch {
	case p.Up:
		fmt.Fprintf(w, "%s\t%s\tfor %s\n", name, p.Detail, ago(p.Since, now))
	case p.Since.IsZero():
		fmt.Fprintf(w, "%s\tnot seen yet\t\n", name)
	default:
		fmt.Fprintf(w, "%s\tDOWN: %s\tsince %s\n", name, p.Error, ago(p.Since, now))
	}
}

func writeBridges(out io.Writer, bridges []inspect.Bridge) {
	w := newTable(out, "BRIDGE", "ROLE", "STATE", "FLOWS", "PENDING", "FOREIGN", "REPAIRED")
	for _, b := range bridges {
		role, state := b.Role, "connected"
		if b.Physical != "" {
			role += " " + b.Physical
		}
		if !b.Connected {
			state = "DOWN " + b.Error
		}
		w.row(b.Name, role, state, fmt.Sprintf("%d/%d", b.Wanted-min(b.Pending, b.Wanted), b.Wanted), b.Pending, b.Foreign, b.Repaired)
	}
	w.flush()
}

// states is "12 wired, 1 dead".
func states(counts map[string]int) string {
	if len(counts) == 0 {
		return "none"
	}
	parts := make([]string, 0, len(counts))
	for _, s := range sortedByCount(counts) {
		parts = append(parts, fmt.Sprintf("%d %s", counts[s], s))
	}
	return strings.Join(parts, ", ")
}

// sortedByCount returns the words, the most frequent first.
func sortedByCount(counts map[string]int) []string {
	return slices.SortedFunc(maps.Keys(counts), func(a, b string) int { return cmp.Or(counts[b]-counts[a], strings.Compare(a, b)) })
}

// ago is a duration that fits a table: 3 d 4 h, 12 min, 5 s, 80 ms.
func ago(t, now time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return short(now.Sub(t))
}

func short(d time.Duration) string {
	switch {
	case d >= 48*time.Hour:
		return fmt.Sprintf("%d d %d h", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
	case d >= time.Hour:
		return fmt.Sprintf("%d h %d min", d/time.Hour, d%time.Hour/time.Minute)
	case d >= time.Minute:
		return fmt.Sprintf("%d min %d s", d/time.Minute, d%time.Minute/time.Second)
	case d >= time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return fmt.Sprintf("%d ms", d.Milliseconds())
}

// stamp is the time of day, with the date when it was another day.
func stamp(t, now time.Time) string {
	t = t.Local()
	if now.Sub(t) > 24*time.Hour {
		return t.Format("2006-01-02 15:04:05")
	}
	return t.Format("15:04:05.000")
}

// table prints aligned columns.
type table struct{ w *tabwriter.Writer }

func newTable(out io.Writer, heads ...string) table {
	t := table{tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)}
	fmt.Fprintln(t.w, strings.Join(heads, "\t"))
	return t
}

func (t table) row(cells ...any) {
	for i, c := range cells {
		if i > 0 {
			fmt.Fprint(t.w, "\t")
		}
		text := strings.NewReplacer("\n", " ", "\t", " ").Replace(fmt.Sprint(c))
		if text == "" {
			text = "-"
		}
		fmt.Fprint(t.w, text)
	}
	fmt.Fprintln(t.w)
}

func (t table) flush() { _ = t.w.Flush() }
