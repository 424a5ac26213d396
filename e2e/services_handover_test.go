// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/patchbay-sdn/patchbay/internal/metaproxy"
	"github.com/patchbay-sdn/patchbay/lab"
	"github.com/patchbay-sdn/patchbay/lab/hostile"
)

const (
	servicesSecret = "not a real secret"
	// shortLease has a client renew some times in a test.
	shortLease = 2 * time.Minute
	// Beside metadata_path of a Python agent nothing but metadata answers at 169.254.169.254.
	dns4, dns6 = "169.254.169.253", "fd00::254"
)

// TestServicesHandover has the Python agent of a release answer DHCP, metadata and DNS with its extensions, hands the host to Patchbay and back, twice. A VM with a
// short lease keeps its address throughout: nothing but its client changes it. After each hand-over new leases, metadata and DNS have the same answers, the addresses
// that metadata_path gave are what they were, and no program and no flow of the other agent is left. Patchbay gives these answers from its snapshot as well, with broker, server
// and database away, after a restart of switch and agent.
func TestServicesHandover(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	start := time.Now()
	x := &services{whole: t, leased: &leased{cloud: &cloud{l: lab.New(t, 1), ctx: ctx, round: round{name: "services"}}}}
	t.Cleanup(x.close)
	t.Cleanup(func() { x.table.print(time.Since(start)) })
	if !x.run(t, "a Python agent with dhcp, metadata_path and dns_forwarder starts, VMs are plugged in", "1", x.prepare) ||
		!x.run(t, "the Python agent answers", "1", func(t *testing.T) { x.first = x.answers(t, lab.Python) }) ||
		!x.run(t, "a VM has a lease of the Python agent", "1", x.bind) {
		return
	}
	for range 2 {
		for _, kind := range []lab.AgentKind{lab.Patchbay, lab.Python} {
			x.run(t, "handed to "+string(kind), "1", func(t *testing.T) { x.hand(t, kind) })
			x.run(t, "the VM renews its lease at "+string(kind), "1", func(t *testing.T) { x.renewed(t, kind) })
			if kind == lab.Patchbay {
				x.run(t, "the same answers with broker, server and database away, after a restart of switch and agent", "1", x.alone)
			}
		}
	}
	x.run(t, "the VM kept its address", "1", x.kept)
}

// services is a host with what TestServicesHandover needs.
type services struct {
	*leased
	whole       *testing.T // what lasts longer than a case
	options     []string
	asks, talks *lab.VM // one asks for leases, the other for the rest
	first       map[string]string
	provider    string

	client *exec.Cmd // of x.vm
	env    string
	said   bytes.Buffer
	lost   []string // when the VM had no address
	end    func()
}

func (x *services) close() {
	if x.end != nil {
		x.end()
	}
	if x.client != nil {
		_ = x.client.Process.Kill()
		_ = x.client.Wait()
	}
	x.leased.close()
}

// prepare starts the Python agent, and plugs VMs in.
func (x *services) prepare(t *testing.T) {
	h := x.l.Host(1)
	if _, err := h.Switch().Vsctl(x.ctx, "--may-exist", "add-br", "br-meta", "--", "set", "Bridge", "br-meta", "datapath_type=netdev"); err != nil {
		t.Fatal(err)
	}
	x.options = append([]string{
		filtering, "agent.extensions=dhcp,metadata_path,dns_forwarder", "DHCP.enable_ipv6=true", fmt.Sprintf("DEFAULT.dhcp_lease_duration=%d", int(shortLease.Seconds())),
		"ovs.bridge_mappings=physnet1:br-ex,meta:br-meta", "METADATA.metadata_proxy_shared_secret=" + servicesSecret, "METADATA.host_proxy_listen_port=8480",
		"dns_forwarder.client_dns_server_ports=" + dns4 + ":53,[" + dns6 + "]:53",
	}, x.upstreams()...)
	if err := h.StartAgent(x.ctx, lab.Python, x.options...); err != nil {
		t.Fatal(err)
	}
	x.leases(t)
	x.vm = x.plugVM(t, "keeps", 1, 50, false)
	x.asks, x.talks = x.plugVM(t, "asks", 1, 51, false).VM, x.plugVM(t, "talks", 1, 52, false).VM
	if err := x.l.WaitActive(x.ctx, x.vm.PortID, x.asks.PortID, x.talks.PortID); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"route", "replace", hostile.ServiceAddress.String() + "/32", "dev", "eth0"}, {"route", "replace", dns4 + "/32", "dev", "eth0"},
		// The Python agent answers ARP for none of them.
		{"neighbour", "replace", dns4, "lladdr", hostile.ServiceMAC.String(), "dev", "eth0", "nud", "permanent"},
		{"neighbour", "replace", "fe80::fe", "lladdr", hostile.ServiceMAC.String(), "dev", "eth0", "nud", "permanent"},
		{"-6", "route", "replace", dns6 + "/128", "via", "fe80::fe", "dev", "eth0"},
	} {
		if out, err := x.talks.Command(x.ctx, "ip", args...).CombinedOutput(); err != nil {
			t.Fatalf("ip %v: %v: %s", args, err, out)
		}
	}
}

// upstreams starts what stands for Nova and for a resolver, where the host reaches them, and returns the options that name them.
func (x *services) upstreams() []string {
	t := x.whole
	t.Helper()
	host, _, err := net.SplitHostPort(x.l.Broker().Addr())
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0")) //nolint:noctx // it ends with the test
	if err != nil {
		t.Fatal(err)
	}
	nova := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get("X-Instance-ID")
		if r.Header.Get("X-Instance-ID-Signature") != (&metaproxy.Nova{Secret: servicesSecret}).Signature(id) {
			http.Error(w, "wrong signature", http.StatusForbidden)
			return
		}
		fmt.Fprint(w, id+" of "+r.Header.Get("X-Tenant-ID")+" "+r.URL.Path)
	})}
	go func() { _ = nova.Serve(l) }()
	t.Cleanup(func() { _ = nova.Close() })
	u, err := net.ListenPacket("udp", net.JoinHostPort(host, "0")) //nolint:noctx // the same
	if err != nil {
		t.Fatal(err)
	}
	resolver := &dns.Server{PacketConn: u, Handler: dns.HandlerFunc(resolve)}
	go func() { _ = resolver.ActivateAndServe() }()
	t.Cleanup(func() { _ = resolver.Shutdown() })
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return []string{"METADATA.nova_metadata_host=" + host, "METADATA.nova_metadata_port=" + port, "dns_forwarder.upstream_dns_server_ports=" + u.LocalAddr().String()}
}

// resolve answers by the first label of the name.
func resolve(w dns.ResponseWriter, q *dns.Msg) {
	m, asked := new(dns.Msg).SetReply(q), q.Question[0]
	m.RecursionAvailable = true
	head := dns.RR_Header{Name: asked.Name, Rrtype: asked.Qtype, Class: dns.ClassINET, Ttl: 60}
	switch label, _, _ := strings.Cut(strings.ToLower(asked.Name), "."); {
	case label == "nobody":
		m.Rcode = dns.RcodeNameError
	case label == "broken":
		m.Rcode = dns.RcodeServerFailure
	case asked.Qtype == dns.TypeA:
		m.Answer = []dns.RR{&dns.A{Hdr: head, A: net.IPv4(192, 0, 2, 80)}}
	case asked.Qtype == dns.TypeAAAA:
		m.Answer = []dns.RR{&dns.AAAA{Hdr: head, AAAA: net.ParseIP("2001:db8::80")}}
	case asked.Qtype == dns.TypeTXT:
		for i := range 4 {
			m.Answer = append(m.Answer, &dns.TXT{Hdr: head, Txt: []string{strings.Repeat("x", 200) + fmt.Sprint(i)}})
		}
	}
	if opt := q.IsEdns0(); opt == nil {
		m.Truncate(dns.MinMsgSize)
	}
	_ = w.WriteMsg(m)
}

// answers asks for all that the agent serves, and returns what came.
func (x *services) answers(t *testing.T, kind lab.AgentKind) map[string]string {
	t.Helper()
	got := map[string]string{}
	if !x.eventually(wired, func() bool { got["metadata"] = x.metadata(); return strings.HasPrefix(got["metadata"], "200 ") }) {
		t.Errorf("%s: metadata: %s", kind, got["metadata"])
	}
	for _, q := range []struct {
		name  string
		kind  uint16
		edns  uint16
		first string
	}{
		{"one.example.", dns.TypeA, 0, dns4}, {"oNe.eXample.", dns.TypeA, 0, dns4}, {"one.example.", dns.TypeAAAA, 0, dns6}, {"nobody.example.", dns.TypeA, 0, dns4}, {"broken.example.", dns.TypeA, 0, dns6},
		{"text.example.", dns.TypeTXT, 1232, dns4}, {"text.example.", dns.TypeTXT, 0, dns6}, {"empty.example.", dns.TypeMX, 0, dns4},
	} {
		m := new(dns.Msg).SetQuestion(q.name, q.kind)
		if q.edns > 0 {
			m.SetEdns0(q.edns, false)
		}
		key := fmt.Sprintf("DNS %s %s, EDNS %d, at %s", dns.TypeToString[q.kind], q.name, q.edns, q.first)
		if !x.eventually(wired, func() bool { got[key] = x.query(q.first, m); return !strings.HasPrefix(got[key], "none") }) {
			t.Errorf("%s: %s: %s", kind, key, got[key])
		}
	}
	lease, err := x.udhcpc(t, x.asks, "eth0")
	if err != nil {
		t.Errorf("%s: udhcpc: %v", kind, err)
	}
	for _, k := range []string{"ip", "mask", "router", "dns", "mtu", "lease", "broadcast", "serverid"} {
		got["DHCP "+k] = lease[k]
	}
	lease, err = x.dhclient(t, x.asks, "-6", "-D", "LL")
	if err != nil {
		t.Errorf("%s: dhclient -6: %v", kind, err)
	}
	got["DHCPv6 address"], got["DHCPv6 DNS"] = strings.Fields(lease["iaaddr"] + " ?")[0], lease["dhcp6.name-servers"]
	return got
}

// metadata asks who the VM is.
func (x *services) metadata() string {
	conn, err := dialIn(x.talks.Netns, net.JoinHostPort(hostile.ServiceAddress.String(), "80"))
	if err != nil {
		return err.Error()
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(2 * time.Second))
	fmt.Fprint(conn, "GET /latest/meta-data HTTP/1.0\r\n\r\n")
	text, err := io.ReadAll(conn)
	head, body, _ := bytes.Cut(text, []byte("\r\n\r\n"))
	if _, status, ok := strings.Cut(string(head), " "); ok && err == nil {
		return status[:3] + " " + string(body)
	}
	return fmt.Sprintf("%v: %s", err, text)
}

// query asks a name server.
func (x *services) query(server string, m *dns.Msg) string {
	var conn net.Conn
	done := make(chan error)
	go func() {
		lockThread()
		err := enter(x.talks.Netns)
		if err == nil {
			conn, err = net.DialTimeout("udp", net.JoinHostPort(server, "53"), time.Second) //nolint:noctx // it has a timeout
		}
		done <- err
	}()
	if err := <-done; err != nil {
		return "none: " + err.Error()
	}
	defer func() { _ = conn.Close() }()
	m.Id = dns.Id()
	c := dns.Client{Timeout: 2 * time.Second, UDPSize: 4096}
	r, _, err := c.ExchangeWithConn(m, &dns.Conn{Conn: conn, UDPSize: 4096})
	if err != nil {
		return "none: " + err.Error()
	}
	lines := []string{fmt.Sprintf("%s, truncated %t, recursion %t, for %s", dns.RcodeToString[r.Rcode], r.Truncated, r.RecursionAvailable, r.Question[0].Name)}
	for _, rr := range r.Answer {
		lines = append(lines, rr.String())
	}
	slices.Sort(lines[1:])
	return strings.Join(lines, "; ")
}

// bind has a client lease the VM's address, and looks at the address from then on.
func (x *services) bind(t *testing.T) {
	x.bare(t, x.vm.VM, "eth0")
	var path string
	path, x.env = script(x.whole)
	x.client = x.vm.Command(x.ctx, "udhcpc", udhcpcArgs(path, "eth0")...)
	x.client.Stdout, x.client.Stderr = &x.said, &x.said
	if err := x.client.Start(); err != nil {
		t.Fatal(err)
	}
	if !x.eventually(wired, func() bool { return told(x.env)["action"] == "bound" }) {
		t.Fatalf("not bound: %s", x.said.String())
	}
	// The router of a network answers ARP; here is none.
	if out, err := x.vm.Command(x.ctx, "ip", "neighbour", "replace", "10.21.0.1", "lladdr", "fa:16:3e:00:00:01", "dev", "eth0", "nud", "permanent").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	x.end = every(200*time.Millisecond, func() {
		if out, err := x.vm.Command(x.ctx, "ip", "-4", "-o", "address", "show", "dev", "eth0").Output(); err == nil && !strings.Contains(string(out), " 10.21.0.50/24 ") {
			x.lost = append(x.lost, time.Now().Format(time.TimeOnly))
		}
	})
	x.provider = x.given(t)
}

// given is what metadata_path has written beside the VM's port.
func (x *services) given(t *testing.T) string {
	t.Helper()
	var out []string
	for _, key := range []string{"provider_ip", "provider_mac"} {
		value, err := x.l.Host(1).Switch().Vsctl(x.ctx, "get", "Port", "tap"+x.talks.PortID[:11], "other_config:"+key)
		if err != nil {
			t.Error(err)
		}
		out = append(out, strings.TrimSpace(value))
	}
	return strings.Join(out, " ")
}

// hand gives the host to an agent. A Python agent ends as a service manager ends its main process alone, and leaves its haproxy.
func (x *services) hand(t *testing.T, kind lab.AgentKind) {
	h := x.l.Host(1)
	if kind == lab.Patchbay {
		if err := h.SignalAgent(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if !x.eventually(wired, func() bool { _, pid := h.Agent(); return pid == 0 }) {
			t.Fatal("the Python agent does not end")
		}
		if len(x.haproxies(t)) == 0 {
			t.Error("the Python agent has no haproxy: nothing is shown about one that is left")
		}
	} else if err := h.StopAgent(x.ctx); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := h.StartAgent(x.ctx, kind, x.options...); err != nil {
		t.Fatal(err)
	}
	got := x.answers(t, kind)
	t.Logf("all is answered again %.1f s after the start", time.Since(began).Seconds())
	x.same(t, kind, got)
	if list := x.haproxies(t); kind == lab.Patchbay && len(list) > 0 {
		t.Errorf("haproxy still runs: %v", list)
	}
	x.flows(t, kind)
	t.Logf("its flows are alone %.1f s after the start", time.Since(began).Seconds())
}

// same compares answers with the first ones, and the addresses that metadata_path gave with those it gave first.
func (x *services) same(t *testing.T, kind lab.AgentKind, got map[string]string) {
	t.Helper()
	for _, k := range slices.Sorted(maps.Keys(x.first)) {
		if why, known := servedOtherwise[k]; x.first[k] != got[k] && (!known || kind == lab.Python) {
			t.Errorf("%s: the Python agent answered %q first, and now %s %q", k, x.first[k], kind, got[k])
		} else if x.first[k] != got[k] {
			t.Logf("%s: the Python agent %q, Patchbay %q: %s", k, x.first[k], got[k], why)
		}
	}
	if now := x.given(t); now != x.provider {
		t.Errorf("the VM's addresses for metadata are %s, and were %s", now, x.provider)
	}
}

// alone asks for everything while nobody answers the agent, after a restart of switch and agent.
func (x *services) alone(t *testing.T) {
	x.rebooted(t, func() {
		began := time.Now()
		got := x.answers(t, lab.Patchbay)
		t.Logf("all is answered again %.1f s after the start", time.Since(began).Seconds())
		x.same(t, lab.Patchbay, got)
	}, x.options...)
}

// servedOtherwise is what Patchbay answers otherwise, with the reason.
var servedOtherwise = map[string]string{}

// haproxies are the processes of the Python agent's proxy.
func (x *services) haproxies(t *testing.T) (pids []string) {
	t.Helper()
	list, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range list {
		if text, err := os.ReadFile(name); err == nil && bytes.Contains(text, []byte(x.l.Host(1).Dir())) && bytes.Contains(text, []byte("host_metadata_proxy.haproxy.conf")) && bytes.Contains(text, []byte("haproxy\x00")) {
			pids = append(pids, filepath.Base(filepath.Dir(name)))
		}
	}
	return pids
}

// flows looks at who takes DNS queries: the agent that runs, and soon no other; nor is any other flow of Patchbay left to the Python agent.
func (x *services) flows(t *testing.T, kind lab.AgentKind) {
	t.Helper()
	// The Python agent has one flow for each address, Patchbay one for each address and port.
	wantAll, wantOne := 2, 0
	if kind == lab.Patchbay {
		wantAll, wantOne = 0, 2*3
	}
	var forAll, forOne, left []string
	if !x.eventually(settled, func() bool {
		text, err := x.l.Host(1).Flows(x.ctx, "br-int")
		if err != nil {
			t.Fatal(err)
		}
		forAll, forOne, left = nil, nil, nil
		for line := range strings.Lines(text) {
			switch {
			case !strings.Contains(line, "tp_dst=53 ") || !strings.Contains(strings.ToLower(line), "controller"):
			case strings.Contains(line, "in_port="):
				forOne = append(forOne, line)
			default:
				forAll = append(forAll, line)
			}
			if kind == lab.Python && strings.Contains(line, "cookie="+agentCookie) {
				left = append(left, line)
			}
		}
		return len(forAll) == wantAll && len(forOne) == wantOne && len(left) == 0
	}) {
		t.Errorf("with %s there are %d flows for DNS of all ports, want %d, and %d of one port, want %d; left of Patchbay:\n%s", kind, len(forAll), wantAll, len(forOne), wantOne, strings.Join(left, ""))
	}
}

// renewed has the client renew, at the Python agent when its time comes: that does not answer a renewal that is sent to the server alone.
func (x *services) renewed(t *testing.T, kind lab.AgentKind) {
	before := x.renewals()
	if kind == lab.Patchbay {
		signalled(t, x.client)
	}
	began := time.Now()
	if !x.eventually(shortLease+wired, func() bool { return x.renewals() > before }) {
		t.Fatalf("not renewed within %s: %s", shortLease, x.said.String())
	}
	t.Logf("renewed after %.1f s", time.Since(began).Seconds())
	if got := told(x.env); got["ip"] != "10.21.0.50" {
		t.Errorf("renewed with %s", got["ip"])
	}
}

func (x *services) renewals() int {
	text, _ := os.ReadFile(x.env)
	return bytes.Count(text, []byte("action=renew\n"))
}

// kept says whether the VM had its address all the time.
func (x *services) kept(t *testing.T) {
	x.end()
	x.end = nil
	text, err := os.ReadFile(x.env)
	if err = errors.Join(err, x.client.Process.Signal(syscall.Signal(0))); err != nil {
		t.Fatal(err)
	}
	_, after, _ := bytes.Cut(text, []byte("action=bound\n"))
	n := bytes.Count(after, []byte("action=deconfig\n")) + bytes.Count(after, []byte("action=nak\n")) + bytes.Count(after, []byte("action=bound\n"))
	fmt.Printf("%d renewals, the address lost %d times\n", x.renewals(), n+len(x.lost))
	if n > 0 || len(x.lost) > 0 {
		t.Errorf("the client gave the address up %d times; the link had none at %v: %s", n, x.lost, x.said.String())
	}
}
