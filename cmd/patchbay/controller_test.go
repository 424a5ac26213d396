// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
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

	holdController(t.Context(), &o, nil, logger)()
	if !strings.Contains(log.String(), "of_listen_address not opened") {
		t.Errorf("somebody else has it, and the log says %q", log.String())
	}
	_ = free.Close()
	ctx, cancel := context.WithCancel(t.Context())
	wait := holdController(ctx, &o, nil, logger)
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

// agentInstead has the test binary be patchbay.
const agentInstead = "PATCHBAY_TEST_IS_PATCHBAY"

func TestMain(m *testing.M) {
	if os.Getenv(agentInstead) != "" {
		main()
		return
	}
	if os.Getenv(visibleInstead) != "" {
		openToChecks(beVisible)
	}
	os.Exit(m.Run())
}

// The service manager has the address also while no agent runs: nobody else can take it, before, between and after agents, and each
// agent hangs up on callers, also on those who called while there was none.
func TestControllerOfTheServiceManager(t *testing.T) {
	manager, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = manager.Close() }()
	addr := manager.Addr().(*net.TCPAddr)
	fd, err := manager.File()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = fd.Close() }()
	dir := t.TempDir()
	conf := filepath.Join(dir, "agent.conf")
	text := fmt.Sprintf("[DEFAULT]\nhost = hv1\nstate_path = %s\ntransport_url = rabbit://u:p@127.0.0.1:1/\n[ovs]\nof_listen_port = %d\novsdb_connection = unix:%s/none\n", dir, addr.Port, dir)
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(dir, "log")
	dial := func() net.Conn {
		t.Helper()
		conn, err := net.DialTimeout("tcp", addr.String(), 5*time.Second)
		if err != nil {
			t.Fatalf("nobody has the address: %v", err)
		}
		return conn
	}
	hungUp := func(conn net.Conn) {
		t.Helper()
		_ = conn.SetReadDeadline(time.Now().Add(20 * time.Second))
		if n, err := conn.Read(make([]byte, 8)); n != 0 || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("not hung up on: %d bytes, %v", n, err)
		}
		_ = conn.Close()
	}
	taken := func() {
		t.Helper()
		if l, err := net.Listen("tcp", addr.String()); err == nil {
			_ = l.Close()
			t.Error("somebody else could take the address")
		}
	}
	for range 2 {
		early := dial() // by a bridge, while no agent runs
		// The id of the process is known to itself only; systemd writes it between fork and exec.
		cmd := exec.Command("/bin/sh", "-c", `LISTEN_PID=$$ LISTEN_FDS=1 exec "$0" "$@"`, os.Args[0], "agent", "--config-file", conf, "--log-file", log)
		cmd.Env = append(os.Environ(), agentInstead+"=1")
		cmd.ExtraFiles = []*os.File{fd}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		hungUp(early)
		hungUp(dial())
		taken()
		_ = cmd.Process.Kill() // as hard as it gets
		_ = cmd.Wait()
		taken()
	}
	lines, err := os.ReadFile(log)
	if err != nil || !bytes.Contains(lines, []byte("agent starting")) || bytes.Contains(lines, []byte("controller")) {
		t.Errorf("%v, log:\n%s", err, lines)
	}
}

// A unit that holds another address than the configured one is named, and the configured one is held as well.
func TestControllerAtAnotherAddress(t *testing.T) {
	listen := func() *net.TCPListener {
		l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	other, free := listen(), listen()
	var o options.Options
	o.OVS.OFListenAddress, o.OVS.OFListenPort = "127.0.0.1", free.Addr().(*net.TCPAddr).Port
	_ = free.Close()
	var log bytes.Buffer
	ctx, cancel := context.WithCancel(t.Context())
	wait := holdController(ctx, &o, []net.Listener{other}, slog.New(slog.NewTextHandler(&log, nil)))
	for _, addr := range []string{other.Addr().String(), free.Addr().String()} {
		if conn, err := net.DialTimeout("tcp", addr, time.Second); err != nil {
			t.Errorf("%s is not held: %v", addr, err)
		} else {
			_ = conn.Close()
		}
	}
	cancel()
	wait()
	if !strings.Contains(log.String(), "ListenStream") {
		t.Errorf("the log says %q", log.String())
	}
}
