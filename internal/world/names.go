// SPDX-License-Identifier: Apache-2.0

package world

import (
	"crypto/sha1" //nolint:gosec // not for secrecy: the contract names ports by it
	"encoding/base32"
	"encoding/hex"
	"net/netip"
	"strings"

	"golang.org/x/crypto/blake2b"
)

// maxName is what the kernel allows for the name of an interface.
const maxName = 15

// IntPatchName and PhysPatchName are the two ends of the patch between the integration bridge and a physical bridge.
func IntPatchName(bridge string) string { return patchName("int-", bridge) }

// PhysPatchName is the end on the physical bridge.
func PhysPatchName(bridge string) string { return patchName("phy-", bridge) }

// patchName shortens a name that is too long with a piece of its hash.
func patchName(prefix, bridge string) string {
	if len(prefix)+len(bridge) <= maxName {
		return prefix + bridge
	}
	sum := sha1.Sum([]byte(bridge)) //nolint:gosec // see above
	return prefix + bridge[:maxName-len(prefix)-6] + hex.EncodeToString(sum[:])[:6]
}

// TunnelNames are the names that releases of Neutron give the port to an endpoint: the address in hexadecimal, or for IPv6 as much of a
// hash of its text as fits, BLAKE2b since release 25 and before that SHA-1. The newest comes first.
func TunnelNames(e Endpoint) []string {
	if e.IP.Is4() {
		b := e.IP.As4()
		return []string{e.Type + "-" + hex.EncodeToString(b[:])}
	}
	text := e.IP.String()
	older := sha1.Sum([]byte(text))         //nolint:gosec // see above
	newer, _ := blake2b.New(sha1.Size, nil) // fails for other sizes and for keys
	newer.Write([]byte(text))
	names := make([]string, 0, 2)
	for _, sum := range [][]byte{newer.Sum(nil), older[:]} {
		name := e.Type + "-" + strings.ToLower(base32.StdEncoding.EncodeToString(sum))
		names = append(names, name[:maxName])
	}
	return names
}

// TunnelName is the name of the port to an endpoint. A port that is there keeps the name that an agent of any release has given it: the
// switch refuses a second one to the same endpoint. Of two the one that works counts. A new one gets the name by which the Python agent of
// the server's release would look for it.
func (w *common) TunnelName(e Endpoint) string {
	names := TunnelNames(e)
	there := ""
	for _, name := range names {
		if w.OFPort(name) != 0 {
			return name
		}
		if there == "" && w.View.InterfaceByName(name) != nil {
			there = name
		}
	}
	switch {
	case there != "":
		return there
	case w.NewerTunnelNames:
		return names[0]
	}
	return names[len(names)-1]
}

// Endpoint is where another host ends its tunnels of one type.
type Endpoint struct {
	Type string
	IP   netip.Addr
}

// String is "type/address".
func (e Endpoint) String() string { return e.Type + "/" + e.IP.String() }
