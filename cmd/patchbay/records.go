// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"log/slog"
	"slices"

	"github.com/patchbay-sdn/patchbay/internal/agent"
	"github.com/patchbay-sdn/patchbay/internal/grouplog"
	"github.com/patchbay-sdn/patchbay/internal/observe"
	"github.com/patchbay-sdn/patchbay/internal/options"
)

// openRecords opens where the lines of the extension log go, and returns what writes them; nil without the extension. Own is the agent's log.
func openRecords(o *options.Options, own *slog.Logger) (write func(agent.Records, uint64), files logFiles) {
	if !slices.Contains(o.Agent.Extensions, "log") {
		return nil, nil
	}
	to, inOwn := o.PacketLog()
	var logs []*slog.Logger
	if inOwn {
		logs = append(logs, observe.Named(own, grouplog.Logger))
	}
	if to != nil {
		layout, _ := observe.Layout(to.DateFormat) // else the default, which the agent's log has told
		sink, file := openSink(to)
		if file != nil {
			files = append(files, file)
		}
		logs = append(logs, observe.Named(observe.New([]observe.Output{{Sink: sink, Level: to.Level, Layout: layout}}), grouplog.Logger))
	}
	return func(r agent.Records, lost uint64) {
		if lost > 0 {
			own.Warn("log output too slow, lines of an extension dropped", "extension", r.Extension, "lines", lost)
		}
		for _, line := range r.Lines {
			record := slog.NewRecord(r.At, slog.LevelInfo, line, 0)
			for _, l := range logs {
				if l.Enabled(context.Background(), record.Level) {
					_ = l.Handler().Handle(context.Background(), record) // as with every line: nobody is left to tell
				}
			}
		}
	}, files
}
