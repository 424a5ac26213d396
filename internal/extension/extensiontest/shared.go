// SPDX-License-Identifier: Apache-2.0

package extensiontest

import (
	"fmt"
	"slices"

	"pgregory.net/rapid"

	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/pipeline"
	"github.com/patchbay-sdn/patchbay/internal/world"
)

// Failer is a test: of package testing, or of rapid.
type Failer interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// Unwritten is a transaction with the rows of one object that are not as wanted, or nil. One by one: each sees what the others did.
func Unwritten(v *ovsdb.View, wants map[world.Object]pipeline.Want) *ovsdb.Tx {
	for _, o := range world.SortedObjects(wants) {
		if tx := ovsdb.DiffRows(v, slices.Concat(wants[o].Rows, wants[o].After)...); tx.Len() > 0 {
			return tx
		}
	}
	return nil
}

// Rule is one of a QoS policy: the name and the fields of the server's object.
type Rule struct{ Kind, Data string }

// Object is the rule as the server sends it.
func (r Rule) Object() string {
	return fmt.Sprintf(`{"versioned_object.name":%q,"versioned_object.data":%s}`, r.Kind, r.Data)
}

// DrawRules draws the rules of a policy.
func DrawRules(t *rapid.T) []Rule {
	way := func(label string) string { return rapid.SampledFrom([]string{"ingress", "egress"}).Draw(t, label) }
	rules := []Rule{}
	if rapid.Bool().Draw(t, "mark") {
		rules = append(rules, Rule{"QosDscpMarkingRule", fmt.Sprintf(`{"dscp_mark":%d}`, 2*rapid.IntRange(0, 3).Draw(t, "dscp"))})
	}
	if rapid.Bool().Draw(t, "limit") {
		rules = append(rules, Rule{"QosBandwidthLimitRule", fmt.Sprintf(`{"max_kbps":%d,"max_burst_kbps":%d,"direction":%q}`,
			rapid.IntRange(0, 2).Draw(t, "rate")*1000, rapid.IntRange(0, 1).Draw(t, "burst")*100, way("limit of"))})
	}
	if rapid.Bool().Draw(t, "packets") {
		rules = append(rules, Rule{"QosPacketRateLimitRule", fmt.Sprintf(`{"max_kpps":%d,"max_burst_kpps":%d,"direction":%q}`,
			rapid.IntRange(1, 2).Draw(t, "kpps"), rapid.IntRange(0, 1).Draw(t, "burst"), way("packets of"))})
	}
	if rapid.Bool().Draw(t, "minimum") {
		rules = append(rules, Rule{"QosMinimumBandwidthRule", fmt.Sprintf(`{"min_kbps":%d,"direction":%q}`, rapid.IntRange(1, 2).Draw(t, "kbps")*1000, way("minimum of"))})
	}
	return rules
}
