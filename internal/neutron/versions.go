// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"context"
	"errors"
	"fmt"
	"maps"

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

// generation is a run of releases that look the same from outside and share object versions; where they do not share
// one, the lowest of the run stands here, because a version newer than the server's breaks its pushes to every agent.
type generation struct {
	// Releases names the run for logs: the first and last major release of it.
	Releases string
	Versions Versions
	// newer: some servers of the run have newer objects than these.
	newer bool
	// known finds out, without side effects, whether the server is at least of this generation. Every server is at
	// least of the oldest, which has none.
	known func(ctx context.Context, s *Server) (bool, error)
}

// Negotiate finds the newest object versions that the server certainly has.
//
// The server cannot be asked. An object version can only be tried on an object that exists, and a fresh cloud has none,
// so the release is told by the RPC surface: which interface versions and which kinds of object the server knows. A
// question that the server refuses costs it a traceback in its log, and after a rolling restart every host asks, so the
// generations are searched by halving: three questions, of which a server since release 21 refuses one at most.
func Negotiate(ctx context.Context, s *Server) (releases string, v Versions, err error) {
	all := generations()
	newest, oldest := 0, len(all)-1 // the answer lies between them, both included
	for newest < oldest {
		middle := (newest + oldest) / 2
		known, err := all[middle].known(ctx, s)
		if err != nil {
			return "", nil, fmt.Errorf("finding out the server's release: %w", err)
		}
		if known {
			oldest = middle
		} else {
			newest = middle + 1
		}
	}
	return all[newest].Releases, all[newest].Versions, nil
}

func hasReports(version string) func(context.Context, *Server) (bool, error) {
	return func(ctx context.Context, s *Server) (bool, error) {
		_, err := s.alive(ctx, version)
		return supported(err)
	}
}

func hasKind(k Kind, key string) func(context.Context, *Server) (bool, error) {
	return func(ctx context.Context, s *Server) (bool, error) {
		// A value nobody has: the server looks it up by an indexed key and answers with an empty list.
		_, err := s.bulkPull(ctx, k, "1.0", map[string]any{key: []string{Nobody}})
		return supported(err)
	}
}

func hasPlugin(version string) func(context.Context, *Server) (bool, error) {
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

// PushesWhenTold says whether a server of these releases, as [Negotiate] names them, may have newer objects than the versions
// that were found. It pushes its own versions and those that agents have reported, so ours only from our first state report on.
func PushesWhenTold(releases string) bool {
	for _, g := range generations() {
		if g.Releases == releases {
			return g.newer
		}
	}
	return false
}

// generations lists them, newest first. Sources: the VERSION constants of Neutron's tagged releases.
func generations() []generation {
	v17 := Versions{
		KindPort: "1.5", KindNetwork: "1.1", KindSubnet: "1.1", KindSecurityGroup: "1.2", KindSecurityGroupRule: "1.0",
		KindQosPolicy: "1.8", KindTrunk: "1.1", KindSubPort: "1.0", KindLog: "1.0", KindPortForwarding: "1.2",
		KindConntrackHelper: "1.0",
	}
	v18 := v17.with(Versions{
		KindPort: "1.7", KindSecurityGroup: "1.4", KindSecurityGroupRule: "1.2", KindAddressGroup: "1.2",
	})
	v19 := v18.with(Versions{KindQosPolicy: "1.9"})
	v20 := v19.with(Versions{KindQosPolicy: "1.10", KindSecurityGroup: "1.5", KindLocalIPAssociation: "1.0"})
	v21 := v20.with(Versions{KindPortForwarding: "1.3", KindNDPProxy: "1.0", KindAgent: "1.1"})
	v23 := v21.with(Versions{KindPort: "1.8"})
	v27 := v23.with(Versions{
		KindPort: "1.10", KindNetwork: "1.2", KindSubnet: "1.2", KindSecurityGroup: "1.6", KindSecurityGroupRule: "1.3",
	})
	return []generation{
		{"27 or later", v27, true, hasReports("1.4")},
		{"23 to 26", v23, true, hasReports("1.3")},
		{"21 to 22", v21, false, hasKind(KindNDPProxy, "id")},
		{"20", v20, false, hasKind(KindLocalIPAssociation, "fixed_port_id")},
		{"19", v19, false, hasPlugin("1.9")},
		{"18", v18, false, hasKind(KindAddressGroup, "id")},
		{"17", v17, false, nil},
	}
}

// with returns a copy in which newer entries replace or join the old ones.
func (v Versions) with(newer Versions) Versions {
	out := maps.Clone(v)
	maps.Copy(out, newer)
	return out
}
