// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/netip"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchbay-sdn/patchbay/internal/inspect"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/trace"
	"github.com/patchbay-sdn/patchbay/internal/unixctl"
)

// agentPatience is how long an agent may take to say anything at all before a command goes on without it.
const agentPatience = 5 * time.Second

// answers says whether the agent answers a short question. One with many flows may take its time for a long one.
func (f *askFlags) answers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, agentPatience)
	defer cancel()
	_, err := f.client().Bridges(ctx)
	return err
}

// hostFlags are the flags of commands that look at the switch as well as at the agent.
type hostFlags struct {
	askFlags
	Offline  bool
	Database string
}

func (f *hostFlags) add(cmd *cobra.Command) {
	f.askFlags.add(cmd)
	cmd.Flags().BoolVar(&f.Offline, "offline", false, "do not ask the agent")
	cmd.Flags().StringVar(&f.Database, "db", "", "the switch's database: unix:PATH or tcp:IP:PORT (default: db.sock in $OVS_RUNDIR or the default run directory)")
}

// inSet asks the kernel whether an address is in an IP set. It is not known without the program, the right to ask, or the set.
func inSet(ctx context.Context, set string, a netip.Addr) (in, known bool) {
	out, err := exec.CommandContext(ctx, "ipset", "test", set, a.String()).CombinedOutput()
	return err == nil, err == nil || strings.Contains(string(out), "is NOT in set")
}

// look asks the switch's database and the agent. One of them is enough: without an agent there are the flows, read from the
// switch; without the database there is what the agent knows of interfaces.
func (f *hostFlags) look(ctx context.Context, errs io.Writer) (*trace.Host, error) {
	var rows []ovsdb.Attachment
	var closed error
	if v, ok := momentOf(ctx); ok {
		rows = attachments(v.World.View)
	} else {
		rows, closed = ovsdb.Look(ctx, ovsdb.Config{Endpoint: cmp.Or(f.Database, ovsdb.LocalEndpoint())})
	}
	h := &trace.Host{Member: func(set string, a netip.Addr) (in, known bool) { return inSet(ctx, set, a) }}
	for i := range rows {
		h.Interfaces = append(h.Interfaces, interfaceOf(&rows[i]))
	}
	if !f.Offline {
		err := f.answers(ctx)
		if err == nil {
			err = h.Ask(ctx, f.client())
		}
		if err == nil && closed != nil {
			fmt.Fprintf(errs, "%v; going on with what the agent knows\n\n", closed)
			h.Remember()
		}
		if err == nil {
			return h, nil
		}
		fmt.Fprintf(errs, "%v; going on without the agent: nothing is known of owners, reasons and rules\n\n", err)
	}
	if closed != nil {
		return nil, closed
	}
	for _, bridge := range h.Ours() {
		flows, err := dumpBridge(ctx, bridge, "")
		if err != nil {
			return nil, err
		}
		for i := range flows {
			h.Flows = append(h.Flows, inspect.Flow{Bridge: bridge, Table: flows[i].Table, Text: flows[i].entry.String()})
		}
	}
	return h, nil
}

func interfaceOf(a *ovsdb.Attachment) trace.Interface {
	i := trace.Interface{
		Bridge: a.Bridge, Name: a.Interface.Name, Type: a.Interface.Type, Error: a.Interface.Error,
		Network: a.Port.OtherConfig["net_uuid"], NetworkType: a.Port.OtherConfig["network_type"], Physical: a.Port.OtherConfig["physical_network"],
		PortID: a.Interface.ExternalIDs["iface-id"], MAC: strings.ToLower(a.Interface.ExternalIDs["attached-mac"]),
		Peer: a.Interface.Options["peer"], Remote: a.Interface.Options["remote_ip"], Local: a.Interface.Options["local_ip"], MTU: a.MTU,
	}
	// What is not a number is as good as nothing.
	i.Wanted, _ = strconv.Atoi(a.Port.OtherConfig["tag"])
	i.Segment, _ = strconv.Atoi(a.Port.OtherConfig["segmentation_id"])
	if a.Interface.OFPort != nil {
		i.OFPort = *a.Interface.OFPort
	}
	if a.Port.Tag != nil {
		i.Tag = *a.Port.Tag
	}
	switch {
	case a.AdminDown:
		i.Down = "is admin down on this host (ip link set up)"
	case a.LinkDown && i.Type == "":
		i.Down = "has no carrier: nothing is connected at its other end, or it is admin down there"
	}
	return i
}

// tracer runs packets through the switch.
type tracer struct {
	ctl   *unixctl.Client
	ports map[uint32]string
}

// openSwitch connects to the ovs-vswitchd of the run directory.
func openSwitch(ctx context.Context) (*tracer, error) {
	socket := strings.TrimPrefix(ovsdb.LocalEndpoint(), "unix:")
	ctl, err := unixctl.Dial(ctx, filepath.Dir(socket))
	if err != nil {
		return nil, err
	}
	show, err := ctl.Call("dpif/show")
	if err != nil {
		ctl.Close()
		return nil, err
	}
	return &tracer{ctl, trace.ParsePorts(show)}, nil
}

func (t *tracer) close() { t.ctl.Close() }

// maxTracked bounds how often a packet may be looked up in connection tracking.
const maxTracked = 8

// follow runs one packet through the switch, with its connection in the given state.
func (t *tracer) follow(h *trace.Host, j *trace.Journey, tunnel, state string) (trace.Start, trace.Verdict, error) {
	start, err := h.Start(j.From, j.To, tunnel)
	if err != nil {
		return start, trace.Verdict{}, err
	}
	args := []string{start.Bridge, start.Flow + j.Packet.Flow()}
	for range maxTracked {
		args = append(args, "--ct-next", state)
	}
	text, err := t.ctl.Call("ofproto/trace", args...)
	if err != nil {
		return start, trace.Verdict{}, err
	}
	if j.Trace, err = trace.Parse(text); err != nil {
		return start, trace.Verdict{}, err
	}
	j.Ports, j.Tracked = t.ports, strings.Contains(state, "est")
	return start, h.Judge(j), nil
}

// rest follows the packets after the first: later ones, and the answers if they begin on this host. What is lost then counts.
func (t *tracer) rest(h *trace.Host, first trace.Journey, tunnel string, doc *followed) error {
	later := first
	_, v, err := t.follow(h, &later, tunnel, "trk,est")
	if err != nil {
		return err
	}
	doc.Later = &v
	lost := func(v trace.Verdict, what string, steps []trace.Step) {
		if v.Passes() || !doc.Verdict.Passes() {
			return
		}
		v.Text = what + ": " + v.Text
		doc.Verdict, doc.Steps = v, steps
	}
	lost(v, "the first packet passes, but not the ones after it", later.Trace.Steps)
	if !first.To.Here() || first.Packet.Src != first.From.IP {
		return nil
	}
	back := trace.Journey{From: first.To, To: first.From, Packet: first.Packet.Answer()}
	if back.Packet.DstMAC == "" {
		return nil // nobody knows whom to send it to
	}
	_, v, err = t.follow(h, &back, "", "trk,est,rpl")
	if err != nil {
		return err
	}
	doc.Answers = &v
	lost(v, "packets pass, but not the answers", back.Trace.Steps)
	return nil
}
