// SPDX-License-Identifier: Apache-2.0

package ovsdb

import (
	"context"
	"encoding/json"
	"fmt"

	wire "github.com/ovn-kubernetes/libovsdb/ovsdb"
)

// Attachment is an interface on its bridge, with what nobody follows because it changes by itself.
type Attachment struct {
	Bridge    string
	Port      Port
	Interface Interface
	MTU       int  // 0 when not known
	AdminDown bool // the interface is switched off on this host
	LinkDown  bool // or has no carrier
}

// LocalEndpoint is where the database of this host listens in any case: db.sock in $OVS_RUNDIR or the default run directory.
func LocalEndpoint() string { return "unix:" + localSocket() }

// Look reads all interfaces once, for somebody who asks and goes. An agent follows the database instead: see Client.
func Look(ctx context.Context, cfg Config) ([]Attachment, error) {
	e, err := parseEndpoint(cfg.Endpoint, cfg.SSL)
	if err != nil {
		return nil, err
	}
	conn, err := e.dial(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	s := newSession(conn, func(string, json.RawMessage) error { return nil })
	served := make(chan struct{})
	go func() { defer close(served); _ = s.serve(ctx, 0) }()
	defer func() { s.close(context.Canceled); <-served }()

	results, err := transact(ctx, s, []wire.Operation{
		selectAll("Bridge", "name", "ports"),
		selectAll("Port", "_uuid", "name", "interfaces", "tag", "vlan_mode", "other_config"),
		selectAll("Interface", "_uuid", "name", "type", "ofport", "options", "external_ids", "error", "mtu", "admin_state", "link_state"),
	}, nil)
	if err != nil {
		return nil, fmt.Errorf("looking at the switch's database: %w", err)
	}
	list, err := attach(results)
	if err != nil {
		return nil, fmt.Errorf("looking at the switch's database: %w", err)
	}
	return list, nil
}

func selectAll(table string, columns ...string) wire.Operation {
	return wire.Operation{Op: wire.OperationSelect, Table: table, Where: []wire.Condition{}, Columns: columns}
}

// attach joins the rows of bridges, ports and interfaces.
func attach(results []result) ([]Attachment, error) {
	if len(results) < 3 {
		return nil, fmt.Errorf("%d answers to 3 questions", len(results))
	}
	var err error
	interfaces := map[UUID]Attachment{}
	for _, row := range results[2].Rows {
		r := columns{row, &err}
		i := Interface{
			UUID: read(r, "_uuid", decodeOptional[UUID]), Name: read(r, "name", decodeOptional[string]), Type: read(r, "type", decodeOptional[string]),
			OFPort: read(r, "ofport", optIntCodec().decode), Options: read(r, "options", decodeMap[string, string]),
			ExternalIDs: read(r, "external_ids", decodeMap[string, string]), Error: read(r, "error", decodeOptional[string]),
		}
		interfaces[i.UUID] = Attachment{
			Interface: i, MTU: read(r, "mtu", decodeOptional[int]),
			AdminDown: read(r, "admin_state", decodeOptional[string]) == "down", LinkDown: read(r, "link_state", decodeOptional[string]) == "down",
		}
	}
	ports := map[UUID]Port{}
	for _, row := range results[1].Rows {
		r := columns{row, &err}
		p := Port{
			UUID: read(r, "_uuid", decodeOptional[UUID]), Name: read(r, "name", decodeOptional[string]), Interfaces: read(r, "interfaces", decodeSet[UUID]),
			Tag: read(r, "tag", optIntCodec().decode), VLANMode: read(r, "vlan_mode", decodeOptional[string]),
			OtherConfig: read(r, "other_config", decodeMap[string, string]),
		}
		ports[p.UUID] = p
	}
	var out []Attachment
	for _, row := range results[0].Rows {
		r := columns{row, &err}
		bridge := read(r, "name", decodeOptional[string])
		for _, id := range read(r, "ports", decodeSet[UUID]) {
			p := ports[id]
			for _, i := range p.Interfaces {
				a := interfaces[i]
				a.Bridge, a.Port = bridge, p
				out = append(out, a)
			}
		}
	}
	return out, err
}

// columns is a row of an answer; the first column that cannot be read is kept in err.
type columns struct {
	row map[string]json.RawMessage
	err *error
}

func read[T any](c columns, name string, decode func(*scanner) (T, error)) T {
	v, err := decode(&scanner{text: c.row[name]})
	if err != nil && *c.err == nil {
		*c.err = fmt.Errorf("reading %s: %w", name, err)
	}
	return v
}
