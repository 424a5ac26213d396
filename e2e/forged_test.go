// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"strconv"
	"testing"
)

// claim is a frame in which a VM says something about itself: a truth that must arrive, and the lie beside it.
type claim struct {
	name       string
	truth, lie func(from, to *vm, k token) []byte
}

// bare is a packet of nothing but addresses.
func bare(to *vm, mac, v4, v6 string, version int, k token) []byte {
	h := header{ethFrom: mac, ethTo: to.MAC, from: v4, to: to.v4, proto: protoUDP}
	if version == 6 {
		h.from, h.to = v6, to.v6
	}
	return packet(h, datagram(4000, 4001, k.bytes()))
}

func claimsToTell() []claim {
	var list []claim
	add := func(name string, truth, lie func(from, to *vm, k token) []byte) {
		list = append(list, claim{name: name, truth: truth, lie: lie})
	}
	for _, version := range []int{4, 6} {
		ip := ", IPv" + strconv.Itoa(version)
		truth := func(from, to *vm, k token) []byte { return bare(to, from.MAC, from.v4, from.v6, version, k) }
		add("source address"+ip, truth, func(from, to *vm, k token) []byte {
			return bare(to, from.MAC, address4(88), strangeV6, version, k)
		})
		add("source MAC"+ip, truth, func(from, to *vm, k token) []byte {
			return bare(to, strangeMAC, from.v4, from.v6, version, k)
		})
		add("another VM's source address"+ip, truth, func(from, to *vm, k token) []byte {
			return bare(to, from.MAC, to.v4, to.v6, version, k)
		})
		add("DHCP server"+ip,
			func(from, to *vm, k token) []byte { return dhcpQuestion(from, to, version, k) },
			func(from, to *vm, k token) []byte { return dhcpAnswer(from, to, version, k) })
	}
	for op, name := range map[uint16]string{1: "ARP request", 2: "ARP answer"} {
		add(name+"'s sender",
			func(from, to *vm, k token) []byte {
				return arp(op, to.MAC, from.MAC, from.MAC, from.v4, to.MAC, to.v4, k)
			},
			func(from, to *vm, k token) []byte {
				return arp(op, to.MAC, from.MAC, from.MAC, address4(88), to.MAC, to.v4, k)
			})
	}
	add("ARP answer's source MAC",
		func(from, to *vm, k token) []byte {
			return arp(2, to.MAC, from.MAC, from.MAC, from.v4, to.MAC, to.v4, k)
		},
		func(from, to *vm, k token) []byte {
			return arp(2, to.MAC, strangeMAC, strangeMAC, from.v4, to.MAC, to.v4, k)
		})
	add("neighbour advertisement",
		func(from, to *vm, k token) []byte { return neighbour(136, from, to, from.v6, k) },
		func(from, to *vm, k token) []byte { return neighbour(136, from, to, strangeV6, k) })
	add("neighbour solicitation's source",
		func(from, to *vm, k token) []byte { return neighbour(135, from, to, to.v6, k) },
		func(from, to *vm, k token) []byte {
			liar := *from
			liar.v6 = strangeV6
			return neighbour(135, &liar, to, to.v6, k)
		})
	add("router advertisement",
		func(from, to *vm, k token) []byte { return neighbour(135, from, to, to.v6, k) }, routerAdvertisement)
	return list
}

// forgeries has a VM whose group allows everything lie to VMs that hear everything, on both hosts.
func (f *filtered) forgeries(t *testing.T) {
	from := f.strangers[1]
	victims := []*vm{f.rogues[1], f.rogues[2]}
	lies := func(to *vm) map[string]frame {
		m := map[string]frame{}
		for _, c := range claimsToTell() {
			m[c.name] = func(k token) []byte { return c.lie(from, to, k) }
		}
		return m
	}
	for _, c := range claimsToTell() {
		f.run(t, "forged "+c.name+" is stopped", "2", func(t *testing.T) {
			box := &cell{}
			var list []fired
			for _, to := range victims {
				for range 3 {
					for want, build := range map[bool]func(from, to *vm, k token) []byte{true: c.truth, false: c.lie} {
						k := f.token()
						list = append(list, fired{box, c.name, from, to, build(from, to, k), k, want})
					}
				}
			}
			f.fire(t, list)
			f.verdict(t, box, len(list)/2)
		})
	}
	f.run(t, "frames tagged with another network's VLAN are stopped", "2", func(t *testing.T) { f.wrongVLAN(t, from) })
	f.run(t, "forged frames pass without port security, and are stopped again with it", "2", func(t *testing.T) {
		f.update(t, from, attributes{"port_security_enabled": false, "security_groups": []string{}})
		f.arrive(t, from, victims, lies, true)
		f.update(t, from, attributes{"port_security_enabled": true, "security_groups": []string{f.open}})
		f.arrive(t, from, victims, lies, false)
	})
}

// verdict fails unless so many frames passed and were stopped.
func (f *filtered) verdict(t *testing.T, box *cell, each int) {
	t.Helper()
	if len(box.wrong) > 0 || box.passed != each || box.stopped != each {
		t.Errorf("%d passed and %d were stopped, want %d each: %q", box.passed, box.stopped, each, box.wrong)
	}
}

// wrongVLAN sends frames that claim to be in the red network. The VMs there hear each other.
func (f *filtered) wrongVLAN(t *testing.T, from *vm) {
	tag, err := strconv.Atoi(f.tag(t, f.red.vms[from.host-1]))
	if err != nil {
		t.Fatal(err)
	}
	box := &cell{}
	var list []fired
	for i, to := range f.red.vms {
		k := f.token()
		honest := f.red.vms[1-i]
		list = append(list, fired{box, "frame of the network", honest, to, bare(to, honest.MAC, honest.v4, honest.v6, 4, k), k, true})
		k = f.token()
		list = append(list, fired{box, "tagged frame", from, to, tagged(bare(to, from.MAC, from.v4, from.v6, 4, k), uint16(tag)), k, false})
	}
	f.fire(t, list)
	f.verdict(t, box, len(list)/2)
	k := f.token()
	if err := from.probe.send(tagged(arp(1, broadcast, from.MAC, from.MAC, from.v4, from.MAC, from.v4, k), uint16(tag))); err != nil {
		t.Fatal(err)
	}
	f.eventually(silence, func() bool { return false })
	for _, v := range f.red.vms {
		if v.probe.saw(k) > 0 {
			t.Errorf("a tagged broadcast of %s arrived at %s on hv%d", from.name, v.name, v.host)
		}
	}
}
