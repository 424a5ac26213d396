// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchbay-sdn/patchbay/internal/capture"
	"github.com/patchbay-sdn/patchbay/internal/trace"
)

// captureFlags are the flags of `patchbay capture`.
type captureFlags struct {
	hostFlags
	Filter capture.Filter
	Host   string
	Time   time.Duration
	Count  int
	Rate   int
	File   string
}

func newCaptureCommand() *cobra.Command {
	var f captureFlags
	cmd := &cobra.Command{
		Use:   "capture PORT [" + strings.Join(capture.Protocols, "|") + "|NUMBER]",
		Short: "Show the packets of one port, and what Open vSwitch does with each packet that the VM sends",
		Long: `Show the packets of one port, and what Open vSwitch does with each packet that the VM sends.

PORT is an id, the beginning of an id, a name, an interface or an address. The command reads packets from the port's
interface in the kernel. For each kind of packet that the VM sends, it runs ofproto/trace in ovs-vswitchd, and prints where
the packet goes, or which rule or check drops it. The command sends no packet and changes nothing. It ends after --time,
after --count packets or with Ctrl-C, and then prints a summary.

With --file the command writes the packets to a pcap file, for Wireshark and other programs; - is standard output.

For a port behind a Linux bridge, the command reads packets between that bridge and Open vSwitch. Packets that the VM sends
have passed its iptables rules there; packets to the VM have not. A port in user space, such as vhost-user, has no interface
in the kernel, and cannot be captured.`,
		Example: `  patchbay capture web-1
  patchbay capture web-1 dhcp --time 2m
  patchbay capture 10.0.0.9 tcp --dport 5432 --from-vm -o json
  ssh hv1 patchbay capture web-1 --file - | wireshark -k -i -`,
		Args:              argumentsOf(1, 2),
		ValidArgsFunction: completePorts,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return f.run(ctx, cmd, args)
		},
	}
	f.hostFlags.add(cmd)
	fl := cmd.Flags()
	fl.Uint16Var(&f.Filter.Port, "dport", 0, "only packets with this source or destination port of tcp, udp or sctp")
	fl.StringVar(&f.Host, "host", "", "only packets with this source or destination address")
	fl.BoolVar(&f.Filter.FromVM, "from-vm", false, "only packets that the VM sends")
	fl.BoolVar(&f.Filter.ToVM, "to-vm", false, "only packets to the VM")
	fl.DurationVar(&f.Time, "time", time.Minute, "end after this time")
	fl.IntVar(&f.Count, "count", 0, "end after this number of packets (default: no limit)")
	fl.IntVar(&f.Rate, "rate", 200, "show or write at most this number of packets a second, and count the others")
	fl.StringVar(&f.File, "file", "", "write the packets to this pcap file, - for standard output")
	return cmd
}

// check completes the filter, and says what is wrong with the flags.
func (f *captureFlags) check(args []string, out io.Writer) error {
	var err error
	f.Filter.Protocol = strings.ToLower(append(args, "")[1])
	if f.Host != "" {
		if f.Filter.Host, err = netip.ParseAddr(f.Host); err != nil {
			return fmt.Errorf("--host %q is no address", f.Host)
		}
	}
	switch {
	case f.Time <= 0 || f.Rate <= 0 || f.Count < 0:
		return errors.New("--time, --rate and --count are positive")
	case f.File == "-" && isTerminal(out):
		return errors.New("a pcap file is not for a terminal: give --file FILE")
	}
	if err := f.Filter.Check(); err != nil {
		return fmt.Errorf("%w%s", err, meant(f.Filter.Protocol, capture.Protocols))
	}
	return nil
}

func (f *captureFlags) run(ctx context.Context, cmd *cobra.Command, args []string) error {
	if err := f.check(args, os.Stdout); err != nil {
		return usage{err}
	}
	ctx, cancel := context.WithTimeout(ctx, f.Time)
	defer cancel()
	h, err := f.look(ctx, cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	end, err := h.Port(args[0])
	if err != nil {
		return ended{exitFinding, err.Error()}
	}
	device, vlan := h.Device(end)
	if device == nil {
		return ended{exitFinding, fmt.Sprintf("%s is not plugged in on this host", end)}
	}
	socket, err := capture.Open(device.Name)
	if err != nil {
		return err
	}
	defer socket.Close()
	s := &sight{host: h, port: end, device: device, vlan: vlan, flags: f, out: cmd.OutOrStdout(), seen: map[string]*kindOfPacket{}}
	if sw, err := openSwitch(ctx); err != nil {
		fmt.Fprintf(cmd.ErrOrStderr(), "%v; going on without the switch: what becomes of packets is not known\n", err)
	} else {
		defer sw.close()
		s.judge = sw.judge
	}
	if f.File != "" {
		if err := s.openFile(f.File); err != nil {
			return err
		}
		defer s.file.Close() //nolint:errcheck // every write was looked at
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "packets of %s at %s, for %s; Ctrl-C ends it\n", end, device.Name, f.Time)
	if err := s.watch(ctx, socket.Next); err != nil {
		return err
	}
	s.missed += socket.Missed()
	s.summary(cmd.ErrOrStderr())
	return nil
}

// sight is one capture.
type sight struct {
	host   *trace.Host
	port   *trace.End
	device *trace.Interface
	vlan   int // tag of a sub-port's frames on its trunk
	flags  *captureFlags
	out    io.Writer
	file   io.WriteCloser
	pcap   *capture.File
	// judge asks the switch what becomes of a frame; nil: there is no switch to ask.
	judge func(h *trace.Host, from *trace.End, device *trace.Interface, c *capture.Content) (trace.Verdict, error)

	seen            map[string]*kindOfPacket
	from, to        int // frames by direction
	asked, answered int // DHCP messages from the VM, and to it
	missed          int // not read, or beyond the rate
	second          time.Time
	shown, traced   int // in this second
}

// kindOfPacket is what becomes of frames that differ in nothing that the switch looks at.
type kindOfPacket struct {
	verdict trace.Verdict
	at      time.Time // of the verdict
	count   int
}

const (
	// verdictAge is how long a verdict counts: flows change.
	verdictAge = 2 * time.Second
	// maxTraces is how many questions a second the switch is asked.
	maxTraces = 20
)

// shownFrame is a frame as programs get it.
type shownFrame struct {
	Time    time.Time      `json:"time"`
	From    string         `json:"from"` // vm or switch
	Bytes   int            `json:"bytes"`
	SrcMAC  string         `json:"src_mac"`
	DstMAC  string         `json:"dst_mac"`
	VLAN    uint16         `json:"vlan,omitempty"`
	Src     string         `json:"src,omitempty"`
	Dst     string         `json:"dst,omitempty"`
	Text    string         `json:"text"`
	Verdict *trace.Verdict `json:"verdict,omitempty"`
}

func (s *sight) openFile(name string) error {
	s.file = os.Stdout
	if name != "-" {
		file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
		if err != nil {
			return fmt.Errorf("writing the packets: %w", err)
		}
		s.file = file
	}
	var err error
	s.pcap, err = capture.NewFile(s.file)
	return err
}

// watch takes frames until the context ends or there are enough.
func (s *sight) watch(ctx context.Context, next func(context.Context) (capture.Frame, error)) error {
	for n := 0; s.flags.Count == 0 || n < s.flags.Count; {
		frame, err := next(ctx)
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // that it ends is no failure
		case err != nil:
			return err
		}
		c := capture.Read(frame.Data)
		if s.vlan != 0 && int(c.VLAN) != s.vlan || !s.flags.Filter.Takes(frame.Sent, &c) {
			continue
		}
		n++
		if err := s.take(&frame, &c); err != nil {
			return err
		}
	}
	return nil
}

// take counts a frame, and shows or writes it.
func (s *sight) take(frame *capture.Frame, c *capture.Content) error {
	if second := frame.Time.Truncate(time.Second); second != s.second {
		s.second, s.shown, s.traced = second, 0, 0
	}
	dhcp := capture.Filter{Protocol: "dhcp"}
	isDHCP := dhcp.Takes(frame.Sent, c)
	if frame.Sent {
		s.to++
		s.answered += one(isDHCP)
	} else {
		s.from++
		s.asked += one(isDHCP)
	}
	if s.shown++; s.shown > s.flags.Rate {
		s.missed++
		return nil
	}
	if s.pcap != nil {
		return s.pcap.Write(frame)
	}
	return s.show(frame, c, s.verdict(frame, c))
}

func one(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

// verdict says what becomes of a frame that the VM sent; nil when nobody knows.
func (s *sight) verdict(frame *capture.Frame, c *capture.Content) *trace.Verdict {
	if frame.Sent || s.judge == nil || c.Flow == "" {
		return nil
	}
	k := s.seen[c.Flow]
	if k == nil || frame.Time.Sub(k.at) > verdictAge {
		if s.traced++; s.traced > maxTraces {
			return nil
		}
		v, err := s.judge(s.host, s.port, s.device, c)
		if err != nil {
			v = trace.Verdict{Outcome: "unknown", Text: err.Error()}
		}
		if k == nil {
			k = &kindOfPacket{}
			s.seen[c.Flow] = k
		}
		k.verdict, k.at = v, frame.Time
	}
	k.count++
	return &k.verdict
}

func (s *sight) show(frame *capture.Frame, c *capture.Content, v *trace.Verdict) error {
	doc := shownFrame{
		Time: frame.Time, From: "vm", Bytes: len(frame.Data), SrcMAC: c.Packet.SrcMAC, DstMAC: c.Packet.DstMAC, VLAN: c.VLAN, Text: c.Text, Verdict: v,
		Src: address(c.Packet.Src, c.Packet.SrcPort), Dst: address(c.Packet.Dst, c.Packet.DstPort),
	}
	if frame.Sent {
		doc.From = "switch"
	}
	if s.flags.Output.forPrograms() {
		return s.flags.Output.writeNext(s.out, doc)
	}
	way := "from the VM"
	if frame.Sent {
		way = "to the VM  "
	}
	ends := cmp.Or(doc.Src, doc.SrcMAC) + " > " + cmp.Or(doc.Dst, doc.DstMAC)
	if c.Packet.Protocol == trace.ARP {
		ends = doc.SrcMAC + " > " + doc.DstMAC
	}
	tag := ""
	if c.VLAN != 0 {
		tag = fmt.Sprintf(", VLAN %d", c.VLAN)
	}
	_, err := fmt.Fprintf(s.out, "%s  %s  %s  %s%s\n", frame.Time.Local().Format("15:04:05.000000"), way, ends, c.Text, tag)
	if v != nil && err == nil {
		_, err = fmt.Fprintf(s.out, "                 %s\n", v)
		for _, hint := range v.Hints {
			fmt.Fprintf(s.out, "                   %s\n", hint)
		}
	}
	return err
}

// address is "10.0.0.5:53", or "" where there is none.
func address(a netip.Addr, port uint16) string {
	switch {
	case !a.IsValid():
		return ""
	case port == 0:
		return a.String()
	}
	return netip.AddrPortFrom(a, port).String()
}

// summary says what was seen, the dropped first.
func (s *sight) summary(out io.Writer) {
	fmt.Fprintf(out, "\n%s from the VM, %s to it", plural(s.from, "packet"), plural(s.to, "packet"))
	if s.missed > 0 {
		fmt.Fprintf(out, "; %d more were not shown (--rate)", s.missed)
	}
	fmt.Fprintln(out)
	counts := map[string]int{}
	for _, k := range s.seen {
		if !k.verdict.Passes() {
			counts[k.verdict.String()] += k.count
		}
	}
	for _, text := range sortedByCount(counts) {
		fmt.Fprintf(out, "  %d %s\n", counts[text], text)
	}
	switch {
	case s.from == 0 && s.flags.Filter == (capture.Filter{}):
		fmt.Fprintln(out, "  the VM sends nothing: it is down, or its interface is")
	case s.asked > 0 && s.answered == 0 && len(counts) == 0:
		fmt.Fprintf(out, "  the VM asked for an address %s, and no answer came: its questions leave this port, so look at who answers DHCP in its network\n", plural(s.asked, "time"))
	}
}

// question returns the arguments of ofproto/trace for a frame that came in by an interface. It has the fields of the frame and not its bytes: with these
// ofproto/trace would teach the switch and send the frame to controllers.
func question(device *trace.Interface, c *capture.Content) []string {
	args := []string{device.Bridge, fmt.Sprintf("in_port=%d,%s", device.OFPort, c.Flow)}
	for range maxTracked {
		args = append(args, "--ct-next", "trk,new")
	}
	return args
}

// judge asks the switch what becomes of a frame.
func (t *tracer) judge(h *trace.Host, from *trace.End, device *trace.Interface, c *capture.Content) (trace.Verdict, error) {
	text, err := t.ctl.Call("ofproto/trace", question(device, c)...)
	if err != nil {
		return trace.Verdict{}, err
	}
	way, err := trace.Parse(text)
	if err != nil {
		return trace.Verdict{}, err
	}
	return h.JudgeFrame(from, c.Packet, way, t.ports), nil
}
