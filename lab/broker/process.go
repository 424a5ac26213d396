// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/patchbay-sdn/patchbay/lab/release"
)

// scripts is where Debian keeps RabbitMQ's own scripts. The wrappers in PATH switch to the user rabbitmq, who cannot
// read a private directory.
const scripts = "/usr/lib/rabbitmq/bin"

func (b *Broker) script(name string) string {
	if p := filepath.Join(scripts, name); release.Has(b.s.Root, p) {
		return p
	}
	return name
}

// command is a command of the broker's own suite.
func (b *Broker) command(argv ...string) []string {
	return release.Command(b.s.Root, []string{b.s.Dir}, argv...)
}

// writeFiles prepares Dir. The advanced configuration file takes Erlang terms, which can carry any password verbatim.
func (b *Broker) writeFiles() error {
	if err := os.MkdirAll(b.s.Dir, 0o700); err != nil {
		return fmt.Errorf("making the broker's directory: %w", err)
	}
	plugins := fmt.Sprintf("[%s].\n", strings.Join(b.s.Plugins, ","))
	text, err := json.MarshalIndent(b.s, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the broker's state: %w", err)
	}
	for _, f := range []struct {
		name, text string
		mode       os.FileMode
	}{
		{".erlang.cookie", b.s.Cookie, 0o400},
		{"advanced.config", b.erlangConfig(), 0o600},
		{"enabled_plugins", plugins, 0o600},
		{"rabbitmq.conf", b.s.Conf, 0o600},
		{"env.conf", "", 0o600},
		{"broker.json", string(text), 0o600},
	} {
		if err := os.WriteFile(b.path(f.name), []byte(f.text), f.mode); err != nil {
			return fmt.Errorf("writing the broker's files: %w", err)
		}
	}
	return nil
}

func (b *Broker) erlangConfig() string {
	tls := ""
	if b.s.TLS != nil {
		tls = fmt.Sprintf(`
  {ssl_listeners, [{%s, %d}]},
  {ssl_options, [{cacertfile, %s}, {certfile, %s}, {keyfile, %s}, {verify, verify_peer}, {fail_if_no_peer_cert, false}]},
  {ssl_cert_login_from, common_name},`,
			erlString(b.s.Addr), b.s.TLSPort, erlString(b.s.TLS.CA), erlString(b.s.TLS.Cert), erlString(b.s.TLS.Key))
	}
	mechanisms := "'PLAIN', 'AMQPLAIN'"
	for _, p := range b.s.Plugins {
		if p == "rabbitmq_auth_mechanism_ssl" {
			mechanisms += ", 'EXTERNAL'"
		}
	}
	return fmt.Sprintf(`[{rabbit, [
  {tcp_listeners, [{%s, %d}]},%s
  {auth_mechanisms, [%s]},
  {loopback_users, []},
  {default_user, %s}, {default_pass, %s}, {default_vhost, %s},
  {default_user_tags, [administrator]}, {default_permissions, [<<".*">>, <<".*">>, <<".*">>]},
  {vm_memory_high_watermark, {absolute, %d}},
  {disk_free_limit, 50000000}
]}].
`, erlString(b.s.Addr), b.s.Port, tls, mechanisms, erlBinary(b.s.User), erlBinary(b.s.Password), erlBinary(b.s.VHost), cmp.Or(b.s.Memory, 512<<20))
}

func erlString(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(s) + `"`
}

func erlBinary(s string) string {
	nums := make([]string, len(s))
	for i := range len(s) {
		nums[i] = strconv.Itoa(int(s[i]))
	}
	return "<<" + strings.Join(nums, ",") + ">>"
}

// env is the whole environment of the node and of its tools; nothing of the caller's RabbitMQ settings leaks in.
func (b *Broker) env() []string {
	return []string{
		"PATH=" + os.Getenv("PATH"), "LANG=C.UTF-8", "HOME=" + b.s.Dir,
		"ERL_EPMD_PORT=" + strconv.Itoa(b.s.EPMDPort), "ERL_EPMD_ADDRESS=127.0.0.1",
		"ERL_CRASH_DUMP=/dev/null",
		"RABBITMQ_CONF_ENV_FILE=" + b.path("env.conf"),
		"RABBITMQ_NODENAME=" + b.node(),
		"RABBITMQ_DIST_PORT=" + strconv.Itoa(b.s.DistPort),
		"RABBITMQ_MNESIA_BASE=" + b.path("mnesia"), "RABBITMQ_LOG_BASE=" + b.path("log"),
		"RABBITMQ_LOGS=" + b.path("log", "rabbit.log"),
		"RABBITMQ_PID_FILE=" + b.path("mnesia", "node.pid"),
		"RABBITMQ_CONFIG_FILE=" + b.path("rabbitmq.conf"),
		"RABBITMQ_ADVANCED_CONFIG_FILE=" + b.path("advanced.config"),
		"RABBITMQ_GENERATED_CONFIG_DIR=" + b.path("generated"),
		"RABBITMQ_SCHEMA_DIR=" + b.path("schema"),
		"RABBITMQ_ENABLED_PLUGINS_FILE=" + b.path("enabled_plugins"),
		// With input allowed the start script replaces itself by the Erlang VM, so the pid we start is the node's;
		// -noinput (an argument) takes the console away again.
		"RABBITMQ_ALLOW_INPUT=1",
		// No busy waiting: many nodes and tests share few cores.
		fmt.Sprintf("RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=+S %[1]d:%[1]d +A 4 +SDio 2 +sbwt none +sbwtdcpu none +sbwtdio none "+
			"-kernel inet_dist_use_interface {127,0,0,1}", cmp.Or(b.s.Schedulers, 1)),
		"RABBITMQ_CTL_ERL_ARGS=+S 1:1 +sbwt none -kernel inet_dist_use_interface {127,0,0,1}",
	}
}

func (b *Broker) start(ctx context.Context) error {
	for _, d := range []string{"mnesia", "log", "generated", "schema"} {
		if err := os.MkdirAll(b.path(d), 0o700); err != nil {
			return fmt.Errorf("making the broker's directory: %w", err)
		}
	}
	if pid := b.pid("epmd"); pid == 0 {
		// Without -daemon it stays in the foreground, so we know its pid. The node would start one that nobody stops.
		if err := b.spawn("epmd", "epmd", "-port", strconv.Itoa(b.s.EPMDPort), "-address", "127.0.0.1"); err != nil {
			return err
		}
	}
	if err := b.spawn("rabbit", b.script("rabbitmq-server"), "-noinput"); err != nil {
		return err
	}
	return b.awaitLogin(ctx)
}

// spawn starts a process in a session of its own, so that it outlives us, and records its pid and kernel start time.
func (b *Broker) spawn(name, path string, args ...string) error {
	out, err := os.OpenFile(b.path("log", name+".out"), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("starting %s: %w", name, err)
	}
	defer func() { _ = out.Close() }()
	argv := b.command(append([]string{path}, args...)...)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = b.env(), b.s.Dir, out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting %s: %w", name, err)
	}
	pid := cmd.Process.Pid
	_ = cmd.Process.Release()
	text := fmt.Sprintf("%d %s\n", pid, startTime(pid))
	if err := os.WriteFile(b.path(name+".pid"), []byte(text), 0o600); err != nil {
		_ = syscall.Kill(pid, syscall.SIGKILL)
		return fmt.Errorf("recording the pid of %s: %w", name, err)
	}
	return nil
}

// pid gives the recorded process if it is still alive and still the same one, else 0. The start time guards against a
// pid that the kernel has given to someone else since.
func (b *Broker) pid(name string) int {
	text, err := os.ReadFile(b.path(name + ".pid"))
	if err != nil {
		return 0
	}
	var pid int
	var started string
	if n, _ := fmt.Sscan(string(text), &pid, &started); n != 2 {
		return 0
	}
	// If it was our child and is dead, collect it; otherwise this does nothing.
	var ws syscall.WaitStatus
	_, _ = syscall.Wait4(pid, &ws, syscall.WNOHANG, nil)
	if startTime(pid) != started {
		return 0
	}
	return pid
}

// startTime is field 22 of /proc/PID/stat, or "" for a process that is gone or only waits to be collected.
func startTime(pid int) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	// The command name in parentheses may hold blanks; fields are counted from the last parenthesis.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 20 || fields[0] == "Z" {
		return ""
	}
	return fields[19]
}

// Running tells whether the node's process is alive.
func (b *Broker) Running() bool { return b.pid("rabbit") != 0 }

// PID is the node's process, 0 when it does not run.
func (b *Broker) PID() int { return b.pid("rabbit") }

// Stop ends the node in an orderly way, and by force when ctx ends first; its port mapper goes with it. Stopping a
// stopped node is no error.
func (b *Broker) Stop(ctx context.Context) error {
	return errors.Join(b.end(ctx, "rabbit", syscall.SIGTERM), b.end(ctx, "epmd", syscall.SIGKILL))
}

// Kill ends the node with SIGKILL, as a crash would. Start brings it back with what it had on disk.
func (b *Broker) Kill() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return errors.Join(b.end(ctx, "rabbit", syscall.SIGKILL), b.end(ctx, "epmd", syscall.SIGKILL))
}

func (b *Broker) end(ctx context.Context, name string, sig syscall.Signal) error {
	pid := b.pid(name)
	if pid == 0 {
		_ = os.Remove(b.path(name + ".pid"))
		return nil
	}
	if err := syscall.Kill(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("stopping %s (pid %d): %w", name, pid, err)
	}
	forced := false
	for deadline := time.Now().Add(10 * time.Second); b.pid(name) != 0; {
		if (ctx.Err() != nil || time.Now().After(deadline)) && !forced {
			_ = syscall.Kill(pid, syscall.SIGKILL)
			forced, deadline = true, time.Now().Add(5*time.Second)
		} else if forced && time.Now().After(deadline) {
			return fmt.Errorf("stopping %s: pid %d does not die", name, pid)
		}
		time.Sleep(10 * time.Millisecond)
	}
	collect(pid)
	_ = os.Remove(b.path(name + ".pid"))
	return nil
}

// collect reaps pid if it was our child. A process whose main thread is dead already looks dead, but can be collected
// only when its last thread is.
func collect(pid int) {
	for range 200 {
		var ws syscall.WaitStatus
		got, err := syscall.Wait4(pid, &ws, syscall.WNOHANG, nil)
		if got == pid || (err != nil && !errors.Is(err, syscall.EINTR)) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// logTail is the end of what the node said, for error texts.
func (b *Broker) logTail() string {
	var out []string
	for _, p := range []string{b.path("log", "rabbit.log"), b.path("log", "rabbit.out")} {
		text, err := os.ReadFile(p)
		if err != nil {
			continue
		}
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		out = append(out, lines[max(0, len(lines)-20):]...)
	}
	return b.mask(strings.Join(out, "\n"))
}

// mask takes the password out of a text. A password that is no secret, because it is the user's name, stays.
func (b *Broker) mask(text string) string {
	if b.s.Password == b.s.User {
		return text
	}
	return strings.ReplaceAll(text, b.s.Password, "***")
}
