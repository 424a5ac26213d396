// SPDX-License-Identifier: Apache-2.0

//go:build integration

package agent_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/agents"

	"github.com/patchbay-sdn/patchbay/lab"
)

// TestAgainstTheRealServer starts the agent beside real neutron-server, RabbitMQ and Open vSwitch, with the Python agent
// for comparison, and goes through what can happen to it.
func TestAgainstTheRealServer(t *testing.T) {
	l := lab.New(t, 1)
	h := l.Host(1)
	t.Run("agent record equals the Python agent's", func(t *testing.T) { sameRecord(t, l, h) })
	t.Run("one connection and two queues", func(t *testing.T) { footprint(t, l, h) })
	t.Run("as a service under the drop-in name", func(t *testing.T) { service(t, h) })
	t.Run("SIGTERM", func(t *testing.T) { sigterm(t, l, h) })
	t.Run("SIGHUP", func(t *testing.T) { sighup(t, h) })
	t.Run("idle agent is silent", func(t *testing.T) { idle(t, h) })
	t.Run("connections closed by the broker", func(t *testing.T) { closedConnections(t, l, h) })
	t.Run("queue deleted under the consumer", func(t *testing.T) { deletedQueue(t, l, h) })
	t.Run("broker restarted", func(t *testing.T) { restartedBroker(t, l, h) })
	t.Run("switch database restarted", func(t *testing.T) { restartedDatabase(t, h) })
	t.Run("kill -9", func(t *testing.T) { killed(t, l, h) })
}

// record is the agent as the API shows it, as plain JSON, without what differs between any two runs.
func record(t *testing.T, l *lab.Lab, h *lab.Host) map[string]any {
	t.Helper()
	a, err := h.AgentRecord(t.Context())
	if err != nil || a == nil {
		t.Fatalf("agent record: %v, %v", a, err)
	}
	var body struct {
		Agent map[string]any `json:"agent"`
	}
	if err := agents.Get(t.Context(), l.Neutron(), a.ID).ExtractInto(&body); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"id", "created_at", "started_at", "heartbeat_timestamp"} {
		if _, ok := body.Agent[key]; !ok {
			t.Errorf("the API shows no %s", key)
		}
		delete(body.Agent, key)
	}
	return body.Agent
}

func begin(t *testing.T, h *lab.Host, kind lab.AgentKind, overrides ...string) {
	t.Helper()
	// The security groups' driver is not there yet, and Patchbay refuses to start when it is asked for.
	overrides = append([]string{"securitygroup.firewall_driver=noop"}, overrides...)
	if err := h.StartAgent(t.Context(), kind, overrides...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.StopAgent(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

func sameRecord(t *testing.T, l *lab.Lab, h *lab.Host) {
	// Options that show in the record, so that equal means more than equally empty.
	overrides := []string{
		"ovs.resource_provider_bandwidths=br-ex:1000000:2000000",
		"ovs.resource_provider_inventory_defaults=allocation_ratio:2.0,min_unit:1,step_size:1,reserved:0",
		"ovs.resource_provider_packet_processing_without_direction=:5000",
	}
	begin(t, h, lab.Python, overrides...)
	python := record(t, l, h)
	if err := h.StopAgent(t.Context()); err != nil {
		t.Fatal(err)
	}
	begin(t, h, lab.Patchbay, overrides...)
	if diff := cmp.Diff(python, record(t, l, h)); diff != "" {
		t.Errorf("GET /v2.0/agents/<id> differs (-python +patchbay):\n%s", diff)
	}
	shown, _ := json.MarshalIndent(python, "", "  ")
	t.Logf("both agents show as %s", shown)
}

// brokerView is what the agent of a host takes up on the broker.
func brokerView(t *testing.T, l *lab.Lab, pid int) (connections int, queues []string) {
	t.Helper()
	all, err := l.Broker().Connections(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		if name, _ := c.Properties["connection_name"].(string); strings.Contains(name, fmt.Sprintf(":%d:", pid)) {
			connections++
		}
	}
	return connections, agentQueues(t, l)
}

// agentQueues lists the queues that are not the server's own, by their names.
func agentQueues(t *testing.T, l *lab.Lab) []string {
	t.Helper()
	queues, err := l.Broker().Queues(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var own []string
	for _, q := range queues {
		if strings.HasPrefix(q.Name, "neutron-openvswitch-agent_fanout_") || strings.HasPrefix(q.Name, "reply_") {
			own = append(own, q.Name)
		}
	}
	return own
}

func footprint(t *testing.T, l *lab.Lab, h *lab.Host) {
	before := agentQueues(t, l)
	// What the Python agent of the first subtest left behind must go, too.
	begin(t, h, lab.Patchbay)
	_, pid := h.Agent()
	connections, queues := brokerView(t, l, pid)
	added := slices.DeleteFunc(queues, func(q string) bool { return slices.Contains(before, q) })
	if connections != 1 || len(added) > 2 {
		t.Errorf("%d connections and queues %v, want 1 and at most 2", connections, added)
	}
	all, err := l.Broker().Queues(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range all {
		if strings.HasSuffix(q.Name, "."+h.Name()) {
			t.Errorf("queue %s of the Python agent still collects messages", q.Name)
		}
	}
	t.Logf("%d connection, queues %v", connections, added)
}

// service runs the binary under the Python agent's name, as a service manager does, and listens to what it says.
func service(t *testing.T, h *lab.Host) {
	begin(t, h, lab.Patchbay) // writes the configuration files
	if err := h.StopAgent(t.Context()); err != nil {
		t.Fatal(err)
	}
	binary, err := filepath.Abs("../../bin/patchbay")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	link, socket := filepath.Join(dir, "neutron-openvswitch-agent"), filepath.Join(dir, "notify")
	if err := os.Symlink(binary, link); err != nil {
		t.Fatal(err)
	}
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	cmd := h.Command(t.Context(), link, h.AgentFiles()...)
	cmd.Env = append(cmd.Environ(), "NOTIFY_SOCKET="+socket, "WATCHDOG_USEC=1000000", "OVS_RUNDIR="+h.Switch().Dir())
	var out bytes.Buffer
	cmd.Stderr = &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	hear := func(want string) {
		t.Helper()
		_ = conn.SetReadDeadline(time.Now().Add(30 * time.Second))
		buf := make([]byte, 1024)
		for {
			n, err := conn.Read(buf)
			if err != nil {
				t.Fatalf("waiting for %s: %v\n%s", want, err, out.String())
			}
			if strings.HasPrefix(string(buf[:n]), want) {
				return
			}
		}
	}
	hear("READY=1")
	hear("WATCHDOG=1")
	if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	hear("RELOADING=1")
	hear("READY=1")
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	hear("STOPPING=1")
	if err := cmd.Wait(); err != nil {
		t.Errorf("exit: %v\n%s", err, out.String())
	}
}

func sigterm(t *testing.T, l *lab.Lab, h *lab.Host) {
	before := agentQueues(t, l)
	begin(t, h, lab.Patchbay)
	if len(agentQueues(t, l)) == len(before) {
		t.Fatal("the agent has no queue")
	}
	began := time.Now()
	if err := h.SignalAgent(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	eventually(t, 5*time.Second, "the agent is gone", func() bool { _, pid := h.Agent(); return pid == 0 })
	took := time.Since(began)
	if took > time.Second {
		t.Errorf("out after %s, want under a second", took)
	}
	if left := agentQueues(t, l); len(left) > len(before) {
		t.Errorf("queues left: %v, before: %v", left, before)
	}
	t.Logf("out in %s", took)
}

func sighup(t *testing.T, h *lab.Host) {
	begin(t, h, lab.Patchbay)
	files := h.AgentFiles()
	file := files[len(files)-1]
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	changed := "[DEFAULT]\ndebug = true\n[ovs]\nvhostuser_socket_dir = /elsewhere\n" + string(text)
	if err := os.WriteFile(file, []byte(changed), 0o600); err != nil {
		t.Fatal(err)
	}
	seen := follow(t, h)
	if err := h.SignalAgent(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	seen("option changed option=debug value=true")
	seen("restart needed option=")
	if err := os.WriteFile(file, []byte("[ovs\nbroken"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := h.SignalAgent(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	seen("configuration not reloaded")
}

func idle(t *testing.T, h *lab.Host) {
	begin(t, h, lab.Patchbay, "agent.report_interval=2")
	log := h.AgentLog(lab.Patchbay)
	before, err := os.Stat(log)
	if err != nil {
		t.Fatal(err)
	}
	first, err := h.AgentRecord(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(10 * time.Second)
	last, err := h.AgentRecord(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !last.HeartbeatTimestamp.After(first.HeartbeatTimestamp.Add(4 * time.Second)) {
		t.Errorf("heartbeats stopped: %s, then %s", first.HeartbeatTimestamp, last.HeartbeatTimestamp)
	}
	if after, err := os.Stat(log); err != nil || after.Size() != before.Size() {
		text, _ := os.ReadFile(log)
		t.Errorf("logged while idle: %s", text[before.Size():])
	}
}

// follow waits for lines that the agent writes from now on, each within a bound.
func follow(t *testing.T, h *lab.Host) func(part string) {
	t.Helper()
	log := h.AgentLog(lab.Patchbay)
	start, err := os.Stat(log)
	if err != nil {
		t.Fatal(err)
	}
	return func(part string) {
		t.Helper()
		eventually(t, 30*time.Second, fmt.Sprintf("%q in the log", part), func() bool {
			text, err := os.ReadFile(log)
			return err == nil && strings.Contains(string(text[start.Size():]), part)
		})
	}
}

func eventually(t *testing.T, within time.Duration, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(within); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("not within %s: %s", within, what)
}

// stillWorks sees whether reports get through after a disturbance.
func stillWorks(t *testing.T, h *lab.Host) {
	t.Helper()
	from := time.Now().UTC().Truncate(time.Second)
	eventually(t, 60*time.Second, "a state report after the disturbance", func() bool {
		a, err := h.AgentRecord(t.Context())
		return err == nil && a.Alive && a.HeartbeatTimestamp.After(from)
	})
}

func closedConnections(t *testing.T, l *lab.Lab, h *lab.Host) {
	begin(t, h, lab.Patchbay, "agent.report_interval=2")
	seen := follow(t, h)
	if _, err := l.Broker().Ctl(t.Context(), "close_all_connections", "test"); err != nil {
		t.Fatal(err)
	}
	seen("connection to the broker lost, reconnecting")
	seen("connected to the broker")
	stillWorks(t, h)
	if text, _ := os.ReadFile(h.AgentLog(lab.Patchbay)); strings.Contains(string(text), "RPC messages may have been lost, resyncing") {
		t.Error("a gap was reported, though the queue lived on")
	}
}

func deletedQueue(t *testing.T, l *lab.Lab, h *lab.Host) {
	before := agentQueues(t, l)
	begin(t, h, lab.Patchbay, "agent.report_interval=2")
	seen := follow(t, h)
	for _, q := range agentQueues(t, l) {
		if strings.Contains(q, "_fanout_") && !slices.Contains(before, q) {
			if _, err := l.Broker().Ctl(t.Context(), "delete_queue", q, "--vhost", l.Broker().Config().VHost); err != nil {
				t.Fatal(err)
			}
		}
	}
	seen("RPC messages may have been lost, resyncing")
	stillWorks(t, h)
}

func restartedBroker(t *testing.T, l *lab.Lab, h *lab.Host) {
	begin(t, h, lab.Patchbay, "agent.report_interval=2")
	seen := follow(t, h)
	for _, command := range []string{"stop_app", "start_app"} {
		if _, err := l.Broker().Ctl(t.Context(), command); err != nil {
			t.Fatal(err)
		}
	}
	seen("connection to the broker lost, reconnecting")
	seen("connected to the broker")
	seen("RPC messages may have been lost, resyncing") // transient queues do not outlive the broker
	stillWorks(t, h)
}

func restartedDatabase(t *testing.T, h *lab.Host) {
	begin(t, h, lab.Patchbay, "agent.report_interval=2")
	seen := follow(t, h)
	if err := h.Switch().StopDB(t.Context()); err != nil {
		t.Fatal(err)
	}
	seen("connection to ovsdb-server failed, retrying")
	if err := h.Switch().StartDB(t.Context()); err != nil {
		t.Fatal(err)
	}
	seen("connected to ovsdb-server")
	stillWorks(t, h)
}

// killed proves that what a crash leaves behind expires in time; with PATCHBAY_LONG it waits and sees.
func killed(t *testing.T, l *lab.Lab, h *lab.Host) {
	before := agentQueues(t, l)
	begin(t, h, lab.Patchbay)
	if err := h.SignalAgent(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	queues, err := l.Broker().Queues(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	own := agentQueues(t, l)
	for _, q := range queues {
		if !slices.Contains(own, q.Name) || slices.Contains(before, q.Name) {
			continue
		}
		ms, ok := q.Arguments["x-expires"].(float64)
		if !ok || ms > float64(5*time.Minute/time.Millisecond) {
			t.Errorf("%s expires after %v ms, want at most 5 minutes", q.Name, q.Arguments["x-expires"])
		}
	}
	if os.Getenv("PATCHBAY_LONG") == "" {
		return
	}
	began := time.Now()
	eventually(t, 5*time.Minute, "the queues of the killed agent are gone", func() bool {
		time.Sleep(5 * time.Second)
		return len(agentQueues(t, l)) <= len(before)
	})
	t.Logf("gone after %s", time.Since(began))
}
