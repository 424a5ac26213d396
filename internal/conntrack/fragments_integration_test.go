// SPDX-License-Identifier: Apache-2.0

//go:build integration

package conntrack

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/netlink/netlinktest"
	"github.com/patchbay-sdn/patchbay/lab/vswitch"
)

// lateFragment sends the first fragment of a packet from p1. When the switch has held it for longer than it does, a packet follows from p2.
// It prints the sources of what comes out of p3.
const lateFragment = `
import socket, struct, time
def frame(src, dst, flags, payload):
    h = struct.pack('!BBHHHBBH4s4s', 0x45, 0, 20 + len(payload), 7, flags, 64, 17, 0, socket.inet_aton(src), socket.inet_aton(dst))
    s = sum(struct.unpack('!10H', h)); s = (s >> 16) + (s & 0xffff); s += s >> 16
    return bytes.fromhex('020000000003020000000001') + struct.pack('!H', 0x800) + h[:10] + struct.pack('!H', ~s & 0xffff) + h[12:] + payload
def port(name):
    s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x800)); s.bind((name, 0)); return s
a, b, c = port('p1'), port('p2'), port('p3')
a.send(frame('10.0.0.1', '10.0.0.9', 0x2000, struct.pack('!HHHH', 1, 2, 1400, 0) + bytes(1192)))
time.sleep(17)
for i in range(3):
    b.send(frame('10.0.0.2', '10.0.0.3', 0, struct.pack('!HHHH', 1000 + i, 2, 12, 0) + bytes(4)))
c.settimeout(2); seen = set()
try:
    while True: seen.add(socket.inet_ntoa(c.recv(2000)[26:30]))
except TimeoutError: pass
print(*sorted(seen))
`

// TestFragments shows the hole of the userspace datapath that drop_fragments closes: what is dropped for port 1 leaves port 3 with the
// packets of port 2, which are in another zone. From [soundFragments] on it does not.
func TestFragments(t *testing.T) {
	for _, c := range []struct {
		name string
		drop bool
	}{{"held", false}, {"dropped", true}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			sw := vswitch.New(t)
			args := []string{"add-br", "br0", "--", "set", "Bridge", "br0", "datapath_type=netdev"}
			for i := 1; i <= 3; i++ {
				netlinktest.Run(t, "ip", "-n", sw.Netns(), "link", "add", fmt.Sprintf("s%d", i), "up", "type", "veth", "peer", "name", fmt.Sprintf("p%d", i))
				netlinktest.Run(t, "ip", "-n", sw.Netns(), "link", "set", fmt.Sprintf("p%d", i), "up")
				args = append(args, "--", "add-port", "br0", fmt.Sprintf("s%d", i), "--", "set", "Interface", fmt.Sprintf("s%d", i), fmt.Sprintf("ofport_request=%d", i))
			}
			if out, err := sw.Vsctl(ctx, args...); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			for _, args := range [][]string{
				{"del-flows", "br0"},
				{"add-flow", "br0", "in_port=1,ip,actions=ct(zone=1,table=1)"},
				{"add-flow", "br0", "in_port=2,ip,actions=ct(commit,zone=2),output:3"},
			} {
				if out, err := sw.Ofctl(ctx, args...); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
			}
			l := NewLimiter("netdev", sw.Dir(), filepath.Join(t.TempDir(), "marker"))
			l.DropFragments = c.drop
			for range 2 {
				if _, err := l.SetLimits(ctx, nil, false); err != nil {
					t.Fatal(err)
				}
			}
			version, err := sw.Appctl(ctx, "ovs-vswitchd", "version")
			if err != nil {
				t.Fatal(err)
			}
			want := "10.0.0.2"
			if !c.drop && parseVersion(version)[0] < soundFragments {
				want = "10.0.0.1 10.0.0.2"
			}
			out, err := sw.Command(ctx, "python3", "-c", lateFragment).CombinedOutput()
			if got := strings.TrimSpace(string(out)); err != nil || got != want {
				t.Errorf("%s: %q leaves, want %q: %v", strings.TrimSpace(version), got, want, err)
			}
		})
	}
}
