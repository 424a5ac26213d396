// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/admin"
	"github.com/patchbay-sdn/patchbay/internal/hostmap"
	"github.com/patchbay-sdn/patchbay/internal/inspect"
)

// mapRefresh is after how many seconds a browser asks for the page again.
const mapRefresh = "5"

// serveMap serves the page, made anew for each request, until ctx ends.
func serveMap(ctx context.Context, from inspect.Source, where string, out io.Writer) error {
	l, err := listenHere(ctx, where)
	if err != nil {
		return err
	}
	page := hostmap.Handler(from, func() time.Time { return shownAt(ctx) })
	server := &http.Server{ReadHeaderTimeout: 5 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if l.Addr().Network() == "tcp" && !ownName(r.Host) {
			// A page of somebody else has its own name lead here, to read what a browser shows.
			http.Error(w, "ask for it by the address that patchbay map printed", http.StatusForbidden)
			return
		}
		w.Header().Set("Refresh", mapRefresh)
		page.ServeHTTP(w, r)
	})}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if l.Addr().Network() == "tcp" {
		fmt.Fprintf(out, "http://%s/\n", l.Addr())
	} else {
		fmt.Fprintf(out, "unix:%s\n", l.Addr())
	}
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving the map: %w", err)
	}
	return nil
}

// listenHere listens on a unix socket, which is unix:PATH, or on an address of this machine that no other machine reaches.
func listenHere(ctx context.Context, where string) (net.Listener, error) {
	if path, ok := strings.CutPrefix(where, "unix:"); ok {
		return admin.Listen(ctx, path, "")
	}
	if at, err := netip.ParseAddrPort(where); err != nil || !at.Addr().IsLoopback() {
		return nil, usage{fmt.Errorf("--listen %q: give a loopback address with a port, such as 127.0.0.1:8080, or unix:PATH", where)}
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", where)
	if err != nil {
		return nil, fmt.Errorf("serving the map: %w", err)
	}
	return l, nil
}

// ownName says whether a request names this machine itself.
func ownName(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	at, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && at.IsLoopback()
}
