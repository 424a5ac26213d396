// SPDX-License-Identifier: Apache-2.0

package gate

// Facts is what the agent knows about itself at one moment. The zero value is that of an agent that knows nothing.
type Facts struct {
	SwitchUp    bool // the view of the switch's database is current
	SwitchError string
	Bridges     []Bridge

	// What the switch has to be changed by.
	Unresolved    bool // what follows from the last changes has not been worked out
	ViewBehind    bool // the view does not show the last committed rows yet
	RoundRunning  bool
	Rows          int // objects with rows to write
	RowsUnchecked int // objects whose rows may not be as wanted
	ZonesDue      int // connection tracking zones to flush
	ZonesFailed   []uint16
	RulesBusy     bool     // iptables rules may not be as wanted
	RulesFirst    int      // ports that flows of another driver filter until they have iptables rules
	RuleFaults    []string // why iptables rules do not filter as they should, in sentences
	TablesBusy    bool     // forwarding tables of devices may not be as wanted
	TableFaults   []string // why they cannot be, in sentences
	ServiceFaults []string // which services of extensions do not answer, and why, in sentences
	Rejected      []Rejected
	Held          []Held
	HeldBlind     bool // nothing is known of what one of Held wants

	// What the server has to say and to be told.
	BrokerError       string // not empty: the broker cannot be reached
	Registered        bool   // a neutron-server has answered
	ServerError       string
	StateReportFailed bool
	Calls             int      // pulls, port reports and calls of extensions in flight
	Ports             int      // ports that the server has not answered about
	Groups            int      // groups, their members and address groups that it has not
	TunnelTypes       []string // whose endpoints it has not sent
	ResyncDue         bool
	Reports           int // ports whose status may have to be reported
	// Refresh counts networks whose forwarding entries have to be requested again. Unrequested counts those that have none, and for
	// which nothing has been requested since the agent started or lost messages. Entries counts those for which they may still come.
	Refresh, Unrequested, Entries int
	Extensions                    []Extension

	// Known: the agent was in sync once, or has a snapshot.
	Known bool
}

// Bridge is a bridge that the agent programs.
type Bridge struct {
	Name              string
	Exists, Connected bool
	Error             string // why it is not connected
	Read              bool   // its flows are known
	Reading           bool   // its flows are being read
	Flows, Meters     int    // that are not as wanted
}

// Rejected is an object of which the switch rejected rows or flows, so many times in a row.
type Rejected struct {
	Object string
	Times  int
}

// Held is what failed and is kept from everything else, and what that means for traffic.
type Held struct{ Object, Effect string }

// Extension waits for so many pulls and calls, or has failed and works everything out again.
type Extension struct {
	Name   string
	Waits  int
	Failed bool
}
