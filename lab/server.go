// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/patchbay-sdn/patchbay/lab/broker"
	"github.com/patchbay-sdn/patchbay/lab/daemon"
)

const (
	serverTimeout = 3 * time.Minute
	brokerTimeout = 3 * time.Minute
	jobTimeout    = 5 * time.Minute
)

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
		dir: dir, apiPort: l.snapshot().APIPort, transportURL: l.TransportURL(), workers: os.Getenv(EnvWorkers), plugins: os.Getenv(EnvPlugins), queues: l.snapshot().Queues,
		database: "mysql+pymysql://neutron:neutron@" + l.databaseAddr() + "/neutron?charset=utf8mb4",
	})
	for name, text := range map[string]string{"neutron.conf": neutron, "ml2.ini": ml2, "policy.yaml": serverPolicy} {
		if err := os.WriteFile(l.path("server", name), []byte(text), 0o600); err != nil {
			return fmt.Errorf("writing the server's configuration: %w", err)
		}
	}
	return nil
}

// serverProcess is a process of the server, with its command.
type serverProcess struct {
	*daemon.Daemon
	name, dir string
	argv      func() ([]string, error)
}

// serverProcesses are those of the server: neutron-server up to release 26, three since 28.
func (l *Lab) serverProcesses() []serverProcess {
	process := func(name, dir string, argv func() ([]string, error)) serverProcess {
		return serverProcess{daemon.Open(name, l.path(dir)), name, l.path(dir), argv}
	}
	neutron := func(argv ...string) func() ([]string, error) {
		return func() ([]string, error) { return l.neutronCommand(argv...), nil }
	}
	files := l.serverFiles()
	if l.snapshot().Server == Simulated {
		return []serverProcess{process("neutron-server", "server", l.simCommand)}
	}
	if !l.threaded() {
		return []serverProcess{process("neutron-server", "server", neutron(append([]string{"/usr/bin/neutron-server"}, files...)...))}
	}
	// A daemon ends with all that has its directory as HOME, so each has a directory of its own.
	return []serverProcess{
		process("neutron-rpc-server", "server-rpc", neutron(append([]string{"/usr/bin/neutron-rpc-server"}, files...)...)),
		process("neutron-periodic-workers", "server-periodic", neutron(append([]string{"/usr/bin/neutron-periodic-workers"}, files...)...)),
		process("neutron-api", "server-api", neutron(uwsgi(l.APIAddr(), files)...)),
	}
}

// uwsgi is the command that serves the API as Debian's service does, with one worker.
func uwsgi(addr string, files []string) []string {
	return []string{
		"/usr/bin/uwsgi", "--plugin", "python3", "--http-socket", addr, "--master", "--lazy-apps", "--enable-threads",
		"--processes", "1", "--threads", "1", "--die-on-term", "--buffer-size", "65535",
		"--rem-header", "Content-Length", "--add-header", "Connection: close", "--set", "start-time=%t",
		"--module", "neutron.wsgi.api:application", "--pyargv", strings.Join(files, " "),
	}
}

// ensureServer makes the server run and answer.
func (l *Lab) ensureServer(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, serverTimeout)
	defer cancel()
	all := l.serverProcesses()
	missing := slices.ContainsFunc(all, func(p serverProcess) bool { return p.PID() == 0 })
	if !missing && l.serverReady(ctx) == nil {
		return pids(all), nil
	}
	for _, p := range all {
		if p.PID() != 0 {
			continue
		}
		argv, err := p.argv()
		if err != nil {
			return "", err
		}
		if _, err := daemon.Start(ctx, daemon.Spec{Name: p.name, Dir: p.dir, Argv: argv}); err != nil {
			return "", err
		}
	}
	for {
		err := l.serverReady(ctx)
		for _, p := range all {
			if p.PID() == 0 {
				return "", fmt.Errorf("%s exited\n%s", p.name, p.LogTail(20))
			}
		}
		if err == nil {
			return "started, " + pids(all) + ", " + l.apiURL(), nil
		}
		if !pause(ctx, 100*time.Millisecond) {
			api := all[len(all)-1]
			return "", fmt.Errorf("waiting for %s: %w: %w\n%s", api.name, ctx.Err(), err, api.LogTail(20))
		}
	}
}

// pids is the note of a server that is there.
func pids(all []serverProcess) string {
	var notes []string
	for _, p := range all {
		notes = append(notes, running(p.PID()))
	}
	return strings.Join(notes, ", ")
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
	s := l.snapshot()
	return broker.Config{Dir: l.path("broker"), Addr: l.brokerAddr(), Port: s.BrokerPort, Root: s.Sources.Broker.Root, Conf: s.Queues.conf()}
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
