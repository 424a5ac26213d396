// SPDX-License-Identifier: Apache-2.0

// Package daemon starts long-lived processes that outlive their starter, and finds and stops them again.
//
// A daemon has a directory of its own which is also its HOME. Two things make it recognisable for ever, also after its
// starter was killed at any moment:
//
//   - a pid file, written by the new process itself before it becomes the daemon, with the pid, the kernel's start time and
//     the boot it belongs to. Nothing is signalled unless all three still match.
//   - HOME in its environment, which its descendants inherit, however often they detach themselves.
//
// The second is how helpers are found that nobody wrote a pid file for (privilege daemons, monitors, port mappers). The
// kernel session and the configuration files on the command line are looked at as well, because some programs overwrite
// their environment with a process title.
package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Path is the search path of every daemon: that of the system, whatever the caller's shell has put before it.
const Path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// pollInterval is how often the end of a process is looked for.
const pollInterval = 10 * time.Millisecond

// Spec says what a daemon is.
type Spec struct {
	// Name is the word used in messages and in the names of the pid and log files.
	Name string
	// Dir is the daemon's HOME and working directory; created when missing.
	Dir string
	// Netns names the network namespace to run in; empty means that of the caller.
	Netns string
	// Argv is the command.
	Argv []string
	// Env is added to the small fixed environment that every daemon gets. Nothing of the caller's environment is inherited.
	Env []string
}

// Daemon is one such process, running or not. It keeps nothing in memory: several values may refer to one daemon.
type Daemon struct{ name, dir string }

// Open returns the daemon of that name and directory without looking whether it runs.
func Open(name, dir string) *Daemon { return &Daemon{name: name, dir: dir} }

// Env is the environment of everything started for dir.
func Env(dir string, more ...string) []string {
	return append([]string{
		"HOME=" + dir, "TMPDIR=" + dir, "PATH=" + Path, "LANG=C.UTF-8",
		// Byte code would be written beside the installed modules, outside the directory.
		"PYTHONDONTWRITEBYTECODE=1",
	}, more...)
}

// recordAndExec is run by the new process: it writes its own pid file and becomes the daemon, keeping pid and start time.
// Written by the starter, there would be a moment in which the daemon lives and nobody knows.
const recordAndExec = `read -r stat </proc/$$/stat && read -r boot </proc/sys/kernel/random/boot_id &&
printf '%s %s\n' "$boot" "$stat" >"$1.new" && mv -f "$1.new" "$1" && shift && exec "$@"`

// Start starts the daemon and returns once its pid file is there. It must not be running.
func Start(ctx context.Context, s Spec) (*Daemon, error) {
	d := Open(s.Name, s.Dir)
	if pid := d.PID(); pid != 0 {
		return nil, fmt.Errorf("starting %s: it already runs as pid %d", s.Name, pid)
	}
	if err := os.MkdirAll(s.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("starting %s: %w", s.Name, err)
	}
	_ = os.Remove(d.pidFile())
	out, err := os.OpenFile(d.LogFile(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", s.Name, err)
	}
	defer func() { _ = out.Close() }()
	argv := s.Argv
	if s.Netns != "" {
		argv = append([]string{"ip", "netns", "exec", s.Netns}, argv...)
	}
	// Deliberately not CommandContext: the daemon outlives the context.
	cmd := exec.Command("/bin/sh", append([]string{"-c", recordAndExec, "sh", d.pidFile()}, argv...)...) //nolint:noctx // see above
	cmd.Dir, cmd.Env = s.Dir, Env(s.Dir, s.Env...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", s.Name, err)
	}
	pid := cmd.Process.Pid
	_ = cmd.Process.Release()
	for deadline := time.Now().Add(10 * time.Second); !exists(d.pidFile()); {
		if started(pid) == "" || ctx.Err() != nil || time.Now().After(deadline) {
			return nil, fmt.Errorf("starting %s: the process did not record itself\n%s", s.Name, d.LogTail(10))
		}
		time.Sleep(pollInterval)
	}
	return d, nil
}

// Dir is the daemon's directory.
func (d *Daemon) Dir() string { return d.dir }

// LogFile is where the daemon's output goes; it is appended to over restarts.
func (d *Daemon) LogFile() string { return filepath.Join(d.dir, d.name+".log") }

func (d *Daemon) pidFile() string { return filepath.Join(d.dir, d.name+".pid") }

// PID is the running process, or 0.
func (d *Daemon) PID() int {
	pid, start, boot := d.record()
	if pid == 0 || boot != bootID() {
		return 0
	}
	// Collects the process if it was our child and is dead; for any other pid it does nothing.
	var ws syscall.WaitStatus
	_, _ = syscall.Wait4(pid, &ws, syscall.WNOHANG, nil)
	if started(pid) != start {
		return 0
	}
	return pid
}

// Since is when the running process was started; zero when none runs.
func (d *Daemon) Since() time.Time { return Since(d.PID()) }

// Since is when a process was started; zero when there is none of that pid. Every pid file is made at the start, so its
// time would do as well, but not for processes that other packages started.
func Since(pid int) time.Time {
	ticks, err := strconv.ParseInt(started(pid), 10, 64)
	if err != nil {
		return time.Time{}
	}
	text, err := os.ReadFile("/proc/uptime")
	if err != nil {
		return time.Time{}
	}
	first, _, _ := strings.Cut(string(text), " ")
	up, err := strconv.ParseFloat(first, 64)
	if err != nil {
		return time.Time{}
	}
	// USER_HZ is 100 on every Linux that Go runs on.
	age := time.Duration(up*float64(time.Second)) - time.Duration(ticks)*(time.Second/100)
	return time.Now().Add(-age).Truncate(time.Second)
}

// record reads the pid file: the boot, then the line of /proc/PID/stat.
func (d *Daemon) record() (pid int, start, boot string) {
	text, err := os.ReadFile(d.pidFile())
	if err != nil {
		return 0, "", ""
	}
	return parseRecord(string(text))
}

func parseRecord(text string) (pid int, start, boot string) {
	boot, stat, ok := strings.Cut(strings.TrimSpace(text), " ")
	if !ok {
		return 0, "", ""
	}
	number, _, _ := strings.Cut(stat, " ")
	pid, err := strconv.Atoi(number)
	f := statFields([]byte(stat))
	if err != nil || pid <= 1 || f == nil {
		return 0, "", ""
	}
	return pid, f[statStart], boot
}

// Signal sends sig to the running process.
func (d *Daemon) Signal(sig syscall.Signal) error {
	pid := d.PID()
	if pid == 0 {
		return fmt.Errorf("signalling %s: it does not run", d.name)
	}
	if err := syscall.Kill(pid, sig); err != nil {
		return fmt.Errorf("signalling %s: %w", d.name, err)
	}
	return nil
}

// Stop asks the daemon to end, ends it by force when grace or ctx is over, and then ends what it left behind: the rest of
// its session and whatever has its directory as HOME. Stopping what does not run is no error.
func (d *Daemon) Stop(ctx context.Context, grace time.Duration) error {
	if pid := d.PID(); pid != 0 {
		if err := syscall.Kill(pid, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("stopping %s: %w", d.name, err)
		}
		for deadline := time.Now().Add(grace); d.PID() != 0 && ctx.Err() == nil && time.Now().Before(deadline); {
			time.Sleep(pollInterval)
		}
	}
	return d.Kill()
}

// Kill ends the daemon and all that belongs to it with SIGKILL.
func (d *Daemon) Kill() error {
	session, start, boot := d.record()
	if boot != bootID() {
		session = 0
	}
	err := killAll(d.name, func(p process) bool {
		return p.home == d.dir || strings.HasPrefix(p.home, d.dir+"/") || inSession(p, session, start)
	})
	if err == nil {
		_ = os.Remove(d.pidFile())
	}
	return err
}

// inSession tells whether p is in the session of the recorded leader. The kernel gives no pid away that still names a
// session, so members of a session whose leader is gone are ours unless a new leader has taken the pid.
func inSession(p process, leader int, start string) bool {
	if leader == 0 || p.session != leader {
		return false
	}
	now := started(leader)
	return now == "" || now == start
}

// LogTail is the end of what the daemon said, for error texts.
func (d *Daemon) LogTail(lines int) string { return Tail(d.LogFile(), lines) }

// Tail returns the last lines of a file, headed by its name.
func Tail(path string, lines int) string {
	text, err := os.ReadFile(path)
	if err != nil || len(bytes.TrimSpace(text)) == 0 {
		return path + " is empty"
	}
	all := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	all = all[max(0, len(all)-lines):]
	return "end of " + path + ":\n  " + strings.Join(all, "\n  ")
}

// Sweep ends, with SIGKILL, every process whose HOME is dir or lies in it, those that were started with a --config-file in
// it, and the Open vSwitch daemons whose pid file lies in it. It returns what it ended.
func Sweep(dir string) ([]string, error) {
	var ended []string
	err := killAll("what is left", func(p process) bool {
		ours := p.within(dir)
		if ours && !slices.Contains(ended, p.String()) {
			ended = append(ended, p.String())
		}
		return ours
	})
	return ended, err
}

// Within lists the processes that Sweep would end.
func Within(dir string) []string {
	var found []string
	for _, p := range processes() {
		if p.within(dir) {
			found = append(found, p.String())
		}
	}
	return found
}

// killAll ends all processes that match, again and again until none does: a process may fork while it is being killed.
func killAll(what string, match func(process) bool) error {
	var left []string
	for deadline := time.Now().Add(10 * time.Second); ; {
		left = left[:0]
		for _, p := range processes() {
			if !match(p) {
				continue
			}
			left = append(left, p.String())
			_ = syscall.Kill(p.pid, syscall.SIGKILL)
			var ws syscall.WaitStatus
			_, _ = syscall.Wait4(p.pid, &ws, syscall.WNOHANG, nil)
		}
		if len(left) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("ending %s: still there: %s", what, strings.Join(left, ", "))
		}
		time.Sleep(pollInterval)
	}
}

func exists(path string) bool { _, err := os.Stat(path); return err == nil }
