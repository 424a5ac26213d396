// SPDX-License-Identifier: Apache-2.0

package guests

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/insomniacslk/dhcp/dhcpv4"
)

// Port is what a guest is to get.
type Port struct {
	Link    string // name of the link in the namespace
	MAC     net.HardwareAddr
	Address netip.Prefix // with the length of the subnet's prefix
	Router  netip.Addr
}

// Lease is what became of a guest that asked.
type Lease struct {
	Took  time.Duration // from its first DHCPDISCOVER to DHCPACK; 0: it got none
	Sent  int           // requests, repeated ones among them
	Wrong string        // what is not as it should be in an answer
}

// repeat is after what time a client sends its request again if nobody answers: RFC 2131, 4.1, has 4 s, and then twice as much each time.
const repeat = 4 * time.Second

// leases are guests that all ask at once.
type leases struct {
	ports []Port
	all   *Guests

	mu      sync.Mutex
	clients []client
	open    int // who has no address
	done    chan struct{}
}

// client is one guest.
type client struct {
	Lease
	began, next time.Time // next: when it sends again
	pause       time.Duration
	request     []byte // the last one
	transaction dhcpv4.TransactionID
	offered     bool
}

// Ask has all ports ask for their address at the same time, as clients do that boot together: DHCPDISCOVER, DHCPREQUEST, and the same again if there is no answer.
// It returns when all have their address, or when ctx ends.
func Ask(ctx context.Context, netns string, ports []Port) ([]Lease, error) {
	s := &leases{ports: ports, clients: make([]client, len(ports)), open: len(ports), done: make(chan struct{})}
	var names []string
	for i, p := range ports {
		names = append(names, p.Link)
		c := &s.clients[i]
		m, err := dhcpv4.NewDiscovery(p.MAC, dhcpv4.WithRequestedOptions(dhcpv4.OptionClasslessStaticRoute, dhcpv4.OptionInterfaceMTU))
		if err != nil {
			return nil, err
		}
		c.transaction = m.TransactionID
		if c.request, err = broadcast(p.MAC, m); err != nil {
			return nil, err
		}
	}
	var err error
	if s.all, err = Open(ctx, netns, names, s.answer); err != nil {
		return nil, err
	}
	defer s.all.Close()
	for i := range ports {
		s.mu.Lock()
		err := s.send(i, time.Now())
		s.mu.Unlock()
		if err != nil {
			return nil, err
		}
	}
	for {
		select {
		case <-s.done:
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
			if err := s.again(time.Now()); err != nil {
				return nil, err
			}
			continue
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		out := make([]Lease, len(s.clients))
		for i := range s.clients {
			out[i] = s.clients[i].Lease
		}
		return out, nil
	}
}

// send sends a client's request; s.mu is held.
func (s *leases) send(i int, now time.Time) error {
	c := &s.clients[i]
	if c.began.IsZero() {
		c.began = now
	}
	if c.pause == 0 {
		c.pause = repeat
	} else {
		c.pause *= 2
	}
	c.next = now.Add(c.pause)
	c.Sent++
	return s.all.Send(i, c.request)
}

// again sends what nobody has answered.
func (s *leases) again(now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.clients {
		if c := &s.clients[i]; c.Took == 0 && now.After(c.next) {
			if err := s.send(i, now); err != nil {
				return err
			}
		}
	}
	return nil
}

// answer takes an answer at a port.
func (s *leases) answer(i int, frame []byte) {
	now := time.Now()
	p := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.NoCopy)
	u, ok := p.Layer(layers.LayerTypeUDP).(*layers.UDP)
	if !ok || u.DstPort != 68 {
		return
	}
	m, err := dhcpv4.FromBytes(u.Payload)
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &s.clients[i]
	if err != nil {
		c.Wrong = err.Error()
		return
	}
	ether, _ := p.LinkLayer().(*layers.Ethernet)
	forAll := ether.DstMAC[0]&1 != 0
	if m.TransactionID != c.transaction {
		if !forAll { // one that is for all may be another's
			c.Wrong = "the answer to another's request"
		}
		return
	}
	switch {
	case m.MessageType() == dhcpv4.MessageTypeOffer && !c.offered:
		c.offered = true
		if c.Wrong = wrong(s.ports[i], m); c.Wrong == "" {
			s.request(c, i, m, now)
		}
	case m.MessageType() == dhcpv4.MessageTypeAck && c.offered && c.Took == 0:
		c.Took, c.Wrong = now.Sub(c.began), wrong(s.ports[i], m)
		if s.open--; s.open == 0 {
			close(s.done)
		}
	case m.MessageType() == dhcpv4.MessageTypeNak:
		c.Wrong = "DHCPNAK: " + m.Message()
	}
}

// request asks for what was offered; s.mu is held.
func (s *leases) request(c *client, i int, offer *dhcpv4.DHCPv4, now time.Time) {
	m, err := dhcpv4.NewRequestFromOffer(offer, dhcpv4.WithRequestedOptions(dhcpv4.OptionClasslessStaticRoute, dhcpv4.OptionInterfaceMTU))
	if err == nil {
		c.request, err = broadcast(s.ports[i].MAC, m)
	}
	if err == nil {
		c.pause = 0
		err = s.send(i, now)
	}
	if err != nil {
		c.Wrong = err.Error()
	}
}

// wrong says what is not as it should be in an answer; "" when all is.
func wrong(p Port, m *dhcpv4.DHCPv4) string {
	mask := net.CIDRMask(p.Address.Bits(), 32)
	switch {
	case m.ClientHWAddr.String() != p.MAC.String():
		return "for " + m.ClientHWAddr.String()
	case !m.YourIPAddr.Equal(p.Address.Addr().AsSlice()):
		return fmt.Sprintf("address %s, want %s", m.YourIPAddr, p.Address.Addr())
	case m.SubnetMask().String() != mask.String():
		return fmt.Sprintf("mask %s, want %s", m.SubnetMask(), mask)
	case m.ServerIdentifier() == nil || m.IPAddressLeaseTime(0) == 0:
		return "no server or no time"
	case p.Router.IsValid() && (len(m.Router()) != 1 || !m.Router()[0].Equal(p.Router.AsSlice())):
		return fmt.Sprintf("routers %v, want %s", m.Router(), p.Router)
	}
	return ""
}

// broadcast is the frame of a client that has no address.
func broadcast(from net.HardwareAddr, m *dhcpv4.DHCPv4) ([]byte, error) {
	ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolUDP, SrcIP: net.IPv4zero, DstIP: net.IPv4bcast}
	udp := &layers.UDP{SrcPort: 68, DstPort: 67}
	if err := udp.SetNetworkLayerForChecksum(ip); err != nil {
		return nil, err
	}
	b := gopacket.NewSerializeBuffer()
	err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
		&layers.Ethernet{SrcMAC: from, DstMAC: net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, EthernetType: layers.EthernetTypeIPv4}, ip, udp, gopacket.Payload(m.ToBytes()))
	return b.Bytes(), err
}
