// SPDX-License-Identifier: Apache-2.0

//go:build integration

package ovsdb_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/lab/vswitch"
)

func freePort(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

func TestCapabilities(t *testing.T) {
	sw := vswitch.New(t, dummy)
	vsctl(t, sw, "set", "Open_vSwitch", ".", "other_config:hw-offload=TRUE", "ovs_version=3.1.0")
	f := follow(t, unix(sw))
	caps, err := f.client.Capabilities(within(t, 5*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(caps.DatapathTypes, "netdev") || !slices.Contains(caps.IfaceTypes, "vxlan") || caps.OVSVersion != "3.1.0" || !caps.HWOffload {
		t.Errorf("capabilities are %+v", caps)
	}
}

func TestSSL(t *testing.T) {
	dir := certificates(t, "server", "agent")
	port := freePort(t)
	sw := vswitch.New(t, dummy, func(c *vswitch.Config) {
		c.Remotes = []string{"pssl:" + port + ":127.0.0.1"}
		c.SSL = vswitch.SSL{PrivateKey: dir + "/server.key", Certificate: dir + "/server.pem", CACert: dir + "/ca.pem"}
	})
	cfg := ovsdb.Config{
		Endpoint: "ssl:127.0.0.1:" + port, LocalSocket: sw.DBSocket(),
		SSL: ovsdb.SSL{PrivateKey: dir + "/agent.key", Certificate: dir + "/agent.pem", CACert: dir + "/ca.pem"},
	}
	f := follow(t, cfg)
	withBridge(t, f)

	other := certificates(t)
	cfg.SSL.CACert = other + "/ca.pem"
	g := follow(t, cfg)
	g.wait("a refusal", func(v *ovsdb.View) bool { return v.Seq() > 0 })
	if b := g.since(0)[0]; b.Kind != ovsdb.Disconnected || !strings.Contains(b.Err.Error(), "certificate") {
		t.Errorf("a server of another CA: %v, %v", b.Kind, b.Err)
	}
}

// Nobody listens where the agent is told to connect: it uses the socket of the switch, before and after an outage, and opens nothing.
func TestLocalSocketOfTheSwitch(t *testing.T) {
	sw := vswitch.New(t, dummy)
	cfg := ovsdb.Config{Endpoint: "tcp:127.0.0.1:" + freePort(t), LocalSocket: sw.DBSocket()}
	f := follow(t, cfg)
	if err := sw.KillDB(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := sw.StartDB(context.Background()); err != nil {
		t.Fatal(err)
	}
	g := follow(t, cfg)
	withBridge(t, g)
	f.wait("the bridge", func(v *ovsdb.View) bool { return v.BridgeByName("br-int") != nil })
	if out := vsctl(t, sw, "get-manager"); out != "" {
		t.Errorf("managers are %q", out)
	}
}

// cable forwards connections to the database until it is cut.
type cable struct {
	listener net.Listener
	to       string
	wg       sync.WaitGroup
	mu       sync.Mutex
	cut      bool
	conns    []net.Conn
}

func newCable(t testing.TB, to string) (*cable, string) {
	t.Helper()
	path := to + ".cable"
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	w := &cable{listener: l, to: to}
	w.wg.Go(w.accept)
	t.Cleanup(func() { _ = l.Close(); w.set(true); w.wg.Wait() })
	return w, path
}

func (w *cable) accept() {
	for {
		c, err := w.listener.Accept()
		if err != nil {
			return
		}
		up, err := net.Dial("unix", w.to)
		w.mu.Lock()
		if err != nil || w.cut {
			_ = c.Close()
			if up != nil {
				_ = up.Close()
			}
		} else {
			w.conns = append(w.conns, c, up)
			w.wg.Go(func() { _, _ = io.Copy(up, c); _ = up.Close() })
			w.wg.Go(func() { _, _ = io.Copy(c, up); _ = c.Close() })
		}
		w.mu.Unlock()
	}
}

func (w *cable) set(cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = cut
	if cut {
		for _, c := range w.conns {
			_ = c.Close()
		}
		w.conns = nil
	}
}

// What happens while we are away arrives as one exact difference.
func TestReconnectDeliversTheDifference(t *testing.T) {
	sw := vswitch.New(t, dummy)
	w, path := newCable(t, sw.DBSocket())
	f := follow(t, ovsdb.Config{Endpoint: "unix:" + path})
	withBridge(t, f)
	f.commit(addPorts(10))
	f.wait("all wired", func(v *ovsdb.View) bool { _, _, wired := countPorts(v); return wired == 10 })

	w.set(true)
	f.wait("the loss", func(*ovsdb.View) bool { return f.batches[len(f.batches)-1].Kind == ovsdb.Disconnected })
	seq := f.seq()
	if _, err := f.client.Commit(within(t, time.Second), f.tx(addPorts(11))); !errors.Is(err, ovsdb.ErrDisconnected) {
		t.Errorf("commit without a connection: %v", err)
	}
	vsctl(t, sw, "del-port", "tap1", "--", "del-port", "tap2", "--", "add-port", "br-int", "tap2", "--", "set", "Interface", "tap2",
		"type=internal", "--", "set", "Port", "tap3", "tag=9", "--", "add-port", "br-int", "new", "--", "set", "Interface", "new", "type=internal")
	w.set(false)
	f.wait("the difference", func(v *ovsdb.View) bool { return v.PortByName("new") != nil })

	var got []string
	for _, b := range f.since(seq) {
		if b.Kind == ovsdb.Disconnected {
			continue
		}
		if b.Kind != ovsdb.Reconnected {
			t.Fatalf("batch %d is %v", b.Seq, b.Kind)
		}
		for _, d := range b.Ports {
			switch {
			case d.New == nil:
				got = append(got, "del "+d.Old.Name)
			case d.Old == nil:
				got = append(got, "add "+d.New.Name)
			default:
				got = append(got, fmt.Sprintf("mod %s %v", d.New.Name, *d.New.Tag))
			}
		}
	}
	slices.Sort(got)
	if want := "add new, add tap2, del tap1, del tap2, mod tap3 9"; strings.Join(got, ", ") != want {
		t.Errorf("difference is %q, want %q", strings.Join(got, ", "), want)
	}
	sameAsFresh(t, f, sw)

	seq = f.seq()
	w.set(true)
	f.wait("the loss", func(*ovsdb.View) bool { return f.batches[len(f.batches)-1].Kind == ovsdb.Disconnected })
	w.set(false)
	f.wait("the reconnect", func(*ovsdb.View) bool { return f.batches[len(f.batches)-1].Kind == ovsdb.Reconnected })
	if last := f.since(seq); last[len(last)-1].Len() != 0 {
		t.Errorf("nothing changed, but %d rows were delivered", last[len(last)-1].Len())
	}
}

// A server that hangs is noticed by its silence, and found again when it goes on.
func TestHangingServer(t *testing.T) {
	sw := vswitch.New(t, dummy)
	cfg := unix(sw)
	cfg.InactivityProbe = 300 * time.Millisecond
	f := follow(t, cfg)
	withBridge(t, f)
	big := f.tx(addPorts(1000))
	pid := sw.Pids()["ovsdb-server"]
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	// More than the socket takes, so that already the sending hangs.
	start := time.Now()
	if _, err := f.client.Commit(within(t, 200*time.Millisecond), big); err == nil || time.Since(start) > 5*time.Second {
		t.Errorf("commit to a hanging server: %v after %v", err, time.Since(start))
	}
	f.wait("the loss", func(*ovsdb.View) bool { return f.batches[len(f.batches)-1].Kind == ovsdb.Disconnected })
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	f.wait("the reconnect", func(*ovsdb.View) bool { return f.batches[len(f.batches)-1].Kind == ovsdb.Reconnected })
	f.commit(addPorts(1))
}

// Real packets flow between two namespaces; ovs-vswitchd writes statistics, we neither hear of it nor spend anything.
// Ten seconds, or the duration in PATCHBAY_TRAFFIC.
func TestTrafficCostsNothing(t *testing.T) {
	duration := 10 * time.Second
	if text := os.Getenv("PATCHBAY_TRAFFIC"); text != "" {
		var err error
		if duration, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	ctx := context.Background()
	sw := vswitch.New(t)
	f := follow(t, unix(sw))
	withBridge(t, f)
	vsctl(t, sw, "set-fail-mode", "br-int", "standalone")
	a, b := sw.Netns()+"a", sw.Netns()+"b"
	run := func(args ...string) {
		t.Helper()
		if out, err := sw.Command(ctx, args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", args, err, out)
		}
	}
	for i, ns := range []string{a, b} {
		tap := fmt.Sprintf("tap%d", i)
		run("ip", "netns", "add", ns)
		t.Cleanup(func() { run("ip", "netns", "del", ns) })
		run("ip", "link", "add", tap, "type", "veth", "peer", "name", "eth0", "netns", ns)
		run("ip", "link", "set", tap, "up")
		run("ip", "-n", ns, "addr", "add", fmt.Sprintf("10.0.0.%d/24", i+1), "dev", "eth0")
		run("ip", "-n", ns, "link", "set", "eth0", "up")
		vsctl(t, sw, "add-port", "br-int", tap)
	}
	ping := sw.Command(ctx, "ip", "netns", "exec", a, "ping", "-q", "-i", "0.001", "-s", "1000", "-w",
		fmt.Sprint(int(duration.Seconds())+10), "10.0.0.2")
	if err := ping.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ping.Process.Kill(); _ = ping.Wait() }()
	time.Sleep(2 * time.Second) // ARP, link state and the first statistics

	packets := func() string { return vsctl(t, sw, "get", "Interface", "tap0", "statistics:rx_packets") }
	before := packets()
	seq, cpu0, start := f.seq(), cpu(), time.Now()
	time.Sleep(duration)
	used, elapsed := cpu()-cpu0, time.Since(start)
	got := f.since(seq)
	after := packets()
	t.Logf("%v of traffic, rx_packets of tap0 from %s to %s: %d batches, CPU of this process %v (%.4f %%)",
		elapsed.Round(time.Second), before, after, len(got), used, 100*used.Seconds()/elapsed.Seconds())
	if before == after {
		t.Error("no statistics were written")
	}
	if len(got) != 0 {
		t.Errorf("%d batches; the first: %+v", len(got), got[0])
	}
	if used > elapsed/200 {
		t.Errorf("CPU %v in %v", used, elapsed)
	}
}
