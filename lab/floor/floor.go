// SPDX-License-Identifier: Apache-2.0

// Package floor wires ports with nothing in the way: the same questions to the server, the same rows, the same flows and
// the same reports as an agent, made as soon as each can be made, by a program that decides nothing. It restores nothing,
// repairs nothing and retries nothing. What it takes from plug to ACTIVE is what the parts take (Open vSwitch, RabbitMQ,
// neutron-server), and so the floor under every agent on the same machine.
//
// The host's bridges must have been set up by an agent before, and no agent may run beside it. Only ports of tunnelled
// networks with port security and without address pairs are wired, which is what the lab makes by default.
package floor

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/lab"
	of "github.com/patchbay-sdn/patchbay/openflow"
	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

const (
	integration = "br-int"
	tunnel      = "br-tun"

	// reportSize is the default of [DEFAULT] rpc_resources_processing_step.
	reportSize = 20
)

// Batches is how a program asks about many ports that come at once, and reports them. Rows and flows of all ports that are complete
// are always written together, in one transaction and one bundle, as soon as they are complete; reports name what is in place.
//
// Which is best depends on what is looked at and on the server, so more than one is offered, and the floor under a figure
// is the best of them.
type Batches struct {
	First, Most int // ports in the first question, doubled with every further one up to the most
	Asking      int // questions at a time
	Report      int // ports in a report; 0: rpc_resources_processing_step
	Telling     int // reports at a time; 0: one, for a server that takes them one after the other
}

var (
	// FewFirst has the first ports up soon, because the server's answer takes as long as the ports in it.
	FewFirst = Batches{First: 5, Most: 100, Asking: 2}
	// AllAtOnce has the fewest calls.
	AllAtOnce = Batches{First: 100, Most: 100, Asking: 8}
)

// SideBySide is for a server that takes so many calls at a time.
func SideBySide(calls, report int) Batches {
	return Batches{First: report, Most: report, Asking: calls, Report: report, Telling: calls}
}

// Floor wires what is plugged into one host until it is closed.
type Floor struct {
	server   *neutron.Server
	versions neutron.Versions
	client   *messaging.Client
	db       *ovsdb.Client
	view     *ovsdb.View
	bridges  map[string]*of.Conn
	stop     context.CancelFunc
	work     sync.WaitGroup

	// Owned by the loop.
	batches Batches
	size    int                  // ports in the next question
	asking  int                  // questions on their way
	ask     []string             // yet to be asked about
	ports   map[ovsdb.UUID]*port // by interface
	vlans   map[string]int       // by network
	up      []string             // to be reported
	down    []string
	telling int // reports on their way
	pulled  chan []neutron.Port
	wired   chan []string
	told    chan struct{}
	failed  chan error

	mu  sync.Mutex
	err error
}

type port struct {
	id      string
	mac     neutron.MAC
	row     ovsdb.UUID
	number  uint32 // in OpenFlow
	details *neutron.Port
	wired   bool
	flows   []of.Key
}

// Start connects to everything, registers the host with the server, and wires from then on.
func Start(ctx context.Context, l *lab.Lab, h *lab.Host, batches Batches) (*Floor, error) {
	if kind, pid := h.Agent(); pid != 0 {
		return nil, fmt.Errorf("the %s agent runs on %s; stop it first", kind, h.Name())
	}
	client, err := Open(l, h.Name())
	if err != nil {
		return nil, err
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	f := &Floor{
		server: neutron.NewServer(client, h.Name()), client: client, view: ovsdb.NewView(), bridges: map[string]*of.Conn{}, stop: stop,
		batches: batches, size: batches.First, ports: map[ovsdb.UUID]*port{}, vlans: map[string]int{},
		pulled: make(chan []neutron.Port), wired: make(chan []string), told: make(chan struct{}), failed: make(chan error),
	}
	if err := f.connect(ctx, running, h); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("starting the floor on %s: %w", h.Name(), err)
	}
	f.work.Go(func() { f.loop(running) })
	return f, nil
}

// Open makes a client of the lab's broker.
func Open(l *lab.Lab, host string) (*messaging.Client, error) {
	url, err := messaging.ParseURL(l.TransportURL())
	if err != nil {
		return nil, fmt.Errorf("reading the lab's transport_url: %w", err)
	}
	return messaging.Open(messaging.Config{
		URL: url, Exchange: "neutron", Rabbit: messaging.DefaultRabbit(), Program: "lab-floor", Host: host,
		Context: func(context.Context) map[string]any { return neutron.RequestContext(time.Now()) },
	})
}

func (f *Floor) connect(ctx, running context.Context, h *lab.Host) (err error) {
	if _, f.versions, err = neutron.Negotiate(ctx, f.server); err != nil {
		return err
	}
	if f.db, err = ovsdb.New(ovsdb.Config{Endpoint: "unix:" + h.Switch().DBSocket()}); err != nil {
		return err
	}
	f.work.Go(func() { f.db.Run(running) })
	select {
	case b := <-f.db.Changes():
		if b.Kind != ovsdb.Initial {
			return fmt.Errorf("the switch's database: %w", b.Err)
		}
		f.view.Apply(b)
	case <-ctx.Done():
		return ctx.Err()
	}
	ip, can := h.LocalIP(), f.view.Capabilities()
	if _, err = f.server.ReportState(ctx, neutron.AgentState{
		Binary: neutron.Binary, Host: h.Name(), Topic: "N/A", AgentType: neutron.AgentType, ResourceVersions: f.versions,
		Configurations: neutron.Configurations{
			BridgeMappings: map[string]string{"physnet1": "br-ex"}, IntegrationBridge: integration, DatapathType: "netdev",
			TunnelTypes: []string{"vxlan", "gre", "geneve"}, TunnelingIP: &ip, L2Population: true, ARPResponderEnabled: true,
			Extensions: []string{}, RPBandwidths: map[string]neutron.DirectedRate{}, RPHypervisors: map[string]string{},
			OVSCapabilities: neutron.Capabilities{DatapathTypes: can.DatapathTypes, IfaceTypes: can.IfaceTypes},
		},
	}, time.Now()); err != nil {
		return err
	}
	for p := range f.view.Ports() {
		if network := p.OtherConfig["net_uuid"]; network != "" && p.Tag != nil {
			f.vlans[network] = *p.Tag
		}
	}
	for _, name := range []string{integration, tunnel} {
		if f.bridges[name], err = of.Dial(ctx, "unix:"+h.Switch().MgmtSocket(name), of.Config{}); err != nil {
			return fmt.Errorf("bridge %s, which an agent sets up: %w", name, err)
		}
	}
	return nil
}

// Close ends the floor and tells the first thing that went wrong. What it wired stays.
func (f *Floor) Close() error {
	f.stop()
	f.work.Wait()
	for _, c := range f.bridges {
		if c != nil {
			_ = c.Close()
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = f.client.Close(ctx)
	return f.Err()
}

// Err is the first thing that went wrong, or nil.
func (f *Floor) Err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

func (f *Floor) loop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case b, ok := <-f.db.Changes():
			if !ok {
				return
			}
			f.view.Apply(b)
			f.plugged(ctx, b)
		case found := <-f.pulled:
			f.asking--
			f.size = min(2*f.size, f.batches.Most)
			for i := range found {
				for _, p := range f.ports {
					if p.id == found[i].ID {
						p.details = &found[i]
					}
				}
			}
		case ids := <-f.wired:
			f.up = append(f.up, ids...)
		case <-f.told:
			f.telling--
		case err := <-f.failed:
			f.mu.Lock()
			if f.err == nil {
				f.err = err
			}
			f.mu.Unlock()
		}
		f.pull(ctx)
		f.wire(ctx)
		f.tell(ctx)
	}
}

// do runs something beside the loop.
func (f *Floor) do(ctx context.Context, what string, work func() error) {
	f.work.Go(func() {
		if err := work(); err != nil {
			send(ctx, f.failed, fmt.Errorf("%s: %w", what, err))
		}
	})
}

func send[T any](ctx context.Context, c chan<- T, v T) {
	select {
	case c <- v:
	case <-ctx.Done():
	}
}

// plugged takes note of new interfaces and takes away what belonged to old ones.
func (f *Floor) plugged(ctx context.Context, b *ovsdb.Batch) {
	var gone []of.Message
	for _, d := range b.Interfaces {
		if d.New == nil {
			if p := f.ports[d.Old.UUID]; p != nil {
				delete(f.ports, d.Old.UUID)
				f.down = append(f.down, p.id)
				for _, k := range p.flows {
					gone = append(gone, of.DeleteFlow(k))
				}
			}
			continue
		}
		id := d.New.ExternalIDs["iface-id"]
		mac, err := neutron.ParseMAC(d.New.ExternalIDs["attached-mac"])
		if id == "" || err != nil {
			continue
		}
		p := f.ports[d.New.UUID]
		if p == nil {
			p = &port{id: id, mac: mac}
			f.ports[d.New.UUID] = p
			f.ask = append(f.ask, id)
		}
		if row := f.view.PortOf(d.New.UUID); row != nil {
			p.row = row.UUID
		}
		if n := d.New.OFPort; n != nil && *n > 0 {
			p.number = uint32(*n)
		}
	}
	if len(gone) > 0 {
		f.do(ctx, "removing flows", func() error { return f.bridges[integration].Commit(ctx, gone) })
	}
}

// pull asks about ports.
func (f *Floor) pull(ctx context.Context) {
	if len(f.ask) == 0 && f.asking == 0 {
		f.size = f.batches.First
	}
	for len(f.ask) > 0 && f.asking < f.batches.Asking {
		ids := slices.Clone(f.ask[:min(f.size, len(f.ask))])
		f.ask = f.ask[len(ids):]
		f.asking++
		f.do(ctx, "asking about ports", func() error {
			objects, err := f.server.BulkPull(ctx, f.versions, neutron.KindPort, map[string]any{"id": ids})
			var found []neutron.Port
			if err == nil {
				found, err = neutron.DecodeAll[neutron.Port](neutron.KindPort, objects)
			}
			send(ctx, f.pulled, found)
			return err
		})
	}
}

// wire writes the rows and flows of all ports that are complete: one transaction and one bundle a bridge, side by side.
func (f *Floor) wire(ctx context.Context) {
	tx := ovsdb.NewTx(f.view)
	var ids []string
	bundles := map[string][]of.Message{}
	for _, p := range f.ports {
		if p.wired || p.details == nil || p.number == 0 || p.row == "" {
			continue
		}
		p.wired = true
		levels := p.details.BindingLevels
		if len(levels) == 0 || levels[len(levels)-1].Segment.Value == nil || levels[len(levels)-1].Segment.Value.SegmentationID == nil {
			continue
		}
		segment := levels[len(levels)-1].Segment.Value
		vlan := f.vlans[p.details.NetworkID]
		if vlan == 0 {
			vlan = f.freeVLAN()
			f.vlans[p.details.NetworkID] = vlan
			bundles[tunnel] = append(bundles[tunnel], of.AddFlow(network(segment, vlan)))
		}
		tx.Port(p.row).SetTag(vlan).MergeOtherConfig(map[string]string{
			"net_uuid": p.details.NetworkID, "network_type": segment.NetworkType, "physical_network": "None",
			"segmentation_id": strconv.Itoa(*segment.SegmentationID), "tag": strconv.Itoa(vlan),
		})
		for _, e := range genuine(p) {
			p.flows = append(p.flows, e.Key())
			bundles[integration] = append(bundles[integration], of.AddFlow(e))
		}
		ids = append(ids, p.id)
	}
	if len(ids) == 0 {
		return
	}
	f.do(ctx, "wiring ports", func() error {
		var all sync.WaitGroup
		errs := make(chan error, 1+len(bundles))
		all.Go(func() { _, err := f.db.Commit(ctx, tx); errs <- err })
		for name, msgs := range bundles {
			all.Go(func() { errs <- f.bridges[name].Commit(ctx, msgs) })
		}
		all.Wait()
		close(errs)
		for err := range errs {
			if err != nil {
				return err
			}
		}
		send(ctx, f.wired, ids)
		return nil
	})
}

// tell reports what is wired and what is gone, one report at a time.
func (f *Floor) tell(ctx context.Context) {
	size := cmp.Or(f.batches.Report, reportSize)
	for f.telling < max(f.batches.Telling, 1) && len(f.up)+len(f.down) > 0 {
		f.telling++
		var u neutron.DeviceUpdate
		u.Up, f.up = f.up[:min(size, len(f.up))], f.up[min(size, len(f.up)):]
		u.Down, f.down = f.down[:min(size, len(f.down))], f.down[min(size, len(f.down)):]
		f.do(ctx, "reporting ports", func() error {
			_, err := f.server.UpdateDevices(ctx, u)
			send(ctx, f.told, struct{}{})
			return err
		})
	}
}

func (f *Floor) freeVLAN() int {
	used := map[int]bool{}
	for _, v := range f.vlans {
		used[v] = true
	}
	v := 1
	for used[v] {
		v++
	}
	return v
}
