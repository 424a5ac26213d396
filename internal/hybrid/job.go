// SPDX-License-Identifier: Apache-2.0

package hybrid

import (
	"log/slog"

	"github.com/patchbay-sdn/patchbay/internal/iptables"
)

// Job is something to do: one of the three.
type Job struct {
	// Read: the rules are read. Other: and it is looked for those of another back end.
	Read, Other bool
	// Apply are rules to write.
	Apply *iptables.Changes
	// End are tracked connections to delete.
	End []iptables.Connections
}

// Log is a line for the log. A warning is not written each time.
type Log struct {
	Level   slog.Level
	Message string
	Args    []any
}

// Out is what follows from an input.
type Out struct {
	Job  *Job
	Logs []Log
}

func (o *Out) log(level slog.Level, message string, args ...any) {
	o.Logs = append(o.Logs, Log{level, message, args})
}
