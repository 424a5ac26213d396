// SPDX-License-Identifier: Apache-2.0

package conntrack

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/patchbay-sdn/patchbay/internal/unixctl"
)

const (
	commandVersion = "version"
	commandDump    = "dpctl/dump-conntrack"
	commandFlush   = "dpctl/flush-conntrack"
)

// userspace removes connections of the userspace datapath, through ovs-vswitchd's control socket.
type userspace struct {
	runDir   string
	datapath string
}

func (u userspace) FlushZone(ctx context.Context, zone uint16) error {
	c, err := u.dial(ctx)
	if err != nil {
		return fmt.Errorf("flushing zone %d: %w", zone, err)
	}
	defer c.Close()
	if _, err := c.flush(zone, []string{""}); err != nil {
		return fmt.Errorf("flushing zone %d: %w", zone, err)
	}
	return nil
}

func (u userspace) Marked(ctx context.Context, zone uint16) ([]Connection, error) {
	c, err := u.dial(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing revoked connections of zone %d: %w", zone, err)
	}
	defer c.Close()
	list, _, bad, err := c.marked(zone)
	if err = errors.Join(err, bad); err != nil {
		err = fmt.Errorf("listing revoked connections of zone %d: %w", zone, err)
	}
	return list, err
}

func (u userspace) Release(ctx context.Context, zone uint16, connections []Connection) (int, error) {
	c, err := u.dial(ctx)
	if err != nil {
		return 0, fmt.Errorf("releasing connections of zone %d: %w", zone, err)
	}
	defer c.Close()
	n, err := c.remove(zone, connections)
	if err != nil {
		err = fmt.Errorf("releasing connections of zone %d: %w", zone, err)
	}
	return n, err
}

// control is one connection to ovs-vswitchd's control socket.
type control struct {
	*unixctl.Client
	datapath string
	// named says whether flushes name the datapath; it holds once chosen.
	named, chosen bool
}

func (u userspace) dial(ctx context.Context) (*control, error) {
	c, err := unixctl.Dial(ctx, u.runDir)
	if err != nil {
		return nil, err
	}
	return &control{Client: c, datapath: u.datapath, named: true}, nil
}

// version asks for the version of the switch; the zero value is one that nobody knows.
func (c *control) version() (v [3]int, err error) {
	if err := c.Send(commandVersion); err != nil {
		return v, err
	}
	_, err = c.Receive(func(line string) error {
		if found := parseVersion(line); found != [3]int{} {
			v = found
		}
		return nil
	})
	return v, err
}

// parseVersion reads "ovs-vswitchd (Open vSwitch) 3.1.0".
func parseVersion(line string) (v [3]int) {
	_, text, ok := strings.Cut(line, "(Open vSwitch) ")
	if !ok {
		return v
	}
	if n, err := fmt.Sscanf(text, "%d.%d.%d", &v[0], &v[1], &v[2]); n < 3 || err != nil {
		return [3]int{}
	}
	return v
}

// canFlush says whether the switch survives being asked to flush the connection. It aborts on kinds of ICMP messages
// that it does not expect, and before these versions on every ICMPv6 connection. Such connections stay until they time
// out; the flows go by their mark and drop their packets.
func canFlush(c Connection, version [3]int) bool {
	switch c.Protocol {
	case protoICMP:
		return slices.Contains([]uint8{0, 8, 13, 14, 15, 16}, c.ICMPType)
	case protoICMPv6:
		if c.ICMPType != 128 && c.ICMPType != 129 {
			return false
		}
		switch [2]int(version[:2]) {
		case [2]int{2, 17}:
			return version[2] >= 10
		case [2]int{3, 0}:
			return version[2] >= 7
		case [2]int{3, 1}:
			return version[2] >= 5
		case [2]int{3, 2}:
			return version[2] >= 3
		case [2]int{3, 3}:
			return version[2] >= 1
		}
		return version[0] > 3 || version[0] == 3 && version[1] > 3
	}
	return true
}

// remove removes the connections that the switch survives being asked for.
func (c *control) remove(zone uint16, connections []Connection) (int, error) {
	if len(connections) == 0 {
		return 0, nil
	}
	version, err := c.version()
	if err != nil {
		return 0, err
	}
	tuples := make([]string, 0, len(connections))
	for _, conn := range connections {
		if canFlush(conn, version) {
			tuples = append(tuples, conn.tuple())
		}
	}
	return c.flush(zone, tuples)
}

// marked lists the revoked connections of the zone, at most maxHeld; more says that there are more. Bad is about the first
// line that nobody could read: the others are dealt with all the same.
func (c *control) marked(zone uint16) (list []Connection, more bool, bad, err error) {
	if err := c.Send(commandDump, c.datapath, fmt.Sprintf("zone=%d", zone)); err != nil {
		return nil, false, nil, err
	}
	refused, err := c.Receive(func(line string) error {
		e, unread := parseEntry(line)
		if unread != nil {
			if bad == nil {
				bad = fmt.Errorf("%w: %.200q", unread, line)
			}
			return nil
		}
		switch {
		case e.zone != zone || e.mark&revokedMark == 0:
		case len(list) == maxHeld:
			more = true
		default:
			list = append(list, e.Connection)
		}
		return nil
	})
	if err == nil && refused != "" {
		err = fmt.Errorf("%s: %s", commandDump, refused)
	}
	return list, more, bad, err
}

// flush removes connections of the zone and returns how many were still there. The empty tuple means all of them.
func (c *control) flush(zone uint16, tuples []string) (int, error) {
	removed := 0
	for len(tuples) > 0 {
		n := min(batch, len(tuples))
		if !c.chosen {
			n = 1
		}
		for _, t := range tuples[:n] {
			if err := c.Send(commandFlush, c.flushArgs(zone, t)...); err != nil {
				return removed, err
			}
		}
		var failed error
		for range n {
			refused, err := c.Receive(func(string) error { return nil })
			switch {
			case err != nil:
				return removed, err
			case refused == "":
				removed++
			case strings.Contains(refused, "No such file or directory"): // it has ended by itself
			case failed == nil:
				failed = fmt.Errorf("%s: %s", commandFlush, refused)
			}
		}
		if failed != nil && c.named && !c.chosen && strings.Contains(failed.Error(), c.datapath) {
			// OVS 3.1.0 takes the name for a field of the tuple. Without it, the command refuses to choose when there are
			// several datapaths.
			c.named = false
			continue
		}
		if failed != nil {
			return removed, failed
		}
		c.chosen = true
		tuples = tuples[n:]
	}
	return removed, nil
}

func (c *control) flushArgs(zone uint16, tuple string) []string {
	var args []string
	if c.named {
		args = append(args, c.datapath)
	}
	args = append(args, fmt.Sprintf("zone=%d", zone))
	if tuple != "" {
		args = append(args, tuple)
	}
	return args
}
