// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSuites(t *testing.T) {
	for _, tc := range []struct {
		name   string
		o      Options
		server ServerKind
		env    map[string]string
		want   suites
	}{
		{name: "the machine's", want: suites{}},
		{name: "its own release by number", o: Options{Release: "21"}, want: suites{}},
		{name: "a whole release", o: Options{Release: "29"}, want: suites{"sid", "sid", "sid"}},
		{name: "crossed", o: Options{Release: "29", Broker: "bookworm", Switch: "bullseye"}, want: suites{"sid", "", "bullseye"}},
		{name: "only the switch", o: Options{Switch: "trixie"}, want: suites{"", "", "trixie"}},
		{name: "by environment", env: map[string]string{EnvRelease: "26", EnvSwitchSuite: "28"}, want: suites{"trixie", "trixie", "forky"}},
		{name: "an option before the environment", o: Options{Release: "28"}, env: map[string]string{EnvRelease: "26"}, want: suites{"forky", "forky", "forky"}},
		{name: "the release of a simulated server", server: Simulated, env: map[string]string{EnvRelease: "18", EnvBrokerSuite: "sid"}, want: suites{"", "sid", ""}},
	} {
		got, err := resolveSuites(tc.o, tc.server, "bookworm", func(name string) string { return tc.env[name] })
		if err != nil || got != tc.want {
			t.Errorf("%s: %+v, %v; want %+v", tc.name, got, err, tc.want)
		}
	}
	for _, o := range []Options{{Release: "27"}, {Broker: "buster"}, {Switch: "x"}} {
		if _, err := resolveSuites(o, RealServer, "bookworm", func(string) string { return "" }); err == nil {
			t.Errorf("%+v: no error", o)
		}
	}
}

func TestALabKeepsItsRelease(t *testing.T) {
	have := Sources{Neutron: Source{Suite: "sid"}, Broker: Source{Suite: "bookworm"}}
	if err := have.matches(suites{neutron: "sid"}, "bookworm"); err != nil {
		t.Errorf("the same lab: %v", err)
	}
	if err := have.matches(suites{neutron: "sid", broker: "sid"}, "bookworm"); err == nil || !strings.Contains(err.Error(), "the broker of bookworm and not of sid") {
		t.Errorf("another broker: %v", err)
	}
}

func TestServerProcesses(t *testing.T) {
	l := newLab("/lab")
	l.state.APIPort = 9696
	names := func() string {
		var list []string
		for _, p := range l.serverProcesses() {
			argv, err := p.argv()
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, p.name+" "+argv[len(argv)-1])
		}
		return strings.Join(list, "; ")
	}
	// A root directory without the program is of a release that has three.
	l.state.Sources.Neutron.Root = t.TempDir()
	const files = "--config-file /lab/server/neutron.conf --config-file /lab/server/ml2.ini"
	if got, want := names(), "neutron-rpc-server /lab/server/ml2.ini; neutron-periodic-workers /lab/server/ml2.ini; neutron-api "+files; got != want {
		t.Errorf("without neutron-server:\n%s\nwant\n%s", got, want)
	}
	if l.grace() != threadedGrace {
		t.Errorf("grace %v", l.grace())
	}
	mkfile(t, l.state.Sources.Neutron.Root, "usr/bin/neutron-server")
	if got, want := names(), "neutron-server /lab/server/ml2.ini"; got != want {
		t.Errorf("with neutron-server: %s, want %s", got, want)
	}
	if l.grace() != stopGrace {
		t.Errorf("grace %v", l.grace())
	}
}

func mkfile(t *testing.T, root, name string) {
	t.Helper()
	path := filepath.Join(root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o755); err != nil {
		t.Fatal(err)
	}
}
