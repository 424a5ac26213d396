// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Write prints the steps of a journey, a line each. With flows it prints the flows themselves as well.
func (h *Host) Write(w io.Writer, steps []Step, flows bool) {
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	bridge := ""
	for i := range steps {
		s := &steps[i]
		if s.Tracked != "" {
			_ = tab.Flush()
			fmt.Fprintf(w, "     connection tracking: %s\n", s.Tracked)
		}
		if s.Bridge != bridge {
			_ = tab.Flush()
			bridge = s.Bridge
			fmt.Fprintln(w, bridge)
		}
		fmt.Fprintf(tab, "%5d\t%s\tpriority %d\t%s\n", s.Table, s.Name, s.Priority, h.Say(s))
		if flows {
			_ = tab.Flush()
			fmt.Fprintf(w, "         %s → %s\n", orAny(s.Match), strings.Join(s.Actions, ","))
		}
		for _, e := range s.Errors {
			_ = tab.Flush()
			fmt.Fprintf(w, "         ! %s\n", e)
		}
	}
	_ = tab.Flush()
}

// Say is what a step does, in words.
func (h *Host) Say(s *Step) string {
	switch {
	case s.Missed:
		return "no flow matches"
	case s.State == "foreign":
		return "NOT THE AGENT'S: " + orAny(s.Match) + " → " + strings.Join(s.Actions, ",")
	case s.State == "learned":
		return "learned from an earlier packet: " + orAny(s.Match) + " → " + strings.Join(s.Actions, ",")
	case s.State == "different":
		return "CHANGED BY SOMEBODY: " + h.Named(s.Reason)
	case s.Reason != "":
		text := h.Named(s.Reason)
		if s.Owner != "" && !strings.HasPrefix(s.Owner, "bridge ") {
			text += " (" + h.Named(s.Owner) + ")"
		}
		return text
	}
	return orAny(s.Match) + " → " + strings.Join(s.Actions, ",")
}

func orAny(match string) string {
	if match == "" {
		return "any"
	}
	return match
}
