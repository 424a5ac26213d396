// SPDX-License-Identifier: Apache-2.0

package release

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// EnvDir is the environment variable that names the directory of root directories and their archives.
const EnvDir = "PATCHBAY_LAB_RELEASES"

// Store is a directory with root directories and their archives. An archive takes a third of the room and is unpacked in seconds.
type Store struct {
	Dir string
	// Report, if set, is told what is about to be done.
	Report func(note string)
	// Plain leaves archives away, for a directory that does not live longer than a lab.
	Plain bool
}

// Entry is one suite in a store.
type Entry struct {
	Release
	// Packages are those that were asked for; with the suite they are the key.
	Packages []string `json:"packages"`
	// Made is when the suite was installed: forky and sid change from day to day.
	Made     time.Time         `json:"made"`
	Versions map[string]string `json:"versions"`
	// Bootstrap and Install are how long debootstrap and apt took.
	Bootstrap float64 `json:"bootstrap_seconds"`
	Install   float64 `json:"install_seconds"`

	// Archive is the size of the archive in bytes, 0 when there is none. Unpacked tells whether the root directory is there.
	Archive  int64 `json:"-"`
	Unpacked bool  `json:"-"`
	// Current tells whether it has the packages that the lab asks for now.
	Current bool `json:"-"`
	name    string
}

// Open returns the store in a directory; empty means the value of [EnvDir] or else the user's cache directory.
func Open(dir string) (*Store, error) {
	if dir == "" {
		dir = os.Getenv(EnvDir)
	}
	if dir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			cache = "/var/cache"
		}
		dir = filepath.Join(cache, "patchbay-lab", "releases")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("resolving the directory of releases: %w", err)
	}
	// The paths become options of an overlay.
	if strings.ContainsAny(dir, ",:\\\"") {
		return nil, fmt.Errorf("the directory of releases %s has a comma, a colon, a quotation mark or a backslash in its name", dir)
	}
	return &Store{Dir: dir}, nil
}

// key names a suite with its packages.
func key(suite string, packages []string) string {
	sum := sha256.Sum256([]byte(suite + "\n" + strings.Join(packages, "\n")))
	return suite + "-" + hex.EncodeToString(sum[:4])
}

func (s *Store) root(name string) string    { return filepath.Join(s.Dir, name) }
func (s *Store) archive(name string) string { return filepath.Join(s.Dir, name+".tar.zst") }
func (s *Store) record(name string) string  { return filepath.Join(s.Dir, name+".json") }

func (s *Store) say(format string, args ...any) {
	if s.Report != nil {
		s.Report(fmt.Sprintf(format, args...))
	}
}

// List returns what the store has, oldest release first.
func (s *Store) List() ([]Entry, error) {
	records, err := filepath.Glob(filepath.Join(s.Dir, "*.json"))
	if err != nil {
		return nil, fmt.Errorf("listing releases: %w", err)
	}
	var list []Entry
	for _, path := range records {
		e, err := s.entry(strings.TrimSuffix(filepath.Base(path), ".json"))
		if err != nil {
			return nil, err
		}
		list = append(list, e)
	}
	slices.SortFunc(list, func(a, b Entry) int {
		if a.Number != b.Number {
			return a.Number - b.Number
		}
		return strings.Compare(a.name, b.name)
	})
	return list, nil
}

func (s *Store) entry(name string) (Entry, error) {
	var e Entry
	text, err := os.ReadFile(s.record(name))
	if err != nil {
		return e, fmt.Errorf("reading a release: %w", err)
	}
	if err := json.Unmarshal(text, &e); err != nil {
		return e, fmt.Errorf("reading %s: %w", s.record(name), err)
	}
	e.name, e.Current = name, name == key(e.Suite, Packages())
	if info, err := os.Stat(s.archive(name)); err == nil {
		e.Archive = info.Size()
	}
	if info, err := os.Stat(s.root(name)); err == nil {
		e.Unpacked = info.IsDir()
	}
	return e, nil
}

// Root returns the root directory of a suite: the one that is there, else from its archive, else from Debian.
func (s *Store) Root(ctx context.Context, suite string) (string, error) {
	r, err := Find(suite)
	if err != nil {
		return "", err
	}
	release, err := s.lock(ctx, r.Suite)
	if err != nil {
		return "", err
	}
	defer release()
	name := key(r.Suite, Packages())
	e, err := s.entry(name)
	switch {
	case err == nil && e.Unpacked:
		return s.root(name), nil
	case err == nil && e.Archive > 0:
		return s.root(name), s.unpack(ctx, name)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return "", err
	}
	if _, err := s.make(ctx, r); err != nil {
		return "", err
	}
	return s.root(name), nil
}

// Make installs a suite anew, whatever is there, and keeps its archive.
func (s *Store) Make(ctx context.Context, suite string) (Entry, error) {
	r, err := Find(suite)
	if err != nil {
		return Entry{}, err
	}
	release, err := s.lock(ctx, r.Suite)
	if err != nil {
		return Entry{}, err
	}
	defer release()
	return s.make(ctx, r)
}

// Remove removes everything of a suite, also what was made with other packages, and tells how many there were. Of those that are
// kept as an archive the root directory alone goes if rootsOnly is true. A lab that runs from it must be down.
func (s *Store) Remove(ctx context.Context, suite string, rootsOnly bool) (int, error) {
	r, err := Find(suite)
	if err != nil {
		return 0, err
	}
	release, err := s.lock(ctx, r.Suite)
	if err != nil {
		return 0, err
	}
	defer release()
	list, err := s.List()
	if err != nil {
		return 0, err
	}
	n := 0
	for _, e := range list {
		if e.Suite != r.Suite || rootsOnly && e.Archive == 0 {
			continue
		}
		n++
		gone := []string{s.root(e.name)}
		if !rootsOnly {
			gone = append(gone, s.archive(e.name), s.record(e.name))
		}
		for _, path := range gone {
			if err := os.RemoveAll(path); err != nil {
				return n, fmt.Errorf("removing a release: %w", err)
			}
		}
	}
	return n, nil
}

// lock makes the directory and keeps others from changing a suite. Root runs what is in it, so nobody else may write there.
func (s *Store) lock(ctx context.Context, suite string) (release func(), err error) {
	if err := os.MkdirAll(s.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("making the directory of releases: %w", err)
	}
	info, err := os.Stat(s.Dir)
	if err != nil {
		return nil, fmt.Errorf("looking at the directory of releases: %w", err)
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || int(st.Uid) != os.Geteuid() || info.Mode().Perm()&0o022 != 0 {
		return nil, fmt.Errorf("%s is not a directory that only its user may write to", s.Dir)
	}
	f, err := os.OpenFile(filepath.Join(s.Dir, suite+".lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("locking a release: %w", err)
	}
	for told := false; ; {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			_ = f.Close()
			return nil, fmt.Errorf("locking %s: %w", f.Name(), err)
		}
		if !told {
			s.say("waiting: another command makes %s", suite)
			told = true
		}
		select {
		case <-ctx.Done():
			_ = f.Close()
			return nil, fmt.Errorf("locking %s: %w", f.Name(), ctx.Err())
		case <-time.After(200 * time.Millisecond):
		}
	}
}
