// SPDX-License-Identifier: Apache-2.0

//go:build parity

package live

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/gophercloud/gophercloud/v2"

	"github.com/patchbay-sdn/patchbay/lab"
	"github.com/patchbay-sdn/patchbay/oslo/messaging"
	"github.com/patchbay-sdn/patchbay/parity"
)

// check is a checkpoint. Status says what ports should have got to, such as "A=ACTIVE".
func check(name string, status ...string) step {
	s := step{checkpoint: name, status: map[string]string{}}
	for _, x := range status {
		port, want, _ := strings.Cut(x, "=")
		s.status[port] = want
	}
	return s
}

// segment is the provider's side of a network.
func segment(kind string, id int) attrs {
	a := attrs{"provider:network_type": kind}
	if id != 0 {
		a["provider:segmentation_id"] = id
	}
	if kind == "vlan" || kind == "flat" {
		a["provider:physical_network"] = "physnet1"
	}
	return a
}

// network creates a network with a subnet for each IP version, "4" and "6".
func network(name, versions string, segments ...attrs) step {
	return step{text: fmt.Sprintf("network %s is created: %v", name, segments), do: func(ctx context.Context, p *play) error {
		body := attrs{"name": name, "tenant_id": lab.Project}
		if len(segments) == 1 {
			one, err := p.resolve(segments[0])
			if err != nil {
				return err
			}
			maps.Copy(body, one)
		} else {
			body["segments"] = segments
		}
		t := &thing{name: name, kind: 'a'}
		if err := p.create(ctx, "networks", "network", body, t); err != nil {
			return err
		}
		for _, v := range versions {
			sub := attrs{"network_id": t.id, "tenant_id": lab.Project, "enable_dhcp": false, "ip_version": 4, "cidr": "192.168.100.0/24"}
			if v == '6' {
				sub["ip_version"], sub["cidr"] = 6, "fd00:100::/64"
			}
			var made struct{ Subnet struct{ ID string } }
			if err := p.api(ctx, http.MethodPost, "subnets", attrs{"subnet": sub}, &made); err != nil {
				return err
			}
			t.subnets = append(t.subnets, attrs{"id": made.Subnet.ID, "version": sub["ip_version"]})
		}
		return nil
	}}
}

// create makes a thing by the server's API, and deletes it at the end.
func (p *play) create(ctx context.Context, path, kind string, body attrs, t *thing) error {
	var answer map[string]struct{ ID string }
	if err := p.api(ctx, http.MethodPost, path, attrs{kind: body}, &answer); err != nil {
		return err
	}
	if t.id = answer[kind].ID; kind == "port" {
		t.tap = p.device(t.id, body)
	}
	p.made(t)
	p.undo = append(p.undo, func(ctx context.Context) error {
		return absent(p.api(ctx, http.MethodDelete, path+"/"+t.id, nil, nil))
	})
	return nil
}

// absent takes "there is no such thing" for success.
func absent(err error) error {
	if gophercloud.ResponseCodeIs(err, http.StatusNotFound) {
		return nil
	}
	return err
}

// changeNetwork changes attributes of a network.
func changeNetwork(name string, a attrs) step {
	return step{text: fmt.Sprintf("network %s gets %v", name, a), do: func(ctx context.Context, p *play) error {
		a, err := p.resolve(a)
		if err != nil {
			return err
		}
		return p.api(ctx, http.MethodPut, "networks/"+p.things[name].id, attrs{"network": a}, nil)
	}}
}

// addresses are what a port of a letter has: A is 10, B is 11 …
func addresses(name string) (mac, ip4, ip6 string) {
	n := 10 + int(name[0]-'A')
	return fmt.Sprintf("fa:16:3e:00:00:%02x", n), fmt.Sprintf("192.168.100.%d", n), fmt.Sprintf("fd00:100::%x", n)
}

// port creates a port that is bound to a host, 0 for none. Its addresses follow from its name, a letter.
func port(name, net string, host int, more ...attrs) step {
	text := fmt.Sprintf("port %s of %s is created for hv%d", name, net, host)
	for _, a := range more {
		text += fmt.Sprintf(" with %v", a)
	}
	return step{text: text, do: func(ctx context.Context, p *play) error {
		mac, ip4, ip6 := addresses(name)
		body := attrs{
			"name": name, "tenant_id": lab.Project, "network_id": p.things[net].id, "device_owner": "compute:nova",
			"device_id": "vm-" + name, "mac_address": mac,
		}
		var ips []attrs
		for _, sub := range p.things[net].subnets {
			ip := ip4
			if sub["version"] == 6 {
				ip = ip6
			}
			if prefix, ok := sub["prefix"]; ok {
				ip = fmt.Sprint(prefix, 10+int(name[0]-'A'))
			}
			ips = append(ips, attrs{"subnet_id": sub["id"], "ip_address": ip})
		}
		body["fixed_ips"] = ips
		if host != 0 {
			body["binding:host_id"] = p.cloud.hosts[host-1].Name() // which need not take part
		}
		for _, a := range more {
			a, err := p.resolve(a)
			if err != nil {
				return err
			}
			maps.Copy(body, a)
		}
		return p.create(ctx, "ports", "port", body, &thing{name: name, kind: 'b', mac: mac, host: host})
	}}
}

// ghost names a port that the server has never heard of.
func ghost(name string, host int) step {
	return step{text: fmt.Sprintf("port %s exists nowhere but on hv%d", name, host), do: func(_ context.Context, p *play) error {
		mac, _, _ := addresses(name)
		id := fmt.Sprintf("dddddddd-dddd-4ddd-8ddd-%012x", time.Now().UnixNano()&0xffffffffffff)
		p.made(&thing{name: name, id: id, kind: 'b', tap: tapName(id), mac: mac, host: host})
		return nil
	}}
}

// change changes attributes of a port.
func change(name string, a attrs) step {
	return step{text: fmt.Sprintf("port %s gets %v", name, a), do: func(ctx context.Context, p *play) error {
		a, err := p.resolve(a)
		if err != nil {
			return err
		}
		return p.api(ctx, http.MethodPut, "ports/"+p.things[name].id, attrs{"port": a}, nil)
	}}
}

// remove deletes a port from the server.
func remove(name string) step {
	return step{text: "port " + name + " is deleted", do: func(ctx context.Context, p *play) error {
		return p.api(ctx, http.MethodDelete, "ports/"+p.things[name].id, nil, nil)
	}}
}

// offerBinding adds an inactive binding, as Nova does before a live migration; activate makes it the active one.
func offerBinding(name string, host int) step {
	return step{text: fmt.Sprintf("port %s gets an inactive binding on hv%d", name, host), do: func(ctx context.Context, p *play) error {
		return p.api(ctx, http.MethodPost, "ports/"+p.things[name].id+"/bindings",
			attrs{"binding": attrs{"host": p.hosts[host-1].Name()}}, nil)
	}}
}

func activate(name string, host int) step {
	return step{text: fmt.Sprintf("the binding of port %s on hv%d is activated", name, host), do: func(ctx context.Context, p *play) error {
		return p.api(ctx, http.MethodPut, "ports/"+p.things[name].id+"/bindings/"+p.hosts[host-1].Name()+"/activate", nil, nil)
	}}
}

func dropBinding(name string, host int) step {
	return step{text: fmt.Sprintf("the binding of port %s on hv%d is deleted", name, host), do: func(ctx context.Context, p *play) error {
		return p.api(ctx, http.MethodDelete, "ports/"+p.things[name].id+"/bindings/"+p.hosts[host-1].Name(), nil, nil)
	}}
}

// plugged are the words of ovs-vsctl that plug a port into a bridge as an interface of a kind.
func plugged(t *thing, bridge, kind string) []string {
	words := []string{
		"--may-exist", "add-port", bridge, t.tap, "--", "set", "Interface", t.tap,
		"external_ids:iface-id=" + t.id, `external_ids:attached-mac="` + t.mac + `"`,
		"external_ids:iface-status=active",
	}
	if !t.router {
		words = append(words, "external_ids:vm-uuid=vm-"+t.name)
	}
	if kind != "" && !t.bridged() {
		words = append(words, "type="+kind, `mac="`+t.mac+`"`)
	}
	return words
}

// plugInto plugs ports of a host in one transaction.
func plugInto(host int, bridge, kind string, names ...string) step {
	text := fmt.Sprintf("%s is plugged into %s of hv%d", strings.Join(names, ", "), bridge, host)
	if kind != "internal" {
		text += " as a device that does not exist"
	}
	return step{text: text, do: func(ctx context.Context, p *play) error {
		var words []string
		if kind != "internal" { // ovs-vsctl 4.0 fails if it is to wait for a device that does not exist
			words = append(words, "--no-wait")
		}
		h := p.hosts[host-1]
		for _, name := range names {
			t := p.things[name]
			words = append(words, append([]string{"--"}, plugged(t, bridge, kind)...)...)
			if t.bridged() {
				if err := h.link(ctx, t); err != nil {
					return err
				}
				p.undo = append(p.undo, func(ctx context.Context) error { return h.unlink(ctx, t) })
			}
			p.undo = append(p.undo, func(ctx context.Context) error {
				_, err := h.Switch().Vsctl(ctx, "--if-exists", "del-port", t.tap)
				return err
			})
		}
		_, err := h.Switch().Vsctl(ctx, words...)
		return err
	}}
}

// plug plugs ports into br-int of a host.
func plug(host int, names ...string) step { return plugInto(host, "br-int", "internal", names...) }

func unplug(host int, names ...string) step {
	return step{text: fmt.Sprintf("%s is unplugged from hv%d", strings.Join(names, ", "), host), do: func(ctx context.Context, p *play) error {
		var words []string
		h := p.hosts[host-1]
		for _, name := range names {
			words = append(words, "--", "del-port", "br-int", p.things[name].tap)
		}
		_, err := h.Switch().Vsctl(ctx, words...)
		for _, name := range names {
			err = errors.Join(err, h.unlink(ctx, p.things[name]))
		}
		return err
	}}
}

// replug removes a port from br-int and plugs it again in the same transaction.
func replug(host int, name string) step {
	return step{text: name + " is unplugged and plugged again in one transaction", do: func(ctx context.Context, p *play) error {
		t := p.things[name]
		_, err := p.hosts[host-1].Switch().Vsctl(ctx, append([]string{"del-port", "br-int", t.tap, "--"}, plugged(t, "br-int", "internal")...)...)
		return err
	}}
}

// vsctl runs ovs-vsctl. In words, tap-A, id-A and mac-A stand for those of port A; undo is run at the end.
func vsctl(host int, text string, words, undo []string) step {
	return step{text: text, do: func(ctx context.Context, p *play) error {
		h := p.hosts[host-1]
		if len(undo) > 0 {
			p.undo = append(p.undo, func(ctx context.Context) error {
				_, err := h.Switch().Vsctl(ctx, p.fill(undo)...)
				return err
			})
		}
		_, err := h.Switch().Vsctl(ctx, p.fill(words)...)
		return err
	}}
}

func (p *play) fill(words []string) []string {
	words = slices.Clone(words)
	for i := range words {
		for _, t := range p.order {
			if t.tap != "" {
				words[i] = strings.NewReplacer("tap-"+t.name, t.tap, "id-"+t.name, t.id, "mac-"+t.name, t.mac).Replace(words[i])
			}
		}
	}
	return words
}

// setTag writes the tag of a port behind the agent's back; 0 clears it.
func setTag(host int, name string, tag int) step {
	return step{text: fmt.Sprintf("somebody sets the tag of %s to %d", name, tag), do: func(ctx context.Context, p *play) error {
		t := p.things[name]
		words, noted := []string{"set", "Port", t.tap, fmt.Sprintf("tag=%d", tag)}, tag
		if tag == 0 {
			words, noted = []string{"clear", "Port", t.tap, "tag"}, -1
		}
		p.journal.changed(p.hosts[host-1].Name(), []parity.RowChange{{Table: "Port", Name: t.tap, Tag: &noted}})
		_, err := p.hosts[host-1].Switch().Vsctl(ctx, words...)
		return err
	}}
}

// freeze stops ovs-vswitchd, the database goes on; thaw lets it go on.
func freeze(host int) step {
	return step{text: fmt.Sprintf("ovs-vswitchd of hv%d stands still", host), do: func(_ context.Context, p *play) error {
		h := p.hosts[host-1]
		p.undo = append(p.undo, func(context.Context) error { return h.signal(syscall.SIGCONT) })
		return h.signal(syscall.SIGSTOP)
	}}
}

func thaw(host int) step {
	return step{text: fmt.Sprintf("ovs-vswitchd of hv%d goes on", host), do: func(_ context.Context, p *play) error {
		return p.hosts[host-1].signal(syscall.SIGCONT)
	}}
}

func (h *host) signal(sig syscall.Signal) error {
	pid := h.Switch().Pids()["ovs-vswitchd"]
	if pid == 0 {
		return fmt.Errorf("ovs-vswitchd of %s does not run", h.Name())
	}
	return syscall.Kill(pid, sig)
}

// plugFrozen plugs a port while ovs-vswitchd stands still, so that it has no port number.
func plugFrozen(host int, name string) step {
	return step{text: name + " is plugged; it has no port number yet", do: func(ctx context.Context, p *play) error {
		t := p.things[name]
		p.undo = append(p.undo, func(ctx context.Context) error {
			_, err := p.hosts[host-1].Switch().Vsctl(ctx, "--if-exists", "del-port", t.tap)
			return err
		})
		_, err := p.hosts[host-1].Switch().Vsctl(ctx, append([]string{"--no-wait"}, plugged(t, "br-int", "internal")...)...)
		return err
	}}
}

// pass lets time pass.
func pass(d time.Duration) step {
	return step{text: fmt.Sprintf("%v pass", d), do: func(ctx context.Context, _ *play) error { return wait(ctx, d) }}
}

// fanout sends a cast to all agents, as the server would. In string arguments, ip-spare stands for the spare address of the
// underlay and ip-hv2 for a host's.
func fanout(topic, method string, args map[string]string) step {
	return step{text: fmt.Sprintf("the server casts %s %v to all agents", method, args), do: func(ctx context.Context, p *play) error {
		c, err := p.rpc()
		if err != nil {
			return err
		}
		defer func() { _ = c.Close(ctx) }()
		filled := map[string]string{}
		for k, v := range args {
			v = strings.ReplaceAll(v, "ip-spare", p.spareIP())
			for _, h := range p.cloud.hosts {
				v = strings.ReplaceAll(v, "ip-"+h.Name(), h.LocalIP())
			}
			filled[k] = v
		}
		return c.Cast(ctx, messaging.Target{Topic: topic, Fanout: true, Version: "1.0"}, method, filled)
	}}
}
