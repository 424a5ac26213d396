// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchbay-sdn/patchbay/internal/admin"
	"github.com/patchbay-sdn/patchbay/internal/inspect"
	"github.com/patchbay-sdn/patchbay/internal/options"
)

func newBundleCommand() *cobra.Command {
	var f askFlags
	cmd := &cobra.Command{
		Use:   "support-bundle [FILE]",
		Short: "Collect the state of a host in one archive, without secrets",
		Long: `Collect the state of a host in one archive (tar.gz): the agent's state and recent events, its masked
configuration, the end of its log, the inputs of its decisions for patchbay replay, the switch's rows, flows and versions.

The command removes the values of all secret options wherever they occur, and everything that looks like a password or
a key. Names, addresses and ids stay. The file missing.txt in the archive lists what could not be collected.

Exit status:
  0  the archive is complete
  1  the archive is written, but parts are missing
  4  the archive cannot be written`,
		Args: argumentsOf(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			now := time.Now()
			host, _ := os.Hostname() // only for the name of the file
			name := fmt.Sprintf("patchbay-%s-%s.tar.gz", cmp.Or(host, "host"), now.Format("20060102-150405"))
			if len(args) == 1 {
				name = args[0]
			}
			file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
			if err != nil {
				return fmt.Errorf("writing the bundle: %w", err)
			}
			b := newBundle(file, cmd.ErrOrStderr(), now)
			b.collect(cmd.Context(), f.client())
			if err := errors.Join(b.close(), file.Close()); err != nil {
				return fmt.Errorf("writing the bundle: %w", err)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s\n", name)
			if len(b.missing) > 0 {
				return ended{exitFinding, plural(len(b.missing), "part") + " missing; missing.txt in the archive says which and why"}
			}
			return nil
		},
	}
	f.addSocket(cmd)
	return cmd
}

// bundle is an archive that is being written.
type bundle struct {
	zip      *gzip.Writer
	tar      *tar.Writer
	progress io.Writer
	now      time.Time
	redact   redactor
	missing  []string
	err      error
}

func newBundle(to, progress io.Writer, now time.Time) *bundle {
	z := gzip.NewWriter(to)
	return &bundle{zip: z, tar: tar.NewWriter(z), progress: progress, now: now}
}

// maxLog is how much of the end of the log is taken.
const maxLog = 4 << 20

// anyOpenFlow lets ovs-ofctl talk to a bridge whichever versions it allows.
const anyOpenFlow = "OpenFlow10,OpenFlow11,OpenFlow12,OpenFlow13,OpenFlow14,OpenFlow15"

// commandTime bounds each program that is asked about the switch.
const commandTime = 10 * time.Second

// collect puts everything in. What cannot be had is noted and left out.
func (b *bundle) collect(ctx context.Context, c *admin.Client) {
	get := func(path string) func() ([]byte, error) {
		return func() ([]byte, error) { return c.Get(ctx, path) }
	}
	// The configuration comes first: it names the files in which the secrets are.
	config, err := c.Get(ctx, "/v1/config")
	o := b.learnSecrets(config)
	b.add("config.json", func() ([]byte, error) { return config, err })
	b.add("status.txt", func() ([]byte, error) {
		s, err := c.Status(ctx)
		var out bytes.Buffer
		writeStatus(&out, &s, b.now)
		return out.Bytes(), err
	})
	for _, name := range []string{"status", "ports", "networks", "tunnels", "groups", "bridges", "flows", "events"} {
		b.add(name+".json", get("/v1/"+name))
	}
	b.add("metrics.txt", get("/metrics"))
	b.add("readyz.txt", get("/readyz"))
	b.add("log.txt", func() ([]byte, error) { return logTail(ctx, o) })
	b.add("versions.txt", func() ([]byte, error) {
		text := fmt.Sprintf("patchbay %s\n%s %s/%s\n", version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
		for _, path := range []string{"/proc/version", "/etc/os-release", "/proc/loadavg", "/proc/meminfo"} {
			if data, err := os.ReadFile(path); err == nil {
				text += "\n" + path + "\n" + string(data)
			}
		}
		return []byte(text), nil
	})
	b.add("ovs-vsctl-show.txt", output(ctx, "ovs-vsctl", "--timeout=5", "show"))
	for _, table := range []string{"Open_vSwitch", "Bridge", "Port", "Interface", "Controller", "Manager"} {
		b.add("ovsdb-"+table+".txt", output(ctx, "ovs-vsctl", "--timeout=5", "list", table))
	}
	bridges := output(ctx, "ovs-vsctl", "--timeout=5", "list-br")
	b.add("bridges.txt", bridges)
	if names, err := bridges(); err == nil {
		for _, name := range strings.Fields(string(names)) {
			// What the switch itself says: it counts when no agent answers, or when what the agent believes is in doubt.
			b.add("flows-"+name+".txt", output(ctx, "ovs-ofctl", "--timeout=8", "-O", anyOpenFlow, "dump-flows", name))
		}
	}
	b.addTapes(o)
	b.add("datapath.txt", output(ctx, "ovs-appctl", "--timeout=5", "dpif/show"))
	if len(b.missing) > 0 {
		b.write("missing.txt", b.redact.clean([]byte(strings.Join(b.missing, "\n")+"\n")))
	}
}

// learnSecrets finds the values of secret options, so that they can be taken out wherever they turn up.
func (b *bundle) learnSecrets(config []byte) *options.Options {
	var report struct {
		Files []string `json:"files"`
	}
	_ = json.Unmarshal(config, &report) // without it the default places are looked at
	var args []string
	for _, f := range report.Files {
		args = append(args, "--config-file", f)
	}
	o, err := options.Load(args, os.Environ())
	if err != nil {
		b.missing = append(b.missing, "secrets are recognised by their looks only: "+err.Error())
		return nil
	}
	b.redact.learn(o)
	return o
}

// add puts one file in, or notes why it is not there.
func (b *bundle) add(name string, get func() ([]byte, error)) { b.addAs(name, b.redact.clean, get) }

// addAs is add for data whose secrets are taken out in another way.
func (b *bundle) addAs(name string, clean func([]byte) []byte, get func() ([]byte, error)) {
	fmt.Fprintf(b.progress, "%-24s", name)
	data, err := get()
	if err != nil {
		reason := string(b.redact.clean([]byte(err.Error())))
		b.missing = append(b.missing, name+": "+reason)
		fmt.Fprintln(b.progress, "missing:", reason)
		return
	}
	n := b.write(name, clean(data))
	fmt.Fprintf(b.progress, "%d bytes\n", n)
}

func (b *bundle) write(name string, data []byte) int {
	err := b.tar.WriteHeader(&tar.Header{Name: inspect.BundleDir + name, Mode: 0o600, Size: int64(len(data)), ModTime: b.now, Typeflag: tar.TypeReg})
	if err == nil {
		_, err = b.tar.Write(data)
	}
	b.err = errors.Join(b.err, err)
	return len(data)
}

func (b *bundle) close() error { return errors.Join(b.err, b.tar.Close(), b.zip.Close()) }

// output runs a program that only looks.
func output(ctx context.Context, name string, args ...string) func() ([]byte, error) {
	return func() ([]byte, error) {
		ctx, cancel := context.WithTimeout(ctx, commandTime)
		defer cancel()
		out, err := exec.CommandContext(ctx, name, args...).Output()
		var failed *exec.ExitError
		if errors.As(err, &failed) {
			return nil, fmt.Errorf("%s: %w: %s", name, err, bytes.TrimSpace(failed.Stderr))
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		return out, nil
	}
}

// logTail is the end of the agent's log: of its file, or of what the service manager keeps.
func logTail(ctx context.Context, o *options.Options) ([]byte, error) {
	if o == nil || o.Log.File == "" {
		return output(ctx, "journalctl", "--no-pager", "--lines=10000", "--unit=neutron-openvswitch-agent")()
	}
	f, err := os.Open(o.Log.File)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	data := make([]byte, min(info.Size(), maxLog))
	n, err := f.ReadAt(data, info.Size()-int64(len(data)))
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return slices.Clip(data[:n]), nil
}
