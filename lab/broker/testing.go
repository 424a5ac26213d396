// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"testing"
	"time"
)

// New starts a node for a test: in a temporary directory, on free ports of the loopback address, stopped when the test
// ends. The options may change the configuration first.
func New(t testing.TB, options ...func(*Config)) *Broker {
	t.Helper()
	cfg := Config{Dir: t.TempDir()}
	for _, o := range options {
		o(&cfg)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	defer cancel()
	b, err := Start(ctx, cfg)
	if err != nil {
		t.Fatalf("starting a RabbitMQ node: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := b.Stop(ctx); err != nil {
			t.Errorf("stopping the RabbitMQ node: %v", err)
		}
	})
	return b
}
