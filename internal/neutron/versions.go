// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// Nobody is the id of no object: who is asked about it has to look, and has nothing to tell.
const Nobody = "00000000-0000-0000-0000-000000000000"

// Kind is the type of a versioned object.
type Kind string

// The kinds that neutron-server pushes. The agent consumes some and reports a version for all of them, as the server
// expects of every agent.
const (
	KindPort               Kind = "Port"
	KindNetwork            Kind = "Network"
	KindSubnet             Kind = "Subnet"
	KindSecurityGroup      Kind = "SecurityGroup"
	KindSecurityGroupRule  Kind = "SecurityGroupRule"
	KindAddressGroup       Kind = "AddressGroup"
	KindQosPolicy          Kind = "QosPolicy"
	KindTrunk              Kind = "Trunk"
	KindSubPort            Kind = "SubPort"
	KindLog                Kind = "Log"
	KindLocalIPAssociation Kind = "LocalIPAssociation"
	KindPortForwarding     Kind = "PortForwarding"
	KindConntrackHelper    Kind = "ConntrackHelper"
	KindNDPProxy           Kind = "NDPProxy"
	KindAgent              Kind = "Agent"
)

// Versions says which version of each kind to consume, to ask for and to report.
type Versions map[Kind]string

// Topic is the topic on which the server pushes objects of the kind in this version.
func (v Versions) Topic(k Kind) (string, bool) {
	version, ok := v[k]
	return "neutron-vo-" + string(k) + "-" + version, ok
}

// Negotiate finds the newest object versions that the server certainly has, and the releases that it may be of.
//
// The server cannot be asked for its release. But an object that is pulled in no particular version comes in the server's own, and
// every release answers that. A region of any size has an external or a shared network, which leads to objects of other kinds.
// What they leave open, and everything in a region without such a network, is told by the RPC surface: which interface versions
// and which kinds of object the server knows. A question that the server refuses costs it a traceback in its log, and after a rolling
// restart every host asks, so that these questions halve what is left. Whoever has seen objects does not ask for the version of the
// reports: no object that an agent consumes depends on it, but for Port 1.8 of release 23.
func Negotiate(ctx context.Context, s *Server) (releases string, v Versions, err error) {
	left, own, err := s.look(ctx)
	if err == nil {
		left, err = s.probe(ctx, left, len(own) > 0)
	}
	if err != nil {
		return "", nil, fmt.Errorf("finding out the server's release: %w", err)
	}
	v = left[0].versions.with(nil)
	for kind, version := range own {
		// Minor versions are compatible: of a newer one than this program knows, it takes what it understands.
		if strings.HasPrefix(version, "1.") && compareVersions(v[kind], version) < 0 {
			v[kind] = version
		}
	}
	return left.String(), v, nil
}

// look narrows the releases down by the versions of objects that exist, which it returns, too.
func (s *Server) look(ctx context.Context) (span, Versions, error) {
	left, own := span(releases()), Versions{}
	network, project, err := s.anyNetwork(ctx)
	if err != nil || network == "" {
		return left, own, err
	}
	for _, look := range []struct {
		kind   Kind
		filter map[string]any // finds few objects in any region
	}{
		{KindNetwork, map[string]any{"id": []string{network}}},
		{KindSecurityGroup, map[string]any{"project_id": []string{project}, "name": []string{"default"}}},
		{KindSubnet, map[string]any{"network_id": []string{network}}},
		{KindPort, map[string]any{"network_id": []string{network}, "device_owner": []string{"network:dhcp"}}},
	} {
		if !left.tells(look.kind) {
			continue
		}
		objects, err := s.bulkPull(ctx, look.kind, ownVersion, look.filter)
		if err := unlessRefused(err); err != nil {
			return nil, nil, err
		}
		if len(objects) > 0 {
			own[look.kind] = objects[0].Version
			left = left.with(look.kind, objects[0].Version)
		}
	}
	return left, own, nil
}

// anyNetwork finds a network that has to do with nothing on this host, and its project. There are few of the two sorts, and one in most regions.
func (s *Server) anyNetwork(ctx context.Context) (id, project string, err error) {
	for _, sort := range []string{"router:external", "shared"} {
		var networks []struct {
			ID      string `json:"id"`
			Project string `json:"project_id"`
			Tenant  string `json:"tenant_id"` // the name of it that Neutron gives up
		}
		err := s.plugin(ctx, "1.7", "get_networks", map[string]any{
			"filters": map[string]any{sort: []bool{true}}, "fields": []string{"id", "project_id", "tenant_id"},
		}, &networks)
		if err := unlessRefused(err); err != nil {
			return "", "", err
		}
		if len(networks) > 0 {
			return networks[0].ID, cmp.Or(networks[0].Project, networks[0].Tenant), nil
		}
	}
	return "", "", nil
}

// unlessRefused passes on that a server did not answer. What it answers with an error is something that it cannot tell.
func unlessRefused(err error) error {
	var remote *messaging.RemoteError
	if errors.As(err, &remote) {
		return nil
	}
	return err
}

// probe is a question about the RPC surface, without side effects.
type probe func(ctx context.Context, s *Server) (bool, error)

// probe narrows releases down by questions, of which each halves those that are left.
func (s *Server) probe(ctx context.Context, left span, seen bool) (span, error) {
	for {
		var cuts []release
		for _, r := range left[1:] {
			if r.first != nil && !(seen && r.number >= 23) && left.differ(r.number) {
				cuts = append(cuts, r)
			}
		}
		if len(cuts) == 0 {
			return left, nil
		}
		cut := cuts[(len(cuts)-1)/2]
		known, err := cut.first(ctx, s)
		if err != nil {
			return nil, err
		}
		before, since := left.at(cut.number)
		if left = since; !known {
			left = before
		}
	}
}

// Since says whether these are the versions of a release, by its number, or of a later one. Releases with the same objects look alike.
func (v Versions) Since(number int) bool {
	_, since := span(releases()).at(number)
	for kind, version := range since[0].versions {
		if compareVersions(v[kind], version) < 0 {
			return false
		}
	}
	return true
}

func hasReports(version string) probe {
	return func(ctx context.Context, s *Server) (bool, error) {
		_, err := s.alive(ctx, version)
		return supported(err)
	}
}

func hasKind(k Kind, key string) probe {
	return func(ctx context.Context, s *Server) (bool, error) {
		// A value nobody has: the server looks it up by an indexed key and answers with an empty list.
		_, err := s.bulkPull(ctx, k, "1.0", map[string]any{key: []string{Nobody}})
		return supported(err)
	}
}

func hasPlugin(version string) probe {
	return func(ctx context.Context, s *Server) (bool, error) {
		_, err := s.updateDevices(ctx, version, DeviceUpdate{})
		return supported(err)
	}
}

// supported reads the outcome of a probe: refused as unknown means no, any other failure is a failure.
func supported(err error) (bool, error) {
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, messaging.UnsupportedVersion), errors.Is(err, messaging.NoSuchMethod),
		errors.Is(err, messaging.Class("InvalidResourceTypeClass")):
		return false, nil
	default:
		return false, err
	}
}

// PushesAfterReport says whether a server of these releases, as [Negotiate] names them, may have newer objects than the versions
// that were found. It pushes its own versions and those that agents have reported, so ours only from our first state report on.
func PushesAfterReport(releases string) bool {
	s := parseSpan(releases)
	return len(s) > 0 && (strings.HasSuffix(releases, "later") || !maps.Equal(s[0].versions, s[len(s)-1].versions))
}
