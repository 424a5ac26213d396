// SPDX-License-Identifier: Apache-2.0

// Package core makes the agent's decisions. [Core.Step] takes the time and events, and returns effects (package effect): plain data that package
// runner carries out. The same times and events give the same effects, byte for byte. Nothing in it starts a goroutine, waits, performs I/O or
// reads a clock; the log and the recorder are written directly, in the order of the decisions.
//
// event.go takes each event to those whose it is; converge.go has the steps that follow every event. register.go searches for a server,
// heartbeat.go keeps it informed; bridges.go connects to bridges and reads them, apply.go has rounds of changes made, and package dataplane decides
// what is in them; conntrack.go does what package zones decides; extensions.go tends what is added to the core; pulls.go
// asks the server what is missing, as package pull decides, and replies.go takes the answers; reports.go sends it the port statuses that package report decides on;
// resync.go has what is known checked after something may have been missed; memory.go has written down what the server said, for a start without
// one; contain.go, guarded.go and lost.go bound what a panic costs; views.go answers questions, and recorder.go keeps the last inputs and
// decisions. What is wanted is decided elsewhere: in packages world and pipeline.
package core
