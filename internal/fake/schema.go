// SPDX-License-Identifier: Apache-2.0

package fake

import "strings"

// kind is what values a column has.
type kind string

const (
	text     kind = "text"
	number   kind = "number"
	truth    kind = "truth"
	optional kind = "optional" // a set of at most one
	set      kind = "set"
	pairs    kind = "map"
)

// empty is the value of a column that nobody has set.
func (k kind) empty() any {
	switch k {
	case text:
		return ""
	case number:
		return 0.0
	case truth:
		return false
	case pairs:
		return []any{"map", []any{}}
	}
	return []any{"set", []any{}}
}

// schema has the tables and columns of Open vSwitch's database that agents read and write. A real server has more.
func schema() map[string]map[string]kind {
	out := map[string]map[string]kind{}
	for table, columns := range map[string]string{
		"Open_vSwitch": "bridges:set manager_options:set other_config:map external_ids:map cur_cfg:number next_cfg:number ovs_version:optional " +
			"datapath_types:set iface_types:set",
		"Bridge": "name:text ports:set controller:set mirrors:set datapath_type:text datapath_id:optional fail_mode:optional protocols:set " +
			"mcast_snooping_enable:truth other_config:map external_ids:map",
		"Port": "name:text interfaces:set tag:optional vlan_mode:optional trunks:set qos:optional other_config:map external_ids:map",
		"Interface": "name:text type:text ofport:optional ofport_request:optional options:map external_ids:map other_config:map error:optional " +
			"ingress_policing_rate:number ingress_policing_burst:number mtu:optional mtu_request:optional admin_state:optional link_state:optional statistics:map",
		"Controller": "target:text connection_mode:optional inactivity_probe:optional controller_rate_limit:optional controller_burst_limit:optional " +
			"is_connected:truth external_ids:map other_config:map",
		"Manager": "target:text inactivity_probe:optional is_connected:truth external_ids:map other_config:map",
		"QoS":     "type:text queues:map other_config:map external_ids:map",
		"Mirror":  "name:text select_all:truth select_src_port:set select_dst_port:set select_vlan:set output_port:optional output_vlan:optional external_ids:map",
		"Queue":   "dscp:optional other_config:map external_ids:map",
	} {
		out[table] = map[string]kind{}
		for c := range strings.FieldsSeq(columns) {
			name, k, _ := strings.Cut(c, ":")
			out[table][name] = kind(k)
		}
	}
	return out
}

// reference is a column that refers to rows of another table, which must be there.
type reference struct{ table, column, to string }

func references() []reference {
	return []reference{
		{"Open_vSwitch", "bridges", "Bridge"},
		{"Open_vSwitch", "manager_options", "Manager"},
		{"Bridge", "ports", "Port"},
		{"Bridge", "controller", "Controller"},
		{"Bridge", "mirrors", "Mirror"},
		{"Port", "interfaces", "Interface"},
		{"Port", "qos", "QoS"},
		{"QoS", "queues", "Queue"},
	}
}

// weak are columns from which the database takes references to rows that are gone.
func weak() []reference {
	return []reference{{"Mirror", "select_src_port", "Port"}, {"Mirror", "select_dst_port", "Port"}, {"Mirror", "output_port", "Port"}}
}

// kept are tables whose rows stay though nothing refers to them.
func kept(table string) bool { return table == "Open_vSwitch" || table == "QoS" || table == "Queue" }

// unique are tables of which no two rows have one name.
func unique(table string) bool { return table == "Bridge" || table == "Port" || table == "Interface" }
