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
		Short: "Follow a packet through the switch and say what becomes of it, and why",
		Long: `Follow a packet through the switch and say what becomes of it, and why.

FROM and TO are ports of this host (id, the beginning of it, name, interface or
address) or the address of a station on another host; one of them is a port here.
Without a protocol it is a ping. The switch itself decides (ofproto/trace): no
packet is sent and nothing is changed. The first packet of a connection is
followed, then later ones, then the answers.

A packet that leaves to another host is followed to the tunnel; the last line is
the command that goes on there.

Exit status: 0 when it passes, 2 when it is dropped, 1 when it could not be followed.

Without an agent (or with --offline) the verdict comes from the switch alone, and
steps have neither owner nor reason.`,
		Example: `  patchbay trace web-1 db-1 tcp --dport 5432
  patchbay trace tap1234abcd-56 10.0.0.9 udp --dport 53
  patchbay trace 10.0.0.9 web-1 tcp --dport 80 --from-tunnel 192.0.2.7
  patchbay trace web-1 db-1 --size 8000`,
		Args:              cobra.RangeArgs(2, 3),
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
	fl.IntVar(&f.Size, "size", 0, "size of the IP packet in bytes, to see whether it fits")
	fl.StringVar(&f.Src, "src", "", "send from this address instead of FROM's first")
	fl.StringVar(&f.Dst, "dst", "", "send to this address instead of TO's first")
	fl.StringVar(&f.SrcMAC, "src-mac", "", "send from this MAC instead of FROM's")
	fl.StringVar(&f.DstMAC, "dst-mac", "", "send to this MAC instead of TO's, such as a router's")
	fl.StringVar(&f.FromTunnel, "from-tunnel", "", "FROM's packets come by the tunnel to this address")
	fl.BoolVarP(&f.Six, "ipv6", "6", false, "use the IPv6 addresses of the ports")
	fl.BoolVarP(&f.Flows, "flows", "v", false, "print the flows of the steps as well")
	return cmd
}

// followed is what `patchbay trace --json` prints.
type followed struct {
	Packet  string         `json:"packet"`
	Start   string         `json:"start"`
	Agent   bool           `json:"agent"` // whether one answered
	Verdict trace.Verdict  `json:"verdict"`
	Steps   []trace.Step   `json:"steps"`
	Later   *trace.Verdict `json:"later_packets,omitempty"`
	Answers *trace.Verdict `json:"answers,omitempty"`
	GoOn    string         `json:"go_on,omitempty"` // the command that goes on where the packet arrives
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
		return err
	}
	packet, err := f.packet(h, from, to, append(args, "icmp")[2])
	if err != nil {
		return err
	}
	sw, err := openSwitch(ctx)
	if err != nil {
		return err
	}
	defer sw.close()
	doc := followed{Packet: fmt.Sprintf("%s from %s (%s) to %s (%s)", &packet, packet.Src, from, packet.Dst, to), Agent: h.Live}
	first := trace.Journey{From: from, To: to, Packet: packet}
	start, v, err := sw.follow(h, &first, f.FromTunnel, "trk,new")
	if err != nil {
		return err
	}
	doc.Start, doc.Verdict, doc.Steps = start.Text, v, first.Trace.Steps
	if v.Passes() && packet.Protocol != trace.ARP {
		if err := sw.rest(h, first, f.FromTunnel, &doc); err != nil {
			return err
		}
		doc.GoOn = f.goOn(&first, v)
	}
	if f.JSON {
		err = writeJSON(out, doc)
	} else {
		doc.write(out, h, f.Flows)
	}
	if err == nil && !doc.Verdict.Passes() {
		return quiet{2}
	}
	return err
}

// packet is what the flags say.
func (f *traceFlags) packet(h *trace.Host, from, to *trace.End, protocol string) (trace.Packet, error) {
	p := trace.Packet{Protocol: strings.ToLower(protocol), SrcMAC: from.MAC, DstMAC: to.MAC, SrcPort: f.SrcPort, DstPort: f.DstPort, Type: f.Type, Code: f.Code, Size: f.Size}
	var err error
	if p.Src, err = f.address(h, from, f.Src); err == nil {
		p.Dst, err = f.address(h, to, f.Dst)
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
