// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// BundleDir is the directory in a support bundle that has all files.
const BundleDir = "patchbay/"

// Bundle is the files of a support bundle, by name without [BundleDir].
type Bundle map[string][]byte

// ErrNoBundle is returned for what is no compressed archive.
var ErrNoBundle = errors.New("it is no support bundle")

// ReadBundle returns the files of a support bundle that have one of the names, or all files.
func ReadBundle(path string, names ...string) (Bundle, error) {
	f, err := os.Open(path) //nolint:gosec // the caller's file
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	z, err := gzip.NewReader(bufio.NewReader(f))
	if err != nil {
		return nil, ErrNoBundle
	}
	files := Bundle{}
	r := tar.NewReader(z)
	for first := true; ; first = false {
		h, err := r.Next()
		switch {
		case err != nil && first:
			return nil, ErrNoBundle
		case errors.Is(err, io.EOF):
			return files, nil
		case err != nil:
			return nil, fmt.Errorf("reading the bundle: %w", err)
		}
		name := strings.TrimPrefix(h.Name, BundleDir)
		if len(names) > 0 && !slices.Contains(names, name) {
			continue
		}
		if files[name], err = io.ReadAll(r); err != nil {
			return nil, fmt.Errorf("reading %s of the bundle: %w", name, err)
		}
	}
}

// Texts returns the files as text, those whose names end in ".gz" decompressed.
func (b Bundle) Texts() (map[string]string, error) {
	texts := make(map[string]string, len(b))
	for name, data := range b {
		if strings.HasSuffix(name, ".gz") {
			z, err := gzip.NewReader(bytes.NewReader(data))
			if err != nil {
				return nil, fmt.Errorf("reading %s of the bundle: %w", name, err)
			}
			if data, err = io.ReadAll(z); err != nil {
				return nil, fmt.Errorf("reading %s of the bundle: %w", name, err)
			}
		}
		texts[name] = string(data)
	}
	return texts, nil
}
