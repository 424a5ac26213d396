// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/patchbay-sdn/patchbay/lab/broker"
	"github.com/patchbay-sdn/patchbay/lab/daemon"
)

const (
	serverTimeout = 3 * time.Minute
	brokerTimeout = 3 * time.Minute
	jobTimeout    = 5 * time.Minute
)

func (l *Lab) server() *daemon.Daemon { return daemon.Open("neutron-server", l.path("server")) }

// apiURL is the root of the Networking API.
func (l *Lab) apiURL() string {
	return "http://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(l.snapshot().APIPort)) + "/"
}

func (l *Lab) serverFiles() []string {
	return []string{"--config-file", l.path("server", "neutron.conf"), "--config-file", l.path("server", "ml2.ini")}
}

// writeServerConfig comes before the migration of the schema, which reads the same files.
func (l *Lab) writeServerConfig() error {
	dir := l.path("server")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("making the server's directory: %w", err)
	}
	neutron, ml2 := serverConfig(serverParams{
		dir: dir, apiPort: l.snapshot().APIPort, transportURL: l.TransportURL(),
		database: "mysql+pymysql://neutron:neutron@" + l.databaseAddr() + "/neutron?charset=utf8mb4",
	})
	for name, text := range map[string]string{"neutron.conf": neutron, "ml2.ini": ml2} {
		if err := os.WriteFile(l.path("server", name), []byte(text), 0o600); err != nil {
			return fmt.Errorf("writing the server's configuration: %w", err)
		}
	}
	return nil
}

// ensureServer makes neutron-server run and answer.
func (l *Lab) ensureServer(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, serverTimeout)
	defer cancel()
	d := l.server()
	if pid := d.PID(); pid != 0 && l.serverReady(ctx) == nil {
		return running(pid), nil
	}
	if d.PID() == 0 {
		var err error
		argv := append([]string{"/usr/bin/neutron-server"}, l.serverFiles()...)
		if l.snapshot().Server == Simulated {
			if argv, err = l.simCommand(); err != nil {
				return "", err
			}
		}
		d, err = daemon.Start(ctx, daemon.Spec{Name: "neutron-server", Dir: l.path("server"), Argv: argv})
		if err != nil {
			return "", err
		}
	}
	for {
		err := l.serverReady(ctx)
		if err == nil {
			return "started, " + running(d.PID()) + ", " + l.apiURL(), nil
		}
		if d.PID() == 0 {
			return "", fmt.Errorf("neutron-server exited\n%s", d.LogTail(20))
		}
		if !pause(ctx, 100*time.Millisecond) {
			return "", fmt.Errorf("waiting for neutron-server: %w: %w\n%s", ctx.Err(), err, d.LogTail(20))
		}
	}
}

// serverReady asks for a list, not for the root page: the root page answers before the plugin and its database do.
func (l *Lab) serverReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, l.apiURL()+"v2.0/agents?fields=id", nil)
	if err != nil {
		return fmt.Errorf("asking neutron-server: %w", err)
	}
	resp, err := l.http.Do(req)
	if err != nil {
		return fmt.Errorf("asking neutron-server: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("asking neutron-server: it answered %s", resp.Status)
	}
	return nil
}

func (l *Lab) brokerConfig() broker.Config {
	return broker.Config{Dir: l.path("broker"), Addr: l.brokerAddr(), Port: l.snapshot().BrokerPort}
}

// TransportURL is the transport_url of server and agents.
func (l *Lab) TransportURL() string {
	return "rabbit://patchbay:patchbay@" + net.JoinHostPort(l.brokerAddr(), strconv.Itoa(l.snapshot().BrokerPort)) + "/"
}

// ensureBroker makes RabbitMQ run on the lab's management address.
func (l *Lab) ensureBroker(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, brokerTimeout)
	defer cancel()
	before := 0
	if b, err := broker.Open(l.brokerConfig()); err == nil {
		before = b.PID()
	}
	b, err := broker.Start(ctx, l.brokerConfig())
	if err != nil {
		return "", err
	}
	if b.PID() == before {
		return running(before), nil
	}
	return "started, " + running(b.PID()) + ", " + b.Addr(), nil
}

// job runs a program that ends by itself, with its output in a log. It is recorded like a daemon, so that one which
// outlived a killed Up is found and ended before anything is done again.
func (l *Lab) job(ctx context.Context, name string, argv []string) error {
	ctx, cancel := context.WithTimeout(ctx, jobTimeout)
	defer cancel()
	dir := l.path("jobs", name)
	// sh and not the program itself is the recorded process: its last act is to leave the exit status.
	status := dir + "/status"
	_ = os.Remove(status)
	d, err := daemon.Start(ctx, daemon.Spec{Name: name, Dir: dir, Argv: append([]string{
		"/bin/sh", "-c", `"$@"; echo $? >status`, "sh",
	}, argv...)})
	if err != nil {
		return err
	}
	for d.PID() != 0 {
		if !pause(ctx, 20*time.Millisecond) {
			_ = d.Kill()
			return fmt.Errorf("running %s: %w\n%s", name, ctx.Err(), d.LogTail(15))
		}
	}
	text, err := os.ReadFile(status)
	if err != nil || string(text) != "0\n" {
		return fmt.Errorf("running %s: it failed\n%s", name, d.LogTail(15))
	}
	return nil
}

// running is the note of a part that is there.
func running(pid int) string { return fmt.Sprintf("pid %d", pid) }

// pause waits and tells whether ctx still lives.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
