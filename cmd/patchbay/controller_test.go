// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/options"
)

// Whoever calls the controller's address is hung up on, nobody else can take it, and it is free again afterwards.
func TestHoldController(t *testing.T) {
	free, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := free.Addr().String()
	var o options.Options
	o.OVS.OFListenAddress, o.OVS.OFListenPort = "127.0.0.1", free.Addr().(*net.TCPAddr).Port
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))

	holdController(t.Context(), &o, logger)()
	if !strings.Contains(log.String(), "cannot be held") {
		t.Errorf("somebody else has it, and the log says %q", log.String())
	}
	_ = free.Close()
	ctx, cancel := context.WithCancel(t.Context())
	wait := holdController(ctx, &o, logger)
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(5 * time.Second))
	if n, err := conn.Read(make([]byte, 8)); n != 0 || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("not hung up on: %d bytes, %v", n, err)
	}
	_ = conn.Close()
	if l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", addr); err == nil {
		_ = l.Close()
		t.Error("somebody else could take the address")
	}
	cancel()
	wait()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatalf("still held: %v", err)
	}
	_ = l.Close()
}
