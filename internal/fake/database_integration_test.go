// SPDX-License-Identifier: Apache-2.0

//go:build integration

package fake_test

import (
	"context"
	"net"
	"os"
	"testing"

	"github.com/patchbay-sdn/patchbay/lab/vswitch"
)

// ovsdb-server says what the database in memory says. There is no ovs-vswitchd, which would write into what is told.
func TestDatabaseAsOVSDBServer(t *testing.T) {
	dir, err := os.MkdirTemp("", "db") // paths of sockets must be short
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	sw := vswitch.Open(vswitch.Config{Dir: dir})
	if err := sw.StartDB(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sw.StopDB(context.Background()) }()
	if _, err := sw.Vsctl(t.Context(), "--no-wait", "init"); err != nil {
		t.Fatal(err)
	}
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "unix", sw.DBSocket())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if got := written(t, conn); got != wantWritten {
		t.Errorf("ovsdb-server says:\n%s\nwant:\n%s", got, wantWritten)
	}
}
