// SPDX-License-Identifier: Apache-2.0

//go:build parity

package live

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/lab"
	"github.com/patchbay-sdn/patchbay/openflow"
	"github.com/patchbay-sdn/patchbay/parity"
)

// host watches the switch of one host of the lab.
type host struct {
	*lab.Host
	journal *journal
	done    chan struct{} // closed when the watch has ended

	mu    sync.Mutex
	view  *ovsdb.View
	known map[string]*row // foreign rows by table and name
	lives map[string]int  // how many rows of that table and name there have been
	// ofports and vlans are all that were seen since the scenario began.
	ofports map[string]map[uint32]string
	vlans   map[uint16]string
	linked  map[string]bool // ports that have a Linux bridge; no lock, as only the scenario makes them
}

type row struct {
	id     ovsdb.UUID
	change parity.RowChange
}

// watch follows the database of the host's switch until ctx ends.
func watch(ctx context.Context, h *lab.Host, j *journal) (*host, error) {
	c, err := ovsdb.New(ovsdb.Config{Endpoint: "unix:" + h.Switch().DBSocket()})
	if err != nil {
		return nil, err
	}
	w := &host{
		Host: h, journal: j, done: make(chan struct{}), view: ovsdb.NewView(),
		known: map[string]*row{}, lives: map[string]int{}, linked: map[string]bool{},
	}
	w.forget()
	go c.Run(ctx)
	go func() {
		defer close(w.done)
		for b := range c.Changes() {
			w.apply(b)
		}
	}()
	return w, nil
}

// forget begins a new history of port numbers and VLANs.
func (h *host) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ofports, h.vlans = map[string]map[uint32]string{}, map[uint16]string{}
}

func (h *host) apply(b *ovsdb.Batch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if b.Kind == ovsdb.Disconnected {
		return
	}
	h.view.Apply(b)
	h.remember()
	if len(b.Bridges)+len(b.Ports)+len(b.Interfaces)+len(b.QoS)+len(b.Queues) > 0 {
		h.journal.changed(h.Name(), h.foreign())
	}
}

// remember keeps numbers that may outlive what they stand for, in flows that nobody removed.
func (h *host) remember() {
	for iface := range h.view.Interfaces() {
		if port := h.view.PortOf(iface.UUID); port != nil && iface.OFPort != nil && *iface.OFPort >= 0 {
			if br := h.view.BridgeOf(port.UUID); br != nil {
				if h.ofports[br.Name] == nil {
					h.ofports[br.Name] = map[uint32]string{}
				}
				h.ofports[br.Name][uint32(*iface.OFPort)] = iface.Name
			}
		}
	}
	for port := range h.view.Ports() {
		var tag uint16
		if _, err := fmt.Sscan(port.OtherConfig["tag"], &tag); err == nil && port.OtherConfig["net_uuid"] != "" {
			segment := port.OtherConfig["segmentation_id"]
			if segment == "" {
				segment = "None"
			}
			h.vlans[tag] = parity.VLANName(port.OtherConfig["net_uuid"], segment)
		}
	}
}

// foreign lists what others than the agent changed since the last time.
func (h *host) foreign() []parity.RowChange {
	now := map[string]*row{}
	for br := range h.view.Bridges() {
		if br.Name != "br-int" && br.Name != "br-tun" && br.Name != "br-under" {
			now["Bridge "+br.Name] = &row{id: br.UUID, change: parity.RowChange{
				Table: "Bridge", Name: br.Name, DatapathType: br.DatapathType, ExternalIDs: br.ExternalIDs,
			}}
		}
	}
	for port := range h.view.Ports() {
		br := h.view.BridgeOf(port.UUID)
		if br == nil || br.Name == port.Name || br.Name == "br-under" || len(port.Interfaces) != 1 {
			continue
		}
		iface := h.view.Interface(port.Interfaces[0])
		if iface == nil || slices.Contains([]string{"patch", "vxlan", "gre", "geneve"}, iface.Type) && iface.ExternalIDs["iface-id"] == "" {
			continue
		}
		c := parity.RowChange{
			Table: "Port", Name: port.Name, Bridge: br.Name, Type: iface.Type, OFPort: iface.OFPort, ExternalIDs: iface.ExternalIDs,
		}
		if iface.Type == "patch" {
			c.Options = iface.Options
		}
		now["Port "+port.Name] = &row{id: port.UUID, change: c}
	}
	var changes []parity.RowChange
	for _, key := range slices.Sorted(maps.Keys(h.known)) {
		old := h.known[key]
		if n := now[key]; n == nil || n.id != old.id {
			changes = append(changes, parity.RowChange{
				Table: old.change.Table, Name: old.change.Name, Incarnation: old.change.Incarnation, Deleted: true,
			})
			delete(h.known, key)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(now)) {
		n, old := now[key], h.known[key]
		if old == nil {
			h.lives[key]++
		}
		n.change.Incarnation = h.lives[key]
		if old == nil || !reflect.DeepEqual(old.change, n.change) {
			changes = append(changes, n.change)
		}
	}
	h.known = now
	return changes
}

// initial lists all foreign rows, for an agent that is about to start, and begins to count incarnations anew.
func (h *host) initial() []parity.RowChange {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.known, h.lives = map[string]*row{}, map[string]int{}
	return h.foreign()
}

// names returns what is known about the numbers on this host; identifiers come on top.
func (h *host) names() *parity.Names {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := parity.NewNames()
	for br, ports := range h.ofports {
		for number, name := range ports {
			n.Port(br, number, "old-"+name)
		}
	}
	for tag, name := range h.vlans {
		n.VLAN(tag, "old-"+name)
	}
	n.Learn(h.view)
	return n
}

// rows writes the rows of the switch.
func (h *host) rows(n *parity.Names) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.DeleteFunc(n.Rows(h.view), func(line string) bool {
		return strings.HasPrefix(line, "Bridge br-under ") || strings.Contains(line, " under0 ")
	})
}

// bridges lists those with flows that agents could touch.
func (h *host) bridges() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var names []string
	for br := range h.view.Bridges() {
		if br.Name != "br-under" {
			names = append(names, br.Name)
		}
	}
	slices.Sort(names)
	return names
}

// flows dumps a bridge.
func (h *host) flows(ctx context.Context, bridge string) ([]openflow.Flow, error) {
	c, err := openflow.Dial(ctx, "unix:"+h.Switch().MgmtSocket(bridge), openflow.Config{
		Versions: []openflow.Version{openflow.OpenFlow13},
	})
	if err != nil {
		// A bridge may speak other versions only.
		c, err = openflow.Dial(ctx, "unix:"+h.Switch().MgmtSocket(bridge), openflow.Config{})
	}
	if err != nil {
		return nil, fmt.Errorf("dumping the flows of %s on %s: %w", bridge, h.Name(), err)
	}
	entries, err := c.Flows(ctx, openflow.Filter{Table: openflow.AllTables})
	err = errors.Join(err, c.Close())
	var flows []openflow.Flow
	for _, e := range entries {
		f, decodeErr := e.Flow()
		err = errors.Join(err, decodeErr)
		flows = append(flows, f)
	}
	return flows, err
}

// meters lists those of a bridge.
func (h *host) meters(ctx context.Context, bridge string) ([]openflow.MeterDesc, error) {
	c, err := openflow.Dial(ctx, "unix:"+h.Switch().MgmtSocket(bridge), openflow.Config{
		Versions: []openflow.Version{openflow.OpenFlow13},
	})
	if err != nil {
		return nil, fmt.Errorf("listing the meters of %s on %s: %w", bridge, h.Name(), err)
	}
	meters, err := c.Meters(ctx)
	return meters, errors.Join(err, c.Close())
}

// reset gives the switch the state of a host on which no agent has ever run.
func (h *host) reset(ctx context.Context) error {
	var args []string
	for _, br := range h.bridges() {
		args = append(args, "--", "--if-exists", "del-br", br)
	}
	args = append(args, "--", "--all", "destroy", "QoS", "--", "--all", "destroy", "Queue")
	if len(args) > 0 {
		if _, err := h.Switch().Vsctl(ctx, args[1:]...); err != nil {
			return err
		}
	}
	if err := h.EnsureSwitch(ctx); err != nil {
		return err
	}
	// An agent takes bridges that name themselves for its ancillary ones, when it starts.
	_, err := h.Switch().Vsctl(ctx, "--may-exist", "add-br", "br-anc", "--", "set", "Bridge", "br-anc",
		"datapath_type=netdev", "external_ids:bridge-id=br-anc")
	return err
}
