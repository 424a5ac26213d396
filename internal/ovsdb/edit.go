// SPDX-License-Identifier: Apache-2.0

package ovsdb

import (
	"slices"

	wire "github.com/ovn-kubernetes/libovsdb/ovsdb"
)

// BridgeEdit changes one bridge.
type BridgeEdit struct {
	tx *Tx
	op *op
}

// Bridge edits the bridge of this identity, which must still exist.
func (t *Tx) Bridge(id UUID) BridgeEdit { return BridgeEdit{t, t.edit("Bridge", id)} }

// Verify makes it a precondition that the columns are as the View shows them.
func (e BridgeEdit) Verify(columns ...string) BridgeEdit {
	verify(e.tx, &e.tx.view.schema.bridge, e.op.id, e.tx.view.Bridge(e.op.id), columns)
	return e
}

// SetFailMode sets fail_mode, "secure" or "standalone"; empty clears it.
func (e BridgeEdit) SetFailMode(mode string) BridgeEdit {
	e.op.row["fail_mode"] = optStringCodec().encode(mode)
	return e
}

// SetDatapathType sets datapath_type.
func (e BridgeEdit) SetDatapathType(kind string) BridgeEdit {
	e.op.row["datapath_type"] = kind
	return e
}

// SetMcastSnooping sets mcast_snooping_enable.
func (e BridgeEdit) SetMcastSnooping(on bool) BridgeEdit {
	e.op.row["mcast_snooping_enable"] = on
	return e
}

// AddProtocols adds OpenFlow versions such as "OpenFlow14" and leaves the others.
func (e BridgeEdit) AddProtocols(protocols ...string) BridgeEdit {
	if len(protocols) > 0 {
		e.op.mutate("protocols", wire.MutateOperationInsert, setOf(protocols))
	}
	return e
}

// Disconnects says whether the transaction makes ovs-vswitchd close the OpenFlow connections of a bridge that exists: it does so
// when the bridge's protocols or datapath type change.
func (t *Tx) Disconnects(id UUID) bool {
	o := t.edits[id]
	if o == nil || o.table != "Bridge" {
		return false
	}
	_, kind := o.row["datapath_type"]
	return kind || slices.ContainsFunc(o.mutations, func(m wire.Mutation) bool { return m.Column == "protocols" })
}

// MergeOtherConfig sets keys of other_config and leaves all others.
func (e BridgeEdit) MergeOtherConfig(m map[string]string) BridgeEdit {
	e.op.merge("other_config", m)
	return e
}

// RemoveOtherConfig removes keys of other_config.
func (e BridgeEdit) RemoveOtherConfig(keys ...string) BridgeEdit {
	e.op.remove("other_config", keys...)
	return e
}

// MergeExternalIDs sets keys of external_ids and leaves all others.
func (e BridgeEdit) MergeExternalIDs(m map[string]string) BridgeEdit {
	e.op.merge("external_ids", m)
	return e
}

// SetControllers makes these the controllers of the bridge. Rows with the same target are kept and changed. Mind that the
// first controller of a bridge to come, and the last to go, flush all its flows.
func (e BridgeEdit) SetControllers(want ...Controller) BridgeEdit {
	v := e.tx.view
	var have []*Controller
	if b := v.Bridge(e.op.id); b != nil {
		for _, id := range b.Controllers {
			if c := v.Controller(id); c != nil {
				have = append(have, c)
			}
		}
	}
	refs := make([]Ref, 0, len(want))
	for _, w := range want {
		row := wire.Row{
			"connection_mode":        optStringCodec().encode(w.ConnectionMode),
			"inactivity_probe":       optIntCodec().encode(w.InactivityProbe),
			"controller_rate_limit":  optIntCodec().encode(w.RateLimit),
			"controller_burst_limit": optIntCodec().encode(w.BurstLimit),
		}
		ref := Ref{}
		for _, h := range have {
			if h.Target == w.Target {
				ref = RefTo(h.UUID)
				e.tx.edit("Controller", h.UUID).row = row
			}
		}
		if ref == (Ref{}) {
			row["target"] = w.Target
			ref = e.tx.insert("Controller", row)
		}
		refs = append(refs, ref)
	}
	e.op.row["controller"] = setOf(refs)
	return e
}

// PortEdit changes one port.
type PortEdit struct {
	tx *Tx
	op *op
}

// Port edits the port of this identity, which must still exist.
func (t *Tx) Port(id UUID) PortEdit { return PortEdit{t, t.edit("Port", id)} }

// Verify makes it a precondition that the columns are as the View shows them.
func (e PortEdit) Verify(columns ...string) PortEdit {
	verify(e.tx, &e.tx.view.schema.port, e.op.id, e.tx.view.Port(e.op.id), columns)
	return e
}

// SetTag sets tag.
func (e PortEdit) SetTag(vlan int) PortEdit {
	e.op.row["tag"] = vlan
	return e
}

// ClearTag clears tag.
func (e PortEdit) ClearTag() PortEdit {
	e.op.row["tag"] = emptySet()
	return e
}

// SetVLANMode sets vlan_mode; empty clears it.
func (e PortEdit) SetVLANMode(mode string) PortEdit {
	e.op.row["vlan_mode"] = optStringCodec().encode(mode)
	return e
}

// SetTrunks sets trunks; none clears it.
func (e PortEdit) SetTrunks(vlans ...int) PortEdit {
	e.op.row["trunks"] = setOf(vlans)
	return e
}

// SetQoS sets qos.
func (e PortEdit) SetQoS(qos Ref) PortEdit {
	e.op.row["qos"] = qos
	return e
}

// ClearQoS clears qos. The QoS row and its queues stay until they are deleted.
func (e PortEdit) ClearQoS() PortEdit {
	e.op.row["qos"] = emptySet()
	return e
}

// MergeOtherConfig sets keys of other_config and leaves all others.
func (e PortEdit) MergeOtherConfig(m map[string]string) PortEdit {
	e.op.merge("other_config", m)
	return e
}

// RemoveOtherConfig removes keys of other_config.
func (e PortEdit) RemoveOtherConfig(keys ...string) PortEdit {
	e.op.remove("other_config", keys...)
	return e
}

// MergeExternalIDs sets keys of external_ids and leaves all others.
func (e PortEdit) MergeExternalIDs(m map[string]string) PortEdit {
	e.op.merge("external_ids", m)
	return e
}

// InterfaceEdit changes one interface.
type InterfaceEdit struct {
	tx *Tx
	op *op
}

// Interface edits the interface of this identity, which must still exist.
func (t *Tx) Interface(id UUID) InterfaceEdit { return InterfaceEdit{t, t.edit("Interface", id)} }

// Verify makes it a precondition that the columns are as the View shows them.
func (e InterfaceEdit) Verify(columns ...string) InterfaceEdit {
	verify(e.tx, &e.tx.view.schema.iface, e.op.id, e.tx.view.Interface(e.op.id), columns)
	return e
}

// SetType sets type.
func (e InterfaceEdit) SetType(kind string) InterfaceEdit {
	e.op.row["type"] = kind
	return e
}

// SetIngressPolicing sets the rate in kbit/s and the burst in kbit; 0 and 0 remove the limit.
func (e InterfaceEdit) SetIngressPolicing(rate, burst int) InterfaceEdit {
	e.op.row["ingress_policing_rate"] = rate
	e.op.row["ingress_policing_burst"] = burst
	return e
}

// MergeOptions sets keys of options and leaves all others.
func (e InterfaceEdit) MergeOptions(m map[string]string) InterfaceEdit {
	e.op.merge("options", m)
	return e
}

// RemoveOptions removes keys of options.
func (e InterfaceEdit) RemoveOptions(keys ...string) InterfaceEdit {
	e.op.remove("options", keys...)
	return e
}

// MergeOtherConfig sets keys of other_config and leaves all others.
func (e InterfaceEdit) MergeOtherConfig(m map[string]string) InterfaceEdit {
	e.op.merge("other_config", m)
	return e
}

// RemoveOtherConfig removes keys of other_config.
func (e InterfaceEdit) RemoveOtherConfig(keys ...string) InterfaceEdit {
	e.op.remove("other_config", keys...)
	return e
}

// MergeExternalIDs sets keys of external_ids and leaves all others.
func (e InterfaceEdit) MergeExternalIDs(m map[string]string) InterfaceEdit {
	e.op.merge("external_ids", m)
	return e
}

// RemoveExternalIDs removes keys of external_ids.
func (e InterfaceEdit) RemoveExternalIDs(keys ...string) InterfaceEdit {
	e.op.remove("external_ids", keys...)
	return e
}

// InsertQueue adds a queue. Queues are not collected by the database: what is inserted must be deleted.
func (t *Tx) InsertQueue(q Queue) Ref {
	return t.insert("Queue", wire.Row{"other_config": encodeMap(q.OtherConfig), "external_ids": encodeMap(q.ExternalIDs)})
}

// InsertQoS adds a QoS row with the queues given, besides those of q. It too must be deleted.
func (t *Tx) InsertQoS(q QoS, queues map[int]Ref) Ref {
	all := map[int]Ref{}
	for n, id := range q.Queues {
		all[n] = RefTo(id)
	}
	for n, ref := range queues {
		all[n] = ref
	}
	return t.insert("QoS", wire.Row{
		"type": q.Type, "queues": encodeMap(all),
		"other_config": encodeMap(q.OtherConfig), "external_ids": encodeMap(q.ExternalIDs),
	})
}

// QoSEdit changes one QoS row.
type QoSEdit struct{ op *op }

// QoS edits the QoS row of this identity, which must still exist.
func (t *Tx) QoS(id UUID) QoSEdit { return QoSEdit{t.edit("QoS", id)} }

// SetQueue puts a queue at a number.
func (e QoSEdit) SetQueue(n int, queue Ref) QoSEdit {
	e.RemoveQueue(n)
	e.op.mutate("queues", wire.MutateOperationInsert, encodeMap(map[int]Ref{n: queue}))
	return e
}

// RemoveQueue takes the queue from a number. Its row stays until it is deleted.
func (e QoSEdit) RemoveQueue(n int) QoSEdit {
	e.op.mutate("queues", wire.MutateOperationDelete, setOf([]int{n}))
	return e
}

// MergeOtherConfig sets keys of other_config and leaves all others.
func (e QoSEdit) MergeOtherConfig(m map[string]string) QoSEdit {
	e.op.merge("other_config", m)
	return e
}

// QueueEdit changes one queue.
type QueueEdit struct{ op *op }

// Queue edits the queue of this identity, which must still exist.
func (t *Tx) Queue(id UUID) QueueEdit { return QueueEdit{t.edit("Queue", id)} }

// MergeOtherConfig sets keys of other_config and leaves all others.
func (e QueueEdit) MergeOtherConfig(m map[string]string) QueueEdit {
	e.op.merge("other_config", m)
	return e
}

// RemoveOtherConfig removes keys of other_config.
func (e QueueEdit) RemoveOtherConfig(keys ...string) QueueEdit {
	e.op.remove("other_config", keys...)
	return e
}

// MergeExternalIDs sets keys of external_ids and leaves all others.
func (e QueueEdit) MergeExternalIDs(m map[string]string) QueueEdit {
	e.op.merge("external_ids", m)
	return e
}

// DeleteQoS deletes a QoS row. Ports that refer to it must be cleared in the same transaction.
func (t *Tx) DeleteQoS(id UUID) { t.delete("QoS", id) }

// DeleteQueue deletes a queue. QoS rows that refer to it must give it up in the same transaction.
func (t *Tx) DeleteQueue(id UUID) { t.delete("Queue", id) }
