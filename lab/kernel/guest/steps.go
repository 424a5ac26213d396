// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// TCP ports of the second VM, and the UDP ports of probes.
const (
	doorPort   = 7001 // its rule comes and goes
	stayPort   = 7002 // allowed all the time
	remotePort = 7003 // allowed to members of the group "friends"
	goodProbe  = 9001
	badProbe   = 9002 // never allowed
)

// quiet is how long nothing must be heard before it counts as refused. A packet that has to be looked at by
// ovs-vswitchd takes up to a tenth of a second here.
const quiet = 3 * time.Second

type cloud struct {
	params  Params
	api     api
	hosts   []*host
	vms     []*vm
	network string
	groups  map[string]string
	// doorRules are the rules of the door that comes and goes, by IP version.
	doorRules []string
	// door is revoked, allowed again, and revoked for good; stay is allowed all the time.
	door, stay net.Conn
}

type step struct {
	name string
	run  func(context.Context) (seen string, err error)
}

func (c *cloud) steps() []step {
	return []step{
		{"kernel modules", c.modules},
		{"two hosts, an underlay between them", c.makeHosts},
		{"agents report to the server", c.startAgents},
		{"two VMs, ports ACTIVE", c.makeVMs},
		{"bridges and tunnel are the kernel's", c.datapath},
		{"group closed: nothing gets in", c.closed},
		{"group opened: ping, TCP, IPv6 over vxlan", c.opened},
		{"connections are in the kernel's table", c.tracked},
		{"rule removed: the connection falls silent", c.revoked},
		{"… and stays silent while both ends try", c.silent},
		{"… while the other connection goes on", c.others},
		{"rule back: it goes on, new ones are let in", c.reopened},
		{"rule removed again: silent again", c.revoked},
		{"… and gone from the kernel's table", c.gone},
		{"remote group: let in by joining", c.joined},
		{"remote group: shut out by leaving", c.left},
		{"agents stopped and started: 0 lost", func(ctx context.Context) (string, error) { return c.restarted(ctx, syscall.SIGTERM) }},
		{"agents killed and started: 0 lost", func(ctx context.Context) (string, error) { return c.restarted(ctx, syscall.SIGKILL) }},
		{"clock jumps back and ahead: 0 lost, groups change", c.clockJumps},
		{"all of it without a lost upcall or a crash", c.clean},
	}
}

// datapath makes sure that what is tested is what should be.
func (c *cloud) datapath(ctx context.Context) (string, error) {
	for _, h := range c.hosts {
		out, err := h.sw.Appctl(ctx, "ovs-vswitchd", "dpctl/show")
		if err != nil {
			return "", err
		}
		if !strings.Contains(out, "system@ovs-system:") || strings.Contains(out, "netdev@") || !strings.Contains(out, "(vxlan") {
			return "", fmt.Errorf("%s: no kernel datapath with a vxlan port: %s", h.name, out)
		}
	}
	return "system@ovs-system with vxlan_sys on both hosts", nil
}

// refused makes sure that a new connection is not answered.
func (c *cloud) refused(port int) error {
	conn, err := c.vms[0].dial(c.vms[1].v4, port, quiet)
	if err == nil {
		_ = conn.Close()
		return fmt.Errorf("a connection to port %d was let in", port)
	}
	var timeout net.Error
	if !errors.As(err, &timeout) || !timeout.Timeout() {
		return fmt.Errorf("a connection to port %d was not dropped: %w", port, err)
	}
	return nil
}

func (c *cloud) closed(ctx context.Context) (string, error) {
	for _, address := range []string{c.vms[1].v4, c.vms[1].v6} {
		if c.vms[0].ping(ctx, address, quiet) == nil {
			return "", fmt.Errorf("%s answered a ping", address)
		}
	}
	return "2 pings and a TCP connection refused", c.refused(doorPort)
}

func (c *cloud) opened(ctx context.Context) (string, error) {
	for _, rule := range []object{
		{"protocol": "icmp"},
		{"protocol": "ipv6-icmp", "ethertype": "IPv6"},
		{"protocol": "tcp", "port_range_min": stayPort, "port_range_max": stayPort},
		{"protocol": "udp", "port_range_min": goodProbe, "port_range_max": goodProbe},
		{"protocol": "tcp", "port_range_min": remotePort, "port_range_max": remotePort, "remote_group_id": c.groups["friends"]},
	} {
		if _, err := c.api.allow(ctx, c.groups["door"], rule); err != nil {
			return "", err
		}
	}
	if err := c.openDoor(ctx); err != nil {
		return "", err
	}
	for _, address := range []string{c.vms[1].v4, c.vms[1].v6} {
		if err := until(ctx, patience, func(ctx context.Context) error { return c.vms[0].ping(ctx, address, quiet) }); err != nil {
			return "", err
		}
	}
	var err error
	if c.door, err = c.connect(ctx, c.vms[1].v4, doorPort); err != nil {
		return "", err
	}
	if c.stay, err = c.connect(ctx, c.vms[1].v4, stayPort); err != nil {
		return "", err
	}
	v6, err := c.connect(ctx, c.vms[1].v6, doorPort)
	if err != nil {
		return "", err
	}
	_ = v6.Close()
	return "all answered", nil
}

func (c *cloud) openDoor(ctx context.Context) error {
	for _, ethertype := range []string{"IPv4", "IPv6"} {
		id, err := c.api.allow(ctx, c.groups["door"], object{
			"protocol": "tcp", "port_range_min": doorPort, "port_range_max": doorPort, "ethertype": ethertype,
		})
		if err != nil {
			return err
		}
		c.doorRules = append(c.doorRules, id)
	}
	return nil
}

// connect tries until a connection is let in, and says something over it.
func (c *cloud) connect(ctx context.Context, address string, port int) (conn net.Conn, err error) {
	err = until(ctx, patience, func(context.Context) error {
		var err error
		if conn, err = c.vms[0].dial(address, port, quiet); err != nil {
			return err
		}
		return echo(conn, patience)
	})
	return conn, err
}

func (c *cloud) tracked(ctx context.Context) (string, error) {
	n := 0
	for _, h := range c.hosts {
		for _, p := range []int{doorPort, stayPort} {
			found, err := h.connections(ctx, "ESTABLISHED", fmt.Sprintf("dport=%d ", p), "zone=")
			if err != nil {
				return "", err
			}
			if len(found) == 0 {
				all, _ := h.connections(ctx)
				return "", fmt.Errorf("%s has no connection to port %d: %q", h.name, p, all)
			}
			n += len(found)
		}
	}
	return fmt.Sprintf("%d established, with zones", n), nil
}

func (c *cloud) revoked(ctx context.Context) (string, error) {
	for _, id := range c.doorRules {
		if err := c.api.forbid(ctx, id); err != nil {
			return "", err
		}
	}
	c.doorRules = nil
	removed := time.Now()
	last := removed
	// Once it is silent it has to stay silent.
	for {
		err := echo(c.door, quiet)
		if err == nil {
			last = time.Now()
			if time.Since(removed) > patience {
				return "", errors.New("it is still answered")
			}
			continue
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return "", fmt.Errorf("it was not silenced but ended: %w", err)
		}
		break
	}
	return fmt.Sprintf("last answer %.1f s after the server's", last.Sub(removed).Seconds()), c.refused(doorPort)
}

// silent is about the ends of a revoked connection, which go on trying. The end that is allowed to begin connections can
// look as if it began one, if the kernel has forgotten the one that was revoked: then all of it would be let through
// again, as answers.
func (c *cloud) silent(context.Context) (string, error) {
	begin := time.Now()
	for time.Since(begin) < 15*time.Second {
		switch err := echo(c.door, quiet); {
		case err == nil:
			return "", fmt.Errorf("it was answered again after %.1f s", time.Since(begin).Seconds())
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return "", fmt.Errorf("it ended: %w", err)
		}
	}
	return fmt.Sprintf("for %.0f s", time.Since(begin).Seconds()), nil
}

// gone waits until a revoked connection is in the table no more. The ends have to give up first: they are told to, and the
// kernel is told to forget connections like that after seconds instead of minutes.
func (c *cloud) gone(ctx context.Context) (string, error) {
	h := c.hosts[1]
	for _, name := range []string{"max_retrans", "unacknowledged"} {
		if _, err := command(ctx, "ip", "netns", "exec", h.name, "sysctl", "-q", "-w",
			"net.netfilter.nf_conntrack_tcp_timeout_"+name+"=5"); err != nil {
			return "", err
		}
	}
	far, ok := c.vms[1].accepted.Load(c.door.LocalAddr().String())
	if !ok {
		return "", errors.New("the other end of the connection is not known")
	}
	if err := errors.Join(giveUp(c.door), giveUp(far.(net.Conn))); err != nil {
		return "", err
	}
	_, port, err := net.SplitHostPort(c.door.LocalAddr().String())
	if err != nil {
		return "", fmt.Errorf("reading the address of the connection: %w", err)
	}
	begin := time.Now()
	err = until(ctx, 3*patience, func(ctx context.Context) error {
		// Either end may be the one that the kernel believes to have begun.
		found, err := h.connections(ctx, "="+port+" ", fmt.Sprintf("=%d ", doorPort), "zone=")
		if err == nil && len(found) > 0 {
			err = fmt.Errorf("still there: %q", found)
		}
		return err
	})
	if err != nil {
		return "", err
	}
	kept, err := h.connections(ctx, fmt.Sprintf("dport=%d ", stayPort), "ESTABLISHED")
	if err == nil && len(kept) == 0 {
		err = errors.New("so is the connection that is allowed")
	}
	return fmt.Sprintf("%.1f s after its ends gave up; the allowed one is there", time.Since(begin).Seconds()), err
}

func (c *cloud) others(ctx context.Context) (string, error) {
	if err := echo(c.stay, patience); err != nil {
		return "", fmt.Errorf("the allowed connection is silent: %w", err)
	}
	return "answered, and so is ping", c.vms[0].ping(ctx, c.vms[1].v4, patience/2)
}

func (c *cloud) reopened(ctx context.Context) (string, error) {
	if err := c.openDoor(ctx); err != nil {
		return "", err
	}
	conn, err := c.connect(ctx, c.vms[1].v4, doorPort)
	if err != nil {
		return "", err
	}
	_ = conn.Close()
	// Its ends have come to try less and less often.
	if err := echo(c.door, 3*patience); err != nil {
		return "", fmt.Errorf("a new connection is answered, the old one is not: %w", err)
	}
	revoked, err := c.hosts[1].connections(ctx, "mark=1 ", "zone=")
	if err == nil && len(revoked) > 0 {
		err = fmt.Errorf("still marked as revoked: %q", revoked)
	}
	return "both answered", err
}

// setGroups changes the groups of the first VM.
func (c *cloud) setGroups(ctx context.Context, names ...string) error {
	ids := []string{}
	for _, n := range names {
		ids = append(ids, c.groups[n])
	}
	return c.api.do(ctx, http.MethodPut, "ports/"+c.vms[0].port.ID, object{"port": object{"security_groups": ids}}, nil)
}

func (c *cloud) joined(ctx context.Context) (string, error) {
	if err := c.refused(remotePort); err != nil {
		return "", err
	}
	if err := c.setGroups(ctx, "nothing", "friends"); err != nil {
		return "", err
	}
	conn, err := c.connect(ctx, c.vms[1].v4, remotePort)
	if err != nil {
		return "", err
	}
	_ = conn.Close()
	return "refused before, let in after", nil
}

func (c *cloud) left(ctx context.Context) (string, error) {
	if err := c.setGroups(ctx, "nothing"); err != nil {
		return "", err
	}
	return "refused", until(ctx, patience, func(context.Context) error { return c.refused(remotePort) })
}

// clean looks for what the steps could not see: lost packets of the datapath, warnings of the agents, dead processes.
func (c *cloud) clean(ctx context.Context) (string, error) {
	for _, h := range c.hosts {
		out, err := h.sw.Appctl(ctx, "ovs-vswitchd", "dpctl/show")
		if err != nil {
			return "", err
		}
		if !strings.Contains(out, " lost:0\n") {
			return "", fmt.Errorf("%s lost packets: %s", h.name, out)
		}
		if err := h.alive(); err != nil {
			return "", err
		}
		if n := h.logCount(" ERROR "); n != 0 {
			return "", fmt.Errorf("the agent of %s logged %d errors", h.name, n)
		}
	}
	return "lost:0, no error logged", nil
}

// explain keeps what is needed to understand a failure.
func (c *cloud) explain(ctx context.Context) {
	for _, h := range c.hosts {
		if h.sw == nil {
			continue
		}
		for _, bridge := range []string{"br-int", "br-tun"} {
			out, _ := h.sw.Ofctl(ctx, "-O", "OpenFlow14", "dump-flows", bridge)
			_ = os.WriteFile(filepath.Join(outDir, h.name+"-"+bridge+".flows"), []byte(out), 0o600)
		}
		all, _ := h.connections(ctx)
		_ = os.WriteFile(filepath.Join(outDir, h.name+"-conntrack"), []byte(strings.Join(all, "\n")+"\n"), 0o600)
		show, _ := h.sw.Appctl(ctx, "ovs-vswitchd", "dpctl/show")
		_ = os.WriteFile(filepath.Join(outDir, h.name+"-datapath"), []byte(show), 0o600)
	}
}

// stop ends what runs and keeps the logs; the machine ends right after.
func (c *cloud) stop() {
	for _, h := range c.hosts {
		if h.agent != nil && h.alive() == nil {
			_ = h.stopAgent(syscall.SIGTERM)
		}
		text, err := os.ReadFile(filepath.Join(h.dir(), "ovs-vswitchd.log"))
		if err == nil {
			_ = os.WriteFile(filepath.Join(outDir, h.name+"-ovs-vswitchd.log"), text, 0o600)
		}
	}
}
