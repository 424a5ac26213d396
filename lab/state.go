// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// DefaultDir is where the lab lives unless [EnvDir] or Options.Dir says otherwise. A lab is a thing of the machine, not of
// a checkout: any checkout must be able to find and end it, also when the one that started it is gone. The path is short
// because unix socket paths are.
const DefaultDir = "/var/lib/patchbay-lab"

// EnvDir is the environment variable that names another directory. A lab elsewhere has names of its own and may run beside
// the default one.
const EnvDir = "PATCHBAY_LAB_DIR"

// ErrNotUp is returned by Open when there is no lab.
var ErrNotUp = errors.New("the lab is not up")

// state is what the lab knows about itself. Names are written here before the things they name are made, so that whatever
// exists after a crash can be found.
type state struct {
	// Ready is true from the end of a successful Up on.
	Ready   bool      `json:"ready"`
	Created time.Time `json:"created"`
	// Prefix is put before the name of every namespace; empty for the lab in DefaultDir.
	Prefix string `json:"prefix"`
	// Range is the /16 that management and underlay addresses are taken from, such as "10.251".
	Range string `json:"range"`
	// APIPort and DBPort are on the loopback address, BrokerPort on the management address.
	APIPort    int `json:"api_port"`
	DBPort     int `json:"db_port"`
	BrokerPort int `json:"broker_port"`
	// MadeNetnsDir is true when there was no /run/netns before the lab: then Down takes it away again.
	MadeNetnsDir bool `json:"made_netns_dir"`
	// Server is the kind of server; empty for the real one.
	Server ServerKind `json:"server,omitempty"`
	// Sources are where the parts come from.
	Sources Sources `json:"sources,omitzero"`
	// Queues is how queues are made.
	Queues queues `json:"queues,omitempty"`
	// Schema is true once the database schema is complete.
	Schema bool     `json:"schema"`
	Hosts  []string `json:"hosts"`
	// Namespaces are all that the lab has made or is about to make.
	Namespaces []string `json:"namespaces"`
	VMs        []VM     `json:"vms,omitempty"`
}

func (s *state) addNamespace(name string) {
	for _, n := range s.Namespaces {
		if n == name {
			return
		}
	}
	s.Namespaces = append(s.Namespaces, name)
}

func (s *state) removeNamespace(name string) {
	kept := s.Namespaces[:0]
	for _, n := range s.Namespaces {
		if n != name {
			kept = append(kept, n)
		}
	}
	s.Namespaces = kept
}

// resolveDir finds the directory: the option, the environment, the default.
func resolveDir(dir string) (string, error) {
	if dir == "" {
		dir = os.Getenv(EnvDir)
	}
	if dir == "" {
		dir = DefaultDir
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("resolving the lab's directory: %w", err)
	}
	// The deepest socket is that of a bridge with a name of 15 characters.
	if n := len(filepath.Join(dir, "hosts", "hv99", "ovs", "123456789012345.mgmt")); n > 107 {
		return "", fmt.Errorf("the lab's directory %s is too long: unix socket paths would have %d of at most 107 bytes", dir, n)
	}
	return dir, nil
}

// prefixFor derives the prefix of namespace names from the directory, so that two labs never share a name.
func prefixFor(dir string) string {
	if dir == DefaultDir {
		return ""
	}
	base := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return -1
	}, strings.ToLower(filepath.Base(dir)))
	return fmt.Sprintf("%.12s%04x-", base, hashOf(dir)&0xffff)
}

// linkFor names the lab's only link in the root namespace; at most 15 characters.
func linkFor(dir string) string { return fmt.Sprintf("pbl%08x", hashOf(dir)) }

func hashOf(s string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(s))
	return h.Sum32()
}

func statePath(dir string) string { return filepath.Join(dir, "state.json") }

func readState(dir string) (state, error) {
	var s state
	text, err := os.ReadFile(statePath(dir))
	if errors.Is(err, os.ErrNotExist) {
		return s, ErrNotUp
	}
	if err != nil {
		return s, fmt.Errorf("reading the lab's state: %w", err)
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return s, fmt.Errorf("reading %s: %w", statePath(dir), err)
	}
	return s, nil
}

func writeState(dir string, s state) error {
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the lab's state: %w", err)
	}
	tmp := statePath(dir) + ".new"
	if err := os.WriteFile(tmp, append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("writing the lab's state: %w", err)
	}
	if err := os.Rename(tmp, statePath(dir)); err != nil {
		return fmt.Errorf("writing the lab's state: %w", err)
	}
	return nil
}

// lockFile takes an exclusive lock on a file or directory and returns its release. It gives up at the deadline: whoever
// holds it says in the file what they do.
func lockFile(path string, flags int, wait time.Duration) (release func(), err error) {
	for deadline := time.Now().Add(wait); ; {
		f, err := os.OpenFile(path, flags, 0o644)
		if err != nil {
			return nil, fmt.Errorf("locking: %w", err)
		}
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			// Down removes the file under its lock; a lock on a removed file is worth nothing.
			held, heldErr := f.Stat()
			now, nowErr := os.Stat(path)
			if heldErr == nil && nowErr == nil && os.SameFile(held, now) {
				return func() { _ = f.Close() }, nil
			}
		}
		_ = f.Close()
		if err != nil && !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("locking %s: %w", path, err)
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("locking %s: another lab command has been at work for %v", path, wait)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// update changes the state file under its lock, which all processes that use the lab share.
func (l *Lab) update(change func(*state) error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	release, err := lockFile(filepath.Join(l.dir, "state.lock"), os.O_CREATE|os.O_RDWR, 30*time.Second)
	if err != nil {
		return err
	}
	defer release()
	s, err := readState(l.dir)
	if err != nil && !errors.Is(err, ErrNotUp) {
		return err
	}
	if err := change(&s); err != nil {
		return err
	}
	if err := writeState(l.dir, s); err != nil {
		return err
	}
	l.state = s
	return nil
}

// snapshot is the state as this process last read it.
func (l *Lab) snapshot() state {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state
}
