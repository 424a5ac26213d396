// SPDX-License-Identifier: Apache-2.0

package parity

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
)

// Rows writes the columns that are a contract between agents, operators and other programs, one line for each value that is
// set: the bridges that agents use; patch, tunnel and VIF ports.
func (n *Names) Rows(v *ovsdb.View) []string {
	var lines []string
	for br := range v.Bridges() {
		lines = append(lines, n.BridgeRow(v, br)...)
	}
	for port := range v.Ports() {
		lines = append(lines, n.PortRow(v, port)...)
	}
	for qos := range v.AllQoS() {
		lines = append(lines, n.QoSRow(v, qos)...)
	}
	for queue := range v.Queues() {
		lines = append(lines, n.QueueRow(queue)...)
	}
	slices.Sort(lines)
	return lines
}

// rowLines collects the lines of one row.
type rowLines struct {
	*Names
	head  string
	lines []string
}

func (r *rowLines) set(column, value string) {
	if value != "" {
		r.lines = append(r.lines, r.Apply(r.head+" "+column+"="+value))
	}
}

func (r *rowLines) setMap(column string, m map[string]string) {
	for _, k := range slices.Sorted(maps.Keys(m)) {
		r.lines = append(r.lines, r.Apply(r.head+" "+column+":"+k+"="+m[k]))
	}
}

// BridgeRow writes a bridge and its controllers.
func (n *Names) BridgeRow(v *ovsdb.View, br *ovsdb.Bridge) []string {
	r := rowLines{Names: n, head: "Bridge " + br.Name}
	r.set("datapath_type", br.DatapathType)
	r.set("fail_mode", br.FailMode)
	r.set("protocols", strings.Join(slices.Sorted(slices.Values(br.Protocols)), ","))
	if br.McastSnoopingEnable {
		r.set("mcast_snooping_enable", "true")
	}
	r.setMap("other_config", br.OtherConfig)
	r.setMap("external_ids", br.ExternalIDs)
	for _, id := range br.Controllers {
		if c := v.Controller(id); c != nil {
			r.set("controller", c.Target)
		}
	}
	return r.lines
}

// PortRow writes a port and its interfaces, unless nobody but the switch has a say in them.
func (n *Names) PortRow(v *ovsdb.View, port *ovsdb.Port) []string {
	br := v.BridgeOf(port.UUID)
	if br == nil || port.Name == br.Name {
		return nil
	}
	r := rowLines{Names: n, head: "Port " + port.Name}
	r.set("bridge", br.Name)
	if port.Tag != nil {
		tag := n.vlan(uint64(*port.Tag))
		if strings.HasPrefix(br.Name, "tbr-") { // those of a trunk are the VM's
			tag = strconv.Itoa(*port.Tag)
		}
		r.set("tag", tag)
	}
	r.set("vlan_mode", port.VLANMode)
	if len(port.Trunks) > 0 {
		var trunks []string
		for _, t := range port.Trunks {
			trunks = append(trunks, n.vlan(uint64(t)))
		}
		r.set("trunks", strings.Join(trunks, ","))
	}
	other := maps.Clone(port.OtherConfig)
	if tag, err := strconv.ParseUint(other["tag"], 10, 16); err == nil {
		other["tag"] = n.vlan(tag)
	}
	for key := range other {
		if meterKey(key) {
			other[key] = "id"
		}
	}
	r.setMap("other_config", other)
	for _, id := range port.Interfaces {
		if iface := v.Interface(id); iface != nil {
			r.head = "Interface " + iface.Name
			r.set("type", iface.Type)
			r.set("ofport", ofport(iface.OFPort))
			if iface.IngressPolicingRate+iface.IngressPolicingBurst != 0 {
				r.set("ingress_policing", fmt.Sprintf("%d kbit/s, %d kbit", iface.IngressPolicingRate, iface.IngressPolicingBurst))
			}
			r.setMap("options", iface.Options)
			r.setMap("external_ids", n.sortSubPorts(iface.ExternalIDs))
		}
	}
	return r.lines
}

// sortSubPorts names and sorts the sub-ports that an interface is the parent of: their order means nothing.
func (n *Names) sortSubPorts(ids map[string]string) map[string]string {
	var list []string
	if json.Unmarshal([]byte(ids["subport_ids"]), &list) != nil {
		return ids
	}
	for i := range list {
		list[i] = n.Apply(list[i])
	}
	slices.Sort(list)
	ids = maps.Clone(ids)
	ids["subport_ids"] = strings.Join(list, ",")
	return ids
}

// minimumBandwidth is the type of queues that are numbered after the ports that they are for.
const minimumBandwidth = "minimum_bandwidth"

// QoSRow writes a QoS row, by what it is for: the id of the one for minimum bandwidth is random.
func (n *Names) QoSRow(v *ovsdb.View, qos *ovsdb.QoS) []string {
	kind := qos.ExternalIDs["_type"]
	r := rowLines{Names: n, head: "QoS " + kind}
	if kind != minimumBandwidth {
		r.head += "/" + qos.ExternalIDs["id"]
	}
	r.set("type", qos.Type)
	r.setMap("other_config", qos.OtherConfig)
	for number, id := range qos.Queues {
		if queue := v.Queue(id); queue != nil {
			r.set("queue:"+n.queueNumber(kind, strconv.Itoa(number)), queue.ExternalIDs["type"]+"/"+queue.ExternalIDs["port"])
		}
	}
	for port := range v.Ports() {
		if port.QoS == qos.UUID {
			r.set("of", port.Name)
		}
	}
	return r.lines
}

// QueueRow writes a queue.
func (n *Names) QueueRow(queue *ovsdb.Queue) []string {
	kind := queue.ExternalIDs["type"]
	r := rowLines{Names: n, head: "Queue " + kind + "/" + queue.ExternalIDs["port"]}
	r.set("number", n.queueNumber(kind, queue.ExternalIDs["queue-num"]))
	r.setMap("other_config", queue.OtherConfig)
	return r.lines
}

func (n *Names) queueNumber(kind, number string) string {
	if i, err := strconv.ParseUint(number, 10, 32); err == nil && kind == minimumBandwidth {
		return n.port("br-int", uint32(i))
	}
	return number
}

func ofport(p *int) string {
	switch {
	case p == nil:
		return "none"
	case *p < 0:
		return strconv.Itoa(*p)
	}
	return "yes"
}
