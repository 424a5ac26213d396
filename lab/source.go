// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/patchbay-sdn/patchbay/lab/release"
)

const (
	// EnvBrokerSuite is the environment variable that names the suite of RabbitMQ of new labs.
	EnvBrokerSuite = "PATCHBAY_LAB_BROKER"
	// EnvSwitchSuite is the environment variable that names the suite of Open vSwitch of new labs.
	EnvSwitchSuite = "PATCHBAY_LAB_SWITCH"
	// NoStore as Options.Releases keeps other releases in the lab's own directory: they end with the lab.
	NoStore = "none"
)

// Source is where a part of the lab comes from.
type Source struct {
	Suite string `json:"suite"`
	// Root is its root directory, empty for the packages of the machine.
	Root    string `json:"root,omitempty"`
	Version string `json:"version,omitempty"`
	// Beside are the versions of what it is installed with, oslo.messaging and Erlang for instance.
	Beside map[string]string `json:"beside,omitempty"`
}

// String is the version and the suite: 29.0.0 (sid).
func (s Source) String() string {
	if s.Suite == "" {
		return ""
	}
	return release.Upstream(s.Version) + " (" + s.Suite + ")"
}

// Sources are those of the parts that depend on a release. MariaDB is the machine's in every lab.
type Sources struct {
	Neutron Source `json:"neutron"`
	Broker  Source `json:"broker"`
	Switch  Source `json:"switch"`
}

// Sources are the lab's.
func (l *Lab) Sources() Sources { return l.snapshot().Sources }

// suites are those that are asked for; empty stands for the machine's own.
type suites struct{ neutron, broker, vswitch string }

// resolveSuites reads options and environment. A simulated server has a release of its own, which is no suite. Broker and switch are
// of the release's suite unless they are named.
func resolveSuites(o Options, server ServerKind, machine string, getenv func(string) string) (suites, error) {
	named := func(option, variable string) (string, error) {
		if option == "" {
			option = getenv(variable)
		}
		if option == "" {
			return "", nil
		}
		r, err := release.Find(option)
		return r.Suite, err
	}
	variable := EnvRelease
	if server == Simulated {
		variable = ""
	}
	var s suites
	var err1, err2, err3 error
	s.neutron, err1 = named(o.Release, variable)
	s.broker, err2 = named(o.Broker, EnvBrokerSuite)
	s.vswitch, err3 = named(o.Switch, EnvSwitchSuite)
	if err := errors.Join(err1, err2, err3); err != nil {
		return suites{}, err
	}
	for _, part := range []*string{&s.broker, &s.vswitch} {
		if *part == "" {
			*part = s.neutron
		}
	}
	for _, part := range []*string{&s.neutron, &s.broker, &s.vswitch} {
		if *part == machine {
			*part = ""
		}
	}
	return s, nil
}

// ensureSources decides, once, where the parts of a lab come from, and makes the root directories that are missing.
func (l *Lab) ensureSources(ctx context.Context, o Options) (string, error) {
	machine, err := release.MachineSuite()
	if err != nil {
		return "", err
	}
	server, err := resolveServer(o.Server)
	if err != nil {
		return "", err
	}
	have, err := readState(l.dir)
	if err != nil && !errors.Is(err, ErrNotUp) {
		return "", err
	}
	if !have.Created.IsZero() {
		server = have.Server
	}
	want, err := resolveSuites(o, server, machine, os.Getenv)
	if err != nil {
		return "", err
	}
	if !have.Created.IsZero() {
		if err := have.Sources.matches(want, machine); err != nil && (o.Release != "" || o.Broker != "" || o.Switch != "") {
			return "", err
		}
		return have.Sources.note(), l.present(ctx, o, have.Sources)
	}
	sources, err := l.findSources(ctx, o, want, machine)
	if err != nil {
		return "", err
	}
	made := queues(os.Getenv(EnvQueues))
	if err := made.check(); err != nil {
		return "", err
	}
	return sources.note(), l.update(func(s *state) error { s.Sources, s.Queues = sources, made; return nil })
}

// matches says whether a lab that is there is the one that is asked for.
func (s Sources) matches(want suites, machine string) error {
	for _, part := range []struct{ name, have, want string }{
		{"Neutron", s.Neutron.Suite, want.neutron}, {"the broker", s.Broker.Suite, want.broker}, {"the switch", s.Switch.Suite, want.vswitch},
	} {
		if part.want == "" {
			part.want = machine
		}
		if part.have == "" {
			part.have = machine
		}
		if part.have != part.want {
			return fmt.Errorf("the lab is up with %s of %s and not of %s; down ends it", part.name, part.have, part.want)
		}
	}
	return nil
}

// present brings back root directories that were removed under a lab.
func (l *Lab) present(ctx context.Context, o Options, s Sources) error {
	for _, part := range []Source{s.Neutron, s.Broker, s.Switch} {
		if part.Root == "" || release.Has(part.Root, "usr") {
			continue
		}
		root, err := l.root(ctx, o, part.Suite)
		if err != nil {
			return err
		}
		if root != part.Root {
			return fmt.Errorf("the root directory %s of this lab is gone; down and up use %s", part.Root, root)
		}
	}
	return nil
}

func (l *Lab) findSources(ctx context.Context, o Options, want suites, machine string) (Sources, error) {
	var s Sources
	for _, part := range []struct {
		source        *Source
		suite, figure string
	}{{&s.Neutron, want.neutron, "neutron"}, {&s.Broker, want.broker, "rabbitmq"}, {&s.Switch, want.vswitch, "openvswitch"}} {
		part.source.Suite = machine
		if part.suite != "" {
			root, err := l.root(ctx, o, part.suite)
			if err != nil {
				return s, err
			}
			part.source.Suite, part.source.Root = part.suite, root
		}
		versions, err := release.Versions(ctx, part.source.Root)
		if err != nil {
			return s, err
		}
		part.source.Version, part.source.Beside = versions[part.figure], versions
	}
	return s, nil
}

// root is the root directory of a suite, from the store or, without one, in the lab's directory.
func (l *Lab) root(ctx context.Context, o Options, suite string) (string, error) {
	dir := o.Releases
	if dir == "" {
		dir = os.Getenv(release.EnvDir)
	}
	plain := dir == NoStore
	if plain {
		dir = l.path("releases")
	}
	store, err := release.Open(dir)
	if err != nil {
		return "", err
	}
	store.Plain = plain
	if o.Report != nil {
		store.Report = func(note string) { o.Report(Progress{Step: "releases", Note: note}) }
	}
	if !o.SkipInstall {
		if _, err := Install(ctx, release.Tools()...); err != nil {
			return "", err
		}
	}
	return store.Root(ctx, suite)
}

// note has the versions as dpkg writes them: suites that move have several of one upstream version.
func (s Sources) note() string {
	part := func(name string, from Source) string { return name + " " + from.Version + " (" + from.Suite + ")" }
	return strings.Join([]string{part("Neutron", s.Neutron), part("RabbitMQ", s.Broker), part("Open vSwitch", s.Switch)}, ", ")
}

// Versions are those of all parts, as dpkg writes them: for the results of a test.
func (s Sources) Versions() string {
	all := map[string]string{"rabbitmq": s.Broker.Version, "erlang": s.Broker.Beside["erlang"], "openvswitch": s.Switch.Version}
	for _, name := range []string{"neutron", "oslo.messaging", "neutron-lib", "os-ken", "python"} {
		all[name] = s.Neutron.Beside[name]
	}
	var list []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		list = append(list, name+"="+all[name])
	}
	return strings.Join(list, " ")
}

// neutronCommand is a command of the lab's Neutron, which finds the lab's files.
func (l *Lab) neutronCommand(argv ...string) []string {
	return release.Command(l.snapshot().Sources.Neutron.Root, []string{l.dir}, argv...)
}

// threaded tells whether Neutron is of a release that has no neutron-server program and no green threads: its server is three
// processes, and its agents may stay on SIGTERM (seen with 28 and 29, for minutes).
func (l *Lab) threaded() bool {
	return !release.Has(l.snapshot().Sources.Neutron.Root, "/usr/bin/neutron-server")
}
