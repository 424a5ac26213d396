// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/patchbay-sdn/patchbay/internal/hostmap"
	"github.com/patchbay-sdn/patchbay/internal/inspect"
)

// mapPath is where the agent itself serves the page.
const mapPath = "/v1/map"

func newMapCommand() *cobra.Command {
	var f askFlags
	var file, listen string
	var watch bool
	cmd := &cobra.Command{
		Use:   "map",
		Short: "Draw the host as an HTML page: ports, bridges, tunnels, problems",
		Long: `Draw the host as one HTML page: its ports by network, the bridges, and the hosts and physical networks that the ports reach.
Colours show the state. Counters and reasons appear on hover. The page ends with a list of problems.

The page loads no other files, so you can keep, send and print it. It contains names of ports and addresses.

With --watch the command serves the page until you stop it, and a browser updates the page every five seconds. Every user of this
machine can read the page on a loopback address. Only the user and the group of the command can read it on unix:PATH.`,
		Example: `  patchbay map --file hv1.html
  patchbay map --watch --listen 127.0.0.1:8080
  ssh hv1 patchbay map >hv1.html`,
		Args: argumentsOf(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case watch && file != "":
				return usage{errors.New("--watch serves the page, --file writes it: give one of them")}
			case watch:
				ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
				defer stop()
				return serveMap(ctx, f.client(), listen, cmd.OutOrStdout())
			case cmd.Flags().Changed("listen"):
				return usage{errors.New("--listen goes with --watch")}
			}
			return runMap(cmd.Context(), f.client(), file, cmd.OutOrStdout())
		},
	}
	f.addSocket(cmd)
	cmd.Flags().StringVar(&file, "file", "", "write to this file (default: standard output)")
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:0", "where --watch serves the page: a loopback address with a port, 0 for any, or unix:PATH")
	addWatch(cmd, &watch, "serve the page and keep it up to date")
	return cmd
}

// runMap writes the page when it is complete, so that an agent which does not answer leaves an older file as it is.
func runMap(ctx context.Context, from inspect.Source, file string, out io.Writer) error {
	if file == "" && isTerminal(out) {
		return usage{errors.New("the page is for a browser, not for a terminal: give --file FILE")}
	}
	h, err := hostmap.Read(ctx, from, shownAt(ctx))
	if err != nil {
		return err
	}
	var page bytes.Buffer
	if err := hostmap.Render(&page, h); err != nil {
		return err
	}
	if file == "" {
		_, err = page.WriteTo(out)
	} else {
		err = os.WriteFile(file, page.Bytes(), 0o640)
	}
	if err != nil {
		return fmt.Errorf("writing the map: %w", err)
	}
	return nil
}

// isTerminal says whether somebody reads what is written as it comes, also behind what keeps terminals safe.
func isTerminal(w io.Writer) bool {
	if p, ok := w.(*plain); ok {
		w = p.to
	}
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
