// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/admin"
	"github.com/patchbay-sdn/patchbay/internal/hostmap"
	"github.com/patchbay-sdn/patchbay/internal/inspect"
	"github.com/patchbay-sdn/patchbay/internal/options"
)

// serveAdmin opens the agent's doors for operators and answers there until ctx ends. A door that cannot be opened is logged
// and left shut: it is no reason not to wire ports. Wait returns when all answers have ended.
func serveAdmin(ctx context.Context, src inspect.Source, o *options.Options, current func() *options.Options, log *slog.Logger) (wait func()) {
	var wg sync.WaitGroup
	metrics := admin.Metrics(src)
	server := admin.New(src, admin.Options{
		Metrics:  metrics,
		Settings: func() ([]byte, error) { return maskedConfig(current()) },
		Pages:    map[string]http.Handler{mapPath: hostmap.Handler(src, time.Now)},
	})
	serve := func(l net.Listener, s *admin.Server) {
		wg.Go(func() {
			if err := s.Serve(ctx, l); err != nil {
				log.Warn("admin server stopped", "addr", l.Addr().String(), "err", err)
			}
		})
	}
	if path := o.Patchbay.AdminSocket; path != "" {
		l, err := admin.Listen(ctx, path, o.Patchbay.AdminSocketGroup)
		if err != nil {
			log.Warn("admin socket not opened", "socket", path, "err", err)
		} else {
			serve(l, server)
		}
	}
	if addr := o.Patchbay.MetricsListen; addr != "" {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
		if err != nil {
			log.Warn("metrics_listen not opened", "addr", addr, "err", err)
		} else {
			serve(l, admin.NewHealth(src, metrics))
		}
	}
	return wg.Wait
}

// maskedConfig is the effective configuration as `config check -o json` prints it.
func maskedConfig(o *options.Options) ([]byte, error) {
	var b bytes.Buffer
	if err := writeJSON(&b, documentOf(o.Effective(), nil, checkFlags{})); err != nil {
		return nil, fmt.Errorf("printing the configuration: %w", err)
	}
	return b.Bytes(), nil
}
