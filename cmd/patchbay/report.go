// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"strings"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/inspect"
	"github.com/patchbay-sdn/patchbay/internal/options"
)

// reporter writes the state of the agent down when it is asked to, as oslo.reports does for the Python agent: on SIGUSR2, and when the
// file of file_event_handler is touched.
type reporter struct {
	src     inspect.Source
	options func() *options.Options
	stderr  io.Writer
	log     *slog.Logger
}

// reportTime bounds how long a report waits for the agent's loop.
const reportTime = 5 * time.Second

// serve writes a report for every signal and touch until ctx ends.
func (r *reporter) serve(ctx context.Context, signals <-chan os.Signal) {
	to := r.options().Reports
	touched := lastTouch(to.File)
	var look <-chan time.Time // never, without a file
	if to.File != "" {
		t := time.NewTicker(max(to.Interval, time.Second))
		defer t.Stop()
		look = t.C
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-signals:
			r.write(ctx, time.Now())
		case <-look:
			if at := lastTouch(to.File); !at.IsZero() && !at.Equal(touched) {
				touched = at
				r.write(ctx, time.Now())
			}
		}
	}
}

// lastTouch is when a file was touched last; zero: there is none.
func lastTouch(path string) time.Time {
	if path == "" {
		return time.Time{}
	}
	info, err := os.Stat(path)
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

// write writes a report to where the options say; to standard error if that fails.
func (r *reporter) write(ctx context.Context, now time.Time) {
	text := r.text(ctx, now)
	if dir := r.options().Reports.Dir; dir != "" {
		name := filepath.Join(dir, options.Program+"_gurumeditation_"+now.UTC().Format("20060102150405"))
		err := os.MkdirAll(dir, 0o755)
		if err == nil {
			err = os.WriteFile(name, text, 0o640)
		}
		if err == nil {
			r.log.Info("report written", "file", name)
			return
		}
		r.log.Warn("report not written to [oslo_reports] log_dir, writing it to standard error", "err", err)
	}
	_, _ = r.stderr.Write(text) // there is nowhere else
}

// text is the report: what it is of, how it is, its options without secrets, and what its goroutines do.
func (r *reporter) text(ctx context.Context, now time.Time) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "Report of %s, %s\n", options.Program, now.UTC().Format(time.RFC3339))
	section := func(title string) { fmt.Fprintf(&b, "\n%s\n%s\n", title, strings.Repeat("=", len(title))) }
	section("Package")
	fmt.Fprintf(&b, "product = patchbay\nversion = %s\nGo = %s %s/%s\npid = %d\n", version, runtime.Version(), runtime.GOOS, runtime.GOARCH, os.Getpid())
	section("State")
	asking, cancel := context.WithTimeout(ctx, reportTime)
	defer cancel()
	if s, err := r.src.Status(asking); err != nil {
		fmt.Fprintf(&b, "the loop does not answer: %v\n", err)
	} else {
		writeStatus(&b, &s, now)
	}
	section("Configuration")
	effective := r.options().Effective()
	writeFiles(&b, effective)
	writeSettings(&b, effective, checkFlags{})
	section("Goroutines")
	if err := pprof.Lookup("goroutine").WriteTo(&b, 1); err != nil {
		fmt.Fprintln(&b, err)
	}
	return b.Bytes()
}
