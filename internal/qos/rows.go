// SPDX-License-Identifier: Apache-2.0

package qos

import (
	"slices"
	"strconv"
	"strings"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
)

// What rows say about themselves, as the Python agent writes it.
const (
	limitType   = "bandwidth_limit"
	minimumType = "minimum_bandwidth"

	queuing  = "linux-htb"
	policing = "egress-policer" // of vhost-user ports

	maxRate = 1<<35 - 1 // bit/s, which the switch takes for no limit
	si      = 1000

	// uplinkID is the id of the QoS row of the uplinks. The Python agent has one at random in every run, and leaves the row
	// of the last run behind.
	uplinkID = "patchbay"
)

func hasDirection(key string) bool {
	return strings.HasSuffix(key, "_"+egress) || strings.HasSuffix(key, "_"+ingress)
}

// limits are how the rows of one port shall be: the limits of its policy, and no others.
type limits struct {
	port, iface     ovsdb.UUID
	name, id        string
	policed         bool             // what the port receives is limited without queues
	egress, ingress *neutron.QosRule // nil: no limit
	meters          map[meterKey]uint32
	unsure          bool // what meters there can be is not known yet: what is written down stays
	held            bool // and so do limits of bandwidth, which may become meters
}

func (l limits) spec() ovsdb.Spec {
	sent := ovsdb.Policing{}
	if l.egress != nil {
		if sent.Rate, sent.Burst = l.egress.MaxKbps, l.egress.MaxBurstKbps; sent.Burst == 0 {
			sent.Burst = int(0.8 * float64(sent.Rate)) // enough for TCP to come near the limit
		}
	}
	var specs []ovsdb.Spec
	if !l.held {
		specs = append(specs, ovsdb.InterfaceSpec{Interface: l.iface, Policing: &sent}, l.received())
	}
	if !l.unsure {
		for _, key := range meterKeys(l.id) {
			specs = append(specs, l.meterID(key))
		}
	}
	return ovsdb.When{Ports: []ovsdb.UUID{l.port}, Interfaces: []ovsdb.UUID{l.iface}, Specs: specs}
}

// meterID has the id of a meter of the port written down, for the next run and for whoever takes over.
func (l limits) meterID(key meterKey) ovsdb.Spec {
	spec := ovsdb.ConfigSpec{Port: l.port, Remove: map[string]string{}}
	id := ""
	keys := key.keys()
	if n := l.meters[key]; n != 0 {
		id = strconv.Itoa(int(n))
		spec.Set, keys = map[string]string{keys[0]: id}, keys[1:]
	}
	for _, k := range keys {
		spec.Remove[k] = id
	}
	return spec
}

// received limits what the port receives, by a queue of its own that everything goes through, or by a policer, whose rates are in bytes.
func (l limits) received() ovsdb.PortQoS {
	spec := ovsdb.PortQoS{Port: l.port, Absent: l.ingress == nil}
	if l.policed {
		spec.Key = ovsdb.QoSKey{ExternalIDs: map[string]string{"id": l.name}, Type: policing}
		if l.ingress != nil {
			spec.OtherConfig = map[string]string{
				"cir": strconv.Itoa(l.ingress.MaxKbps * si / 8), "cbs": strconv.Itoa(l.ingress.MaxBurstKbps * si / 8),
			}
		}
		spec.New = ovsdb.QoS{Type: policing, OtherConfig: spec.OtherConfig, ExternalIDs: map[string]string{"id": l.name}}
		return spec
	}
	spec.Key = ovsdb.QoSKey{ExternalIDs: map[string]string{"id": l.name, "_type": limitType}}
	spec.New = newQoS(l.name, limitType)
	config := map[string]string{}
	if l.ingress != nil && l.ingress.MaxKbps > 0 {
		config["max-rate"], config["burst"] = kilo(l.ingress.MaxKbps), kilo(l.ingress.MaxBurstKbps)
	}
	own := queue(defaultRate, l.name, limitType, config)
	spec.Queue = &own
	return spec
}

func kilo(n int) string { return strconv.Itoa(n * si) }

func newQoS(id, kind string) ovsdb.QoS {
	return ovsdb.QoS{
		Type: queuing, OtherConfig: map[string]string{"max-rate": strconv.Itoa(maxRate)}, ExternalIDs: map[string]string{"id": id, "_type": kind},
	}
}

// queue is how the queue of a port shall be. It has no rates but those of config.
func queue(number int, port, kind string, config map[string]string) ovsdb.QueueSpec {
	return ovsdb.QueueSpec{
		Number: number, Key: map[string]string{"port": port, "type": kind}, ExternalIDs: map[string]string{"queue-num": strconv.Itoa(number)},
		OtherConfig: config, RemoveConfig: slices.DeleteFunc([]string{"max-rate", "min-rate", "burst"}, func(k string) bool { return config[k] != "" }),
	}
}

// noLeftovers says that ports that are gone have no limits.
func noLeftovers() ovsdb.Spec {
	limit := map[string]string{"_type": limitType}
	return ovsdb.OrphanedQoS{
		Rows: []ovsdb.QoSKey{{ExternalIDs: limit}, {Type: policing, Pairs: 1}}, RowPort: "id",
		Queues: map[string]string{"type": limitType}, QueuePort: "port",
	}
}
