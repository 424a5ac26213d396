// SPDX-License-Identifier: Apache-2.0

package ovsdb

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestBoundedReader: what is too long is an error before it is in memory.
func TestBoundedReader(t *testing.T) {
	r := &boundedReader{r: bytes.NewReader(make([]byte, 10)), left: 6}
	buf := make([]byte, 4)
	for i, want := range []int{4, 4, 0} { // what was asked for is read whole
		n, err := r.Read(buf)
		if n != want || (err != nil) != (want == 0) {
			t.Errorf("read %d: %d, %v", i, n, err)
		}
	}
	if _, err := (&boundedReader{r: strings.NewReader("x")}).Read(buf); err == nil || !strings.Contains(err.Error(), "message longer than 268435456 bytes") {
		t.Errorf("%v", err)
	}
}

// TestCallsOfASessionThatEnded: they fail at once with its reason, and so does one whose request cannot be sent.
func TestCallsOfASessionThatEnded(t *testing.T) {
	none := func(json.RawMessage) error { return nil }
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		s := newSession(ours, nil)
		if err := s.call(t.Context(), "x", func() {}, none); err == nil || !strings.Contains(err.Error(), "encoding a message") || len(s.pending) != 0 {
			t.Errorf("a request that is no JSON: %v, %d pending", err, len(s.pending))
		}
		// Nobody reads. The caller's time counts, if it is less than that of a write.
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		if err := s.call(ctx, "x", nil, none); !errors.Is(err, ErrDisconnected) || time.Since(began) != time.Second || len(s.pending) != 0 {
			t.Errorf("nobody reads: %v after %s, %d pending", err, time.Since(began), len(s.pending))
		}
		err := s.call(t.Context(), "x", nil, none)
		if !errors.Is(err, ErrDisconnected) || !strings.Contains(err.Error(), "writing to the database") {
			t.Errorf("after the end: %v", err)
		}
		if _, err := theirs.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("the connection is open: %v", err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		defer theirs.Close()
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := newSession(ours, nil).call(ctx, "x", nil, none); !errors.Is(err, ErrDisconnected) || time.Since(began) != writeTimeout {
			t.Errorf("nobody reads: %v after %s", err, time.Since(began))
		}
	})
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		go func() { _, _ = io.Copy(io.Discard, theirs) }()
		ctx, cancel := context.WithCancel(t.Context())
		go func() { time.Sleep(time.Second); cancel() }()
		s := newSession(ours, nil)
		if err := s.call(ctx, "x", nil, none); !errors.Is(err, context.Canceled) || len(s.pending) != 0 {
			t.Errorf("given up: %v, %d pending", err, len(s.pending))
		}
		s.close(io.EOF)
	})
}
