// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"time"

	"github.com/patchbay-sdn/patchbay/internal/effect"
	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/pace"
)

// takePackets passes on the packets that flows of extensions send, until the connection ends. Of those with the same userdata it passes on as
// many as extension.PacketRate allows, so that one VM costs neither the others nor the loop. Meters in the switch keep the same bound; this
// one holds where the switch has none.
func (r *Runner) takePackets(bridge string, conn effect.Conn) {
	limits := pace.Limits[string]{Every: extension.PacketEvery, Burst: extension.PacketBurst}
	dropped := map[string]uint64{}
	for p := range conn.PacketIns() {
		of := string(p.Userdata)
		if !limits.Take(of, time.Now()) {
			dropped[of]++
			continue
		}
		r.put(effect.PacketIn{Bridge: bridge, Conn: conn, Packet: p, Limited: dropped[of]})
		delete(dropped, of)
	}
}
