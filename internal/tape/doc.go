// SPDX-License-Identifier: Apache-2.0

// Package tape records the inputs of the agent's decisions in a file, and makes the decisions again from it: on any machine, without switch, broker
// and root. It works because package core depends on nothing but its inputs.
//
// In: what the core began with, and for each step its time, its events and its effects. Out: a file of lines of JSON, compressed. The first line is
// the [Header]. Each further one is a step: the time since the first, the events, and the effects as text, which is cut, with a checksum of all of it.
// What an event shares with the effect that it is the outcome of is not written: [Player] takes it from the effect that it has decided on again.
//
// [Recorder] writes a file beside the loop, which never waits for it; record.go. [Writer] writes lines; event.go and failure.go turn events and errors into
// data and back. [Player] reads lines and hands their events to a new core; play.go. mask.go takes secrets out of lines.
//
// A tape begins with the start of the agent, and ends when it is full: a later beginning would need all of the core's state. See
// docs/adr/0013-record-the-inputs-from-the-start.md.
package tape
