// SPDX-License-Identifier: Apache-2.0

package world

import (
	"crypto/sha1" //nolint:gosec // not for secrecy: the contract names ports by it
	"encoding/base32"
	"encoding/hex"
	"net/netip"
	"strings"
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

// TunnelName is the name of the port to an endpoint: the address in hexadecimal, or for IPv6 as much of a hash of its
// text as fits.
func TunnelName(e Endpoint) string {
	if e.IP.Is4() {
		b := e.IP.As4()
		return e.Type + "-" + hex.EncodeToString(b[:])
	}
	sum := sha1.Sum([]byte(e.IP.String())) //nolint:gosec // see above
	name := e.Type + "-" + strings.ToLower(base32.StdEncoding.EncodeToString(sum[:]))
	return name[:maxName]
}

// Endpoint is where another host ends its tunnels of one type.
type Endpoint struct {
	Type string
	IP   netip.Addr
}

// String is "type/address".
func (e Endpoint) String() string { return e.Type + "/" + e.IP.String() }

// ParseEndpoint reads what String wrote.
func ParseEndpoint(s string) (Endpoint, bool) {
	kind, ip, ok := strings.Cut(s, "/")
	addr, err := netip.ParseAddr(ip)
	return Endpoint{kind, addr}, ok && err == nil
}
