// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/miekg/dns"

	"github.com/patchbay-sdn/patchbay/lab"
	"github.com/patchbay-sdn/patchbay/lab/hostile"
)

// victimName is in everything that the VM asks, and nobody else knows it.
const victimName = "victim-7f3a91"

// lockThread keeps the goroutine on its thread, which is in a namespace: the thread ends with it.
func lockThread() { runtime.LockOSThread() }

// victim is the VM of another tenant: it asks for its address, for a name and for its metadata.
type victim struct {
	*serving
	*lab.VM
	ear        *probe
	asked, got atomic.Int64

	mu   sync.Mutex
	open map[uint32]bool // requests that wait for an answer: transactions of DHCP, ids of DNS with bit 31
}

// in says whether something of the VM is in a text that somebody else has read.
func (v *victim) in(text []byte) bool { return v != nil && bytes.Contains(text, []byte(victimName)) }

// listen opens the socket.
func (v *victim) listen() {
	v.t.Helper()
	v.open = map[uint32]bool{}
	var err error
	if v.ear, err = openWatch(v.Netns, "eth0", func(frame []byte, _ uint16) { v.heard(frame) }); err != nil {
		v.t.Fatal(err)
	}
	v.t.Cleanup(v.ear.close)
}

// heard takes a frame that arrived at the VM.
func (v *victim) heard(frame []byte) {
	if bytes.Contains(frame, []byte(hostile.Said)) {
		v.fault("the other tenant's VM received %x", frame)
	}
	p := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.NoCopy)
	u, ok := p.Layer(layers.LayerTypeUDP).(*layers.UDP)
	if !ok {
		return
	}
	switch u.SrcPort {
	case 67:
		if d, ok := p.Layer(layers.LayerTypeDHCPv4).(*layers.DHCPv4); !ok || !bytes.Equal(d.ClientHWAddr, hw(v.MAC)) || d.YourClientIP.String() != v.IPs[0] && d.YourClientIP.String() != v.IPs[1] || !v.take(d.Xid) {
			v.fault("the other tenant's VM received a DHCP answer that is not its own: %x", frame)
		}
	case 53:
		m := new(dns.Msg)
		if err := m.Unpack(u.Payload); err != nil || len(m.Question) != 1 || m.Question[0].Name != victimName+".example." || len(m.Answer) != 1 || !v.take(1<<31|uint32(m.Id)) {
			v.fault("the other tenant's VM received a DNS answer that is not its own: %x", frame)
		}
	}
}

// take takes an answer.
func (v *victim) take(number uint32) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	known := v.open[number]
	delete(v.open, number)
	if known {
		v.got.Add(1)
	}
	return known
}

// once asks for all three, and returns how many answers came.
func (v *victim) once() int64 {
	before := v.got.Load()
	xid, id := rand.Uint32()>>1, uint16(rand.Uint32())
	v.mu.Lock()
	v.open[xid], v.open[1<<31|uint32(id)] = true, true
	v.mu.Unlock()
	discover := &layers.DHCPv4{Operation: layers.DHCPOpRequest, HardwareType: layers.LinkTypeEthernet, HardwareLen: 6, Xid: xid, ClientHWAddr: hw(v.MAC), Options: layers.DHCPOptions{
		layers.NewDHCPOption(layers.DHCPOptMessageType, []byte{byte(layers.DHCPMsgTypeDiscover)}), layers.NewDHCPOption(layers.DHCPOptHostname, []byte(victimName)),
	}}
	query := new(dns.Msg).SetQuestion(victimName+".example.", dns.TypeA)
	query.Id = id
	packed, err := query.Pack()
	if err != nil {
		v.fault("%v", err)
		return 0
	}
	own := net.ParseIP(v.IPs[0]).To4()
	if own == nil {
		own = net.ParseIP(v.IPs[1]).To4()
	}
	v.datagram(layers.Ethernet{DstMAC: hw("ff:ff:ff:ff:ff:ff")}, net.IPv4zero, net.IPv4bcast, 68, 67, discover)
	v.datagram(layers.Ethernet{DstMAC: hostile.ServiceMAC}, own, hostile.ServiceAddress.AsSlice(), 5353, 53, gopacket.Payload(packed))
	v.asked.Add(3)
	v.metadata()
	v.eventually(time.Second, func() bool { return v.got.Load() == before+3 })
	return v.got.Load() - before
}

func (v *victim) datagram(ether layers.Ethernet, from, to net.IP, src, dst layers.UDPPort, body gopacket.SerializableLayer) {
	ether.SrcMAC, ether.EthernetType = hw(v.MAC), layers.EthernetTypeIPv4
	ip, udp := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolUDP, SrcIP: from, DstIP: to}, &layers.UDP{SrcPort: src, DstPort: dst}
	_ = udp.SetNetworkLayerForChecksum(ip)
	b := gopacket.NewSerializeBuffer()
	err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, &ether, ip, udp, body)
	if err == nil {
		err = v.ear.send(b.Bytes())
	}
	if err != nil {
		v.fault("%v", err)
	}
}

// metadata asks who the VM is.
func (v *victim) metadata() {
	conn, err := dialIn(v.Netns, net.JoinHostPort(hostile.ServiceAddress.String(), "80"))
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(2 * time.Second))
	fmt.Fprintf(conn, "GET /latest/%s HTTP/1.0\r\n\r\n", victimName)
	text, err := io.ReadAll(conn)
	switch want := []byte("victim-instance /latest/" + victimName); {
	case err != nil:
	case bytes.HasPrefix(text, []byte("HTTP/1.0 200")) && bytes.HasSuffix(text, want):
		v.got.Add(1)
	case bytes.HasPrefix(text, fmt.Appendf(nil, "HTTP/1.0 %d", http.StatusTooManyRequests)): // it asks ten times a second, and may twenty times
		v.fault("the other tenant's VM is told that it asks too often")
	default:
		v.fault("the other tenant's VM read %q", text)
	}
}
