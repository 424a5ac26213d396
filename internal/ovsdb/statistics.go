// SPDX-License-Identifier: Apache-2.0

package ovsdb

import (
	"context"
	"fmt"

	wire "github.com/ovn-kubernetes/libovsdb/ovsdb"
)

// Statistics reads the counters of every interface, by its name and theirs. They are asked for and not monitored, since
// ovs-vswitchd rewrites them every few seconds.
func (c *Client) Statistics(ctx context.Context) (map[string]map[string]int, error) {
	c.mu.Lock()
	s := c.session
	c.mu.Unlock()
	if s == nil {
		return nil, ErrDisconnected
	}
	results, err := transact(ctx, s, []wire.Operation{{
		Op: wire.OperationSelect, Table: "Interface", Where: []wire.Condition{}, Columns: []string{"name", "statistics"},
	}}, nil)
	if err != nil {
		return nil, fmt.Errorf("reading statistics: %w", err)
	}
	if len(results) != 1 || results[0].Error != "" {
		return nil, fmt.Errorf("reading statistics: the database answers %+v", results)
	}
	all := make(map[string]map[string]int, len(results[0].Rows))
	for _, row := range results[0].Rows {
		name, err := decodeOptional[string](&scanner{text: row["name"]})
		if err != nil {
			return nil, fmt.Errorf("reading the name of an interface: %w", err)
		}
		if all[name], err = decodeMap[string, int](&scanner{text: row["statistics"]}); err != nil {
			return nil, fmt.Errorf("reading statistics of %s: %w", name, err)
		}
	}
	return all, nil
}
