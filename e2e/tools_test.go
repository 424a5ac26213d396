// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/lab"
)

// toolCase is a row of the table: what a tool hands the agent, and where it runs it.
type toolCase struct {
	fixture string // of cmd/patchbay/testdata/tools
	image   string // of a container; empty for a service
	// network is one of a type that the tool's files have; bridges are those that the tool makes for it.
	network lab.Network
	bridges []string
}

// toolReleases are the labs, and the tools that run on each. The tools' newest releases want queues that only new servers have.
func toolReleases() []struct {
	release string
	cases   []toolCase
} {
	vxlan, geneve, gre := lab.Network{Type: "vxlan"}, lab.Network{Type: "geneve"}, lab.Network{Type: "gre"}
	return []struct {
		release string
		cases   []toolCase
	}{
		{"21", []toolCase{
			{fixture: "kolla-2023.1", image: "kolla", network: vxlan},
			{fixture: "tripleo", image: "tripleo", network: vxlan},
			{fixture: "rdo", network: lab.Network{Type: "flat", PhysicalNetwork: "extnet"}},
			{fixture: "debian-21", network: vxlan},
			{fixture: "helm-2026.1", image: "helm", network: vxlan},
			{fixture: "osa-2023.1", network: geneve, bridges: []string{"br-vlan"}},
			{fixture: "charm", network: gre, bridges: []string{"br-data"}},
		}},
		{"26", []toolCase{{fixture: "debian-26", network: vxlan}}},
		{"29", []toolCase{
			{fixture: "debian-29", network: vxlan},
			{fixture: "kolla-2026.1", image: "kolla", network: vxlan},
			{fixture: "kolla-features", image: "kolla", network: vxlan},
			{fixture: "osa-2026.1", network: geneve, bridges: []string{"br-vlan"}},
			{fixture: "kolla-sriov", image: "kolla", network: vxlan},
			{fixture: "osa-sriov", network: geneve, bridges: []string{"br-vlan"}},
			{fixture: "helm-master", image: "helm", network: vxlan},
		}},
	}
}

// path is where a tool has a file of its archive.
func (c toolCase) path(name string) string {
	switch name {
	case "neutron-dist.conf":
		return "/usr/share/neutron/" + name
	case "neutron-agent.ini", "ml2-local-ip.ini":
		return "/tmp/pod-shared/" + name
	case "openvswitch_agent.ini", "ml2_conf.ini":
		return "/etc/neutron/plugins/ml2/" + name
	}
	return "/etc/neutron/" + name
}

// TestTools starts the agent with what deployment tools hand it, as they do: in a container, or as a service of a booted Debian. Each cell of the
// table is about one tool: it starts, registers, wires a VM behind a Linux bridge and one that is plugged straight into the switch, the tool's own
// health check passes, and the tool's rules for logs take what it logs.
func TestTools(t *testing.T) {
	x := &tools{}
	start := time.Now()
	t.Cleanup(func() { x.print(time.Since(start)) })
	for _, r := range toolReleases() {
		t.Run(r.release, func(t *testing.T) { x.onRelease(t, r.release, r.cases) })
	}
}

const toolsTime = 12 * time.Minute

// tools is the lab of one release; rows are of all.
type tools struct {
	*smoke
	site    site
	server  string // what the server's queues are
	machine *service
	root    *testing.T // of the release
	rows    []*toolRow
}

// toolRow is what was shown about a tool.
type toolRow struct {
	*smokeRow
	release, in, image string
	cells, contract    []string
}

var toolCells = []string{"starts", "registers", "hybrid VM", "plain VM", "health check", "log"}

func (x *tools) onRelease(t *testing.T, release string, cases []toolCase) {
	ctx, cancel := context.WithTimeout(t.Context(), toolsTime)
	defer cancel()
	patience(t)
	if release != "21" {
		t.Setenv(lab.EnvRelease, release)
	}
	x.smoke = &smoke{filtered: &filtered{agent: lab.Patchbay, cloud: &cloud{ctx: ctx, round: round{name: "tools"}}}}
	x.l = lab.New(t, 2)
	t.Cleanup(x.close)
	x.machine, x.server, x.root = nil, "", t
	x.prepareSite(t)
	for _, c := range cases {
		t.Run(c.fixture, func(t *testing.T) { x.try(t, c) })
	}
}

// prepareSite has a listener with TLS before the broker, whose certificate is that of an authority of its own.
func (x *tools) prepareSite(t *testing.T) {
	u, err := url.Parse(x.l.TransportURL())
	if err != nil {
		t.Fatal(err)
	}
	h := x.l.Host(1)
	x.site = site{broker: u.Host, tls: net.JoinHostPort(u.Hostname(), "5671"), host: h.Name(), localIP: h.LocalIP(), ca: "/etc/neutron/rabbit-client-ca.pem"}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "patchbay lab"}, NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.ParseIP(u.Hostname())},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(x.l.Dir(), "ca.pem"), string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), 0o644)
	listener, err := tls.Listen("tcp", x.site.tls, &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				to, err := net.Dial("tcp", x.site.broker)
				if err == nil {
					go func() { _, _ = io.Copy(to, from); _ = to.Close() }()
					_, _ = io.Copy(from, to)
				}
				_ = from.Close()
			}()
		}
	}()
}

// serve has the server use the virtual host and the queues that the tool's files name. An exchange that is durable for one is refused to another,
// so the virtual host begins empty.
func (x *tools) serve(t *testing.T, h *handed) (transport string) {
	transport = "rabbit://patchbay:patchbay@" + x.site.broker + "/" + url.PathEscape(h.vhost)
	if h.vhost == "/" {
		transport = x.l.TransportURL()
	}
	want := transport + strings.Join(h.rabbit, ",")
	if x.server == "" && h.vhost == "/" && len(h.rabbit) == 0 {
		x.server = want
	}
	if x.server == want {
		return transport
	}
	if err := errors.Join(x.l.StopServer(x.ctx), x.l.Host(2).StopAgent(x.ctx)); err != nil {
		t.Fatal(err)
	}
	_, _ = x.l.Broker().Ctl(x.ctx, "delete_vhost", h.vhost) // which may not be there
	for _, args := range [][]string{{"add_vhost", h.vhost}, {"set_permissions", "-p", h.vhost, "patchbay", ".*", ".*", ".*"}} {
		if _, err := x.l.Broker().Ctl(x.ctx, args...); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(x.l.Dir(), "server", "neutron.conf")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	conf := regexp.MustCompile(`(?m)^transport_url = .*$`).ReplaceAllString(string(text), "transport_url = "+transport)
	conf, _, _ = strings.Cut(conf, "[oslo_messaging_rabbit]")
	conf += "[oslo_messaging_rabbit]\n"
	for _, setting := range h.rabbit {
		conf += strings.Replace(setting, "=", " = ", 1) + "\n"
	}
	writeFile(t, path, conf, 0o600)
	if err := x.l.StartServer(x.ctx); err != nil {
		t.Fatal(err)
	}
	x.server = want
	return transport
}

// try fills a row.
func (x *tools) try(t *testing.T, c toolCase) {
	row := &toolRow{smokeRow: &smokeRow{name: c.fixture}, release: x.l.Sources().Neutron.String(), image: c.image}
	x.row = row.smokeRow
	x.rows = append(x.rows, row)
	began := time.Now()
	defer func() { row.took = time.Since(began) }()
	given := hand(t, c.fixture, c.path, x.site)
	if strings.Contains(strings.Join(mapValues(given.files), ""), x.site.ca) {
		text, err := os.ReadFile(filepath.Join(x.l.Dir(), "ca.pem"))
		if err != nil {
			t.Fatal(err)
		}
		given.files[x.site.ca] = string(text)
	}
	transport := x.serve(t, given)
	where := x.prepareHost(t, c, given)
	row.in = where.note()
	x.startPeer(t, given, transport)
	cell := func(do func(t *testing.T)) bool {
		name := toolCells[len(row.cells)]
		row.cells = append(row.cells, "no")
		ok := t.Run(name, do)
		if ok {
			row.cells[len(row.cells)-1] = "yes"
		}
		return ok
	}
	h := x.l.Host(1)
	before := time.Now()
	if a, err := h.AgentRecord(x.ctx); err == nil && a != nil {
		time.Sleep(time.Until(a.HeartbeatTimestamp.Add(time.Second))) // times of the API are in whole seconds
		before = a.HeartbeatTimestamp
	}
	defer where.stop(t)
	if !cell(func(t *testing.T) { x.starts(t, where, given) }) || !cell(func(t *testing.T) { x.registers(t, h, given, before) }) {
		return
	}
	x.plugTool(t, c, given)
	defer x.unplugTool(t)
	cell(func(t *testing.T) { x.hybridVM(t) })
	cell(func(t *testing.T) { x.plainVM(t, given) })
	cell(func(t *testing.T) { x.health(t, where, given) })
	cell(func(t *testing.T) { x.logged(t, where, given) })
	if made, ok := where.(*container); ok {
		x.contract(t, made, row)
	}
}

// prepareHost makes the host as the tool does: bridges, and a port of the switch's database where the tool opens one.
func (x *tools) prepareHost(t *testing.T, c toolCase, given *handed) place {
	h := x.l.Host(1)
	args := []string{"--if-exists", "del-br", "br-int", "--", "--if-exists", "del-br", "br-tun"}
	for _, b := range c.bridges {
		args = append(args, "--", "--may-exist", "add-br", b, "--", "set", "Bridge", b, "datapath_type=netdev")
	}
	if _, err := h.Switch().Vsctl(x.ctx, args...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, b := range c.bridges {
			_, _ = h.Switch().Vsctl(context.WithoutCancel(x.ctx), "--if-exists", "del-br", b)
		}
	})
	const clear = "iptables -F; iptables -X; iptables -t raw -F; iptables -t raw -X; ip6tables -F; ip6tables -X; ip6tables -t raw -F; ip6tables -t raw -X; ipset destroy; true"
	if out, err := h.Command(x.ctx, "sh", "-c", clear).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if c.image != "kolla" { // which opens the port itself; elsewhere the Python agent does
		const remote = "ptcp:6640:127.0.0.1"
		set := func(what string) error {
			_, err := h.Switch().Appctl(context.WithoutCancel(x.ctx), "ovsdb-server", "ovsdb-server/"+what+"-remote", remote)
			return err
		}
		if err := set("remove"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = set("add") })
	}
	port := x.site.broker
	if strings.Contains(strings.Join(mapValues(given.files), ""), x.site.tls) {
		port = x.site.tls
	}
	_, text, _ := net.SplitHostPort(port)
	number, _ := strconv.Atoi(text)
	if c.image != "" {
		made := newContainer(t, x.ctx, c.image, h)
		made.port = number
		return made
	}
	if x.machine == nil {
		x.machine = boot(x.root, x.ctx, h)
	}
	x.machine.tool, x.machine.port = c.fixture, number
	return x.machine
}

// startPeer starts the agent of the other host, with networks as the tool's.
func (x *tools) startPeer(t *testing.T, given *handed, transport string) {
	h := x.l.Host(2)
	if err := h.StopAgent(x.ctx); err != nil {
		t.Fatal(err)
	}
	overrides := []string{filtering, "DEFAULT.transport_url=" + transport}
	for _, setting := range given.rabbit {
		overrides = append(overrides, "oslo_messaging_rabbit."+setting)
	}
	for _, o := range given.peer {
		name, value, _ := strings.Cut(o, "=")
		if name == "ovs.bridge_mappings" { // the other host has one such bridge
			physical, _, _ := strings.Cut(value, ":")
			o = name + "=" + physical + ":br-ex"
		}
		overrides = append(overrides, o)
	}
	if err := h.StartAgent(x.ctx, lab.Patchbay, overrides...); err != nil {
		t.Fatal(err)
	}
}

func (x *tools) starts(t *testing.T, where place, given *handed) {
	where.start(t, given)
	pid := 0
	if !x.eventually(wired, func() bool { pid = where.pid(); return pid != 0 }) {
		t.Fatal("no agent runs")
	}
	x.wait(2 * second)
	if now := where.pid(); now != pid {
		t.Errorf("the agent was process %d and is process %d", pid, now)
	}
}

func (x *tools) registers(t *testing.T, h *lab.Host, given *handed, before time.Time) {
	var conf map[string]any
	if !x.eventually(2*wired, func() bool {
		a, err := h.AgentRecord(x.ctx)
		if err != nil || a == nil || !a.Alive || !a.HeartbeatTimestamp.After(before) {
			return false
		}
		conf = a.Configurations
		return a.Binary == "neutron-openvswitch-agent"
	}) {
		t.Fatal("the server has not heard from the agent")
	}
	if got, _ := conf["ovs_hybrid_plug"].(bool); got != given.hybrid {
		t.Errorf("ovs_hybrid_plug is %v, want %v: Nova plugs VMs in the other way", conf["ovs_hybrid_plug"], given.hybrid)
	}
}

// plugTool makes a network of a type that the tool has, and VMs: one on the other host; on the tool's host one behind a Linux bridge, one without
// port security that has none, and, if rules of iptables filter ports, one that they cannot filter.
func (x *tools) plugTool(t *testing.T, c toolCase, given *handed) {
	n := &network{Network: c.network}
	n.Name = c.fixture
	if err := x.create(n); err != nil {
		t.Fatal(err)
	}
	x.nets = []*network{n}
	x.open, x.group = x.filtered.group(t, c.fixture+" open"), x.filtered.group(t, c.fixture+" door")
	x.allow(t, x.open, everything()...)
	x.allow(t, x.group, directed(attributes{}, "egress", 4), directed(ranged("udp", doorPort, doorPort), "ingress", 4))
	door := attributes{"security_groups": []string{x.group}}
	plug := func(name string, number, host int, hybrid bool, extra attributes) *vm {
		v := n.add(number, host)
		v.name, v.extra = name, extra
		x.hybrid = hybrid
		if err := x.plug(v, ""); err != nil {
			t.Fatal(err)
		}
		if err := x.hush(v); err != nil {
			t.Fatal(err)
		}
		return v
	}
	x.far = plug("far", 1, 2, false, attributes{"security_groups": []string{x.open}})
	x.near = plug("hybrid", 2, 1, true, door)
	free := attributes{"port_security_enabled": false}
	if !given.hybrid {
		free = door
	}
	x.reds = []*vm{plug("plain", 3, 1, false, free)}
	ids := []string{x.far.PortID, x.near.PortID, x.reds[0].PortID}
	if given.hybrid {
		x.reds = append(x.reds, plug("barred", 4, 1, false, door))
	}
	x.waitActive(t, ids...)
	for _, v := range x.vms() {
		x.announce(t, v)
	}
}

func (x *tools) unplugTool(t *testing.T) {
	for _, v := range x.vms() {
		v.probe.close()
		if err := v.Unplug(context.WithoutCancel(x.ctx), true); err != nil {
			t.Error(err)
		}
	}
	x.nets = nil
}

// filteredLanes are what a VM with the group may hear and say, and what not.
func (x *tools) filteredLanes(v *vm) []*lane {
	forged := func(k token) []byte { return bare(x.far, v.MAC, address4(88), "", 4, k) }
	return []*lane{
		x.to(x.far, v, doorPort, true), x.to(v, x.far, 7, true), x.to(x.far, v, shutPort, false),
		{name: v.name + " from a forged address", from: v, make: forged, ears: []*vm{x.far}},
	}
}

func (x *tools) hybridVM(t *testing.T) {
	x.arrives(t, x.to(x.far, x.near, doorPort, true), true)
	x.arrives(t, x.to(x.near, x.far, 7, true), true)
	x.traffic(t, lossless, second, x.filteredLanes(x.near)...)
}

func (x *tools) plainVM(t *testing.T, given *handed) {
	v := x.reds[0]
	lanes := x.filteredLanes(v)
	if given.hybrid { // it has no port security; the other one has groups that nobody could enforce
		lanes = []*lane{x.to(x.far, v, shutPort, true), x.to(v, x.far, 7, true), x.to(x.far, x.reds[1], doorPort, false), x.to(x.reds[1], x.far, 7, false)}
	}
	x.arrives(t, x.to(v, x.far, 7, true), true)
	x.arrives(t, x.to(x.far, v, doorPort, true), true)
	x.traffic(t, lossless, second, lanes...)
}

func (x *tools) health(t *testing.T, where place, given *handed) {
	var err error
	port := map[bool]int{}
	switch w := where.(type) {
	case *container:
		port[true] = w.port
	case *service:
		port[true] = w.port
	}
	if !x.eventually(wired, func() bool { err = where.healthy(port[true]); return err == nil }) {
		t.Errorf("the tool's check: %v", err)
	}
	if err := where.healthy(1); err == nil {
		t.Error("the tool's check passes whatever is asked")
	}
	var out string
	if !x.eventually(wired, func() bool { out, err = where.run("neutron", "patchbay", "health"); return err == nil }) {
		t.Errorf("patchbay health: %v: %s", err, out)
	}
}

// logged reads the log by the tool's rules, and rotates it as the tool does.
func (x *tools) logged(t *testing.T, where place, given *handed) {
	text := where.log(t)
	if s, ok := where.(*service); ok && s.file == "" {
		x.says("%d lines", journalled(t, text))
		return
	}
	lines, bad := badLine(t, text)
	if bad != "" || lines < 5 {
		t.Errorf("line %d is no record: %q", lines, bad)
	}
	x.says("%d lines", lines)
	if !where.rotate(t) {
		return
	}
	reload(t, where)
	var after string
	if !x.eventually(wired, func() bool { after = where.log(t); return strings.Contains(after, "configuration reloaded") }) {
		t.Errorf("nothing is logged after the rotation:\n%s", after)
	}
	if _, bad := badLine(t, after); bad != "" {
		t.Errorf("after the rotation: %q", bad)
	}
}

// journalled counts lines of the journal that have the fields of oslo.log.
func journalled(t *testing.T, text string) (n int) {
	for line := range strings.Lines(text) {
		var entry map[string]any
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if entry["SYSLOG_IDENTIFIER"] != "neutron-openvswitch-agent" || entry["_TRANSPORT"] != "journal" {
			continue // systemd's own
		}
		n++
		for _, name := range []string{"MESSAGE", "PRIORITY", "LOGGER_NAME", "LOGGER_LEVEL", "CODE_FILE", "CODE_LINE", "CODE_FUNC", "PROCESS_NAME", "THREAD_NAME", "SYSLOG_FACILITY"} {
			if s, _ := entry[name].(string); s == "" {
				t.Errorf("the journal lacks %s: %s", name, line)
			}
		}
	}
	if n < 5 {
		t.Errorf("%d lines of the agent in the journal:\n%s", n, text)
	}
	return n
}

func (x *tools) print(took time.Duration) {
	fmt.Printf("\n| tool | Neutron | runs in | %s | due: sent | arrived | forbidden: sent | arrived | seconds | |\n", strings.Join(toolCells, " | "))
	fmt.Println(strings.Repeat("|---", len(toolCells)+9) + "|")
	cells, failed := 0, 0
	for _, r := range x.rows {
		for len(r.cells) < len(toolCells) {
			r.cells = append(r.cells, "not run")
		}
		for _, c := range r.cells {
			cells++
			if c != "yes" {
				failed++
			}
		}
		fmt.Printf("| %s | %s | %s | %s | %d | %d | %d | %d | %.0f | %s |\n", r.name, r.release, r.in, strings.Join(r.cells, " | "), r.due, r.came, r.bad, r.passed, r.took.Seconds(), strings.Join(r.note, "; "))
	}
	fmt.Printf("%d tools, %d cells, %d failed, %.0f s with the labs' start\n\n", len(x.rows), cells, failed, took.Seconds())
	x.printContracts()
}
