// SPDX-License-Identifier: Apache-2.0

// Package snapshot keeps one value in a file that survives crashes: it is there whole or not at all, and one that was
// cut short, changed or written by another version is never taken for good.
//
// The agent writes down with it what the server said last, so that the switch can be rebuilt while nobody answers.
//
// In: a path, a version, a value that encoding/json can write. Out: the same value later, or an error that says why not;
// [Load] moves a bad file aside, for whoever wants to know what became of it.
package snapshot

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// MaxSize bounds a file, in both directions: what is larger is a mistake, and must fill neither the disk nor the memory.
const MaxSize = 256 << 20

// magic begins every file. The number is that of the layout below it, not of what is inside.
const magic = "patchbay snapshot 1\n"

// header is one line of JSON between magic and body. It is covered by nothing: each field is checked against the body.
type header struct {
	Version int       `json:"version"` // of the value
	Written time.Time `json:"written"`
	Length  int64     `json:"length"`
	SHA256  string    `json:"sha256"`
}

// Why a file is not trusted.
var (
	ErrDamaged = errors.New("is damaged")
	ErrVersion = errors.New("was written by another version")
	ErrTooBig  = errors.New("is too big")
)

// Save writes a value. A crash at any point leaves the old file or the new one.
func Save(path string, version int, value any, now time.Time) (err error) {
	body, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("encoding the snapshot: %w", err)
	}
	if len(body) > MaxSize {
		return fmt.Errorf("snapshot of %d bytes: %w", len(body), ErrTooBig)
	}
	sum := sha256.Sum256(body)
	head, err := json.Marshal(header{version, now.UTC(), int64(len(body)), hex.EncodeToString(sum[:])})
	if err != nil {
		return fmt.Errorf("encoding the snapshot: %w", err)
	}
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, filepath.Base(path)+unfinished+"*") // made with mode 0600
	if err != nil {
		return fmt.Errorf("writing snapshot %s: %w", path, reason(err))
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("writing snapshot %s: %w", path, reason(err))
			_ = os.Remove(f.Name()) // what is wrong with the disk is said already
		}
	}()
	for _, part := range [][]byte{[]byte(magic), head, {'\n'}, body} {
		if _, err := f.Write(part); err != nil {
			return errors.Join(err, f.Close())
		}
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return syncDir(dir)
}

// unfinished stands between the name of a snapshot and a number in the names of files that are being written.
const unfinished = ".new-"

// RemoveUnfinished removes what a Save that was killed has left beside the snapshot, and returns how many files that were. Nobody else may
// be saving. Whatever is not a plain file with such a name stays.
func RemoveUnfinished(path string) (n int, err error) {
	dir, prefix := filepath.Dir(path), filepath.Base(path)+unfinished
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0, fmt.Errorf("looking for unfinished snapshots: %w", err)
	}
	var errs []error
	for _, e := range entries {
		number, ok := strings.CutPrefix(e.Name(), prefix)
		if !ok || number == "" || strings.Trim(number, "0123456789") != "" || !e.Type().IsRegular() {
			continue
		}
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
			errs = append(errs, err)
			continue
		}
		n++
	}
	return n, errors.Join(errs...)
}

// reason leaves out the file that an error is about: its name is made up and new each time, and the same failure has to
// read the same.
func reason(err error) error {
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		return pathErr.Err
	}
	return err
}

// syncDir makes a rename last.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Load reads what Save wrote into value, and returns when that was. Without a file the error is [fs.ErrNotExist]. A file
// that cannot be trusted is renamed to end in ".bad", so that the next Save does not destroy what went wrong.
func Load(path string, version int, value any) (time.Time, error) {
	written, err := Peek(path, version, value)
	if err == nil {
		return written, nil
	}
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		return time.Time{}, err // the disk's fault; the file may be fine
	}
	return time.Time{}, errors.Join(err, os.Rename(path, path+".bad"))
}

// Peek is Load for those who must not touch anything: a bad file stays where it is.
func Peek(path string, version int, value any) (time.Time, error) {
	f, err := os.Open(path)
	if err != nil {
		return time.Time{}, fmt.Errorf("reading the snapshot: %w", err)
	}
	written, err := read(f, version, value)
	if err = errors.Join(err, f.Close()); err != nil {
		return time.Time{}, fmt.Errorf("snapshot %s %w", path, err)
	}
	return written, nil
}

func read(r io.Reader, version int, value any) (time.Time, error) {
	data, err := io.ReadAll(io.LimitReader(r, MaxSize+4096))
	if err != nil {
		return time.Time{}, err
	}
	rest, ok := bytes.CutPrefix(data, []byte(magic))
	line, body, found := bytes.Cut(rest, []byte{'\n'})
	var h header
	if !ok || !found || json.Unmarshal(line, &h) != nil || h.Length != int64(len(body)) {
		return time.Time{}, ErrDamaged
	}
	if sum := sha256.Sum256(body); hex.EncodeToString(sum[:]) != h.SHA256 {
		return time.Time{}, ErrDamaged
	}
	if h.Version != version {
		return time.Time{}, fmt.Errorf("%w: %d, this one writes %d", ErrVersion, h.Version, version)
	}
	if err := json.Unmarshal(body, value); err != nil {
		return time.Time{}, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return h.Written, nil
}
