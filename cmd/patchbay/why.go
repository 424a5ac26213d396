// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/patchbay-sdn/patchbay/internal/admin"
	"github.com/patchbay-sdn/patchbay/internal/inspect"
	"github.com/patchbay-sdn/patchbay/openflow"
)

// runWhy prints the flows of a bridge as the agent knows them: whose each is and why it exists, and those that are not as
// they should be.
func runWhy(ctx context.Context, out io.Writer, c *admin.Client, bridge string, f flowsFlags) error {
	flows, err := c.Flows(ctx, bridge)
	if err != nil {
		return err
	}
	v := flowView{}
	if err := v.name(bridge, f.Kind); err != nil {
		return err
	}
	if err := v.choose(f.Tables); err != nil {
		return err
	}
	flows = slices.DeleteFunc(flows, func(l inspect.Flow) bool {
		return len(v.tables) > 0 && !slices.Contains(v.tables, l.Table) || !strings.Contains(l.Text+" "+l.Owner+" "+l.Reason+" "+l.State, f.Text)
	})
	if _, ofTape := momentOf(ctx); !ofTape {
		if err := countPackets(ctx, bridge, f.Target, flows); err != nil {
			fmt.Fprintf(f.Notes, "without counters: %v\n", err)
		}
	}
	if f.Output.forPrograms() {
		return f.Output.write(out, flows)
	}
	fmt.Fprintln(out, "state       packets  flow")
	last := -1
	for _, l := range flows {
		if int(l.Table) != last {
			last = int(l.Table)
			fmt.Fprintf(out, "\n%s\n", v.tableTitle(l.Table))
		}
		packets := "-"
		if l.Packets != nil {
			packets = strconv.FormatUint(*l.Packets, 10)
		}
		fmt.Fprintf(out, "%-9s %9s  %s\n", l.State, packets, strings.TrimPrefix(l.Text, "table="+strconv.Itoa(int(l.Table))+","))
		if l.Have != "" {
			fmt.Fprintf(out, "%21sthere instead: %s\n", "", l.Have)
		}
		if l.Owner != "" {
			fmt.Fprintf(out, "%21s%s: %s\n", "", l.Owner, l.Reason)
		}
	}
	fmt.Fprintf(out, "\n%s: %s\n", bridge, summary(flows))
	return nil
}

// countPackets adds the counters of the switch to flows.
func countPackets(ctx context.Context, bridge, target string, flows []inspect.Flow) error {
	there, err := dumpBridge(ctx, bridge, target)
	counted := make(map[openflow.Key]*flowLine, len(there))
	for i := range there {
		counted[there[i].entry.Key()] = &there[i]
	}
	for i := range flows {
		flow, bad := openflow.ParseFlow(flows[i].Text)
		if e, err := flow.Entry(); bad == nil && err == nil {
			if l := counted[e.Key()]; l != nil && l.Packets != ^uint64(0) {
				flows[i].Packets, flows[i].Bytes = &l.Packets, &l.Bytes
			}
		}
	}
	return err
}

// summary is "120 flows: 118 present, 2 missing".
func summary(flows []inspect.Flow) string {
	states := map[string]int{}
	for _, l := range flows {
		states[l.State]++
	}
	text := plural(len(flows), "flow")
	sep := ": "
	for _, s := range []string{"present", "missing", "different", "leftover", "learned", "foreign"} {
		if states[s] > 0 {
			text += fmt.Sprintf("%s%d %s", sep, states[s], s)
			sep = ", "
		}
	}
	return text
}

func newConfigShowCommand() *cobra.Command {
	var f askFlags
	var all bool
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Show the configuration that the running agent uses, secrets masked",
		Args:  argumentsOf(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			doc, err := f.client().Get(cmd.Context(), "/v1/config")
			if err != nil {
				return err
			}
			if f.Output.forPrograms() {
				return f.Output.write(cmd.OutOrStdout(), json.RawMessage(doc))
			}
			return writeSettingsOf(cmd.OutOrStdout(), doc, all)
		},
	}
	f.add(cmd)
	cmd.Flags().BoolVar(&all, "all", false, "show options that are not set, too")
	return cmd
}

func writeSettingsOf(out io.Writer, doc []byte, all bool) error {
	var report struct {
		Files   []string `json:"files"`
		Options []struct {
			Section, Option string
			Value           json.RawMessage
			Origin          jsonOrigin
		} `json:"options"`
	}
	if err := json.Unmarshal(doc, &report); err != nil {
		return fmt.Errorf("reading the configuration: %w", err)
	}
	fmt.Fprintln(out, "# read from", strings.Join(report.Files, " "))
	section := ""
	for _, o := range report.Options {
		if o.Origin.Kind == "default" && !all {
			continue
		}
		if o.Section != section {
			section = o.Section
			fmt.Fprintf(out, "[%s]\n", section)
		}
		origin := o.Origin.Kind
		if o.Origin.File != "" {
			origin = fmt.Sprintf("%s:%d", o.Origin.File, o.Origin.Line)
		}
		fmt.Fprintf(out, "%s = %s  # %s\n", o.Option, plainValue(o.Value), origin)
	}
	return nil
}

// plainValue is a value as one writes it in a file.
func plainValue(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	var list []string
	if json.Unmarshal(raw, &list) == nil {
		return strings.Join(list, ",")
	}
	return string(raw)
}
