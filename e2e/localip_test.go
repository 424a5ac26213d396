// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/lab"
)

// TestLocalIP has the real server give an address, which a VM of host 2 has, to a VM of host 1 and then to another one of host 2. VMs ask it with TCP, UDP and ICMP, and are
// told by whom they were answered: by the VM of their own host, or by who has the address where there is none. At last with broker and server away, after a
// restart of switch and agent.
func TestLocalIP(t *testing.T) {
	t.Setenv(lab.EnvPlugins, "local_ip")
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	start := time.Now()
	x := &localIP{t: t, cloud: &cloud{l: lab.New(t, 2), ctx: ctx, round: round{name: string(lab.Patchbay)}}}
	t.Cleanup(func() { x.table.print(time.Since(start)) })
	if !x.run(t, "agents start, VMs are plugged in", "2", x.prepare) {
		t.FailNow()
	}
	var one, two string
	x.run(t, "an association leads the address to the VM of host 1", "2", func(t *testing.T) {
		one = x.associate(t, x.near)
		x.answers(t, x.client1, "near")
		x.answers(t, x.client2, "owner")
	})
	x.run(t, "patchbay port says where it leads", "1", func(t *testing.T) {
		for _, v := range []struct {
			vm   *lab.VM
			want string
		}{{x.near, x.address + " leads to the port at "}, {x.client1, "from " + x.address + " to port " + x.near.PortID}} {
			if out, _ := x.runPatchbay(t, 1, "port", v.vm.PortID); !strings.Contains(out, v.want) {
				t.Errorf("patchbay port says\n%s, want %q in it", out, v.want)
			}
		}
	})
	x.run(t, "another one leads it to a VM of host 2", "2", func(t *testing.T) {
		two = x.associate(t, x.far)
		x.answers(t, x.client1, "near")
		x.answers(t, x.client2, "far")
	})
	x.run(t, "deleted, and who has the address answers", "2", func(t *testing.T) {
		x.request(t, http.MethodDelete, x.path(one), nil, nil)
		x.request(t, http.MethodDelete, x.path(two), nil, nil)
		x.answers(t, x.client1, "owner")
		x.answers(t, x.client2, "owner")
		x.associate(t, x.near)
		x.answers(t, x.client1, "near")
	})
	x.run(t, "with broker and server away, after a restart of switch and agent", "1", x.alone)
}

type localIP struct {
	*cloud
	t                                  *testing.T // the whole
	near, far, owner, client1, client2 *lab.VM
	id, address                        string // of the local IP
}

const leading = "agent.extensions=local_ip"

func (x *localIP) settings() []string {
	return []string{filtering, leading, "LOCAL_IP.static_nat=true"}
}

func (x *localIP) prepare(t *testing.T) {
	x.eachHost(t, func(h *lab.Host) error { return h.StartAgent(x.ctx, lab.Patchbay, x.settings()...) })
	var network struct{ Network identified }
	x.post(t, "networks", attributes{"network": attributes{"name": "shared", "tenant_id": lab.Project}}, &network)
	x.post(t, "subnets", attributes{"subnet": attributes{"network_id": network.Network.ID, "tenant_id": lab.Project, "ip_version": 4, "cidr": "10.31.0.0/24", "enable_dhcp": false}}, nil)
	var ids []string
	for _, v := range []struct {
		to   **lab.VM
		name string
		host int
	}{{&x.near, "near", 1}, {&x.client1, "client1", 1}, {&x.far, "far", 2}, {&x.owner, "owner", 2}, {&x.client2, "client2", 2}} {
		made, err := x.l.Host(v.host).Plug(x.ctx, lab.Port{NetworkID: network.Network.ID, Name: v.name})
		if err != nil {
			t.Fatal(err)
		}
		*v.to = made
		ids = append(ids, made.PortID)
	}
	if err := x.l.WaitActive(x.ctx, ids...); err != nil {
		t.Fatal(err)
	}
	for name, v := range map[string]*lab.VM{"near": x.near, "far": x.far, "owner": x.owner} {
		x.serve(t, v, name)
	}
	var made struct {
		LocalIP struct {
			ID      string `json:"id"`
			Address string `json:"local_ip_address"`
		} `json:"local_ip"`
	}
	x.post(t, "local_ips", attributes{"local_ip": attributes{"name": "cache", "local_port_id": x.owner.PortID, "project_id": lab.Project, "tenant_id": lab.Project}}, &made)
	x.id, x.address = made.LocalIP.ID, made.LocalIP.Address
	if x.address == "" {
		t.Fatal("the local IP has no address")
	}
	x.answers(t, x.client1, "owner")
}

// serve has a VM tell its name over TCP and UDP.
func (x *localIP) serve(t *testing.T, v *lab.VM, name string) {
	t.Helper()
	cmd := v.Command(x.ctx, "python3", "-c", fmt.Sprintf(`
import socket, threading
def udp():
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(('0.0.0.0', 53))
    while True:
        d, a = s.recvfrom(99); s.sendto(b'%[1]s', a)
threading.Thread(target=udp, daemon=True).start()
s = socket.create_server(('0.0.0.0', 80))
while True:
    c, a = s.accept(); c.send(b'%[1]s'); c.close()
`, name))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	x.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
}

func (x *localIP) path(id string) string { return "local_ips/" + x.id + "/port_associations/" + id }

// associate returns the id by which the association is deleted: that of its port.
func (x *localIP) associate(t *testing.T, v *lab.VM) string {
	t.Helper()
	x.post(t, "local_ips/"+x.id+"/port_associations", attributes{"port_association": attributes{"fixed_port_id": v.PortID, "project_id": lab.Project, "tenant_id": lab.Project}}, nil)
	return v.PortID
}

// answers waits until the VM with a name answers the address, and fails unless all protocols agree.
func (x *localIP) answers(t *testing.T, from *lab.VM, want string) {
	t.Helper()
	ask := func(kind string, port int) string {
		ctx, cancel := context.WithTimeout(x.ctx, 10*time.Second)
		defer cancel()
		out, _ := from.Command(ctx, "python3", "-c", fmt.Sprintf(
			"import socket;s=socket.socket(socket.AF_INET,socket.SOCK_%s);s.settimeout(2);s.connect(('%s',%d));s.send(b'x');print(s.recv(99).decode())", kind, x.address, port)).CombinedOutput()
		return strings.TrimSpace(string(out))
	}
	began := time.Now()
	var got string
	if !x.eventually(time.Minute, func() bool { got = ask("STREAM", 80); return got == want }) {
		t.Fatalf("%s is answered by %q, want %s", x.address, got, want)
	}
	t.Logf("%s answers %.1f s later", want, time.Since(began).Seconds())
	if got := ask("DGRAM", 53); got != want {
		t.Errorf("UDP to %s is answered by %q, want %s", x.address, got, want)
	}
	if out, err := from.Command(x.ctx, "ping", "-c", "2", "-i", "0.2", "-W", "2", x.address).CombinedOutput(); err != nil || strings.Contains(string(out), "DIFFERENT ADDRESS") {
		t.Errorf("ping: %v: %s", err, out)
	}
}

// alone has the switch and the agent of host 1 start again without a server.
func (x *localIP) alone(t *testing.T) {
	h := x.l.Host(1)
	x.remembered(t)
	x.stopBroker(t)
	if err := x.l.StopServer(x.ctx); err != nil {
		t.Fatal(err)
	}
	defer x.startBroker(t)
	if err := h.KillAgent(); err != nil {
		t.Fatal(err)
	}
	if err := h.Switch().StopVswitchd(x.ctx); err != nil {
		t.Fatal(err)
	}
	if err := h.Switch().StartVswitchd(x.ctx); err != nil {
		t.Fatal(err)
	}
	if err := h.LaunchAgent(x.ctx, lab.Patchbay, x.settings()...); err != nil {
		t.Fatal(err)
	}
	x.answers(t, x.client1, "near")
}
