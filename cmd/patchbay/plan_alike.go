// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/patchbay-sdn/patchbay/internal/plan"
)

// alike puts what has the same kind into one group, in the order of the first of each.
func alike[T any](list []T, kind func(T) string) [][]T {
	var groups [][]T
	at := map[string]int{}
	for _, e := range list {
		k := kind(e)
		if _, ok := at[k]; !ok {
			at[k] = len(groups)
			groups = append(groups, nil)
		}
		groups[at[k]] = append(groups[at[k]], e)
	}
	return groups
}

// What belongs to a port, network or host, and not to the kind of a difference: ids and addresses anywhere, and the values of these fields and
// actions. Tables, protocols and ports of rules are no such values: flows that differ in them do something else.
var (
	idsAndAddresses = regexp.MustCompile(`[0-9a-f]{8}(?:-[0-9a-f]{2,12})+|(?:[0-9a-f]{2}:){5}[0-9a-f]{2}|\d+\.\d+\.\d+\.\d+(?:/[\d.]+)?|[0-9a-f]*:[0-9a-f]*:[0-9a-f:]*(?:/[0-9a-f:]+)?`)
	ownFields       = regexp.MustCompile(`\b(in_port|reg[56]|ct_zone|dl_vlan|vlan_tci|vlan_vid|metadata|tun_id|conj_id|dl_src|dl_dst|ct_mark|cookie)=[^,\s)]+`)
	ownActions      = regexp.MustCompile(`\b(output|load|set_field|mod_vlan_vid|set_vlan_vid|set_tunnel|conjunction|meter)([:(])[^,\s)>]+`)
)

func shape(text string) string {
	text = ownFields.ReplaceAllString(text, "$1=#")
	text = ownActions.ReplaceAllString(text, "$1$2#")
	return idsAndAddresses.ReplaceAllString(text, "#")
}

// ownerKind is the first word of an owner: port, network, tunnel.
func ownerKind(owner string) string {
	kind, _, _ := strings.Cut(owner, " ")
	return kind
}

// flowKind is equal for flows that change in the same way, for other ports, networks or hosts.
func flowKind(f plan.Flow) string {
	return fmt.Sprint(f.Change, "|", f.Priority, "|", shape(f.Match), "|", shape(f.Before), "|", shape(f.Actions), "|", ownerKind(f.Owner), "|", shape(f.Reason))
}

// digits are the values of rows that differ from port to port.
var digits = regexp.MustCompile(`\d+`)

// rowKind is the same for rows.
func rowKind(r plan.Row) string {
	kind := []string{r.Change, r.Table, ownerKind(r.Owner)}
	for _, c := range r.Values {
		kind = append(kind, c.Column, digits.ReplaceAllString(shape(c.Before), "#"), digits.ReplaceAllString(shape(c.After), "#"))
	}
	return strings.Join(kind, "|")
}
