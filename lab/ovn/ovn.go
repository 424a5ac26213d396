// SPDX-License-Identifier: Apache-2.0

// Package ovn runs a private OVN of one host: the northbound and the southbound database, ovn-northd, and ovn-controller on
// a switch of package vswitch. It is there to be measured beside the agents (make bench-peers); no lab starts it.
//
//	sw := vswitch.New(t)
//	n, err := ovn.Start(ctx, ovn.Config{Dir: dir, Switch: sw, Name: "hv1"})
//	err = n.AddGroup(ctx, "default", ports)
//	err = lab.PlugInto(ctx, sw, ports)   // and n.Watch tells when they are up
//
// Every daemon has a directory below Dir, with its database, socket and log, and is stopped by its own pid file. The
// services of the packages are never started.
package ovn

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/patchbay-sdn/patchbay/lab/daemon"
	"github.com/patchbay-sdn/patchbay/lab/vswitch"
)

const (
	startTimeout = 30 * time.Second
	toolTimeout  = 60 * time.Second
	stopGrace    = 5 * time.Second
)

// Names of the daemons and of their directories.
const (
	northbound = "nb"
	southbound = "sb"
	northd     = "northd"
	controller = "controller"
)

// Packages are the Debian packages needed beside those of the lab.
func Packages() []string { return []string{"ovn-central", "ovn-host"} }

// Config says where an OVN lives.
type Config struct {
	// Dir holds everything that it writes. Its path must be short, because of the sockets in it.
	Dir string
	// Switch is the running switch that ovn-controller works for.
	Switch *vswitch.Switch
	// Name is that of the host.
	Name string
}

// Node is a running OVN of one host.
type Node struct{ cfg Config }

// Start starts everything and returns when ovn-controller has registered its host. What it started is stopped again when
// it fails.
func Start(ctx context.Context, cfg Config) (*Node, error) {
	n := &Node{cfg: cfg}
	if err := n.start(ctx); err != nil {
		logs := ""
		for _, name := range []string{northbound, southbound, northd, controller} {
			logs += "\n" + n.daemon(name).LogTail(10)
		}
		return nil, errors.Join(fmt.Errorf("starting OVN in %s: %w%s", cfg.Dir, err, logs), n.Stop(context.WithoutCancel(ctx)))
	}
	return n, nil
}

func (n *Node) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for _, name := range []string{northbound, southbound} {
		if err := n.startDB(ctx, name); err != nil {
			return err
		}
	}
	if _, err := n.Nbctl(ctx, "init"); err != nil {
		return err
	}
	if _, err := n.tool(ctx, "ovn-sbctl", "--db="+n.remote(southbound), "init"); err != nil {
		return err
	}
	if err := n.launch(ctx, northd, "ovn-northd", "--ovnnb-db="+n.remote(northbound), "--ovnsb-db="+n.remote(southbound)); err != nil {
		return err
	}
	if _, err := n.cfg.Switch.Vsctl(ctx, "set", "Open_vSwitch", ".",
		"external_ids:system-id="+n.cfg.Name, "external_ids:hostname="+n.cfg.Name, "external_ids:ovn-remote="+n.remote(southbound),
		"external_ids:ovn-encap-type=geneve", "external_ids:ovn-encap-ip=127.0.0.1", "external_ids:ovn-bridge-datapath-type=netdev",
	); err != nil {
		return err
	}
	if err := n.launch(ctx, controller, "ovn-controller", "unix:"+n.cfg.Switch.DBSocket()); err != nil {
		return err
	}
	return wait(ctx, "the host's registration", func() bool {
		out, err := n.tool(ctx, "ovn-sbctl", "--db="+n.remote(southbound), "--bare", "--columns=name", "find", "Chassis", "name="+n.cfg.Name)
		return err == nil && strings.TrimSpace(out) == n.cfg.Name
	})
}

func (n *Node) startDB(ctx context.Context, name string) error {
	if err := os.MkdirAll(n.dir(name), 0o755); err != nil {
		return fmt.Errorf("making the directory of a database: %w", err)
	}
	file := filepath.Join(n.dir(name), "ovn.db")
	if _, err := n.tool(ctx, "ovsdb-tool", "create", file, "/usr/share/ovn/ovn-"+name+".ovsschema"); err != nil {
		return err
	}
	if err := n.launch(ctx, name, "ovsdb-server", file, "--remote=p"+n.remote(name), "--unixctl="+filepath.Join(n.dir(name), "ctl")); err != nil {
		return err
	}
	return wait(ctx, "the database "+name, func() bool {
		_, err := os.Stat(strings.TrimPrefix(n.remote(name), "unix:"))
		return err == nil
	})
}

// launch starts a daemon in the switch's namespace, in the foreground of a session of its own.
func (n *Node) launch(ctx context.Context, name string, argv ...string) error {
	argv = append(argv, "-vconsole:info", "-vsyslog:off", "-vfile:off")
	_, err := daemon.Start(ctx, daemon.Spec{
		Name: name, Dir: n.dir(name), Netns: n.cfg.Switch.Netns(), Argv: argv,
		Env: []string{"OVN_RUNDIR=" + n.dir(name), "OVS_RUNDIR=" + n.cfg.Switch.Dir()},
	})
	return err
}

// Stop ends all daemons. The switch is the caller's.
func (n *Node) Stop(ctx context.Context) error {
	var errs []error
	for _, name := range []string{controller, northd, southbound, northbound} {
		errs = append(errs, n.daemon(name).Stop(ctx, stopGrace))
	}
	return errors.Join(errs...)
}

// Controller is the process of ovn-controller, 0 when it does not run.
func (n *Node) Controller() int { return n.daemon(controller).PID() }

func (n *Node) dir(name string) string            { return filepath.Join(n.cfg.Dir, name) }
func (n *Node) daemon(name string) *daemon.Daemon { return daemon.Open(name, n.dir(name)) }
func (n *Node) remote(name string) string         { return "unix:" + filepath.Join(n.dir(name), "sock") }

// Nbctl runs ovn-nbctl and returns what it printed.
func (n *Node) Nbctl(ctx context.Context, args ...string) (string, error) {
	return n.tool(ctx, "ovn-nbctl", append([]string{"--timeout=50", "--db=" + n.remote(northbound)}, args...)...)
}

func (n *Node) tool(ctx context.Context, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, toolTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.WaitDelay = time.Second
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("running %s: %w: %s", name, err, strings.TrimSpace(errOut.String()))
	}
	return out.String(), nil
}

func wait(ctx context.Context, what string, done func() bool) error {
	for !done() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w", what, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}
