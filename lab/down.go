// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/patchbay-sdn/patchbay/lab/daemon"
)

// Down ends the lab and removes everything it made, whatever state it is in; without a lab it does nothing. It also works
// when the lab's directory was removed under it.
func Down(ctx context.Context, o Options) error {
	dir, err := resolveDir(o.Dir)
	if err != nil {
		return err
	}
	l := newLab(dir)
	if _, err := os.Lstat(dir); err == nil {
		// Before the lock file makes any directory look like a lab's.
		if err := l.checkDir(); err != nil {
			return err
		}
		release, err := lockFile(l.path("lock"), os.O_CREATE|os.O_RDWR, lockTimeout)
		if err != nil {
			return err
		}
		defer release()
	}
	s, err := readState(dir)
	if err != nil && !errors.Is(err, ErrNotUp) {
		// A state file that cannot be read must not keep the lab alive: marks and processes are found without it.
		s = state{}
	}
	if s.Created.IsZero() {
		s.Prefix = prefixFor(dir)
	}
	l.state = s
	return runSteps(ctx, []step{
		{name: "processes", run: l.endProcesses},
		{name: "network", after: []string{"processes"}, run: l.removeNetwork},
		{name: "files", after: []string{"network"}, run: func(context.Context) (string, error) {
			if err := restorePolicy(); err != nil {
				return "", err
			}
			if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
				return "none", nil
			}
			if err := os.RemoveAll(dir); err != nil {
				return "", fmt.Errorf("removing the lab's directory: %w", err)
			}
			return "removed " + dir, nil
		}},
	}, o.Report)
}

// endProcesses ends by force: all they could save is about to be removed.
func (l *Lab) endProcesses(context.Context) (string, error) {
	ended := 0
	for _, d := range l.daemons() {
		if d.PID() != 0 {
			ended++
		}
		if err := d.Kill(); err != nil {
			return "", err
		}
	}
	swept, err := daemon.Sweep(l.dir)
	if err != nil {
		return "", err
	}
	if ended+len(swept) == 0 {
		return "none", nil
	}
	return fmt.Sprintf("ended %d", ended+len(swept)), nil
}

// daemons are those with pid files of this package.
func (l *Lab) daemons() []*daemon.Daemon {
	all := []*daemon.Daemon{l.database()}
	for _, p := range l.serverProcesses() {
		all = append(all, p.Daemon)
	}
	for _, h := range l.Hosts() {
		all = append(all, h.agent(Python), h.agent(Patchbay))
	}
	return all
}

// removeNetwork removes the namespaces in the state file and those that carry the lab's mark, and the link in the root
// namespace.
func (l *Lab) removeNetwork(ctx context.Context) (string, error) {
	names := slices.Clone(l.state.Namespaces)
	entries, err := os.ReadDir(netnsDir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("looking for namespaces: %w", err)
	}
	for _, e := range entries {
		if !slices.Contains(names, e.Name()) && strings.HasPrefix(e.Name(), l.state.Prefix) && l.tagged(ctx, e.Name()) {
			names = append(names, e.Name())
		}
	}
	var foreign []string
	removed := 0
	for _, name := range names {
		live, _ := isNetns(name)
		if live {
			removed++
			// Somebody's shell or packet capture. It is not ours to end; the namespace goes when it does.
			if pids, err := run(ctx, "", "ip", "netns", "pids", name); err == nil && strings.TrimSpace(pids) != "" {
				foreign = append(foreign, fmt.Sprintf("%s: %s", name, strings.Join(strings.Fields(pids), " ")))
			}
		}
		if err := l.deleteNetns(ctx, name); err != nil {
			return "", err
		}
	}
	have, err := links(ctx, "")
	if err != nil {
		return "", err
	}
	if slices.Contains(have, l.link) {
		// It may be on its way out already, with the namespace of its other end.
		if _, err := run(ctx, "", "ip", "link", "del", "dev", l.link); err != nil && !gone(err) {
			return "", err
		}
	}
	if l.state.MadeNetnsDir {
		removeNetnsDir()
	}
	note := fmt.Sprintf("removed %d namespaces", removed)
	if removed == 0 {
		note = "none"
	}
	if len(foreign) > 0 {
		note += "; processes that the lab did not start hold on to them: " + strings.Join(foreign, ", ")
	}
	return note, nil
}

// removeNetnsDir removes the directory that "ip netns add" made and mounted on itself, unless somebody else has namespaces
// there by now.
func removeNetnsDir() {
	if entries, err := os.ReadDir(netnsDir); err != nil || len(entries) > 0 {
		return
	}
	for range 4 { // "ip netns add" may have mounted it more than once when two ran at once
		if syscall.Unmount(netnsDir, 0) != nil {
			break
		}
	}
	_ = os.Remove(netnsDir)
}

// gone says whether ip(8) failed because the device is not there: it went with the namespace of its other end, before or while it was deleted.
func gone(err error) bool {
	return strings.Contains(err.Error(), "Cannot find device") || strings.Contains(err.Error(), "No such device")
}
