// SPDX-License-Identifier: Apache-2.0

// Package vswitch runs a private Open vSwitch: one ovsdb-server and one ovs-vswitchd whose database, sockets, pid files
// and logs live in a directory of their own, optionally inside a network namespace. The lab uses it for its hosts, the
// integration tests for everything that must be proven on the real switch.
//
//	sw := vswitch.New(t)                       // started, stopped and removed with the test
//	_, err := sw.Vsctl(ctx, "add-br", "br-int", "--", "set", "Bridge", "br-int", "datapath_type=netdev")
//	conn, err := net.Dial("unix", sw.MgmtSocket("br-int"))
//
// The daemons are detached: they outlive the process that started them, and Open finds them again through their pid
// files. A pid is only ever signalled when its command line names our directory.
package vswitch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/patchbay-sdn/patchbay/lab/release"
)

const (
	dbDaemon     = "ovsdb-server"
	switchDaemon = "ovs-vswitchd"

	defaultSchema = "/usr/share/openvswitch/vswitch.ovsschema"

	// maxSocketPath is sizeof(sun_path) without the terminating NUL.
	maxSocketPath = 107

	startTimeout = 30 * time.Second
	stopTimeout  = 10 * time.Second
	toolTimeout  = 60 * time.Second
)

// SSL names the PEM files with which ovsdb-server serves pssl: remotes. Without it the files come from the SSL row of the
// database, as on an installed system.
type SSL struct {
	PrivateKey  string
	Certificate string
	CACert      string
}

// Config says where a switch lives and how it is reached. Only Dir is required.
type Config struct {
	// Dir holds everything the switch writes. Its path must be short: unix socket paths end at 107 bytes.
	Dir string
	// Netns is the name of an existing network namespace for both daemons; empty means that of the caller.
	Netns string
	// Remotes are further ovsdb remotes, such as "ptcp:6640:127.0.0.1" or "pssl:6640:127.0.0.1", beside the unix socket
	// and the Manager rows of the database.
	Remotes []string
	// SSL are the server's files for pssl: remotes.
	SSL SSL
	// DummyDatapath replaces every datapath and device by OVS's in-memory dummies: no tap devices, no packets.
	DummyDatapath bool
	// Schema is the database schema; empty means Debian's place, in Root if that is set.
	Schema string
	// Root is the root directory of another Debian suite, as package release has them: daemons and tools come from there. Files of SSL
	// have to be in Dir then.
	Root string
}

// Switch is one private Open vSwitch. It keeps no state besides its Config, so several values may refer to one switch.
type Switch struct {
	cfg Config
}

// Open returns the switch of cfg without looking whether it runs.
func Open(cfg Config) *Switch {
	if abs, err := filepath.Abs(cfg.Dir); err == nil {
		cfg.Dir = abs
	}
	if cfg.Schema == "" {
		cfg.Schema = defaultSchema
	}
	return &Switch{cfg: cfg}
}

// Start starts what of the switch does not run yet: the database, created on the first start, and ovs-vswitchd.
func Start(ctx context.Context, cfg Config) (*Switch, error) {
	s := Open(cfg)
	if err := s.StartDB(ctx); err != nil {
		return nil, err
	}
	if err := s.StartVswitchd(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// Stop stops both daemons. Dir stays, so that Start goes on with the same database.
func (s *Switch) Stop(ctx context.Context) error {
	return errors.Join(s.StopVswitchd(ctx), s.StopDB(ctx))
}

// Dir returns the directory of the switch as an absolute path.
func (s *Switch) Dir() string { return s.cfg.Dir }

// Netns returns the network namespace of the daemons, empty for that of the caller.
func (s *Switch) Netns() string { return s.cfg.Netns }

// DBSocket returns the path of the database's unix socket.
func (s *Switch) DBSocket() string { return s.path("db.sock") }

// MgmtSocket returns the path of the socket on which the bridge speaks OpenFlow to its managers.
func (s *Switch) MgmtSocket(bridge string) string { return s.path(bridge + ".mgmt") }

// Env returns the environment with which other commands, ovs-* or an agent, find this switch.
func (s *Switch) Env() []string {
	var env []string
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "OVS_") {
			env = append(env, kv)
		}
	}
	for _, name := range []string{"OVS_RUNDIR", "OVS_DBDIR", "OVS_LOGDIR", "OVS_SYSCONFDIR"} {
		env = append(env, name+"="+s.cfg.Dir)
	}
	return env
}

// Command returns a command that will run in the namespace of the switch and with its environment. Those of Open vSwitch itself are
// the switch's own.
func (s *Switch) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	if strings.HasPrefix(name, "ovs") {
		whole := release.Command(s.cfg.Root, []string{s.cfg.Dir}, append([]string{name}, args...)...)
		name, args = whole[0], whole[1:]
	}
	if s.cfg.Netns != "" {
		args = append([]string{"--net=/run/netns/" + s.cfg.Netns, name}, args...)
		name = "nsenter"
	}
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = s.Env()
	cmd.Dir = "/"
	return cmd
}

// Vsctl runs ovs-vsctl on this switch and returns what it printed. It waits for ovs-vswitchd unless told --no-wait.
func (s *Switch) Vsctl(ctx context.Context, args ...string) (string, error) {
	return s.tool(ctx, "ovs-vsctl", append([]string{"--timeout=30", "--db=unix:" + s.DBSocket()}, args...)...)
}

// Ofctl runs ovs-ofctl, which finds the bridges of this switch by name.
func (s *Switch) Ofctl(ctx context.Context, args ...string) (string, error) {
	return s.tool(ctx, "ovs-ofctl", append([]string{"--timeout=50"}, args...)...)
}

// Appctl runs ovs-appctl on a daemon of this switch: "ovs-vswitchd" or "ovsdb-server".
func (s *Switch) Appctl(ctx context.Context, target string, args ...string) (string, error) {
	return s.tool(ctx, "ovs-appctl", append([]string{"--timeout=50", "--target=" + target}, args...)...)
}

func (s *Switch) tool(ctx context.Context, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, toolTimeout)
	defer cancel()
	cmd := s.Command(ctx, name, args...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Run(); err != nil {
		line := name + " " + strings.Join(args, " ")
		if len(line) > 300 {
			line = line[:300] + "…"
		}
		return out.String(), fmt.Errorf("running %s: %w: %s", line, err, strings.TrimSpace(errOut.String()))
	}
	return out.String(), nil
}

func (s *Switch) path(name string) string { return filepath.Join(s.cfg.Dir, name) }

// prepare creates the directory and, the first time, the database.
func (s *Switch) prepare(ctx context.Context) error {
	// The management socket of a bridge with the longest name a network device can have must still fit.
	if n := len(s.MgmtSocket("123456789012345")); n > maxSocketPath {
		return fmt.Errorf("directory %s is too long: unix socket paths would have %d of at most %d bytes", s.cfg.Dir, n, maxSocketPath)
	}
	if err := os.MkdirAll(s.cfg.Dir, 0o755); err != nil {
		return fmt.Errorf("creating the directory of the switch: %w", err)
	}
	if _, err := os.Stat(s.path("conf.db")); err == nil {
		return nil
	}
	if _, err := s.tool(ctx, "ovsdb-tool", "create", s.path("conf.db"), s.cfg.Schema); err != nil {
		return err
	}
	return nil
}
