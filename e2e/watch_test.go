// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/patchbay-sdn/patchbay/lab"
)

// openWatch opens a socket that hands over every frame which arrives, with the VLAN of the tag that the kernel has taken out of
// it; 0 is none. The frame is the caller's until it returns.
func openWatch(netns, link string, each func(frame []byte, vlan uint16)) (*probe, error) {
	const all = unix.ETH_P_ALL>>8 | unix.ETH_P_ALL<<8&0xff00 // in network byte order
	p, err := openSocket(netns, link, all)
	if err != nil {
		return nil, err
	}
	if err := unix.SetsockoptInt(p.fd, unix.SOL_PACKET, unix.PACKET_AUXDATA, 1); err != nil {
		return nil, fmt.Errorf("asking for VLAN tags: %w", err)
	}
	go func() {
		defer close(p.done)
		buf, oob := make([]byte, 2048), make([]byte, unix.CmsgSpace(int(unsafe.Sizeof(unix.TpacketAuxdata{}))))
		for !p.stop.Load() {
			n, oobn, _, from, err := unix.Recvmsg(p.fd, buf, oob, 0)
			if ll, ok := from.(*unix.SockaddrLinklayer); err != nil || !ok || ll.Pkttype == unix.PACKET_OUTGOING {
				continue
			}
			each(buf[:n], tagOf(oob[:oobn]))
		}
	}()
	return p, nil
}

// openTagged opens a socket for one VLAN of a link: it takes what arrives in it, and what it sends is put into it.
func openTagged(netns, link string, vlan uint16) (*probe, error) {
	var p *probe
	ready := make(chan struct{})
	opened, err := openWatch(netns, link, func(frame []byte, tag uint16) {
		<-ready
		if tag == vlan {
			p.take(frame)
		}
	})
	if err != nil {
		return nil, err
	}
	p = opened
	p.vlan = vlan
	close(ready)
	return p, nil
}

// missed counts the frames that a socket had no room for, since the last time it was asked.
func (p *probe) missed() int {
	s, err := unix.GetsockoptTpacketStats(p.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err != nil {
		return 0
	}
	return int(s.Drops)
}

// learnedMAC is an entry of a switch's table of addresses.
type learnedMAC struct {
	port string // its name
	vlan string
	mac  string
}

// macTable is what the integration bridge of a host has learned.
func (c *cloud) macTable(h *lab.Host) ([]learnedMAC, error) {
	sw := h.Switch()
	text, err := sw.Appctl(c.ctx, "ovs-vswitchd", "fdb/show", "br-int")
	if err != nil {
		return nil, err
	}
	names, err := c.portNames(h)
	if err != nil {
		return nil, err
	}
	var list []learnedMAC
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) != 4 || f[0] == "port" {
			continue
		}
		name := names[f[0]]
		if name == "" {
			name = f[0]
		}
		list = append(list, learnedMAC{name, f[1], f[2]})
	}
	return list, nil
}

// portNames are the names of a host's interfaces by their numbers. Bridges have their own numbers: only those of the
// integration bridge are here.
func (c *cloud) portNames(h *lab.Host) (map[string]string, error) {
	text, err := h.Switch().Ofctl(c.ctx, "-O", "OpenFlow14", "show", "br-int")
	if err != nil {
		return nil, err
	}
	names := map[string]string{}
	for line := range strings.Lines(text) {
		number, rest, ok := strings.Cut(strings.TrimSpace(line), "(")
		name, _, closed := strings.Cut(rest, ")")
		if _, err := strconv.Atoi(number); ok && closed && err == nil {
			names[number] = name
		}
	}
	return names, nil
}

// strayMAC says why an entry must not be there; it is empty when the entry is in order. A VM's MACs are on its own interface of its
// host, and on a patch elsewhere.
func (c *cloud) strayMAC(h *lab.Host, e learnedMAC, owned func(v *vm) []string) string {
	if e.port == "LOCAL" {
		return ""
	}
	tap := strings.HasPrefix(e.port, "tap")
	for _, v := range c.vms() {
		if v.VM == nil {
			continue
		}
		here := c.l.Host(v.host).Name() == h.Name()
		for _, mac := range owned(v) {
			if mac != e.mac {
				continue
			}
			if here && e.port == v.Tap || !here && !tap {
				return ""
			}
		}
	}
	return fmt.Sprintf("%s has %s on %s in VLAN %s", h.Name(), e.mac, e.port, e.vlan)
}
