// SPDX-License-Identifier: Apache-2.0

// Package gate defines what keeps the agent from being in sync. Blockers turns [Facts], plain values that the agent collects, into
// one list; a [Scope] is a question to that list. Deletion, the snapshot, the metric, /readyz, `patchbay status` and `patchbay plan`
// all read the same list, so that they cannot disagree. The package keeps no state.
package gate

import "fmt"

// Scope is a question that a blocker answers with no. Scopes can be combined.
type Scope uint8

const (
	// Complete asks whether the server has answered everything and has confirmed every report. The snapshot is saved, and unknown
	// interfaces are shut out, only then.
	Complete Scope = 1 << iota
	// Prune asks whether flows and meters that nothing wants may be deleted. It asks for more than Complete.
	Prune
	// InSync asks whether everything is as the server wants it, and the server knows.
	InSync
	// Ready asks whether the switch has everything that is known to be wanted, and something is known.
	Ready
	// Idle asks whether the switch has everything that is known to be wanted, and nothing is on its way to it.
	Idle

	// All are all scopes.
	All = Complete | Prune | InSync | Ready | Idle
	// answered are the scopes that what the server has not said or confirmed blocks.
	answered = Complete | Prune | InSync
)

// Codes of blockers that are told from others.
const (
	// FDB is that the server may still send forwarding entries that it was asked for.
	FDB = "fdb"
	// inFlight and round say nothing that other blockers do not say better.
	inFlight, round = "in-flight", "round"
)

// Blocker is one thing that keeps the agent from being in sync.
type Blocker struct {
	Code   string // stable, for programs
	Count  int    // of what is meant
	Detail string // a sentence for people
	Blocks Scope
	Passes bool // it is work under way that has not failed
}

// Open returns whether nothing blocks any of the scopes.
func Open(bs []Blocker, s Scope) bool {
	for _, b := range bs {
		if b.Blocks&s != 0 {
			return false
		}
	}
	return true
}

// Details returns the sentences of what blocks one of the scopes, and whether all of it is work under way that has not failed. Calls
// and rounds in flight have a sentence only where nothing else has.
func Details(bs []Blocker, s Scope) (sentences []string, passes bool) {
	passes = true
	busy := ""
	for _, b := range bs {
		switch {
		case b.Blocks&s == 0:
		case b.Code == inFlight || b.Code == round:
			busy = b.Detail
		default:
			sentences, passes = append(sentences, b.Detail), passes && b.Passes
		}
	}
	if len(sentences) == 0 && busy != "" {
		sentences = []string{busy}
	}
	return sentences, passes && len(sentences) > 0
}

// Blockers returns what blocks, in the order in which people should read it.
func Blockers(f Facts) []Blocker {
	var l list
	l.fact(!f.SwitchUp, "switch-down", All, "the switch's database cannot be reached"+because(f.SwitchError))
	for _, b := range f.Bridges {
		l.bridge(b)
	}
	l.fact(f.BrokerError != "", "broker-down", InSync, "the broker cannot be reached"+because(f.BrokerError))
	switch {
	case !f.Registered:
		l.fact(true, "server-down", answered, "no neutron-server has answered yet"+because(f.ServerError))
	case f.StateReportFailed:
		l.fact(true, "state-report", InSync, "the server does not take our state reports"+because(f.ServerError))
	}
	l.work(f.Ports, "pull-port", answered, "bulk_pull of %s is not answered yet", "port")
	l.work(f.Groups, "pull-group", answered, "bulk_pull of %s is not answered yet", "group")
	for _, t := range f.TunnelTypes {
		l.work(1, "tunnel-sync", answered, "tunnel_sync of "+t+" is not answered yet")
	}
	l.work(max(f.Unrequested, f.Refresh), "fdb-request", InSync, "the server has not answered the request for the forwarding entries of %s yet", "network")
	l.work(f.Refresh, "fdb-refresh", Complete|Prune, "the forwarding entries of %s are requested again", "network")
	l.work(f.Entries, FDB, Complete|Prune, "the server may still send the forwarding entries of %s", "network")
	l.work(count(f.ResyncDue), "resync", answered, "messages may have been lost: everything is pulled again in a moment")
	l.work(f.Rows, "rows", InSync|Ready, "rows of %s are not written yet", "object")
	l.work(f.RowsUnchecked, "rows-unchecked", Idle, "rows of %s have not been compared since they changed", "object")
	flows, meters := 0, 0
	for _, b := range f.Bridges {
		flows, meters = flows+b.Flows, meters+b.Meters
	}
	l.work(flows, "flows", InSync|Ready, "%s not as wanted yet", "flow")
	l.work(meters, "meters", Idle, "%s not as wanted yet", "meter")
	for _, zone := range f.ZonesFailed {
		l.fact(true, "zone-flush", InSync, fmt.Sprintf("connection tracking zone %d was not flushed; new ports of its network wait", zone))
	}
	l.work(f.ZonesDue, "zone-due", Idle, "%s of connection tracking not flushed yet", "zone")
	l.work(count(f.RulesBusy), "rules", InSync|Idle, "iptables rules are compared or written")
	l.work(f.RulesFirst, "rules-first", Prune, "the flows that filter %s stay until it has iptables rules", "port")
	for _, fault := range f.RuleFaults {
		l.fact(true, "rules-fault", InSync|Ready, fault)
	}
	l.work(count(f.TablesBusy), "forwarding", InSync|Idle, "forwarding tables of devices are compared or changed")
	for _, fault := range f.TableFaults {
		l.fact(true, "forwarding-fault", InSync, fault)
	}
	for _, fault := range f.ServiceFaults {
		l.fact(true, "service-fault", InSync, fault)
	}
	for _, r := range f.Rejected {
		l.fact(true, "rejected", InSync, fmt.Sprintf("%s was refused %s by the switch and is tried again; see the last errors", r.Object, counted(r.Times, "time")))
	}
	l.held(f.Held)
	l.fact(f.HeldBlind, "held-blind", Prune, "nothing is known of what an object in quarantine wants: nothing is pruned")
	l.work(f.Reports, "report", answered, "the status of %s is not reported to the server yet", "port")
	for _, e := range f.Extensions {
		l.work(e.Waits, "extension", answered, "extension "+e.Name+" waits for %s", "answer")
		l.fact(e.Failed, "extension-failed", answered, "extension "+e.Name+" has failed and works everything out again")
	}
	const onWay = "changes are on their way"
	l.work(f.Calls, inFlight, answered, onWay)
	l.work(count(f.RoundRunning), round, answered|Idle, onWay)
	l.work(count(f.Unresolved || f.ViewBehind), "changes", Idle, onWay)
	l.fact(!f.Known, "nothing-known", Ready, "the agent was never in sync and has no snapshot")
	return l
}

type list []Blocker

func (l *list) fact(is bool, code string, blocks Scope, detail string) {
	if is {
		*l = append(*l, Blocker{Code: code, Count: 1, Detail: detail, Blocks: blocks})
	}
}

// work adds what passes by itself. The format has a place for how many there are of the noun, if there is one.
func (l *list) work(n int, code string, blocks Scope, format string, noun ...string) {
	if n == 0 {
		return
	}
	if len(noun) > 0 {
		format = fmt.Sprintf(format, counted(n, noun[0]))
	}
	*l = append(*l, Blocker{Code: code, Count: n, Detail: format, Blocks: blocks, Passes: true})
}

func (l *list) bridge(b Bridge) {
	switch {
	case !b.Connected && !b.Exists:
		l.fact(true, "bridge-missing", InSync|Ready, "bridge "+b.Name+" does not exist")
	case !b.Connected:
		l.fact(true, "bridge-down", InSync|Ready|Idle, "bridge "+b.Name+" cannot be programmed"+because(b.Error))
	case !b.Read:
		l.fact(true, "bridge-unread", InSync|Idle, "the flows of bridge "+b.Name+" have not been read yet")
	case b.Flows > 0 || b.Reading:
		l.work(1, "bridge-busy", Idle, "the flows of bridge "+b.Name+" are read or changed")
	}
}

// maxHeld bounds how many held objects are named.
const maxHeld = 5

func (l *list) held(held []Held) {
	for i, h := range held {
		if i == maxHeld {
			l.fact(true, "held", InSync, fmt.Sprintf("%d more are in quarantine", len(held)-i))
			return
		}
		l.fact(true, "held", InSync, h.Object+" failed and is in quarantine"+because(h.Effect))
	}
}

func because(text string) string {
	if text == "" {
		return ""
	}
	return ": " + text
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func count(is bool) int {
	if is {
		return 1
	}
	return 0
}
