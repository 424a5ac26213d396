// SPDX-License-Identifier: Apache-2.0

package openflow

import (
	"encoding/binary"
	"time"
)

// A GroupType says how a group uses its buckets.
type GroupType uint8

// Group types.
const (
	GroupAll GroupType = iota
	GroupSelect
	GroupIndirect
	GroupFastFailover
)

var groupTypeNames = []string{"all", "select", "indirect", "ff"}

// A Bucket is one list of actions of a group.
type Bucket struct {
	Weight     uint16
	WatchPort  uint32 // 0 for none
	WatchGroup uint32 // 0 for none
	Actions    []Action
}

// A GroupDesc is a group and what it does.
type GroupDesc struct {
	ID      uint32
	Type    GroupType
	Buckets []Bucket
}

// A GroupMod adds, changes or deletes a group. Only Add, Modify and Delete are
// used of the commands.
type GroupMod struct {
	Command Command
	Group   GroupDesc
}

// AllGroups as the id of a group to delete stands for every group.
const AllGroups = 0xfffffffc

// AppendMessage appends the message with its header.
func (m GroupMod) AppendMessage(b []byte, v Version, xid uint32) ([]byte, error) {
	b, start := beginMessage(b, v, typeGroupMod, xid)
	cmd := uint16(0)
	switch m.Command {
	case Modify, ModifyStrict:
		cmd = 1
	case Delete, DeleteStrict:
		cmd = 2
	}
	b = binary.BigEndian.AppendUint16(b, cmd)
	b = append(b, byte(m.Group.Type), 0)
	b = binary.BigEndian.AppendUint32(b, m.Group.ID)
	var err error
	for _, k := range m.Group.Buckets {
		at := len(b)
		b = append(b, 0, 0)
		b = binary.BigEndian.AppendUint16(b, k.Weight)
		b = binary.BigEndian.AppendUint32(b, orAny(k.WatchPort))
		b = binary.BigEndian.AppendUint32(b, orAny(k.WatchGroup))
		b = append(b, 0, 0, 0, 0)
		if b, err = appendActions(b, k.Actions); err != nil {
			return b, err
		}
		if len(b)-at > maxMessage {
			return b, errTooLong
		}
		binary.BigEndian.PutUint16(b[at:], uint16(len(b)-at))
	}
	return endMessage(b, start)
}

// AppendText appends the group in ovs-ofctl syntax.
func (m GroupMod) AppendText(b []byte) []byte {
	b = append(append(b, m.Command.String()...), ' ')
	return m.Group.AppendText(b)
}

// AppendText appends the group in ovs-ofctl syntax.
func (g GroupDesc) AppendText(b []byte) []byte {
	b = appendDec(append(b, "group_id="...), uint64(g.ID))
	b = append(b, ",type="...)
	if int(g.Type) < len(groupTypeNames) {
		b = append(b, groupTypeNames[g.Type]...)
	} else {
		b = appendDec(b, uint64(g.Type))
	}
	for _, k := range g.Buckets {
		b = append(b, ",bucket="...)
		if k.Weight != 0 {
			b = append(appendDec(append(b, "weight:"...), uint64(k.Weight)), ',')
		}
		if k.WatchPort != 0 {
			b = append(appendPort(append(b, "watch_port:"...), k.WatchPort), ',')
		}
		if k.WatchGroup != 0 {
			b = append(appendDec(append(b, "watch_group:"...), uint64(k.WatchGroup)), ',')
		}
		b = AppendActions(append(b, "actions="...), k.Actions)
	}
	return b
}

func decodeGroups(b []byte, list []GroupDesc) ([]GroupDesc, error) {
	be := binary.BigEndian
	err := eachItem(b, "group", 8, 0, func(b []byte) error {
		g := GroupDesc{Type: GroupType(b[2]), ID: be.Uint32(b[4:])}
		err := eachItem(b[8:], "bucket", 16, 0, func(k []byte) error {
			actions, err := decodeActions(k[16:])
			g.Buckets = append(g.Buckets, Bucket{
				Weight: be.Uint16(k[2:]), WatchPort: notAny(be.Uint32(k[4:])), WatchGroup: notAny(be.Uint32(k[8:])), Actions: actions,
			})
			return err
		})
		if err == nil {
			list = append(list, g)
		}
		return err
	})
	return list, err
}

// eachItem calls do with each item of a list. An item has its length at the given offset, and at least so many bytes.
func eachItem(b []byte, what string, least, offset int, do func(item []byte) error) error {
	for len(b) > 0 {
		if len(b) < least {
			return malformed(what, "%d bytes left", len(b))
		}
		n := int(binary.BigEndian.Uint16(b[offset:]))
		if n < least || n > len(b) {
			return malformed(what, "length %d in %d bytes", n, len(b))
		}
		if err := do(b[:n]); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

func notAny(v uint32) uint32 {
	if v == PortAny {
		return 0
	}
	return v
}

// GroupStats are the counters of a group.
type GroupStats struct {
	ID             uint32
	References     uint32 // flows and groups that lead here
	Packets, Bytes uint64
	Duration       time.Duration
}

func decodeGroupStats(b []byte, list []GroupStats) ([]GroupStats, error) {
	be := binary.BigEndian
	err := eachItem(b, "group stats", 40, 0, func(b []byte) error {
		list = append(list, GroupStats{
			ID: be.Uint32(b[4:]), References: be.Uint32(b[8:]),
			Packets: be.Uint64(b[16:]), Bytes: be.Uint64(b[24:]),
			Duration: duration(be.Uint32(b[32:]), be.Uint32(b[36:])),
		})
		return nil
	})
	return list, err
}
