// SPDX-License-Identifier: Apache-2.0

//go:build bench

package bench

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/patchbay-sdn/patchbay/lab"
)

// serviceSettle is how long nothing but reports of being alive has to be sent until agents are taken for idle.
const serviceSettle = 15 * time.Second

// TestServices counts what a compute node with fifty networks has for DHCP and metadata: Patchbay with its extensions first, then the Python agent, a DHCP agent
// with a dnsmasq and a haproxy for each network, and a metadata agent.
func TestServices(t *testing.T) {
	s := &services{l: lab.New(t, 1), count: number("PATCHBAY_BENCH_NETWORKS", 50)}
	s.host = s.l.Host(1)
	began, before := time.Now(), loadAverage()
	s.nova(t)
	s.listen(t)
	vsctl := func(args ...string) string {
		out, err := s.host.Switch().Vsctl(t.Context(), args...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	vsctl("--may-exist", "add-br", "br-meta", "--", "set", "Bridge", "br-meta", "datapath_type=netdev")
	own := []string{
		dhcpFiltering, "agent.extensions=dhcp,metadata_path", "ovs.bridge_mappings=physnet1:br-ex,meta:br-meta",
		"METADATA.nova_metadata_host=" + s.novaHost, "METADATA.nova_metadata_port=" + s.novaPort, "METADATA.metadata_proxy_shared_secret=secret",
	}
	s.start(t, lab.Patchbay, own)
	s.prepare(t)
	wait(t, "the agent to answer all ports", 3*time.Minute, func() bool { return answered(t, s.host) == s.count })
	s.stop(t)
	patchbay := s.measure(t, func() {
		s.start(t, lab.Patchbay, own)
		wait(t, "the agent to answer all ports", 3*time.Minute, func() bool { return answered(t, s.host) == s.count })
	}, "agent")
	s.stop(t)
	vsctl("--if-exists", "del-br", "br-meta", "--", "--if-exists", "del-port", "br-int", "int-br-meta")
	introduceDHCP(t, s.host)

	python := s.measure(t, func() {
		s.start(t, lab.Python, []string{dhcpFiltering})
		if err := s.host.StartMetadata(t.Context(), s.novaHost, s.novaPort); err != nil {
			t.Fatal(err)
		}
		if err := s.host.StartDHCP(t.Context(), s.host.MetadataOptions()...); err != nil {
			t.Fatal(err)
		}
		wait(t, "a dnsmasq and a haproxy for each network", 20*time.Minute, func() bool {
			found := programs(t, s.host, "dhcp")
			return found["dnsmasq"] >= s.count && found["haproxy"] >= s.count
		})
		wait(t, "all ports ACTIVE", 15*time.Minute, func() bool { return s.l.WaitActive(t.Context(), s.ids...) == nil })
	}, "agent", "dhcp", "metadata")

	fmt.Printf("\n%d networks with one VM each; neutron-server; load average before %s, after %s; took %s\nPython: %v\nPatchbay: %v\n\n",
		s.count, before, loadAverage(), time.Since(began).Round(time.Second), python.programs, patchbay.programs)
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 1, ' ', 0)
	fmt.Fprintf(out, "| compute node with %d networks\t| Python agents\t| Patchbay\t|\n| ---\t| ---\t| ---\t|\n", s.count)
	for _, r := range []struct {
		what string
		of   func(f *serviceFigures) string
	}{
		{"processes", func(f *serviceFigures) string { return strconv.Itoa(f.processes) }},
		{"memory (PSS)", func(f *serviceFigures) string { return fmt.Sprintf("%.0f MiB", float64(f.pss)/(1<<20)) }},
		{"ports of the switch", func(f *serviceFigures) string { return strconv.Itoa(f.ports) }},
		{"network namespaces", func(f *serviceFigures) string { return strconv.Itoa(f.namespaces) }},
		{"connections to the broker", func(f *serviceFigures) string { return strconv.Itoa(f.connections) }},
		{"RPC calls and casts from start to idle", func(f *serviceFigures) string { return strconv.Itoa(f.rpc) }},
		{"of an idle minute", func(f *serviceFigures) string { return strconv.Itoa(f.idle) }},
		{"from start to idle", func(f *serviceFigures) string { return fmt.Sprintf("%.0f s", f.took.Seconds()) }},
		{"CPU from start to idle", func(f *serviceFigures) string { return fmt.Sprintf("%.1f s", f.cpu.Seconds()) }},
	} {
		fmt.Fprintf(out, "| %s\t| %s\t| %s\t|\n", r.what, r.of(python), r.of(patchbay))
	}
	_ = out.Flush()
}

// services is a host with many networks.
type services struct {
	l                  *lab.Lab
	host               *lab.Host
	count              int
	ids                []string
	novaHost, novaPort string

	mu   sync.Mutex
	sent int       // calls and casts of the host
	last time.Time // when the last one was sent that says more than that an agent is alive
}

// serviceFigures are what the services of a host take.
type serviceFigures struct {
	processes, ports, namespaces, connections, rpc, idle int
	pss                                                  int64
	took, cpu                                            time.Duration
	programs                                             map[string]int
}

// nova is where Nova would be: nobody asks it.
func (s *services) nova(t *testing.T) {
	t.Helper()
	var err error
	if s.novaHost, _, err = net.SplitHostPort(s.l.Broker().Addr()); err != nil {
		t.Fatal(err)
	}
	s.novaPort = "8775"
}

// listen counts what the host publishes.
func (s *services) listen(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	published, err := s.l.Broker().Trace(ctx)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for m := range published {
			_, method := rpc(m)
			if method == "" || !strings.HasPrefix(m.Connection, s.host.MgmtIP()+":") {
				continue
			}
			s.mu.Lock()
			if s.sent++; method != "report_state" { // three agents report every 10 s on average
				s.last = m.At
			}
			s.mu.Unlock()
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
}

func (s *services) published() (sent int, last time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sent, s.last
}

func (s *services) start(t *testing.T, kind lab.AgentKind, overrides []string) {
	t.Helper()
	if err := s.host.StartAgent(t.Context(), kind, overrides...); err != nil {
		t.Fatal(err)
	}
}

func (s *services) stop(t *testing.T) {
	t.Helper()
	if err := s.host.StopAgent(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// prepare makes the networks with a VM's port each, and plugs these in.
func (s *services) prepare(t *testing.T) {
	t.Helper()
	group, err := s.l.CreateGroup(t.Context(), "guests")
	if err != nil {
		t.Fatal(err)
	}
	for n := range s.count {
		made := networkWithDHCP(t, s.l, fmt.Sprintf("network-%d", n), "10.32.0.0/24")
		list, err := s.l.CreatePorts(t.Context(), s.host, lab.Port{NetworkID: made.ID, Name: "vm", Extra: map[string]any{"security_groups": []string{group}, "device_id": fmt.Sprintf("vm-%d", n)}}, 1)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.host.PlugMany(t.Context(), list); err != nil {
			t.Fatal(err)
		}
		s.ids = append(s.ids, list[0].ID)
	}
}

// wait waits until something holds.
func wait(t *testing.T, what string, limit time.Duration, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !holds(); time.Sleep(time.Second) {
		if time.Now().After(end) || t.Context().Err() != nil {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// measure has the services started, and counts when they are idle.
func (s *services) measure(t *testing.T, start func(), of ...string) *serviceFigures {
	t.Helper()
	f, began := &serviceFigures{programs: map[string]int{}}, time.Now()
	from, _ := s.published()
	start()
	wait(t, "the agents to be idle", 10*time.Minute, func() bool { _, last := s.published(); return time.Since(last) > serviceSettle })
	at, last := s.published()
	f.rpc, f.took = at-from, last.Sub(began)
	for _, service := range of {
		f.cpu += cpuOf(t, s.host, service)
	}
	time.Sleep(time.Minute)
	now, _ := s.published()
	f.idle = now - at
	spaces := map[string]bool{}
	for _, service := range of {
		for name, n := range programs(t, s.host, service) {
			f.programs[name] += n
		}
		for _, proc := range processes(t, s.host, service) {
			f.processes++
			f.pss += pss(t, proc)
			if ns, err := os.Readlink(proc + "/ns/net"); err == nil {
				spaces[ns] = true
			}
		}
	}
	f.namespaces = len(spaces) - 1 // the host's own
	list, err := s.host.Switch().Vsctl(t.Context(), "--no-headings", "--format=csv", "--columns=name", "list", "Port")
	if err != nil {
		t.Fatal(err)
	}
	f.ports = len(strings.Fields(list)) - s.count // without those of VMs
	connections, err := s.l.Broker().Connections(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range connections {
		if strings.HasPrefix(c.Name, s.host.MgmtIP()+":") {
			f.connections++
		}
	}
	return f
}

// programs counts the processes of a service by what they are.
func programs(t *testing.T, h *lab.Host, service string) map[string]int {
	t.Helper()
	found := map[string]int{}
	for _, proc := range processes(t, h, service) {
		text, _ := os.ReadFile(proc + "/cmdline")
		args := strings.FieldsFunc(string(text), func(r rune) bool { return r == 0 || r == ' ' }) // a process title has spaces
		if len(args) > 1 && strings.HasPrefix(filepath.Base(args[0]), "python") {
			args = args[1:]
		}
		if len(args) > 0 {
			found[filepath.Base(args[0])]++
		}
	}
	return found
}

// pss is the memory of a process in bytes, of which it has its share of what others have, too.
func pss(t *testing.T, proc string) int64 {
	t.Helper()
	file, err := os.Open(proc + "/smaps_rollup")
	if err != nil {
		return 0 // ended
	}
	defer func() { _ = file.Close() }()
	for in := bufio.NewScanner(file); in.Scan(); {
		if rest, ok := strings.CutPrefix(in.Text(), "Pss:"); ok {
			kb, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return kb << 10
		}
	}
	return 0
}
