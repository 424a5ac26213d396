// SPDX-License-Identifier: Apache-2.0

package region

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// since are the versions of objects, by the release from which on they are these: the VERSION constants of the tagged
// releases, and the first release whose server lets agents ask for the kind.
var since = []struct {
	release  int
	versions map[string]string
}{
	{17, map[string]string{
		"Port": "1.5", "Network": "1.1", "Subnet": "1.1", "SecurityGroup": "1.2", "SecurityGroupRule": "1.0", "QosPolicy": "1.8",
		"Trunk": "1.1", "SubPort": "1.0", "Log": "1.0", "PortForwarding": "1.2", "ConntrackHelper": "1.0",
	}},
	{18, map[string]string{"Port": "1.7", "SecurityGroup": "1.4", "SecurityGroupRule": "1.2", "AddressGroup": "1.2"}},
	{19, map[string]string{"QosPolicy": "1.9"}},
	{20, map[string]string{"QosPolicy": "1.10", "SecurityGroup": "1.5", "LocalIPAssociation": "1.0"}},
	{21, map[string]string{"PortForwarding": "1.3", "NDPProxy": "1.0", "Agent": "1.1"}},
	{23, map[string]string{"Port": "1.8"}},
	{24, map[string]string{"Port": "1.9", "SecurityGroup": "1.6", "SecurityGroupRule": "1.3"}},
	{25, map[string]string{"Port": "1.10", "Subnet": "1.2"}},
	{26, map[string]string{"Network": "1.2"}},
	{29, map[string]string{"Port": "1.11", "Network": "1.3"}},
}

// Versions are those of the server's own objects, by kind.
func (s *Region) Versions() map[string]string { return maps.Clone(s.own) }

func versionsOf(release int) map[string]string {
	all := map[string]string{}
	for _, g := range since {
		if g.release <= release {
			maps.Copy(all, g.versions)
		}
	}
	return all
}

// served is the version of an RPC interface, by the one that it has in release 21.
func (s *Region) served(topic, version string) string {
	switch {
	case topic == reports && s.release >= 27:
		return "1.4"
	case topic == reports && s.release >= 23:
		return "1.3"
	case version == "1.9" && s.release < 19:
		return "1.8"
	}
	return version
}

// fieldsSince are fields by the version that brought them. A later server takes them out for those who ask for an earlier one,
// and an earlier server has never heard of them.
var fieldsSince = map[string]map[string]string{
	"Port":              {"qos_network_policy_id": "1.5", "hints": "1.8", "hardware_offload_type": "1.9", "trusted": "1.10", "pvlan_type": "1.11", "pvlan_community": "1.11"},
	"Network":           {"qinq": "1.2", "pvlan": "1.3"},
	"Subnet":            {"external": "1.2"},
	"SecurityGroup":     {"stateful": "1.2"},
	"SecurityGroupRule": {"remote_address_group_id": "1.1", "normalized_cidr": "1.2", "belongs_to_default_sg": "1.3"},
}

// rulesIn is the version of the rules inside a group or a policy of a version.
var rulesIn = map[string]map[string]string{
	"SecurityGroup": {"1.2": "1.0", "1.3": "1.1", "1.4": "1.2", "1.5": "1.2", "1.6": "1.3"},
}

// policyRules are the kinds of rules by the version of the policy that brought them.
var policyRules = map[string]string{"QosPacketRateLimitRule": "1.9", "QosMinimumPacketRateRule": "1.10"}

// Older says whether one version comes before another.
func Older(a, b string) bool {
	split := func(v string) (n [2]int) {
		for i, part := range strings.SplitN(v, ".", 2) {
			n[i], _ = strconv.Atoi(part)
		}
		return n
	}
	x, y := split(a), split(b)
	return x[0] < y[0] || x[0] == y[0] && x[1] < y[1]
}

// inVersion encodes an object in a version of its kind, which is the server's own or an earlier one. None is the server's own.
func (s *Region) inVersion(p primitive, kind, version string) (json.RawMessage, error) {
	version = cmp.Or(version, s.own[kind])
	if own := s.own[kind]; Older(own, version) {
		return nil, &messaging.RemoteError{
			Class: "InvalidTargetVersion", Module: "oslo_versionedobjects.exception", Args: json.RawMessage(`[]`), Kwargs: json.RawMessage(`{}`),
			Message: fmt.Sprintf("Invalid target version %s", version),
		}
	}
	if kind == "QosPolicy" && Older(version, "1.8") {
		return nil, &messaging.RemoteError{
			Class: "IncompatibleObjectVersion", Module: "oslo_versionedobjects.exception", Args: json.RawMessage(`[]`), Kwargs: json.RawMessage(`{}`),
			Message: "Version " + version + " of QosPolicy is not supported",
		}
	}
	return encode(as(p, version)), nil
}

// as is an object in a version.
func as(p primitive, version string) primitive {
	p.Version, p.Data = version, maps.Clone(p.Data)
	for field, from := range fieldsSince[p.Name] {
		if Older(version, from) {
			delete(p.Data, field)
		}
	}
	rules, _ := p.Data["rules"].([]primitive)
	if rules == nil {
		return p
	}
	kept := []primitive{}
	for _, r := range rules {
		if from := policyRules[r.Name]; from != "" && Older(version, from) {
			continue
		}
		if v := rulesIn[p.Name][version]; v != "" {
			r = as(r, v)
		}
		kept = append(kept, r)
	}
	p.Data["rules"] = kept
	return p
}

func sorted[V any](of map[string]V) []string { return slices.Sorted(maps.Keys(of)) }
