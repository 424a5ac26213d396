// SPDX-License-Identifier: Apache-2.0

// Package core makes the agent's decisions. [Core.Step] takes the time and events, and returns effects (package effect): plain data that package
// runner carries out. The same times and events give the same effects, byte for byte. Nothing in it starts a goroutine, waits, performs I/O or
// reads a clock; the log and the recorder are written directly, in the order of the decisions.
//
// [Core] hands events on and orders the steps: event.go and converge.go. Each concern is a part with its own state. A part is given values, the
// world, and the step that is being taken (turn.go); it returns values, and holds no pointer to Core. server.go searches for a server, reports the
// agent's state to it, and watches whether it has its database; resync.go says when what is known is checked. bridges.go connects to bridges and
// reads them; conntrack.go does what package zones decides. pulls.go asks the server what is missing, as package pull decides; reports.go sends it
// the port statuses that package report decides on. extensions.go tends what is added to the core; guarded.go and contain.go bound what a panic
// costs. memory.go says when what the server said is written down. seen.go, advisories.go and recorder.go keep what is only shown, views.go answers questions.
// Packages world, pipeline and dataplane decide what is wanted and changed.
package core
