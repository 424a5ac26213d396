// SPDX-License-Identifier: Apache-2.0

// Package ovsdb is the agent's typed view of the Open_vSwitch database: what it reads, in which order changes arrive, and
// how it writes.
//
// A Client keeps one connection. Run it, and read Changes: every Batch holds the rows that one or several whole
// transactions changed, with the row before and after. A View is those batches added up; it belongs to whoever reads the
// stream and needs no locks:
//
//	c, err := ovsdb.New(ovsdb.Config{Endpoint: "tcp:127.0.0.1:6640"})
//	go c.Run(ctx)
//	view := ovsdb.NewView()
//	for b := range c.Changes() {
//		for _, d := range b.Interfaces { … d.Old, d.New … }
//		view.Apply(b)
//	}
//
// Rows are values of their time: they are shared between batches and views and must not be modified. A row is known by its
// UUID. A port that was deleted and added again under the same name is another row, and both changes are seen.
//
// A Tx is built from a View. It carries what it relies on: every row it edits must still exist, columns named with Verify
// must still be as the View shows them, names it creates must be free. The database checks that in the same transaction,
// so a decision made on an old View ends as ErrConflict and not as damage:
//
//	tx := ovsdb.NewTx(view)
//	tx.Port(port.UUID).Verify("other_config").SetTag(12).MergeOtherConfig(map[string]string{"tag": "12"})
//	_, err := c.Commit(ctx, tx)
//
// After a lost connection the stream goes on with the exact difference to what was delivered before.
//
// The wire types of operations come from libovsdb. Its client and cache are not used: they deliver single rows without the
// bounds of transactions, through a channel that drops when full. Nothing of libovsdb appears in the exported names.
package ovsdb
