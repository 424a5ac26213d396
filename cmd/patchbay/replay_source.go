// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/patchbay-sdn/patchbay/internal/admin"
	"github.com/patchbay-sdn/patchbay/internal/agent"
	"github.com/patchbay-sdn/patchbay/internal/core"
	"github.com/patchbay-sdn/patchbay/internal/hostmap"
	"github.com/patchbay-sdn/patchbay/internal/inspect"
	"github.com/patchbay-sdn/patchbay/internal/options"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/tape"
)

// The names of tapes in a bundle.
const (
	bundledTape     = "tape.gz"
	bundledPrevious = "tape-previous.gz"
)

// readTape reads the tape of a bundle, or a tape that is a file of its own.
func readTape(path string, previous bool) (io.ReadSeeker, error) {
	name := bundledTape
	if previous {
		name = bundledPrevious
	}
	files, err := inspect.ReadBundle(path, name)
	data, found := files[name]
	var ofFile *fs.PathError
	switch {
	case errors.As(err, &ofFile):
		return nil, fmt.Errorf("reading the tape: %w", err)
	case errors.Is(err, inspect.ErrNoBundle) && !previous:
		if data, err = os.ReadFile(path); err != nil {
			return nil, fmt.Errorf("reading the tape: %w", err)
		}
	case errors.Is(err, inspect.ErrNoBundle):
		return nil, usage{fmt.Errorf("--previous goes with a support bundle, and %s is none", path)}
	case err != nil:
		return nil, fmt.Errorf("%s: %w", path, err)
	case !found:
		return nil, fmt.Errorf("%s: the bundle has no %s: the agent does not record ([patchbay] tape_size), or is older than 1.0", path, name)
	}
	return bytes.NewReader(data), nil
}

// addTapes puts the tapes of an agent into a bundle, without secrets.
func (b *bundle) addTapes(o *options.Options) {
	if o == nil || o.Patchbay.TapeSize == 0 {
		return
	}
	b.addTape(bundledTape, tapeFile(o))
	if previous := tape.Previous(tapeFile(o)); exists(previous) {
		b.addTape(bundledPrevious, previous)
	}
}

func exists(path string) bool { _, err := os.Stat(path); return err == nil }

// secretName is a name whose value is one.
var secretName = regexp.MustCompile(`(?i)password|passwd|secret|psk|token|hmac|api_key|credential`)

func (b *bundle) addTape(name, path string) {
	b.addAs(name, func(data []byte) []byte { return data }, func() ([]byte, error) { // masked line by line: it is compressed
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer func() { _ = f.Close() }()
		var out bytes.Buffer
		z := gzip.NewWriter(&out)
		m := tape.Masking{Clean: b.redact.clean, Secret: secretName.MatchString, Hidden: hidden}
		if err := errors.Join(m.Mask(f, z), z.Close()); err != nil {
			return nil, err
		}
		return out.Bytes(), nil
	})
}

// tapeKey is where a context has the moment of a tape that a command is about.
type tapeKey struct{}

// momentKey is where a context has the time of that moment.
type momentKey struct{}

func asOf(ctx context.Context, moment time.Time) context.Context {
	return context.WithValue(ctx, momentKey{}, moment)
}

// shownAt returns the time up to which a command shows how long something lasts: that of a tape's moment, or now.
func shownAt(ctx context.Context) time.Time {
	if moment, ok := ctx.Value(momentKey{}).(time.Time); ok {
		return moment
	}
	return time.Now()
}

// momentOf returns the moment of a tape that a command is about, if it is about one.
func momentOf(ctx context.Context) (core.View, bool) {
	v, ok := ctx.Value(tapeKey{}).(core.View)
	return v, ok
}

// answerAbout answers questions about a player's core on a socket, until ctx ends. Done waits for that.
func answerAbout(ctx context.Context, p *tape.Player) (socket string, done func(), err error) {
	dir, err := os.MkdirTemp("", "patchbay-replay-")
	if err != nil {
		return "", nil, fmt.Errorf("opening a socket: %w", err)
	}
	socket = filepath.Join(dir, "s")
	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", socket)
	if err != nil {
		return "", nil, errors.Join(fmt.Errorf("opening a socket: %w", err), os.RemoveAll(dir))
	}
	// This process reaches the socket by a descriptor. Its name goes now: a command whose output nobody reads is ended by SIGPIPE, and leaves nothing.
	fd, err := unix.Open(socket, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err = errors.Join(err, os.RemoveAll(dir)); err != nil {
		return "", nil, errors.Join(fmt.Errorf("opening a socket: %w", err), l.Close())
	}
	a := agent.Of(p.Core(), p.Recorder)
	server := admin.New(a, admin.Options{
		Metrics:  admin.Metrics(a),
		Settings: func() ([]byte, error) { return nil, errors.New("a tape has no configuration") },
		Pages:    map[string]http.Handler{mapPath: hostmap.Handler(a, func() time.Time { return p.At() })},
	})
	var beside sync.WaitGroup
	beside.Go(func() { a.Answer(ctx, p.At()) })
	beside.Go(func() { _ = server.Serve(ctx, l) }) // it ends with ctx
	return fmt.Sprintf("/proc/self/fd/%d", fd), func() { beside.Wait(); _ = unix.Close(fd) }, nil
}

// attachments are the interfaces of a view, as the switch's database would show them.
func attachments(v *ovsdb.View) []ovsdb.Attachment {
	var out []ovsdb.Attachment
	for i := range v.Interfaces() {
		if port := v.PortOf(i.UUID); port != nil {
			if bridge := v.BridgeOf(port.UUID); bridge != nil {
				out = append(out, ovsdb.Attachment{Bridge: bridge.Name, Port: *port, Interface: *i})
			}
		}
	}
	slices.SortFunc(out, func(a, b ovsdb.Attachment) int {
		return strings.Compare(a.Bridge+" "+a.Interface.Name, b.Bridge+" "+b.Interface.Name)
	})
	return out
}
