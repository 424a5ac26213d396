// SPDX-License-Identifier: Apache-2.0

//go:build bench

package bench

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/patchbay-sdn/patchbay/lab"
	"github.com/patchbay-sdn/patchbay/lab/guests"
)

const (
	stormGuests, stormNetworks = 1000, 4
	// stormPart is how many ports are made at once: on a busy machine the server needs more than two seconds for one.
	stormPart = 25
	// stormTime is after what time a client that has no address counts as not answered.
	stormTime = 90 * time.Second

	dhcpFiltering = "securitygroup.firewall_driver=openvswitch"
)

// TestDHCPStorm has a thousand guests of a host ask for their address at once: first a DHCP agent and its dnsmasq, with Patchbay as the layer-2 agent, and then
// Patchbay's extension dhcp, on the same ports. On the simulated server Patchbay alone is asked.
func TestDHCPStorm(t *testing.T) {
	s := &storm{l: lab.New(t, 1), count: number("PATCHBAY_STORM_GUESTS", stormGuests)}
	s.host = s.l.Host(1)
	began, before := time.Now(), loadAverage()
	s.start(t)
	times, about, simulated := runs(3), "neutron-server", os.Getenv(lab.EnvServer) == string(lab.Simulated)
	if simulated { // it knows no DHCP agents
		about = "the simulated server"
	} else {
		introduceDHCP(t, s.host) // before the first port: without an agent, the server looks for one at each port
	}
	s.prepare(t)
	t.Logf("%d ports are plugged in after %s", s.count, time.Since(began).Round(time.Second))
	results := []*stormResult{}
	if !simulated {
		results = append(results, s.beside(t, times))
	}
	if err := s.host.StopAgent(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.start(t, "agent.extensions=dhcp")
	wait(t, "the agent to answer all ports", 3*time.Minute, func() bool { return answered(t, s.host) == s.count })
	own := s.measure(t, "Patchbay", "agent", times)
	results = append(results, own)

	fmt.Printf("\n%d guests in %d networks of one host ask at once, %d times; %s; load average before %s, after %s; took %s\n\n",
		s.count, stormNetworks, times, about, before, loadAverage(), time.Since(began).Round(time.Second))
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 1, ' ', 0)
	fmt.Fprintln(out, "| who answers\t| answered\t| wrong\t| p50\t| p99\t| longest\t| sent again\t| CPU of who answers\t| CPU of ovs-vswitchd\t|\n| ---\t| ---\t| ---\t| ---\t| ---\t| ---\t| ---\t| ---\t| ---\t|")
	for _, r := range results {
		fmt.Fprintf(out, "| %s\t| %d of %d\t| %d\t| %s\t| %s\t| %s\t| %d\t| %s\t| %s\t|\n", r.name, len(r.took), times*s.count, r.wrong, ms(r.at(0.5)), ms(r.at(0.99)), ms(r.at(1)),
			r.again, ms(r.cpu/time.Duration(times)), ms(r.vswitchd/time.Duration(times)))
	}
	_ = out.Flush()
	if len(own.took) != times*s.count || own.wrong > 0 {
		t.Errorf("%d of %d guests have their address of Patchbay, %d answers are wrong: %s", len(own.took), times*s.count, own.wrong, own.example)
	}
}

// beside measures a DHCP agent.
func (s *storm) beside(t *testing.T, times int) *stormResult {
	t.Helper()
	if err := s.host.StartDHCP(t.Context()); err != nil {
		t.Fatal(err)
	}
	wait(t, "a dnsmasq for each network", 3*time.Minute, func() bool { return programs(t, s.host, "dhcp")["dnsmasq"] >= stormNetworks })
	wait(t, "dnsmasq to know all ports", 15*time.Minute, func() bool { return s.known(t) == s.count }) // the server takes longer to say that they are ACTIVE
	wait(t, "the first answers of each dnsmasq", 3*time.Minute, func() bool { return s.firstAnswers(t) == stormNetworks })
	r := s.measure(t, "DHCP agent, dnsmasq", "dhcp", times)
	if len(r.took) == 0 {
		t.Error("dnsmasq answered nobody: there is nothing to compare with")
	}
	if err := s.host.StopDHCP(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r
}

// known counts the guests in the files that the dnsmasq processes read.
func (s *storm) known(t *testing.T) (n int) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(s.host.Dir(), "dhcp/state/dhcp/*/host"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		text, _ := os.ReadFile(name) // written anew now and then
		n += strings.Count(string(text), "\n")
	}
	return n
}

// firstAnswers has one guest of each network ask, and counts those that have their address.
func (s *storm) firstAnswers(t *testing.T) (n int) {
	t.Helper()
	var first []guests.Port
	for _, p := range s.ports {
		if !slices.ContainsFunc(first, func(f guests.Port) bool { return f.Router == p.Router }) {
			first = append(first, p)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	list, err := guests.Ask(ctx, s.host.Netns(), first)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range list {
		n += boolInt(l.Took > 0)
	}
	return n
}

// storm is a host with many guests.
type storm struct {
	l     *lab.Lab
	host  *lab.Host
	count int
	ports []guests.Port
}

// stormResult is what those who asked one server got, of all runs.
type stormResult struct {
	name          string
	took          []time.Duration // of those who have an address
	wrong, again  int
	example       string
	cpu, vswitchd time.Duration
}

func (r *stormResult) at(q float64) time.Duration {
	if len(r.took) == 0 {
		return 0
	}
	return r.took[min(int(q*float64(len(r.took))), len(r.took)-1)]
}

func (s *storm) start(t *testing.T, overrides ...string) {
	t.Helper()
	if err := s.host.StartAgent(t.Context(), lab.Patchbay, append([]string{dhcpFiltering}, overrides...)...); err != nil {
		t.Fatal(err)
	}
}

// prepare makes networks and ports, and plugs the ports in.
func (s *storm) prepare(t *testing.T) {
	t.Helper()
	group, err := s.l.CreateGroup(t.Context(), "guests")
	if err != nil {
		t.Fatal(err)
	}
	for n := range stormNetworks {
		made := networkWithDHCP(t, s.l, fmt.Sprintf("storm-%d", n), fmt.Sprintf("10.%d.0.0/22", 32+n))
		prefix := netip.MustParsePrefix(made.CIDR)
		for left := s.count/stormNetworks + boolInt(n < s.count%stormNetworks); left > 0; left -= stormPart {
			list, err := s.l.CreatePorts(t.Context(), s.host, lab.Port{NetworkID: made.ID, Name: "guest", Extra: map[string]any{"security_groups": []string{group}}}, min(left, stormPart))
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range list {
				mac, err := net.ParseMAC(p.MACAddress)
				if err != nil {
					t.Fatal(err)
				}
				s.ports = append(s.ports, guests.Port{Link: "tap" + p.ID[:11], MAC: mac, Address: netip.PrefixFrom(netip.MustParseAddr(p.FixedIPs[0].IPAddress), prefix.Bits()), Router: prefix.Addr().Next()})
			}
			if err := s.host.PlugMany(t.Context(), list); err != nil {
				t.Fatal(err)
			}
		}
	}
	// Networks that ask at the same time are not one after the other.
	slices.SortFunc(s.ports, func(a, b guests.Port) int { return strings.Compare(a.Link, b.Link) })
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// networkWithDHCP makes a network whose subnet has DHCP.
func networkWithDHCP(t *testing.T, l *lab.Lab, name, cidr string) lab.Network {
	t.Helper()
	n, err := l.CreateNetwork(t.Context(), lab.Network{Name: name, CIDR: cidr, DHCP: true})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// introduceDHCP has the server know the DHCP agent of a host: it gives it networks that have none when the agent asks for them, and before the first report
// it does not know it.
func introduceDHCP(t *testing.T, h *lab.Host) {
	t.Helper()
	if err := h.StartDHCP(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := h.StopDHCP(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// answered counts the ports whose DHCP requests come to the agent.
func answered(t *testing.T, h *lab.Host) int {
	t.Helper()
	flows, err := h.Flows(t.Context(), "br-int")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(flows) {
		if strings.Contains(line, "nw_dst=255.255.255.255") && strings.Contains(line, "controller(") {
			n++
		}
	}
	return n
}

// measure has all guests ask, some times. The service is who answers, by the name of its directory.
func (s *storm) measure(t *testing.T, name, service string, times int) *stormResult {
	t.Helper()
	r := &stormResult{name: name}
	vswitchd := fmt.Sprintf("/proc/%d", s.host.Switch().Pids()["ovs-vswitchd"])
	for i := range times {
		time.Sleep(5 * time.Second) // for what else there is to be done
		cpu, own := cpuOf(t, s.host, service), spent(vswitchd)
		ctx, cancel := context.WithTimeout(t.Context(), stormTime)
		list, err := guests.Ask(ctx, s.host.Netns(), s.ports)
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		r.cpu, r.vswitchd = r.cpu+cpuOf(t, s.host, service)-cpu, r.vswitchd+spent(vswitchd)-own
		got := 0
		for _, l := range list {
			if l.Took > 0 {
				got++
				r.took = append(r.took, l.Took)
			}
			if l.Wrong != "" {
				r.wrong++
				r.example = l.Wrong
			}
			r.again += max(0, l.Sent-2)
		}
		t.Logf("%s, %d: %d of %d have their address", name, i+1, got, s.count)
	}
	slices.Sort(r.took)
	return r
}
