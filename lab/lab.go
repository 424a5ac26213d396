// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/gophercloud/gophercloud/v2"

	"github.com/patchbay-sdn/patchbay/lab/broker"
	"github.com/patchbay-sdn/patchbay/lab/daemon"
)

// lockTimeout is how long a command waits for another one to finish.
const lockTimeout = 3 * time.Minute

// Options say which lab is meant and how it should be. The zero value means the default lab as it is.
type Options struct {
	// Dir is the lab's directory; empty means the value of [EnvDir] or else [DefaultDir].
	Dir string
	// Hosts is the least number of hosts after Up; Up never takes hosts away.
	Hosts int
	// Server is which server a new lab gets; empty means the value of [EnvServer] or else the real one.
	Server ServerKind
	// Release is the Neutron of a new lab, as a number or a Debian suite; empty means the value of [EnvRelease] or else the machine's
	// packages. Broker and Switch are where RabbitMQ and Open vSwitch come from; empty means the value of [EnvBrokerSuite] or
	// [EnvSwitchSuite], or else the suite of Release.
	Release, Broker, Switch string
	// Releases is the directory of other releases, as package release has it, or [NoStore].
	Releases string
	// SkipInstall leaves missing packages missing.
	SkipInstall bool
	// Report, if set, is told of every finished step. Calls are not concurrent.
	Report func(Progress)
}

// Lab is a running lab.
type Lab struct {
	dir  string
	link string // in the root namespace
	http *http.Client
	api  *gophercloud.ServiceClient

	broker *broker.Broker

	agentEnv []string // of agents, beside what all daemons have

	mu    sync.Mutex
	state state
}

// SetAgentEnv adds to the environment of the agents that start from now on, in this process.
func (l *Lab) SetAgentEnv(env ...string) { l.agentEnv = env }

func newLab(dir string) *Lab {
	// Connections are not kept: a test that looks for leaked goroutines should find none of ours.
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 2 * time.Minute}
	return &Lab{dir: dir, link: linkFor(dir), http: client}
}

// Open returns the lab that runs, or ErrNotUp.
func Open(o Options) (*Lab, error) {
	dir, err := resolveDir(o.Dir)
	if err != nil {
		return nil, err
	}
	s, err := readState(dir)
	if err != nil {
		return nil, err
	}
	if !s.Ready {
		return nil, fmt.Errorf("%w: it was left half made in %s; up completes it, down removes it", ErrNotUp, dir)
	}
	l := newLab(dir)
	l.state = s
	return l, l.connect()
}

// connect makes the clients of a lab that is complete.
func (l *Lab) connect() error {
	l.api = newClient(l)
	var err error
	if l.broker, err = broker.Open(l.brokerConfig()); err != nil {
		return fmt.Errorf("opening the broker: %w", err)
	}
	return nil
}

// Up makes the lab run: what is missing is made, what is there is left alone.
func Up(ctx context.Context, o Options) (*Lab, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("the lab needs root: it makes network namespaces")
	}
	dir, err := resolveDir(o.Dir)
	if err != nil {
		return nil, err
	}
	l := newLab(dir)
	if err := l.makeDir(); err != nil {
		return nil, err
	}
	release, err := lockFile(l.path("lock"), os.O_CREATE|os.O_RDWR, lockTimeout)
	if err != nil {
		return nil, err
	}
	defer release()
	// Programs that a killed Up was waiting for; they may be half way through what is about to be done.
	if _, err := daemon.Sweep(l.path("jobs")); err != nil {
		return nil, err
	}
	if err := runSteps(ctx, l.groundwork(o), o.Report); err != nil {
		return nil, err
	}
	if err := runSteps(ctx, l.steps(), o.Report); err != nil {
		return nil, err
	}
	if err := l.update(func(s *state) error { s.Ready = true; return nil }); err != nil {
		return nil, err
	}
	return l, l.connect()
}

func (l *Lab) makeDir() error {
	if err := os.MkdirAll(l.dir, 0o755); err != nil {
		return fmt.Errorf("making the lab's directory: %w", err)
	}
	return l.checkDir()
}

// checkDir refuses directories that are not, or could not become, a lab's: Down removes the whole of it.
func (l *Lab) checkDir() error {
	// A directory that another user made could make root write, and Down remove, where that user likes.
	info, err := os.Lstat(l.dir)
	if err != nil {
		return fmt.Errorf("looking at the lab's directory: %w", err)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || !ok || st.Uid != 0 || info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("%s is not a directory that only root may write to", l.dir)
	}
	entries, err := os.ReadDir(l.dir)
	if err != nil {
		return fmt.Errorf("looking at the lab's directory: %w", err)
	}
	for _, e := range entries {
		switch e.Name() {
		case "lock", "state.json", "state.lock", "state.json.new":
			return nil
		}
	}
	if len(entries) > 0 {
		return fmt.Errorf("%s is not empty and not a lab's", l.dir)
	}
	return nil
}

// groundwork is what all other steps stand on.
func (l *Lab) groundwork(o Options) []step {
	return []step{
		{name: "packages", run: func(ctx context.Context) (string, error) {
			if o.SkipInstall {
				return "not looked at", nil
			}
			missing, err := missingPackages(ctx)
			if err != nil {
				return "", err
			}
			if len(missing) > 0 && o.Report != nil {
				// Minutes may pass; nobody should wonder.
				o.Report(Progress{Step: "packages", Note: "installing " + strings.Join(missing, " ") + " …"})
			}
			if _, err := Install(ctx); err != nil {
				return "", err
			}
			if len(missing) > 0 {
				return "installed", nil
			}
			return "present", nil
		}},
		{name: "releases", after: []string{"packages"}, run: func(ctx context.Context) (string, error) {
			return l.ensureSources(ctx, o)
		}},
		{name: "fabric", after: []string{"releases"}, run: func(ctx context.Context) (string, error) {
			return l.plan(ctx, o.Hosts, o.Server)
		}},
	}
}

// steps is all that a lab consists of, in its order.
func (l *Lab) steps() []step {
	steps := []step{{name: "broker", run: l.ensureBroker}}
	switch l.snapshot().Server {
	case Simulated:
		steps = append(steps, step{name: "server", after: []string{"broker"}, run: l.ensureServer})
	case NoServer:
	default:
		steps = append(steps,
			step{name: "database", run: l.ensureDatabase},
			step{name: "schema", after: []string{"database"}, run: func(ctx context.Context) (string, error) {
				if err := l.writeServerConfig(); err != nil {
					return "", err
				}
				return l.ensureSchema(ctx)
			}},
			step{name: "server", after: []string{"schema", "broker"}, run: l.ensureServer},
		)
	}
	for _, h := range l.Hosts() {
		steps = append(steps, step{name: "host " + h.name, run: h.ensure})
	}
	return steps
}

// plan decides, once and for all, on names and numbers, writes them down, and makes the fabric. Labs in other directories
// choose from the same numbers: the address on the fabric's link is what marks a range, and all that follows from it, as
// taken, so no other lab may choose before it is there.
func (l *Lab) plan(ctx context.Context, hosts int, server ServerKind) (string, error) {
	if hosts > maxHosts {
		return "", fmt.Errorf("%d hosts are more than the %d there are addresses for", hosts, maxHosts)
	}
	// A lock on the directory itself leaves no file behind.
	release, err := lockFile("/run", os.O_RDONLY, lockTimeout)
	if err != nil {
		return "", err
	}
	defer release()
	if err := l.update(func(s *state) error {
		if s.Created.IsZero() {
			if err := l.choose(s); err != nil {
				return err
			}
			if s.Server, err = resolveServer(server); err != nil {
				return err
			}
		}
		for n := len(s.Hosts) + 1; n <= hosts; n++ {
			s.Hosts = append(s.Hosts, "hv"+strconv.Itoa(n))
		}
		return nil
	}); err != nil {
		return "", err
	}
	return l.ensureFabric(ctx)
}

func (l *Lab) choose(s *state) error {
	taken, err := takenPrefixes()
	if err != nil {
		return err
	}
	s.Created = time.Now().UTC().Truncate(time.Second)
	s.Prefix = prefixFor(l.dir)
	n, err := pickRange(taken)
	if err != nil {
		return err
	}
	s.Range = rangeName(n)
	// Ports of other labs differ by their ranges, also while nobody listens on them yet.
	if s.APIPort, err = pickPort(9696 + n); err != nil {
		return err
	}
	if s.DBPort, err = pickPort(13306 + n); err != nil {
		return err
	}
	// On an address of our own, where only somebody who listens on all addresses can be in the way; that one is in the way
	// on the loopback address too.
	if s.BrokerPort, err = pickPort(5672); err != nil {
		return err
	}
	_, err = os.Stat(netnsDir)
	s.MadeNetnsDir = errors.Is(err, os.ErrNotExist)
	return nil
}

// AddHost adds one host to the running lab.
func (l *Lab) AddHost(ctx context.Context, report func(Progress)) (*Host, error) {
	release, err := lockFile(l.path("lock"), os.O_CREATE|os.O_RDWR, lockTimeout)
	if err != nil {
		return nil, err
	}
	defer release()
	if _, err := l.plan(ctx, len(l.snapshot().Hosts)+1, ""); err != nil {
		return nil, err
	}
	hosts := l.Hosts()
	h := hosts[len(hosts)-1]
	if err := runSteps(ctx, []step{{name: "host " + h.name, run: h.ensure}}, report); err != nil {
		return nil, err
	}
	return h, nil
}

// Dir is the lab's directory.
func (l *Lab) Dir() string { return l.dir }

func (l *Lab) path(elem ...string) string { return filepath.Join(append([]string{l.dir}, elem...)...) }

// Hosts are all hosts in order.
func (l *Lab) Hosts() []*Host {
	var hosts []*Host
	for _, name := range l.snapshot().Hosts {
		hosts = append(hosts, l.host(name))
	}
	return hosts
}

// Host is the n-th host, counted from 1. It panics when there are fewer: a test that asks for a host it did not order is
// wrong.
func (l *Lab) Host(n int) *Host { return l.Hosts()[n-1] }

// HostNamed finds a host by the name it has in Neutron.
func (l *Lab) HostNamed(name string) (*Host, error) {
	for _, h := range l.Hosts() {
		if h.name == name {
			return h, nil
		}
	}
	return nil, fmt.Errorf("there is no host %q; there are: %s", name, strings.Join(l.snapshot().Hosts, " "))
}

// Broker is the lab's RabbitMQ node.
func (l *Lab) Broker() *broker.Broker { return l.broker }

// Neutron is a client of the Networking API, as an administrator.
func (l *Lab) Neutron() *gophercloud.ServiceClient { return l.api }
