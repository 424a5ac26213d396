// SPDX-License-Identifier: Apache-2.0

package messaging

import (
	"context"
	"net"
)

// MemoryBroker returns a dialer for Config.Dial that leads to a broker in memory, so that examples run without a server.
func MemoryBroker() func(ctx context.Context, network, addr string) (net.Conn, error) {
	return newMemBroker().dial
}
