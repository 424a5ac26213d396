// SPDX-License-Identifier: Apache-2.0

// Command guest is what runs inside the virtual machine of `make kernel-smoke`: it makes two hosts out of network
// namespaces, each with an Open vSwitch on the kernel datapath and a Patchbay agent, and looks at what real packets do
// between two VMs while security groups change and agents restart. The server and the broker are outside, behind
// addresses of the machine's only network device. It prints a line for every step and ends with status 1 if one failed.
//
// Kernel datapaths and connection tables belong to network namespaces, which is what makes two hosts of one machine.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Params is what the outside tells: where to find server and broker.
type Params struct {
	TransportURL string `json:"transport_url"`
	API          string `json:"api"`
}

const (
	paramsFile = "params.json"
	outDir     = "/out"
	// totalTimeout ends everything; the machine emulates its processor and shares the real one.
	totalTimeout = 25 * time.Minute
	// patience is for what takes a second on a real machine.
	patience = time.Minute
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), totalTimeout)
	defer cancel()
	if err := run(ctx); err != nil {
		fmt.Printf("FAILED: %v\n", err)
		cancel()
		os.Exit(1) //nolint:gocritic // cancelled above
	}
}

func run(ctx context.Context) error {
	text, err := os.ReadFile(paramsFile)
	if err != nil {
		return fmt.Errorf("reading the parameters: %w", err)
	}
	// Programs expect a machine to have a name.
	if err := unix.Sethostname([]byte("kernel-smoke")); err != nil {
		return fmt.Errorf("naming the machine: %w", err)
	}
	c := &cloud{groups: map[string]string{}}
	if err := json.Unmarshal(text, &c.params); err != nil {
		return fmt.Errorf("reading the parameters: %w", err)
	}
	c.api = api{base: c.params.API}
	defer c.stop()
	failed := false
	fmt.Printf("%-6s %8s  %-44s %s\n", "result", "seconds", "step", "seen")
	for _, s := range c.steps() {
		if failed {
			fmt.Printf("%-6s %8s  %-44s\n", "-", "", s.name)
			continue
		}
		start := time.Now()
		seen, err := s.run(ctx)
		result := "pass"
		if err != nil {
			result, seen, failed = "FAIL", err.Error(), true
		}
		fmt.Printf("%-6s %8.1f  %-44s %s\n", result, time.Since(start).Seconds(), s.name, seen)
	}
	if failed {
		c.explain(context.WithoutCancel(ctx))
		return errors.New("a step failed; the logs of switches and agents are with the results")
	}
	return nil
}

// command runs a short program and returns what it printed.
func command(ctx context.Context, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return string(out), nil
}

// script runs one program for every line.
func script(ctx context.Context, lines ...string) error {
	for _, l := range lines {
		words := strings.Fields(l)
		if _, err := command(ctx, words[0], words[1:]...); err != nil {
			return err
		}
	}
	return nil
}

// errEnded is about a process that should run; waiting for it is useless.
var errEnded = errors.New("it has ended")

// until calls f until it returns nil, or time is up and its last error is returned.
func until(ctx context.Context, limit time.Duration, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		err := f(ctx)
		if err == nil || errors.Is(err, errEnded) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not within %v: %w", limit, err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}
