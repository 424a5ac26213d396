// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/patchbay-sdn/patchbay/lab/daemon"
)

// databaseTimeout bounds the start of MariaDB, which takes a second on an idle machine.
const databaseTimeout = 2 * time.Minute

func (l *Lab) database() *daemon.Daemon { return daemon.Open("mariadbd", l.path("db")) }

func (l *Lab) databaseSocket() string { return l.path("db", "mariadbd.sock") }

func (l *Lab) databaseAddr() string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(l.snapshot().DBPort))
}

// ensureDatabase makes MariaDB run on a data directory of its own, with nothing read from the machine's configuration.
func (l *Lab) ensureDatabase(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, databaseTimeout)
	defer cancel()
	d := l.database()
	if pid := d.PID(); pid != 0 && l.databaseReady(ctx) == nil {
		return running(pid), nil
	}
	data := l.path("db", "data")
	if _, err := os.Stat(data); errors.Is(err, os.ErrNotExist) {
		// Made under another name first: a directory that is there is complete.
		if err := l.initDatabase(ctx, data); err != nil {
			return "", err
		}
	}
	if d.PID() == 0 {
		var err error
		d, err = daemon.Start(ctx, daemon.Spec{
			Name: "mariadbd", Dir: l.path("db"),
			Argv: []string{
				"/usr/sbin/mariadbd", "--no-defaults", "--user=root",
				"--datadir=" + data, "--tmpdir=" + l.path("db"), "--socket=" + l.databaseSocket(),
				"--bind-address=127.0.0.1", "--port=" + strconv.Itoa(l.snapshot().DBPort),
				"--skip-name-resolve", "--max-connections=500", "--character-set-server=utf8mb4",
				// The lab's data need not survive a power failure, only kill -9: what is committed is handed to the kernel (2), and
				// does not wait in the process for up to a second (0).
				"--innodb-flush-log-at-trx-commit=2", "--innodb-flush-method=nosync", "--innodb-doublewrite=0",
				"--innodb-log-file-size=32M", "--innodb-buffer-pool-size=128M", "--skip-log-bin",
			},
		})
		if err != nil {
			return "", err
		}
	}
	for {
		err := l.databaseReady(ctx)
		if err == nil {
			return "started, " + running(d.PID()) + ", " + l.databaseAddr(), nil
		}
		if d.PID() == 0 {
			return "", fmt.Errorf("MariaDB exited\n%s", d.LogTail(15))
		}
		if !pause(ctx, 50*time.Millisecond) {
			return "", fmt.Errorf("waiting for MariaDB: %w: %w\n%s", ctx.Err(), err, d.LogTail(15))
		}
	}
}

func (l *Lab) initDatabase(ctx context.Context, data string) error {
	fresh := data + ".new"
	if err := os.RemoveAll(fresh); err != nil {
		return fmt.Errorf("clearing a half-made data directory: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(data), 0o755); err != nil {
		return fmt.Errorf("making the database's directory: %w", err)
	}
	if err := l.job(ctx, "install-db", []string{
		"/usr/bin/mariadb-install-db", "--no-defaults", "--user=root", "--datadir=" + fresh,
		"--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve",
		"--innodb-flush-log-at-trx-commit=0", "--innodb-flush-method=nosync", "--innodb-log-file-size=32M",
	}); err != nil {
		return err
	}
	if err := os.Rename(fresh, data); err != nil {
		return fmt.Errorf("putting the data directory in place: %w", err)
	}
	return nil
}

// sql runs statements as the database's root user.
func (l *Lab) sql(ctx context.Context, statements string) error {
	_, err := run(ctx, statements, "/usr/bin/mariadb", "--no-defaults", "--socket="+l.databaseSocket(), "--user=root")
	return err
}

func (l *Lab) databaseReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return l.sql(ctx, "SELECT 1;")
}

// ensureSchema makes Neutron's tables. MariaDB cannot undo half a migration, so one that did not end begins anew.
func (l *Lab) ensureSchema(ctx context.Context) (string, error) {
	if l.snapshot().Schema {
		return "complete", nil
	}
	if err := l.sql(ctx, `DROP DATABASE IF EXISTS neutron; CREATE DATABASE neutron;
CREATE USER IF NOT EXISTS 'neutron'@'127.0.0.1' IDENTIFIED BY 'neutron';
GRANT ALL ON neutron.* TO 'neutron'@'127.0.0.1';`); err != nil {
		return "", fmt.Errorf("creating the database: %w", err)
	}
	if err := l.migrate(ctx); err != nil {
		return "", err
	}
	if err := l.update(func(s *state) error { s.Schema = true; return nil }); err != nil {
		return "", err
	}
	return "created", nil
}

// migrate brings the schema to that of the lab's Neutron.
func (l *Lab) migrate(ctx context.Context) error {
	return l.job(ctx, "db-manage", l.neutronCommand(append([]string{"/usr/bin/neutron-db-manage"}, append(l.serverFiles(), "upgrade", "head")...)...))
}
