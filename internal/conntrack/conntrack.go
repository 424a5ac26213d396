// SPDX-License-Identifier: Apache-2.0

// Package conntrack removes tracked connections: those that the flows have marked as revoked, or all of a zone that is
// about to be used for another network.
//
// Where the connections are depends on the datapath. The kernel's are reached by netlink, with the kernel doing the
// comparing of marks. The userspace datapath's live inside ovs-vswitchd and are reached through its control socket, as
// ovs-appctl does.
//
// A connection is removed a moment after it was seen. In the kernel it carries an identity, by which a new connection
// with the same addresses and ports that came in between is told apart. The userspace datapath has none: there such a
// connection is removed too, and is tracked again from its next packet if the rules allow it.
package conntrack

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
)

// revokedMark is the bit of ct_mark that says: no rule allows this connection any more.
const revokedMark = 0x1

const (
	// maxHeld bounds what is remembered between seeing connections and removing them; if there are more, another pass
	// follows.
	maxHeld = 100_000
	// maxPasses ends the chase after a zone that fills as fast as it is emptied.
	maxPasses = 20
	// batch is how many removals are on their way to ovs-vswitchd at once.
	batch = 32
)

// Remover removes tracked connections. Its methods may be called at any time, one at a time or side by side: they hold
// nothing open in between, so that a restarted switch is found again.
type Remover interface {
	// FlushZone removes all connections of a zone.
	FlushZone(ctx context.Context, zone uint16) error
	// Marked lists the connections of a zone that are marked as revoked, at most MaxListed. A connection is marked by the
	// first packet that meets the changed flows, so one that is idle is not found until it speaks.
	Marked(ctx context.Context, zone uint16) ([]Connection, error)
	// Release takes the mark off connections that Marked has listed and that are allowed again, and returns how many of
	// them were still there. The userspace datapath cannot do that: there they are removed, and begin anew with their next
	// packet, from whichever end it comes; in older switches those of ICMPv6 stay as they are (see canFlush).
	//
	// Release only what is allowed again. Of a connection that is still refused both ends go on sending for minutes, and
	// its mark is what stops them. Were it forgotten, a packet from the end that may begin connections would look like the
	// first of a new one, which is allowed: all packets of the other end would be let through again then, as answers.
	Release(ctx context.Context, zone uint16, connections []Connection) (int, error)
}

// MaxListed bounds a list of connections.
const MaxListed = maxHeld

// Connection is a tracked connection, as its first packet showed it.
type Connection struct {
	Src, Dst netip.Addr
	Protocol uint8
	// SrcPort and DstPort are 0 for protocols without ports.
	SrcPort, DstPort uint16
	// ICMPType, ICMPCode and ICMPID are 0 for protocols other than ICMP and ICMPv6.
	ICMPType, ICMPCode uint8
	ICMPID             uint16

	raw string // what the kernel told about it
}

// New returns the Remover for bridges of the given datapath_type. The empty type is the kernel's, as in the database.
// RunDir is where ovs-vswitchd has its control socket and pid file; the kernel's Remover does not need it.
func New(datapathType, runDir string) (Remover, error) {
	switch datapathType {
	case "", "system":
		return kernel{}, nil
	case "netdev":
		return userspace{runDir: runDir, datapath: "netdev@ovs-netdev"}, nil
	}
	return nil, fmt.Errorf("tracked connections of a datapath of type %q cannot be removed: neither system nor netdev", datapathType)
}

// plainConnection is a connection without methods, and what the kernel told about it.
type plainConnection struct {
	bareConnection
	Raw []byte `json:",omitempty"`
}

type bareConnection Connection

// MarshalJSON implements json.Marshaler: what it writes, UnmarshalJSON reads.
func (c Connection) MarshalJSON() ([]byte, error) {
	return json.Marshal(plainConnection{bareConnection(c), []byte(c.raw)})
}

// UnmarshalJSON implements json.Unmarshaler.
func (c *Connection) UnmarshalJSON(b []byte) error {
	var p plainConnection
	if err := json.Unmarshal(b, &p); err != nil {
		return err
	}
	*c = Connection(p.bareConnection)
	c.raw = string(p.Raw)
	return nil
}
