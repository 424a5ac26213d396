// SPDX-License-Identifier: Apache-2.0

package ovsdb

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"

	wire "github.com/ovn-kubernetes/libovsdb/ovsdb"
)

// schema names every table and column we read. Statistics, status, link and MAC columns are left out on purpose:
// ovs-vswitchd rewrites them every few seconds for every interface, and a column that is not monitored costs nothing.
type schema struct {
	root       table[OpenVSwitch]
	bridge     table[Bridge]
	port       table[Port]
	iface      table[Interface]
	controller table[Controller]
	manager    table[Manager]
	qos        table[QoS]
	queue      table[Queue]
	mirror     table[Mirror]
}

type table[T any] struct {
	name    string
	uuid    func(*T) *UUID
	columns map[string]column[T]
}

type column[T any] struct {
	decode func(*T, *scanner) error
	merge  func(*T, *scanner) error
	encode func(*T) any
}

func col[T, F any](field func(*T) *F, c codec[F]) column[T] {
	decode := func(row *T, s *scanner) error {
		v, err := c.decode(s)
		if err == nil {
			*field(row) = v
		}
		return err
	}
	merge := decode
	if c.merge != nil {
		merge = func(row *T, s *scanner) error {
			v, err := c.merge(*field(row), s)
			if err == nil {
				*field(row) = v
			}
			return err
		}
	}
	return column[T]{decode: decode, merge: merge, encode: func(row *T) any { return c.encode(*field(row)) }}
}

func newSchema() *schema {
	strMap := mapCodec[string, string]()
	uuids := setCodec[UUID]()
	strs := setCodec[string]()
	return &schema{
		root: table[OpenVSwitch]{"Open_vSwitch", func(r *OpenVSwitch) *UUID { return &r.UUID }, map[string]column[OpenVSwitch]{
			"bridges":         col(func(r *OpenVSwitch) *[]UUID { return &r.Bridges }, uuids),
			"manager_options": col(func(r *OpenVSwitch) *[]UUID { return &r.Managers }, uuids),
			"other_config":    col(func(r *OpenVSwitch) *map[string]string { return &r.OtherConfig }, strMap),
			"external_ids":    col(func(r *OpenVSwitch) *map[string]string { return &r.ExternalIDs }, strMap),
			"cur_cfg":         col(func(r *OpenVSwitch) *int { return &r.CurCfg }, intCodec()),
			"ovs_version":     col(func(r *OpenVSwitch) *string { return &r.OVSVersion }, optStringCodec()),
			"datapath_types":  col(func(r *OpenVSwitch) *[]string { return &r.DatapathTypes }, strs),
			"iface_types":     col(func(r *OpenVSwitch) *[]string { return &r.IfaceTypes }, strs),
		}},
		bridge: table[Bridge]{"Bridge", func(r *Bridge) *UUID { return &r.UUID }, map[string]column[Bridge]{
			"name":                  col(func(r *Bridge) *string { return &r.Name }, stringCodec()),
			"ports":                 col(func(r *Bridge) *[]UUID { return &r.Ports }, uuids),
			"controller":            col(func(r *Bridge) *[]UUID { return &r.Controllers }, uuids),
			"mirrors":               col(func(r *Bridge) *[]UUID { return &r.Mirrors }, uuids),
			"datapath_type":         col(func(r *Bridge) *string { return &r.DatapathType }, stringCodec()),
			"datapath_id":           col(func(r *Bridge) *string { return &r.DatapathID }, optStringCodec()),
			"fail_mode":             col(func(r *Bridge) *string { return &r.FailMode }, optStringCodec()),
			"protocols":             col(func(r *Bridge) *[]string { return &r.Protocols }, strs),
			"mcast_snooping_enable": col(func(r *Bridge) *bool { return &r.McastSnoopingEnable }, boolCodec()),
			"other_config":          col(func(r *Bridge) *map[string]string { return &r.OtherConfig }, strMap),
			"external_ids":          col(func(r *Bridge) *map[string]string { return &r.ExternalIDs }, strMap),
		}},
		port: table[Port]{"Port", func(r *Port) *UUID { return &r.UUID }, map[string]column[Port]{
			"name":         col(func(r *Port) *string { return &r.Name }, stringCodec()),
			"interfaces":   col(func(r *Port) *[]UUID { return &r.Interfaces }, uuids),
			"tag":          col(func(r *Port) **int { return &r.Tag }, optIntCodec()),
			"vlan_mode":    col(func(r *Port) *string { return &r.VLANMode }, optStringCodec()),
			"trunks":       col(func(r *Port) *[]int { return &r.Trunks }, setCodec[int]()),
			"qos":          col(func(r *Port) *UUID { return &r.QoS }, optUUIDCodec()),
			"other_config": col(func(r *Port) *map[string]string { return &r.OtherConfig }, strMap),
			"external_ids": col(func(r *Port) *map[string]string { return &r.ExternalIDs }, strMap),
		}},
		iface: table[Interface]{"Interface", func(r *Interface) *UUID { return &r.UUID }, map[string]column[Interface]{
			"name":                   col(func(r *Interface) *string { return &r.Name }, stringCodec()),
			"type":                   col(func(r *Interface) *string { return &r.Type }, stringCodec()),
			"ofport":                 col(func(r *Interface) **int { return &r.OFPort }, optIntCodec()),
			"options":                col(func(r *Interface) *map[string]string { return &r.Options }, strMap),
			"external_ids":           col(func(r *Interface) *map[string]string { return &r.ExternalIDs }, strMap),
			"error":                  col(func(r *Interface) *string { return &r.Error }, optStringCodec()),
			"ingress_policing_rate":  col(func(r *Interface) *int { return &r.IngressPolicingRate }, intCodec()),
			"mtu":                    col(func(r *Interface) **int { return &r.MTU }, optIntCodec()),
			"ingress_policing_burst": col(func(r *Interface) *int { return &r.IngressPolicingBurst }, intCodec()),
			"other_config":           col(func(r *Interface) *map[string]string { return &r.OtherConfig }, strMap),
		}},
		controller: table[Controller]{"Controller", func(r *Controller) *UUID { return &r.UUID }, map[string]column[Controller]{
			"target":                 col(func(r *Controller) *string { return &r.Target }, stringCodec()),
			"connection_mode":        col(func(r *Controller) *string { return &r.ConnectionMode }, optStringCodec()),
			"inactivity_probe":       col(func(r *Controller) **int { return &r.InactivityProbe }, optIntCodec()),
			"controller_rate_limit":  col(func(r *Controller) **int { return &r.RateLimit }, optIntCodec()),
			"controller_burst_limit": col(func(r *Controller) **int { return &r.BurstLimit }, optIntCodec()),
			"is_connected":           col(func(r *Controller) *bool { return &r.IsConnected }, boolCodec()),
		}},
		manager: table[Manager]{"Manager", func(r *Manager) *UUID { return &r.UUID }, map[string]column[Manager]{
			"target":           col(func(r *Manager) *string { return &r.Target }, stringCodec()),
			"inactivity_probe": col(func(r *Manager) **int { return &r.InactivityProbe }, optIntCodec()),
		}},
		qos: table[QoS]{"QoS", func(r *QoS) *UUID { return &r.UUID }, map[string]column[QoS]{
			"type":         col(func(r *QoS) *string { return &r.Type }, stringCodec()),
			"queues":       col(func(r *QoS) *map[int]UUID { return &r.Queues }, mapCodec[int, UUID]()),
			"other_config": col(func(r *QoS) *map[string]string { return &r.OtherConfig }, strMap),
			"external_ids": col(func(r *QoS) *map[string]string { return &r.ExternalIDs }, strMap),
		}},
		queue: table[Queue]{"Queue", func(r *Queue) *UUID { return &r.UUID }, map[string]column[Queue]{
			"other_config": col(func(r *Queue) *map[string]string { return &r.OtherConfig }, strMap),
			"external_ids": col(func(r *Queue) *map[string]string { return &r.ExternalIDs }, strMap),
		}},
		mirror: table[Mirror]{"Mirror", func(r *Mirror) *UUID { return &r.UUID }, map[string]column[Mirror]{
			"name":            col(func(r *Mirror) *string { return &r.Name }, stringCodec()),
			"select_all":      col(func(r *Mirror) *bool { return &r.SelectAll }, boolCodec()),
			"select_src_port": col(func(r *Mirror) *[]UUID { return &r.SelectSrc }, uuids),
			"select_dst_port": col(func(r *Mirror) *[]UUID { return &r.SelectDst }, uuids),
			"output_port":     col(func(r *Mirror) *UUID { return &r.Output }, optUUIDCodec()),
			"external_ids":    col(func(r *Mirror) *map[string]string { return &r.ExternalIDs }, strMap),
		}},
	}
}

// monitorRequests asks for every table and column of the schema.
func (s *schema) monitorRequests() map[string]wire.MonitorRequest {
	requests := map[string]wire.MonitorRequest{}
	add := func(name string, columns []string) {
		requests[name] = wire.MonitorRequest{Columns: columns, Select: wire.NewDefaultMonitorSelect()}
	}
	add(s.root.name, s.root.columnNames())
	add(s.bridge.name, s.bridge.columnNames())
	add(s.port.name, s.port.columnNames())
	add(s.iface.name, s.iface.columnNames())
	add(s.controller.name, s.controller.columnNames())
	add(s.manager.name, s.manager.columnNames())
	add(s.qos.name, s.qos.columnNames())
	add(s.queue.name, s.queue.columnNames())
	add(s.mirror.name, s.mirror.columnNames())
	return requests
}

func (t *table[T]) columnNames() []string { return slices.Sorted(maps.Keys(t.columns)) }

// tableUpdates is the update2 notation: table, row, one of initial, insert, modify and delete, columns.
type tableUpdates map[string]map[UUID]map[string]json.RawMessage

// changes decodes the updates of one table against the rows known before. Deleted rows come first, so that a name that
// was given up and taken again is seen in this order; otherwise rows are sorted by UUID.
func (t *table[T]) changes(updates tableUpdates, known map[UUID]*T) ([]Diff[T], error) {
	rows := updates[t.name]
	if len(rows) == 0 {
		return nil, nil
	}
	diffs := make([]Diff[T], 0, len(rows))
	for id, update := range rows {
		if len(update) != 1 {
			return nil, fmt.Errorf("decoding %s %s: %d kinds of update", t.name, id, len(update))
		}
		for kind, raw := range update {
			d, err := t.change(id, kind, raw, known[id])
			if err != nil {
				return nil, fmt.Errorf("decoding %s %s: %w", t.name, id, err)
			}
			if d != (Diff[T]{}) {
				diffs = append(diffs, d)
			}
		}
	}
	t.sort(diffs)
	return diffs, nil
}

func (t *table[T]) change(id UUID, kind string, raw json.RawMessage, old *T) (Diff[T], error) {
	switch kind {
	case "initial", "insert":
		row, err := t.row(id, raw)
		if err != nil {
			return Diff[T]{}, err
		}
		if old != nil {
			return Diff[T]{}, fmt.Errorf("inserted although it is there")
		}
		return Diff[T]{New: row}, nil
	case "modify":
		if old == nil {
			return Diff[T]{}, fmt.Errorf("modified although it is not there")
		}
		row := *old
		if err := t.apply(&row, raw, func(c column[T]) func(*T, *scanner) error { return c.merge }); err != nil {
			return Diff[T]{}, err
		}
		return Diff[T]{Old: old, New: &row}, nil
	case "delete":
		if old == nil {
			return Diff[T]{}, fmt.Errorf("deleted although it is not there")
		}
		return Diff[T]{Old: old}, nil
	}
	return Diff[T]{}, fmt.Errorf("unknown kind of update %q", kind)
}

// row decodes a whole row. Columns that the server left out have their default, which is our zero value.
func (t *table[T]) row(id UUID, raw json.RawMessage) (*T, error) {
	row := new(T)
	*t.uuid(row) = id
	err := t.apply(row, raw, func(c column[T]) func(*T, *scanner) error { return c.decode })
	return row, err
}

func (t *table[T]) apply(row *T, raw json.RawMessage, how func(column[T]) func(*T, *scanner) error) error {
	s := &scanner{text: raw}
	return s.object(func(name string) error {
		c, ok := t.columns[name]
		if !ok {
			return s.skip()
		}
		if err := how(c)(row, s); err != nil {
			return fmt.Errorf("column %s: %w", name, err)
		}
		return nil
	})
}

// resync decodes a whole dump and returns its difference to the rows known before.
func (t *table[T]) resync(dump tableUpdates, known map[UUID]*T) ([]Diff[T], error) {
	var diffs []Diff[T]
	rows := dump[t.name]
	for id, old := range known {
		if _, ok := rows[id]; !ok {
			diffs = append(diffs, Diff[T]{Old: old})
		}
	}
	for id, update := range rows {
		raw, ok := update["initial"]
		if !ok {
			return nil, fmt.Errorf("decoding %s %s: not an initial row", t.name, id)
		}
		row, err := t.row(id, raw)
		if err != nil {
			return nil, fmt.Errorf("decoding %s %s: %w", t.name, id, err)
		}
		if old := known[id]; old == nil || !reflect.DeepEqual(old, row) {
			diffs = append(diffs, Diff[T]{Old: old, New: row})
		}
	}
	t.sort(diffs)
	return diffs, nil
}

func (t *table[T]) sort(diffs []Diff[T]) {
	slices.SortFunc(diffs, func(a, b Diff[T]) int {
		if (a.New == nil) != (b.New == nil) {
			if a.New == nil {
				return -1
			}
			return 1
		}
		return cmp.Compare(*t.uuid(a.row()), *t.uuid(b.row()))
	})
}
