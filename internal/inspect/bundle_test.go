// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// compressed is text as gzip writes it.
func compressed(t *testing.T, text []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	if _, err := z.Write(text); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestReadBundle(t *testing.T) {
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for name, data := range map[string][]byte{"log.txt": []byte("a line\n"), "tape.gz": compressed(t, []byte("a step\n"))} {
		if err := w.WriteHeader(&tar.Header{Name: BundleDir + name, Size: int64(len(data)), Mode: 0o600}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(data); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "bundle.tar.gz")
	write := func(data []byte) {
		t.Helper()
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	whole := compressed(t, archive.Bytes())
	write(whole)
	files, err := ReadBundle(path)
	if err != nil || len(files) != 2 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	if texts, err := files.Texts(); err != nil || texts["log.txt"] != "a line\n" || texts["tape.gz"] != "a step\n" {
		t.Errorf("%q, %v", texts, err)
	}
	if files, err := ReadBundle(path, "tape.gz", "none"); err != nil || len(files) != 1 || files["tape.gz"] == nil {
		t.Errorf("%d files, %v", len(files), err)
	}
	write(whole[:len(whole)/2])
	if _, err := ReadBundle(path); err == nil {
		t.Error("half a bundle is one")
	}
	for _, other := range [][]byte{nil, []byte("text"), compressed(t, []byte("text"))} {
		write(other)
		if _, err := ReadBundle(path); !errors.Is(err, ErrNoBundle) {
			t.Errorf("%q: %v", other, err)
		}
	}
	if _, err := ReadBundle(path + ".none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a file: %v", err)
	}
	if _, err := (Bundle{"tape.gz": []byte("plain")}).Texts(); err == nil {
		t.Error("a file that is not compressed is decompressed")
	}
}
