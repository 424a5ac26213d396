// SPDX-License-Identifier: Apache-2.0

package conntrack

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
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
	defer c.close()
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
	defer c.close()
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
	defer c.close()
	n, err := c.remove(zone, connections)
	if err != nil {
		err = fmt.Errorf("releasing connections of zone %d: %w", zone, err)
	}
	return n, err
}

// control is one connection to ovs-vswitchd's control socket.
type control struct {
	ctx      context.Context //nolint:containedctx // lives as long as one call of the Remover
	conn     net.Conn
	answers  answerReader
	datapath string
	// named says whether flushes name the datapath; it holds once settled.
	named, settled bool
	stop           func() bool
}

func (u userspace) dial(ctx context.Context) (*control, error) {
	socket, err := u.socket()
	if err != nil {
		return nil, err
	}
	dialCtx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(dialCtx, "unix", socket)
	if err != nil {
		return nil, fmt.Errorf("connecting to ovs-vswitchd: %w", err)
	}
	c := &control{ctx: ctx, conn: conn, answers: answerReader{r: bufio.NewReaderSize(conn, 32<<10)}, datapath: u.datapath, named: true}
	c.stop = context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	return c, nil
}

// socket is named after the process, so it is looked for anew every time.
func (u userspace) socket() (string, error) {
	text, err := os.ReadFile(filepath.Join(u.runDir, "ovs-vswitchd.pid"))
	if err != nil {
		return "", fmt.Errorf("looking for ovs-vswitchd: %w", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || pid <= 0 {
		return "", fmt.Errorf("looking for ovs-vswitchd: its pid file holds %q", text)
	}
	return filepath.Join(u.runDir, fmt.Sprintf("ovs-vswitchd.%d.ctl", pid)), nil
}

func (c *control) close() {
	c.stop()
	_ = c.conn.Close()
}

// version asks for the version of the switch; the zero value is one that nobody knows.
func (c *control) version() (v [3]int, err error) {
	if err := c.send(commandVersion); err != nil {
		return v, err
	}
	_, err = c.receive(func(line string) error {
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
	if err := c.send(commandDump, c.datapath, fmt.Sprintf("zone=%d", zone)); err != nil {
		return nil, false, nil, err
	}
	refused, err := c.receive(func(line string) error {
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
		if !c.settled {
			n = 1
		}
		for _, t := range tuples[:n] {
			if err := c.send(commandFlush, c.flushArgs(zone, t)...); err != nil {
				return removed, err
			}
		}
		var failed error
		for range n {
			refused, err := c.receive(func(string) error { return nil })
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
		if failed != nil && c.named && !c.settled && strings.Contains(failed.Error(), c.datapath) {
			// OVS 3.1.0 takes the name for a field of the tuple. Without it, the command refuses to choose when there are
			// several datapaths.
			c.named = false
			continue
		}
		if failed != nil {
			return removed, failed
		}
		c.settled = true
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

func (c *control) send(command string, args ...string) error {
	request, err := json.Marshal(map[string]any{"method": command, "params": append([]string{}, args...), "id": 0})
	if err != nil {
		return fmt.Errorf("encoding %s: %w", command, err)
	}
	if err := c.extend(); err != nil {
		return err
	}
	if _, err := c.conn.Write(request); err != nil {
		return c.fail("asking", err)
	}
	return nil
}

func (c *control) receive(line func(string) error) (refused string, err error) {
	if err := c.extend(); err != nil {
		return "", err
	}
	if refused, err = c.answers.read(line); err != nil {
		return "", c.fail("reading the answer of", err)
	}
	return strings.TrimSpace(refused), nil
}

// extend gives the next request its time.
func (c *control) extend() error {
	if err := c.conn.SetDeadline(time.Now().Add(callTimeout)); err != nil {
		return fmt.Errorf("setting a deadline: %w", err)
	}
	// Ended in between: the deadline in the past that AfterFunc set may have been overwritten just now.
	return c.ctx.Err()
}

func (c *control) fail(what string, err error) error {
	if c.ctx.Err() != nil {
		err = c.ctx.Err()
	}
	return fmt.Errorf("%s ovs-vswitchd: %w", what, err)
}
