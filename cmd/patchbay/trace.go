// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchbay-sdn/patchbay/internal/trace"
)

// traceFlags are the flags of `patchbay trace`.
type traceFlags struct {
	hostFlags
	SrcPort, DstPort uint16
	Type, Code       uint8
	Size             int
	Src, Dst         string
	SrcMAC, DstMAC   string
	FromTunnel       string
	Six              bool
	Flows            bool
}

func newTraceCommand() *cobra.Command {
	var f traceFlags
	cmd := &cobra.Command{
		Use:   "trace FROM TO [tcp|udp|sctp|icmp|arp|NUMBER]",
		Short: "Follow a packet through Open vSwitch, and show what happens to the packet, and why",
		Long: `Follow a packet through Open vSwitch, and show what happens to the packet, and why.

FROM and TO are ports of this host (id or its beginning, name, interface or
address), or an address on another host. One of them is a port of this host.
Without a protocol the packet is a ping. The command runs ofproto/trace in ovs-vswitchd:
it sends no packet and changes nothing. It follows the first packet of a connection,
then later packets, then the replies.

The command follows a packet to another network up to the router's interface on this host,
and again from where the router sends it. It does not follow the packet inside the router.

The command follows a packet to another host up to the tunnel. The last line is the command
that continues on the other host.

Exit status: 0 when the packet passes, 1 when the packet is dropped; 2 and 4 as of every command.

Without an agent (or with --offline) the verdict comes from the switch alone, and
steps have neither owner nor reason.`,
		Example: `  patchbay trace web-1 db-1 tcp --dport 5432
  patchbay trace tap1234abcd-56 10.0.0.9 udp --dport 53
  patchbay trace 10.0.0.9 web-1 tcp --dport 80 --from-tunnel 192.0.2.7
  patchbay trace web-1 db-1 --size 8000`,
		Args:              argumentsOf(2, 3),
		ValidArgsFunction: completePorts,
		RunE: func(cmd *cobra.Command, args []string) error {
			return runTrace(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), args, f)
		},
	}
	f.hostFlags.add(cmd)
	fl := cmd.Flags()
	fl.Uint16Var(&f.DstPort, "dport", 0, "destination port of tcp, udp or sctp")
	fl.Uint16Var(&f.SrcPort, "sport", 40000, "source port")
	fl.Uint8Var(&f.Type, "type", 0, "type of the ICMP message (default: echo request)")
	fl.Uint8Var(&f.Code, "code", 0, "code of the ICMP message")
	fl.IntVar(&f.Size, "size", 0, "size of the IP packet in bytes, to compare with the MTUs")
	fl.StringVar(&f.Src, "src", "", "send from this address instead of FROM's first")
	fl.StringVar(&f.Dst, "dst", "", "send to this address instead of TO's first")
	fl.StringVar(&f.SrcMAC, "src-mac", "", "send from this MAC instead of FROM's")
	fl.StringVar(&f.DstMAC, "dst-mac", "", "send to this MAC instead of TO's, such as a router's")
	fl.StringVar(&f.FromTunnel, "from-tunnel", "", "FROM's packets arrive through the tunnel from this address")
	fl.BoolVarP(&f.Six, "ipv6", "6", false, "use the IPv6 addresses of the ports")
	fl.BoolVarP(&f.Flows, "verbose", "v", false, "print the flows of the steps as well")
	fl.BoolVar(&f.Flows, "flows", false, "")
	_ = fl.MarkHidden("flows") // its former name
	return cmd
}

// followed is what `patchbay trace -o json` prints.
type followed struct {
	Packet  string         `json:"packet"`
	Start   string         `json:"start"`
	Agent   bool           `json:"agent"` // whether one answered
	Verdict trace.Verdict  `json:"verdict"`
	Steps   []trace.Step   `json:"steps"`
	Router  *crossed       `json:"router,omitempty"`
	Later   *trace.Verdict `json:"later_packets,omitempty"`
	Answers *trace.Verdict `json:"answers,omitempty"`
	GoOn    string         `json:"go_on,omitempty"` // the command that goes on where the packet arrives
}

// crossed is how a packet goes on after a router.
type crossed struct {
	ID    string        `json:"id"`
	Into  trace.Verdict `json:"into"` // of the way to the router
	Text  string        `json:"text"` // what the router does
	Start string        `json:"start,omitempty"`
	Steps []trace.Step  `json:"steps,omitempty"`
}

func runTrace(ctx context.Context, out, errs io.Writer, args []string, f traceFlags) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	h, err := f.look(ctx, errs)
	if err != nil {
		return err
	}
	from, to, err := h.Ends(args[0], args[1])
	if err != nil {
		return ended{exitFinding, err.Error()}
	}
	protocol := append(args, "icmp")[2]
	way, err := f.across(h, from, to, protocol)
	if err != nil {
		return usage{err}
	}
	if way != nil {
		f.DstMAC = way.In.MAC
	}
	packet, err := f.packet(h, from, to, protocol)
	if err != nil {
		return usage{err}
	}
	sw, err := openSwitch(ctx)
	if err != nil {
		return err
	}
	defer sw.close()
	doc := followed{Packet: fmt.Sprintf("%s from %s to %s", &packet, whose(packet.Src, from), whose(packet.Dst, to)), Agent: h.Live}
	first := trace.Journey{From: from, To: to, Packet: packet}
	if way != nil {
		first.To = way.In
	}
	start, v, err := sw.follow(h, &first, f.FromTunnel, "trk,new")
	if err != nil {
		return err
	}
	doc.Start, doc.Verdict, doc.Steps = start.Text, v, first.Trace.Steps
	switch {
	case !v.Passes() || packet.Protocol == trace.ARP:
	case way != nil:
		if err := f.onward(h, sw, way, first, &doc); err != nil {
			return err
		}
	default:
		if err := sw.rest(h, first, f.FromTunnel, &doc); err != nil {
			return err
		}
		doc.GoOn = f.goOn(&first, v)
	}
	if f.Output.forPrograms() {
		err = f.Output.write(out, doc)
	} else {
		doc.write(out, h, f.Flows)
	}
	if err == nil && !doc.Verdict.Passes() {
		return ended{status: exitFinding}
	}
	return err
}

// whose is an address and the port that has it, if it is one of this host.
func whose(a netip.Addr, e *trace.End) string {
	if e.Here() {
		return fmt.Sprintf("%s (%s)", a, e)
	}
	return a.String()
}

// across is the way over a router, if the packet has to take one.
func (f *traceFlags) across(h *trace.Host, from, to *trace.End, protocol string) (*trace.Crossing, error) {
	if f.DstMAC != "" || f.FromTunnel != "" || strings.EqualFold(protocol, trace.ARP) {
		return nil, nil
	}
	dst, err := f.address(h, to, f.Dst)
	if err != nil || !dst.IsValid() {
		return nil, err
	}
	return h.Across(from, to, dst), nil
}

// onward follows a packet that has come to a router on the way that the router will presumably send it.
func (f *traceFlags) onward(h *trace.Host, sw *tracer, way *trace.Crossing, first trace.Journey, doc *followed) error {
	c := &crossed{ID: way.Router, Into: doc.Verdict}
	doc.Router = c
	if way.Out == nil {
		doc.Verdict.Text += ", an interface of router " + way.Router
		doc.Verdict.Hints = append(doc.Verdict.Hints, fmt.Sprintf("no interface of the router on this host is known to be in the network of %s; the router knows: %s",
			first.Packet.Dst, way.Asks(&first.Packet)))
		return nil
	}
	next := trace.Journey{From: way.Out, To: way.To, Packet: first.Packet}
	next.Packet.SrcMAC, next.Packet.DstMAC = way.Out.MAC, way.To.MAC
	c.Text = fmt.Sprintf("router %s sends it on by %s, from %s to %s, if its own routes and filters do not say otherwise: %s",
		way.Router, way.Out, way.Out.MAC, way.To.MAC, way.Asks(&first.Packet))
	start, v, err := sw.follow(h, &next, "", "trk,new")
	if err != nil {
		return err
	}
	c.Start, c.Steps, doc.Verdict = start.Text, next.Trace.Steps, v
	doc.GoOn = f.goOn(&next, v)
	return nil
}

// packet is what the flags say.
func (f *traceFlags) packet(h *trace.Host, from, to *trace.End, protocol string) (trace.Packet, error) {
	p := trace.Packet{Protocol: strings.ToLower(protocol), SrcMAC: from.MAC, DstMAC: to.MAC, SrcPort: f.SrcPort, DstPort: f.DstPort, Type: f.Type, Code: f.Code, Size: f.Size}
	var err error
	if p.Dst, err = f.address(h, to, f.Dst); err == nil {
		f.Six = f.Six || p.Dst.Is6() // of a port with both
		p.Src, err = f.address(h, from, f.Src)
	}
	if err != nil {
		return p, err
	}
	if f.SrcMAC != "" {
		p.SrcMAC = strings.ToLower(f.SrcMAC)
	}
	if f.DstMAC != "" {
		p.DstMAC = strings.ToLower(f.DstMAC)
	}
	if p.Type == 0 && p.Code == 0 {
		p.Type = trace.EchoRequest(p.Dst)
	}
	return p, p.Check()
}

// address is the one given, else the end's own of the right version.
func (f *traceFlags) address(h *trace.Host, e *trace.End, given string) (netip.Addr, error) {
	if given != "" {
		a, err := netip.ParseAddr(given)
		if err != nil {
			return a, fmt.Errorf("%q is no address", given)
		}
		return a, nil
	}
	if f.Six {
		for _, a := range h.Addresses(e) {
			if a.Is6() {
				return a, nil
			}
		}
	}
	return e.IP, nil
}

// goOn is the command for the host to which the packet leaves.
func (f *traceFlags) goOn(j *trace.Journey, v trace.Verdict) string {
	if v.Outcome != trace.Leaves || j.To.Tunnel == nil || j.To.Tunnel.Local == "" {
		return ""
	}
	p := &j.Packet
	text := fmt.Sprintf("patchbay trace %s %s %s", p.Src, p.Dst, p.Protocol)
	if mac := j.Sender(); mac != p.SrcMAC {
		text += " --src-mac " + mac
	}
	if p.DstPort != 0 {
		text += fmt.Sprintf(" --dport %d", p.DstPort)
	}
	if p.Size != 0 {
		text += fmt.Sprintf(" --size %d", p.Size)
	}
	return text + " --from-tunnel " + j.To.Tunnel.Local
}

func (d *followed) write(out io.Writer, h *trace.Host, flows bool) {
	fmt.Fprintf(out, "%s\n%s\n\n", d.Packet, d.Start)
	h.Write(out, d.Steps, flows)
	if r := d.Router; r != nil && r.Start != "" {
		fmt.Fprintf(out, "\n%s\n", r.Into)
		for _, hint := range r.Into.Hints {
			fmt.Fprintf(out, "  %s\n", hint)
		}
		fmt.Fprintf(out, "%s\n\n%s\n\n", r.Text, r.Start)
		h.Write(out, r.Steps, flows)
	}
	fmt.Fprintf(out, "\n%s\n", d.Verdict)
	for _, hint := range d.Verdict.Hints {
		fmt.Fprintf(out, "  %s\n", hint)
	}
	for _, more := range []struct {
		what string
		v    *trace.Verdict
	}{{"later packets", d.Later}, {"answers", d.Answers}} {
		if more.v != nil && more.v.Passes() {
			fmt.Fprintf(out, "%s: %s\n", more.what, more.v.Outcome)
		}
	}
	if d.GoOn != "" {
		fmt.Fprintf(out, "go on there with: %s\n", d.GoOn)
	}
}
