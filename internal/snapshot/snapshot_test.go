// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"
)

type value struct {
	Name  string
	Ports map[string]int
}

var (
	sample  = value{"hv1", map[string]int{"a": 1, "b": 2}}
	written = time.Date(2026, 11, 15, 3, 0, 0, 0, time.UTC)
)

func save(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "snapshot")
	if err := Save(path, 3, sample, written); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestSaveAndLoad(t *testing.T) {
	path := save(t)
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v", info.Mode())
	}
	var got value
	at, err := Load(path, 3, &got)
	if err != nil || !at.Equal(written) || got.Name != sample.Name || got.Ports["b"] != 2 {
		t.Errorf("got %+v at %v, %v", got, at, err)
	}
	files, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(files) != 1 {
		t.Errorf("left behind: %v, %v", files, err)
	}
}

// Every cut and every changed byte is noticed, and the file set aside.
func TestDamage(t *testing.T) {
	path := save(t)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	try := func(what string, at int, data []byte) {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		var got value
		if _, err := Load(path, 3, &got); err == nil {
			// Only the time is told by the header alone.
			if i := bytes.Index(whole, []byte(`"written":`)); at < i || at > i+len(`"written":"2026-11-15T03:00:00Z",`) {
				t.Errorf("%s at %d goes unnoticed", what, at)
			}
			return
		}
		if kept, err := os.ReadFile(path + ".bad"); err != nil || !bytes.Equal(kept, data) {
			t.Errorf("%s at %d: not set aside: %v", what, at, err)
		}
	}
	for i := range whole {
		try("cut", i, whole[:i])
		changed := bytes.Clone(whole)
		changed[i] ^= 1
		try("changed byte", i, changed)
	}
}

func TestOtherVersion(t *testing.T) {
	path := save(t)
	var got value
	if _, err := Load(path, 4, &got); !errors.Is(err, ErrVersion) {
		t.Errorf("got %v", err)
	}
	if _, err := Load(path, 3, &got); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file was not set aside: %v", err)
	}
}

// A disk that is full, or a directory that is not there, leaves the old file alone.
func TestSaveFails(t *testing.T) {
	path := save(t)
	nowhere := filepath.Join(filepath.Dir(path), "gone", "x")
	first, second := Save(nowhere, 3, sample, written), Save(nowhere, 3, sample, written)
	if first == nil || second == nil || first.Error() != second.Error() {
		t.Errorf("saved into nowhere: %v, then %v", first, second)
	}
	if err := Save(path, 3, make(chan int), written); err == nil {
		t.Error("saved what cannot be encoded")
	}
	var got value
	if _, err := Load(path, 3, &got); err != nil {
		t.Error(err)
	}
}

func FuzzRead(f *testing.F) {
	path := filepath.Join(f.TempDir(), "snapshot")
	if err := Save(path, 3, sample, written); err != nil {
		f.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Fuzz(func(t *testing.T, data []byte) {
		var got value
		if _, err := read(bytes.NewReader(data), 3, &got); err == nil && !bytes.HasPrefix(data, []byte(magic)) {
			t.Error("trusted")
		}
	})
}

// What a Save that was killed left goes; everything else in the directory stays.
func TestRemoveUnfinished(t *testing.T) {
	path := save(t)
	dir := filepath.Dir(path)
	// Made in the way of Save itself, so that the test knows the names that it really uses.
	f, err := os.CreateTemp(dir, filepath.Base(path)+unfinished+"*")
	if err != nil {
		t.Fatal(err)
	}
	_ = f.Close()
	stay := []string{"snapshot", "snapshot.bad", "snapshot.new-", "snapshot.new-12x", "snapshot.new-1.conf", "other.new-12", "snapshot.new-77", "snapshot.new-88"}
	for _, name := range stay[1:6] {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("mine"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Mkdir(filepath.Join(dir, stay[6]), 0o700), os.Symlink("snapshot", filepath.Join(dir, stay[7]))); err != nil {
		t.Fatal(err)
	}
	if n, err := RemoveUnfinished(path); n != 1 || err != nil {
		t.Errorf("%d removed, %v", n, err)
	}
	if _, err := os.Lstat(f.Name()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is still there: %v", f.Name(), err)
	}
	for _, name := range stay {
		if _, err := os.Lstat(filepath.Join(dir, name)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := RemoveUnfinished(filepath.Join(dir, "none", "snapshot")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a directory: %v", err)
	}
}
