// SPDX-License-Identifier: Apache-2.0

package vswitch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// StartDB starts ovsdb-server unless it runs.
func (s *Switch) StartDB(ctx context.Context) error {
	if s.pid(dbDaemon) != 0 {
		return nil
	}
	if err := s.prepare(ctx); err != nil {
		return err
	}
	args := []string{
		s.path("conf.db"),
		"--remote=punix:" + s.DBSocket(),
		"--remote=db:Open_vSwitch,Open_vSwitch,manager_options",
	}
	for _, r := range s.cfg.Remotes {
		args = append(args, "--remote="+r)
	}
	ssl := s.cfg.SSL
	if ssl == (SSL{}) {
		ssl = SSL{
			PrivateKey:  "db:Open_vSwitch,SSL,private_key",
			Certificate: "db:Open_vSwitch,SSL,certificate",
			CACert:      "db:Open_vSwitch,SSL,ca_cert",
		}
	}
	args = append(args, "--private-key="+ssl.PrivateKey, "--certificate="+ssl.Certificate, "--ca-cert="+ssl.CACert)
	if err := s.startDaemon(ctx, dbDaemon, args...); err != nil {
		return err
	}
	// The row with next_cfg and cur_cfg must exist before ovs-vswitchd comes; doing it twice does nothing.
	if _, err := s.Vsctl(ctx, "--no-wait", "init"); err != nil {
		return fmt.Errorf("initialising the database: %w", err)
	}
	return nil
}

// StartVswitchd starts ovs-vswitchd unless it runs, and waits until it has applied the database.
func (s *Switch) StartVswitchd(ctx context.Context) error {
	if s.pid(switchDaemon) != 0 {
		return nil
	}
	if err := waitForCPUs(ctx); err != nil {
		return err
	}
	args := []string{"unix:" + s.DBSocket()}
	if s.cfg.DummyDatapath {
		args = append(args, "--enable-dummy=override", "--disable-system", "--disable-system-route")
	}
	return s.startDaemon(ctx, switchDaemon, args...)
}

// StopVswitchd asks ovs-vswitchd to end and waits until it is gone.
func (s *Switch) StopVswitchd(ctx context.Context) error {
	return s.stop(ctx, switchDaemon, syscall.SIGTERM)
}

// KillVswitchd ends ovs-vswitchd with SIGKILL and waits until it is gone.
func (s *Switch) KillVswitchd(ctx context.Context) error {
	return s.stop(ctx, switchDaemon, syscall.SIGKILL)
}

// StopDB asks ovsdb-server to end and waits until it is gone.
func (s *Switch) StopDB(ctx context.Context) error { return s.stop(ctx, dbDaemon, syscall.SIGTERM) }

// KillDB ends ovsdb-server with SIGKILL and waits until it is gone.
func (s *Switch) KillDB(ctx context.Context) error { return s.stop(ctx, dbDaemon, syscall.SIGKILL) }

// CompactDB makes ovsdb-server rewrite its file without the history.
func (s *Switch) CompactDB(ctx context.Context) error {
	_, err := s.Appctl(ctx, dbDaemon, "ovsdb-server/compact", "Open_vSwitch")
	return err
}

// Pids returns the process ids of the running daemons by name, "ovsdb-server" and "ovs-vswitchd".
func (s *Switch) Pids() map[string]int {
	pids := map[string]int{}
	for _, name := range []string{dbDaemon, switchDaemon} {
		if pid := s.pid(name); pid != 0 {
			pids[name] = pid
		}
	}
	return pids
}

// startDaemon runs a daemon with --detach: the command returns when the daemon serves, the daemon lives on.
func (s *Switch) startDaemon(ctx context.Context, name string, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	// A killed daemon leaves its control socket behind, one per pid.
	if stale, err := filepath.Glob(s.path(name + ".*.ctl")); err == nil {
		for _, f := range stale {
			_ = os.Remove(f)
		}
	}
	args = append(args,
		"--pidfile="+s.pidFile(name), "--log-file="+s.logFile(name),
		"-vconsole:off", "-vsyslog:off", "-vfile:info", "--no-chdir", "--detach")
	// A file and not a pipe: the daemon would keep the pipe open and us waiting.
	out, err := os.Create(s.path(name + ".out"))
	if err != nil {
		return fmt.Errorf("starting %s: %w", name, err)
	}
	defer func() { _ = out.Close() }()
	cmd := s.Command(ctx, name, args...)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		// Of a start that was given up, the child may still be there and would hold the pid file.
		stopErr := s.stop(context.WithoutCancel(ctx), name, syscall.SIGKILL)
		return errors.Join(fmt.Errorf("starting %s in %s: %w\n%s", name, s.cfg.Dir, err, s.logTail(name, 15)), stopErr)
	}
	return nil
}

func (s *Switch) stop(ctx context.Context, name string, sig syscall.Signal) error {
	deadline := time.Now().Add(stopTimeout)
	pid := s.pid(name)
	if pid == 0 {
		return nil
	}
	if err := syscall.Kill(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("stopping %s (pid %d): %w", name, pid, err)
	}
	for !ended(pid) {
		if time.Now().After(deadline) || ctx.Err() != nil {
			if sig != syscall.SIGKILL {
				return s.stop(context.WithoutCancel(ctx), name, syscall.SIGKILL)
			}
			return fmt.Errorf("stopping %s: pid %d is still there after %v", name, pid, stopTimeout)
		}
		time.Sleep(5 * time.Millisecond)
	}
	return nil
}

func (s *Switch) pidFile(name string) string { return s.path(name + ".pid") }
func (s *Switch) logFile(name string) string { return s.path(name + ".log") }

// pid returns the daemon's process id, 0 when it does not run.
func (s *Switch) pid(name string) int {
	text, err := os.ReadFile(s.pidFile(name))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || pid <= 1 || !s.isOurs(pid) {
		return 0
	}
	return pid
}

// isOurs says whether pid is a daemon of this directory. Pids are reused, and a stale pid file proves nothing. A process
// that ended but was not waited for has an empty command line and counts as gone.
func (s *Switch) isOurs(pid int) bool {
	cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return err == nil && bytes.Contains(cmdline, []byte("--pidfile="+s.cfg.Dir+"/"))
}

// ended says whether a process is gone, and with it what it held open: one that is being killed loses its command line
// first, and its lock on the pid file with its last thread.
func ended(pid int) bool {
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil || len(threads) == 0 {
		return true
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := bytes.Cut(stat, []byte(") "))
	return err != nil || len(threads) == 1 && bytes.HasPrefix(rest, []byte("Z"))
}

// logTail returns the last lines of what the daemon logged and printed.
func (s *Switch) logTail(name string, lines int) string {
	var b strings.Builder
	for _, file := range []string{s.path(name + ".out"), s.logFile(name)} {
		text, err := os.ReadFile(file)
		if err != nil || len(text) == 0 {
			continue
		}
		all := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
		all = all[max(0, len(all)-lines):]
		fmt.Fprintf(&b, "%s:\n  %s\n", file, strings.Join(all, "\n  "))
	}
	return b.String()
}

// waitForCPUs waits until the machine has been up for ten seconds: OVS 3.1.0 counts no CPU before, and then starts no
// handler threads for packets.
func waitForCPUs(ctx context.Context) error {
	for {
		text, err := os.ReadFile("/proc/uptime")
		if err != nil {
			return fmt.Errorf("reading the uptime: %w", err)
		}
		first, _, _ := strings.Cut(string(text), " ")
		up, err := strconv.ParseFloat(first, 64)
		if err != nil {
			return fmt.Errorf("reading the uptime: %w", err)
		}
		if up > 10.5 {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
	}
}
