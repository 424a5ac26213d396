// SPDX-License-Identifier: Apache-2.0

// Command smoke runs `make kernel-smoke`: it makes the guest's image if there is none, starts a broker and a server on
// this machine, boots the guest with Patchbay inside, shows what it prints, and ends with its status.
//
// The guest reaches the broker and the server and nothing else: each of its connections to one of two addresses is
// handed by qemu to this program, called as `smoke relay ADDRESS`.
package main

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/patchbay-sdn/patchbay/lab"
)

const (
	guestBroker = "10.0.2.100:5672"
	guestAPI    = "10.0.2.101:9696"
	// bootTimeout bounds the life of the guest; it bounds itself a little lower.
	bootTimeout = 30 * time.Minute
	outSize     = 64 << 20
)

func main() {
	if len(os.Args) == 3 && os.Args[1] == "relay" {
		if err := relay(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, "relay:", err)
			os.Exit(1)
		}
		return
	}
	var o options
	flag.StringVar(&o.image, "image", "/var/cache/patchbay-kernel", "`directory` of the guest's image")
	flag.StringVar(&o.script, "make", "lab/kernel/image.sh", "`script` that makes the image")
	flag.StringVar(&o.guest, "guest", "bin/kernel-guest", "the guest's `program`")
	flag.StringVar(&o.patchbay, "patchbay", "bin/patchbay", "the agent's `program`")
	flag.StringVar(&o.lab, "lab", "", "`directory` of a running lab whose broker and server to use, instead of own ones")
	flag.StringVar(&o.logs, "logs", "", "`directory` to keep the guest's logs in; by default they are kept after a failure only")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := smoke(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "kernel-smoke:", err)
		os.Exit(1)
	}
}

type options struct{ image, script, guest, patchbay, lab, logs string }

func smoke(ctx context.Context, o options) (err error) {
	start := time.Now()
	cmd := exec.CommandContext(ctx, o.script, o.image)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("making the image: %w", err)
	}
	dir, err := os.MkdirTemp("/tmp", "pbkern")
	if err != nil {
		return fmt.Errorf("making a directory: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()

	l, down, err := servers(ctx, o.lab, filepath.Join(dir, "lab"))
	defer func() { err = errors.Join(err, down()) }()
	if err != nil {
		return err
	}
	fmt.Printf("image, broker and server ready after %.1f s\n", time.Since(start).Seconds())

	broker, err := url.Parse(l.TransportURL())
	if err != nil {
		return fmt.Errorf("reading the broker's address: %w", err)
	}
	address := broker.Host
	broker.Host = guestBroker
	in := filepath.Join(dir, "in.tar")
	if err := pack(in, broker.String(), o); err != nil {
		return err
	}
	out := filepath.Join(dir, "out.tar")
	if err := makeDisk(out); err != nil {
		return err
	}
	boot := time.Now()
	if err := qemu(ctx, o.image, in, out, address, l.APIAddr()); err != nil {
		return err
	}
	fmt.Printf("guest ran for %.1f s, all of it took %.1f s\n", time.Since(boot).Seconds(), time.Since(start).Seconds())
	return judge(out, o.logs)
}

// servers returns a lab with broker and server, and what ends it.
func servers(ctx context.Context, running, own string) (*lab.Lab, func() error, error) {
	if running != "" {
		l, err := lab.Open(lab.Options{Dir: running})
		return l, func() error { return nil }, err
	}
	down := func() error { return lab.Down(context.WithoutCancel(ctx), lab.Options{Dir: own}) }
	l, err := lab.Up(ctx, lab.Options{Dir: own, Hosts: 0})
	if err != nil {
		err = fmt.Errorf("starting broker and server: %w", err)
	}
	return l, down, err
}

// makeDisk makes an empty file of which only what is written takes room.
func makeDisk(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("making a disk: %w", err)
	}
	return errors.Join(f.Truncate(outSize), f.Close())
}

// pack writes the guest's second disk.
func pack(path, transportURL string, o options) error {
	params, err := json.Marshal(map[string]string{"transport_url": transportURL, "api": "http://" + guestAPI})
	if err != nil {
		return fmt.Errorf("packing the guest's parameters: %w", err)
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	add := func(name string, mode int64, text []byte) error {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: mode, Size: int64(len(text))}); err != nil {
			return fmt.Errorf("packing %s: %w", name, err)
		}
		if _, err := w.Write(text); err != nil {
			return fmt.Errorf("packing %s: %w", name, err)
		}
		return nil
	}
	for name, file := range map[string]string{"run": o.guest, "patchbay": o.patchbay} {
		text, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("packing: %w", err)
		}
		if err := add(name, 0o755, text); err != nil {
			return err
		}
	}
	if err := add("params.json", 0o600, params); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return fmt.Errorf("packing: %w", err)
	}
	// Disks consist of whole sectors.
	b.Write(make([]byte, (512-b.Len()%512)%512))
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		return fmt.Errorf("packing: %w", err)
	}
	return nil
}

// qemu boots the guest and shows its console until it powers off. The processor is emulated: it works everywhere, also
// where the machine is itself a guest.
func qemu(ctx context.Context, image, in, out, broker, api string) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this program: %w", err)
	}
	forward := func(from, to string) string {
		return ",guestfwd=tcp:" + from + "-cmd:" + self + " relay " + to
	}
	ctx, cancel := context.WithTimeout(ctx, bootTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "qemu-system-x86_64",
		"-accel", "tcg,tb-size=256", "-cpu", "qemu64", "-smp", "1", "-m", "1024", "-machine", "q35", "-no-reboot",
		"-display", "none", "-monitor", "none", "-serial", "stdio", "-nodefaults",
		"-kernel", filepath.Join(image, "vmlinuz"), "-initrd", filepath.Join(image, "initrd"),
		"-append", "console=ttyS0 quiet panic=-1",
		"-drive", "if=virtio,format=raw,readonly=on,file="+filepath.Join(image, "root.ext4"),
		"-drive", "if=virtio,format=raw,readonly=on,file="+in,
		"-drive", "if=virtio,format=raw,file="+out,
		"-netdev", "user,id=net,restrict=on"+forward(guestBroker, broker)+forward(guestAPI, api),
		"-device", "virtio-net-pci,netdev=net",
	)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("running the guest: %w", errors.Join(ctx.Err(), err))
	}
	return nil
}

// judge reads what the guest left: its status, and logs, which are kept when they are wanted or needed.
func judge(path, logs string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("reading the results: %w", err)
	}
	defer func() { _ = f.Close() }()
	files := map[string][]byte{}
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("reading the results: %w", err)
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		text, err := io.ReadAll(r)
		if err != nil {
			return fmt.Errorf("reading the results: %w", err)
		}
		files[filepath.Base(h.Name)] = text
	}
	status, err := strconv.Atoi(strings.TrimSpace(string(files["status"])))
	if err != nil {
		err = errors.New("the guest left no status")
	} else if status != 0 {
		err = fmt.Errorf("the guest ended with status %d", status)
	}
	if err != nil && logs == "" {
		logs = filepath.Join(os.TempDir(), "kernel-smoke-logs")
	}
	if logs == "" {
		return nil
	}
	if mkErr := os.MkdirAll(logs, 0o755); mkErr != nil {
		return errors.Join(err, mkErr)
	}
	for name, text := range files {
		if writeErr := os.WriteFile(filepath.Join(logs, name), text, 0o600); writeErr != nil {
			err = errors.Join(err, writeErr)
		}
	}
	fmt.Println("logs of the guest are in", logs)
	return err
}

// relay joins standard input and output to a TCP connection.
func relay(address string) error {
	conn, err := net.DialTimeout("tcp", address, 10*time.Second)
	if err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(conn, os.Stdin)
		_ = conn.(*net.TCPConn).CloseWrite()
	}()
	_, err = io.Copy(os.Stdout, conn)
	return err
}
