// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"
	"github.com/miekg/dns"

	"github.com/patchbay-sdn/patchbay/internal/inspect"
	"github.com/patchbay-sdn/patchbay/lab"
	"github.com/patchbay-sdn/patchbay/lab/guests"
	"github.com/patchbay-sdn/patchbay/lab/hostile"
)

const (
	envRequests = "REQUESTS" // how many malformed requests of a round: 100000

	// hostilePorts each have bounds of their own: 10 DHCP requests and 50 DNS queries a second reach the agent from one.
	hostilePorts = 64
	// hostileTalk has each port send one of each, which is as often as DHCP of a port reaches the agent.
	hostileTalk = 100 * time.Millisecond
	// hostileRest is for connections that the proxy waits for, and for the garbage collector.
	hostileRest = 15 * time.Second
	// atMostLonger is by how much wiring may take longer meanwhile, atMostMore by how much memory may differ.
	atMostLonger, atMostMore = 3.0, 1.10
)

// TestGuestsHostile has the ports of a tenant send malformed DHCP, DNS and metadata requests to the agent that answers them, as many as it takes; then one
// port sends them as fast as the switch does. Meanwhile a VM of another tenant, with the same addresses, asks and must get its own answers, ports are plugged
// in and must not take much longer, and afterwards the agent must be as before.
func TestGuestsHostile(t *testing.T) {
	seed := uint64(setting(t, envSeed, 1))
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	x := newService(t, seed, setting(t, envRequests, 100_000))
	fmt.Printf("SEED=%d REQUESTS=%d\n", seed, x.requests)
	x.paced(x.requests/10, func() {}) // buffers and tables have their size then
	time.Sleep(hostileRest)
	before, resident, lines := x.agentStatus(), memoryOf(t, x.l.Host(1), "VmRSS:"), x.logLines()
	quiet := x.took(x.wire("quiet", probes))
	live := x.live()

	began := time.Now()
	var wired []ports.Port
	end := x.asksToo()
	sent := x.paced(x.requests, func() { wired = x.wire("meanwhile", probes) })
	end()
	meanwhile := x.took(wired)
	x.reached(before, x.agentStatus(), sent, time.Since(began))

	end = x.asksToo()
	began = time.Now()
	flooded := x.flood(func() { wired = x.wire("flood", probes) })
	took := time.Since(began)
	end()
	during := x.took(wired)
	time.Sleep(hostileRest)
	after, residentAfter := x.agentStatus(), memoryOf(t, x.l.Host(1), "VmRSS:")
	liveAfter := x.live()
	x.says([]string{"status"}, 0, "in sync")

	fmt.Printf("one port as fast as the switch takes them: %d requests in %.1f s\n", flooded, took.Seconds())
	times := func(a []time.Duration) float64 { return float64(quantile(a, 0.5)) / float64(quantile(quiet, 0.5)) }
	fmt.Printf("wiring: median %s quiet, %s meanwhile, %.2f times; %s while one port floods, %.2f times; longest %s, %s, %s\n",
		ms(quantile(quiet, 0.5)), ms(quantile(meanwhile, 0.5)), times(meanwhile), ms(quantile(during, 0.5)), times(during),
		ms(quantile(quiet, 1)), ms(quantile(meanwhile, 1)), ms(quantile(during, 1)))
	const mib = 1 << 20
	more := liveAfter / live
	fmt.Printf("memory: %.2f MiB in use before, %.2f MiB after, %.2f times; resident %.1f MiB and %.1f MiB\n", live/mib, liveAfter/mib, more, float64(resident)/mib, float64(residentAfter)/mib)
	panics, failed := after.Totals.Panics, after.Totals.Packets["dhcp"]["failed"]+after.Totals.Packets["dns_forwarder"]["failed"]
	fmt.Printf("%d panics, %d packets failed, %d lines in the agent's log besides those about ports; load average %s\n", panics, failed, x.logLines()-lines, loadAverage())
	x.verdict()
	if panics+failed > 0 || after.PID != before.PID || after.Totals.Errors != before.Totals.Errors {
		t.Errorf("%d panics, %d failed packets, pid %d and %d, %d and %d errors in the log", panics, failed, before.PID, after.PID, before.Totals.Errors, after.Totals.Errors)
	}
	if more > atMostMore {
		t.Errorf("memory is %.2f times that before, want %.2f at most", more, atMostMore)
	}
	if m := times(meanwhile); m > atMostLonger {
		t.Errorf("wiring takes %.2f times as long, want %.1f at most", m, atMostLonger)
	}
}

// serving is a host whose agent answers DHCP, DNS and metadata requests of its VMs, a tenant that means harm and one that does not.
type serving struct {
	*onCall
	seed     uint64
	requests int
	mallory  *lab.VM
	ports    []hostile.Party // of the first tenant, mallory's not among them
	crowd    *guests.Guests
	victim   *victim

	answers atomic.Int64 // that arrived at ports of the first tenant
	mu      sync.Mutex
	wrong   []string
}

// fault notes what must not be.
func (x *serving) fault(format string, args ...any) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.wrong = append(x.wrong, fmt.Sprintf(format, args...))
}

func newService(t *testing.T, seed uint64, requests int) *serving {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	t.Cleanup(cancel)
	x := &serving{onCall: &onCall{cloud: &cloud{l: lab.New(t, 1), ctx: ctx}, t: t}, seed: seed, requests: requests}
	h := x.l.Host(1)
	x.vsctl(1, "--may-exist", "add-br", "br-meta", "--", "set", "Bridge", "br-meta", "datapath_type=netdev")
	overrides := append([]string{filtering, "agent.extensions=dhcp,dns_forwarder,metadata_path", "DHCP.enable_ipv6=true"}, x.upstreams()...)
	if err := h.StartAgent(ctx, lab.Patchbay, overrides...); err != nil {
		t.Fatal(err)
	}
	x.network.ID = x.tenant("blue")
	x.open = x.group(t, "open")
	x.allow(t, x.open, everything()...)
	x.mallory = x.instance(x.network.ID, "mallory", "blue")
	x.victim = &victim{serving: x, VM: x.instance(x.tenant("red"), "victim", "red")}
	many, err := x.l.CreatePorts(ctx, h, lab.Port{NetworkID: x.network.ID, Name: "hostile", Extra: attributes{"security_groups": []string{x.open}}}, hostilePorts)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.PlugMany(ctx, many); err != nil {
		t.Fatal(err)
	}
	ids, links := []string{x.mallory.PortID, x.victim.PortID}, []string(nil)
	for _, p := range many {
		ids, links = append(ids, p.ID), append(links, "tap"+p.ID[:11])
		own := hostile.Party{MAC: hw(p.MACAddress)}
		for _, ip := range p.FixedIPs {
			if a := netip.MustParseAddr(ip.IPAddress); a.Is4() {
				own.V4 = a
			} else {
				own.V6 = a
			}
		}
		x.ports = append(x.ports, own)
	}
	if err := x.l.WaitActive(ctx, ids...); err != nil {
		t.Fatal(err)
	}
	x.says([]string{"status"}, 0, "in sync")
	if x.crowd, err = guests.Open(ctx, h.Netns(), links, x.heard); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(x.crowd.Close)
	x.victim.listen()
	if !x.eventually(wired, func() bool { return x.victim.once() == 3 }) {
		t.Fatalf("the VM of the other tenant does not get its three answers: %v", x.wrong)
	}
	return x
}

// tenant makes a network of a tenant of its own. All have the same addresses.
func (x *serving) tenant(name string) string {
	x.t.Helper()
	var made struct{ Network identified }
	x.post(x.t, "networks", attributes{"network": attributes{"name": name, "tenant_id": name}}, &made)
	for cidr, version := range map[string]int{"10.31.0.0/22": 4, "fd00:31::/64": 6} {
		sub := attributes{"network_id": made.Network.ID, "tenant_id": name, "ip_version": version, "cidr": cidr, "enable_dhcp": true}
		if version == 6 {
			sub["ipv6_address_mode"], sub["ipv6_ra_mode"] = "dhcpv6-stateful", "dhcpv6-stateful"
		}
		x.post(x.t, "subnets", attributes{"subnet": sub}, nil)
	}
	return made.Network.ID
}

// instance plugs in a VM that knows the way to the metadata service.
func (x *serving) instance(network, name, project string) *lab.VM {
	x.t.Helper()
	v, err := x.l.Host(1).Plug(x.ctx, lab.Port{NetworkID: network, Name: name, Extra: attributes{"device_id": name + "-instance", "tenant_id": project, "security_groups": []string{x.open}}})
	if err != nil {
		x.t.Fatal(err)
	}
	if out, err := v.Command(x.ctx, "ip", "route", "replace", hostile.ServiceAddress.String()+"/32", "dev", "eth0").CombinedOutput(); err != nil {
		x.t.Fatalf("%v: %s", err, out)
	}
	return v
}

// upstreams starts what stands for Nova and for a resolver, where the host reaches them, and returns the options that name them.
func (x *serving) upstreams() []string {
	x.t.Helper()
	host, _, err := net.SplitHostPort(x.l.Broker().Addr())
	if err != nil {
		x.t.Fatal(err)
	}
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0")) //nolint:noctx // it ends with the test
	if err != nil {
		x.t.Fatal(err)
	}
	nova := &http.Server{Handler: http.HandlerFunc(x.nova), ReadHeaderTimeout: time.Minute}
	go func() { _ = nova.Serve(l) }()
	x.t.Cleanup(func() { _ = nova.Close() })
	u, err := net.ListenPacket("udp", net.JoinHostPort(host, "0")) //nolint:noctx // the same
	if err != nil {
		x.t.Fatal(err)
	}
	resolver := &dns.Server{PacketConn: u, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		if q.Question[0].Qtype == dns.TypeA {
			m.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 1}, A: net.IPv4(192, 0, 2, 80)}}
		}
		_ = w.WriteMsg(m)
	})}
	go func() { _ = resolver.ActivateAndServe() }()
	x.t.Cleanup(func() { _ = resolver.Shutdown() })
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return []string{
		"ovs.bridge_mappings=physnet1:br-ex,meta:br-meta", "METADATA.nova_metadata_host=" + host, "METADATA.nova_metadata_port=" + port,
		"METADATA.metadata_proxy_shared_secret=secret", "METADATA.host_proxy_listen_port=80",
		"dns_forwarder.upstream_dns_server_ports=" + u.LocalAddr().String(), "dns_forwarder.client_dns_server_ports=169.254.169.254:53,[fe80::a9fe:a9fe]:53",
	}
}

// nova answers who asks. Whoever is not the second tenant's VM is the first's, whatever it says.
func (x *serving) nova(w http.ResponseWriter, r *http.Request) {
	who, want := r.Header.Get("X-Instance-ID"), "mallory-instance"
	if strings.Contains(r.URL.Path, victimName) {
		want = "victim-instance"
	}
	if who != want || len(r.Header.Values("X-Instance-ID")) != 1 {
		x.fault("Nova is asked for %s by %q, want %s", r.URL.Path, r.Header.Values("X-Instance-ID"), want)
	}
	fmt.Fprint(w, who+" "+r.URL.Path)
}

// heard takes an answer at a port of the first tenant: nothing of the other may be in it, and it is the port's own.
func (x *serving) heard(i int, frame []byte) {
	x.answers.Add(1)
	if x.victim.in(frame) {
		x.fault("port %d of the first tenant received %x", i, frame)
	}
	if to := net.HardwareAddr(frame[:6]); frame[0]&1 == 0 && !bytes.Equal(to, x.ports[i].MAC) {
		x.fault("port %d received what is for %s", i, to)
	}
}

// paced has all ports send DHCP and DNS requests, as often as the switch lets them reach the agent, and mallory write to the metadata service, until count are
// sent and meanwhile has returned. It returns how many were sent of each.
func (x *serving) paced(count int, meanwhile func()) (sent map[string]int) {
	x.t.Helper()
	var over atomic.Bool
	var others sync.WaitGroup
	http := make([]int, 8)
	for i := range http {
		others.Go(func() { http[i] = x.http(uint64(i), count/3/len(http)+1, &over) })
	}
	done := make(chan struct{})
	sent = map[string]int{}
	go func() {
		defer close(done)
		g := hostile.NewRequests(x.seed)
		for next := time.Now(); sent["dhcp"] < count/3+1 || !over.Load(); next = next.Add(hostileTalk) {
			if x.ctx.Err() != nil {
				return
			}
			time.Sleep(time.Until(next))
			for i, own := range x.ports {
				for name, f := range map[string]hostile.Frame{"dhcp": g.DHCP(own, hw(x.victim.MAC)), "dns": g.DNS(own)} {
					if err := x.crowd.Send(i, f.Bytes); err != nil {
						x.fault("%s: %v", f.Kind, err)
						return
					}
					sent[name]++
				}
			}
		}
	}()
	meanwhile()
	over.Store(true)
	others.Wait()
	<-done
	for _, n := range http {
		sent["http"] += n
	}
	return sent
}

// http writes requests to the metadata service as mallory, each to a connection of its own.
func (x *serving) http(worker uint64, count int, over *atomic.Bool) (sent int) {
	g := hostile.NewRequests(x.seed + 1 + worker)
	buf := make([]byte, 4096)
	for sent < count || !over.Load() {
		conn, err := dialIn(x.mallory.Netns, net.JoinHostPort(hostile.ServiceAddress.String(), "80"))
		if err != nil {
			if x.ctx.Err() != nil {
				return sent
			}
			time.Sleep(10 * time.Millisecond) // too many are open, or the switch is busy
			continue
		}
		_, text := g.HTTP("victim-instance")
		_, _ = conn.Write(text)
		_ = conn.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		if n, _ := conn.Read(buf); n > 0 {
			x.answers.Add(1)
			if x.victim.in(buf[:n]) {
				x.fault("mallory read %q", buf[:n])
			}
		}
		_ = conn.(*net.TCPConn).SetLinger(0)
		_ = conn.Close()
		sent++
	}
	return sent
}

// dialIn connects from a namespace.
func dialIn(netns, to string) (conn net.Conn, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		lockThread()
		if err = enter(netns); err == nil {
			conn, err = net.DialTimeout("tcp4", to, time.Second) //nolint:noctx // it has a timeout
		}
	}()
	<-done
	return conn, err
}

// flood has one port send requests as fast as it can, until all are sent and meanwhile has returned.
func (x *serving) flood(meanwhile func()) (sent int) {
	var over atomic.Bool
	var sender sync.WaitGroup
	sender.Go(func() {
		g := hostile.NewRequests(x.seed + 100)
		for ; (sent < x.requests || !over.Load()) && x.ctx.Err() == nil; sent++ {
			f := g.DHCP(x.ports[0], hw(x.victim.MAC))
			if sent%2 == 0 {
				f = g.DNS(x.ports[0])
			}
			if err := x.crowd.Send(0, f.Bytes); err != nil {
				x.fault("%s: %v", f.Kind, err)
				return
			}
		}
	})
	meanwhile()
	over.Store(true)
	sender.Wait()
	return sent
}

// asksToo has the other tenant's VM ask, until the function that it returns is called.
func (x *serving) asksToo() (end func()) {
	return every(100*time.Millisecond, func() { x.victim.once() })
}

// reached says how many requests came to the agent, and what became of them.
func (x *serving) reached(before, after inspect.Status, sent map[string]int, took time.Duration) {
	x.t.Helper()
	total := 0
	for _, n := range sent {
		total += n
	}
	fmt.Printf("%d requests in %.1f s\n", total, took.Seconds())
	line := func(name string, a, b map[string]uint64, least float64) {
		var parts []string
		var sum uint64
		for _, k := range slices.Sorted(maps.Keys(b)) {
			if n := b[k] - a[k]; n > 0 {
				parts = append(parts, fmt.Sprintf("%d %s", n, k))
				sum += n
			}
		}
		fmt.Printf("%s: %d sent, %d came to the agent: %s\n", name, sent[name], sum, strings.Join(parts, ", "))
		if float64(sum) < least*float64(sent[name]) {
			x.t.Errorf("%s: %d of %d requests came to the agent: too few to show anything", name, sum, sent[name])
		}
	}
	line("dhcp", before.Totals.Packets["dhcp"], after.Totals.Packets["dhcp"], 0.5)
	line("dns", before.Totals.Packets["dns_forwarder"], after.Totals.Packets["dns_forwarder"], 0.5)
	line("http", before.Totals.Requests, after.Totals.Requests, 0) // what is no request at all is refused before it is counted
}

// live returns what the agent's heap and stacks hold after the garbage collector, in bytes: the least after some collections, which the scrapes themselves bring about.
// What is resident depends on when it ran last, and on the most that was ever in use: it differs by a tenth between two times at which the same is in use.
func (x *serving) live() float64 {
	x.t.Helper()
	const collections = 4
	least, seen := math.Inf(1), map[float64]bool{}
	if !x.eventually(2*time.Minute, func() bool {
		m := scraped(fetch(x.t, x.overSocket(), "http://agent/metrics"))
		if seen[m["go_memstats_last_gc_time_seconds"]] = true; len(seen) > 1 { // the first is from before
			least = min(least, m["go_memstats_heap_alloc_bytes"]+m["go_memstats_stack_inuse_bytes"])
		}
		return len(seen) > collections
	}) || least <= 0 {
		x.t.Fatalf("the agent's garbage collector ran %d times in two minutes of scrapes", len(seen)-1)
	}
	return least
}

// scraped are the metrics without labels.
func scraped(text string) map[string]float64 {
	m := map[string]float64{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok && !strings.HasPrefix(line, "#") {
			m[name], _ = strconv.ParseFloat(value, 64)
		}
	}
	return m
}

// logLines counts the lines of the agent's log that are not about a port that was plugged in or out.
func (x *serving) logLines() int {
	x.t.Helper()
	text, err := os.ReadFile(x.l.Host(1).AgentLog(lab.Patchbay))
	if err != nil {
		x.t.Fatal(err)
	}
	return bytes.Count(text, []byte("\n")) - bytes.Count(text, []byte(" port is "))
}

// verdict says what one tenant had of the other.
func (x *serving) verdict() {
	x.t.Helper()
	x.mu.Lock()
	defer x.mu.Unlock()
	v := x.victim
	fmt.Printf("another tenant's VM: %d of %d requests answered; %d wrong in %d answers to the first tenant and in its own\n", v.got.Load(), v.asked.Load(), len(x.wrong), x.answers.Load())
	if len(x.wrong) > 0 {
		x.t.Errorf("%d times something was wrong: %s", len(x.wrong), strings.Join(x.wrong[:min(10, len(x.wrong))], "\n"))
	}
	if asked, got := v.asked.Load(), v.got.Load(); got < asked*98/100 {
		x.t.Errorf("the VM of the other tenant got %d answers of %d", got, asked)
	}
}
