// SPDX-License-Identifier: Apache-2.0

package parity

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/openflow"
)

// deadVLAN is the tag of ports that must not talk.
const deadVLAN = 4095

// Names is what the numbers and identifiers of one host in one run stand for.
type Names struct {
	text  map[string]string
	ports map[string]map[uint32]string // by bridge
	vlans map[uint16]string
	// meters are those of the integration bridge, by what they are for.
	meters map[uint32]string

	replacer *strings.Replacer // of text; nil when text has changed
}

// NewNames returns Names that know nothing but the dead VLAN.
func NewNames() *Names {
	return &Names{
		text: map[string]string{}, ports: map[string]map[uint32]string{}, vlans: map[uint16]string{deadVLAN: "dead"},
		meters: map[uint32]string{},
	}
}

// Text says that an identifier of the run (an id, the name of a tap or tunnel port, an address) is written as name wherever
// it occurs.
func (n *Names) Text(id, name string) {
	n.text[id] = name
	n.replacer = nil
}

// Port says which interface has the port number on the bridge.
func (n *Names) Port(bridge string, ofport uint32, iface string) {
	if n.ports[bridge] == nil {
		n.ports[bridge] = map[uint32]string{}
	}
	n.ports[bridge][ofport] = iface
}

// VLAN says what a local VLAN stands for; see [VLANName].
func (n *Names) VLAN(tag uint16, name string) { n.vlans[tag] = name }

// VLANName is the name of the local VLAN of a network's segment; segment is the segmentation id, or "None".
func VLANName(network, segment string) string { return network + "/" + segment }

// Learn reads port numbers and local VLANs from the rows of a switch: the interfaces' ofport, and the ports' tag beside the
// network that other_config names.
func (n *Names) Learn(v *ovsdb.View) {
	for iface := range v.Interfaces() {
		port := v.PortOf(iface.UUID)
		if port == nil || iface.OFPort == nil || *iface.OFPort < 0 {
			continue
		}
		if br := v.BridgeOf(port.UUID); br != nil {
			n.Port(br.Name, uint32(*iface.OFPort), iface.Name)
		}
	}
	vlans, left := map[uint16][]string{}, map[uint16][]string{}
	live := map[string]bool{}
	for _, name := range n.vlans {
		live[name] = true
	}
	for port := range v.Ports() {
		for key, value := range port.OtherConfig {
			if id, err := strconv.ParseUint(value, 10, 32); err == nil && meterKey(key) {
				n.Meter(uint32(id), strings.TrimPrefix(key, "pps_")) // as Neutron 22 and later call it
			}
		}
		net, tag := port.OtherConfig["net_uuid"], port.OtherConfig["tag"]
		number, err := strconv.ParseUint(tag, 10, 12)
		if net == "" || err != nil || number == deadVLAN {
			continue
		}
		name := VLANName(net, cmp.Or(port.OtherConfig["segmentation_id"], "None"))
		if port.Tag != nil && *port.Tag == deadVLAN {
			left[uint16(number)] = append(left[uint16(number)], name)
			continue
		}
		vlans[uint16(number)] = append(vlans[uint16(number)], name)
		live[name] = true
	}
	// A dead port has the VLAN of before written down. Its network may have another since, and its VLAN another network.
	for tag, networks := range left {
		networks = slices.DeleteFunc(networks, func(name string) bool { return live[name] })
		past, known := strings.CutPrefix(n.vlans[tag], "old-")
		free := n.vlans[tag] == "" || known && slices.Contains(networks, past) // it is not of the past
		if vlans[tag] == nil && free && len(networks) > 0 {
			vlans[tag] = networks
		}
	}
	for _, tag := range slices.Sorted(maps.Keys(vlans)) {
		slices.Sort(vlans[tag])
		n.VLAN(tag, strings.Join(slices.Compact(vlans[tag]), "+")) // more than one would be two networks in one VLAN
	}
}

// Meter says what a meter of the integration bridge is for.
func (n *Names) Meter(id uint32, name string) { n.meters[id] = name }

// meterKey tells the keys of a port's other_config under which the ids of its meters stand.
func meterKey(key string) bool {
	return strings.HasSuffix(key, "_ingress") || strings.HasSuffix(key, "_egress")
}

func (n *Names) meter(id uint32) string {
	if name, ok := n.meters[id]; ok {
		return name
	}
	return "unknown"
}

// Meters writes the meters of the integration bridge, sorted.
func (n *Names) Meters(bridge string, meters []openflow.MeterDesc) []string {
	var lines []string
	for _, m := range meters {
		name := n.meter(m.ID)
		m.ID, m.Bands = 0, slices.Clone(m.Bands)
		for i := range m.Bands {
			if m.Flags&openflow.MeterBurst == 0 {
				m.Bands[i].Burst = 0 // it does not count, and the switch makes it the rate
			}
		}
		lines = append(lines, n.Apply(bridge+" "+strings.Replace(string(m.AppendText(nil)), "meter=0", "meter="+name, 1)))
	}
	slices.Sort(lines)
	return lines
}

// vlan names a local VLAN. The second one of the same network, which must not be, has another name than the first; those that
// only flows of the past still have may be many.
func (n *Names) vlan(tag uint64) string {
	name, ok := n.vlans[uint16(tag)]
	if !ok || tag > deadVLAN {
		return "unknown"
	}
	if strings.HasPrefix(name, "old-") {
		return name
	}
	count := 1
	for other, same := range n.vlans {
		if same == name && uint64(other) < tag {
			count++
		}
	}
	if count > 1 {
		return name + "#" + strconv.Itoa(count)
	}
	return name
}

func (n *Names) port(bridge string, ofport uint32) string {
	if name, ok := n.ports[bridge][ofport]; ok {
		return name
	}
	if ofport >= openflow.PortMax {
		return text(openflow.Output(ofport)) // ANY is what an agent makes of -1
	}
	return "unknown"
}

// Apply writes the names into a text.
func (n *Names) Apply(s string) string {
	if n.replacer == nil {
		ids := make([]string, 0, len(n.text))
		for id := range n.text {
			ids = append(ids, id)
		}
		// An id may begin like a longer one.
		slices.SortFunc(ids, func(a, b string) int {
			return cmp.Or(cmp.Compare(len(b), len(a)), strings.Compare(a, b))
		})
		var pairs []string
		for _, id := range ids {
			pairs = append(pairs, id, n.text[id])
		}
		n.replacer = strings.NewReplacer(pairs...)
	}
	return n.replacer.Replace(s)
}
